"""A Delta table as a destination: data files by this library, commits by deltalake. Driver only.

data/streamsink-<id of a record>/part-*.parquet   the rows
_delta_log/                                        Delta's log, in which a commit has the number and id of its record
_streamsink/states/<id of the table>/              the whole state of each record
_streamsink/streamsink/<application>/              the journal
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from streamsink import shell
from streamsink.errors import Corrupt, Misuse
from streamsink.events import Event
from streamsink.faults import fault_point
from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.types import DataField
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch, Committable, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group, readable
from streamsink.protocol.sink import Destination, OpenSink, Sink
from streamsink.sinks.delta.adds import add_of
from streamsink.sinks.delta.columns import check_partition, columns_of, missing_columns, schema_of
from streamsink.sinks.delta.committer import ADDS, NOT_NULL, PARTITION_BY, SCHEMA, DeltaCommitter
from streamsink.sinks.delta.log import DeltaLog, deltalake, storage_options
from streamsink.sinks.delta.looking import DESTINATION, SINCE, DeltaTable
from streamsink.sinks.delta.states import States
from streamsink.sinks.delta.support import check_creation, check_path, check_table
from streamsink.sinks.lake_tables.attempts import Places
from streamsink.sinks.lake_tables.creation import found_or_made
from streamsink.sinks.lake_tables.parquet_file import LakeFile
from streamsink.sinks.lake_tables.writing import LakeWriting
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import DATABASES, Store, journal_place, table_path
from streamsink.table.commit.retry import RetryPolicy

_BELOW, _DATA = "_streamsink", "data"


@dataclass(frozen=True)
class DeltaSink(Sink):
    """A Delta table on a disk, S3 or HDFS; see docs/DELTA.md.

    path: of the table, or its URI; it is kept as ``table_path`` spells it. journal: a folder for the journal that the
    driver and all executors share; '' for ``<path>/_streamsink``. store_options: of the table's store, where the
    journal lies in another one; else the option ``store_options`` counts for both. The options ``create``,
    ``partition_by``, ``table_options`` and ``add_columns`` mean what they mean for Paimon tables.
    """

    path: str
    supports: ClassVar[frozenset[str]] = frozenset(  # type: ignore[misc]
        "create partition_by table_options add_columns target_file_bytes max_open_writers writer_memory_bytes "
        "commit_max_retries commit_min_wait_ms commit_max_wait_ms commit_timeout_ms".split()
    )
    never_forgets: ClassVar[str] = "the log of a Delta table keeps the number of an application's last commit"  # type: ignore[misc]
    journal: str = ""
    store_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", table_path(self.path))
        if self.journal:
            object.__setattr__(self, "journal", journal_place(self.journal))

    def open(
        self,
        file_io: FileIO,
        options: SinkOptions,
        batch: Batch,
        fields: Callable[[], Sequence[Any]],
        emit: Callable[[Event], None],
    ) -> "OpenDelta":
        store = self._other_store(options)
        journal_io, file_io = file_io, file_io if store is None else store.open()
        if not (file_io.atomic_create and journal_io.atomic_create):
            raise Misuse(
                f"{self.path}: this store cannot create a file only when it is absent, so two writers could replace "
                "each other's versions of the table. Nothing was written. Use a server that heeds If-None-Match, HDFS "
                "or a disk; the option 'lock' is for Paimon tables alone",
                kind="lock.missing",
            )
        check_path(self.path)
        log = self.log(file_io, options)

        def find() -> DeltaLog | None:
            if log.is_there():
                return log
            self._check_never_there(file_io, log)
            return None

        def make() -> DeltaLog:
            self._create(log, options, fields())
            return log

        found_or_made(file_io, self.path, options, batch, find=find, make=make)
        return OpenDelta(self, (file_io, journal_io), log, options, store)

    def log(self, file_io: FileIO, options: SinkOptions) -> DeltaLog:
        """The log of the table."""
        given = options.store_options if self._is_in_one_store() else self.store_options
        return DeltaLog(file_io, self.path, self.path, storage_options(self.path, given))

    def _other_store(self, options: SinkOptions) -> Store | None:
        """The table's store; None where the journal lies in the same one."""
        return None if self._is_in_one_store() else Store(self.path, self.store_options, options.flush)

    def _is_in_one_store(self) -> bool:
        return not self.journal or _store_of(self.journal) == _store_of(self.path)

    def _check_never_there(self, file_io: FileIO, log: DeltaLog) -> None:
        """Raises Misuse where there was a table before. A new one would hide it, and get in the way of its log."""
        # Asked again: another driver may have created it meanwhile.
        if file_io.entries(f"{self.path}/{_BELOW}/states") and not log.is_there():
            raise Misuse(
                f"{self.path}: there is no Delta table, and {self.path}/{_BELOW} says that there was one: its folder "
                "_delta_log was deleted. Nothing was written. Restore that folder "
                f"{shell.restore(f'{self.path}/_delta_log')}; or, where the table was dropped on "
                f"purpose, remove {self.path}/{_BELOW} and start a new checkpoint, which reads the source from its "
                f"beginning {shell.discard(f'{self.path}/{_BELOW}')}",
                kind="table.missing",
            )

    def _create(self, log: DeltaLog, options: SinkOptions, fields: Sequence[Any]) -> None:
        text = schema_of(fields, self.path)
        columns = columns_of(text)
        check_partition(columns, options.partition_by, self.path)
        schema = deltalake().Schema.from_json(text)
        check_creation(schema, columns, options, self.path)
        fault_point("table.before_create")
        log.create(schema, options.partition_by, options.table_options)
        fault_point("table.created")


