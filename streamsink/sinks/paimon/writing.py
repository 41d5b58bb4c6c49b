"""How rows become staged files of one table or several: what travels to writers and back. EXECUTOR and driver."""

import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamsink.clock import Clock
from streamsink.format.data_file import DataFileMeta
from streamsink.format.paths import bucket_dir
from streamsink.format.schema import TableSchema
from streamsink.format.types import DataField
from streamsink.journal.announced import InTable
from streamsink.journal.attempts import Attempts
from streamsink.journal.file_journal import FileJournal
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.sink import Writing
from streamsink.sinks.paimon.past.records import places_of_metadata
from streamsink.storage.file_io import FileIO
from streamsink.table.layout import Layout
from streamsink.table.routed.routed_writer import RoutedFiles, RoutedSpec, RoutedWriter
from streamsink.table.table import Table
from streamsink.table.write.folders import UNAWARE_BUCKET
from streamsink.table.write.spec import AtOnce, WriteSpec, WrittenFile, beginning_of
from streamsink.table.write.writer import TableWriter

# Of so many folders the driver says that the next checkpoint may have files there; of others the writers do. It says so
# of the tables that the last checkpoint has files in; where these are few, of those that were written before it, too.
_MOST, _TABLES = 1_000, 8
_OWN, _ONLY_FOLDER = "", bucket_dir("", UNAWARE_BUCKET)
# By table, what a commit takes of files that have their final names: the record's id, and a time in ms before the first
# of them got its name.
Named = Mapping[str, tuple[str, int]]


def encode(file: WrittenFile) -> str:
    """A written file as text, for the way from the executor to the driver."""
    return json.dumps(
        {"partition": file.partition.hex(), "staged": file.staged, "final": file.final, "meta": file.meta.to_wire()},
        separators=(",", ":"),
    )


def decode(text: str) -> WrittenFile:
    """The inverse of ``encode``. The text comes from a task: the driver has to check whether what it says is true."""
    value = json.loads(text)
    meta = DataFileMeta.from_wire(value["meta"])
    return WrittenFile(bytes.fromhex(value["partition"]), value["staged"], value["final"], meta, handed_over=True)


@dataclass(frozen=True)
class TableWriting(Writing):
    """How rows are written into one table: each task returns a list of files."""

    spec: WriteSpec

    def open(self, file_io: FileIO) -> TableWriter:
        return TableWriter(file_io, self.spec)

    def encode(self, written: WrittenFile) -> str:
        return encode(written)

    def decode(self, text: str) -> WrittenFile:
        return decode(text)


@dataclass(frozen=True)
class RoutedWriting(Writing):
    """How rows are written into several tables: each task returns one item, with its files and the counts of rows."""

    spec: RoutedSpec

    def open(self, file_io: FileIO) -> RoutedWriter:
        return RoutedWriter(file_io, self.spec)

    def encode(self, written: RoutedFiles) -> str:
        files = [(name, encode(file)) for name, file in written.files]
        return json.dumps({"files": files, "rows_in": written.rows_in, "dead": written.dead})

    def decode(self, text: str) -> RoutedFiles:
        value = json.loads(text)
        files = tuple((name, decode(file)) for name, file in value["files"])
        return RoutedFiles(files, value["rows_in"], value["dead"])


@dataclass(frozen=True)
class Fitted:
    """The schema with which rows of these columns are written: it holds as long as neither columns nor table change."""

    fields: Sequence[DataField]
    schema: TableSchema
    schema_json: bytes


