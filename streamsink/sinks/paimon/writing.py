"""How rows become staged files of one table or several: what travels to writers and back. EXECUTOR and driver."""

import functools
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from streamsink.clock import Clock
from streamsink.format.data_file import DataFileMeta
from streamsink.format.paths import bucket_dir
from streamsink.format.schema import TableSchema
from streamsink.format.types import DataField
from streamsink.journal.file_journal import FileJournal
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.sink import Writing
from streamsink.sinks.paimon.past.records import places_of_metadata
from streamsink.storage.file_io import FileIO
from streamsink.table.routed.routed_writer import RoutedFiles, RoutedSpec, RoutedWriter
from streamsink.table.table import Table
from streamsink.table.write.folders import UNAWARE_BUCKET
from streamsink.table.write.spec import WriteSpec, WrittenFile, beginning_of
from streamsink.table.write.writer import TableWriter

# Of so many folders of a checkpoint the driver says that the next one may have files there; of others the writers do.
_MOST = 1_000


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
    """What a table's writers need where files get their final names when they are written. Driver only."""

    def __init__(self, table: Table, journal: FileJournal):
        self._table = table
        self._attempts = journal.attempts
        # Folders of the last checkpoint's files, relative to the table.
        self._folders: frozenset[str] = frozenset()
        # The folders that were announced for this checkpoint, a time before the first file got its final name, and
        # whether it is small.
        self._said: frozenset[str] = frozenset()
        self._named_ms = 0
        self._is_small = False

    @classmethod
    def of(cls, table: Table, journal: FileJournal, options: SinkOptions) -> "FinalNames | None":
        """None where files are staged.

        That is so in a store that places them without a copy, and where a second copy of them is kept, from which they
        are published again after a rollback.
        """
        at_once = table.file_io.names_at_once and options.on_rollback != ON_ROLLBACK_REPUBLISH
        return cls(table, journal) if at_once else None

    def announced(self, checkpoint: Checkpoint, spec: WriteSpec, schema: TableSchema) -> WriteSpec:
        """Say where files will be; in most checkpoints they are where those of the last one are."""
        since = self._table.snapshots.known_name()
        spec = replace(spec, attempt=checkpoint.attempt, since=since, announced=self._own_folders(schema))
        self._said, self._named_ms, self._is_small = spec.announced, Clock().now_ms(), checkpoint.is_small
        self._attempts.announce(checkpoint, self._places(spec.announced, checkpoint.attempt), since)
        return spec

    def named(self, checkpoint: Checkpoint, written: Sequence[WrittenFile]) -> tuple[str, int]:
        """The record's id, and a time in ms before the first of these files got its name, as a commit takes them."""
        folders = list(dict.fromkeys(os.path.dirname(file.final) for file in written))
        if not self._said.issuperset(folders):
            beginning = beginning_of(checkpoint.attempt)
            places = [(folder, beginning) for folder in folders]
            self._attempts.has_more(checkpoint, places, self._table.snapshots.known_name())
        self._folders = frozenset(folders[:_MOST])
        return checkpoint.attempt, self._named_ms

    def announce_following(self, checkpoint: Checkpoint) -> None:
        """The next checkpoint's files will be where these are, and are announced together with the record of these."""
        places = functools.partial(self._places, self._own_folders(self._table.known_schema))
        since = self._table.snapshots.known_name()
        self._attempts.announce_following(checkpoint, places, since, is_small=self._is_small)

    def _places(self, folders: Iterable[str], attempt: str) -> list[tuple[str, str]]:
        places = [(folder, beginning_of(attempt)) for folder in sorted(folders)]
        return [*places, *places_of_metadata(self._table.layout, attempt)]

    def _own_folders(self, schema: TableSchema) -> frozenset[str]:
        return self._folders if schema.partition_keys else frozenset({bucket_dir("", UNAWARE_BUCKET)})