class OpenDelta(OpenSink):
    """The table of one start of a query."""

    journal: FileJournal

    def __init__(
        self, sink: DeltaSink, stores: tuple[FileIO, FileIO], log: DeltaLog, options: SinkOptions, store: Store | None
    ):
        """stores: of the table, and of the journal. store: of the table, where the journal lies in another one."""
        path, (file_io, journal_io) = sink.path, stores
        self._io, self._log, self._options, self._store = journal_io, log, options, store
        newest = log.newest()
        self._columns = columns_of(newest.schema().to_json())
        check_table(newest, self._columns, path)
        self._partition_by = tuple(newest.metadata().partition_columns)
        self._check_partition_by(path)
        below = f"{path}/{_BELOW}"
        way_back = (
            "Restore the table to a version that has what was published (RESTORE), or set on_rollback='republish' to "
            "publish the lost batches again from the journal, as far back as that remembers them"
        )
        self.to = Destination(path, newest.metadata().id, way_back)
        self.application = self.known_as = options.application
        self.is_distant = file_io.is_distant or journal_io.is_distant
        journals = sink.journal or below
        # The folders of retained records stay: a commit may have to be made again, and they describe the files.
        self.journal = FileJournal(
            journal_io,
            journals,
            options.application,
            options.journal_retain,
            keep_staging=True,
            abandoned=self._abandoned,
        )
        self._check_destination(path)
        places = Places(path, journal_io, journals, file_io, f"{path}/{_DATA}")
        states = States(file_io, f"{below}/states/{self.to.table_id}", options.journal_retain, self._recorded)
        policy = RetryPolicy.of(path, options, {})
        self._table = DeltaTable(self.to, places, states, policy, options.application, below)
        self.committer = DeltaCommitter(self._table, log)
        self._fields: Sequence[Any] | None = None
        self._schema = ""

    def _recorded(self, application: str, number: int) -> Committable | None:
        """A record of the own application or of another one, where its journal has it."""
        if application == self.application:
            return readable(self.journal, number)
        journals = self._table.places.journal
        return readable(FileJournal(self._io, journals, application, self._options.journal_retain), number)

    def _check_destination(self, path: str) -> None:
        """Raises Misuse when the application's journal is of another table, which has another path as well."""
        try:
            newest = self.journal.newest()
        except Corrupt:
            return  # the start says so
        before = newest.payload.get(DESTINATION, path) if newest is not None else path
        if newest is not None and before != path and newest.state.table_id != self.to.table_id:
            raise Misuse(
                f"{path}: the journal {self.journal.place} of application '{self.application}' is of another table, "
                f"{before}. Nothing was written. Give this query a name of its own (application='...'), or another "
                "folder for its journal (journal='...')",
                kind="journal.other-destination",
            )

    def _check_partition_by(self, path: str) -> None:
        wanted = tuple(self._options.partition_by)
        if wanted and wanted != self._partition_by:
            raise Misuse(
                f"{path}: partition_by is {list(wanted)}, and the table is partitioned by {list(self._partition_by)}. "
                "Nothing was written. Leave the option out, or name the same columns",
                kind="table.created-differently",
            )
        check_partition(self._columns, self._partition_by, path)

    def group(self) -> AbstractContextManager[Group]:
        return self._io.flush_group()

    def writing(self, checkpoint: Checkpoint, fields: Sequence[Any], positions: Sequence[Any]) -> LakeWriting:
        self._look_at_changes(fields)
        options, path = self._options, self.to.path
        known = tuple(column.field(path) for column in self._columns)
        in_files = [each for each in known if each.name not in self._partition_by]
        return LakeWriting(
            path,
            checkpoint.staging,
            self._table.places.folder(checkpoint.attempt),
            checkpoint.attempt,
            known,
            to_arrow_schema(in_files),
            self._partition_by,
            options.target_file_bytes,
            options.max_open_writers,
            options.writer_memory_bytes,
            store=self._store,
        )

    def _look_at_changes(self, fields: Sequence[Any]) -> None:
        """Look whether the table, as admission has found it, takes these columns: others may have changed it.

        Raises Misuse. What would be found at the commit only would stop the query behind a record.
        """
        seen, path = self._log.seen, self.to.path
        schema = seen.schema().to_json()
        if fields is not self._fields or schema != self._schema:
            self._fit(fields)
            self._fields, self._schema = fields, self._log.seen.schema().to_json()
            seen = self._log.seen
        check_table(seen, self._columns, path)
        self._partition_by = tuple(seen.metadata().partition_columns)
        self._check_partition_by(path)

    def _fit(self, fields: Sequence[Any]) -> None:
        """Look at the table anew, and add the columns that rows have besides, where an option says so.

        A nullable column that others have added while the query ran is no reason to stop it.
        """
        path, adds = self.to.path, self._options.add_columns
        before = {column.name for column in self._columns} if fields is self._fields else None
        self._columns = columns_of(self._log.newest().schema().to_json())
        asked = [each for each in self._columns if before is None or each.name in before or not each.nullable]
        new = missing_columns(asked, fields, add_columns=adds, path=path)
        if new:
            check_table(self._log.seen, self._columns, path)
            nullable = [DataField(each.id, each.name, each.type.as_nullable(True)) for each in new]
            added = deltalake().Schema.from_json(schema_of(nullable, path))
            self._log.add_columns(added.fields)
            self._columns = columns_of(self._log.newest().schema().to_json())
            missing_columns(self._columns, fields, add_columns=adds, path=path)

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[LakeFile], group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        path, seen = self.to.path, self._log.seen
        configuration, places = seen.metadata().configuration, self._table.places
        folder = places.folder(checkpoint.attempt).removeprefix(f"{path}/")
        more = {
            ADDS: [add_of(file, folder, configuration, path) for file in written],
            SCHEMA: {column.name: column.type for column in self._columns},
            NOT_NULL: [column.name for column in self._columns if not column.nullable],
            PARTITION_BY: list(self._partition_by),
        }
        plain = [replace(file, partition=b"", footer=b"") for file in written]  # ``ADDS`` has what was in them
        files, payload = places.stage(checkpoint, plain, group, **more)
        if places.journal == self._table.below:
            files = tuple(replace(file, staged=f"{_BELOW}/{file.staged}") for file in files)
        return files, {**payload, SINCE: int(seen.version()), DESTINATION: path}

    def _abandoned(self, folder: str, record: Committable | None) -> bool:
        """A staging folder is about to be deleted: what its attempts have left goes first."""
        return self._table.places.sweep(folder, record, self._may_be_named)

    def _may_be_named(self, number: int, attempt: str) -> bool:
        """Asked by whichever thread deletes the folder, so it has a log of its own."""
        return DeltaCommitter(self._table, self._log.again()).may_name(number, attempt)


def _store_of(place: str) -> str:
    """What two places have in common that are in one store."""
    if place.partition(":")[0] in DATABASES:
        return place
    scheme, found, rest = place.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if found else ""
