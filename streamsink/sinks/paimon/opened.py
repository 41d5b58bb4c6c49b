"""Paimon tables as one start of a query has opened them: how rows become files, and what a record names."""

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from streamsink.clock import Clock
from streamsink.format.paths import bucket_dir
from streamsink.format.schema import TableSchema
from streamsink.format.types import DataField
from streamsink.journal.file_journal import FileJournal
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.committable import StagedFile
from streamsink.protocol.decision import Checkpoint, Verdict
from streamsink.protocol.journal import Group
from streamsink.protocol.sink import Destination, OpenSink
from streamsink.sinks.paimon.letters import TableCommitter
from streamsink.sinks.paimon.many_tables import ManyTables
from streamsink.sinks.paimon.past.records import places_of_metadata
from streamsink.sinks.paimon.routed import RoutedTables
from streamsink.sinks.paimon.writing import RoutedWriting, TableWriting
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.routed.routed_writer import RoutedFiles
from streamsink.table.table import Table
from streamsink.table.write.fit import fit
from streamsink.table.write.folders import UNAWARE_BUCKET
from streamsink.table.write.spec import WriteSpec, WrittenFile, beginning_of

# Of so many folders of a checkpoint the driver says that the next one may have files there; of others the writers do.
_MOST = 1_000


@dataclass(eq=False)
class Opened(OpenSink):
    """A destination of Paimon tables as one start of a query has opened it; see ``OpenSink``.

    options: as given, with the application's name as it is known here. dead_letters: name of the table for dead
    letters, None without one.
    """

    committer: TableCommitter | ManyTables
    journal: FileJournal
    to: Destination
    options: SinkOptions
    file_io: FileIO
    dead_letters: str | None = field(default=None, kw_only=True)

    @property
    def application(self) -> str:  # type: ignore[override]  # nobody sets what the contract names
        return self.options.application

    @property
    def known_as(self) -> str:  # type: ignore[override]  # as above
        return self.committer.place.key if isinstance(self.committer, ManyTables) else self.application

    @property
    def is_distant(self) -> bool:  # type: ignore[override]  # as above
        return self.file_io.is_distant

    def group(self) -> AbstractContextManager[FlushGroup]:
        return self.file_io.flush_group()


@dataclass(frozen=True)
class Fitted:
    """The schema with which rows of these columns are written: it holds as long as neither columns nor table change."""

    fields: Sequence[DataField]
    schema: TableSchema
    schema_json: bytes


@dataclass(eq=False)
class OpenTable(Opened):
    """One table of a query, open."""

    committer: TableCommitter
    table: Table
    _fitted: Fitted | None = None
    # Folders of the last checkpoint's files, relative to the table.
    _folders: frozenset[str] = frozenset()
    # The folders that were announced for this checkpoint, a time before the first file got its final name, and whether
    # it is small.
    _said: frozenset[str] = frozenset()
    _named_ms: int = 0
    _is_small: bool = False

    def writing(
        self, checkpoint: Checkpoint, fields: Sequence[DataField], positions: Sequence[DataField]
    ) -> TableWriting:
        """How rows are written: the table's schema is read again, and evolved where options allow it.

        A distant store has just said, when the batch was admitted, which schema is the newest.
        """
        options, fitted = self.options, self._fitted
        newest = self.table.known_schema if self.file_io.is_distant else self.table.latest_schema()
        if fitted is None or fitted.fields is not fields or fitted.schema is not newest:
            schema = fit(self.table, fields, options)
            fitted = self._fitted = Fitted(fields, schema, schema.to_json())
        spec = WriteSpec(
            checkpoint.staging,
            fitted.schema_json,
            options.target_file_bytes,
            options.max_open_writers,
            options.writer_memory_bytes,
            self.to.path,
        )
        return TableWriting(self._announced(checkpoint, spec, fitted.schema) if self._names_at_once else spec)

    @property
    def _names_at_once(self) -> bool:
        """Whether files get their final names when they are written.

        Not where a second copy of them is kept, from which they are published again after a rollback.
        """
        return self.file_io.names_at_once and self.options.on_rollback != ON_ROLLBACK_REPUBLISH

    def _announced(self, checkpoint: Checkpoint, spec: WriteSpec, schema: TableSchema) -> WriteSpec:
        """Say where files will be; in most checkpoints they are where those of the last one are."""
        spec = replace(
            spec,
            attempt=checkpoint.attempt,
            since=self.table.snapshots.known_name(),
            announced=self._own_folders(schema),
        )
        self._said, self._named_ms, self._is_small = spec.announced, Clock().now_ms(), checkpoint.is_small
        self.journal.attempts.announce(checkpoint, self._places(spec.announced, checkpoint.attempt), spec.since)
        return spec

    def _places(self, folders: Iterable[str], attempt: str) -> list[tuple[str, str]]:
        places = [(folder, beginning_of(attempt)) for folder in sorted(folders)]
        return [*places, *places_of_metadata(self.table.layout, attempt)]

    def _own_folders(self, schema: TableSchema) -> frozenset[str]:
        """The folders that are announced for the next checkpoint."""
        return self._folders if schema.partition_keys else frozenset({bucket_dir("", UNAWARE_BUCKET)})

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[WrittenFile], group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        decision, seen = checkpoint.decision, checkpoint.decision.verdict is Verdict.SEEN
        own = cast(FlushGroup, group)  # it is one that ``group`` has opened
        at_once = (checkpoint.attempt, self._named_ms) if self._names_at_once else None
        folders = list(dict.fromkeys(os.path.dirname(file.final) for file in written))
        if at_once and not self._said.issuperset(folders):
            beginning = beginning_of(checkpoint.attempt)
            since = self.table.snapshots.known_name()
            self.journal.attempts.has_more(checkpoint, [(folder, beginning) for folder in folders], since)
        self._folders = frozenset(folders[:_MOST])
        staging = checkpoint.staging
        staged = self.committer.stage(staging, written, own, seen=seen, leads_on=decision.leads_on, at_once=at_once)
        if at_once:
            next_ones = functools.partial(self._places, self._own_folders(self.table.known_schema))
            since = self.table.snapshots.known_name()
            self.journal.attempts.announce_following(checkpoint, next_ones, since, is_small=self._is_small)
        return staged


@dataclass(eq=False)
class OpenTables(Opened):
    """The tables of a query that writes several, or one table with dead letters, open."""

    tables: RoutedTables

    def writing(
        self, checkpoint: Checkpoint, fields: Sequence[DataField], positions: Sequence[DataField]
    ) -> RoutedWriting:
        return RoutedWriting(self.tables.spec(checkpoint.staging, fields, positions, checkpoint.batch))

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[RoutedFiles], group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        return self.tables.stage(checkpoint, written, cast(FlushGroup, group))  # it is one that ``group`` has opened
