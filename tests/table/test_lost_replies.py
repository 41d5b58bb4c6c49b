"""A commit whose I/O fails or whose replies are lost, at each call:
it says truly whether it happened, and happens once."""

import collections

import pytest

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.overwrite import Overwrite
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.history.presence import Presence
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.memory import MemoryCalls
from tests.table.compacting import CommitMessage, Increment, commit_compaction
from tests.table.entries import OPTIONS, ROOT, add, commit, data_file, new_table, part


def _append(table, check=False):
    request = CommitRequest(
        "me",
        7,
        Changes((add("new", part("x")),)),
        IdSource().new_id(),
        check=Presence(table.manifests) if check else None,
    )
    TableCommit(table, OPTIONS).commit(request, Guard())


def _overwrite(table):
    changes = Changes((add("new", part("x")),))
    request = CommitRequest("me", 7, changes, IdSource().new_id(), "OVERWRITE", overwrite=Overwrite(dynamic=True))
    TableCommit(table, OPTIONS).commit(request, Guard())


def _compact(table):
    files = Increment(deleted=(data_file("a"), data_file("b")), new=(data_file("new"),))
    commit_compaction(table, OPTIONS, [CommitMessage(part("x"), 0, -1, compact=files)])


STRIDE = 3
BEFORE = ["a", "b", "c"]
COMMITS = {
    "append": (_append, ["a", "b", "c", "new"]),
    "restored": (lambda t: _append(t, True), ["a", "b", "c", "new"]),
    "overwrite": (_overwrite, ["c", "new"]),
    "compact": (_compact, ["c", "new"]),
}


def _table(calls=None):
    calls = calls or MemoryCalls()
    table = new_table(calls, options={"manifest.merge-min-count": "2"})
    commit(table, Changes((add("a", part("x")), add("b", part("x")))))
    commit(table, Changes((add("c", part("y")),)))
    return calls


def _opened(calls):
    return open_table(FileIO(calls, IdSource().new_id), ROOT, for_writing=True)


def _files(table) -> list[str]:
    names = [e.file.file_name for e in table.manifests.entries_of(table.snapshots.latest())]
    assert max(collections.Counter(names).values()) == 1
    return sorted(names)


class _NoInodes(MemoryCalls):
    """Does not tell that two names belong to one file."""

    def link(self, source, target):
        return target not in self._names and super().link(source, target)


@pytest.mark.parametrize("make", [MemoryCalls, _NoInodes], ids=["inodes", "no-inodes"])
def test_a_snapshot_that_is_refused_by_its_own_name_keeps_its_lists(make):
    """The server gives the name, the reply is lost, the client repeats the call and hears that the name is taken. It is
    published once, and is readable."""
    calls = _table(make())
    crashing = CrashingCalls(calls)
    table = open_table(FileIO(crashing, IdSource().new_id), ROOT, for_writing=True)

    def the_snapshot_s_name_comes(step):
        if step == "commit.before_publish":
            crashing._at, crashing._mode = crashing.count + 1, Mode.REPEATED

    faults.arm(the_snapshot_s_name_comes)
    try:
        _append(table)
    finally:
        faults.arm(None)
    assert crashing.log[crashing._at - 1] == "link"
    assert _files(_opened(calls)) == ["a", "b", "c", "new"]
    assert _opened(calls).snapshots.ids() == [1, 2, 3]


@pytest.mark.parametrize("mode", [Mode.ERROR, Mode.REPLY_LOST, Mode.REPEATED], ids=lambda m: m.value)
@pytest.mark.parametrize("kind", COMMITS)
def test_a_commit_says_truly_whether_it_happened(kind, mode, rng):
    """If it returned, it is there, once. If it raised, it is not there, and doing it again works.
    Other writers beside it lose nothing."""
    action, after = COMMITS[kind]
    failed = survived = 0
    for n in range(1 + rng.randrange(STRIDE), 500, STRIDE):
        calls = _table()
        crashing = CrashingCalls(calls)
        table = open_table(FileIO(crashing, IdSource().new_id), ROOT, for_writing=True)
        opened = crashing.count
        crashing._at, crashing._mode = opened + n, mode
        try:
            action(table)
        except (OSError, StreamsinkError):
            failed += 1
            assert _files(_opened(calls)) == BEFORE, f"call {n}: it said that it failed, but it is there"
            action(_opened(calls))
        else:
            survived += 1
        assert _files(_opened(calls)) == after, f"call {n}"
        assert _opened(calls).snapshots.ids() == [1, 2, 3], f"call {n}: published twice"
        if crashing.count < opened + n:
            break
    assert survived > 2 and (failed > 2 or mode is Mode.REPEATED)
