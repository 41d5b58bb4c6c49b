"""A table: opening, creating and evolving it.

A table that needs what this library does not honour is refused at open.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from streamsink import shell
from streamsink.clock import Clock
from streamsink.errors import Conflict, Misuse
from streamsink.faults import fault_point
from streamsink.format.evolution import evolve
from streamsink.format.iceberg_options import check_iceberg_types, check_place
from streamsink.format.schema import TableSchema
from streamsink.format.supported import check_readable, check_writable
from streamsink.format.types import DataField
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.storage.file_io import FileIO
from streamsink.storage.reading import Questions
from streamsink.table.application_states import StatesReader
from streamsink.table.layout import Layout
from streamsink.table.manifests import Manifests
from streamsink.table.schemas import Schemas
from streamsink.table.snapshots import Snapshots

_EVOLVE_ATTEMPTS = 10
# Names of the folders below a table's root in which data files lie: a bucket, or a partition.
_DATA_FOLDER = re.compile(r"bucket-\d+|[^=]+=.*", re.DOTALL)


class Table:
    """An open table. Its parts (schemas, snapshots, states, manifests) all read below the same root."""

    def __init__(self, file_io: FileIO, root: str, created: tuple[TableSchema, bytes, Sequence[str]] | None = None):
        """created: the first schema, its bytes, and names of the schema folder a moment before, where this process has
        just created the table.
        """
        self.file_io = file_io
        self.layout = Layout(root)
        self.schemas = Schemas(file_io, self.layout)
        self.snapshots = Snapshots(file_io, self.layout)
        is_branch = bool(self.layout.branch)
        self.states = StatesReader(self.snapshots, Snapshots(file_io, Layout(self.layout.main)) if is_branch else None)
        if created is None:
            with file_io.asking(of_opening((root,))):
                self.table_id = self.schemas.identity()
                newest = self.schemas.latest()
        else:
            self.table_id, newest = self.schemas.created(*created), created[0]
            self.snapshots.are_none = True  # the folder was empty
        partition_types = [field.type for field in newest.partition_fields]
        self.manifests = Manifests(file_io, self.layout, partition_types)

    def tell(self, other: "Table") -> None:
        """Let another opening of the same table, for another thread, know the snapshots that this one publishes."""
        self.snapshots.told += (other.snapshots,)
        self.manifests.told += (other.manifests,)
        self.states.told += (other.states,)

    @property
    def root(self) -> str:
        """The table's absolute path."""
        return self.layout.root

    def questions(self) -> Questions:
        """What a look asks first: is this the same table still, and which schema and snapshot are the newest?"""
        return self.schemas.questions() + self.snapshots.questions()

    def latest_schema(self) -> TableSchema:
        """The newest schema. This asks the store, because a foreign writer may have changed the schema."""
        return self.schemas.latest()

    @property
    def known_schema(self) -> TableSchema:
        """The newest schema as of the last time the store was asked."""
        return self.schemas.known()

    def check_identity(self) -> None:
        """Raises Misuse when the path now holds another table than the one that was opened, or none."""
        if self.schemas.identity() != self.table_id:
            raise Misuse(
                f"{self.root}: the table was dropped and recreated under the running query: its first schema file is "
                "another one now. Nothing was written. Stop the query; start a new checkpoint for the new table",
                kind="table.recreated",
            )

    def evolve(
        self, wanted: Sequence[DataField], *, add_columns: bool, widen_types: bool, newest: TableSchema | None = None
    ) -> TableSchema:
        """The schema that has room for the columns ``wanted``, which is created if the newest one has not.

        Only what the options allow is changed. newest: the newest one, where the store has just said which it is.
        Raises Misuse, naming the column, when more would be needed; Conflict when other writers changed the schema in
        every attempt.
        """
        for _ in range(_EVOLVE_ATTEMPTS):
            current, newest = newest or self.latest_schema(), None
            target = evolve(
                current, wanted, add_columns=add_columns, widen_types=widen_types, time_millis=Clock().now_ms()
            )
            if target is current:
                return current
            check_iceberg_types(target)
            try:
                return self.schemas.add(target)
            except Conflict:
                continue
        raise Conflict(
            f"{self.root}: the schema changed {_EVOLVE_ATTEMPTS} times meanwhile. Nothing was written; start again",
            kind="schema.contended",
        )


