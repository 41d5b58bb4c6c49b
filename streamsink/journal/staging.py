"""The staging folders of one application's journal: which ones a sweep may delete, and which a record may yet name."""

import functools
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from streamsink.errors import Corrupt
from streamsink.journal.announced import READY, Announced, Announcement, Deleting
from streamsink.protocol.committable import Committable
from streamsink.storage.file_io import FileIO

# What is called before a staging folder is deleted, with the folder and the record of its number, if there is one:
# returns whether the folder may go.
Abandoned = Callable[[str, Committable | None], bool]
# <epoch>-<sequence>
_NAME = re.compile(r"([0-9]+)-([0-9]+)")


class Staging:
    """The folders ``<epoch>-<sequence>`` below one folder.

    Its methods are called as those of ``Journal`` are: by the thread that records and by the one that publishes.
    """

    def __init__(
        self,
        file_io: FileIO,
        folder: str,
        table: str,
        deleting: Deleting | None = None,
        *,
        keeps: bool = False,
        abandoned: Abandoned | None = None,
    ):
        """table: path of the folder that holds the journal. deleting: as of ``Announced``. keeps: whether the folders
        of retained records stay.
        """
        self._abandoned = abandoned
        self._io = file_io
        self._folder = folder
        self._lock = threading.Lock()
        self._attempts = Announced(file_io, table, deleting)
        self._keeps = keeps
        # As of ``look``: the folders, and the files in each where they are few.
        self._names: list[str] | None = None
        self._files: dict[str, list[str]] = {}
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

    def look(self) -> None:
        """List the folders of a distant store together with the journal, for ``orphans``.

        What a driver makes later that is fenced by then is found by the next start.
        """
        if not self._io.is_distant:
            return
        if self._keeps or not self._io.names_at_once:
            self._names = self._io.names(self._folder)
            return
        self._files = {}
        for path in self._io.files_below(self._folder):
            name = path[len(self._folder) + 1 :].partition("/")[0]
            self._files.setdefault(os.path.join(self._folder, name), []).append(path)
        self._names = [os.path.basename(folder) for folder in self._files]

    def end_unfinished(self) -> None:
        """Delete the files that dead writers never finished."""
        self._io.delete_unfinished(self._folder)

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
        names, self._names = self._names, None
        found = [(name, _NAME.fullmatch(name)) for name in self._listed(names)]
        epochs = {os.path.join(self._folder, name): (int(match[1]), int(match[2])) for name, match in found if match}
        numbers = {folder: number for folder, (_, number) in epochs.items()}
        several = [number for number, folders in Counter(numbers.values()).items() if folders > 1 and number in needed]
        writers = {number: record.state.epoch for number in several if (record := load(number))}
        named = {
            folder
            for folder, (epoch, number) in epochs.items()
            if number in needed and writers.get(number, epoch) == epoch
        }
        known, self._files = self._files, {}
        below = {f: known[f] if f in known else self._io.files_below(f) for f in numbers if f not in named}
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
        if not self._may_go(staging, None):
            return
        if not self._io.names_at_once:
            self._io.delete_tree(staging)
            return
        files, match = self._io.files_below(staging), _NAME.fullmatch(os.path.basename(staging))
        self._attempts.sweep(staging, files)
        if match and int(match[2]) in self._announced:
            self.has_more(int(match[2]), staging)
        elif not self._attempts.within(files):
            self._io.delete_tree(staging)

    def remove(self, folders: Collection[str], load: Callable[[int], Committable | None]) -> list[str]:
        """Delete these folders, and the files whose places they announce.

        load: as in ``orphans``. Returns the paths of the files with final names that were deleted.
        """
        return [path for folder in folders for path in self._delete(folder, load)]

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
        self._io.delete_all(list(known.values()))
        for path in known.values():
            self._attempts.forget(os.path.dirname(path))
        others = set(sequences) - known.keys()
        names = [(name, _NAME.fullmatch(name)) for name in self._listed(self._names)] if others else []
        folders = [os.path.join(self._folder, name) for name, found in names if found and int(found[2]) in others]
        known_files = {folder: files for folder in folders if (files := self._files.pop(folder, None))}
        self._delete_known(known_files, load)
        deletions: list[Callable[[], Any]] = [
            functools.partial(self._delete, folder, load) for folder in folders if folder not in known_files
        ]
        self._io.together(deletions)
        if self._names is not None:
            self._names = [name for name in self._names if os.path.join(self._folder, name) not in folders]

    def _delete_known(
        self, found: Mapping[str, Sequence[str]], load: Callable[[int], Committable | None] | None
    ) -> None:
        """As ``_delete``, of folders of which the files are known, all at once. What comes later is left to the next
        start.
        """
        settled = {
            folder: files
            for folder, files in found.items()
            if self._may_go(folder, load) and self._sweep(folder, files, load) is not None
        }
        self._io.delete_all([path for files in settled.values() for path in files])
        for folder in settled:
            self._attempts.forget(folder)

    def _sweep(
        self, folder: str, files: Sequence[str], load: Callable[[int], Committable | None] | None
    ) -> list[str] | None:
        record = load(int(os.path.basename(folder).partition("-")[2])) if load else None
        return self._attempts.sweep(folder, files, record.state.record_id if record else None)

    def _delete(self, folder: str, load: Callable[[int], Committable | None] | None = None) -> list[str]:
        """Delete the folder and, before that, the files that it announces. Idempotent. Returns these files.

        load: given where the folder's number may have a record, whose files stay. Where some must stay of which nobody
        knows whether they are needed, the folder stays as well.
        """
        if not self._may_go(folder, load):
            return []
        files = self._io.files_below(folder) if self._io.names_at_once else []
        gone: list[str] | None = []
        if files:
            gone = self._sweep(folder, files, load)
        if gone is None:
            return []
        self._io.delete_tree(folder)
        self._attempts.forget(folder)
        return gone

    def _may_go(self, folder: str, load: Callable[[int], Committable | None] | None) -> bool:
        """Whether the sink lets the folder go. Where a record cannot be read, it stays."""
        if self._abandoned is None:
            return True
        try:
            record = load(int(os.path.basename(folder).partition("-")[2])) if load else None
        except Corrupt:
            return False
        return self._abandoned(folder, record)

    def _listed(self, names: list[str] | None) -> list[str]:
        return self._io.names(self._folder) if names is None else names


def _is_ready(path: str) -> bool:
    return os.path.basename(path).startswith(READY)
