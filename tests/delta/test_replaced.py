"""A Delta table that was replaced, and what was lost or damaged beside it: an error that says so, or each row once."""

import json
import os
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake

from streamsink.commands.sinks_given_up import give_up_of_sink
from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.sinks.delta.log import DeltaLog
from streamsink.storage.file_io import local_file_io
from streamsink.testing.conformance import SCHEMA
from streamsink.testing.faults import InjectedCrash
from tests.advice.following import follows, told
from tests.delta.test_past import others, refused
from tests.delta.world import DeltaOnDisk, LogOnDisk, World, rows

NO_CHECKPOINT = PostCommitHookProperties(create_checkpoint=False)


def written(tmp_path) -> World:
    """A query that has written two batches: five rows."""
    world = World(tmp_path)
    world.run(3, 5)
    return world


def test_a_table_that_was_dropped_and_created_again_is_another_one(tmp_path):
    world = written(tmp_path)
    shutil.rmtree(f"{world.path}/_delta_log")
    DeltaTable.create(world.path, SCHEMA)
    journal = refused(world, "table.recreated", 3, 5, 9).find(r"remove the journal (\S+) of")
    shutil.rmtree(journal)
    world.forget_checkpoint()
    world.run(3)
    assert world.ids() == [0, 1, 2]


def test_a_log_of_which_others_have_the_round_numbers_gets_checkpoints(tmp_path):
    """Of 3 versions one is ours, and a checkpoint is due behind each 6."""
    world = World(tmp_path)
    ends = [1]
    world.run(*ends, table_options={"delta.checkpointInterval": "6"})
    for number in range(5):
        for ours in range(2):  # deltalake would write the checkpoint itself
            table = world.table()
            table.alter.set_table_description(f"{number} {ours}", post_commithook_properties=NO_CHECKPOINT)
        ends.append(ends[-1] + 1)
        world.run(*ends)
    names = os.listdir(f"{world.path}/_delta_log")
    assert len([name for name in names if ".checkpoint." in name]) >= 2
    assert world.ids() == list(range(ends[-1]))


@pytest.mark.parametrize("versions", [1, 6])
def test_a_table_that_is_replaced_while_the_query_runs_is_another_one(tmp_path, versions):
    """Also by one that has more versions than the first."""
    world = World(tmp_path)

    def make(first, end):
        if first == 5:
            shutil.rmtree(f"{world.path}/_delta_log")
            DeltaTable.create(world.path, SCHEMA)
            for number in range(versions):
                others(world, 100 + number, 101 + number)
        return rows(first, end)

    world._make = make
    with pytest.raises(Misuse) as told:
        world.run(3, 5, 9)
    assert told.value.kind == "table.recreated"
    assert world.ids() == [100 + number for number in range(versions)]


def test_a_log_that_is_replaced_before_the_first_commit_is_another_one(tmp_path):
    """By one with fewer versions: a commit behind the last version of the first one would leave a hole."""
    world = World(tmp_path)
    for number in range(6):
        others(world, 100 + number, 101 + number)

    def make(first, end):
        shutil.rmtree(f"{world.path}/_delta_log")
        DeltaTable.create(world.path, SCHEMA)
        return rows(first, end)

    world._make = make
    told("table.recreated", lambda: world.run(3)).says("Nothing was written")
    assert os.listdir(f"{world.path}/_delta_log") == [f"{0:020}.json"]


def test_a_table_that_another_program_replaces_while_the_query_runs_is_another_one(tmp_path):
    """Its log goes on, and only its id says so."""
    world = World(tmp_path)

    def make(first, end):
        if first == 5:
            DeltaTable.create(world.path, SCHEMA, mode="overwrite")
        return rows(first, end)

    world._make = make
    told("table.recreated", lambda: world.run(3, 5, 9)).says("Nothing was written")
    assert world.ids() == []


