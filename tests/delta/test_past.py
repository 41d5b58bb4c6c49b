"""A table that was put back, replaced, cleaned up or copied: an error that says so, or each row once."""

import datetime
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streamsink.errors import Misuse
from streamsink.sinks.delta import states
from tests.advice.following import Advice, follows, told
from tests.delta.world import Between, World, rows


def others(world, *ids):
    """Another writer appends."""
    write_deltalake(world.path, pa.Table.from_batches([rows(*ids)]), mode="append")


def refused(world, kind, *ends, **options) -> Advice:
    """What the error of this kind says, with which a start must end. It changes nothing."""
    before = world.ids()
    said = told(kind, lambda: world.run(*ends, **options))
    assert world.ids() == before
    return said.says("Nothing was written")


def cleaned(world):
    """All of the log before a checkpoint of the newest version is gone."""
    world.table().alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    world.table().create_checkpoint()
    world.table().cleanup_metadata()
    version = world.table().version()
    names = [name for name in os.listdir(f"{world.path}/_delta_log") if name.endswith(".json")]
    assert sorted(names) == [f"{version:020}.json"]


def test_a_table_that_was_restored_is_found(tmp_path):
    """RESTORE leaves the numbers of transactions as they are, so it is looked for in the log."""
    world = World(tmp_path)
    world.run(3, 5, 9)
    world.table().restore(2)
    assert world.table().transaction_version("streamsink:streamsink") == 3
    assert world.ids() == list(range(5))
    refused(world, "table.rolled-back", 3, 5, 9, 12).says("RESTORE", "on_rollback='republish'")
    world.table().restore(3)
    world.run(3, 5, 9, 12)
    assert world.ids() == list(range(12))


def test_what_was_restored_away_is_published_again(tmp_path):
    world = World(tmp_path)
    world.run(3, 5, 9, on_rollback="republish")
    world.table().restore(1)
    world.run(3, 5, 9, 12, on_rollback="republish")
    assert world.ids() == list(range(12))
    assert world.table().transaction_version("streamsink:streamsink") == 4


def test_a_table_that_was_restored_and_put_forward_again_is_whole(tmp_path):
    world = World(tmp_path)
    world.run(3, 5, 9)
    world.table().restore(1)
    world.table().restore(3)
    world.run(3, 5, 9, 12)
    assert world.ids() == list(range(12))


def test_a_restore_while_the_query_runs_is_found(tmp_path):
    """Between two batches of one start."""
    world = World(tmp_path)

    def make(first, end):
        if first == 5:
            world.table().restore(1)
        return rows(first, end)

    world._make = make
    with pytest.raises(Misuse) as told:
        world.run(3, 5, 9)
    assert told.value.kind == "table.rolled-back"
    assert world.ids() == [0, 1, 2]


def test_rows_of_others_survive_what_is_published_again(tmp_path):
    world = World(tmp_path)
    world.run(3, 5, on_rollback="republish")
    others(world, 100, 103)
    world.table().restore(1)
    others(world, 200, 202)
    world.run(3, 5, 9, on_rollback="republish")
    assert world.ids() == [*range(9), 200, 201]


@follows("delta.restored-by-time")
def test_a_restore_by_time_is_an_error_that_says_how_to_go_on(tmp_path):
    world = World(tmp_path)
    world.run(3, 5)
    when = world.table().history()[0]["timestamp"]
    world.run(3, 5, 9)
    world.table().restore(datetime.datetime.fromtimestamp(when / 1000, datetime.timezone.utc))
    said = refused(world, "delta.restored-by-time", 3, 5, 9)
    said.says("by the number of its version", "DeltaTable.restore(n)")
    world.table().restore(world.table().version() - 1)  # what was before that RESTORE
    world.run(3, 5, 9, 12)
    assert world.ids() == list(range(12))


def test_an_application_that_never_wrote_is_not_stopped_by_a_restore_by_time(tmp_path):
    world = World(tmp_path)
    write_deltalake(world.path, pa.Table.from_batches([rows(100, 103)]))
    write_deltalake(world.path, pa.Table.from_batches([rows(103, 105)]), mode="append")
    when = world.table().history()[-1]["timestamp"]
    world.table().restore(datetime.datetime.fromtimestamp(when / 1000, datetime.timezone.utc))
    world.run(3)
    assert world.ids() == [0, 1, 2, *world.ids()[3:]]


def test_a_log_that_was_cleaned_up_still_says_what_is_published(tmp_path):
    """Checkpoints keep the numbers, and files of the last record are there, so nothing was restored."""
    world = World(tmp_path)
    world.run(3, 5)
    others(world, 100, 103)
    cleaned(world)
    shutil.rmtree(f"{world.path}/_streamsink/streamsink")  # the journal as well
    world.run(3, 5, 9)
    assert world.ids() == [*range(9), 100, 101, 102]


@follows("delta.log-gone")
def test_a_cleaned_log_that_may_hide_a_restore_is_an_error_with_a_way_on(tmp_path):
    """The last record's files were compacted, and the log up to there is gone."""
    world = World(tmp_path)
    world.run(3, 5)
    world.table().optimize.compact()
    cleaned(world)
    word = refused(world, "delta.log-gone", 3, 5, 9).find(r"create an empty file (\S+)")
    with open(word, "w"):
        pass
    world.run(3, 5, 9)
    assert world.ids() == list(range(9))


