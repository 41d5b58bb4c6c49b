"""The part of a store's contract that changes nothing. See ``file_io.py``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from streamsink.storage.calls import NameLimits, PosixLikeCalls


@dataclass(frozen=True)
class FileStatus:
    """One entry of a folder: ``name`` without its folder, ``size`` in bytes (0 for a folder)."""

    name: str
    size: int
    is_dir: bool


class Reading:
    """What is there, and how long names may be. lists_sizes: whether the listing of a folder tells the sizes of its files as well."""

    lists_sizes = False

    def __init__(self, calls: PosixLikeCalls):
        self._calls = calls

    def read(self, path: str) -> bytes:
        """All bytes of a file. Raises: FileNotFoundError, OSError."""
        return self._calls.read(path)

    def exists(self, path: str) -> bool:
        """Whether a file or folder has this name."""
        return self._calls.size(path) is not None

    def size(self, path: str) -> int | None:
        """Bytes of the file, or None when there is none."""
        return self._calls.size(path)

    def entries(self, path: str) -> list[FileStatus]:
        """Entries of a folder by name; empty when there is no such folder."""
        return [FileStatus(*entry) for entry in sorted(self._calls.entries(path))]

    def names(self, path: str) -> list[str]:
        """Names of the entries of a folder, in order: cheaper than ``entries`` where the sizes would be asked for one by one."""
        return sorted(self._calls.names(path))

    def listed(self, path: str) -> Mapping[str, int | None]:
        """The names of a folder, each with its size where one listing tells that too; else with None."""
        if not self.lists_sizes:
            return dict.fromkeys(self._calls.names(path))
        return {name: size for name, size, _ in self._calls.entries(path)}

    def open_input(self, path: str) -> BinaryIO:
        """A file to read parts of; close it. Raises: FileNotFoundError, OSError. Only where ``takes_files_of_others``."""
        return self._calls.open_existing(path)

    def name_limits(self, path: str) -> NameLimits:
        """How long names below this folder may be (executor and driver). Asks the operating system, or nobody."""
        return self._calls.name_limits(path)
