"""A writer sleeps while it publishes, and the snapshot that its own is built on expires: what is live stays, what came too late goes."""

import dataclasses
import json

import pytest

from streamsink.clock import Clock, IdSource
from streamsink.errors import Fenced, Retryable
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.table_commit import Guard, TableCommit
from streamsink.table.table import open_table
from streamsink.testing.memory import MemoryCalls
from tests.table.entries import OPTIONS, ROOT, add, commit, live, new_table, part

_MERGES = pytest.mark.parametrize("merge", ["2", "1000"], ids=["merging", "appending"])


class _Sleeps(FileIO):
    """What happens while this writer has read the newest snapshot and written nothing (``early``), is about to create its own
    (``before``), has just created it (``after``), or is about to name it in LATEST (``hint``)."""

    early = before = after = hint = None

    def flush_group(self):
        happens, self.early = self.early, None
        if happens:
            happens()
        return super().flush_group()

    def replace(self, path, data, unique):
        if path.endswith("/LATEST") and self.hint:
            happens, self.hint = self.hint, None
            happens()
        super().replace(path, data, unique)

    def create_if_absent(self, path, data, unique="", **prepared):
        if "/snapshot-" not in path:
            return super().create_if_absent(path, data, unique, **prepared)
        for happens in (self.before,) if self.before else ():
            self.before = None
            happens()
        won = super().create_if_absent(path, data, unique, **prepared)
        for happens in (self.after,) if self.after else ():
            self.after = None
            happens()
        return won


def _world(merge):
    """A table of three snapshots, and its calls."""
    calls = MemoryCalls()
    table = new_table(calls, options={"manifest.merge-min-count": merge})
    for name in ("a", "b", "c"):
        commit(table, Changes((add(name, part("x")),)))
    return calls, table


def _commit(calls, **sleeps):
    io = _Sleeps(calls, IdSource().new_id)
    for when, happens in sleeps.items():
        setattr(io, when, happens)
    request = CommitRequest("me", 7, Changes((add("new", part("x")),)), "mine")
    return TableCommit(open_table(io, ROOT, for_writing=True), OPTIONS).commit(request, Guard())


def _others(table, count):
    for number in range(count):
        commit(table, Changes((add(f"other{number}", part("y")),)), user="other")


def _expire(table, *snapshot_ids):
    """As Paimon does it, the oldest first; and what only those snapshots name."""
    table.file_io.replace(table.layout.earliest_hint, str(snapshot_ids[-1] + 1).encode(), "x")
    for snapshot_id in snapshot_ids:
        gone = table.snapshots.load(snapshot_id)
        for name in (gone.base_manifest_list, gone.delta_manifest_list):
            table.file_io.delete(table.layout.manifest(name))
        table.file_io.delete(table.layout.snapshot(snapshot_id))


@_MERGES
@pytest.mark.parametrize("others", [0, 1, 3])
def test_a_live_snapshot_stays_when_the_one_before_it_expires(merge, others):
    """Others built on it while its writer slept: it is published, and nothing is taken back."""
    calls, table = _world(merge)
    done = _commit(calls, after=lambda: (_others(table, others), _expire(table, 1, 2, 3)))
    assert done.snapshot_id == 4 and table.snapshots.load(4) == done.snapshot
    assert table.snapshots.ids() == list(range(4, 5 + others))
    assert live(table) == sorted(["a", "b", "c", "new", *(f"other{n}" for n in range(others))])


def test_the_first_snapshot_of_a_table_stays_when_others_build_on_it_at_once():
    """It has none before it, which is no sign that it came too late."""
    calls = MemoryCalls()
    table = new_table(calls)
    assert _commit(calls, after=lambda: _others(table, 2)).snapshot_id == 1
    assert table.snapshots.ids() == [1, 2, 3] and live(table) == ["new", "other0", "other1"]


