"""S5 and S6: others append, compact, expire and roll back, through Paimon's Java API."""

import signal
from pathlib import Path

import pytest

from streamsink.spark import runs
from tests.e2e import foreign
from tests.e2e.harness import (
    assert_each_once,
    assert_refused,
    content,
    forget_commit,
    ids_of,
    run_driver,
    run_here,
    until,
)
from tests.e2e.job import start

pytestmark = [pytest.mark.spark, pytest.mark.in_turn("accidents of other writers", 4)]
STRANGERS = [range(10_000, 10_005), range(10_005, 10_010), range(10_010, 10_015)]


def strangers_take_over(spark, path, *, compact=True):
    """Others append, compact and expire until no snapshot of ours is left. Returns their ids."""
    ids = foreign.append(spark, path, STRANGERS)
    if compact:
        assert foreign.compact(spark, path) == 1
    foreign.expire(spark, path)
    assert len(foreign.snapshots(path)) == 1
    assert not foreign.has_snapshot_of_ours(path)
    return ids


@pytest.mark.parametrize("compact", [True, False])
def test_s5_a_replay_after_our_history_has_expired(spark, ground, compact):
    """The journal remembers what the table has forgotten:
    the replayed batch is skipped, and the next one is written."""
    ground.add_files(0, 3)
    job = ground.job()
    assert run_here(spark, job).code == 0
    theirs = strangers_take_over(spark, ground.table, compact=compact)
    forget_commit(job.checkpoint, 2)
    ground.add_files(3, 1)
    outcome = run_here(spark, job)
    assert outcome.code == 0, outcome
    assert [skip["checkpoint_id"] for skip in outcome.of("BatchSkipped")] == [2]
    assert_each_once(ground.table, ids_of(0, 4) | theirs)


def test_s5_a_running_query_goes_on_after_its_history_has_expired(spark, ground):
    """No snapshot of ours is left between two batches of a running query: the next batch is written once."""
    ground.add_files(0, 3)
    query = start(spark, ground.job(processing_time="50 milliseconds"), lambda event: None)
    until(lambda: Path(ground.checkpoint, "commits", "2").exists())
    theirs = strangers_take_over(spark, ground.table)
    ground.add_files(3, 2)
    until(lambda: Path(ground.checkpoint, "commits", "4").exists(), lambda: None)
    query.stop()
    assert_each_once(ground.table, ids_of(0, 5) | theirs)


@pytest.mark.in_turn("killed before the journal knew", 1)
def test_s5_killed_before_the_journal_knew_that_it_was_published(spark, ground):
    """The driver is killed right after publishing; then others append and expire.
    The table's manifests tell that the files are in."""
    ground.add_files(0, 3)
    job = ground.job()
    assert run_driver(ground, job, fault="commit.published@2:kill").code == -signal.SIGKILL
    theirs = strangers_take_over(spark, ground.table, compact=False)
    outcome = run_here(spark, job)
    assert outcome.code == 0, outcome
    assert_each_once(ground.table, ids_of(0, 3) | theirs)


@pytest.mark.in_turn("killed before the journal knew", 1)
def test_s5_killed_before_the_journal_knew_then_compacted_and_expired(spark, ground):
    """As before, and the files have been rewritten into others:
    each row is there once, or the error says that it cannot be told."""
    ground.add_files(0, 3)
    job = ground.job()
    assert run_driver(ground, job, fault="commit.published@2:kill").code == -signal.SIGKILL
    theirs = strangers_take_over(spark, ground.table)
    outcome = run_here(spark, job)
    assert outcome.code == 0, outcome
    assert_each_once(ground.table, ids_of(0, 3) | theirs)


def by_hand(spark, path, snapshot_id):
    """Somebody deletes the newer snapshot files and moves the hint."""
    for newer in foreign.snapshots(path)[snapshot_id:]:
        Path(path, "snapshot", f"snapshot-{newer.id}").unlink()
    Path(path, "snapshot", "LATEST").write_text(str(snapshot_id))


