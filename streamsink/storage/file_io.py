"""The contract of a store, and its implementation over POSIX-like calls; a store without link and rename overrides those parts.

What is atomic where: ``create_if_absent`` is create-if-absent between processes and machines, the one way in which
something is published; ``replace`` is an atomic change of a hint. ``tests/storage/test_conformance.py`` states it as tests.
Called by the driver unless said otherwise. Paths are absolute, as text.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from typing import BinaryIO

from streamsink.clock import IdSource
from streamsink.errors import Misuse, OutcomeUnknown
from streamsink.storage.calls import Calls, PosixCalls, PosixLikeCalls
from streamsink.storage.flush_group import FlushGroup, Unflushed
from streamsink.storage.hold import Flock, Hold
from streamsink.storage.reading import Reading

# (store, path, data, what creates it) -> whether it was created; see ``locks/locked_creation.py``.
CreateUnderLock = Callable[["FileIO", str, bytes, Callable[[], bool]], bool]


class FileIO(Reading):
    """Files with durable creation. ``flush=False`` leaves out every fsync, and nothing else.

    atomic_create: whether ``create_new`` keeps its promise between processes without a lock.
    takes_files_of_others: whether files that another program wrote can be looked into and flushed.
    largest_file: bytes of the largest file that ``place`` can give its final name; None without such a limit.
    """

    atomic_create = True
    takes_files_of_others = True
    largest_file: int | None = None
    _under_lock: "CreateUnderLock | None" = None

    def __init__(self, calls: PosixLikeCalls, new_id: Callable[[], str], flush: bool = True):
        super().__init__(calls)
        self._new_id = new_id
        self._flush = flush
        self._settled: set[str] = set()  # folders whose own names this process has made durable
        self._takes_names: set[str] = set()  # folders that ``begin_names`` has looked at

    # -- writing ---------------------------------------------------------------------------------------------------

    def make_dir(self, path: str) -> None:
        """The folder exists afterwards, durably, with all its parents."""
        for folder in self._missing(path):
            self._settled.discard(folder)
            self._calls.mkdir(folder)
            self.sync_dir(os.path.dirname(folder))
            self._settled.add(folder)

    def _missing(self, path: str) -> list[str]:
        """The folders that are to be made so that this one exists, in order."""
        missing = []
        while path and self._calls.size(path) is None:
            missing.append(path)
            path = os.path.dirname(path)
        return missing[::-1]

    def begin_dir(self, path: str) -> None:
        """The folder exists afterwards; it is durable, as are names in it, after ``sync_dir``."""
        self._settled.discard(path)
        self._in_dir(path, lambda: self._calls.mkdir(path))

    def begin_names(self, folder: str, staging: str, group: FlushGroup) -> None:
        """Files of the folder ``staging`` can be placed into ``folder``, which is made; durably, when ``group`` is flushed.

        Looked at once by one FileIO: a folder that is in use costs nothing. Raises OSError, which says what stands in the way.
        """
        if folder in self._takes_names:
            return
        self._begin_names(folder, staging, group)
        self._takes_names.add(folder)

    def _begin_names(self, folder, staging, group):
        for missing in self._missing(folder):
            self._settled.discard(missing)
            self._calls.mkdir(missing)
            group.made_dir(missing)
        self._calls.check_link(staging, folder)

    def settled(self, path: str) -> None:
        """The folder's own name is durable now."""
        self._settled.add(path)

    def open_output(self, path: str) -> BinaryIO:
        """A new file to write to (executor and driver); its folder must exist. Close it with ``close_output``."""
        return self._calls.open_new(path)

    def close_output(self, stream: BinaryIO) -> None:
        """Close, with everything written on disk. Until the folder is synced the name itself may be lost."""
        self.unflushed(stream).finish()

    def flush_file(self, path: str) -> None:
        """The bytes of a file that another process wrote and closed are on disk. Only where ``takes_files_of_others``."""
        self._calls.sync_file(path) if self._flush else None

    def write(self, path: str, data: bytes) -> None:
        """A new file of a unique name, flushed; its name is durable after ``sync_dir``. Raises FileExistsError."""
        self.begin(path, data).finish()

    def flush_group(self) -> FlushGroup:
        """A group of files and folders that are made durable by one wait."""
        return FlushGroup(self)

    def begin(self, path: str, data: bytes) -> Unflushed:
        """A new file of a unique name, not durable yet: for ``FlushGroup``. Raises FileExistsError."""
        stream = self._in_dir(path, lambda: self._calls.open_new(path))
        try:
            stream.write(data)
        except BaseException:
            _close_quietly(stream)
            self._calls.unlink(path)
            raise
        return self.unflushed(stream)

    def unflushed(self, stream: BinaryIO) -> Unflushed:
        """A file that is written and open still."""
        return Unflushed(lambda: self._calls.close(stream, self._flush), lambda: _close_quietly(stream))

    def at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        """Flush, in no order; at the same time where that is faster. Raises the first error, when all have ended."""
        self._calls.at_once(actions) if self._flush else Calls.at_once(self._calls, actions)

    def mark(self, path: str, data: bytes = b"") -> None:
        """A file whose name is the message; fine when it is there. Durable after ``sync_dir``.

        After a crash ``data`` may be missing in part or all.
        """
        try:
            self._in_dir(path, lambda: self._calls.write_new(path, data, False))
        except FileExistsError:
            return

    def create_if_absent(
        self, path: str, data: bytes, unique: str = "", *, prepared: bool = False, replaceable: bool = False
    ) -> bool:
        """Publish ``data`` under ``path``, whole and durable, unless the name is taken: then False. The one publishing primitive.

        As ``create_new``; where that needs a lock, under it. Raises besides: Misuse when there is none.
        """
        if self.atomic_create:
            return self.create_new(path, data, unique, prepared=prepared, replaceable=replaceable)
        if self._under_lock is None:
            raise Misuse(
                f"{path}: this store cannot create a file only when it is absent, so two writers could replace what the other "
                "wrote. Nothing was written. Set the option 'lock', see docs/LOCKS.md",
                kind="lock.missing",
            )
        won = self._under_lock(self, path, data, lambda: self.create_new(path, data, unique, prepared=prepared))
        if prepared and not won:
            self.give_up(path, unique)  # the name was taken before the creation began
        return won

    def use_lock(self, create: "CreateUnderLock") -> None:
        """Let what this store cannot create atomically be created under a lock; see ``locks/locked_creation.py``."""
        self._under_lock = create

    def prepare(self, group: FlushGroup, path: str, data: bytes, unique: str) -> None:
        """What creating ``path`` can do ahead, together with what it will refer to; then it is created with ``prepared``."""
        group.write(_temporary(path, unique), data)

    def give_up(self, path: str, unique: str) -> None:
        """A creation that was prepared is not wanted any more. Idempotent."""
        self._calls.unlink(_temporary(path, unique))

    def create_new(
        self, path: str, data: bytes, unique: str = "", *, prepared: bool = False, replaceable: bool = False
    ) -> bool:
        """The store's own creation; its user holds a lock unless ``atomic_create``.

        unique: known only to this try; whatever a death leaves behind has it in its name. prepared: ``prepare`` was called so, and
        its group flushed. replaceable: others may write over the name. data: the caller's own: equal bytes settle a reply that was lost.
        After a crash the name is there, whole, or it is not. Raises: OSError when it is not there (on a network a late request may
        still put it there, unless another takes the name first); OutcomeUnknown when that could not be read back.
        """
        temporary = _temporary(path, unique or self._new_id())
        if not prepared:
            self.write(temporary, data)
        try:
            if self._give_name(temporary, path):
                return True
            raise FileExistsError(errno.EEXIST, "the name was taken, and is not there any more", path)
        except OSError as failed:
            won = is_there(self, path, data, failed, replaceable)
        if won:
            # What the failed call left undone; when this fails too, the next start finds the file and goes on.
            self._calls.unlink(temporary)
            self.sync_dir(os.path.dirname(path))
        return won

    def _give_name(self, temporary: str, path: str) -> bool:
        """Give a written file of the same folder its final name, unless another file has it: then False. No temporary is left."""
        won = self._calls.link(temporary, path)
        self._calls.unlink(temporary)
        if won:
            self.sync_dir(os.path.dirname(path))  # after the unlink, so that one sync makes both durable
        return won

    def place(self, source: str, target: str, keep_source: bool) -> None:
        """Give a staged file its final name, which is its own; ``target``'s name is durable after ``sync_dir``.

        Whole or not at all. Idempotent: repeated after a crash it ends in the same state. Raises FileNotFoundError when
        both are missing. keep_source: ``source`` must stay; otherwise the store may take it away, or leave it to be swept.
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
        temporary = _temporary(path, unique)
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

    def delete(self, path: str) -> None:
        """Remove a file, when there is one. Idempotent."""
        self._calls.unlink(path)

    def delete_tree(self, path: str) -> None:
        """Remove a folder with all in it. Idempotent."""
        for entry in self.entries(path):
            child = os.path.join(path, entry.name)
            self.delete_tree(child) if entry.is_dir else self.delete(child)
        self._calls.rmdir(path)
        self._settled.discard(path)

    def delete_unfinished(self, folder: str) -> None:
        """Remove below ``folder`` what dead writers never closed, where a listing does not show it."""

    # -- ownership -------------------------------------------------------------------------------------------------

    def hold(self, folder: str) -> Hold:
        """The hold on the application whose journal is in ``folder``; nothing is taken yet."""
        return Flock(lambda: self.try_hold(os.path.join(folder, "hold")))

    def try_hold(self, path: str) -> Callable[[], None] | None:
        """Lock a name between the processes of one machine until released (by calling the result), or until this one ends."""
        self.make_dir(os.path.dirname(path))
        return self._calls.try_hold(path)

    def _in_dir(self, path, action):
        """Run ``action``; when the folder is missing, make it and run it again."""
        try:
            return action()
        except FileNotFoundError:
            self.make_dir(os.path.dirname(path))
            return action()


def is_there(file_io: FileIO, path: str, data: bytes, failed: OSError, replaceable: bool = False) -> bool:
    """Settle an unknown outcome by looking: whether ``path`` holds these bytes. Raises ``failed`` when nothing is there.

    replaceable: others may have written over these bytes, so that other ones settle nothing unless the store said that the name was taken.
    """
    try:
        found = file_io.read(path)
    except FileNotFoundError:
        raise failed from None
    except OSError as unreadable:
        raise OutcomeUnknown(
            f"{path}: creating it failed ({failed.strerror}) and the outcome could not be read back "
            f"({unreadable.strerror}). Nothing was deleted; the next start settles it",
            kind="publish.unknown",
        ) from failed
    if found != data and replaceable and not isinstance(failed, FileExistsError):
        raise OutcomeUnknown(
            f"{path}: creating it failed ({failed.strerror}), and another writer's is there, which may have replaced it. Nothing was "
            "deleted; the next start settles it",
            kind="publish.unknown",
        ) from failed
    return found == data


def _temporary(path: str, unique: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{unique}.tmp")


def _close_quietly(stream: BinaryIO) -> None:
    """What is still buffered may not fit on a full disk."""
    with contextlib.suppress(OSError):
        stream.close()


def local_file_io(flush: bool = True) -> FileIO:
    """FileIO of this machine's file system."""
    return FileIO(PosixCalls(), IdSource().new_id, flush)
