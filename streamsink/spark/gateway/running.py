"""What a micro-batch is, as the running query knows it, asked of Spark's JVM gateway. Runs on the driver.

Only this file and the other files of this folder use the gateway. Spark Connect has none: to support it, files with the
same functions would be needed.
"""

import contextlib
import functools
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, Observation, SparkSession

from streamsink.clock import Clock
from streamsink.errors import Misuse
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.same_query import digest
from streamsink.spark.gateway import checkpoint_files
from streamsink.spark.gateway.kafka import KafkaSources
from streamsink.spark.gateway.offset_log import Logged, ranges

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_CONNECT = "pyspark.sql.connect."
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CREDENTIALS = re.compile(r"(?<=://)[^/@:]*:[^/@]*@")
_TEMPORARY = re.compile(r"/temporary-[0-9a-f]{8}-[0-9a-f-]{27}/?$")


@dataclass
class _Running:
    """One start of a query, with its one id, one execution and one checkpoint; and where its last batch ended.

    execution: Spark's own object of the start. query: the checkpoint's id. run: the id of the start. root: the
    checkpoint's folder. place: a digest of ``root``. estimate: of a batch, with the batch's id.
    """

    execution: JavaObject
    query: str
    run: str
    root: str
    kafka: KafkaSources
    place: str
    last_batch: int | None = None
    last: Logged | None = None
    asked_names: list[str] | None = None
    estimate: tuple[int | None, int | None] = (None, None)

    def names(self) -> list[str]:
        """The names of the query's sources, in the order of the query. Spark 4.2 and newer."""
        if self.asked_names is None:
            names, sources = self.execution.sourceToIdMap(), self.execution.sources()
            self.asked_names = [str(names.apply(sources.apply(place))) for place in range(sources.size())]
        return self.asked_names


# By the id of the start, as the execution itself has it.
_RUNNING: dict[str, _Running] = {}
_MOST_RUNNING = 16
# By session and name: how many use the setting now, and its value before the first of them; None where it had none.
_SET: dict[tuple[int, str], tuple[int, str | None]] = {}
_SETTING = threading.Lock()
# The waits while Spark's listeners deliver an observation, which as a rule happens at once.
_LISTENER_WAITS_MS = (*[2] * 50, *[50] * 1200)


def describe(df: DataFrame, batch_id: int, table: str, run: str, is_first: Callable[[str], bool]) -> Batch:
    """Return the identity, source positions and watermark of the micro-batch that ``foreachBatch`` was called with.

    run: as ``run_id`` returns it. is_first: tells whether the sink has not had a batch in the run of this id, which is
    the id that the query itself has.

    This is read from the checkpoint's offset log, which is durable when the batch function is called. Raises Misuse
    when the DataFrame is no streaming batch, or the checkpoint is a temporary folder.
    """
    spark = df.sparkSession
    running = _running(df, table, run)
    root = running.root
    after = checkpoint_files.logged(spark, root, batch_id, table)
    if running.last_batch == batch_id - 1:
        before = running.last
    else:
        before = checkpoint_files.logged(spark, root, batch_id - 1, table) if batch_id > 0 else None
    running.last_batch, running.last = batch_id, after

    def told(start: Logged | None, end: Logged) -> tuple[SourceRange, ...]:
        found = ranges(start, end, running.names, running.kafka.numbers)
        return tuple(
            checkpoint_files.told_by_source(spark, root, running.kafka.number(place), source)
            for place, source in enumerate(found)
        )

    def told_before() -> tuple[SourceRange, ...] | None:
        start = checkpoint_files.find_logged(spark, root, batch_id - 2) if batch_id > 1 else None
        return None if before is None or batch_id > 1 and start is None else told(start, before)

    identified = running.kafka.identified(told(before, after), batch_id, is_first(running.run))
    return Batch(
        batch_id,
        running.query,
        running.run,
        identified,
        after.watermark_ms,
        planned_ms=after.planned_ms,
        before_ms=before.planned_ms if before is not None else 0,
        place=running.place,
        before=told_before,
    )


def looked_at_again(batch: Batch) -> Batch:
    """Return the batch with the ids that its topics had when its rows were written."""
    running = _RUNNING.get(batch.run)
    return running.kafka.looked_at_again(batch) if running else batch


def check_not_connect(of: DataFrame | SparkSession, table: str) -> None:
    """Raises Misuse for a session of Spark Connect, whose client has no gateway."""
    if type(of).__module__.startswith(_CONNECT):
        raise Misuse(
            f"{table}: this session is one of Spark Connect, which has no gateway to Spark's JVM; which query runs, "
            "where its checkpoint is and how its rows come is asked there. Nothing was written. Use a session of "
            "Spark's own: built without .remote(...), and without SPARK_REMOTE in the environment. "
            "streamsink.read_arrow needs no Spark",
            kind="spark.connect",
        )