ROLLBACKS = {"by Paimon": foreign.roll_back, "by hand": by_hand}


@pytest.mark.parametrize("way", ROLLBACKS)
def test_s6_rolled_back_under_a_running_query(spark, ground, way):
    """The next batch ends the query with the clear error, before anything is written."""
    ground.add_files(0, 3)
    query = start(spark, ground.job(processing_time="50 milliseconds"), lambda event: None)
    until(lambda: Path(ground.checkpoint, "commits", "2").exists())
    ROLLBACKS[way](spark, ground.table, 1)
    before = content(ground.table)
    ground.add_files(3, 1)
    until(lambda: not query.isActive)
    error = runs.failure(str(query.runId))
    assert error.kind == "table.rolled-back", error
    for word in (ground.table, "Nothing was written", "on_rollback='republish'", "streamsink.give_up("):
        assert word in str(error)
    assert content(ground.table) == before
    assert_each_once(ground.table, ids_of(0, 1))


@pytest.mark.parametrize("way", ROLLBACKS)
def test_s6_the_lost_batches_are_published_again_with_the_option(spark, ground, way):
    """With on_rollback='republish' chosen from the start the journal gives the lost batches back,
    under a running query."""
    ground.add_files(0, 3)
    job = ground.job(processing_time="50 milliseconds", options={"on_rollback": "republish"})
    query = start(spark, job, lambda event: None)
    until(lambda: Path(ground.checkpoint, "commits", "2").exists())
    ROLLBACKS[way](spark, ground.table, 1)
    assert_each_once(ground.table, ids_of(0, 1))
    ground.add_files(3, 1)
    until(
        lambda: Path(ground.checkpoint, "commits", "3").exists(), lambda: query.exception() and query.awaitTermination()
    )
    query.stop()
    assert_each_once(ground.table, ids_of(0, 4))


@pytest.mark.parametrize("way", ROLLBACKS)
def test_s6_the_option_may_be_chosen_after_the_error(spark, ground, way):
    """After the error the query is restarted with on_rollback='republish':
    each row is there once, because the data files are still there."""
    ground.add_files(0, 3)
    job = ground.job()
    assert run_here(spark, job).code == 0
    ROLLBACKS[way](spark, ground.table, 1)
    ground.add_files(3, 1)
    assert_refused(run_here(spark, job), "table.rolled-back", ground.table, "on_rollback='republish'")
    outcome = run_here(spark, job.but(options={"on_rollback": "republish"}))
    assert outcome.code == 0, outcome
    assert outcome.of("RolledBackRepublished")[0]["checkpoints"] == (1, 2)
    assert_each_once(ground.table, ids_of(0, 4))


def test_s6_files_that_are_gone_are_missed_not_guessed(spark, ground):
    """Orphans were cleaned after the rollback:
    republish, chosen only afterwards, says which files are gone and publishes nothing."""
    ground.add_files(0, 3)
    job = ground.job()
    assert run_here(spark, job).code == 0
    foreign.roll_back(spark, ground.table, 1)
    for path in orphans_of_rollback(ground.table):
        path.unlink()
    ground.add_files(3, 1)
    before = content(ground.table)
    outcome = run_here(spark, job.but(options={"on_rollback": "republish"}))
    assert (outcome.error, outcome.kind) == ("Corrupt", "pending.files-gone"), outcome
    assert ground.table in outcome.message and "streamsink.give_up(" in outcome.message
    assert content(ground.table) == before
    assert_each_once(ground.table, ids_of(0, 1))


def orphans_of_rollback(table: str) -> list[Path]:
    """Data files that no snapshot names any more."""
    live = {entry.file.file_name for entry in foreign.live_entries(table)}
    return [path for path in Path(table, "bucket-0").iterdir() if path.name not in live]
