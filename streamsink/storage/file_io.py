"""The contract of a store, and its implementation over POSIX-like calls.

A store without link and rename overrides the parts that need them. Two calls are atomic: ``create_if_absent`` creates a
name only when it is absent, between processes and machines, and is the one way in which something is published;
``replace`` changes a hint file. ``tests/storage/test_conformance.py`` states the contract as tests.
The driver makes these calls unless a method says otherwise. Paths are absolute, as text.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

from streamsink.clock import IdSource
from streamsink.errors import Misuse, OutcomeUnknown
from streamsink.storage.calls import Calls, PosixCalls, PosixLikeCalls
from streamsink.storage.flush_group import FlushGroup, Unflushed
from streamsink.storage.folders import Folders
from streamsink.storage.hold import Flock, Hold
from streamsink.storage.reading import AskedAhead, FileStatus, Questions


class FileIO(Folders):
    """Files with durable creation. ``flush=False`` omits every fsync and changes nothing else.

    takes_files_of_others: whether files that another program wrote can be read in parts and flushed.
    largest_file: size in bytes of the largest file that ``place`` can give its final name; None if there is no limit.
    names_at_once: whether ``place`` copies, so that a file had better get its final name when it is written.
    largest_written: size in bytes of the largest file that can be written; None if there is no limit.
    """

    takes_files_of_others = True
    largest_file: int | None = None
    names_at_once = False
    largest_written: int | None = None

    def __init__(self, calls: PosixLikeCalls, new_id: Callable[[], str], flush: bool = True):
        super().__init__(calls, flush)
        self._new_id = new_id

    @property
    def atomic_create(self) -> bool:
        """Whether ``create_new`` keeps its promise between processes without a lock."""
        return True

    def sweep_probes(self) -> None:
        """Delete what dead processes have left that tried the store out, below a path that is no table.

        Called by a start, and before it looks at the path where what is left would be in the way. One that is being
        tried out meanwhile is tried once more. Here nothing is tried out. Idempotent.
        """

    def modified_ms(self, path: str) -> int | None:
        """When the file was written last, in ms since the epoch by the store's clock; None where nothing tells it."""
        return self._calls.modified_ms(path)

    # -- writing ---------------------------------------------------------------------------------------------------

    def open_output(self, path: str) -> BinaryIO:
        """Create a file to write to, in a folder that exists. Used by executors and the driver.

        Close it with ``close_output``.
        """
        return self._calls.open_new(path)

    def close_output(self, stream: BinaryIO) -> None:
        """Close the file and make its bytes durable. Its name may still be lost until the folder is synced."""
        self.unflushed(stream).finish()

    def flush_file(self, path: str) -> None:
        """Make durable a file that another process wrote and closed. Only where ``takes_files_of_others``."""
        self._calls.sync_file(path) if self._flush else None

    def write(self, path: str, data: bytes) -> None:
        """Write and flush a new file of a unique name.

        The name is durable after ``sync_dir``. Raises: FileExistsError.
        """
        self.begin(path, data).finish()

    def flush_group(self) -> FlushGroup:
        """A group of files and folders that become durable with a single wait."""
        return FlushGroup(self)

    def begin(self, path: str, data: bytes) -> Unflushed:
        """Write a new file of a unique name that is not durable yet, for ``FlushGroup``. Raises: FileExistsError."""
        stream = self._in_dir(path, lambda: self._calls.open_new(path))
        try:
            stream.write(data)
        except BaseException:
            _close_quietly(stream)
            with contextlib.suppress(OSError):  # the error of the write is the one to be seen
                self._calls.unlink(path)
            raise
        return self.unflushed(stream)

    def unflushed(self, stream: BinaryIO) -> Unflushed:
        """Wrap a file that is completely written and still open."""
        return Unflushed(lambda: self._calls.close(stream, self._flush), lambda: _close_quietly(stream))

    def at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        """Run these flushes in any order, concurrently where that is faster.

        Raises the first error, after all of them have ended.
        """
        self._calls.at_once(actions) if self._flush else Calls.at_once(self._calls, actions)

    def mark(self, path: str, data: bytes = b"") -> None:
        """Create a file whose name is the message; does nothing if it exists. The name is durable after ``sync_dir``.

        After a crash ``data`` may be missing in part or completely.
        """
        try:
            self._in_dir(path, lambda: self._calls.write_new(path, data, False))
        except FileExistsError:
            return

    # -- publishing ------------------------------------------------------------------------------------------------

    def create_if_absent(
        self, path: str, data: bytes, unique: str = "", *, prepared: bool = False, replaceable: bool = False
    ) -> bool:
        """Create ``path`` with ``data``, whole and durable, unless the name is taken: then False.

        This is the one primitive with which something is published. Arguments, result and errors are those of
        ``create_new``, which it calls. Also raises: Misuse if the store needs a lock. The one that takes it is around
        the store: ``locks/locked_file_io.py``.
        """
        if not self.atomic_create:
            raise Misuse(
                f"{path}: this store cannot create a file only when it is absent, so two writers could replace what "
                "the other wrote. Nothing was written. Set the option 'lock' where this is one Paimon table; for all "
                "else see docs/LOCKS.md",
                kind="lock.missing",
            )
        return self.create_new(path, data, unique, prepared=prepared, replaceable=replaceable)

    def prepare(self, group: FlushGroup, path: str, data: bytes, unique: str) -> None:
        """Do ahead a part of creating ``path``: write a temporary file that becomes durable with ``group``.

        So one flush covers it and the files that it will refer to. The creation that follows is called with
        ``prepared``.
        """
        group.write(_temporary(path, unique), data)

    def give_up(self, path: str, unique: str) -> None:
        """Remove what ``prepare`` wrote for a creation that will not happen. Idempotent."""
        self._calls.unlink(_temporary(path, unique))

    def create_new(
        self, path: str, data: bytes, unique: str = "", *, prepared: bool = False, replaceable: bool = False
    ) -> bool:
        """The store's own way to create ``path`` with ``data``; unless ``atomic_create``, the caller holds a lock.

        Returns False if the name is taken.

        unique: an id that only this attempt knows; whatever a crash leaves behind has it in its name.
        prepared: ``prepare`` was called with the same arguments, and its group has been flushed.
        replaceable: other writers may overwrite the name.
        data: bytes that no other writer would write, because equal bytes settle the outcome when a reply was lost.

        After a crash the name exists with all its bytes, or it does not exist. Raises: OSError if it does not exist (on
        a network a late request may still create it, unless another writer takes the name first); OutcomeUnknown if
        that could not be read back.
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
            # Complete what the failed call left undone. If this fails too, the next start finds the file and goes on.
            self._calls.unlink(temporary)
            self.sync_dir(os.path.dirname(path))
        return won

    def _give_name(self, temporary: str, path: str) -> bool:
        """Give a written file of the same folder its final name, unless another file has it: then False.

        The temporary name is gone afterwards in both cases.
        """
        won = self._calls.link(temporary, path)
        self._calls.unlink(temporary)
        if won:
            self.sync_dir(os.path.dirname(path))  # after the unlink, so that one sync makes both durable
        return won

    def place(self, source: str, target: str, keep_source: bool) -> None:
        """Give a staged file its final name, which no other file has; the name is durable after ``sync_dir``.

        The target appears whole or not at all. Idempotent: a repetition after a crash ends in the same state.
        keep_source: ``source`` must stay; otherwise the store may remove it, or leave it for a sweep.
        Raises: FileNotFoundError if both names are missing.
        """
        if self._calls.size(source) is None:
            if self._calls.size(target) is None:
                raise FileNotFoundError(source)
            return
        self._in_dir(target, lambda: self._calls.link(source, target))
        if not keep_source:
            self._calls.unlink(source)

    def replace(self, path: str, data: bytes, unique: str) -> None:
        """Set a small hint file.

        It is not flushed, so readers must work without it. ``unique`` names the temporary file.

        After a crash the hint is the old or the new one, and the temporary file may be left.
        """
        temporary = _temporary(path, unique)
        self._in_dir(path, lambda: self._calls.write_new(temporary, data, False))
        try:
            self._calls.rename(temporary, path)
        except FileNotFoundError:
            # A client that missed the reply repeats the call, and finds that it was done.
            if self._calls.size(path) != len(data) or self._calls.read(path) != data:
                raise

    # -- deleting --------------------------------------------------------------------------------------------------

    def delete(self, path: str) -> None:
        """Remove a file if it exists. Idempotent."""
        self._calls.unlink(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove these files, as far as they exist, in this order or at once. Idempotent."""
        for path in paths:
            self.delete(path)

    def delete_tree(self, path: str) -> None:
        """Remove a folder with everything in it. Idempotent."""
        for entry in self.entries(path):
            child = os.path.join(path, entry.name)
            self.delete_tree(child) if entry.is_dir else self.delete(child)
        self._calls.rmdir(path)
        self._settled.discard(path)

    def delete_empty_folder(self, path: str) -> None:
        """Remove a folder in which nothing is; does nothing to any other one, nor in a store without folders.

        Idempotent. Who is about to create a name in it makes it again.
        """
        self._calls.rmdir(path)
        self._settled.discard(path)
        self._takes_names.discard(path)

    def delete_unfinished(self, folder: str, beginning: str = "") -> None:
        """Remove below ``folder`` what dead writers never closed, in a store whose listings do not show such files.

        beginning: of the paths below ``folder``.
        """

    # -- ownership -------------------------------------------------------------------------------------------------

    def hold(self, folder: str) -> Hold:
        """The hold on the application whose journal is in ``folder``. It is not taken yet."""
        return Flock(lambda: self.try_hold(os.path.join(folder, "hold")))

    def try_hold(self, path: str) -> Callable[[], None] | None:
        """Lock a name between the processes of one machine. Returns a function that releases it; None if it is locked.

        The lock also ends with this process.
        """
        self.make_dir(os.path.dirname(path))
        return self._calls.try_hold(path)