class _Looked(MemoryCalls):
    """Something happens before the n-th look at the store that follows the next snapshot. happens: None when it has."""

    def __init__(self):
        super().__init__()
        self.happens, self._left = None, 0

    def happens_at(self, look, happens):
        self.happens, self._left = happens, -look

    def link(self, source, target):
        self._left = abs(self._left) if "/snapshot-" in target else self._left
        return super().link(source, target)

    def _look(self):
        if self._left > 0 and self.happens:
            self._left -= 1
            if not self._left:
                happens, self.happens = self.happens, None
                happens()

    def read(self, path):
        self._look()
        return super().read(path)

    def size(self, path):
        self._look()
        return super().size(path)

    def entries(self, path):
        self._look()
        return super().entries(path)


@pytest.mark.parametrize("expired", [0, 3])
def test_a_live_snapshot_stays_whenever_others_build_on_it(expired):
    """Found by a walk: between two looks of the writer whose snapshot it is. It was taken back, and the others' history had a hole."""
    for look in range(1, 1_000):
        calls = _Looked()
        table = new_table(calls)
        for name in range(expired):
            commit(table, Changes((add(str(name), part("x")),)))
        calls.happens_at(look, lambda: _others(table, 1))
        done = _commit(calls, before=lambda: _expire(table, *range(1, 1 + expired)) if expired else None)
        if calls.happens:
            break
        assert done.snapshot_id == 1 + expired and table.snapshots.ids() == [1 + expired, 2 + expired], (
            f"at look {look}"
        )
    assert look > 5


@_MERGES
def test_a_live_snapshot_that_has_expired_too_is_left_to_the_restart(merge):
    """It was there, others built on it, and it expired: no fence, for nobody superseded it; the restart finds it published."""
    calls, table = _world(merge)
    with pytest.raises(Retryable) as unsure:
        _commit(calls, after=lambda: (_others(table, 2), _expire(table, 1, 2, 3, 4)))
    assert unsure.value.kind == "publish.expired-meanwhile"
    assert table.snapshots.ids() == [5, 6]
    assert live(table) == ["a", "b", "c", "new", "other0", "other1"]


def test_a_snapshot_of_another_writer_is_never_taken_back():
    """A rename replaced ours, and the one before expired: what is there now is not ours to delete."""
    calls, table = _world("1000")

    def replaced():
        mine = table.snapshots.load(4)
        _others(table, 2)
        other = dataclasses.replace(mine, uuid="of-another", commit_user="foreign")
        table.file_io.replace(table.layout.snapshot(4), other.to_json(), "x")
        _expire(table, 1, 2, 3)

    with pytest.raises(Retryable):
        _commit(calls, after=replaced)
    assert table.snapshots.load(4).commit_user == "foreign"


@_MERGES
@pytest.mark.parametrize("expired", [(1, 2, 3, 4), (1, 2, 3, 4, 5)], ids=["next-retained", "hole"])
def test_a_snapshot_that_came_too_late_is_taken_back(merge, expired):
    """Its number was another's, which has expired: the snapshot behind it, if it is retained, is not built on it."""
    calls, table = _world(merge)
    with pytest.raises(Fenced) as late:
        _commit(calls, before=lambda: (_others(table, 3), _expire(table, *expired)))
    assert late.value.kind == "writer.fenced-expired"
    assert table.snapshots.ids() == [number for number in (5, 6) if number not in expired]
    assert live(table) == ["a", "b", "c", "other0", "other1", "other2"]


def test_a_snapshot_whose_files_expire_at_this_moment_is_left_to_the_restart():
    """Its manifests are gone already: whether others built on it cannot be told any more, and it is no fence."""
    calls, table = _world("2")

    def expiring():
        _others(table, 2)
        mine = table.snapshots.load(4)
        names = {meta.file_name for meta in table.manifests.delta_of(mine)}
        kept = {meta.file_name for meta in table.manifests.all_of(table.snapshots.latest())}
        for name in names - kept:
            table.file_io.delete(table.layout.manifest(name))
        assert names - kept
        _expire(table, 1, 2, 3)

    with pytest.raises(Retryable) as unsure:
        _commit(calls, after=expiring)
    assert unsure.value.kind == "publish.expired-meanwhile"
    assert live(table) == ["a", "b", "c", "new", "other0", "other1"]