def test_a_table_that_is_replaced_under_its_id_has_nothing_of_what_was_published(tmp_path):
    """The numbers of transactions stay, so that is looked for in the log."""
    world = World(tmp_path)
    world.run(3, 5, on_rollback="republish")
    table_id = world.table().metadata().id
    DeltaTable.create(world.path, SCHEMA, mode="overwrite")
    entry = Path(f"{world.path}/_delta_log/{3:020}.json")
    entry.write_text(entry.read_text().replace(world.table().metadata().id, table_id))
    assert world.table().metadata().id == table_id and world.ids() == []
    refused(world, "table.rolled-back", 3, 5, 9)
    world.run(3, 5, 9, on_rollback="republish")
    assert world.ids() == list(range(9))


def test_a_table_that_another_program_replaces_is_another_one(tmp_path):
    world = World(tmp_path)
    world.run(3)
    DeltaTable.create(world.path, SCHEMA, mode="overwrite")
    refused(world, "table.recreated", 3, 5)


def test_an_overwrite_by_another_writer_takes_rows_and_nothing_else(tmp_path):
    world = written(tmp_path)
    write_deltalake(world.path, pa.Table.from_batches([rows(100, 101)]), mode="overwrite")
    world.run(3, 5, 9)
    assert world.ids() == [5, 6, 7, 8, 100]


def test_a_journal_that_is_lost_costs_nothing(tmp_path):
    world = written(tmp_path)
    shutil.rmtree(f"{world.path}/_streamsink/streamsink")
    world.run(3, 5, 9)
    assert world.ids() == list(range(9))


def test_a_state_that_is_lost_is_taken_from_the_journal(tmp_path):
    world = written(tmp_path)
    shutil.rmtree(f"{world.path}/_streamsink/states")
    world.run(3, 5, 9)
    assert world.ids() == list(range(9))


@follows("delta.state-gone")
def test_states_and_journal_that_are_lost_together_are_an_error(tmp_path):
    world = written(tmp_path)
    shutil.move(f"{world.path}/_streamsink", tmp_path / "kept")
    refused(world, "delta.state-gone", 3, 5, 9).says("from a backup")
    shutil.rmtree(f"{world.path}/_streamsink", ignore_errors=True)
    shutil.move(tmp_path / "kept", f"{world.path}/_streamsink")
    world.run(3, 5, 9)
    assert world.ids() == list(range(9))


def test_states_and_journal_of_which_there_is_no_backup_end_a_name(tmp_path):
    """The query goes on behind its rows, with a new checkpoint, under another name."""
    world = written(tmp_path)
    shutil.rmtree(f"{world.path}/_streamsink/streamsink")
    for folder, _, names in os.walk(f"{world.path}/_streamsink/states"):
        for name in names:
            os.remove(os.path.join(folder, name))
    folder = refused(world, "delta.state-gone", 3, 5, 9).says("another name").find(r"remove the folder (\S+),")
    shutil.rmtree(folder)
    world.forget_checkpoint()
    world.first = 5
    word = refused(world, "history.incomplete", 9, 12, application="another").option("new_application")
    world.run(9, 12, application="another", new_application=word)
    world.run(9, 12, 13, application="another")
    assert world.ids() == list(range(13))


def test_a_lost_state_of_another_application_is_taken_from_its_journal(tmp_path):
    world = written(tmp_path)
    shutil.rmtree(f"{world.path}/_streamsink/states")
    os.makedirs(f"{world.path}/_streamsink/states/{world.table().metadata().id}/streamsink")
    world.forget_checkpoint()
    world.checkpoint.query, world.first = "another query", 5
    world.run(7, application="another")
    assert world.ids() == list(range(7))


def test_a_table_whose_log_was_deleted_is_not_created_again(tmp_path):
    """The new one would be in the way of what has to be restored."""
    world = written(tmp_path)
    shutil.move(f"{world.path}/_delta_log", tmp_path / "kept")
    told("table.missing", lambda: world.run(3, 5, 9)).says("Restore that folder", "Nothing was written")
    assert not os.path.exists(f"{world.path}/_delta_log")
    shutil.move(tmp_path / "kept", f"{world.path}/_delta_log")
    world.run(3, 5, 9)
    assert world.ids() == list(range(9))