def open_table(file_io: FileIO, root: str, *, for_writing: bool) -> Table:
    """Open a table. Raises Misuse when the path is not a table, or needs a feature that is not honoured here."""
    if not file_io.is_distant and not is_table(file_io, root):
        raise _missing(root)
    layout = Layout(root)
    if layout.branch and not is_table(file_io, layout.main):
        raise _missing(layout.main)
    try:
        table = Table(file_io, root)
    except Misuse as gone:
        if gone.kind != "table.gone":
            raise
        raise _missing(root) from gone
    if for_writing:
        # The writer of the newest schema may have died before the name of its file was durable.
        file_io.sync_dir(layout.schema_dir)
    check = check_writable if for_writing else check_readable
    try:
        check(table.known_schema)
    except Misuse as refused:
        raise Misuse(f"{root}: {refused}", kind=refused.kind) from refused
    if for_writing:
        check_place(layout.main, table.known_schema.options)
    return table


def _missing(root: str) -> Misuse:
    layout = Layout(root)
    if layout.branch:
        return Misuse(
            f"{layout.main}: there is no branch '{layout.branch}'. Nothing was written. Create it: "
            f"streamsink.maintenance.create_branch({layout.main!r}, {layout.branch!r}) "
            f"{shell.in_a_shell('branch', 'create', layout.main, layout.branch)}",
            kind="branch.missing",
        )
    return Misuse(
        f"{root}: not a Paimon table: there is no {Layout(root).schema(0)}. Give the path of a table, or let one "
        "be created where nothing is yet",
        kind="table.missing",
    )


def of_being_tables(roots: Iterable[str]) -> Questions:
    """What ``is_table`` asks of these paths."""
    return Questions(size=tuple(Layout(root).schema(0) for root in roots))


def of_opening(roots: Iterable[str]) -> Questions:
    """What ``Table`` asks first of these paths."""
    layouts = [Layout(root) for root in roots]
    return Questions(
        read=tuple(layout.schema(0) for layout in layouts), names=tuple(layout.schema_dir for layout in layouts)
    )


def is_table(file_io: FileIO, root: str) -> bool:
    """Whether the path holds a table's first schema file."""
    return file_io.exists(Layout(root).schema(0))


def of_creating(roots: Iterable[str]) -> Questions:
    """What ``create_table`` asks first of these paths, where ``is_table`` has just said that there is none."""
    at = [Layout(root) for root in roots]
    folders = tuple(folder for layout in at for folder in (layout.root, layout.schema_dir))
    return Questions(size=tuple(layout.root for layout in at), names=folders)


def create_table(
    file_io: FileIO,
    root: str,
    schema: TableSchema,
    ours: Callable[[], Collection[str]] = frozenset,
    *,
    is_missing: bool = False,
) -> Table:
    """Create a table, or open the equal one that another process created first.

    is_missing: ``is_table`` has just said that there is none. ours(): how names of files begin that queries may put
    there before there is a table; these are no reason to refuse the path. After a crash the table exists, or the path
    is as it was before.
    Raises Misuse when the path holds something else (a table whose metadata is gone, or other files), or when the
    schema needs a feature that is not honoured here; Conflict when another process created a different table at the
    same time.
    """
    at, data, created = Layout(root), schema.to_json(), False
    if at.branch:  # only ``branching/branches.py`` creates one
        return open_table(file_io, root, for_writing=True)
    being = Questions() if is_missing else of_being_tables((root,))
    with file_io.asking(being + of_creating((root,))):
        is_there = not is_missing and is_table(file_io, root)
        schemas = [] if is_there else file_io.names(at.schema_dir)
        found = [] if is_there else _foreign_entries(file_io, root, schemas)
        is_file = not is_there and bool(file_io.size(root))
    if not is_there:
        found = _foreign_entries(file_io, root, schemas, ours()) if found else found
        # The path is asked again because another process may have created the table since the first look.
        if (found or is_file) and not is_table(file_io, root):
            raise Misuse(
                f"{root}: not a table and not empty (it holds {', '.join(found[:5]) or 'a file'}): a table whose "
                "metadata was removed, or another folder. Nothing was written. Restore it, or choose another path"
                f"{_way_on(file_io, root, found)}",
                kind="table.not-empty",
            )
        try:
            check_writable(schema)
            check_iceberg_types(schema)
        except Misuse as refused:
            raise Misuse(f"{root}: {refused}. Nothing was written", kind=refused.kind) from refused
        check_place(root, schema.options)
        fault_point("table.before_create")
        created = file_io.create_if_absent(at.schema(0), data)
        fault_point("table.created")
        if created and not (found or is_file):
            return Table(file_io, root, (schema, data, schemas))
    table = open_table(file_io, root, for_writing=True)
    if not _same_columns(table.known_schema, schema):
        raise Conflict(
            f"{root}: another process created this table at the same time with other columns or partitions. Nothing "
            "was written; start again: the table is opened as it is",
            kind="table.created-differently",
        )
    return table


