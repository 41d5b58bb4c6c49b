"""S2, S3, S4, S7, S8: checkpoints deleted, restored or shared, tables dropped, recreated or without metadata."""

import shutil
from pathlib import Path

import pytest

import streamsink
from tests.e2e.harness import (
    accept_token,
    assert_each_once,
    assert_refused,
    content,
    forget_commit,
    ids_in,
    ids_of,
    run_driver,
    run_here,
    until,
)
from tests.e2e.job import start

pytestmark = [pytest.mark.spark, pytest.mark.in_turn("accidents of checkpoints", 6)]
ALL_IN_ONE = 1000


def three_batches(spark, ground, **changes):
    """Write files 0, 1 and 2 in three batches. Returns the job."""
    ground.add_files(0, 3)
    job = ground.job(**changes)
    assert run_here(spark, job).code == 0
    assert_each_once(ground.table, ids_of(0, 3))
    return job


def refused_before_writing(spark, ground, job, kind, *words):
    """Run the job, which must end with the clear error while no file of the table is added, changed or deleted.
    Returns the outcome."""
    before = content(ground.table)
    outcome = run_here(spark, job)
    assert_refused(outcome, kind, ground.table, "Nothing was written", *words)
    assert content(ground.table) == before
    return outcome


def test_s2_same_data_again_is_recognised_by_its_files(spark, ground):
    """The checkpoint is deleted and all files are still there, with other boundaries: nothing is asked and nothing
    written; new files are written."""
    job = three_batches(spark, ground)
    shutil.rmtree(job.checkpoint)
    again = job.but(per_batch=ALL_IN_ONE)
    outcome = run_here(spark, again)
    assert (outcome.code, [written["rows"] for written in outcome.of("BatchWritten")]) == (0, [0])
    assert_each_once(ground.table, ids_of(0, 3))
    ground.add_files(3, 2)
    assert run_here(spark, again).code == 0
    assert_each_once(ground.table, ids_of(0, 5))


def test_s2_only_new_data_is_written_without_being_asked_for(spark, ground):
    """The checkpoint is deleted, and the source holds only new files."""
    job = three_batches(spark, ground)
    shutil.rmtree(job.checkpoint)
    shutil.rmtree(ground.source)
    ground.add_files(3, 3)
    assert run_here(spark, job).code == 0
    assert_each_once(ground.table, ids_of(0, 6))


def forget_files(ground):
    """The journal is removed while the query is down:
    the table knows what was published, but nobody knows of which files it came."""
    shutil.rmtree(Path(ground.table, "streamsink"))


def test_s2_files_that_nobody_knows_are_asked_for_until_new_data_begins(spark, ground):
    """A12: checkpoint and journal are deleted, and there is one file a batch. Each old batch is asked about; once one
    is accepted as new, the query goes on by itself."""
    job = three_batches(spark, ground)
    shutil.rmtree(job.checkpoint)
    forget_files(ground)
    outcome = refused_before_writing(
        spark, ground, job, "checkpoint.replaced", "batch 2", "accept_as_new", "accept_as_seen", "application="
    )
    for _ in range(2):
        word = accept_token(outcome)
        assert run_here(spark, job.but(options={"accept_as_seen": word})).kind == "batch.in-replay"
        outcome = refused_before_writing(spark, ground, job, "batch.in-replay", "accept_as_new", "accept_as_seen")
    assert run_here(spark, job.but(options={"accept_as_seen": accept_token(outcome)})).code == 0
    assert_each_once(ground.table, ids_of(0, 3))
    ground.add_files(3, 2)
    word = accept_token(refused_before_writing(spark, ground, job, "batch.in-replay"))
    assert run_here(spark, job.but(options={"accept_as_new": word})).code == 0
    assert_each_once(ground.table, ids_of(0, 5))


def test_a_token_accepts_one_accident_and_no_later_one(spark, ground):
    """An accept_as_new that is left in the options does not let the next lost checkpoint through."""
    job = three_batches(spark, ground)
    shutil.rmtree(job.checkpoint)
    forget_files(ground)
    shutil.rmtree(ground.source)
    ground.add_files(3, 1)
    word = accept_token(refused_before_writing(spark, ground, job, "checkpoint.replaced"))
    careless = job.but(options={"accept_as_new": word})
    assert run_here(spark, careless).code == 0
    shutil.rmtree(job.checkpoint)
    refused_before_writing(spark, ground, careless, "checkpoint.replaced")
    assert_each_once(ground.table, ids_of(0, 4))