def test_a_table_that_was_dropped_on_purpose_begins_anew(tmp_path):
    world = written(tmp_path)
    shutil.rmtree(f"{world.path}/_delta_log")
    shutil.rmtree(told("table.missing", lambda: world.run(3, 5, 9)).find(r"remove (\S+) and start a new checkpoint"))
    world.forget_checkpoint()
    world.run(3)
    assert world.ids() == [0, 1, 2]


@pytest.mark.parametrize("gone", ["files", "description"])
def test_a_record_whose_files_are_gone_is_written_again(tmp_path, gone):
    """What is advised where nobody can restore them, or what describes them. Spark repeats the batch."""

    class Dying(LogOnDisk):
        def commit(self, *given):
            if self.seen.version() == 2:
                raise InjectedCrash("here")
            super().commit(*given)

    world = World(tmp_path)
    with pytest.raises(InjectedCrash):
        world.run(3, 5, 9, sink=DeltaOnDisk(world.path, disk=world.path, make=Dying))
    described = [str(path) for path in Path(world.path).glob("**/staging/*-3/manifest-*")]
    assert len(described) == 1
    for path in described if gone == "description" else [f"{world.path}/{name}" for name in world.unnamed()]:
        os.remove(path)
    said = told("pending.files-gone", lambda: world.run(3, 5, 9))
    name = said.find(r"streamsink\.give_up\(sink, application='(\w+)'\)")
    options = SinkOptions.of(world.path, {"application": name})
    give_up_of_sink(local_file_io(), DeltaOnDisk(world.path, disk=world.path), options)
    world.run(3, 5, 9, 12)
    assert world.ids() == list(range(12))


@follows("delta.entry")
def test_an_entry_that_is_damaged_is_an_error(tmp_path):
    """As after a power failure, when another program has written it."""
    world = written(tmp_path)
    log = f"{world.path}/_delta_log"
    shutil.copytree(log, tmp_path / "kept")
    others(world, 100, 101)
    shutil.copy(f"{log}/{3:020}.json", tmp_path / "backup")
    with open(f"{log}/{2:020}.json", "w") as file:
        file.write('{"add": 1}')
    log_of = DeltaLog(local_file_io(), world.path, world.path, {})
    name = told("delta.entry", lambda: log_of.entry(2)).find(r"(\S+) is no entry")
    shutil.copy(tmp_path / "kept" / os.path.basename(name), name)
    world.run(3, 5, 9)
    assert world.ids() == [*range(9), 100]


@pytest.mark.parametrize(
    "said",
    [
        None,
        "a text",
        {"operation": 5, "operationParameters": "a text", "timestamp": "soon"},
        {"operation": "WRITE", "streamsink": {"record": 1}},
        {"operation": "WRITE", "streamsink": "a text"},
    ],
)
def test_another_writer_may_say_of_a_commit_what_it_likes(tmp_path, said):
    """The protocol asks for no key and no type there."""
    world = written(tmp_path)
    Path(f"{world.path}/_delta_log/{3:020}.json").write_text(json.dumps({"commitInfo": said}))
    world.run(3, 5, 9)
    assert world.ids() == list(range(9))


def test_a_restore_of_which_nothing_is_said_is_one_by_time(tmp_path):
    world = written(tmp_path)
    said = {"commitInfo": {"operation": "RESTORE", "operationParameters": "a text"}}
    Path(f"{world.path}/_delta_log/{3:020}.json").write_text(json.dumps(said))
    refused(world, "delta.restored-by-time", 3, 5, 9)


@follows("delta.unavailable")
def test_a_log_that_cannot_be_read_is_a_passing_failure(tmp_path):
    world = written(tmp_path)
    log = f"{world.path}/_delta_log"
    shutil.copytree(log, tmp_path / "kept")
    os.remove(f"{log}/{1:020}.json")
    told("delta.unavailable", DeltaLog(local_file_io(), world.path, world.path, {}).newest).says(
        "Look whether the table's log can be read"
    )
    shutil.copy(tmp_path / "kept" / f"{1:020}.json", log)
    world.run(3, 5, 9)
    assert world.ids() == list(range(9))


