"""A writer that sleeps while it publishes, and what others do meanwhile."""

import pytest

from streamsink.clock import IdSource
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.table import open_table
from streamsink.testing.memory import MemoryCalls
from tests.table.entries import OPTIONS, ROOT, add, commit, new_table, part

MERGES = pytest.mark.parametrize("merge", ["2", "1000"], ids=["merging", "appending"])


class _Sleeps(FileIO):
    """Lets something happen when this writer has read the newest snapshot and written nothing (``early``), is about to
    create its own (``before``), has just created it (``after``), or is about to name it in LATEST (``hint``)."""

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


def three_snapshots(merge):
    """The calls of a store, and a table of three snapshots in it."""
    calls = MemoryCalls()
    table = new_table(calls, options={"manifest.merge-min-count": merge})
    for name in ("a", "b", "c"):
        commit(table, Changes((add(name, part("x")),)))
    return calls, table


def commit_asleep(calls, **sleeps):
    io = _Sleeps(calls, IdSource().new_id)
    for when, happens in sleeps.items():
        setattr(io, when, happens)
    request = CommitRequest("me", 7, Changes((add("new", part("x")),)), "mine")
    return TableCommit(open_table(io, ROOT, for_writing=True), OPTIONS).commit(request, Guard())


def commits_of_others(table, count):
    for number in range(count):
        commit(table, Changes((add(f"other{number}", part("y")),)), user="other")