def test_s3_two_queries_under_two_names_write_one_table(spark, ground):
    """Both run at the same time, each with a checkpoint and a name of its own: each row of both is there once."""
    ground.add_files(0, 3)
    other = ground.root / "other"
    other.mkdir()
    for number in range(50, 53):
        ids = ids_of(number, 1)
        (other / f"{number}.json").write_text("".join(f'{{"id": {i}, "name": "x"}}\n' for i in ids))
    streamsink.create_table(ground.table, "id BIGINT, name STRING")
    one = ground.job(options={"application": "one"})
    two = ground.job(
        options={"application": "two"}, checkpoint=ground.checkpoint + "-2", source={"kind": "files", "dir": str(other)}
    )
    queries = [start(spark, job, lambda event: None) for job in (one, two)]
    for query in queries:
        query.awaitTermination()
    assert_each_once(ground.table, ids_of(0, 3) | ids_of(50, 3))


@pytest.mark.in_turn("one name at the same time", 1)
@pytest.mark.parametrize("where", ["in the same driver", "in another driver"])
def test_s3_the_same_name_at_the_same_time_is_refused(spark, ground, where):
    """A second query under the first one's name gets Fenced; the first one is not harmed and goes on."""
    ground.add_files(0, 2)
    first = start(spark, ground.job(processing_time="50 milliseconds"), lambda event: None)
    try:
        until(lambda: Path(ground.checkpoint, "commits", "1").exists())
        second = ground.job(checkpoint=ground.checkpoint + "-2")
        before = content(ground.table)
        outcome = run_here(spark, second) if where == "in the same driver" else run_driver(ground, second)
        assert (outcome.error, outcome.kind) == ("Fenced", "application.in-use"), outcome
        assert ground.table in outcome.message and "application='...'" in outcome.message
        assert content(ground.table) == before
        ground.add_files(2, 2)
        until(lambda: Path(ground.checkpoint, "commits", "3").exists())
        assert first.isActive
    finally:
        first.stop()
    assert_each_once(ground.table, ids_of(0, 4))


def test_s3_the_same_name_afterwards_is_refused_too(spark, ground):
    """A second query takes over the name of one that has ended: the clear error tells it to take a name of its own."""
    job = three_batches(spark, ground)
    other = job.but(checkpoint=job.checkpoint + "-2", source={"kind": "files", "dir": str(ground.root / "other")})
    source = ground.source.rename(ground.root / "first")
    ground.add_files(50, 1)
    ground.source.rename(ground.root / "other")
    source.rename(ground.source)
    refused_before_writing(spark, ground, other, "query.other", "give it a name of its own")
    assert run_here(spark, other.but(options={"application": "second"})).code == 0
    assert_each_once(ground.table, ids_of(0, 3) | ids_of(50, 1))


def restored_from_older_copy(spark, ground):
    """Write batch 0, copy the checkpoint, write batches 1 and 2; then put the copy in the checkpoint's place."""
    ground.add_files(0, 1)
    job = ground.job()
    assert run_here(spark, job).code == 0
    shutil.copytree(job.checkpoint, job.checkpoint + "-copy")
    ground.add_files(1, 2)
    assert run_here(spark, job).code == 0
    shutil.rmtree(job.checkpoint)
    shutil.move(job.checkpoint + "-copy", job.checkpoint)
    return job


def test_s4_an_older_checkpoint_with_the_same_batches_is_a_replay(spark, ground):
    """It was restored from an older copy and has the same boundaries:
    both batches are recognised and skipped, and new files follow."""
    job = restored_from_older_copy(spark, ground)
    ground.add_files(3, 1)
    outcome = run_here(spark, job)
    assert [skip["checkpoint_id"] for skip in outcome.of("BatchSkipped")] == [1, 2]
    assert_each_once(ground.table, ids_of(0, 4))


def test_s4_an_older_checkpoint_with_other_batches_is_recognised_by_its_files(spark, ground):
    """It was restored from an older copy and has other boundaries:
    one batch has files that are known, and then new files come."""
    job = restored_from_older_copy(spark, ground).but(per_batch=ALL_IN_ONE)
    outcome = run_here(spark, job)
    assert (outcome.code, [written["rows"] for written in outcome.of("BatchWritten")]) == (0, [0])
    ground.add_files(3, 3)
    assert run_here(spark, job.but(per_batch=1)).code == 0
    assert_each_once(ground.table, ids_of(0, 6))


def test_s4_files_that_nobody_knows_are_asked_for(spark, ground):
    """The checkpoint was restored from an older copy, boundaries are others, and the journal is gone:
    the error comes before anything is written."""
    job = restored_from_older_copy(spark, ground).but(per_batch=ALL_IN_ONE)
    forget_files(ground)
    outcome = refused_before_writing(spark, ground, job, "batch.backwards", "older copy")
    assert run_here(spark, job.but(options={"accept_as_seen": accept_token(outcome)})).code == 0
    assert_each_once(ground.table, ids_of(0, 3))


