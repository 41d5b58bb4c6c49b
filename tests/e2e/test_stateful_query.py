"""A4 and A13: what a query keeps in its state is lost with its checkpoint,
and results that change are no rows to append."""

import re
import shutil

import pytest

import streamsink
from streamsink.errors import StreamsinkError
from tests.e2e.harness import assert_each_once, content, forget_commit, ids_in, ids_of

pytestmark = [pytest.mark.spark, pytest.mark.in_turn("stateful queries", 4)]
POSITIONS = ("topic", "partition", "offset")


@pytest.fixture
def session(spark):
    """One state store for each operator is enough."""
    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", 1)
    return other


def files(session, ground):
    return session.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(str(ground.source))


def run(ground, df, output="append", checkpoint="checkpoint", **options) -> StreamsinkError | None:
    """One run under the supervisor, until no file is left. Returns the error with which it ended."""
    sink = streamsink.to_table(ground.table, listener=lambda event: None, flush=False, **options)

    def start():
        writer = (
            df.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(ground.root / checkpoint))
            .outputMode(output)
        )
        return writer.trigger(availableNow=True).start()

    try:
        streamsink.run(start, max_restarts=3, min_wait_ms=1, max_wait_ms=10)
    except StreamsinkError as failed:
        return failed
    return None


def assert_refused(error, kind, ground, *words):
    assert error is not None and error.kind == kind, repr(error)
    for word in (ground.table, "Nothing was written", *words):
        assert word in str(error), str(error)


def token(error, option: str) -> str:
    return re.search(rf"{option}='([0-9a-f]{{12}})'", str(error))[1]


def test_position_columns_on_a_stateful_query_are_refused_at_its_first_batch(session, ground):
    """Rows would come out of state with old positions, and a filter would drop them.
    The error comes now and not only after the accident."""
    ground.add_files(0, 1)
    df = (
        files(session, ground).dropDuplicates(["id"]).selectExpr("id", "'t' AS topic", "0 AS partition", "id AS offset")
    )
    assert_refused(run(ground, df, position_columns=POSITIONS), "query.stateful-positions", ground, "position_columns")
    assert not (ground.root / "lake").exists(), "no table was made"
    expected = ids_of(0, 1)
    assert run(ground, df) is None
    assert_each_once(ground.table, expected)


def test_a_stateful_query_whose_checkpoint_is_deleted_says_that_its_state_is_lost(session, ground):
    """Nothing is written. Under a name of its own, and into a table of its own, it begins again."""
    expected = ground.add_files(0, 2)
    df = files(session, ground).dropDuplicates(["id"])
    assert run(ground, df) is None
    shutil.rmtree(ground.root / "checkpoint")
    before = content(ground.table)
    error = run(ground, df)
    assert_refused(error, "query.state-lost", ground, "application=", "accept_as_new=")
    assert content(ground.table) == before
    assert run(ground, df, accept_as_new=token(error, "accept_as_new")) is None
    assert sorted(ids_in(ground.table)) == sorted([*expected, *expected]), "as the message says"


def test_a_stateful_query_killed_before_sparks_commit_log_goes_on(session, ground):
    """The replay changes nothing in the table, but its rows are read:
    otherwise Spark finds no state for the next batch."""
    expected = ground.add_files(0, 2)
    df = files(session, ground).dropDuplicates(["id"])
    assert run(ground, df) is None
    forget_commit(str(ground.root / "checkpoint"), 1)
    expected |= ground.add_files(2, 1)
    assert run(ground, df) is None
    assert_each_once(ground.table, expected)


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_results_that_change_are_refused_by_an_append_table(session, ground, mode):
    """Every earlier result would stay beside the later one, which Spark's own file sink refuses too."""
    ground.add_files(0, 2)
    df = files(session, ground).selectExpr("id % 5 AS id").groupBy("id").count()
    assert_refused(run(ground, df, mode), "query.output-mode", ground, mode, "append_changes=True", "mode='overwrite'")
    assert not (ground.root / "lake").exists(), "no table was made"
    assert run(ground, df, mode, append_changes=True) is None
    assert sorted(ids_in(ground.table)) == sorted([*range(5)] * 2)


def test_a_complete_result_may_replace_the_whole_table(session, ground):
    """Each batch is the whole result."""
    ground.add_files(0, 2)
    df = files(session, ground).selectExpr("id % 5 AS id").groupBy("id").count()
    assert run(ground, df, "complete", mode="overwrite", overwrite_partition={}) is None
    rows = streamsink.read_arrow(ground.table).to_pylist()
    assert sorted((row["id"], row["count"]) for row in rows) == [(i, 4) for i in range(5)]


def test_update_mode_without_an_aggregation_is_append(session, ground):
    """Each row comes once, so nothing is refused."""
    expected = ground.add_files(0, 2)
    assert run(ground, files(session, ground).where("id >= 0"), "update") is None
    assert_each_once(ground.table, expected)
