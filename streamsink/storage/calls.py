"""The few primitive I/O calls to a store on which everything else is built.

The interface is small on purpose: a crash test wraps one object and can thereby fail at every n-th I/O call, and the
store in memory (``streamsink/testing/memory.py``) has the same calls with a model of what a power failure forgets.
"""

import contextlib
import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from streamsink.storage.flush_group import in_threads


@dataclass(frozen=True)
class NameLimits:
    """The largest size in bytes of one name within a path, and of a whole path; None if the store has no such limit.

    uncounted: the beginning of a path that the store does not count, such as a scheme and a bucket.
    """

    name: int | None = None
    path: int | None = None
    uncounted: str = ""

    def exceeded_by(self, path: str) -> tuple[int, int] | None:
        """Return (bytes found, bytes allowed) if a name in the path, or the whole path, is too long; else None."""
        counted = path.removeprefix(self.uncounted)
        longest = max((size_of(name) for name in counted.split("/")), default=0)
        if self.name is not None and longest > self.name:
            return longest, self.name
        if self.path is not None and size_of(counted) > self.path:
            return size_of(counted), self.path
        return None


def size_of(name: str) -> int:
    """The size of a name in bytes, in the encoding in which stores keep it."""
    return len(name.encode("utf-8", "surrogatepass"))


# Calls that a driver makes to a distant store at one time, besides the one of its own thread.
CALLS_AT_ONCE = 16
_AS_EFFECTIVE = os.access in os.supports_effective_ids
# The errors by which a file system says that it does not have a call.
_NOT_THERE = frozenset((errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP))
# Threads that flush the files and folders of one commit, in addition to the thread that waits for them.
_FLUSHERS = 4


class Calls(ABC):
    """The calls that every store has."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return all bytes of a file. Raises: FileNotFoundError."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """The size in bytes, 0 for a folder, None if the path does not exist.

        In a store without folders the path of a folder does not exist.
        """

    def modified_ms(self, path: str) -> int | None:
        """When the file was written last, in ms since the epoch by the store's clock.

        None where there is no such file, and where the store does not tell it.
        """
        return None

    @abstractmethod
    def entries(self, path: str) -> list[tuple[str, int, bool]]:
        """(name, size in bytes, whether it is a folder) of each entry; empty if there is no such folder."""

    def names(self, path: str) -> list[str]:
        """The names of the entries, so that a store whose listing does not tell sizes need not ask for them."""
        return [name for name, _, _ in self.entries(path)]

    @abstractmethod
    def open_new(self, path: str) -> BinaryIO:
        """Create a file that must not exist yet, and open it for writing.

        A stream that is closed by its own ``close`` instead of ``Calls.close`` is given up.
        """

    @abstractmethod
    def close(self, stream: BinaryIO, flush: bool) -> None:
        """Close a stream of ``open_new``; with ``flush`` the content is durable afterwards."""

    @abstractmethod
    def unlink(self, path: str) -> bool | None:
        """Remove a name. False if it did not exist, None if the store does not tell."""

    def write_new(self, path: str, data: bytes, flush: bool) -> None:
        """Create a new file with this content."""
        stream = self.open_new(path)
        try:
            stream.write(data)
        except BaseException:
            with contextlib.suppress(OSError):  # the error of the write is the one to be seen
                self.close(stream, False)
            with contextlib.suppress(OSError):
                self.unlink(path)
            raise
        self.close(stream, flush)

    def name_limits(self, path: str) -> NameLimits:
        """How long names below this folder may be, as far as the store tells. The folder need not exist."""
        return NameLimits()

    def check_sources(self, paths: Sequence[str]) -> None:
        """Check that these files, which other processes have written, can get another name. Raises: OSError."""

    def at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        """Run actions that may run in any order, or concurrently.

        Raises the first error, after no action is running any more.
        """
        for action in actions:
            action()


class PosixLikeCalls(Calls):
    """Calls with POSIX semantics: ``link`` does not replace, ``rename`` does; names are durable after ``sync_dir``."""

    @abstractmethod
    def mkdir(self, path: str) -> None:
        """Create one folder; does nothing if it exists."""

    @abstractmethod
    def link(self, source: str, target: str) -> bool:
        """Give a file a second name. False if another file has the name ``target``. Atomic between processes.

        A client that missed the reply repeats the call and is refused because of the name that it created itself. If
        the store tells that both names belong to one file, the result is therefore True.
        """

    @abstractmethod
    def check_link(self, source: str, target: str) -> None:
        """Check that files of the folder ``source`` can be linked into the folder ``target``.

        Raises: OSError, which says why not.
        """

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing ``target``. Atomic."""

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Remove an empty folder; does nothing if it does not exist or is not empty."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Make the names in this folder durable."""

    @abstractmethod
    def sync_file(self, path: str) -> None:
        """Make the present content of the file durable, whichever process wrote it."""

    @abstractmethod
    def open_existing(self, path: str) -> BinaryIO:
        """Open a file for reading, with ``seek``."""

    @abstractmethod
    def try_hold(self, path: str) -> Callable[[], None] | None:
        """Take an exclusive lock that ends with the process.

        Returns a function that releases it, or None if another process has it.
        """