class FinalNames:
    """What writers need where files get their final names when they are written, in one table or several. Driver only.

    Tables are named by their paths relative to the folder that holds the journal, as in ``InTable``. Nothing is said of
    any table where files are staged.
    """

    def __init__(self, attempts: Attempts | None):
        """attempts: None where files are staged."""
        self._attempts = attempts
        # Folders of each table's last files, relative to it; the tables that were written last come last.
        self._folders: dict[str, frozenset[str]] = {}
        # How many tables the last checkpoint had files in.
        self._last = 0
        # What writers were told for this checkpoint, a time before the first file got its final name, and whether it is
        # small.
        self._told: Mapping[str, AtOnce] = {}
        self._new: AtOnce | None = None
        self._named_ms = 0
        self._is_small = False

    @classmethod
    def of(cls, file_io: FileIO, journal: FileJournal, options: SinkOptions) -> "FinalNames":
        """Files are staged in a store that places them without a copy, and where a second copy of them is kept, from
        which they are published again after a rollback; and for a branch.
        """
        is_branch = bool(
            Layout(journal.place.rsplit("/", 2)[0]).branch
        )  # its data files lie in another table's folders
        at_once = file_io.names_at_once and options.on_rollback != ON_ROLLBACK_REPUBLISH and not is_branch
        return cls(journal.attempts if at_once else None)

    def announced(self, checkpoint: Checkpoint, tables: Mapping[str, Table]) -> Mapping[str, AtOnce]:
        """Say where files will be; in most checkpoints they are where those of the last one are.

        tables: those that exist. Returns by table what its writers need.
        """
        if self._attempts is None:
            return {}
        attempt = checkpoint.attempt
        self._named_ms, self._is_small = Clock().now_ms(), checkpoint.is_small
        said = self._expected(tables)
        self._attempts.announce(checkpoint, _places(said, tables, attempt))
        self._told = {
            name: AtOnce(
                attempt,
                name,
                table.snapshots.known_name(),
                said.get(name, frozenset()),
                () if name in said else tuple(places_of_metadata(table.layout, attempt)),
            )
            for name, table in tables.items()
        }
        return self._told

    def of_new_tables(self, checkpoint: Checkpoint, beside: str) -> AtOnce | None:
        """What writers need for a table that does not exist yet; None where files are staged.

        beside: the beginning of its path. The folder must exist as a table before the record.
        """
        if self._attempts is None:
            return None
        metadata = tuple(places_of_metadata(Layout("/"), checkpoint.attempt))
        self._new = AtOnce(checkpoint.attempt, beside, (0, ""), metadata=metadata)
        return self._new

    def named(self, checkpoint: Checkpoint, written: Mapping[str, Sequence[WrittenFile]]) -> Named:
        """What a commit takes of each table whose files have their final names. written: by table, its files."""
        if self._attempts is None:
            return {}
        folders = {name: [os.path.dirname(file.final) for file in mine] for name, mine in written.items() if mine}
        beginning = beginning_of(checkpoint.attempt)
        told = {name: self._told.get(name, self._new) for name in folders}
        unsaid = [
            InTable(name, (*((folder, beginning) for folder in set(folders[name])), *at.metadata), at.since)
            for name, at in told.items()
            if at is not None and not at.announced.issuperset(folders[name])
        ]
        if unsaid:
            self._attempts.has_more(checkpoint, unsaid)
        for name, mine in folders.items():
            self._folders.pop(name, None)
            self._folders[name] = frozenset(list(dict.fromkeys(mine))[:_MOST])
        self._last = len(folders)
        return dict.fromkeys(written, (checkpoint.attempt, self._named_ms))

    def announce_following(self, checkpoint: Checkpoint, tables: Mapping[str, Table]) -> None:
        """The next checkpoint's files will be where these are, and are announced together with the record of these.

        tables: those that exist now.
        """
        if self._attempts is None:
            return
        self._folders = {name: mine for name, mine in self._folders.items() if name in self._expected(tables)}
        places = functools.partial(_places, self._expected(tables), tables)
        self._attempts.announce_following(checkpoint, places, is_small=self._is_small)

    def _expected(self, tables: Mapping[str, Table]) -> Mapping[str, frozenset[str]]:
        """By table, the folders in which the next files are expected: in those that were written last.

        The table that has the journal itself is always among them.
        """
        last = [name for name in reversed(self._folders) if name in tables][: max(self._last, _TABLES)]
        found: dict[str, frozenset[str]] = {}
        room = _MOST
        for name in dict.fromkeys([*([_OWN] if _OWN in tables else []), *last]):
            is_partitioned = bool(tables[name].known_schema.partition_keys)
            mine = self._folders.get(name, frozenset()) if is_partitioned else frozenset({_ONLY_FOLDER})
            room -= len(mine)
            if room >= 0:
                found[name] = mine
        return found


def _places(said: Mapping[str, frozenset[str]], tables: Mapping[str, Table], attempt: str) -> list[InTable]:
    """Where files of an attempt come to be, and its metadata. said: by table, the folders of its data files."""
    return [
        InTable(
            name,
            (
                *((folder, beginning_of(attempt)) for folder in sorted(folders)),
                *places_of_metadata(tables[name].layout, attempt),
            ),
            tables[name].snapshots.known_name(),
        )
        for name, folders in said.items()
    ]
