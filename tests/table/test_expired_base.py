"""A writer sleeps while it publishes, and the snapshot that its own is built on expires:
what is live stays, and what came too late is deleted."""

import dataclasses

import pytest

from streamsink.errors import Fenced, Retryable
from streamsink.table.commit.changes import Changes
from streamsink.testing.memory import MemoryCalls
from tests.table.entries import ROOT, add, commit, live, new_table, part
from tests.table.sleeping_writer import MERGES, commit_asleep, commits_of_others, three_snapshots


def _expire(table, *snapshot_ids):
    """Expire these snapshots as Paimon does, the oldest first, with the lists that only they name."""
    table.file_io.replace(table.layout.earliest_hint, str(snapshot_ids[-1] + 1).encode(), "x")
    for snapshot_id in snapshot_ids:
        gone = table.snapshots.load(snapshot_id)
        for name in (gone.base_manifest_list, gone.delta_manifest_list):
            table.file_io.delete(table.layout.manifest(name))
        table.file_io.delete(table.layout.snapshot(snapshot_id))


@MERGES
@pytest.mark.parametrize("others", [0, 1, 3])
def test_a_live_snapshot_stays_when_the_one_before_it_expires(merge, others):
    """Others built on it while its writer slept: it is published, and nothing is taken back."""
    calls, table = three_snapshots(merge)
    done = commit_asleep(calls, after=lambda: (commits_of_others(table, others), _expire(table, 1, 2, 3)))
    assert done.snapshot_id == 4 and table.snapshots.load(4) == done.snapshot
    assert table.snapshots.ids() == list(range(4, 5 + others))
    assert live(table) == sorted(["a", "b", "c", "new", *(f"other{n}" for n in range(others))])


def test_the_first_snapshot_of_a_table_stays_when_others_build_on_it_at_once():
    """It has none before it, which is no sign that it came too late."""
    calls = MemoryCalls()
    table = new_table(calls)
    assert commit_asleep(calls, after=lambda: commits_of_others(table, 2)).snapshot_id == 1
    assert table.snapshots.ids() == [1, 2, 3] and live(table) == ["new", "other0", "other1"]


class _Looked(MemoryCalls):
    """Lets something happen before the n-th look at the store that follows the next snapshot.
    happens: None when it has happened."""

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
    """Found by a walk: others built on it between two looks of its writer.
    It was taken back, and the others' history had a hole."""
    for look in range(1, 1_000):
        calls = _Looked()
        table = new_table(calls)
        for name in range(expired):
            commit(table, Changes((add(str(name), part("x")),)))
        calls.happens_at(look, lambda: commits_of_others(table, 1))
        done = commit_asleep(calls, before=lambda: _expire(table, *range(1, 1 + expired)) if expired else None)
        if calls.happens:
            break
        assert done.snapshot_id == 1 + expired and table.snapshots.ids() == [1 + expired, 2 + expired], (
            f"at look {look}"
        )
    assert look > 5


@MERGES
def test_a_live_snapshot_that_has_expired_too_is_left_to_the_restart(merge):
    """It was there, others built on it, and it expired.
    That is no fence, because nobody superseded its writer; the restart finds it published."""
    calls, table = three_snapshots(merge)
    with pytest.raises(Retryable) as unsure:
        commit_asleep(calls, after=lambda: (commits_of_others(table, 2), _expire(table, 1, 2, 3, 4)))
    assert unsure.value.kind == "publish.expired-meanwhile"
    assert table.snapshots.ids() == [5, 6]
    assert live(table) == ["a", "b", "c", "new", "other0", "other1"]


def test_a_snapshot_of_another_writer_is_never_taken_back():
    """A rename replaced ours, and the one before it expired: what is there now is not ours to delete."""
    calls, table = three_snapshots("1000")

    def replaced():
        mine = table.snapshots.load(4)
        commits_of_others(table, 2)
        other = dataclasses.replace(mine, uuid="of-another", commit_user="foreign")
        table.file_io.replace(table.layout.snapshot(4), other.to_json(), "x")
        _expire(table, 1, 2, 3)

    with pytest.raises(Retryable):
        commit_asleep(calls, after=replaced)
    assert table.snapshots.load(4).commit_user == "foreign"


