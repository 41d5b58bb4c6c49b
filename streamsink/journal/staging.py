"""The staging folders of one application's journal: which ones a sweep may delete, and which a record may yet name."""

import functools
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from streamsink.journal.announced import READY, Announced, Announcement, Deleting
from streamsink.protocol.committable import Committable
from streamsink.storage.file_io import FileIO

# <epoch>-<sequence>
_NAME = re.compile(r"([0-9]+)-([0-9]+)")


class Staging:
    """The folders ``<epoch>-<sequence>`` below one folder.

    Its methods are called as those of ``Journal`` are: by the thread that records and by the one that publishes.
    """

    def __init__(self, file_io: FileIO, folder: str, table: str, deleting: Deleting | None = None):
        """table: path of the folder that holds the journal. deleting: as of ``Announced``."""
        self._io = file_io
        self._folder = folder
        self._lock = threading.Lock()
        self._attempts = Announced(file_io, table, deleting)
        # By number, the folders that its record may yet name.
        self._left: dict[int, list[str]] = {}
        # Such folders of numbers that this writer has taken.
        self._superseded: list[str] = []
        # By number, the announcement that is the only file in this writer's folder for it; '' where there may be more.
        self._announced: dict[int, str] = {}
        # Numbers whose record this writer need not be asked about; see ``FileJournal.check_before_record``.
        self._unasked: set[int] = set()

    def begin(self, epoch: int, sequence: int) -> str:
        """Create the folder of one checkpoint, and return its path."""
        folder = os.path.join(self._folder, f"{epoch}-{sequence}")
        self._io.begin_dir(folder)
        return folder

    def orphans(
        self, needed: Collection[int], last: int, load: Callable[[int], Committable | None]
    ) -> dict[str, list[str]]:
        """Folders that no record names or can come to name, with the files in each.

        needed: numbers of the records that name their folder.
        last: the newest number that is taken. A record of a later number may come to name a folder that is ready for
        it: that is left until ``take``.
        load: reads the record of a number. It is called only where several epochs have a folder of that number, as
        after a power failure that brought back what the record's own writer had deleted.
        """
        found = [(name, _NAME.fullmatch(name)) for name in self._io.names(self._folder)]
        epochs = {os.path.join(self._folder, name): (int(match[1]), int(match[2])) for name, match in found if match}
        numbers = {folder: number for folder, (_, number) in epochs.items()}
        several = [number for number, folders in Counter(numbers.values()).items() if folders > 1 and number in needed]
        writers = {number: record.state.epoch for number in several if (record := load(number))}
        named = {
            folder
            for folder, (epoch, number) in epochs.items()
            if number in needed and writers.get(number, epoch) == epoch
        }
        below = {folder: self._files_below(folder) for folder in numbers if folder not in named}
        left = [
            folder
            for folder, files in below.items()
            if numbers[folder] > last and (any(map(_is_ready, files)) or self._attempts.may_get_a_record(files))
        ]
        self._left = {
            number: [folder for folder in left if numbers[folder] == number] for number in {numbers[f] for f in left}
        }
        return {folder: files for folder, files in below.items() if folder not in left}

    def announce(self, sequence: int, staging: str, said: Announcement) -> None:
        """Say, before they exist, where files of this number's record come to be that have final names at once.

        Nothing is done when that was just said.
        """
        if self._attempts.has(staging, said):
            return
        path = self._attempts.add(staging, said)
        with self._lock:
            self._announced[sequence] = path if self._announced.get(sequence, path) == path else ""
            self._unasked.discard(sequence) if said.asks else self._unasked.add(sequence)

    def withdraw(self, sequence: int) -> None:
        """Delete this writer's announcement for a number that was never begun; nothing if there is none."""
        with self._lock:
            path = self._announced.pop(sequence, "")
        if path:
            self._io.delete(path)

    def has_more(self, sequence: int, staging: str, said: Announcement | None = None) -> None:
        """The folder of this number may have other files than the one that ``announce`` has put there.

        said: what writers have announced there.
        """
        if said is not None:
            self._attempts.know(staging, said)
        with self._lock:
            self._announced[sequence] = ""

    def is_left_by_all(self, sequence: int) -> bool:
        """Whether nobody deletes what this writer has for the number's record before the number is taken."""
        with self._lock:
            return sequence in self._unasked

    def discard(self, staging: str) -> None:
        """Delete this folder.

        Where it announces files, these are deleted and it stays, because a task that outlives its job may yet write
        such a file. The folder goes when its number's folders are dropped, or with the next start.
        """
        if not self._io.names_at_once:
            self._io.delete_tree(staging)
            return
        files, match = self._files_below(staging), _NAME.fullmatch(os.path.basename(staging))
        self._attempts.sweep(staging, files)
        if match and int(match[2]) in self._announced:
            self.has_more(int(match[2]), staging)
        elif not self._attempts.within(files):
            self._io.delete_tree(staging)

    def remove(self, folders: Collection[str], load: Callable[[int], Committable | None]) -> list[str]:
        """Delete these folders, the files whose places they announce, and those that dead writers never finished.

        load: as in ``orphans``. Returns the paths of the files with final names that were deleted.
        """
        found = [path for folder in folders for path in self._delete(folder, load)]
        self._io.delete_unfinished(self._folder)
        return found

    def take(self, sequence: int) -> None:
        """This writer's record has the number now, so no record will name what others had ready for it."""
        with self._lock:
            self._superseded += self._left.pop(sequence, [])

    def drop(self, sequences: Collection[int], load: Callable[[int], Committable | None]) -> None:
        """Delete the folders of these numbers, of every epoch, and those that ``take`` has settled.

        load: as in ``orphans``; asked where a folder announces files, which stay if they are the record's.
        """
        with self._lock:
            superseded, self._superseded = self._superseded, []
            known = {number: path for number in sequences if (path := self._announced.pop(number, ""))}
            self._unasked.difference_update(sequences)
        for folder in superseded:
            self._delete(folder)
        for path in known.values():
            self._io.delete(path)
            self._attempts.forget(os.path.dirname(path))
        others = set(sequences) - known.keys()
        names = [(name, _NAME.fullmatch(name)) for name in self._io.names(self._folder)] if others else []
        folders = [os.path.join(self._folder, name) for name, found in names if found and int(found[2]) in others]
        deletions: list[Callable[[], Any]] = [functools.partial(self._delete, folder, load) for folder in folders]
        if self._io.is_distant:
            self._io.at_once(deletions)
        else:
            for delete in deletions:
                delete()

    def _delete(self, folder: str, load: Callable[[int], Committable | None] | None = None) -> list[str]:
        """Delete the folder and, before that, the files that it announces. Idempotent. Returns these files.

        load: given where the folder's number may have a record, whose files stay. Where some must stay of which nobody
        knows whether they are needed, the folder stays as well.
        """
        files = self._files_below(folder) if self._io.names_at_once else []
        gone: list[str] | None = []
        if files:
            record = load(int(os.path.basename(folder).partition("-")[2])) if load else None
            gone = self._attempts.sweep(folder, files, record.state.record_id if record else None)
        if gone is None:
            return []
        self._io.delete_tree(folder)
        self._attempts.forget(folder)
        return gone

    def _files_below(self, folder: str) -> list[str]:
        """All files in the folder, and in the folders that Spark's own writer makes there."""
        found: list[str] = []
        for entry in self._io.entries(folder):
            path = os.path.join(folder, entry.name)
            found += self._files_below(path) if entry.is_dir else [path]
        return found


def _is_ready(path: str) -> bool:
    return os.path.basename(path).startswith(READY)
