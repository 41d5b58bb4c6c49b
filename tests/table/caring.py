"""A table with a history for tests of its care, what others do to it, and a reader of all that is retained."""

import dataclasses

from streamsink.clock import IdSource
from streamsink.format.manifest import FileKind
from streamsink.storage.file_io import FileIO
from streamsink.table.care.expire_snapshots import Retention
from streamsink.table.care.removal import Needed
from streamsink.table.commit.changes import Changes
from streamsink.table.history.retained import Kind, roots, tag_path
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import Table
from streamsink.testing.memory import MemoryCalls
from tests.table.entries import ROOT, add, commit, new_table, part

# Of the history below: which files are live from each snapshot on.
HISTORY_OF = {1: "ab", 2: "abc", 3: "cd", 4: "cde", 5: "f", 6: "fg", 7: "fgh"}


def nobody() -> Needed:
    return Needed()


def change(table, added="", deleted="", kind="APPEND", **more):
    """One commit that adds and deletes these files, which are there, and which all lie in one partition."""
    for name in added:
        path = data_file_path(table, table.known_schema, add(name, part("x")))
        table.file_io.make_dir(path.rpartition("/")[0])
        table.file_io.write(path, name.encode())
        table.file_io.sync_dir(path.rpartition("/")[0])
    gone = tuple(dataclasses.replace(add(name, part("x")), kind=FileKind.DELETE) for name in deleted)
    return commit(table, Changes(gone + tuple(add(name, part("x")) for name in added)), kind=kind, **more)


def history(options=None) -> Table:
    """A table of seven snapshots, of which two rewrite what was before."""
    table = new_table(MemoryCalls(), options=options)
    change(table, "ab")
    change(table, "c")
    change(table, "d", "ab", "COMPACT")
    change(table, "e")
    change(table, "f", "cde", "COMPACT")
    change(table, "g")
    change(table, "h")
    return table


def over(table, calls=None) -> Table:
    """The table opened again, by another process. calls: by default its own."""
    return Table(FileIO(calls or table.file_io._calls, IdSource().new_id), ROOT)


def tag(table, number, name="t") -> None:
    """Make a tag as Paimon does: a copy of the snapshot's file."""
    table.file_io.make_dir(f"{ROOT}/tag")
    table.file_io.write(tag_path(ROOT, name), table.file_io.read(table.layout.snapshot(number)))
    table.file_io.sync_dir(f"{ROOT}/tag")


def consume(table, number, name="c") -> None:
    table.file_io.make_dir(f"{ROOT}/consumer")
    table.file_io.replace(f"{ROOT}/consumer/consumer-{name}", b'{"nextSnapshot":%d}' % number, IdSource().new_id())


def files(table, folder=ROOT) -> set[str]:
    """All files of the table, without hints."""
    found = set()
    for entry in table.file_io.entries(folder):
        path = f"{folder}/{entry.name}"
        found |= files(table, path) if entry.is_dir else {path}
    return {path for path in found if not path.endswith(("LATEST", "EARLIEST"))}


def check_whole(table) -> dict[str, str]:
    """Read all that is retained; by its name, what is live in each."""
    table, found = over(table), {}
    ids = table.snapshots.ids()
    assert ids == list(range(ids[0], ids[-1] + 1)), "a hole"
    assert table.snapshots.latest().id == ids[-1]
    for root in roots(table):
        entries = list(table.manifests.entries_of(root.snapshot))
        for entry in entries:
            path = data_file_path(table, table.known_schema, entry)
            assert table.file_io.exists(path), f"{root}: {path} is gone"
        found[root.name] = "".join(sorted(entry.file.file_name for entry in entries))
    return found


def keep(number, **more) -> Retention:
    return Retention(num_min=number, num_max=number, time_ms=10**15, **{"limit": 100, **more})


def rolls_back(table, to) -> None:
    """Roll back as Paimon does: the hint, then snapshots from the newest on, then what only they need."""
    kept = [root for root in roots(table) if root.kind is Kind.TAG or root.snapshot.id <= to]
    if to not in [root.snapshot.id for root in kept if root.kind is Kind.SNAPSHOT]:
        return
    table.file_io.replace(table.layout.latest_hint, str(to).encode(), "x")
    entries = {e.file.file_name for root in kept for e in table.manifests.entries_of(root.snapshot)}
    gone = [table.snapshots.load(number) for number in reversed(table.snapshots.ids()) if number > to]
    extra = {
        e.file.file_name: e for s in gone for e in table.manifests.entries_of(s) if e.file.file_name not in entries
    }
    for snapshot in gone:
        table.file_io.delete(table.layout.snapshot(snapshot.id))
    for entry in extra.values():
        table.file_io.delete(data_file_path(table, table.known_schema, entry))