def test_a_snapshot_that_came_too_late_and_names_lists_that_are_swept_is_taken_back():
    """Its successor has swept what the dead one's try had made; nobody could read the snapshot, and verify called the table damaged."""
    calls, table = _world("1000")

    def swept_and_expired():
        ours = [name for name in table.file_io.names(f"{ROOT}/manifest") if name.startswith("manifest-list-mine")]
        assert ours
        for name in ours:
            table.file_io.delete(table.layout.manifest(name))
        _others(table, 2)
        _expire(table, 1, 2, 3, 4)

    with pytest.raises(Retryable) as unsure:
        _commit(calls, before=swept_and_expired)
    assert unsure.value.kind == "publish.expired-meanwhile"
    assert table.snapshots.ids() == [5]
    assert live(table) == ["a", "b", "c", "other0", "other1"]


def test_a_snapshot_that_came_too_late_and_names_manifests_that_have_expired_is_taken_back():
    """Its lists are its own and are there; what they name was merged and has expired, so nobody could read it (walk 4411-10436)."""
    calls, table = _world("2")

    def expired():
        _others(table, 2)
        doomed = {
            meta.file_name for number in (1, 2, 3, 4) for meta in table.manifests.all_of(table.snapshots.load(number))
        }
        kept = {meta.file_name for meta in table.manifests.all_of(table.snapshots.latest())}
        assert doomed - kept
        for name in doomed - kept:
            table.file_io.delete(table.layout.manifest(name))
        _expire(table, 1, 2, 3, 4)

    with pytest.raises(Retryable) as unsure:
        _commit(calls, before=expired)
    assert unsure.value.kind == "publish.expired-meanwhile"
    assert table.snapshots.ids() == [5]
    assert live(table) == ["a", "b", "c", "other0", "other1"]


def test_a_table_that_was_dropped_meanwhile_is_no_fence():
    """No snapshot is there at all: the restart says what has happened."""
    calls, table = _world("1000")
    with pytest.raises(Retryable):
        _commit(calls, after=lambda: table.file_io.delete_tree(f"{ROOT}/snapshot"))


# -- the table went back ---------------------------------------------------------------------------------------------


def _roll_back(table, to: int) -> None:
    """Later snapshots go, the newest first. What follows is of a later millisecond than all that was prepared."""
    for snapshot_id in [number for number in reversed(table.snapshots.ids()) if number > to]:
        table.file_io.delete(table.layout.snapshot(snapshot_id))
    table.file_io.replace(table.layout.latest_hint, str(to).encode(), "x")
    begun = Clock().now_ms()
    while Clock().now_ms() <= begun:
        Clock().sleep_ms(1)


_WHEN = pytest.mark.parametrize("when", ["early", "before"])


def _went_back(calls, happens, when="before") -> None:
    with pytest.raises(Retryable) as told:
        _commit(calls, **{when: happens})
    assert told.value.kind == "table.history-changed" and "taken back" in str(told.value)


@_MERGES
@_WHEN
@pytest.mark.parametrize("to, others", [(2, 1), (1, 1), (2, 0)], ids=["another in its place", "fewer", "none"])
def test_a_snapshot_on_one_that_was_rolled_back_meanwhile_is_taken_back(merge, to, others, when):
    """Its number was free again. What it names may be swept, and readers could not read the table any more."""
    calls, table = _world(merge)
    _went_back(calls, lambda: (_roll_back(table, to), _others(table, others)), when)
    assert table.snapshots.ids() == list(range(1, to + others + 1))
    assert live(table) == ["a", "b", "c"][:to] + ["other0"][:others]


