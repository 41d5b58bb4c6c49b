"""Small batches of a source that does not say how large they are: the driver writes them, the query runs once for each
batch, and no more is collected than the options allow, also when a batch is large all of a sudden.
"""

import os
import sys
import threading
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import streamsink
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.events import BatchWritten
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import SourceRange
from streamsink.sinks.paimon.opening import PaimonTable
from streamsink.spark.gateway import kept_rows
from streamsink.spark.gateway.collecting import Collecting
from streamsink.spark.gateway.kept_rows import KeptRows
from streamsink.spark.query.foreach_batch import BatchFunction
from streamsink.spark.query.routed_sink import letters_sink, tables_sink
from streamsink.spark.query.spark_sink import SparkSink
from streamsink.table.routed.rules import Routing
from tests.e2e.harness import WAIT_S, ids_in

pytestmark = pytest.mark.spark

POSITIONS = ("topic", "partition", "offset")
# The number of the batch that is large. Ten rows are read for each batch.
LARGE, ROWS = 3, 10
# What a row becomes: many rows, or a wide one whose text is the same in each row.
MANY = f"explode(sequence(1L, if(value DIV {ROWS} = {LARGE}, 50L, 1L)))"
WIDE = f"repeat('x', if(value DIV {ROWS} = {LARGE}, 20000, 10))"


@dataclass
class Written:
    """Listens to a sink."""

    batches: list[BatchWritten] = field(default_factory=list)

    def __call__(self, event) -> None:
        if isinstance(event, BatchWritten):
            self.batches.append(event)

    @property
    def ways(self) -> list[str]:
        return [batch.way for batch in self.batches]


@dataclass
class Collected:
    """What the driver has collected: rows and bytes of each batch that it did."""

    found: list[tuple[int, int]] = field(default_factory=list)


@pytest.fixture
def collected(monkeypatch) -> Collected:
    seen, rows = Collected(), Collecting.rows

    def counted(collecting):
        pieces = rows(collecting)
        seen.found.append((sum(piece.num_rows for piece in pieces), sum(piece.nbytes for piece in pieces)))
        return pieces

    monkeypatch.setattr(Collecting, "rows", counted)
    return seen


def run(stream, ground, batches: int, function) -> list[int]:
    """Call the function with so many batches, one after another, as fast as they come. Returns how many rows Spark says
    that it has read for each.
    """
    done = threading.Event()

    def publish(df, number: int) -> None:
        if number < batches:
            function(df, number)
            return
        if "token" not in df.columns:
            df.write.format("noop").mode("overwrite").save()  # Spark fails a query whose state was not stored
        done.set()

    query = stream.writeStream.foreachBatch(publish).option("checkpointLocation", ground.checkpoint).start()
    while not done.wait(0.02) and query.isActive:
        pass
    if not done.is_set():
        raise query.exception() or AssertionError("the query has ended")
    query.stop()
    query.awaitTermination(WAIT_S)
    return [progress.numInputRows for progress in query.recentProgress[:batches]]


def rates(spark, rows: int = ROWS):
    """A stream of ``rows`` rows in each batch, from a source without any estimate, in two tasks."""
    return spark.readStream.format("rate-micro-batch").options(rowsPerBatch=rows, numPartitions=2).load()


def counting(folder: Path):
    """A column that is another one each time that it is computed, and that leaves a line for each."""
    file = str(folder / "computed")

    def token(value: int) -> str:
        found = uuid.uuid4().hex
        descriptor = os.open(file, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, f"{found}\n".encode())
        os.close(descriptor)
        return found

    return F.udf(token).asNondeterministic()


def computed(folder: Path) -> list[str]:
    return (folder / "computed").read_text().split()


