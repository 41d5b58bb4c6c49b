"""A store in memory with a model of a power failure: what was not flushed is lost.

It is made for crash tests that run thousands of times a minute, and passes the same conformance suite as the local back
end.
"""

import errno
import functools
import io
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, cast

from streamsink.clock import Clock
from streamsink.storage.calls import NameLimits, PosixLikeCalls

if TYPE_CHECKING:
    from typing_extensions import Buffer  # of the standard library only since Python 3.12

# Cached, because each listing asks for the folder of every name in the store.
_folder_of = functools.lru_cache(maxsize=10_000)(os.path.dirname)
# The limit of one name, as on most disks.
_MOST_NAME_BYTES = 255
# Threads of one process may write at the same time, as those of pyiceberg do; of all stores, as stores are copied.
_SYNCING = threading.Lock()


class _File:
    """Content that all names (hard links) of one file share. ``durable`` is what a power failure leaves."""

    def __init__(self) -> None:
        self.data = b""
        self.durable = b""
        self.modified_ms = Clock().now_ms()

    def __deepcopy__(self, memo: dict[int, object]) -> "_File":
        """As ``copy.deepcopy`` does it, in a tenth of the time: crash tests copy a store for each state of it."""
        made = _File.__new__(_File)
        made.data, made.durable, made.modified_ms = self.data, self.durable, self.modified_ms
        return made


class _Stream(io.BytesIO):
    def __init__(self, file: _File):
        super().__init__()
        self.file = file

    def write(self, data: "Buffer") -> int:
        written = super().write(data)
        self.file.data = self.getvalue()
        return written


class MemoryCalls(PosixLikeCalls):
    """Names and folders in dictionaries. ``power_failure()`` keeps only what was flushed and synced."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._dirs: set[str] = {"/"}
        self._durable_dirs: set[str] = {"/"}
        self._held: set[str] = set()

    def power_failure(self) -> None:
        """Forget every name and byte that was not made durable, and end every hold."""
        self._dirs = set(self._durable_dirs)
        self._names = {p: f for p, f in self._durable_names.items() if _folder_of(p) in self._dirs}
        for file in self._names.values():
            file.data = file.durable
        self.process_death()

    def process_death(self) -> None:
        """End every hold, because holds end with their process."""
        self._held.clear()

    def read(self, path: str) -> bytes:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self._names[path].data

    def size(self, path: str) -> int | None:
        if path in self._dirs:
            return 0
        return len(self._names[path].data) if path in self._names else None

    def modified_ms(self, path: str) -> int | None:
        return self._names[path].modified_ms if path in self._names else None

    def entries(self, path: str) -> list[tuple[str, int, bool]]:
        found = [
            (os.path.basename(p), len(f.data), False) for p, f in list(self._names.items()) if _folder_of(p) == path
        ]
        return found + [(os.path.basename(d), 0, True) for d in list(self._dirs) if d != "/" and _folder_of(d) == path]

    def mkdir(self, path: str) -> None:
        if path in self._names:
            raise FileExistsError(errno.EEXIST, "is a file", path)
        self._need_parent(path)
        self._dirs.add(path)

    def open_new(self, path: str) -> BinaryIO:
        self._need_parent(path)
        if path in self._names or path in self._dirs:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        self._names[path] = _File()
        return _Stream(self._names[path])

    def close(self, stream: BinaryIO, flush: bool) -> None:
        if flush:
            file = cast(_Stream, stream).file
            file.durable = file.data
        stream.close()

    def link(self, source: str, target: str) -> bool:
        self._need_parent(target)
        if source not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if target in self._names:
            return self._names[target] is self._names[source]
        self._names[target] = self._names[source]
        return True

    def check_link(self, source: str, target: str) -> None:
        if target not in self._dirs and target not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such folder", target)
        if target not in self._dirs:
            raise NotADirectoryError(errno.ENOTDIR, "no folder", target)

    def rename(self, source: str, target: str) -> None:
        self._need_parent(target)
        if source not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._names[target] = self._names.pop(source)

    def unlink(self, path: str) -> bool | None:
        return self._names.pop(path, None) is not None

    def rmdir(self, path: str) -> None:
        if not self.entries(path):
            self._dirs.discard(path)

    def sync_dir(self, path: str) -> None:
        if path not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        with _SYNCING:
            elsewhere = {n: f for n, f in self._durable_names.items() if _folder_of(n) != path}
            self._durable_names = elsewhere | {n: f for n, f in list(self._names.items()) if _folder_of(n) == path}
            children = {d for d in list(self._dirs) if _folder_of(d) == path}
            gone = {d for d in self._durable_dirs if _folder_of(d) == path and d != "/"} - children
            left = {d for d in self._durable_dirs if not any(f"{d}/".startswith(f"{each}/") for each in gone)}
            self._durable_dirs = left | children

    def sync_file(self, path: str) -> None:
        file = self._names[path]
        file.durable = file.data

    def open_existing(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def name_limits(self, path: str) -> NameLimits:
        return NameLimits(_MOST_NAME_BYTES)

    def try_hold(self, path: str) -> Callable[[], None] | None:
        if path in self._held:
            return None
        self._held.add(path)
        return lambda: self._held.discard(path)

    def _need_parent(self, path: str) -> None:
        if len(os.path.basename(path).encode()) > _MOST_NAME_BYTES:
            raise OSError(errno.ENAMETOOLONG, "file name too long", path)
        if _folder_of(path) not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, "no such folder", _folder_of(path))