def test_s7_a_table_recreated_between_runs_is_noticed(spark, ground):
    """It is dropped and recreated while the query is down:
    the query's next batch is refused, and the new table stays empty."""
    job = three_batches(spark, ground)
    shutil.rmtree(ground.table)
    streamsink.create_table(ground.table, "id BIGINT, name STRING")
    ground.add_files(3, 1)
    refused_before_writing(spark, ground, job, "gap.first-batch", "recreated", "adopt_from_batch=3", "new checkpoint")
    assert ids_in(ground.table) == []


def test_s7_a_table_dropped_between_runs_is_noticed(spark, ground):
    """It is dropped while the query is down: no new table is made behind the user's back."""
    job = three_batches(spark, ground)
    shutil.rmtree(ground.table)
    ground.add_files(3, 1)
    refused_before_writing(spark, ground, job, "table.gone", "new checkpoint", "adopt_from_batch=3")
    assert not Path(ground.table, "schema").exists()


def running_query_meets(spark, ground, accident):
    """Three batches of a query that goes on; then the accident; then a fourth file.
    Returns the error with which the query ends."""
    from streamsink.spark import runs

    ground.add_files(0, 3)
    query = start(spark, ground.job(processing_time="50 milliseconds"), lambda event: None)
    until(lambda: Path(ground.checkpoint, "commits", "2").exists())
    accident()
    before = content(ground.table)
    ground.add_files(3, 1)
    until(lambda: not query.isActive)
    assert query.exception() is not None
    assert content(ground.table) == before
    return runs.failure(str(query.runId))


def test_s7_a_table_recreated_under_a_running_query_is_noticed(spark, ground):
    """It is dropped and recreated between two batches of a running query:
    the next batch fails, and the new table stays empty."""

    def accident():
        shutil.rmtree(ground.table)
        streamsink.create_table(ground.table, "id BIGINT, name STRING")

    error = running_query_meets(spark, ground, accident)
    assert (error.kind, ground.table in str(error)) == ("table.recreated", True), error
    assert ids_in(ground.table) == []


def test_s7_a_table_dropped_under_a_running_query_is_noticed(spark, ground):
    """It is dropped between two batches of a running query: the next batch fails and makes no table."""
    error = running_query_meets(spark, ground, lambda: shutil.rmtree(ground.table))
    assert (error.kind, ground.table in str(error)) == ("table.gone", True), error


METADATA = {"snapshot": "table.rolled-back", "schema": "table.gone", "manifest": "manifest", "streamsink": "journal"}


@pytest.mark.parametrize("folder", ["snapshot", "schema", "manifest", "streamsink"])
def test_s8_metadata_removed_under_a_running_query_is_noticed(spark, ground, folder):
    """One folder of metadata is removed between two batches of a running query:
    there is an error, nothing is written, and it is never silent."""
    error = running_query_meets(spark, ground, lambda: shutil.rmtree(Path(ground.table, folder)))
    assert METADATA[folder] in error.kind, repr(error)


@pytest.mark.parametrize("folder", ["snapshot", "schema", "manifest"])
def test_s8_metadata_removed_between_runs_is_noticed(spark, ground, folder):
    """One folder of metadata is removed while the query is down:
    there is an error, nothing is written, and it is never silent."""
    job = three_batches(spark, ground)
    shutil.rmtree(Path(ground.table, folder))
    before = content(ground.table)
    ground.add_files(3, 1)
    outcome = run_here(spark, job)
    assert (outcome.code, METADATA[folder] in outcome.kind) == (1, True), outcome
    assert content(ground.table) == before


def test_s8_a_lost_journal_alone_is_no_loss(spark, ground):
    """The journal is removed while the query is down and nothing is pending:
    the table itself knows what is published."""
    job = three_batches(spark, ground)
    shutil.rmtree(Path(ground.table, "streamsink"))
    forget_commit(job.checkpoint, 2)
    ground.add_files(3, 1)
    assert run_here(spark, job).code == 0
    assert_each_once(ground.table, ids_of(0, 4))


def test_a_query_moves_here_with_a_past_by_an_option(spark, ground):
    """Its first batch here is not 0:
    it is refused until adopt_from_batch says so, and other numbers do not let it through."""
    ground.add_files(0, 2)
    elsewhere = ground.job(table=str(ground.root / "lake" / "elsewhere"))
    assert run_here(spark, elsewhere).code == 0
    ground.add_files(2, 1)
    job = ground.job()
    outcome = run_here(spark, job)
    assert_refused(outcome, "table.gone", ground.table, "adopt_from_batch=2")
    assert run_here(spark, job.but(options={"adopt_from_batch": 1})).kind == "table.gone"
    assert run_here(spark, job.but(options={"adopt_from_batch": 2})).code == 0
    assert_each_once(ground.table, ids_of(2, 1))