@pytest.mark.in_turn("looks at the table while rows are computed", 1)
@pytest.mark.parametrize("store", ["disk", "s3"])
def test_the_query_runs_once_where_its_rows_are_computed_while_the_table_is_looked_at(
    spark, ground, s3_server, monkeypatch, store
):
    """Each row is computed once, and is in the table as it was computed. A run's first batch waits for the look."""
    begun, collecting = [], Collecting.__init__

    def noted(self, df):
        begun.append([frame.f_code.co_name for frame in _frames()])
        collecting(self, df)

    monkeypatch.setattr(Collecting, "__init__", noted)
    ground.add_files(0, 4)
    stream = spark.readStream.schema("id LONG, name STRING").option("maxFilesPerTrigger", 1).json(str(ground.source))
    path, options = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}/shop.db/orders", s3_server.options
    path, options = (path, options) if store == "s3" else (ground.table, {})
    sink = streamsink.to_table(path, store_options=options)
    query = stream.select("id", counting(ground.root)("id").alias("token")).writeStream.foreachBatch(sink)
    query.option("checkpointLocation", ground.checkpoint).trigger(availableNow=True).start().awaitTermination(WAIT_S)
    found = streamsink.read_arrow(path, store_options=options)
    assert sorted(found.column("id").to_pylist()) == list(range(40))
    assert sorted(found.column("token").to_pylist()) == sorted(computed(ground.root))
    assert ["_collecting" in names for names in begun] == [False, True, True, True]


def _frames():
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


@pytest.fixture(autouse=True)
def nothing_is_kept_before(spark):
    """What other tests of this session have left with Spark is let go."""
    for rdd in list(spark.sparkContext._jsc.getPersistentRDDs().values()):
        rdd.unpersist()


def nothing_is_kept(spark) -> bool:
    return len(spark.sparkContext._jsc.getPersistentRDDs()) == 0


@pytest.mark.in_turn("sources without an estimate", 1)
@pytest.mark.parametrize("source", ["rate-micro-batch", "a connector in Python", "a stateful query"])
def test_the_driver_writes_small_batches_of_a_source_without_an_estimate(spark, ground, collected, source):
    """From the second batch on there is one data file a batch."""
    written = Written()
    stream = rates(spark, 1_000)
    if source == "a connector in Python":
        spark.dataSource.register(_connector())
        stream = spark.readStream.format("thousands").load()
    elif source == "a stateful query":
        stream = stream.dropDuplicates(["value"])
    read = run(stream.select("value"), ground, 4, streamsink.to_table(ground.table, written, flush=False))
    assert read == [1_000] * 4
    assert written.ways[1:] == ["driver"] * 3 and written.ways[0] != "driver"
    assert [batch.files for batch in written.batches[1:]] == [1, 1, 1]
    assert [rows for rows, _ in collected.found] == [1_000] * 3
    values = streamsink.read_arrow(ground.table).column("value").to_pylist()
    assert sorted(values) == list(range(4_000))
    assert nothing_is_kept(spark)


def _connector():
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self):
            return {"at": 0}

        def read(self, start):
            return iter([(start["at"] + number,) for number in range(1_000)]), {"at": start["at"] + 1_000}

        def readBetweenOffsets(self, start, end):
            return iter([(number,) for number in range(start["at"], end["at"])])

    class Thousands(DataSource):
        @classmethod
        def name(cls):
            return "thousands"

        def schema(self):
            return "value BIGINT"

        def simpleStreamReader(self, schema):
            return Reader()

    return Thousands