def leftovers_of(file_io: FileIO, root: str) -> list[str]:
    """Names of what a folder holds when that is only what a driver at work leaves after its table was dropped.

    That is its journal, manifests, data files or hints. For any other folder, and for a table, there are none.
    """
    layout = Layout(root)
    if is_table(file_io, root):
        return []
    return _leftovers(file_io, layout, _foreign_entries(file_io, root, file_io.names(layout.schema_dir)))


def _leftovers(file_io: FileIO, layout: Layout, found: Sequence[str]) -> list[str]:
    manifests = os.path.basename(layout.manifest_dir)
    ours = {JOURNAL_DIR, manifests}
    if set(file_io.names(layout.snapshot_dir)) <= {
        os.path.basename(hint) for hint in (layout.latest_hint, layout.earliest_hint)
    }:
        ours.add(os.path.basename(layout.snapshot_dir))
    others = [name for name in found if name not in ours]
    # Folders of partitions alone may be somebody's data.
    is_ours = all(map(_DATA_FOLDER.fullmatch, others)) and (manifests in found or not others)
    return list(found) if is_ours else []


def _way_on(file_io: FileIO, root: str, found: Sequence[str]) -> str:
    """What to add to the message when the folder holds only what a dropped table has left; else ''."""
    left = _leftovers(file_io, Layout(root), found)
    paths = " and ".join(os.path.join(root, name) for name in left)
    how = f"remove {paths} as well, when no query writes here {shell.discard(root)}"
    return f"; or, if the table was dropped on purpose, {how}" if left else ""


def _foreign_entries(file_io: FileIO, root: str, schemas: Sequence[str], ours: Collection[str] = ()) -> list[str]:
    """Names of what the path holds; none when these are only leftovers of a creation that was killed.

    schemas: names in the schema folder. ours: beginnings of names of files that do not count.
    """
    names = [
        e.name
        for e in file_io.entries(root)
        if not e.is_dir or e.name == "schema" and schemas or _holds_files(file_io, os.path.join(root, e.name), ours)
    ]
    # What tries a store out has such a name as well, whatever else a driver has left here.
    return [name for name in names if name != "schema" or not all(each.startswith(".") for each in schemas)]


def _holds_files(file_io: FileIO, folder: str, ours: Collection[str]) -> bool:
    """Whether there is any file below the folder whose name does not begin so.

    Some S3 servers list folders from which everything was deleted.
    """
    return any(
        _holds_files(file_io, os.path.join(folder, e.name), ours) if e.is_dir else not e.name.startswith(tuple(ours))
        for e in file_io.entries(folder)
    )


def new_schema(
    fields: Sequence[DataField], partition_by: Sequence[str], options: Mapping[str, str], comment: str | None = None
) -> TableSchema:
    """Schema 0 of a new table. Raises Misuse, naming the column."""
    return TableSchema.create(fields, partition_by, options, comment, Clock().now_ms())


def _same_columns(found: TableSchema, wanted: TableSchema) -> bool:
    plain = [dataclasses.replace(s, options={}, time_millis=0, comment=None) for s in (found, wanted)]
    return plain[0] == plain[1]
