"""The few calls to a store that everything else is made of.

Small on purpose: a crash test wraps one object and so meets every n-th I/O call, and the memory back end
(``memory.py``) has the same calls with a model of what a power failure forgets.
"""

import contextlib
import errno
import functools
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True)
class NameLimits:
    """Most bytes of one name within a path, and of a whole path; None where the store has no such limit.

    uncounted: what a path begins with that the store does not count, such as a scheme and a bucket.
    """

    name: int | None = None
    path: int | None = None
    uncounted: str = ""

    def exceeded_by(self, path: str) -> tuple[int, int] | None:
        """(bytes found, bytes allowed) of what is too long in the path, the name or the path itself; None when all fits."""
        counted = path.removeprefix(self.uncounted)
        longest = max((size_of(name) for name in counted.split("/")), default=0)
        if self.name is not None and longest > self.name:
            return longest, self.name
        if self.path is not None and size_of(counted) > self.path:
            return size_of(counted), self.path
        return None


def size_of(name: str) -> int:
    """Bytes of a name as stores keep it."""
    return len(name.encode("utf-8", "surrogatepass"))


# Threads that flush beside the one that waits for them: the files and folders of one commit.
_FLUSHERS = 4


class Calls(ABC):
    """What every store has."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """All bytes. Raises FileNotFoundError."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Bytes, 0 for a folder, None when there is nothing. A store without folders has nothing there."""

    @abstractmethod
    def entries(self, path: str) -> list[tuple[str, int, bool]]:
        """(name, size, is folder) of each entry; empty when there is no such folder."""

    def names(self, path: str) -> list[str]:
        """Names alone of the entries: a store whose listing does not tell sizes need not ask for them."""
        return [name for name, _, _ in self.entries(path)]

    @abstractmethod
    def open_new(self, path: str) -> BinaryIO:
        """Create a file that must not exist, to write to. Closed by itself it is given up."""

    @abstractmethod
    def close(self, stream: BinaryIO, flush: bool) -> None:
        """Close; with ``flush`` the content is durable."""

    @abstractmethod
    def unlink(self, path: str) -> bool | None:
        """Remove a name; False when there was none, None where the store does not tell."""

    def write_new(self, path: str, data: bytes, flush: bool) -> None:
        """A new file with this content."""
        stream = self.open_new(path)
        try:
            stream.write(data)
        except BaseException:
            self.close(stream, False)
            self.unlink(path)
            raise
        self.close(stream, flush)

    def name_limits(self, path: str) -> NameLimits:
        """How long names below this folder may be, as far as the store tells. The folder need not exist."""
        return NameLimits()

    def at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        """Calls that may be made in any order, or at the same time. Raises the first error, when none is under way any more."""
        for action in actions:
            action()


class PosixLikeCalls(Calls):
    """POSIX semantics: ``link`` does not replace, ``rename`` does; names are durable after ``sync_dir``."""

    @abstractmethod
    def mkdir(self, path: str) -> None:
        """Create one folder; fine when it is there."""

    @abstractmethod
    def link(self, source: str, target: str) -> bool:
        """A second name for a file; False when another file has ``target``. Atomic between processes.

        A client that missed the reply repeats the call, and is refused by its own name: where the store tells that the two names
        are of one file, that is True.
        """

    @abstractmethod
    def check_link(self, source: str, target: str) -> None:
        """Whether files of the folder ``source`` can be linked into the folder ``target``. Raises OSError, which says why not."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Move, replacing ``target``. Atomic."""

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Remove an empty folder; fine when it is not there or not empty."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Names in this folder are durable."""

    @abstractmethod
    def sync_file(self, path: str) -> None:
        """What is in the file now is durable, whichever process wrote it."""

    @abstractmethod
    def open_existing(self, path: str) -> BinaryIO:
        """A file to read from, with ``seek``."""

    @abstractmethod
    def try_hold(self, path: str) -> Callable[[], None] | None:
        """An exclusive hold that ends with the process, or None."""


