"""Paimon tables as one start of a query has opened them: how rows become files, and what a record names."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, cast

from streamsink.format.types import DataField
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions
from streamsink.protocol.committable import StagedFile
from streamsink.protocol.decision import Checkpoint, Verdict
from streamsink.protocol.journal import Group
from streamsink.protocol.sink import Destination, OpenSink
from streamsink.protocol.upkeep import Care
from streamsink.sinks.paimon.letters import TableCommitter
from streamsink.sinks.paimon.many_tables import ManyTables
from streamsink.sinks.paimon.routed import RoutedTables
from streamsink.sinks.paimon.writing import FinalNames, Fitted, RoutedWriting, TableWriting
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.routed.routed_writer import RoutedFiles
from streamsink.table.table import Table
from streamsink.table.write.fit import fit
from streamsink.table.write.spec import WriteSpec, WrittenFile


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
    care: Care = field(default_factory=Care, kw_only=True)

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


@dataclass(eq=False)
class OpenTable(Opened):
    """One table of a query, open."""

    committer: TableCommitter
    table: Table
    _fitted: Fitted | None = None

    def __post_init__(self) -> None:
        self._names = FinalNames.of(self.file_io, self.journal, self.options)

    def writing(
        self, checkpoint: Checkpoint, fields: Sequence[DataField], positions: Sequence[DataField]
    ) -> TableWriting:
        """How rows are written: the table's schema is read again, and evolved where options allow it.

        A distant store has just said, when the batch was admitted, which schema is the newest.
        """
        options, fitted = self.options, self._fitted
        newest = self.table.known_schema if self.file_io.is_distant else self.table.latest_schema()
        if fitted is None or fitted.fields is not fields or fitted.schema is not newest:
            schema = fit(self.table, fields, options, newest)
            fitted = self._fitted = Fitted(fields, schema, schema.to_json())
        spec = WriteSpec(
            checkpoint.staging,
            fitted.schema_json,
            options.target_file_bytes,
            options.max_open_writers,
            options.writer_memory_bytes,
            self.to.path,
            self._names.announced(checkpoint, {"": self.table}).get(""),
        )
        return TableWriting(spec)

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[WrittenFile], group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        decision, seen = checkpoint.decision, checkpoint.decision.verdict is Verdict.SEEN
        own = cast(FlushGroup, group)  # it is one that ``group`` has opened
        at_once = self._names.named(checkpoint, {"": written}).get("")
        staging = checkpoint.staging
        staged = self.committer.stage(staging, written, own, seen=seen, leads_on=decision.leads_on, at_once=at_once)
        self._names.announce_following(checkpoint, {"": self.table})
        return staged


@dataclass(eq=False)
class OpenTables(Opened):
    """The tables of a query that writes several, or one table with dead letters, open."""

    tables: RoutedTables

    def writing(
        self, checkpoint: Checkpoint, fields: Sequence[DataField], positions: Sequence[DataField]
    ) -> RoutedWriting:
        return RoutedWriting(self.tables.spec(checkpoint, fields, positions))

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[RoutedFiles], group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        return self.tables.stage(checkpoint, written, cast(FlushGroup, group))  # it is one that ``group`` has opened