class PosixCalls(PosixLikeCalls):
    """The calls of a local file system."""

    def read(self, path: str) -> bytes:
        with open(path, "rb") as stream:
            return stream.read()

    def size(self, path: str) -> int | None:
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return 0 if stat.S_ISDIR(status.st_mode) else status.st_size

    def modified_ms(self, path: str) -> int | None:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except (FileNotFoundError, NotADirectoryError):
            return None

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
        except OSError as failed:
            if _has_no_links(failed, source, target):
                raise OSError(errno.ENOTSUP, "it gives no file a second name (a hard link)", target) from failed
            raise
        return True

    def check_link(self, source: str, target: str) -> None:
        if _mount(source) != _mount(target):
            raise OSError(errno.EXDEV, "on another file system or mount", target)
        if not os.access(target, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)

    def check_sources(self, paths: Sequence[str]) -> None:
        for path in paths:
            # Linux may give no name to a file of another user that this one may not write (fs.protected_hardlinks).
            is_own = os.stat(path).st_uid == os.geteuid()
            if not is_own and not os.access(path, os.R_OK | os.W_OK, effective_ids=_AS_EFFECTIVE):
                tried = f"{path}.tried"
                os.link(path, tried)
                os.unlink(tried)

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
            # The folder does not exist, or a name was created in it meanwhile. Either is fine: the next sweep tries
            # again.
            return

    def sync_dir(self, path: str) -> None:
        _sync(path or ".", os.O_RDONLY | os.O_DIRECTORY)

    def sync_file(self, path: str) -> None:
        _sync(path, os.O_RDONLY)

    def open_existing(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def try_hold(self, path: str) -> Callable[[], None] | None:
        import fcntl  # it does not exist on every platform, and only the driver needs it

        # as every other file, by the umask: in a folder that a group shares, another member may restart the query
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failed:
            os.close(descriptor)
            if isinstance(failed, BlockingIOError):
                return None
            if failed.errno in _NOT_THERE:
                raise OSError(errno.ENOTSUP, "it has no locks of files (flock)", path) from failed
            raise
        _HELD.add(descriptor)
        return lambda: _let_go(descriptor)

    def name_limits(self, path: str) -> NameLimits:
        while not os.path.isdir(path) and os.path.dirname(path) != path:
            path = os.path.dirname(path)
        longest = _most(path, "PC_PATH_MAX")
        # The system's limit of a path includes the zero byte at its end.
        return NameLimits(_most(path, "PC_NAME_MAX"), longest and longest - 1)

    def at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        """Run the actions in threads: a disk flushes several files in hardly more time than one."""
        in_threads(actions, _FLUSHERS)


def _most(path: str, what: str) -> int | None:
    """A limit of the file system; None if it has none or does not tell."""
    try:
        most = os.pathconf(path, what)
    except (OSError, ValueError):
        return None
    return most if most > 0 else None


def _mount(folder: str) -> tuple[int, str]:
    """The device and, if the system tells it, the mount: links do not even cross between two mounts of one device."""
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


def _has_no_links(failed: OSError, source: str, target: str) -> bool:
    """Whether this error of ``link`` says that the file system has none.

    Some say so as if it were not permitted, which Linux says too of a file or folder that this user may not write.
    """
    if failed.errno != errno.EPERM:
        return failed.errno in _NOT_THERE
    return os.access(source, os.R_OK | os.W_OK) and os.access(os.path.dirname(target), os.W_OK | os.X_OK)


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
        # The file was removed after it had been listed: it becomes an entry of size 0, which a reader will not find.
        return entry.name, 0, False


# Open files of the locks that this process holds. A forked child shares open files: it would keep the locks after its
# parent has released them or has died.
_HELD: set[int] = set()


def _let_go(descriptor: int) -> None:
    """Release a lock. Does nothing in a forked child, which holds none of its parent's locks."""
    if descriptor in _HELD:
        _HELD.discard(descriptor)
        os.close(descriptor)


def _let_go_of_all() -> None:
    for descriptor in list(_HELD):
        _let_go(descriptor)


os.register_at_fork(after_in_child=_let_go_of_all)
