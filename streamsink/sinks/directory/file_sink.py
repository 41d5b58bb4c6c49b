"""A directory of plain files: each checkpoint has a folder, and is visible when its manifest has its name. Driver only.

checkpoint=<application>-<number of the record, ten digits>/part-*   the rows
checkpoint=<application>-<number>/_SUCCESS    the checkpoint is complete, for those who wait for such files
_commits/<application>/<number>.json          the manifest: the files, and the state of the query
_streamsink/                                  identity and journals
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from streamsink.errors import Misuse
from streamsink.events import Event
from streamsink.journal.file_journal import FileJournal
from streamsink.journal.others import last_of_others
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.committable import AppState, Batch, Committable, LastOfOther, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group
from streamsink.protocol.sink import Committer, Destination, History, OpenSink, Published, Sink
from streamsink.sinks.directory.file_formats import FORMATS, DirectoryWriting, check_columns
from streamsink.sinks.files import files_in_place, open_folder, place_files, stage_files
from streamsink.sinks.manifest_log import ManifestLog
from streamsink.storage.file_io import FileIO

_JOURNALS, _COMMITS = "_streamsink", "_commits"
# The column as which readers see the names of the folders.
_PARTITION = "checkpoint"


@dataclass(frozen=True)
class FileSink(Sink):
    """A directory of Parquet, JSON lines or CSV files.

    path: absolute, or a URL of the store. format: "parquet", "json" or "csv". marker: name of the empty file that is
    put into the folder of each checkpoint when all of it is visible; "" for none.
    """

    path: str
    format: str = "parquet"
    marker: str = "_SUCCESS"
    supports: ClassVar[frozenset[str]] = frozenset({"target_file_bytes"})  # type: ignore[misc]

    def open(
        self,
        file_io: FileIO,
        options: SinkOptions,
        batch: Batch,
        fields: Callable[[], Sequence[Any]],
        emit: Callable[[Event], None],
    ) -> "OpenDirectory":
        if self.format not in FORMATS:
            raise Misuse(
                f"{self.path}: format is {self.format!r}, expected one of {', '.join(FORMATS)}. Nothing was written",
                kind="files.format",
            )
        if "/" in self.marker or (self.marker and self.marker[0] not in "_."):
            raise Misuse(
                f"{self.path}: marker is {self.marker!r}, expected a file name that begins with '_' or '.', which "
                "readers leave out. Nothing was written",
                kind="files.marker",
            )
        check_columns(self.path, self.format, fields(), _PARTITION)
        return OpenDirectory(self, file_io, options)


class OpenDirectory(OpenSink):
    """The directory of one start of a query."""

    def __init__(self, sink: FileSink, file_io: FileIO, options: SinkOptions):
        self._sink, self._io, self._options = sink, file_io, options
        journals = f"{sink.path}/{_JOURNALS}"
        self.to = Destination(sink.path, open_folder(file_io, journals, visible=f"../{_COMMITS}").table_id)
        self.application = self.known_as = options.application
        keeps = options.on_rollback == ON_ROLLBACK_REPUBLISH
        self.journal = FileJournal(file_io, journals, options.application, options.journal_retain, keep_staging=keeps)
        self.committer = DirectoryCommitter(sink, file_io)

    def group(self) -> AbstractContextManager[Group]:
        return self._io.flush_group()

    def writing(self, checkpoint: Checkpoint, fields: Sequence[Any], positions: Sequence[Any]) -> DirectoryWriting:
        check_columns(self._sink.path, self._sink.format, fields, _PARTITION)
        most = self._options.target_file_bytes
        return DirectoryWriting(checkpoint.staging, self._sink.format, tuple(fields), most)

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[Any], group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        folder = folder_of(self.application, checkpoint.sequence)
        return stage_files(self._io, self._sink.path, checkpoint, written, group, folder=folder), {}


def folder_of(application: str, number: int) -> str:
    """Name of the folder with the files of a record, relative to the directory."""
    return f"{_PARTITION}={application}-{number:010}"


class DirectoryCommitter(Committer):
    """Gives files their final names, and then creates the manifest that names them."""

    def __init__(self, sink: FileSink, file_io: FileIO):
        self._sink = sink
        self._io = file_io
        self._manifests = ManifestLog(file_io, f"{sink.path}/{_COMMITS}")

    def for_background(self) -> "DirectoryCommitter":
        return DirectoryCommitter(self._sink, self._io)

    def history(self, application: str) -> History:
        return History(self._manifests.newest(application), complete=True)

    def others(self, application: str) -> Mapping[str, LastOfOther]:
        journals, newest = f"{self._sink.path}/{_JOURNALS}", self._manifests.newest
        return last_of_others(self._io, journals, application, self._manifests.applications(), newest)

    def mentions(self, committable: Committable) -> bool:
        return self._manifests.has(committable)

    def sees_all_since(self, committable: Committable) -> bool:
        return True  # manifests are never deleted

    def files_in_place(self, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
        return files_in_place(self._io, self._sink.path, committable)

    def path_of_rows(self, committable: Committable) -> str:
        return f"{self._sink.path}/{committable.files[0].final}" if committable.files else ""

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        """As ``Committer.sweep``. A driver may have died between a manifest and its marker."""
        for record in published:
            self._mark(record.application, record.state)
        return self._manifests.sweep(published)

    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]) -> Published:
        fence()
        if not self._manifests.is_published(committable, expect):
            place_files(self._io, self._sink.path, committable)
            self._manifests.create(committable, {"files": [file.final for file in committable.files]})
        self._mark(committable.application, committable.state)
        return Published(committable.state.checkpoint_id, committable.state.sequence, 1)

    def _mark(self, application: str, state: AppState) -> None:
        if self._sink.marker:
            folder = folder_of(application, state.sequence)
            self._io.create_if_absent(f"{self._sink.path}/{folder}/{self._sink.marker}", b"")
