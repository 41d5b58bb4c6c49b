"""How many rows a Python task is given at once:
their number bounds them where rows are known to be narrow, and Spark does everywhere else."""

import sys

import pyarrow as pa
import pytest

from streamsink.format.types import parse_ddl
from streamsink.protocol.committable import Batch
from streamsink.spark import worker_daemon
from streamsink.spark.gateway import running
from streamsink.spark.gateway.running import with_settings
from streamsink.spark.rows.arrow_batches import rows_at_once, settings
from streamsink.spark.rows.write_ways import TASKS, Large, write_large
from streamsink.storage.stores import Store
from tests.e2e.harness import assert_each_once, ids_of, run_driver

pytestmark = pytest.mark.spark

BYTES, ROWS = "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"
FIELDS = parse_ddl("id BIGINT, name STRING")
BATCH = Batch(0, "query", "no run that Spark knows")
MEGABYTE = 1 << 20


def sizes(spark, rows, width) -> list[tuple[int, int]]:
    """The (rows, bytes) of each batch that a task of so many rows is given."""

    def look(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "bytes": [batch.nbytes]})

    frame = spark.range(0, rows, 1, 1).selectExpr(f"repeat('x', {width}) text")
    return [(row.rows, row.bytes) for row in frame.mapInArrow(look, "rows long, bytes long").collect()]


def test_rows_bound_a_batch_where_spark_does_not_weigh_it(spark):
    """There are 80 MB in 4,000 rows. Spark's own limit is 64 MiB, and ours is the number of rows.
    The session is left as it was."""
    with with_settings(spark, settings(4_000)):
        ((rows, size),) = sizes(spark, 4_000, 20_000)
    assert rows == 4_000 and size > 64 * MEGABYTE
    with with_settings(spark, settings(1_500)):
        assert [rows for rows, _ in sizes(spark, 4_000, 20)] == [1_500, 1_500, 1_000]
    weighed = sizes(spark, 4_000, 20_000)
    assert len(weighed) > 1 or spark.version.startswith("4.0")
    assert spark.conf.get(BYTES, None) is None and spark.conf.get(ROWS, None) is None


def test_the_sink_s_tasks_are_given_so_many_at_once(spark, tmp_path):
    """The job runs with the number that was worked out."""

    class Writing:
        def open(self, file_io):
            class Writer:
                given = []

                def write(self, batch):
                    self.given.append(batch.num_rows)

                def close(self, group):
                    return self.given

            return Writer()

        def encode(self, rows):
            return str(rows)

        def decode(self, text):
            return int(text)

    frame, store = spark.range(0, 100, 1, 1), Store(str(tmp_path), {}, True)
    for large, given in ((Large(rows_at_once=40), [40, 40, 20]), (Large(), [100])):
        assert write_large(frame, Writing(), store.open(), store, large) == (given, TASKS)


@pytest.mark.parametrize(
    "bytes_per_row, rows", [(1, 10_000), (400, 10_000), (800, 5_242), (4_194, 1_000), (4_195, None), (10**6, None)]
)
def test_rows_that_were_narrow_are_not_weighed(spark, bytes_per_row, rows):
    """There are so many at once that sixteen times what they take in a file is no more than Spark's own limit."""
    assert rows_at_once(spark, FIELDS, BATCH, bytes_per_row) == rows


def test_a_batch_of_which_nothing_is_known_is_weighed(spark):
    """It is the first one of a source that gives no estimate."""
    assert rows_at_once(spark, FIELDS, BATCH, None) is None


def test_limits_of_the_session_are_kept(spark):
    """With a limit of bytes Spark weighs.
    With a limit of rows there are no more than these, and as many as we say where there is none."""
    session = spark.newSession()
    session.conf.set(ROWS, "70")
    assert rows_at_once(session, FIELDS, BATCH, 10) == 70
    session.conf.set(ROWS, "-1")
    assert rows_at_once(session, FIELDS, BATCH, 10) == 10_000
    session.conf.set(BYTES, "64MB")
    assert rows_at_once(session, FIELDS, BATCH, 10) is None


@pytest.mark.in_turn("tasks at once", 1)
@pytest.mark.parametrize("daemon", [False, True], ids=["spark's-daemon", "our-daemon"])
def test_auto_takes_tasks_where_they_start_at_once(ground, spark_settings, daemon):
    """The first batch of files is bounded, and later ones are known.
    Tasks that start slowly are left to Spark's own writer."""
    ground.add_files(0, 3)
    conf = {"spark.python.daemon.module": worker_daemon.MODULE} if daemon else {}
    outcome = run_driver(ground, ground.job(per_batch=1, options={"driver_max_rows": 0}, conf=conf))
    assert outcome.code == 0, outcome
    quick = daemon or sys.version_info >= (3, 13)
    assert [written["way"] for written in outcome.of("BatchWritten")] == ["tasks" if quick else "spark"] * 3
    assert_each_once(ground.table, ids_of(0, 3))


def test_a_first_batch_of_documents_is_weighed(spark, ground):
    """Files say how large a batch is, but not how large a row of arrays or bytes may become."""
    found = {}

    def look(df, number):
        batch = Batch(number, "query", df.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id"))
        running.describe(df, number, ground.table, batch.run, lambda run: False)
        found.update(
            {
                ddl: rows_at_once(df.sparkSession, parse_ddl(ddl), batch, None)
                for ddl in ("id BIGINT, name STRING", "id BIGINT, name BYTES", "id BIGINT, name ARRAY<STRING>")
            }
        )

    ground.add_files(0, 1)
    stream = spark.readStream.schema("id LONG, name STRING").json(str(ground.source))
    stream.writeStream.foreachBatch(look).option("checkpointLocation", ground.checkpoint).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert list(found.values()) == [10_000, None, None]