@MERGES
@pytest.mark.parametrize("expired", [(1, 2, 3, 4), (1, 2, 3, 4, 5)], ids=["next-retained", "hole"])
def test_a_snapshot_that_came_too_late_is_taken_back(merge, expired):
    """Its number was another snapshot's, which has expired.
    The snapshot after it, if it is retained, is not built on it."""
    calls, table = three_snapshots(merge)
    with pytest.raises(Fenced) as late:
        commit_asleep(calls, before=lambda: (commits_of_others(table, 3), _expire(table, *expired)))
    assert late.value.kind == "writer.fenced-expired"
    assert table.snapshots.ids() == [number for number in (5, 6) if number not in expired]
    assert live(table) == ["a", "b", "c", "other0", "other1", "other2"]


def test_a_snapshot_whose_files_expire_at_this_moment_is_left_to_the_restart():
    """Its manifests are gone already. Nobody can tell any more whether others built on it, and it is no fence."""
    calls, table = three_snapshots("2")

    def expiring():
        commits_of_others(table, 2)
        mine = table.snapshots.load(4)
        names = {meta.file_name for meta in table.manifests.delta_of(mine)}
        kept = {meta.file_name for meta in table.manifests.all_of(table.snapshots.latest())}
        for name in names - kept:
            table.file_io.delete(table.layout.manifest(name))
        assert names - kept
        _expire(table, 1, 2, 3)

    with pytest.raises(Retryable) as unsure:
        commit_asleep(calls, after=expiring)
    assert unsure.value.kind == "publish.expired-meanwhile"
    assert live(table) == ["a", "b", "c", "new", "other0", "other1"]


def test_a_snapshot_that_came_too_late_and_names_lists_that_are_swept_is_taken_back():
    """The successor has swept what the superseded writer's attempt had made. Formerly nobody could read the snapshot,
    and verify called the table damaged."""
    calls, table = three_snapshots("1000")

    def swept_and_expired():
        ours = [name for name in table.file_io.names(f"{ROOT}/manifest") if name.startswith("manifest-list-mine")]
        assert ours
        for name in ours:
            table.file_io.delete(table.layout.manifest(name))
        commits_of_others(table, 2)
        _expire(table, 1, 2, 3, 4)

    with pytest.raises(Retryable) as unsure:
        commit_asleep(calls, before=swept_and_expired)
    assert unsure.value.kind == "publish.expired-meanwhile"
    assert table.snapshots.ids() == [5]
    assert live(table) == ["a", "b", "c", "other0", "other1"]


def test_a_snapshot_that_came_too_late_and_names_manifests_that_have_expired_is_taken_back():
    """Its lists are its own and are there.
    What they name was merged and has expired, so nobody could read it (walk 4411-10436)."""
    calls, table = three_snapshots("2")

    def expired():
        commits_of_others(table, 2)
        doomed = {
            meta.file_name for number in (1, 2, 3, 4) for meta in table.manifests.all_of(table.snapshots.load(number))
        }
        kept = {meta.file_name for meta in table.manifests.all_of(table.snapshots.latest())}
        assert doomed - kept
        for name in doomed - kept:
            table.file_io.delete(table.layout.manifest(name))
        _expire(table, 1, 2, 3, 4)

    with pytest.raises(Retryable) as unsure:
        commit_asleep(calls, before=expired)
    assert unsure.value.kind == "publish.expired-meanwhile"
    assert table.snapshots.ids() == [5]
    assert live(table) == ["a", "b", "c", "other0", "other1"]


def test_a_table_that_was_dropped_meanwhile_is_no_fence():
    """No snapshot is there at all. The restart says what has happened."""
    calls, table = three_snapshots("1000")
    with pytest.raises(Retryable):
        commit_asleep(calls, after=lambda: table.file_io.delete_tree(f"{ROOT}/snapshot"))
