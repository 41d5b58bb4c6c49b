"""A writer sleeps while it publishes, and the table goes back behind the snapshot that its own is built on."""

import dataclasses
import json

import pytest

from streamsink.clock import Clock
from streamsink.errors import Retryable
from streamsink.table.commit.changes import Changes
from streamsink.table.table import open_table
from streamsink.testing.memory import MemoryCalls
from tests.table.entries import ROOT, add, commit, live, new_table, part
from tests.table.sleeping_writer import MERGES, commit_asleep, commits_of_others, three_snapshots


def _roll_back(table, to: int) -> None:
    """Delete later snapshots, the newest first.
    What is written after this has a later millisecond than everything that was prepared."""
    for snapshot_id in [number for number in reversed(table.snapshots.ids()) if number > to]:
        table.file_io.delete(table.layout.snapshot(snapshot_id))
    table.file_io.replace(table.layout.latest_hint, str(to).encode(), "x")
    begun = Clock().now_ms()
    while Clock().now_ms() <= begun:
        Clock().sleep_ms(1)


_WHEN = pytest.mark.parametrize("when", ["early", "before"])


def _went_back(calls, happens, when="before") -> None:
    with pytest.raises(Retryable) as told:
        commit_asleep(calls, **{when: happens})
    assert told.value.kind == "table.history-changed" and "taken back" in str(told.value)


@MERGES
@_WHEN
@pytest.mark.parametrize("to, others", [(2, 1), (1, 1), (2, 0)], ids=["another in its place", "fewer", "none"])
def test_a_snapshot_on_one_that_was_rolled_back_meanwhile_is_taken_back(merge, to, others, when):
    """Its number was free again. What it names may be swept, and readers could not read the table any more."""
    calls, table = three_snapshots(merge)
    _went_back(calls, lambda: (_roll_back(table, to), commits_of_others(table, others)), when)
    assert table.snapshots.ids() == list(range(1, to + others + 1))
    assert live(table) == ["a", "b", "c"][:to] + ["other0"][:others]


@pytest.mark.parametrize("snapshots", [0, 1], ids=["of the first snapshot", "of a later one"])
def test_a_snapshot_of_a_table_that_was_emptied_meanwhile_is_taken_back(snapshots):
    """No snapshot is there, and nothing of what this one names."""
    calls = MemoryCalls()
    table = new_table(calls)
    for _ in range(snapshots):
        commit(table, Changes((add("a", part("x")),)))
    _went_back(calls, lambda: (_roll_back(table, 0), table.file_io.delete_tree(f"{ROOT}/manifest")))
    assert table.snapshots.ids() == []


def test_a_first_snapshot_whose_data_files_went_meanwhile_is_taken_back(monkeypatch):
    """Found by a walk: a backup of the table from before its first snapshot took its place. The manifest was written
    after that, the data files before."""
    calls = MemoryCalls()
    table = new_table(calls)
    later = Clock.now_ms
    _went_back(calls, lambda: monkeypatch.setattr(Clock, "now_ms", lambda self: later(self) + 60_000))
    assert table.snapshots.ids() == []


def test_a_snapshot_in_the_folder_of_a_table_that_was_dropped_meanwhile_is_taken_back():
    """It would be all that is there, and no table could be created in its place."""
    calls = MemoryCalls()
    table = new_table(calls)
    _went_back(calls, lambda: table.file_io.delete_tree(ROOT), "early")
    assert not table.file_io.names(f"{ROOT}/snapshot")


@_WHEN
@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("keeps", ["lists", "manifests"])
def test_a_snapshot_in_a_table_that_was_created_anew_meanwhile_is_taken_back(keeps, others, when):
    """Its lists were written after the drop, or all manifests were. The base is gone although it has not expired, or
    the base of an older table is in its place."""
    calls, table = three_snapshots("1000")

    def created_anew():
        _roll_back(table, 0)
        for name in table.file_io.names(f"{ROOT}/manifest"):
            if keeps == "lists" and not name.startswith("manifest-list"):
                table.file_io.delete(f"{ROOT}/manifest/{name}")
        if keeps == "manifests" or others:
            schema = {**json.loads(table.file_io.read(f"{ROOT}/schema/schema-0")), "timeMillis": 1}
            table.file_io.replace(f"{ROOT}/schema/schema-0", json.dumps(schema).encode(), "x")
        other = open_table(table.file_io, ROOT, for_writing=True)
        commits_of_others(other, others)
        for number in other.snapshots.ids():
            older = dataclasses.replace(other.snapshots.load(number), time_millis=number)
            table.file_io.replace(table.layout.snapshot(number), older.to_json(), "x")

    _went_back(calls, created_anew, when)
    assert table.snapshots.ids() == list(range(1, 1 + others))


def test_a_snapshot_on_one_that_a_rename_replaced_stays():
    """The replacement was prepared before, so it is no rollback."""
    calls, table = three_snapshots("1000")

    def replaced():
        base = table.snapshots.load(3)
        other = dataclasses.replace(base, uuid="of-another", commit_user="foreign")
        table.file_io.replace(table.layout.snapshot(3), other.to_json(), "x")

    assert commit_asleep(calls, before=replaced).snapshot_id == 4
    assert table.snapshots.ids() == [1, 2, 3, 4]


def _a_minute_later(monkeypatch) -> None:
    """Let the writer find that it has slept."""
    now_ms = Clock.now_ms
    monkeypatch.setattr(Clock, "now_ms", lambda self: now_ms(self) + 60_000)


def test_a_slow_writer_leaves_its_snapshot_when_others_have_built_on_it(monkeypatch):
    """Data files vanished behind both.
    If it took its snapshot back, the other writer's snapshot would stand on a hole, and everybody's state with it."""
    calls, table = three_snapshots("1000")

    def others_go_on() -> None:
        commits_of_others(table, 1)
        _a_minute_later(monkeypatch)

    commit_asleep(calls, after=others_go_on)
    assert table.snapshots.ids() == [1, 2, 3, 4, 5]


def test_a_slow_writer_leaves_no_hint_of_a_snapshot_that_was_rolled_back(monkeypatch):
    """Java's readers trust LATEST, and would fail until the next commit."""
    calls, table = three_snapshots("1000")

    def rolled_back() -> None:
        _roll_back(table, 2)
        _a_minute_later(monkeypatch)

    commit_asleep(calls, hint=rolled_back)
    assert table.snapshots.ids() == [1, 2]
    assert table.file_io.read(table.layout.latest_hint) == b"2"


def test_a_slow_writer_leaves_no_hint_in_a_table_that_was_created_anew(monkeypatch):
    """The table has no snapshot that a hint could name. A walk found a hint that did."""
    calls, table = three_snapshots("1000")

    def created_anew() -> None:
        _roll_back(table, 0)
        _a_minute_later(monkeypatch)

    commit_asleep(calls, hint=created_anew)
    assert table.snapshots.ids() == []
    assert not table.file_io.exists(table.layout.latest_hint)
