"""The staging folders of one application's journal: which ones a sweep may delete, and which a record may yet name."""

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection

from streamsink.protocol.committable import Committable
from streamsink.storage.file_io import FileIO

# <epoch>-<sequence>
_NAME = re.compile(r"([0-9]+)-([0-9]+)")
# The file that is staged last begins with this; see ``Journal.staging``.
_READY = "manifest-"


class Staging:
    """The folders ``<epoch>-<sequence>`` below one folder.

    Its methods are called as those of ``Journal`` are: by the thread that records and by the one that publishes.
    """

    def __init__(self, file_io: FileIO, folder: str):
        self._io = file_io
        self._folder = folder
        self._lock = threading.Lock()
        # By number, the folders that its record may yet name.
        self._left: dict[int, list[str]] = {}
        # Such folders of numbers that this writer has taken.
        self._superseded: list[str] = []

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
        left = [folder for folder, files in below.items() if numbers[folder] > last and any(map(_is_ready, files))]
        self._left = {
            number: [folder for folder in left if numbers[folder] == number] for number in {numbers[f] for f in left}
        }
        return {folder: files for folder, files in below.items() if folder not in left}

    def remove(self, folders: Collection[str]) -> None:
        """Delete these folders, and the files that dead writers never finished."""
        for folder in folders:
            self._io.delete_tree(folder)
        self._io.delete_unfinished(self._folder)

    def take(self, sequence: int) -> None:
        """This writer's record has the number now, so no record will name what others had ready for it."""
        with self._lock:
            self._superseded += self._left.pop(sequence, [])

    def drop(self, sequences: Collection[int]) -> None:
        """Delete the folders of these numbers, of every epoch, and those that ``take`` has settled."""
        with self._lock:
            superseded, self._superseded = self._superseded, []
        for folder in superseded:
            self._io.delete_tree(folder)
        for name in self._io.names(self._folder) if sequences else ():
            found = _NAME.fullmatch(name)
            if found and int(found[2]) in sequences:
                self._io.delete_tree(os.path.join(self._folder, name))

    def _files_below(self, folder: str) -> list[str]:
        """All files in the folder, and in the folders that Spark's own writer makes there."""
        found: list[str] = []
        for entry in self._io.entries(folder):
            path = os.path.join(folder, entry.name)
            found += self._files_below(path) if entry.is_dir else [path]
        return found


def _is_ready(path: str) -> bool:
    return os.path.basename(path).startswith(_READY)