def without_credentials(path: str) -> str:
    """A path or an address without the user and the password in it.

    A name that stands alone before an ``@`` is that of a container, and is kept.
    """
    return _CREDENTIALS.sub("", path)


def each_of(sequence: JavaObject) -> list[JavaObject]:
    """The elements of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]


def run_id(df: DataFrame) -> str:
    """The id of this start of the query, as ``StreamingQuery.runId`` has it; empty outside a streaming query."""
    return df.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id") or ""


def check_batch_id(df: DataFrame, batch_id: int, table: str) -> None:
    """Raises Misuse when this is not the id of the micro-batch that the query runs now.

    An id that the program has chosen itself identifies nothing.
    """
    now = df.sparkSession.sparkContext.getLocalProperty(_BATCH_ID)
    if now is not None and str(batch_id) != now:
        raise Misuse(
            f"{table}: called for batch {batch_id!r}, but Spark runs batch {now} of this query now. Nothing was "
            "written. Pass the id on that Spark gives to the batch function: foreachBatch(lambda df, batch_id: "
            "sink(df, batch_id))",
            kind="batch.wrong-id",
        )


def same_rows(one: DataFrame, other: DataFrame) -> bool:
    """Whether both DataFrames are the same computation over the same batch."""
    return one is other or one.sameSemantics(other)


def jvm_that_calls_back(spark: SparkSession) -> Any:
    """The JVM of the driver, which can call objects of Python that it is given."""
    start: Any = ensure_callback_server_started
    start(spark.sparkContext._gateway)
    return spark.sparkContext._jvm


def start_id(df: DataFrame, run: str) -> str:
    """The id of this start of the query as the query itself has it.

    A program may have set a job group of its own. run: as ``run_id`` returns it. It is the answer where Spark does not
    answer any more: this is called when a batch has failed.
    """
    if run in _RUNNING:
        return run
    try:
        query = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        execution = _active(df.sparkSession, query) if query else None
        return run if execution is None else str(execution.runId().toString())
    except (Py4JError, OSError, AttributeError):  # as in ``has_ended``
        return run


class Selected(NamedTuple):
    """A column to select: an SQL expression, a name, and metadata (JSON)."""

    sql: str
    name: str
    metadata: dict[str, Any]


def select(df: DataFrame, columns: Sequence[Selected]) -> DataFrame:
    """Do what ``df.select`` does, with three calls to the JVM per column.

    A ``Column`` with a type, a name and metadata makes some forty calls.
    """
    jvm: Any = df.sparkSession.sparkContext._jvm
    functions, metadata = (getattr(jvm, f"org.apache.spark.sql.{name}") for name in ("functions", "types.Metadata"))
    # The method ``_jseq`` is not declared, so that a type checker takes it for a column of the DataFrame.
    frame: Any = df
    made = [
        getattr(functions.expr(each.sql), "as")(each.name, metadata.fromJson(json.dumps(each.metadata)))
        for each in columns
    ]
    return DataFrame(frame._jdf.select(frame._jseq(made)), df.sparkSession)


def execution(run: str) -> JavaObject | None:
    """Spark's own object of this start of a query; None unless ``describe`` has described a batch of it."""
    running = _RUNNING.get(run)
    return running.execution if running is not None else None


def kafka_sources(run: str) -> KafkaSources | None:
    """The Kafka sources of this start of a query; None unless ``describe`` has described a batch of it."""
    running = _RUNNING.get(run)
    return running.kafka if running is not None else None


def running_here(spark: SparkSession) -> JavaObject | None:
    """Spark's own object of the streaming query whose batch function runs in this thread; None outside of one."""
    query = spark.sparkContext.getLocalProperty(_QUERY_ID)
    return _active(spark, query) if query else None


def is_active(spark: SparkSession, query: str) -> bool:
    """Whether a query with this checkpoint id runs in this driver now."""
    return _active(spark, query) is not None


def has_ended(spark: SparkSession, query: str) -> bool:
    """Whether no further batch of this query can come: it has ended, or Spark is gone. Called from any thread."""
    try:
        return not is_active(spark, query)
    except (Py4JError, OSError, AttributeError):  # AttributeError: the session was stopped, its gateway is None
        return True


def daemon_module() -> str | None:
    """The module that this process's Spark starts as the Python workers' daemon; None for Spark's default."""
    return SparkContext.getOrCreate().getConf().get("spark.python.daemon.module")


def estimated_bytes(run: str) -> int | None:
    """Spark's estimate of the size of the micro-batch that this start of a query runs now; None when it has none.

    Spark is asked once for each batch.
    """
    running = _RUNNING.get(run)
    if running is None:
        return None
    if running.estimate[0] is None or running.estimate[0] != running.last_batch:
        last = running.execution.lastExecution()
        size = None if last is None else int(str(last.optimizedPlan().stats().sizeInBytes()))
        running.estimate = (running.last_batch, size)
    return running.estimate[1]


