"""An Iceberg table as a destination: what a user names, and what one start of a query opens. Driver only."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.events import Event
from streamsink.format.arrow_types import from_arrow_schema, to_arrow_schema
from streamsink.journal.file_journal import FileJournal
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol import ways
from streamsink.protocol.committable import Batch, Committable, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.journal import Group
from streamsink.protocol.sink import Destination, OpenSink, Sink
from streamsink.sinks.iceberg import columns, exchange, table_state
from streamsink.sinks.iceberg.catalog import CatalogTable
from streamsink.sinks.iceberg.committer import (
    BEHIND,
    DATA_URI,
    DESTINATION,
    PARTITION,
    SCHEMA_ID,
    SPEC_ID,
    IcebergCommitter,
)
from streamsink.sinks.iceberg.moved import JOURNALS, check_not_left_behind
from streamsink.sinks.lake_tables.attempts import Places
from streamsink.sinks.lake_tables.creation import found_or_made
from streamsink.sinks.lake_tables.writing import LakeWriting
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import Store, journal_place, table_path

# Attribute of a sink: the connection by which it was made, until a start of a query takes it over.
_NAMED = "_named"


@dataclass(frozen=True)
class IcebergSink(Sink):
    """An Apache Iceberg table; see docs/ICEBERG.md.

    table: namespace and name, 'shop.orders'. catalog, catalog_properties: as pyiceberg's ``load_catalog`` takes them; a
    catalog that is in its configuration file needs no properties. location: of a table that the sink creates; '' where
    the catalog chooses. journal: a folder for the journal that the driver and all executors share; '' for
    ``<location>/_streamsink``. store_options: of the table's store, where the journal lies in another one; else the
    option ``store_options`` counts for both.

    Raises Misuse for values that are wrong. Without ``journal`` and ``location`` it asks the catalog where the table
    is, and raises Retryable when that does not answer.
    """

    table: str
    catalog: str = "default"
    catalog_properties: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    location: str = ""
    journal: str = ""
    store_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    path: str = field(init=False)
    # Where a table that does not exist is created, and where one that exists must be; '' for anywhere.
    place: str = field(init=False, default="", compare=False)
    supports: ClassVar[frozenset[str]] = frozenset(  # type: ignore[misc]
        {"partition_by", "table_options", "create", "add_columns", "widen_types"}
        | {"target_file_bytes", "max_open_writers", "writer_memory_bytes"}
    )
    never_forgets: ClassVar[str] = "the table's snapshots say whose records they are"  # type: ignore[misc]

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", f"{self.catalog}.{self.table}")
        parts = self.table.split(".") if isinstance(self.table, str) else []
        if len(parts) < 2 or not all(parts):
            raise Misuse(
                f"table is {self.table!r}, expected a namespace and a name such as 'shop.orders'. Nothing was written. "
                "Correct it",
                kind="iceberg.options",
            )
        object.__setattr__(self, "place", self.location)
        if not self.journal:
            # The journal is where the table is, so that stays, whatever the catalog would choose by now.
            object.__setattr__(self, "place", self.location or self._location_by_catalog())
            object.__setattr__(self, "journal", f"{table_path(self.place)}/{JOURNALS}")

    def _location_by_catalog(self) -> str:
        named = self.named()
        object.__setattr__(self, _NAMED, named)
        table = named.load()
        found = str(table.location()) if table is not None else named.default_location()
        if not found:
            raise Misuse(
                f"{self.path}: there is no table yet, and only the catalog knows where it will be. Nothing was "
                "written. Give IcebergSink location='...' or journal='...', a folder that the driver and all executors "
                "share and that nobody cleans",
                kind="iceberg.options",
            )
        return found

    def named(self) -> CatalogTable:
        """The table in its catalog, by a connection of its own."""
        return CatalogTable(self.path, self.catalog, self.catalog_properties, self.table.split("."))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != _NAMED}  # no connection travels

    def open(
        self,
        file_io: FileIO,
        options: SinkOptions,
        batch: Batch,
        fields: Callable[[], Sequence[Any]],
        emit: Callable[[Event], None],
    ) -> "OpenIceberg":
        named = self.__dict__.pop(_NAMED, None) or self.named()
        table = found_or_made(
            file_io, self.path, options, batch, find=named.load, make=lambda: self._create(named, options, fields())
        )
        columns.check(table, self.path, options.partition_by)
        data = table.properties.get(columns.DATA_PATH, table.location())
        if not columns.is_same_store(table_path(data), table_path(table.location())):
            raise Misuse(
                f"{self.path}: its data files are to be in another store than the table (write.data.path is {data}). "
                "Nothing was written. Let them be in the table's store",
                kind="iceberg.unsupported",
            )
        if self.place and table_path(self.place) != table_path(table.location()):
            raise Misuse(
                f"{self.path}: the table is at {table.location()}, expected at {self.place}, where its journal is "
                "looked for. Nothing was written. Leave 'location' out, or correct it; where the table was moved, or "
                "created meanwhile by another program, make the IcebergSink anew",
                kind="iceberg.options",
            )
        state = table_state.standing(table, options.application, self.path).state
        if state is None:  # none, and none was removed
            named.try_out(table, IdSource().new_id())
        opened = OpenIceberg(self, named, table, file_io, options)
        is_past = batch.batch_id not in (0, END_OF_INPUT)
        if is_past and not opened.has_records and self.journal == f"{table_path(table.location())}/{JOURNALS}":
            check_not_left_behind(file_io, table, state.sequence if state is not None else 0, self.path, options)
        return opened

    def _create(self, named: CatalogTable, options: SinkOptions, fields: Sequence[Any]) -> Any:
        columns.check_options(options.table_options, self.path, self.place)
        columns_of = to_arrow_schema(fields)
        missing = [name for name in options.partition_by if name not in columns_of.names]
        if missing:
            raise Misuse(
                f"{self.path}: partition_by names '{missing[0]}', and the rows have no such column. Nothing was "
                "written. Correct it",
                kind="iceberg.options",
            )
        table = named.create(columns_of, options.partition_by, self.place, options.table_options)
        if not exchange.is_lasting(named.catalog) and named.anew().load() is None:
            raise Misuse(
                f"{self.path}: what is created in this catalog cannot be found by another connection: it is in the "
                "memory of this process only. No row was written. Name a catalog that lasts",
                kind="iceberg.options",
            )
        return table


class OpenIceberg(OpenSink):
    """The table of one start of a query. has_records: whether the journal had records when it was opened."""

    journal: FileJournal
    committer: IcebergCommitter
    is_distant = True  # a catalog is asked, and a metadata file read, while Spark computes the rows

    def __init__(self, sink: IcebergSink, named: CatalogTable, table: Any, file_io: FileIO, options: SinkOptions):
        self._sink, self._named, self._io, self._options = sink, named, file_io, options
        self.application = self.known_as = options.application
        folder = journal_place(sink.journal)
        self._store = _other_store(folder, sink, table, options)
        io = file_io if self._store is None else self._store.open()
        self._data_uri = str(table.properties.get(columns.DATA_PATH, f"{table.location()}/data")).rstrip("/")
        self._places = Places(sink.path, file_io, folder, io, table_path(self._data_uri))
        keeps = options.on_rollback == ON_ROLLBACK_REPUBLISH
        self.journal = FileJournal(
            file_io, folder, options.application, options.journal_retain, keep_staging=keeps, abandoned=self._abandoned
        )
        way_back = f"{_WAY_BACK}. {ways.give_up(sink.path, options.application, is_table=False)}"
        self.to = Destination(sink.path, str(table.metadata.table_uuid), way_back)
        self.committer = IcebergCommitter(self.to, named, self._places, self.journal.load)
        self._fields: Sequence[Any] | None = None
        self._known: set[int] = set()  # ids of the columns that the table had when these have fitted
        self._table = table
        self.has_records = self._check_destination()

    def _check_destination(self) -> bool:
        """Whether the application's journal has records. Raises Misuse when it is of another table, which has another
        name as well.
        """
        try:
            newest = self.journal.newest()
        except Corrupt:
            return True  # the start says so
        before = newest.payload.get(DESTINATION, self._sink.path) if newest is not None else self._sink.path
        if newest is not None and before != self._sink.path and newest.state.table_id != self.to.table_id:
            raise Misuse(
                f"{self._sink.path}: the journal {self.journal.place} of application '{self.application}' is of "
                f"another table, {before}. Nothing was written. Give this query a name of its own "
                "(application='...'), or another folder for its journal (journal='...')",
                kind="journal.other-destination",
            )
        return newest is not None

    def group(self) -> AbstractContextManager[Group]:
        return self._io.flush_group()

    def writing(self, checkpoint: Checkpoint, fields: Sequence[Any], positions: Sequence[Any]) -> LakeWriting:
        seen = self.committer.seen or self._table
        if fields is not self._fields or columns.differ(seen, self._table):
            columns.check(seen, self._sink.path, self._options.partition_by)
            known = self._known if fields is self._fields else None
            self._table = columns.fitted(seen, self._named, fields, self._options, known)
            if known is None:
                self._fields, self._known = fields, {each.field_id for each in self._table.schema().fields}
        schema = columns.file_schema(self._table.schema(), self._sink.path)
        io, target = self._places.io, self._options.target_file_bytes
        return LakeWriting(
            table=self._sink.path,
            staging=checkpoint.staging,
            folder=self._places.folder(checkpoint.attempt),
            attempt=checkpoint.attempt,
            fields=tuple(from_arrow_schema(schema)),
            schema=schema,
            partition_by=tuple(columns.partition_columns(self._table)),
            most_bytes=min(target, io.largest_written or target),
            max_open=self._options.max_open_writers,
            memory_bytes=self._options.writer_memory_bytes,
            store=self._store,
            announces=checkpoint.is_small,
        )

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[Any], group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        columns.check_partitions(written, self._sink.path)
        metadata = self._table.metadata
        told: dict[str, Any] = {SCHEMA_ID: metadata.current_schema_id, SPEC_ID: metadata.default_spec_id}
        seen = self.committer.seen
        told |= {DATA_URI: self._data_uri, BEHIND: seen.metadata.current_snapshot_id if seen is not None else None}
        told[PARTITION] = [field.source_id for field in self._table.spec().fields]
        files, payload = self._places.stage(checkpoint, written, group, **told)
        return files, {**payload, DESTINATION: self._sink.path}

    def _abandoned(self, folder: str, record: Committable | None) -> bool:
        """A staging folder is about to be deleted: what its attempts have left in the table goes before it."""
        number = folder.rpartition("-")[2]
        try:
            record = record or (self.journal.load(int(number)) if number.isdigit() else None)
        except Corrupt:
            return False
        return self._places.sweep(folder, record, self._may_be_named)

    def _may_be_named(self, number: int, attempt: str) -> bool:
        """Whether a record of this number was published: the journal may be an older copy, which does not have it."""
        table = self._named.anew().load()
        said = table_state.said_of(table, self.application, self._sink.path) if table is not None else None
        return said is not None and number <= said.state.sequence


def _other_store(journal: str, sink: IcebergSink, table: Any, options: SinkOptions) -> Store | None:
    """The table's store; None where the journal lies in the same one."""
    root = table_path(table.location())
    if columns.is_same_store(journal, root):
        return None
    return Store(root, sink.store_options or options.store_options, options.flush)


_WAY_BACK = (
    "Make the snapshot current again that the table had (set_current_snapshot of Spark's procedures or of pyiceberg). "
    "Or, if on_rollback='republish' was set when the lost batches were written, set it again to publish them from the "
    "journal, as far back as that remembers them; rows that were put back meanwhile by cherrypick_snapshot are not "
    "doubled"
)