class DistantFileIO(FileIO):
    """FileIO of a store behind a network, whose files are asked about ahead, several at once."""

    is_distant = True

    def __init__(self, calls: PosixLikeCalls, new_id: Callable[[], str], flush: bool = True):
        super().__init__(calls, new_id, flush)
        self._ahead = AskedAhead(calls.read, calls.size, calls.entries, calls.at_once)

    def asking(self, questions: Questions) -> AbstractContextManager[None]:
        return self._ahead.asking(questions)

    def asking_to_keep(self, questions: Questions, *, more: bool = False) -> AbstractContextManager[None]:
        return self._ahead.keeping(questions, more=more)

    def together(self, actions: Sequence[Callable[[], Any]], *, soon: bool = False) -> None:
        self._ahead.together(actions, soon=soon)

    def soon(self, action: Callable[[], None]) -> None:
        self._ahead.soon(action)

    def do_waiting(self) -> None:
        self._ahead.do_waiting()

    def ask_beside(self, action: Callable[[], None], questions: Questions, *, shared: Questions = Questions()) -> None:
        self._ahead.beside(action, questions, shared=shared)

    def asked_recently(self, questions: Questions) -> AbstractContextManager[int | None]:
        return self._ahead.recent(questions)

    def asking_beside(self, action: Callable[[], None], questions: Questions) -> AbstractContextManager[None]:
        return self._ahead.within_beside(action, questions)

    def known_still(self, questions: Questions, made: tuple[str, bytes], following: str) -> None:
        self._ahead.known_still(questions, made, following)

    def read(self, path: str) -> bytes:
        return self._ahead.read(path)

    def size(self, path: str) -> int | None:
        return self._ahead.size(path)

    def exists(self, path: str) -> bool:
        return self.size(path) is not None

    def entries(self, path: str) -> list[FileStatus]:
        return [FileStatus(*entry) for entry in sorted(self._ahead.entries(path))]

    def names(self, path: str) -> list[str]:
        return sorted(name for name, _, _ in self._ahead.entries(path))

    def listed(self, path: str) -> Mapping[str, int | None]:
        return {name: size if self.lists_sizes else None for name, size, _ in self._ahead.entries(path)}

    def create_if_absent(
        self, path: str, data: bytes, unique: str = "", *, prepared: bool = False, replaceable: bool = False
    ) -> bool:
        self.do_waiting()
        return super().create_if_absent(path, data, unique, prepared=prepared, replaceable=replaceable)


def is_there(file_io: FileIO, path: str, data: bytes, failed: OSError, replaceable: bool = False) -> bool:
    """Settle an unknown outcome by reading: whether ``path`` holds these bytes.

    replaceable: other writers may have overwritten these bytes; then other bytes settle nothing, unless ``failed`` is
    the store's answer that the name was taken. Raises: ``failed`` if nothing is there; OutcomeUnknown if nothing is
    settled.
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
            f"{path}: creating it failed ({failed.strerror}), and another writer's is there, which may have replaced "
            "it. Nothing was deleted; the next start settles it",
            kind="publish.unknown",
        ) from failed
    return found == data


def _temporary(path: str, unique: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{unique}.tmp")


def _close_quietly(stream: BinaryIO) -> None:
    """Close without an error: on a full disk, closing fails if bytes that are still buffered do not fit."""
    with contextlib.suppress(OSError):
        stream.close()


def local_file_io(flush: bool = True) -> FileIO:
    """FileIO of this machine's file system."""
    return FileIO(PosixCalls(), IdSource().new_id, flush)