@follows("delta.extra-missing")
def test_the_package_is_named_where_it_is_missing(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "deltalake", None)
        told("delta.extra-missing", lambda: World(tmp_path).run(3)).says("pip install 'streamsink[delta]'")
    world = World(tmp_path)
    world.run(3)
    assert world.ids() == [0, 1, 2]


def test_files_of_a_record_that_the_journal_has_lost_stay(tmp_path):
    """Its staging folder is left, and announces where its files are."""
    world = written(tmp_path)
    shutil.copytree(f"{world.path}/_streamsink/streamsink/streamsink/staging", tmp_path / "staging")
    shutil.rmtree(f"{world.path}/_streamsink/streamsink")
    shutil.copytree(tmp_path / "staging", f"{world.path}/_streamsink/streamsink/streamsink/staging")
    world.run(3, 5, 9)
    world.run(3, 5, 9, 12)  # the numbers of the folders are taken now
    world.run(3, 5, 9, 12, 14)
    assert world.ids() == list(range(14))


def test_entries_are_flushed_before_a_record_is_marked(tmp_path):
    """deltalake does not; also what a driver has committed that died behind it."""
    flushed = []

    class Flushing(LogOnDisk):
        def flush(self, version, since=None):
            flushed.append((version, os.path.exists(f"{self._uri}/_streamsink/streamsink/streamsink/done-{version}")))
            super().flush(version, since)

    world = World(tmp_path)
    sink = DeltaOnDisk(world.path, disk=world.path, make=Flushing)
    world.run(3, 5, sink=sink)
    assert flushed == [(0, False), (1, False), (2, False)]
    os.remove(f"{world.path}/_streamsink/streamsink/streamsink/done-2")
    world.run(3, 5, sink=sink)
    assert flushed[3:] == [(2, False)]


def test_entries_of_others_before_ours_are_flushed_as_well(tmp_path):
    """Without them a power failure would leave a hole, and ours behind it."""
    world = World(tmp_path)
    world.run(3)
    for number in range(3):
        others(world, 100 + number, 101 + number)
    calls = MemoryFlushes(local_file_io())
    DeltaLog(calls, world.path, world.path, {}).flush(4, since=0)
    assert [os.path.basename(path) for path in calls.flushed] == [f"{n:020}.json" for n in range(5)]


def test_what_is_committed_behind_an_older_copy_of_the_log_is_flushed_too(tmp_path):
    """Its versions come a second time."""
    world = written(tmp_path)
    shutil.copytree(f"{world.path}/_delta_log", tmp_path / "copy")
    world.run(3, 5, 9)
    calls = MemoryFlushes(local_file_io())
    log = DeltaLog(calls, world.path, world.path, {})
    log.newest()
    log.flush(3)
    shutil.rmtree(f"{world.path}/_delta_log")
    shutil.copytree(tmp_path / "copy", f"{world.path}/_delta_log")
    others(world, 100, 101)
    assert log.newest().version() == 3
    calls.flushed.clear()
    log.flush(3, since=2)
    assert [os.path.basename(path) for path in calls.flushed] == [f"{n:020}.json" for n in (2, 3)]


class MemoryFlushes:
    """A store that notes what is flushed."""

    takes_files_of_others = True

    def __init__(self, file_io):
        self._io, self.flushed = file_io, []

    def read(self, path):
        return self._io.read(path)

    def flush_file(self, path):
        self.flushed.append(path)

    def sync_dir(self, folder):
        self._io.sync_dir(folder)


def test_the_log_is_cleaned_up_as_the_table_wants_it(tmp_path):
    """Behind a checkpoint, and not within a commit, which would look as if it had failed when the cleaning does."""
    world = World(tmp_path)
    options = {"delta.logRetentionDuration": "interval 0 seconds", "delta.checkpointInterval": "5"}
    world.run(*range(1, 14), table_options=options)
    names = sorted(name for name in os.listdir(f"{world.path}/_delta_log") if name.endswith(".json"))
    assert names == [f"{version:020}.json" for version in range(10, 14)]
    world.run(*range(1, 16))
    assert world.ids() == list(range(15))
