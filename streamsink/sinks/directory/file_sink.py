"""A directory of plain files: each checkpoint has a folder, and is visible when its manifest has its name. Driver only.

checkpoint=<application>-<number of the record, ten digits>/part-*   the rows
checkpoint=<application>-<number>/_SUCCESS    the checkpoint is complete, for those who wait for such files
_commits/<application>/<number>.json          the manifest: the files, and the state of the query
_streamsink/                                  identity and journals
"""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from streamsink import shell
from streamsink.errors import Misuse
from streamsink.events import Event
from streamsink.journal.file_journal import FileJournal
from streamsink.journal.others import last_of_others
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol import ways
from streamsink.protocol.committable import Batch, Committable, LastOfOther, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group
from streamsink.protocol.sink import Committer, Destination, History, OpenSink, Published, Sink
from streamsink.protocol.upkeep import Named, Visible
from streamsink.sinks.directory.file_formats import FORMATS, DirectoryWriting, check_columns
from streamsink.sinks.files import files_in_place, open_folder, place_files, stage_files
from streamsink.sinks.manifest_log import ManifestLog
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import table_path

_JOURNALS, _COMMITS = "_streamsink", "_commits"
# Key of a manifest: the names of its files, relative to the directory.
_FILES = "files"
# The column as which readers see the names of the folders.
_PARTITION = "checkpoint"
# A file ends at this part of the largest size that the store can give a final name: the last rows are added to it.
_ENDS_AT = 0.8


@dataclass(frozen=True)
class FileSink(Sink):
    """A directory of Parquet, JSON lines or CSV files.

    path: of the directory, or its URI; it is kept as ``table_path`` spells it. format: "parquet", "json" or "csv".
    marker: name of the empty file that is put into the folder of each checkpoint when all of it is visible; "" for
    none.
    """

    path: str
    format: str = "parquet"
    marker: str = "_SUCCESS"
    supports: ClassVar[frozenset[str]] = frozenset({"target_file_bytes"})  # type: ignore[misc]
    never_forgets: ClassVar[str] = "readers find its rows by the manifests that say which records it has"  # type: ignore[misc]

    def __post_init__(self) -> None:
        # One spelling: 'file:///out' is no folder of that name, and on S3 'out/' is another place than 'out'.
        object.__setattr__(self, "path", table_path(self.path))

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

    journal: FileJournal

    def __init__(self, sink: FileSink, file_io: FileIO, options: SinkOptions):
        self._sink, self._io, self._options = sink, file_io, options
        journals = f"{sink.path}/{_JOURNALS}"
        way_back = (
            f"Restore {sink.path}/{_COMMITS}, and the folders of files that are gone, or set on_rollback='republish' "
            "to publish the lost batches again from the journal, as far back as that remembers them. "
            f"{ways.give_up(sink.path, options.application, is_table=False)}"
        )
        file_io.sweep_probes()  # else the first start after a death would take their folder for one of others
        _check_foreign(file_io, sink.path)
        known = open_folder(file_io, journals, visible=f"../{_COMMITS}").table_id
        self.to = Destination(sink.path, known, way_back)
        self.application = self.known_as = options.application
        keeps = options.on_rollback == ON_ROLLBACK_REPUBLISH
        self.journal = FileJournal(file_io, journals, options.application, options.journal_retain, keep_staging=keeps)
        self.committer = DirectoryCommitter(sink, file_io, keeps)
        self._check_manifests()
        self._check_left_over()

    def _check_manifests(self) -> None:
        """Raises Misuse when one is gone, as where somebody has deleted them while a driver was about to publish."""
        manifests = ManifestLog(self._io, f"{self._sink.path}/{_COMMITS}")
        missing = manifests.first_missing(self.application)
        if missing:
            folder = folder_of(self.application, missing)
            raise Misuse(
                f"{self._sink.path}: the manifest {_COMMITS}/{self.application}/{missing:010}.json is missing, and "
                "there are later ones: who reads manifests does not see its rows. Nothing was written. Restore it "
                f"{shell.restore(f'{self._sink.path}/{_COMMITS}/{self.application}/{missing:010}.json')}. "
                'Without a backup create it with the text {"files": ["..."]}, which names the part files that are in '
                f'the folder {folder}, each as "{folder}/part-..."; none where there are none, or no such folder',
                kind="files.manifest-missing",
            )

    def _check_left_over(self) -> None:
        """Raises Misuse for folders of this application that neither a manifest nor the journal knows any more.

        Rows to come would lie beside theirs. That of the next number may be what a dead driver has left half done.
        """
        self.journal.read_listing()
        if self.journal.retained():
            return  # the journal tells of all of them
        published = self.committer.history(self.application).state
        next_one = (published.sequence if published else 0) + 1
        prefix = f"{_PARTITION}={self.application}-"
        names = [entry.name for entry in self._io.entries(self._sink.path) if entry.name.startswith(prefix)]
        numbers = sorted(int(n) for name in names if (n := name.removeprefix(prefix)).isdigit() and int(n) > next_one)
        if numbers:
            raise Misuse(
                f"{self._sink.path}: the folder {folder_of(self.application, numbers[0])} has rows of application "
                f"'{self.application}', of which neither a manifest nor the journal {self.journal.place} knows: who "
                "lists the directory would see them beside those that are written now. Nothing was written. Restore "
                f"{self._sink.path}/{_COMMITS}; or, to have these rows written again, remove the folders of this "
                f"application from number {next_one} on, {len(names)} or fewer, and start the query again",
                kind="files.left-over",
            )

    def group(self) -> AbstractContextManager[Group]:
        return self._io.flush_group()

    def writing(self, checkpoint: Checkpoint, fields: Sequence[Any], positions: Sequence[Any]) -> DirectoryWriting:
        check_columns(self._sink.path, self._sink.format, fields, _PARTITION)
        largest = self._io.largest_file  # a larger file could never get its final name
        most = min(self._options.target_file_bytes, int(_ENDS_AT * largest) if largest else sys.maxsize)
        return DirectoryWriting(self._sink.path, checkpoint.staging, self._sink.format, tuple(fields), most)

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[Any], group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        folder = folder_of(self.application, checkpoint.sequence)
        return stage_files(self._io, self._sink.path, checkpoint, written, group, folder=folder), {}