def test_a_last_record_without_rows_is_no_question_when_the_log_was_cleaned_up(tmp_path):
    """Files of the one before show that nothing was restored away."""
    world = World(tmp_path)
    world.run(3, 5, 5, 5)
    cleaned(world)
    world.run(3, 5, 5, 5, 9)
    assert world.ids() == list(range(9))


def test_last_records_without_rows_say_nothing_when_those_before_were_restored_away(tmp_path):
    world = World(tmp_path)
    world.run(3, 5, 5, 5)
    world.table().restore(1)
    others(world, 100, 101)
    cleaned(world)
    refused(world, "delta.log-gone", 3, 5, 5, 5, 9)


def test_a_log_with_a_restore_that_was_cleaned_up_is_not_taken_for_whole(tmp_path):
    world = World(tmp_path)
    world.run(3, 5, 9)
    world.table().restore(1)
    others(world, 100, 101)
    cleaned(world)
    refused(world, "delta.log-gone", 3, 5, 9, 12)


def test_an_older_copy_of_the_whole_table_is_found(tmp_path):
    world = World(tmp_path)
    world.run(3, 5)
    shutil.copytree(f"{world.path}/_delta_log", tmp_path / "copy")
    world.run(3, 5, 9)
    shutil.rmtree(f"{world.path}/_delta_log")
    shutil.copytree(tmp_path / "copy", f"{world.path}/_delta_log")
    refused(world, "table.rolled-back", 3, 5, 9, 12)


def test_an_older_copy_with_later_commits_of_others_is_found(tmp_path):
    world = World(tmp_path)
    world.run(3, 5)
    shutil.copytree(f"{world.path}/_delta_log", tmp_path / "copy")
    world.run(3, 5, 9)
    shutil.rmtree(f"{world.path}/_delta_log")
    shutil.copytree(tmp_path / "copy", f"{world.path}/_delta_log")
    others(world, 100, 101)
    others(world, 101, 102)
    refused(world, "table.rolled-back", 3, 5, 9, 12)


def test_a_commit_that_another_program_replaced_by_a_rename_is_published_again(tmp_path):
    """Spark's Delta does so on a local disk, when it has looked before our commit was there."""
    world = World(tmp_path)
    world.run(3, 5)
    entry = f"{world.path}/_delta_log/{2:020}.json"
    with open(entry) as file:
        lines = [json.loads(line) for line in file]
    theirs = {"commitInfo": {"timestamp": lines[0]["commitInfo"]["timestamp"] - 1, "operation": "WRITE"}}
    with open(f"{entry}.new", "w") as file:
        file.write(json.dumps(theirs))
    os.replace(f"{entry}.new", entry)
    assert world.ids() == [0, 1, 2]
    world.run(3, 5, 9)
    assert world.ids() == list(range(9))


def test_a_restore_that_another_program_publishes_over_what_was_seen_is_found(tmp_path):
    """By a rename, on a local disk: it takes the place of the newest entry, behind our commits."""
    world = World(tmp_path)

    def make(first, end):
        if first == 5:
            os.remove(f"{world.path}/_delta_log/{3:020}.json")
            world.table().restore(1)
            others(world, 200, 201)
            assert world.table().version() == 4
        return rows(first, end)

    world._make, world.checkpoint = make, Between(2, lambda: others(world, 100, 101))
    told("table.rolled-back", lambda: world.run(3, 5, 9)).says("Nothing was written")
    assert world.ids() == [0, 1, 2, 200]
    world.run(3, 5, 9, on_rollback="republish")
    assert world.ids() == [*range(9), 200]


def test_a_table_that_was_put_back_to_before_the_query_and_past_the_journal_has_to_be_restored(tmp_path):
    """What is advised is what there is for a Delta table."""
    world = World(tmp_path)
    ends = list(range(1, 9))
    world.run(*ends, journal_retain=2)
    world.table().restore(0)
    said = refused(world, "table.rolled-back-too-far", *ends, 9, journal_retain=2, on_rollback="republish")
    said.says("Restore the table to a version that has what was published (RESTORE)")
    assert "give_up" not in said.message
    world.table().restore(len(ends))
    world.run(*ends, 9, journal_retain=2)
    assert world.ids() == list(range(9))


def test_a_table_that_was_put_back_past_the_states_has_to_be_restored(tmp_path, monkeypatch):
    monkeypatch.setattr(states, "_KEPT", 2)
    world = World(tmp_path)
    ends = list(range(1, 9))
    world.run(*ends, journal_retain=2)
    world.table().restore(3)
    refused(world, "delta.state-gone", *ends, 9, journal_retain=2).says("restore it to a version that has a later rec")
    world.table().restore(len(ends))
    world.run(*ends, 9, journal_retain=2)
    assert world.ids() == list(range(9))


@pytest.mark.parametrize("left", [None, b"", b"damaged" * 100])
def test_a_checkpoint_that_is_damaged_or_gone_is_an_error_with_a_way_on(tmp_path, left):
    world = World(tmp_path)
    world.run(3, 5)
    world.table().create_checkpoint()
    checkpoint = Path(f"{world.path}/_delta_log/{2:020}.checkpoint.parquet")
    checkpoint.unlink()
    if left is not None:
        checkpoint.write_bytes(left)
    said = told("delta.entry", lambda: world.run(3, 5, 9)).says("newest checkpoint", "Nothing was written")
    shutil.move(said.find(r"Move (\S+) and"), tmp_path / "hint")
    checkpoint.unlink(missing_ok=True)
    world.run(3, 5, 9)
    assert world.ids() == list(range(9))
