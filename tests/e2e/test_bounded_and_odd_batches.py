"""END_OF_INPUT, empty batches, watermarks, source positions, and several checkpoints pending at once."""

import json
import re
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import streamsink
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.run.two_phase import TwoPhaseCommit
from streamsink.protocol.sink import Destination
from streamsink.sinks.paimon.committer import PaimonCommitter
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from streamsink.table.write.spec import WriteSpec
from streamsink.table.write.writer import TableWriter
from tests.advice.following import advice, follows
from tests.e2e import foreign
from tests.e2e.harness import (
    assert_each_once,
    assert_refused,
    content,
    forget_commit,
    ids_in,
    ids_of,
    run_driver,
    run_here,
)

STATE = "streamsink.app.streamsink"


def state_of(snapshot) -> dict:
    """What the snapshot records of our application."""
    return json.loads(snapshot.properties[STATE])


@pytest.mark.spark
def test_a_bounded_write_repeated_changes_nothing(spark, ground):
    """streamsink.write twice under one run_id is one END_OF_INPUT checkpoint; another run_id is another."""
    rows = spark.range(30)
    assert streamsink.write(rows, ground.table, run_id="monday") == 30
    before = content(ground.table)
    assert streamsink.write(rows, ground.table, run_id="monday") == 0
    assert content(ground.table) == before
    assert streamsink.write(spark.range(30, 40), ground.table, run_id="tuesday") == 10
    assert streamsink.write(rows, ground.table, run_id="monday") == 0
    assert_each_once(ground.table, set(range(40)))
    assert [s.commit_identifier for s in foreign.snapshots(ground.table)] == [END_OF_INPUT] * 2


@pytest.mark.spark
@follows("run.other")
def test_two_jobs_under_one_run_id(spark, ground):
    """Formerly the second one returned 0, and its rows were lost.
    What the same program sets anew at each start makes no difference."""
    days = [str(ground.source / day) for day in ("2026-11-21", "2026-11-22")]
    for number, day in enumerate(days):
        spark.range(10 * number, 10 * number + 10).write.mode("overwrite").parquet(day)

    def write(rows, application="batch"):
        # Literals: the time of loading, and an id of this attempt.
        given = rows.selectExpr(
            "id", f"'{IdSource().new_id()}, a' AS tried", f"{time.time()}D AS at", "current_timestamp() AS now"
        )
        return streamsink.write(given, ground.table, "nightly", application=application, flush=False)

    first, second = (spark.read.parquet(day) for day in days)
    assert write(first) == 10
    assert write(first) == 0
    for part, rows in {"sources": second, "plan": first.where("id < 100")}.items():
        with pytest.raises(Misuse) as refused:
            write(rows)
        said = advice(refused.value, "run.other").says(f"{part} (found")
    assert write(second, application=said.find(r"(application)='\.\.\.'")) == 10
    assert_each_once(ground.table, set(range(20)))
    spark.range(20, 23).write.mode("append").parquet(days[0])
    with pytest.raises(Misuse, match=r"rows \(found 13, recorded 10\)"):
        write(spark.read.parquet(days[0]))


@pytest.mark.in_turn("what of a run is compared", 2)
@pytest.mark.spark
def test_a_repeated_run_is_the_same_in_another_process_and_over_a_table_that_is_written(spark, ground):
    """These are a run of a table's rows, a query of a database, a view and local rows: in another session each is
    skipped, whatever the order of files."""
    source = f"{ground.table}_source"
    streamsink.write(spark.range(5), source, "rows", flush=False)
    spark.range(8).createOrReplaceTempView("numbers_of_this_run")
    made = {
        "table": lambda of: streamsink.read(of, source).where("id < 5"),
        "view": lambda of: of.sql(
            "WITH n AS (SELECT * FROM numbers_of_this_run) SELECT id FROM n WHERE id > (SELECT min(id) FROM "
            "numbers_of_this_run)"
        ),
        "local": lambda of: of.createDataFrame([(1,), (2,)], "id BIGINT"),
        "drawn": lambda of: of.range(100).where("rand() < 0.5"),
        "function": lambda of: of.range(4).select(F.udf(lambda x: x, "bigint")("id").alias("id")),
    }
    counts = {
        name: streamsink.write(rows(spark), f"{ground.table}_{name}", "monday", flush=False)
        for name, rows in made.items()
    }
    assert counts.pop("drawn") in range(101) and counts == {"table": 5, "view": 7, "local": 2, "function": 4}
    streamsink.write(spark.range(5, 7), source, "more-rows", flush=False)
    again = spark.newSession()
    again.range(8).createOrReplaceTempView("numbers_of_this_run")
    assert [
        streamsink.write(rows(again), f"{ground.table}_{name}", "monday", flush=False) for name, rows in made.items()
    ] == [0] * 5
    streamsink.write(spark.range(2), source, "older-rows", flush=False)
    with pytest.raises(Misuse, match=r"rows \(found 7, recorded 5\)"):
        streamsink.write(made["table"](spark), f"{ground.table}_table", "monday", flush=False)