def _check_foreign(file_io: FileIO, path: str) -> None:
    """Raises Misuse for a directory that is no sink's yet, or not any more, and in which readers see files."""
    if file_io.exists(f"{path}/{_JOURNALS}/id") or file_io.entries(f"{path}/{_COMMITS}"):
        return
    found = sorted(entry.name for entry in file_io.entries(path) if entry.name[0] not in "_.")
    if found:
        raise Misuse(
            f"{path}: there are {len(found)} files or folders (first: {found[0]}), and neither '{_JOURNALS}' nor "
            f"'{_COMMITS}' says that a sink wrote them: who reads the directory would take them for rows of this "
            "query. Nothing was written. Give the sink a directory of its own, or move them away; if a sink wrote "
            f"them, restore '{_JOURNALS}' and '{_COMMITS}' first",
            kind="files.foreign",
        )


def folder_of(application: str, number: int) -> str:
    """Name of the folder with the files of a record, relative to the directory."""
    return f"{_PARTITION}={application}-{number:010}"


class DirectoryCommitter(Committer):
    """Gives files their final names, and then creates the manifest that names them."""

    def __init__(self, sink: FileSink, file_io: FileIO, keeps: bool):
        """keeps: whether the staged files of a record stay, for a rollback."""
        self._sink = sink
        self._io = file_io
        self._keeps = keeps
        self._manifests = ManifestLog(file_io, f"{sink.path}/{_COMMITS}")
        self._has_begun = False

    def for_background(self) -> "DirectoryCommitter":
        return DirectoryCommitter(self._sink, self._io, self._keeps)

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
        left = [path for record in published for path in self._end(record.application, record.state.sequence)]
        return left + self._manifests.sweep(published)

    def visible(self) -> Visible:
        """Sizes are not looked at: manifests do not tell them. In memory are some manifests at a time."""
        files, gone, removed = 0, Named(), Named()
        for application in self._manifests.applications():
            for some in self._manifests.contents(application):
                all_named: list[list[str]] = [content[_FILES] for content in some]
                folders = sorted({name.rpartition("/")[0] for named in all_named for name in named})
                there = self._names_in(folders)
                for named in all_named:
                    lost = [name for name in named if name not in there]
                    if named and len(lost) == len(named):
                        removed.add(sorted({name.rpartition("/")[0] for name in named}))
                    else:
                        gone.add([f"{self._sink.path}/{name}" for name in lost])
                    files += len(named) - len(lost)
        return Visible(files, 0, tuple(gone.first), tuple(removed.first), gone.more, removed.more)

    def _names_in(self, folders: Sequence[str]) -> set[str]:
        """What is in these folders, relative to the directory."""
        found = set[str]()

        def look(folder: str) -> None:
            found.update(f"{folder}/{name}" for name in self._io.names(f"{self._sink.path}/{folder}"))

        self._io.together([functools.partial(look, folder) for folder in folders])
        return found

    def give_up(self, application: str, sequence: int) -> None:
        """Files of the record may have their names, and who lists the directory would see them beside those to come."""
        self._io.delete_tree(f"{self._sink.path}/{folder_of(application, sequence)}")

    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]) -> Published:
        fence()
        application, number = committable.application, committable.state.sequence
        if not self._manifests.is_published(committable, expect):
            if expect and not self._has_begun:  # the journal may be new, and its last driver have died before a marker
                self._end(application, expect)
            place_files(self._io, self._sink.path, committable, keep=self._keeps)
            self._manifests.create(committable, {_FILES: [file.final for file in committable.files]})
        if self._has_begun:
            self._mark(application, number)
        else:
            self._end(application, number)
            self._has_begun = True
        return Published(committable.state.checkpoint_id, number, 1)

    def _end(self, application: str, number: int) -> list[str]:
        """Do what a driver that died behind its manifest has left to do. Returns the paths of what was deleted.

        Files that the manifest does not name are of a record of the same number whose journal was lost. It can never be
        published, as the number is taken; before that nobody could know.
        """
        folder, files = folder_of(application, number), self._manifests.content(application, number)[_FILES]
        names = self._io.names(f"{self._sink.path}/{folder}")
        if files and not names:
            return []  # the user has removed the folder since, with its rows
        others = {f"{folder}/{name}" for name in names if name.startswith("part-")}.difference(files)
        left = [f"{self._sink.path}/{name}" for name in sorted(others)]
        self._io.delete_all(left)
        self._mark(application, number)
        return left

    def _mark(self, application: str, number: int) -> None:
        if self._sink.marker:
            folder = f"{self._sink.path}/{folder_of(application, number)}"
            try:
                self._io.create_if_absent(f"{folder}/{self._sink.marker}", b"")
            except FileNotFoundError:
                if self._io.names(folder):
                    raise
                # the user has removed the folder since, with its rows
