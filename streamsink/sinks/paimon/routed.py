"""From rules to tables: which tables exist, what each takes of the data, and which are created. Driver only."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from streamsink.errors import Corrupt, Misuse
from streamsink.format.schema import TableSchema
from streamsink.format.types import DataField
from streamsink.journal.announced import announced_in
from streamsink.journal.file_journal import JOURNAL_DIR, journal_dir
from streamsink.options import SinkOptions
from streamsink.protocol.decision import Checkpoint
from streamsink.sinks.paimon.letters import TableAndLetters
from streamsink.sinks.paimon.many_tables import ManyTables
from streamsink.sinks.paimon.writing import FinalNames
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.reading import Questions
from streamsink.table.history import leftovers
from streamsink.table.routed.dead_letters import DeadLetters, dead_letter_fields, fit_by_value
from streamsink.table.routed.routed_writer import RoutedFiles, RoutedSpec, Target
from streamsink.table.routed.rules import Routing
from streamsink.table.table import Table, create_table, is_table, new_schema, of_being_tables, of_creating, of_opening
from streamsink.table.write.fit import check_once, fit
from streamsink.table.write.spec import WriteSpec, beginning_of


class RoutedTables:
    """The tables of one run of a query, as its rules and its data's columns ask for them.

    It reads the rules and the tables when the columns of the data are not those of the batch before.
    """

    def __init__(
        self, committer: ManyTables | TableAndLetters, routing: Routing, options: SinkOptions, names: FinalNames
    ):
        self._names = names
        self._to = committer
        self._io = committer.place.file_io
        self.routing = routing
        self._options = options
        self._given: Sequence[DataField] | None = None
        self._targets: dict[str, Target] = {}
        self._templates: dict[str, Target] = {}
        # Name and schema of the table for dead letters, if the rules have one.
        self._dead: tuple[str, bytes] | None = None
        # Names of the tables that exist.
        self._there: set[str] = set()

    @property
    def root(self) -> str:
        """Path of the folder of the tables."""
        return self.routing.root

    @property
    def table_id(self) -> str:
        """Identity of what this query writes to: of several tables that of their journal, of one table its own."""
        return self._to.place.journal_id

    def existing(self) -> list[tuple[str, str]]:
        """(name, path) of each table that exists and that this query might write."""
        routing, absolute = self.routing, self._to.place.absolute
        names = [*routing.listed(), *([routing.dead_letters] if routing.dead_letters else [])]
        listed = of_being_tables(absolute(routing.path_of(name)) for name in names)
        with self._io.asking(listed + Questions(names=(routing.root,))):
            found = [e.name for e in self._io.entries(routing.root) if e.is_dir and routing.rule_of(e.name) is not None]
            paths = {name: routing.path_of(name) for name in [*names, *found]}
            with self._io.asking(of_being_tables(map(absolute, paths.values()))):
                return [(name, path) for name, path in sorted(paths.items()) if is_table(self._io, absolute(path))]

    def opened(self) -> list[Table]:
        """The tables that are open: another table that a rule would take is somebody else's. From any thread, which
        asks the store nothing.
        """
        return [self._to.member(name, "").table for name in list(self._to.members)]

    def roots(self) -> list[str]:
        """Paths of the tables that are open, as ``opened``."""
        return [table.root for table in self.opened()]

    def spec(self, checkpoint: Checkpoint, data: Sequence[DataField], positions: Sequence[DataField]) -> RoutedSpec:
        """What the writers of a batch need.

        data: the columns that tables may take. positions: the position columns. Fits existing tables to the data when
        the data's columns are new to this run, and evolves those whose options allow it. Raises Misuse that names the
        table.
        """
        if self._given != data:
            self._prepare(data, positions)
            self._given = data
        options, routing = self._options, self.routing
        limits = WriteSpec(
            checkpoint.staging, b"", options.target_file_bytes, options.max_open_writers, options.writer_memory_bytes
        )
        dead = None
        if self._dead is not None:
            names = tuple(field.name for field in positions)
            batch_id = checkpoint.batch.batch_id
            dead = DeadLetters(*self._dead, options.application, batch_id, names, self.table_id)
        told = self._names.announced(checkpoint, self._open_tables())
        at_once = {name: told[at] for name in self._there if (at := self._at(name)) in told}
        new = self._names.of_new_tables(checkpoint, self._to.beside)
        return RoutedSpec(limits, routing, dict(self._targets), dict(self._templates), dead, at_once, new)

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[RoutedFiles], group: FlushGroup
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Create the tables that get their first rows, then stage. Returns files and payload of the record.

        Both are durable when ``group`` is flushed. written: what the writers of all tasks returned. Raises Corrupt when
        the numbers of rows in and rows out differ: then nothing is recorded.
        """
        files: dict[str, list[Any]] = {}
        for part in written:
            for name, file in part.files:
                files.setdefault(name, []).append(file)
        dead: dict[str, int] = {}
        for part in written:
            for target, rows in part.dead.items():
                dead[target] = dead.get(target, 0) + rows
        self._check_counts(sum(part.rows_in for part in written), files, dead)
        by_table = {name: (self.routing.path_of(name), mine) for name, mine in files.items()}
        had = self._to.had_before(checkpoint, self._path_now)  # first, or a table that is gone would be created again
        absolute = self._to.place.absolute
        missing = [absolute(self.routing.path_of(name)) for name in files if name not in self._there]
        with self._io.asking(of_being_tables(missing) + of_creating(missing)):
            for name in sorted(files):
                self._create_missing(name)
        named = self._names.named(checkpoint, {self._at(name): mine for name, mine in files.items()})
        at_once = {name: named[at] for name in files if (at := self._at(name)) in named}
        staged = self._to.stage(checkpoint, by_table, dead, group, had=had, at_once=at_once)
        self._names.announce_following(checkpoint, self._open_tables())
        return staged

    # -- parts -----------------------------------------------------------------------------------------------------

    def _at(self, name: str) -> str:
        """Path of a table relative to the folder that holds the journal, as of ``InTable``."""
        return self._to.at(name, self.routing.path_of(name))

    def _open_tables(self) -> dict[str, Table]:
        """The tables that exist, by ``_at``."""
        return {self._at(name): self._to.member(name, self.routing.path_of(name)).table for name in sorted(self._there)}

    def _announced(self) -> set[str]:
        """How names of files begin that all queries here may have put where there is no table yet.

        Another query may be about to create the same table.
        """
        folders = [self.root, *(f"{self.root}/{entry.name}" for entry in self._io.entries(self.root) if entry.is_dir)]
        names = {folder: self._io.names(f"{folder}/{JOURNAL_DIR}") for folder in folders}
        journals = [journal_dir(folder, name) for folder, mine in names.items() for name in mine]
        return set(map(beginning_of, announced_in(self._io, journals)))

    def _path_now(self, name: str) -> str | None:
        """The path that the rules have for the table of this name; None when there is no rule for it."""
        known = name == self.routing.dead_letters or self.routing.rule_of(name) is not None
        return self.routing.path_of(name) if known else None

    def _prepare(self, data: Sequence[DataField], positions: Sequence[DataField]) -> None:
        routing = self.routing
        self._targets, self._templates = {}, {}
        there = dict(self.existing())
        self._there = set(there)
        tables = self._open(there)
        asked = Questions(size=tuple(path for table in tables.values() for path in table.schemas.questions().size))
        with self._io.asking(asked):
            for name, table in tables.items():
                if name != routing.dead_letters:
                    self._targets[name] = self._target(name, table, data)
        for key, rule in routing.rules.items():
            if key in there:
                continue
            if not rule.options.create:
                if key in routing.listed():
                    raise Misuse(
                        f"{self._to.place.absolute(routing.path_of(key))}: there is no table '{key}', and its option "
                        "create is False. Nothing was written. Create the table",
                        kind="table.missing",
                    )
                continue
            columns = rule.choose([f.name for f in data], [f.name for f in data])
            self._check_columns(key, columns)
            fields = [f for f in data if f.name in columns]
            schema = new_schema(fields, rule.options.partition_by, rule.options.table_options)
            self._templates[key] = Target(columns, schema.to_json())
        if routing.dead_letters is not None:
            name = routing.dead_letters
            self._dead = name, self._dead_letter_schema(name, name in there, positions).to_json()

    def _open(self, paths: Mapping[str, str]) -> dict[str, Table]:
        """By name, the tables at these paths, which exist; in the order of their names."""
        closed = [self._to.place.absolute(path) for name, path in paths.items() if name not in self._to.members]
        with self._io.asking(of_opening(closed)):
            return {name: self._to.member(name, path).table for name, path in sorted(paths.items())}

    def _target(self, name: str, table: Table, data: Sequence[DataField], newest: TableSchema | None = None) -> Target:
        rule, newest = self.routing.rules[self._rule(name)], newest or table.latest_schema()
        columns = rule.choose([f.name for f in data], newest.field_names)
        self._check_columns(name, columns)
        fields = [f for f in data if f.name in columns]
        fitting = fit if self.routing.dead_letters is None else fit_by_value
        return Target(columns, fitting(table, fields, rule.options, newest).to_json())

    def _rule(self, name: str) -> str:
        """The key of the rule for this table: one that the query writes has one, unless it is for dead letters."""
        return cast(str, self.routing.rule_of(name))

    def _check_columns(self, name: str, columns: Sequence[str]) -> None:
        check_once(
            columns,
            f"{self.routing.root}: table '{name}'",
            "the query, or leave it out of the table by its option columns",
        )
        wanted = self.routing.rules[self.routing.rule_of(name) or name].columns
        lacking = [c for c in wanted if c not in columns] if isinstance(wanted, tuple) else []
        if lacking or not columns:
            raise Misuse(
                f"{self.routing.root}: table '{name}' takes the columns {', '.join(lacking) or 'that it has'}, of "
                "which the data has none. Nothing was written",
                kind="schema.missing-column",
            )

    def _dead_letter_schema(self, name: str, exists: bool, positions: Sequence[DataField]) -> TableSchema:
        fields = dead_letter_fields(positions)
        if not exists:
            return new_schema(fields, (), self._options.table_options)
        table = self._to.member(name, self.routing.path_of(name)).table
        # The columns of positions change with the query's options, so they are added whatever the option add_columns
        # says.
        return fit(table, fields, replace(self._options, add_columns=True))

    def _check_counts(self, rows_in: int, files: Mapping[str, list[Any]], dead: Mapping[str, int]) -> None:
        rows = {name: sum(file.meta.row_count for file in mine) for name, mine in files.items()}
        buried = rows.get(self.routing.dead_letters or "", 0)
        if sum(rows.values()) != rows_in or buried != sum(dead.values()):
            raise Corrupt(
                f"{self.routing.root}: {rows_in} rows came in, {sum(rows.values()) - buried} are in files of tables, "
                f"{buried} are dead letters ({sum(dead.values())} were counted): these do not add up. Nothing was "
                "recorded or published. This is an error of streamsink; the batch is replayed after a restart",
                kind="tables.count",
            )

    def _create_missing(self, name: str) -> None:
        path = self._to.place.absolute(self.routing.path_of(name))
        if name in self._there and self._io.is_distant:
            return  # it was there when the batch was admitted, or it is looked at in a moment
        if is_table(self._io, path):
            self._there.add(name)  # another program may have created it
            return
        if name in self._there:
            # It was there before, so this raises the error for a table that is gone.
            self._to.check_there(name, self.routing.path_of(name))
        if self._dead is not None and name == self._dead[0]:
            template = self._dead[1]
        else:
            template = self._templates[self._rule(name)].schema_json
        schema = TableSchema.from_json(template, "the schema of a new table")
        table = create_table(self._io, path, schema, self._announced, is_missing=True)
        leftovers.sweep_creations(table)
        self._to.member(name, self.routing.path_of(name), table)
        self._there.add(name)
        if name != self.routing.dead_letters:
            fields = cast(Sequence[DataField], self._given)  # ``spec`` has set it
            self._targets[name] = self._target(name, table, fields, newest=table.known_schema)