@pytest.mark.in_turn("large all of a sudden", 1)
@pytest.mark.parametrize(("becomes", "large"), [(MANY, "tasks"), (WIDE, "spark")], ids=["many rows", "wide rows"])
def test_a_batch_that_is_large_all_of_a_sudden_is_computed_once_and_not_collected(
    spark, ground, collected, becomes, large
):
    """Its rows are those that were computed first, although each computation gives others."""
    written, most_rows, most_bytes = Written(), 4 * ROWS, 100_000
    options = {"driver_max_rows": most_rows, "driver_max_bytes": most_bytes, "large_batches": large, "flush": False}
    made = F.expr(becomes).alias("made")
    stream = rates(spark).select("value", made).withColumn("token", counting(ground.root)("value"))
    run(stream, ground, 6, streamsink.to_table(ground.table, written, **options))
    # The batch after the large one is written as that one: whether it is small is not tried so soon.
    assert written.ways == [large, "driver", "driver", large, large, "driver"]
    assert len(collected.found) == 3
    assert all(rows <= most_rows and size <= most_bytes for rows, size in collected.found)
    assert nothing_is_kept(spark)
    rows = streamsink.read_arrow(ground.table).to_pylist()
    assert Counter(row["token"] for row in rows) == Counter(computed(ground.root))
    times = 50 if becomes == MANY else 1
    expected = Counter({value: times if value // ROWS == LARGE else 1 for value in range(6 * ROWS)})
    assert Counter(row["value"] for row in rows) == expected


def test_a_batch_that_fails_is_kept_no_longer_and_can_be_written_again(spark, ground):
    """Neither the sink's own error nor one of Spark's job leaves anything behind."""
    written, errors = Written(), []
    sink = streamsink.to_table(ground.table, written, flush=False)

    def publish(df, number: int) -> None:
        if number == 1:
            bad = df.withColumn("value", F.expr("if(value % 7 = 6, CAST(raise_error('a bad row') AS BIGINT), value)"))
            with pytest.raises(PySparkException, match="a bad row"):
                sink(bad, number)
            errors.append(nothing_is_kept(spark))
        sink(df, number)

    with pytest.raises(Exception, match="failed with other rows than these"):
        run(rates(spark).select("value"), ground, 3, publish)
    assert errors == [True] and written.ways == ["spark"] and nothing_is_kept(spark)
    run(rates(spark).select("value"), ground, 3, sink)
    assert sorted(streamsink.read_arrow(ground.table).column("value").to_pylist()) == list(range(3 * ROWS))


def test_a_programs_own_cache_of_the_rows_is_left_alone(spark, ground):
    written, found = Written(), []
    sink = streamsink.to_table(ground.table, written, flush=False)

    def publish(df, number: int) -> None:
        df.persist()
        sink(df, number)
        found.append((df.storageLevel.useMemory, df.count()))
        df.unpersist()

    rows = rates(spark).withColumn("token", counting(ground.root)("value"))
    run(rows, ground, 3, publish)
    assert written.ways[1:] == ["driver"] * 2 and found == [(True, ROWS)] * 3
    assert sorted(computed(ground.root)) == sorted(streamsink.read_arrow(ground.table).column("token").to_pylist())


@pytest.mark.in_turn("rows that must not be kept", 1)
@pytest.mark.parametrize("why", ["order decides the partition", "Spark keeps no rows"])
def test_rows_that_must_not_be_kept_are_not_and_it_is_tried_once(spark, ground, monkeypatch, why):
    """Of rows whose partition their order decides, Spark would compute a part anew, in another order than the rest,
    after it has lost an executor.
    """
    written, tried, computed_ = Written(), [], KeptRows.computed
    sink = streamsink.to_table(ground.table, written, flush=False)

    def counted(rows):
        tried.append(computed_(rows))
        return tried[-1]

    monkeypatch.setattr(KeptRows, "computed", counted)
    if why == "Spark keeps no rows":
        monkeypatch.setattr(kept_rows, "_KEPT", "another plan")

    def publish(df, number: int) -> None:
        sorts = str(why == "Spark keeps no rows").lower()
        df.sparkSession.conf.set("spark.sql.execution.sortBeforeRepartition", sorts)
        sink(df.dropDuplicates(["value"]).repartition(3), number)

    run(rates(spark).select("value"), ground, 4, publish)
    assert "driver" not in written.ways and len(written.ways) == 4 and nothing_is_kept(spark)
    assert tried == [None]
    assert sorted(streamsink.read_arrow(ground.table).column("value").to_pylist()) == list(range(4 * ROWS))


def test_an_estimate_that_misled_once_is_not_believed_again(spark, ground, collected, monkeypatch):
    """Only the batch that Spark refuses to collect is computed twice."""
    written, rows, refusals = Written(), Collecting.rows, [True]

    def refused(collecting):
        if refusals:
            refusals.pop()
            raise PySparkException("Total size of serialized results is bigger than spark.driver.maxResultSize")
        return rows(collecting)

    monkeypatch.setattr(Collecting, "rows", refused)
    ground.add_files(0, 3)
    stream = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1).json(str(ground.source))
    query = (
        stream.withColumn("token", counting(ground.root)("id"))
        .writeStream.foreachBatch(streamsink.to_table(ground.table, written, flush=False, large_batches="spark"))
        .option("checkpointLocation", ground.checkpoint)
    )
    query.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    assert written.ways == ["spark", "driver", "driver"]
    assert len(computed(ground.root)) == 4 * ROWS
    assert sorted(ids_in(ground.table)) == list(range(3 * ROWS))


# -- the writers that look at each row -----------------------------------------------------------------------------


def _sink(kind: str, path: str, listener) -> BatchFunction:
    """One table, one with dead letters, or two tables, of rows with positions."""
    given = {"position_columns": POSITIONS, "flush": False, "driver_max_rows": 100, "large_batches": "tasks"}
    options = SinkOptions.of(path, given)
    if kind == "one table":
        return BatchFunction(SparkSink(PaimonTable(path), options), listener)
    if kind == "dead letters":
        routing = Routing.of(path, {"even": {}}, options, dead_letters="rejected", unrouted="fail")
        return BatchFunction(letters_sink(routing, options, "streamsink"), listener)
    routing = Routing.of(path, {"even": {}, "odd": {}}, options, dead_letters=None, unrouted="fail")
    return BatchFunction(tables_sink("IF(id % 2 = 0, 'even', 'odd')", routing, options), listener)


@pytest.mark.in_turn("rows of a batch that is kept", 1)
@pytest.mark.parametrize("kind", ["one table", "dead letters", "several tables"])
def test_every_row_of_a_batch_that_is_kept_is_looked_at(spark, ground, collected, kind):
    """A source that tells how many rows it reads, of which few are written: as ``where`` in the query would do."""
    written, of_run, token = Written(), IdSource().new_id(), counting(ground.root)
    sink = _sink(kind, ground.table, written)

    def batch(number: int) -> Batch:
        return Batch(
            number,
            "a query",
            of_run,
            (SourceRange({"t": {"0": number * 1_000}}, {"t": {"0": number * 1_000 + 1_000}}),),
        )

    def rows(number: int, offset: str = "id"):
        made = spark.range(number * 1_000, number * 1_000 + 40, 1, 2)
        places = (F.lit("t").alias("topic"), F.lit(0).alias("partition"), F.expr(offset).alias("offset"))
        return made.select("id", *places, token("id").alias("token"))

    sink._micro_batch(rows(0), batch(0))
    sink._micro_batch(rows(1), batch(1))
    assert written.ways == ["tasks", "driver"] and [found for found, _ in collected.found] == [40]
    assert len(computed(ground.root)) == 80 and nothing_is_kept(spark)
    with pytest.raises(Misuse) as refused:
        sink._micro_batch(rows(2, "id + IF(id = 2039, 1000, 0)"), batch(2))
    assert refused.value.kind == "positions.columns" and "1 of" in str(refused.value)
    assert len(collected.found) == 2 and nothing_is_kept(spark)
    sink.close()
    tables = {"one table": [""], "dead letters": ["/even"], "several tables": ["/even", "/odd"]}[kind]
    found = [row for name in tables for row in streamsink.read_arrow(ground.table + name).to_pylist()]
    assert sorted(row["id"] for row in found) == [*range(40), *range(1_000, 1_040)]
    assert {row["token"] for row in found} <= set(computed(ground.root)) and len({row["token"] for row in found}) == 80
