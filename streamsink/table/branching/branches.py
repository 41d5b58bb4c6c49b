"""Branches of a table, as Paimon lays them out: a folder with schemas, snapshots and tags of its own.

Data files and manifests are shared, so a branch costs a few small files. A branch is there, for streamsink, as soon as
it has its first schema, which is created last and deleted first.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from streamsink import shell
from streamsink.errors import Conflict, Misuse
from streamsink.format.snapshot import Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.table.branching.targets import Target, in_file, target_gone
from streamsink.table.care.tags import take_back
from streamsink.table.layout import Layout
from streamsink.table.table import Table, is_table

MAIN = "main"
#: The tag, in the table itself, that keeps the files of a branch from the expiry of programs that do not look into
#: branches. Paimon creates a branch of a tag only.
TAG_PREFIX = "branch-"
# Characters that no name of a branch may have: stores and Paimon's own names of tables give them a meaning.
_FORBIDDEN = frozenset('/\\:*?"<>|$\x7f')
_MOST_BYTES = 200


@dataclass(frozen=True)
class Branch:
    """A branch. path: of its folder, which every function takes as a table's path. newest: None without a snapshot."""

    name: str
    path: str
    newest: Snapshot | None

    def __str__(self) -> str:
        at = f"snapshot {self.newest.id}, {self.newest.total_record_count} rows" if self.newest else "no snapshot"
        return f"branch '{self.name}' ({at}) in {self.path}"


def check_name(root: str, name: str) -> None:
    """Raises Misuse for a name that no branch can have."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or name != name.strip()
        or name in (MAIN, ".", "..")
        or name.isdigit()
        or len(name.encode("utf-8", "surrogatepass")) > _MOST_BYTES
        or any(letter in _FORBIDDEN or letter < " " or "\ud800" <= letter <= "\udfff" for letter in name)
    ):
        raise Misuse(
            f"{root}: {name!r} cannot be the name of a branch. Nothing was written. Give a name of at most "
            f"{_MOST_BYTES} bytes, such as 'audit': not a number and not '{MAIN}', without blanks around it, and "
            f"without any of {' '.join(sorted(_FORBIDDEN - {chr(127)}))}",
            kind="branch.name",
        )


def branches(table: Table) -> list[Branch]:
    """The branches of the table beside the main one, by name. One that is half created or deleted is left out."""
    names = sorted(_names(table))
    return [found for name in names if (found := branch_of(table, name)) is not None]


def branch_of(table: Table, name: str) -> Branch | None:
    """The branch of this name; None where there is none. Raises Misuse for a name that no branch can have."""
    check_name(table.layout.main, name)
    path = table.layout.branch_root(name)
    if not is_table(table.file_io, path):
        return None
    return Branch(name, path, Table(table.file_io, path).snapshots.latest())


def get(table: Table, name: str) -> Branch:
    """The branch of this name. Raises Misuse where there is none."""
    found = branch_of(table, name)
    if found is None:
        names = ", ".join(f"'{each}'" for each in sorted(_names(table)))
        raise Misuse(
            f"{table.layout.main}: there is no branch '{name}'; there are {names or 'none'}. Nothing was written. "
            f"Create it: streamsink.maintenance.create_branch({table.layout.main!r}, {name!r}) "
            f"{shell.in_a_shell('branch', 'create', table.layout.main, name)}",
            kind="branch.missing",
        )
    return found


def create(table: Table, name: str, target: Target | None) -> Branch:
    """Create a branch of a snapshot of this table; without one (None) it has the columns, and no rows.

    A tag in the table keeps the files of that snapshot, also when the one of which the branch is made is deleted.
    Idempotent for the same snapshot, so after a crash: call it again. Raises Misuse for a name that no branch can have,
    and where the snapshot expires meanwhile; Conflict where a branch of another snapshot has the name.
    """
    check_name(table.root, name)
    if table.layout.branch:
        raise Misuse(
            f"{table.root}: this is a branch itself, and branches are of the table. Nothing was written. Give the path "
            f"of the table: {table.layout.main!r}",
            kind="branch.of-a-branch",
        )
    at, io = Layout(table.layout.branch_root(name)), table.file_io
    newest = target.snapshot.schema_id if target is not None else table.latest_schema().id
    if target is not None:
        own_tag = f"{TAG_PREFIX}{name}-{target.snapshot.id}"
        tag = target.tag or own_tag
        _check_alone(io, at, target.snapshot.id, name)
        kept, data = _kept(table, target, own_tag, name)
        _put(io, at.snapshot(target.snapshot.id), data, name)
        _put(io, f"{at.root}/tag/tag-{tag}", kept, name)
    for schema_id in range(newest, -1, -1):  # the first one last: with it the branch exists
        path = table.layout.schema(schema_id)
        if io.exists(path):
            _put(io, at.schema(schema_id), io.read(path), name)
    return Branch(name, at.root, target.snapshot if target is not None else None)


def _kept(table: Table, target: Target, tag: str, name: str) -> tuple[bytes, bytes]:
    """Let this tag of the table keep the snapshot. Returns the bytes for the branch's own tag, and for its snapshot.

    From now on no expiry takes its files. One that was at it before has taken the snapshot, which is looked for again.
    Raises Misuse where it is gone.
    """
    io, path = table.file_io, f"{table.root}/tag/tag-{tag}"
    try:
        kept = io.read(target.path)  # as another program has written it
    except FileNotFoundError as gone:
        raise target_gone(table, target, "a branch was being made of it") from gone
    data = target.snapshot.to_json() if target.tag else kept
    was_there = io.exists(path)
    _put(io, path, data, name)
    if in_file(table, target.path) is None:
        if not was_there:
            take_back(io, [path])
        raise target_gone(table, target, "a branch was being made of it")
    return kept, data


def _check_alone(io: FileIO, at: Layout, snapshot_id: int, name: str) -> None:
    """Raises Conflict where the branch has other snapshots already."""
    others = [n for n in io.names(at.snapshot_dir) if n.startswith("snapshot-") and n != f"snapshot-{snapshot_id}"]
    if others:
        raise _exists(at, name)


def _put(io: FileIO, path: str, data: bytes, name: str) -> None:
    """Create a file, or find that it is there with these bytes, or with those of another program for the same."""
    if io.create_if_absent(path, data) or io.read(path) == data:
        return
    if "/schema/" not in path and Snapshot.from_json(io.read(path), path) == Snapshot.from_json(data, path):
        return
    raise _exists(Layout(path.rpartition("/")[0].rpartition("/")[0]), name)


def _exists(at: Layout, name: str) -> Conflict:
    return Conflict(
        f"{at.main}: there is a branch '{name}' already, or a part of one, of another snapshot. Nothing of it was "
        f"changed. Choose another name, or delete it: streamsink.maintenance.delete_branch({at.main!r}, {name!r}) "
        f"{shell.in_a_shell('branch', 'delete', at.main, name, '--yes')}",
        kind="branch.exists",
    )


def _names(table: Table) -> Iterator[str]:
    folder = table.layout.within("branch")
    for name in table.file_io.names(folder):
        if name.startswith("branch-"):
            yield name.removeprefix("branch-")