def observed(observation: Observation, name: str) -> int | None:
    """Return one value that an observation of a finished action has found.

    None when Spark's listeners do not deliver it within a minute.
    """
    java: Any = observation._jo
    clock, found = Clock(), java.future()
    for wait_ms in _LISTENER_WAITS_MS:
        if found.isCompleted():
            return observation.get.get(name)
        clock.sleep_ms(wait_ms)
    return None


def encrypts_parquet(spark: SparkSession) -> bool:
    """Whether this session's Parquet files are encrypted, which no reader of the table expects."""
    return spark._jsparkSession.sessionState().newHadoopConf().get("parquet.crypto.factory.class") is not None


@functools.cache
def encoding_of_locale() -> str:
    """The encoding in which Spark's JVM spells the names of files on disks."""
    jvm: Any = SparkContext.getOrCreate()._jvm
    return str(jvm.java.lang.System.getProperty("sun.jnu.encoding"))


def not_spelled(names: Iterable[str]) -> list[str]:
    """Those of these names, or paths on disks, that Spark's JVM cannot spell: Java finds no such file.

    The JVM is asked only where a name is not plain ASCII.
    """
    odd = [name for name in names if not name.isascii()]
    encoding = encoding_of_locale() if odd else ""
    with contextlib.suppress(LookupError):  # Python does not know it
        return [name for name in odd if name.encode(encoding, "replace").decode(encoding) != name]
    return []


def check_file_system(spark: SparkSession, scheme: str, table: str) -> None:
    """Raises Misuse when Spark cannot read paths of this scheme."""
    check_not_connect(spark, table)
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, conf)
    except Py4JJavaError as missing:
        raise Misuse(
            f"{table}: this Spark session has no file system for {scheme}:// paths. Add hadoop-aws in the version of "
            "Spark's Hadoop (spark.jars.packages) and set fs.s3a.*; or read the table with streamsink.read_arrow",
            kind="read.no-file-system",
        ) from missing


def _running(df: DataFrame, table: str, run: str) -> _Running:
    """What is asked of Spark once in a run; in every batch, when the program sets a job group of its own."""
    known = _RUNNING.get(run)
    if known is not None:
        return known
    execution, query = _execution(df.sparkSession, table)
    root = str(execution.resolvedCheckpointRoot())
    if _TEMPORARY.search(root):
        raise Misuse(
            f"{table}: the query has no checkpointLocation, so Spark uses a temporary one and would forget what it "
            "wrote. Nothing was written. Set .option('checkpointLocation', ...)",
            kind="checkpoint.missing",
        )
    kafka = KafkaSources(df.sparkSession, execution, table)
    found = _Running(
        execution, query, str(execution.runId().toString()), root, kafka, digest(without_credentials(root))
    )
    earlier = [run for run, other in list(_RUNNING.items()) if other.query == query]
    for run in earlier or list(_RUNNING)[:-_MOST_RUNNING]:
        _RUNNING.pop(run, None)
    _RUNNING[found.run] = found
    return found


def _active(spark: SparkSession, query: str) -> JavaObject | None:
    if not _UUID.fullmatch(query):
        return None  # a bounded job's run id
    running = spark._jsparkSession.sharedState().activeStreamingQueries()
    jvm: Any = spark._jvm
    return running.get(jvm.java.util.UUID.fromString(query))


def _execution(spark: SparkSession, table: str) -> tuple[JavaObject, str]:
    query = spark.sparkContext.getLocalProperty(_QUERY_ID)
    execution = _active(spark, query) if query else None
    if query is None or execution is None:
        raise Misuse(
            f"{table}: not called by a running streaming query, or from another thread than its own, which does not "
            "know the query. Nothing was written. Pass streamsink.to_table(...) to .writeStream.foreachBatch(...), "
            "or call it there in the batch function's own thread; for a batch DataFrame use streamsink.write(...)",
            kind="batch.not-streaming",
        )
    return execution, query


@contextlib.contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """While this is open, the session has these settings.

    The session of a streaming batch belongs to its query; that of ``streamsink.write`` belongs to the caller, who may
    write in several threads. Then the last one gives the session back what it had before the first.
    """
    of_session = id(spark)
    begun = list[str]()
    try:
        with _SETTING:
            for name, value in settings.items():
                users, before = _SET.get((of_session, name)) or (0, spark.conf.get(name, None))
                spark.conf.set(name, value)
                _SET[of_session, name] = users + 1, before
                begun.append(name)
        yield
    finally:
        with _SETTING:
            for name in begun:
                users, before = _SET.pop((of_session, name))
                if users > 1:
                    _SET[of_session, name] = users - 1, before
                elif before is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, before)