@pytest.mark.parametrize("snapshots", [0, 1], ids=["of the first snapshot", "of a later one"])
def test_a_snapshot_of_a_table_that_was_emptied_meanwhile_is_taken_back(snapshots):
    """No snapshot is there, and nothing that this one names."""
    calls = MemoryCalls()
    table = new_table(calls)
    for _ in range(snapshots):
        commit(table, Changes((add("a", part("x")),)))
    _went_back(calls, lambda: (_roll_back(table, 0), table.file_io.delete_tree(f"{ROOT}/manifest")))
    assert table.snapshots.ids() == []


def test_a_first_snapshot_whose_data_files_went_meanwhile_is_taken_back(monkeypatch):
    """A backup of the table from before its first snapshot took its place: the manifest came after that, the data files before. A walk found it."""
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
    """Its lists came after the drop, or all manifests: the base is gone, and it has not expired; or that of an older table is in its place."""
    calls, table = _world("1000")

    def created_anew():
        _roll_back(table, 0)
        for name in table.file_io.names(f"{ROOT}/manifest"):
            if keeps == "lists" and not name.startswith("manifest-list"):
                table.file_io.delete(f"{ROOT}/manifest/{name}")
        if keeps == "manifests" or others:
            schema = {**json.loads(table.file_io.read(f"{ROOT}/schema/schema-0")), "timeMillis": 1}
            table.file_io.replace(f"{ROOT}/schema/schema-0", json.dumps(schema).encode(), "x")
        other = open_table(table.file_io, ROOT, for_writing=True)
        _others(other, others)
        for number in other.snapshots.ids():
            older = dataclasses.replace(other.snapshots.load(number), time_millis=number)
            table.file_io.replace(table.layout.snapshot(number), older.to_json(), "x")

    _went_back(calls, created_anew, when)
    assert table.snapshots.ids() == list(range(1, 1 + others))


def test_a_snapshot_on_one_that_a_rename_replaced_stays():
    """The one that took its place was prepared before: no rollback."""
    calls, table = _world("1000")

    def replaced():
        base = table.snapshots.load(3)
        other = dataclasses.replace(base, uuid="of-another", commit_user="foreign")
        table.file_io.replace(table.layout.snapshot(3), other.to_json(), "x")

    assert _commit(calls, before=replaced).snapshot_id == 4
    assert table.snapshots.ids() == [1, 2, 3, 4]


def _a_minute_later(monkeypatch) -> None:
    """The writer finds that it has slept."""
    now_ms = Clock.now_ms
    monkeypatch.setattr(Clock, "now_ms", lambda self: now_ms(self) + 60_000)


def test_a_slow_writer_leaves_its_snapshot_when_others_have_built_on_it(monkeypatch):
    """Data files vanished behind both: without it the other writer's snapshot would stand on a hole, and everybody's state with it."""
    calls, table = _world("1000")

    def others_go_on() -> None:
        _others(table, 1)
        _a_minute_later(monkeypatch)

    _commit(calls, after=others_go_on)
    assert table.snapshots.ids() == [1, 2, 3, 4, 5]


def test_a_slow_writer_leaves_no_hint_of_a_snapshot_that_was_rolled_back(monkeypatch):
    """Java's readers take LATEST at its word, and would fail until the next commit."""
    calls, table = _world("1000")

    def rolled_back() -> None:
        _roll_back(table, 2)
        _a_minute_later(monkeypatch)

    _commit(calls, hint=rolled_back)
    assert table.snapshots.ids() == [1, 2]
    assert table.file_io.read(table.layout.latest_hint) == b"2"


def test_a_slow_writer_leaves_no_hint_in_a_table_that_was_created_anew(monkeypatch):
    """It has no snapshot that a hint could name. A walk found one that did."""
    calls, table = _world("1000")

    def created_anew() -> None:
        _roll_back(table, 0)
        _a_minute_later(monkeypatch)

    _commit(calls, hint=created_anew)
    assert table.snapshots.ids() == []
    assert not table.file_io.exists(table.layout.latest_hint)