class PosixCalls(PosixLikeCalls):
    """The real ones, on a local file system."""

    def read(self, path: str) -> bytes:
        with open(path, "rb") as stream:
            return stream.read()

    def size(self, path: str) -> int | None:
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return 0 if stat.S_ISDIR(status.st_mode) else status.st_size

    def entries(self, path: str) -> list[tuple[str, int, bool]]:
        try:
            with os.scandir(path) as entries:
                return [_status(entry) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def names(self, path: str) -> list[str]:
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def mkdir(self, path: str) -> None:
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def open_new(self, path: str) -> BinaryIO:
        return open(path, "xb")

    def close(self, stream: BinaryIO, flush: bool) -> None:
        try:
            stream.flush()
            if flush:
                os.fsync(stream.fileno())
        finally:
            stream.close()

    def link(self, source: str, target: str) -> bool:
        try:
            os.link(source, target)
        except FileExistsError:
            return _is_one_file(source, target)
        return True

    def check_link(self, source: str, target: str) -> None:
        if _mount(source) != _mount(target):
            raise OSError(errno.EXDEV, "on another file system or mount", target)
        if not os.access(target, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> bool | None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def rmdir(self, path: str) -> None:
        try:
            os.rmdir(path)
        except OSError:
            # Not there, or a name was created in it meanwhile: either is fine, the next sweep comes by.
            return

    def sync_dir(self, path: str) -> None:
        _sync(path or ".", os.O_RDONLY | os.O_DIRECTORY)

    def sync_file(self, path: str) -> None:
        _sync(path, os.O_RDONLY)

    def open_existing(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def try_hold(self, path: str) -> Callable[[], None] | None:
        import fcntl  # not on every platform, and only the driver needs it

        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        _HELD.add(descriptor)
        return lambda: _let_go(descriptor)

    def name_limits(self, path: str) -> NameLimits:
        while not os.path.isdir(path) and os.path.dirname(path) != path:
            path = os.path.dirname(path)
        longest = _most(path, "PC_PATH_MAX")
        return NameLimits(
            _most(path, "PC_NAME_MAX"), longest and longest - 1
        )  # the system counts a byte behind its end

    def at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        """In threads: a disk writes several files out in hardly more time than one."""
        with contextlib.ExitStack() as all_ended:
            for action in actions[1:]:
                all_ended.callback(_begin(action))
            for action in actions[:1]:
                action()


@functools.lru_cache(maxsize=1)
def _flushers(process: int) -> ThreadPoolExecutor:
    """``process``: a forked child has no thread of its parent's."""
    return ThreadPoolExecutor(_FLUSHERS, "streamsink-flush")


def _begin(action: Callable[[], None]) -> Callable[[], None]:
    """Let a thread do it; what waits for its end, and raises its error."""
    try:
        return _flushers(os.getpid()).submit(action).result
    except RuntimeError:
        return action  # the interpreter is ending and starts no thread any more: done when it is waited for


def _most(path: str, what: str) -> int | None:
    """A limit of the file system, None where it has none or does not tell."""
    try:
        most = os.pathconf(path, what)
    except (OSError, ValueError):
        return None
    return most if most > 0 else None


def _mount(folder: str) -> tuple[int, str]:
    """Device and, where the system tells, the mount: links do not even cross between two mounts of one device."""
    descriptor = os.open(folder, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        device = os.fstat(descriptor).st_dev
        with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as said:
            return device, next((line for line in said if line.startswith("mnt_id:")), "")
        return device, ""
    finally:
        os.close(descriptor)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_one_file(name: str, other: str) -> bool:
    try:
        return os.path.samefile(name, other)
    except FileNotFoundError:
        return False


def _status(entry: os.DirEntry[str]) -> tuple[str, int, bool]:
    try:
        folder = entry.is_dir(follow_symlinks=False)
        return entry.name, 0 if folder else entry.stat(follow_symlinks=False).st_size, folder
    except FileNotFoundError:
        # Removed between listing and looking: an entry of size 0 that a reader will not find.
        return entry.name, 0, False


# Of this process's own locks. A forked child shares what is open: it would keep them when its parent has let go, or has died.
_HELD: set[int] = set()


def _let_go(descriptor: int) -> None:
    """Nothing in a forked child, which holds none of its parent's locks."""
    if descriptor in _HELD:
        _HELD.discard(descriptor)
        os.close(descriptor)


def _let_go_of_all() -> None:
    for descriptor in list(_HELD):
        _let_go(descriptor)


os.register_at_fork(after_in_child=_let_go_of_all)