@pytest.mark.spark
@follows("run.of-a-batch")
def test_a_run_that_writes_a_micro_batch_is_refused(spark, ground):
    """Formerly its id was the batch's, which a new checkpoint gives again:
    new rows were taken for those of the first one."""
    ground.add_files(0, 1)
    refused, summaries = [], []

    def publish(df, batch_id):
        try:
            streamsink.write(df.where("id >= 0"), ground.table, f"batch-{batch_id}", flush=False)
        except Misuse as error:
            refused.append(error)
        summaries.append(streamsink.write(spark.range(2), f"{ground.table}_days", "2026-11-21", flush=False))

    stream = spark.readStream.schema("id BIGINT, name STRING").json(str(ground.source))

    def run(function, checkpoint):
        stream.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint).trigger(
            availableNow=True
        ).start().awaitTermination()

    run(publish, ground.checkpoint)
    advice(refused[0], "run.of-a-batch").says("streamsink.to_table", ground.table)
    assert summaries == [2], "rows that are no micro-batch's are no matter"
    sink = streamsink.to_table(ground.table, flush=False)
    run(sink, ground.checkpoint + "-2")
    sink.close()
    assert_each_once(ground.table, ids_of(0, 1))


def test_empty_batches_are_published_and_replayed_like_others(spark, ground):
    """A batch without rows moves the record forward, so that the batch after it is the next one."""
    ground.add_files(0, 2)
    job = ground.job(where="id < 10 OR id >= 30")
    assert run_here(spark, job).code == 0
    forget_commit(ground.checkpoint, 1)
    ground.add_files(2, 2)
    outcome = run_here(spark, job)
    assert outcome.code == 0, outcome
    assert [skip["checkpoint_id"] for skip in outcome.of("BatchSkipped")] == [1]
    assert_each_once(ground.table, ids_of(0, 1) | ids_of(3, 1))
    assert [s.delta_record_count for s in foreign.snapshots(ground.table)] == [10, 0, 0, 10]


@pytest.mark.spark
def test_each_snapshot_carries_watermark_and_source_positions(spark, ground):
    """What Spark's offset log says of a batch is in the snapshot that publishes it."""
    ground.add_files(0, 3)
    job = ground.job(event_time="timestamp_seconds(1000 + id)")
    assert run_here(spark, job).code == 0
    snapshots = [s for s in foreign.snapshots(ground.table) if s.delta_record_count]
    assert [s.watermark for s in snapshots] == [None, 1_009_000, 1_019_000]
    sources = [state_of(s)["sources"][0] for s in snapshots]
    assert [source["end"] for source in sources] == [{"logOffset": number} for number in range(3)]
    assert [source["start"] for source in sources] == [None, {"logOffset": 0}, {"logOffset": 1}]
    assert len({source["fingerprint"] for source in sources}) == 3
    assert_each_once(ground.table, ids_of(0, 3))


@pytest.mark.spark
def test_new_application_is_needed_where_history_cannot_tell(spark, ground):
    """The table's older snapshots have expired: a first start is refused until it says that it is new here."""
    streamsink.create_table(ground.table, "id BIGINT, name STRING")
    theirs = foreign.append(spark, ground.table, [range(10_000, 10_005), range(10_005, 10_010)])
    foreign.expire(spark, ground.table)
    ground.add_files(0, 2)
    before = content(ground.table)
    outcome = run_here(spark, ground.job())
    assert_refused(outcome, "history.incomplete", ground.table, "new_application='", "Nothing was written")
    assert content(ground.table) == before
    word = re.search(r"new_application='(\w+)'", outcome.message)[1]
    assert run_here(spark, ground.job(options={"new_application": word})).code == 0
    assert_each_once(ground.table, ids_of(0, 2) | theirs)


# -- the protocol on a real table, without Spark: two checkpoints are pre-committed before one commit ----------------


