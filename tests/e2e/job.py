"""One streaming query as a value: written to JSON for a driver of its own, or run in the test's own Spark session."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pyspark.sql.types import LongType, StringType, StructField, StructType

import streamsink
from streamsink.databases import DatabaseSink
from streamsink.events import Event
from streamsink.kafka import KafkaSink
from streamsink.sink import FanOut, FileSink, PaimonTable, to_sink
from tests.e2e.kafka_data import AT_ONCE
from tests.sinks.shown import json_lines, plain_files

ROWS_PER_FILE = 10
# By name, the sinks that pages of the docs show, and directories of files.
SHOWN: dict[str, Callable] = {"plain files": plain_files, "json lines": json_lines, "files": FileSink}
POSITIONS = ("topic", "partition", "offset")
# As a type and not as text: Spark's parser of SQL costs a driver a tenth of a second.
_ROWS = StructType([StructField("id", LongType()), StructField("name", StringType())])


@dataclass(frozen=True)
class Job:
    """A query: source -> table.

    source: {"kind": "files", "dir"} of JSON lines, {"kind": "kafka", "bootstrap", "topic"[, "starting"][, "options"]}
    or {"kind": "rate-micro-batch"}. per_batch: files, messages or rows a batch. column: SQL of an added column "extra".
    shuffle: repartition by id, which takes Spark's shuffle partitions. conf: Spark settings of a driver of its own.
    event_time: SQL of an event time with a watermark without delay. many: arguments of ``to_tables``; ``table`` is then
    the warehouse. shown: the query writes into the sink of this name that a page of the docs shows.
    database: arguments of ``DatabaseSink``, which the query then writes into. to_kafka: arguments of a ``KafkaSink``,
    into which the query then writes; the key of a message is its partition in the source, or its id where that is of
    files. iceberg: arguments of an ``IcebergSink``, likewise. fan_out: a query over files writes into ``table``, into
    the ``database``, into the topic of ``to_kafka`` and into a directory of files, as this has them: {"journal",
    "files"}.
    delta: ``table`` is a Delta table.
    """

    table: str
    checkpoint: str
    source: dict
    per_batch: int = 1
    options: dict = field(default_factory=dict)
    column: str | None = None
    event_time: str | None = None
    where: str | None = None
    shuffle: bool = False
    max_restarts: int = 5
    conf: dict = field(default_factory=dict)
    processing_time: str | None = None
    many: dict = field(default_factory=dict)
    shown: str = ""
    database: dict = field(default_factory=dict)
    to_kafka: dict = field(default_factory=dict)
    iceberg: dict = field(default_factory=dict)
    fan_out: dict = field(default_factory=dict)
    delta: bool = False

    def but(self, **changes) -> "Job":
        """The same job with other values; options are added to those that are there."""
        if "options" in changes:
            changes["options"] = {**self.options, **changes["options"]}
        return replace(self, **changes)

    def save(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def load(cls, path: str) -> "Job":
        return cls(**json.loads(Path(path).read_text()))


def frame(spark, job: Job):
    """The streaming DataFrame of the job: an id for each row, and the position columns of a Kafka source."""
    kind = job.source["kind"]
    reader = spark.readStream.format({"files": "json"}.get(kind, kind))
    if kind == "files":
        reader = reader.schema(_ROWS).option("maxFilesPerTrigger", job.per_batch)
        df = reader.load(job.source["dir"])
    elif kind == "kafka":
        reader = reader.option("kafka.bootstrap.servers", job.source["bootstrap"]).option(
            "subscribe", job.source["topic"]
        )
        reader = reader.option("startingOffsets", job.source.get("starting", "earliest")).options(
            **AT_ONCE, **job.source.get("options", {})
        )
        df = reader.option("maxOffsetsPerTrigger", job.per_batch).load()
        df = df.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id", *POSITIONS)
    else:
        df = reader.option("rowsPerBatch", job.per_batch).load().selectExpr("value AS id")
    if job.column:
        df = df.selectExpr("*", f"{job.column} AS extra")
    if job.event_time:
        df = df.selectExpr("*", f"{job.event_time} AS at").withWatermark("at", "0 seconds")
    if job.where:
        df = df.where(job.where)
    if job.fan_out:
        df = df.selectExpr("*", "CAST(id AS STRING) AS value")
    elif job.to_kafka and kind == "files":
        df = df.selectExpr("*", "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    elif job.to_kafka:
        of = ("CAST(partition AS STRING) AS key", "CAST(id AS STRING) AS value")
        df = df.selectExpr(*of, *(f"{name} AS source_{name}" for name in POSITIONS))
    return df.repartition("id") if job.shuffle else df


def _everywhere(job: Job) -> FanOut:
    to = {"table": PaimonTable(job.table), "files": FileSink(job.fan_out["files"])}
    to |= {"db": DatabaseSink(**job.database)} if job.database else {}
    to |= {"topic": KafkaSink(**job.to_kafka)} if job.to_kafka else {}
    return FanOut(to, journal=job.fan_out["journal"])


def start(spark, job: Job, listener: Callable[[Event], None]):
    """Start the query once."""
    options = dict(job.options)
    if job.source["kind"] == "kafka":
        options = {"position_columns": POSITIONS, **options}
    if job.fan_out:
        sink = to_sink(_everywhere(job), listener=listener, **options)
    elif job.database:
        sink = to_sink(DatabaseSink(**job.database), listener=listener, **options)
    elif job.to_kafka:
        if job.source["kind"] == "kafka":
            options["position_columns"] = tuple(f"source_{name}" for name in POSITIONS)
        sink = to_sink(KafkaSink(**job.to_kafka), listener=listener, **options)
    elif job.delta:
        from streamsink.delta import DeltaSink

        sink = to_sink(DeltaSink(job.table), listener=listener, **options)
    elif job.iceberg:
        from streamsink.iceberg import IcebergSink

        sink = to_sink(IcebergSink(**job.iceberg), listener=listener, **options)
    elif job.shown:
        sink = to_sink(SHOWN[job.shown](job.table), listener=listener, **options)
    elif job.many:
        sink = streamsink.to_tables(job.table, listener=listener, **job.many, **options)
    else:
        sink = streamsink.to_table(job.table, listener=listener, **options)
    writer = frame(spark, job).writeStream.foreachBatch(sink).option("checkpointLocation", job.checkpoint)
    if job.processing_time:
        return writer.trigger(processingTime=job.processing_time).start()
    return writer.trigger(availableNow=True).start()


def supervised(spark, job: Job, listener: Callable[[Event], None]) -> int:
    """Run it to its end under the supervisor. Returns the rows that the source handed over, in all starts together."""
    queries = []

    def begin():
        queries.append(start(spark, job, listener))
        return queries[-1]

    streamsink.run(begin, max_restarts=job.max_restarts, min_wait_ms=1, max_wait_ms=10)
    return sum(progress.numInputRows for query in queries for progress in query.recentProgress)
