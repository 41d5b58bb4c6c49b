"""The contract of a store, and its one implementation over POSIX-like calls.

What is atomic where: ``create_if_absent`` and ``adopt`` are create-if-absent between processes (link(2), which does
not replace), ``replace`` is an atomic rename that does replace. ``tests/storage/conformance.py`` states it as tests.
Called by the driver unless said otherwise. Paths are absolute strings.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from streamsink.storage.calls import Calls


@dataclass(frozen=True)
class FileStatus:
    """One entry of a folder: ``name`` without its folder, ``size`` in bytes (0 for a folder)."""

    name: str
    size: int
    is_dir: bool


class FileIO:
    """Files with durable creation. ``flush=False`` leaves out every fsync, and nothing else."""

    def __init__(self, calls: Calls, new_id: Callable[[], str], flush: bool = True):
        self._calls = calls
        self._new_id = new_id
        self._flush = flush
        self._settled: set[str] = set()  # folders whose own names this process has made durable

    # -- reading ---------------------------------------------------------------------------------------------------

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

    # -- writing ---------------------------------------------------------------------------------------------------

    def make_dir(self, path: str) -> None:
        """The folder exists afterwards, durably, with all its parents."""
        missing = []
        at = path
        while at and self._calls.size(at) is None:
            missing.append(at)
            at = os.path.dirname(at)
        for folder in reversed(missing):
            self._settled.discard(folder)
            self._calls.mkdir(folder)
            self.sync_dir(os.path.dirname(folder))
            self._settled.add(folder)

    def open_output(self, path: str) -> BinaryIO:
        """A new file to write to (executor and driver); its folder must exist. Close it with ``close_output``."""
        return self._calls.open_new(path)

    def close_output(self, stream: BinaryIO) -> None:
        """Close, with everything written on disk. Until the folder is synced the name itself may be lost."""
        self._calls.close(stream, self._flush)

    def write(self, path: str, data: bytes) -> None:
        """A new file of a unique name, flushed; its name is durable after ``sync_dir``. Raises FileExistsError."""
        self._in_dir(path, lambda: self._calls.write_new(path, data, self._flush))

    def mark(self, path: str) -> None:
        """An empty file whose name is the message; fine when it is there. Durable after ``sync_dir``."""
        try:
            self._in_dir(path, lambda: self._calls.write_new(path, b"", False))
        except FileExistsError:
            return

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """Publish ``data`` under ``path``, whole and durable, unless the name is taken: then False.

        After a crash the name is there with all its bytes, or it is not there; a temporary file may be left.
        Raises: OSError; the outcome is then unknown and must be read back.
        """
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, f".{name}.{self._new_id()}.tmp")
        self.write(temporary, data)
        return self.publish(temporary, path)

    def publish(self, temporary: str, path: str) -> bool:
        """Give a written file of the same folder its final name, unless that is taken: then False."""
        won = self._calls.link(temporary, path)
        self._calls.unlink(temporary)
        if won:
            self.sync_dir(os.path.dirname(path))  # after the unlink, so that one sync makes both durable
        return won

    def adopt(self, source: str, target: str, keep_source: bool) -> None:
        """Give a file its final name; ``target``'s name is durable after ``sync_dir``.

        Idempotent: repeated after a crash it ends in the same state. Raises FileNotFoundError when both are missing.
        """
        if self._calls.size(source) is None:
            if self._calls.size(target) is None:
                raise FileNotFoundError(source)
            return
        self._in_dir(target, lambda: self._calls.link(source, target))
        if not keep_source:
            self._calls.unlink(source)

    def replace(self, path: str, data: bytes, unique: str) -> None:
        """Set a small hint file. Not flushed: a reader must do without it. ``unique`` names the temporary file.

        After a crash the hint is the old or the new one; the temporary file may be left.
        """
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, f".{name}.{unique}.tmp")
        self._in_dir(path, lambda: self._calls.write_new(temporary, data, False))
        self._calls.rename(temporary, path)

    def sync_dir(self, path: str) -> None:
        """Names created in this folder so far are durable afterwards, and so is the folder's own path.

        A process may have died between making a folder and syncing its parent; so the first time that this one relies on a
        folder, it syncs the folders above it too.
        """
        if not self._flush:
            return
        self._calls.sync_dir(path)
        parent = os.path.dirname(path)
        while path not in self._settled and parent != path:
            try:
                self._calls.sync_dir(parent)
            except PermissionError:
                return  # not ours: far above the table
            self._settled.add(path)
            path, parent = parent, os.path.dirname(parent)

    # -- deleting --------------------------------------------------------------------------------------------------

    def delete(self, path: str) -> bool:
        """Remove a file; False when there was none. Idempotent."""
        return self._calls.unlink(path)

    def delete_tree(self, path: str) -> list[str]:
        """Remove a folder with all in it; the files that were removed. Idempotent."""
        removed = []
        for entry in self.entries(path):
            child = os.path.join(path, entry.name)
            if entry.is_dir:
                removed += self.delete_tree(child)
            elif self.delete(child):
                removed.append(child)
        self._calls.rmdir(path)
        self._settled.discard(path)
        return removed

    # -- ownership -------------------------------------------------------------------------------------------------

    def try_hold(self, path: str) -> "Callable[[], None] | None":
        """Hold a name exclusively until released or until this process ends; None when another holds it.

        Returns the function that releases it.
        """
        self.make_dir(os.path.dirname(path))
        return self._calls.try_hold(path)

    def _in_dir(self, path, action):
        """Run ``action``; when the folder is missing, make it and run it again."""
        try:
            return action()
        except FileNotFoundError:
            self.make_dir(os.path.dirname(path))
            return action()