class Protocol:
    """One run of a query on a table, whose micro-batches are made by hand."""

    def __init__(self, path: str):
        self.options = SinkOptions.of(path, {"flush": False, "restore": "restore-and-continue"})
        self.io = local_file_io(False)
        self.table = open_table(self.io, path, for_writing=True)
        self.committer = PaimonCommitter(self.table, self.options)
        self.events = []
        store = FileJournal(self.io, path, self.options.application, self.options.journal_retain)
        to = Destination(path, self.table.table_id)
        self.steps = TwoPhaseCommit(to, store, self.committer, self.options, self.events.append)
        self.steps.restore("query", IdSource().new_id)

    def pre_commit(self, batch_id: int, ids: set[int], decision=None):
        """Write the rows and register the checkpoint. Returns it with its decision."""
        source = SourceRange({"at": batch_id} if batch_id else None, {"at": batch_id + 1})
        batch = Batch(batch_id, "query", "run", (source,))
        decision = decision or self.steps.admit(batch)
        checkpoint = self.steps.begin(batch, decision)
        spec = WriteSpec(checkpoint.staging, self.table.latest_schema().to_json(), 2**20, 10, 2**20)
        writer = TableWriter(self.io, spec)
        writer.write(pa.record_batch({"id": pa.array(sorted(ids), pa.int64())}))
        with self.io.flush_group() as group:
            files, payload = self.committer.stage(checkpoint.staging, writer.close(group), group)
            self.steps.pre_commit(checkpoint, files, payload, group)
        return decision


@pytest.fixture
def protocol(ground) -> Protocol:
    streamsink.create_table(ground.table, "id BIGINT")
    return Protocol(ground.table)


def test_several_pending_checkpoints_are_published_by_one_commit(ground, protocol):
    """commit_up_to_checkpoint publishes everything pending up to its id, in order, and nothing beyond."""
    decision = protocol.pre_commit(0, ids_of(0, 1))
    protocol.pre_commit(1, ids_of(1, 1), decision)
    protocol.pre_commit(2, ids_of(2, 1), decision)
    assert ids_in(ground.table) == []
    assert [done.checkpoint_id for done in protocol.steps.commit_up_to_checkpoint(1)] == [0, 1]
    assert_each_once(ground.table, ids_of(0, 2))
    assert protocol.steps.commit_up_to_checkpoint(1) == []
    assert [done.checkpoint_id for done in protocol.steps.commit_up_to_checkpoint(2)] == [2]
    assert_each_once(ground.table, ids_of(0, 3))


def test_several_pending_checkpoints_are_published_by_the_next_start(ground, protocol):
    """Three checkpoints are pending when the driver dies: the next start publishes them all, each once."""
    decision = protocol.pre_commit(0, ids_of(0, 1))
    protocol.pre_commit(1, ids_of(1, 1), decision)
    protocol.pre_commit(2, ids_of(2, 1), decision)
    again = Protocol(ground.table)
    assert again.events[-1].published_checkpoints == (0, 1, 2)
    assert_each_once(ground.table, ids_of(0, 3))
    assert Protocol(ground.table).events[-1].published_checkpoints == ()
    assert_each_once(ground.table, ids_of(0, 3))


def test_a_checkpoint_registered_twice_is_an_error(ground, protocol):
    """'repeatedly committed': the second registration is refused, the first one is published once."""
    decision = protocol.pre_commit(0, ids_of(0, 1))
    with pytest.raises(Misuse, match="repeatedly committed") as refused:
        protocol.pre_commit(0, ids_of(0, 1), decision)
    assert (refused.value.kind, ground.table in str(refused.value)) == ("checkpoint.repeated", True)
    protocol.steps.commit_up_to_checkpoint(0)
    assert_each_once(ground.table, ids_of(0, 1))
    assert not list(Path(ground.table, "streamsink").glob("*/record-2.json"))


@pytest.mark.spark
@pytest.mark.in_turn("nested and empty", 1)
@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_nested_columns_that_are_empty_in_every_row_are_written(ground, spark_settings, way):
    """Spark sends what is inside of them without offsets.
    A worker that died of that would take its task with it, and a driver the query."""
    expected = ground.add_files(0, 2)
    nothing = (
        "struct(CAST(array() AS ARRAY<MAP<STRING, INT>>) AS a, CAST(NULL AS MAP<STRING, MAP<STRING, INT>>) AS "
        "b, array(CAST(array() AS ARRAY<INT>)) AS c)"
    )
    options = {"driver_max_rows": 0, "large_batches": "tasks"} if way == "tasks" else {}
    outcome = run_driver(ground, ground.job(column=nothing, per_batch=2, options=options))
    assert outcome.code == 0, outcome
    assert [written["way"] for written in outcome.of("BatchWritten")] == [way]
    rows = streamsink.read_arrow(ground.table).to_pylist()
    assert {row["id"] for row in rows} == expected and len(rows) == len(expected)
    assert all(row["extra"] == {"a": [], "b": None, "c": [[]]} for row in rows)
