"""Writes one stream of rows into many tables, in one pass and with one memory bound for all. Executor and driver."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from streamsink.errors import Misuse
from streamsink.format.schema import TableSchema
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.routed.dead_letters import BadRow, DeadLetters, Screen
from streamsink.table.routed.rules import ROUTE, UNROUTED_DEAD_LETTER, Routing
from streamsink.table.write.buffers import Limits
from streamsink.table.write.folders import Folders, announce_places
from streamsink.table.write.spec import AtOnce, WriteSpec, WrittenFile
from streamsink.table.write.split import NotUtf8, split_by_text
from streamsink.table.write.writer import TableWriter


@dataclass(frozen=True)
class Target:
    """What a table takes: the names of the data's columns, and the schema that it has or will be created with."""

    columns: tuple[str, ...]
    schema_json: bytes


@dataclass(frozen=True)
class RoutedSpec:
    """What a routed writer needs to know. It is sent to executors.

    limits: the staging folder and the bounds; its schema is not used. targets: by name, of the tables that exist.
    templates: by rule, of tables that do not exist yet; a rule without one creates no table. dead: what dead letters
    have in common; with None the first bad row raises an error. at_once: where files get their final names at once, of
    the tables that exist, by name. new: the same of any other table, with the beginning of its path in ``table``.
    """

    limits: WriteSpec
    routing: Routing
    targets: Mapping[str, Target]
    templates: Mapping[str, Target]
    dead: DeadLetters | None
    at_once: Mapping[str, AtOnce] = field(default_factory=dict)
    new: AtOnce | None = None

    def at_once_of(self, name: str) -> AtOnce | None:
        """None where the table's files are staged."""
        new = replace(self.new, table=self.new.table + self.routing.path_of(name)) if self.new else None
        return self.at_once.get(name, new)

    def target_of(self, name: str) -> Target | None:
        """What the table of this name takes; None when no rule covers the name, or its rule creates no table."""
        rule = self.routing.rule_of(name)
        return None if rule is None else self.targets.get(name) or self.templates.get(rule)


@dataclass(frozen=True)
class RoutedFiles:
    """What one writer wrote.

    files: (table, file). rows_in: number of rows that it was given. dead: number of dead letters by table, with '' for
    rows without a table.
    """

    files: tuple[tuple[str, WrittenFile], ...]
    rows_in: int
    dead: Mapping[str, int]


class RoutedWriter:
    """Writes batches whose column ``ROUTE`` names the table of each row. There is one for each task attempt."""

    def __init__(self, file_io: FileIO, spec: RoutedSpec):
        self._io = file_io
        self._spec = spec
        self._limits = Limits(spec.limits.max_open, spec.limits.memory_bytes)
        self._writers: dict[str, TableWriter] = {}
        self._screens: dict[str, Screen] = {}
        self._rows_in = 0
        self._dead: dict[str, int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch. Raises Misuse when a row fits nowhere and the query keeps no dead letters for such rows."""
        if batch.num_rows == 0:
            return
        self._rows_in += batch.num_rows
        for name, rows in split_by_text(batch, ROUTE):
            if isinstance(name, str) and (target := self._spec.target_of(name)) is not None:
                self._routed(name, rows, target)
            else:
                self._unrouted(name, rows)

    def close(self, group: FlushGroup) -> list[RoutedFiles]:
        """Write and close everything. Every file is durable once ``group`` is flushed. The list has one item."""
        # All buffers are written before the first writer is closed, since its files then stay open until the flush.
        for writer in self._writers.values():
            writer.write_buffered()
        folders = [(writer.folders, self._spec_of(name)) for name, writer in self._writers.items()]
        unsaid = [places for mine, spec in folders for places in mine.unsaid(spec)]
        announce_places(self._io, self._spec.limits.staging, self._spec.new.attempt if self._spec.new else "", unsaid)
        files = tuple((name, file) for name, writer in self._writers.items() for file in writer.close(group))
        return [RoutedFiles(files, self._rows_in, self._dead)]

    def abort(self) -> None:
        """Delete everything that this attempt wrote. Idempotent."""
        for writer in self._writers.values():
            writer.abort()

    def _routed(self, name: str, rows: pa.RecordBatch, target: Target) -> None:
        taken, dead = rows.select(list(target.columns)), self._spec.dead
        if dead is None:
            try:
                self._writer(name, target.schema_json).write(taken)
            except Misuse as refused:
                raise Misuse(f"table '{name}': {refused}", kind=refused.kind) from refused
            return
        screen = self._screens.get(name)
        if screen is None:
            schema = TableSchema.from_json(target.schema_json, "the writer's schema")
            root, at_once = self._root_of(name), self._spec.at_once_of(name) is not None
            folders = Folders(schema, root, self._io.name_limits(root), names_at_once=at_once)
            screen = self._screens[name] = Screen(schema, folders)
        good, bad = screen(taken)
        if good.num_rows:
            self._writer(name, target.schema_json).write(good)
        if bad:
            self._bury(dead, name, rows, bad)

    def _unrouted(self, name: str | None | NotUtf8, rows: pa.RecordBatch) -> None:
        way = "Add a rule"
        if isinstance(name, NotUtf8):
            name, kind, what = None, "route.encoding", "the name of the table is not UTF-8 text"
            way = "Nothing was recorded. Say in the route what its bytes are, such as decode(value, 'ISO-8859-1')"
        elif name is None:
            kind, what = "route.null", "the name of the table is null"
        else:
            kind, what = "route.unknown", "no rule of 'tables' covers the name of the table"
        dead = self._spec.dead
        if dead is None or self._spec.routing.unrouted != UNROUTED_DEAD_LETTER:
            raise Misuse(
                f"{self._spec.routing.root}: {rows.num_rows} rows of a batch cannot be routed: {what}. {way}, filter "
                "them in the query, or set unrouted='dead-letter'",
                kind=kind,
            )
        self._bury(dead, name, rows, [BadRow(index, f"{kind}: {what}", None) for index in range(rows.num_rows)])

    def _bury(self, dead: DeadLetters, name: str | None, rows: pa.RecordBatch, bad: list[BadRow]) -> None:
        self._writer(dead.table, dead.schema_json).write(dead.batch(rows, name, bad))
        # A name that no rule covers is a value of a row, so such rows are counted under '' and not by name.
        counted = name if name is not None and self._spec.routing.rule_of(name) is not None else ""
        self._dead[counted] = self._dead.get(counted, 0) + len(bad)

    def _writer(self, name: str, schema_json: bytes) -> TableWriter:
        writer = self._writers.get(name)
        if writer is None:
            spec = replace(self._spec_of(name), schema_json=schema_json)
            writer = self._writers[name] = TableWriter(self._io, spec, self._limits)
        return writer

    def _spec_of(self, name: str) -> WriteSpec:
        """What the table's writer is told, but for the schema."""
        return replace(self._spec.limits, table=self._root_of(name), at_once=self._spec.at_once_of(name))

    def _root_of(self, name: str) -> str:
        return os.path.join(self._spec.routing.root, self._spec.routing.path_of(name))
