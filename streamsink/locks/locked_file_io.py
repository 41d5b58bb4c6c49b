"""A store around a store: names are created under the table's lock, and every other call goes to the store itself."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import tenacity

from streamsink.locks.configured import lock_of
from streamsink.locks.lock import Lock
from streamsink.locks.locked_creation import LeaseEnded, create_under
from streamsink.options import LockOptions
from streamsink.storage.calls import NameLimits
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup, Unflushed
from streamsink.storage.hold import Hold
from streamsink.storage.reading import FileStatus, Questions

# The number of leases that may end, one after another, before the creation is given up.
_LEASES = 3


def under_lock(file_io: FileIO, root: str, options: LockOptions) -> FileIO:
    """The store as the table at ``root`` is to be opened with: it creates names under the lock, if it needs one.

    Names are schemas, epochs and records; ``table/commit/publish.py`` takes the lock for snapshots. Without the option
    ``lock`` it is the store as it was, which refuses to create names if it needs a lock.
    """
    lock = lock_of(root, options)
    return file_io if lock.is_empty or file_io.atomic_create else LockedFileIO(file_io, lock)


class LockedFileIO(FileIO):
    """A store that creates names under a lock. Only ``create_if_absent`` differs from the store that it wraps.

    The parts of ``FileIO`` that a store may override call each other, so each public method is handed on as a whole,
    and nothing of ``FileIO`` itself runs here (a test compares the two). Driver only.
    """

    def __init__(self, inner: FileIO, lock: Lock):
        self._inner = inner
        self._lock = lock
        self._turn = threading.Lock()  # one thread at a time uses a lock object, and the journal has two threads
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(LeaseEnded), stop=tenacity.stop_after_attempt(_LEASES), reraise=True
        )
        self.takes_files_of_others = inner.takes_files_of_others
        self.largest_file = inner.largest_file
        self.lists_sizes = inner.lists_sizes
        self.is_distant = inner.is_distant
        self.names_at_once = inner.names_at_once
        self.largest_written = inner.largest_written

    def create_if_absent(
        self, path: str, data: bytes, unique: str = "", *, prepared: bool = False, replaceable: bool = False
    ) -> bool:
        def create() -> bool:
            return self._inner.create_new(path, data, unique, prepared=prepared)

        self._inner.do_waiting()
        with self._turn:
            won = self._retrying(create_under, self._lock, self._inner, path, data, create)
        if prepared and not won:
            self._inner.give_up(path, unique)  # the name was taken before the creation began
        return won

    # -- handed on: reading ----------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes:
        return self._inner.read(path)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def size(self, path: str) -> int | None:
        return self._inner.size(path)

    def asking(self, questions: Questions) -> AbstractContextManager[None]:
        return self._inner.asking(questions)

    def asking_to_keep(self, questions: Questions, *, more: bool = False) -> AbstractContextManager[None]:
        return self._inner.asking_to_keep(questions, more=more)

    def proving(self) -> AbstractContextManager[None]:
        return self._inner.proving()

    def modified_ms(self, path: str) -> int | None:
        return self._inner.modified_ms(path)

    def sweep_probes(self) -> None:
        self._inner.sweep_probes()

    def is_own(self, path: str) -> bool:
        return self._inner.is_own(path)

    def together(self, actions: Sequence[Callable[[], Any]], *, soon: bool = False) -> None:
        self._inner.together(actions, soon=soon)

    def soon(self, action: Callable[[], None]) -> None:
        self._inner.soon(action)

    def do_waiting(self) -> None:
        self._inner.do_waiting()

    def ask_beside(self, action: Callable[[], None], questions: Questions, *, shared: Questions = Questions()) -> None:
        self._inner.ask_beside(action, questions, shared=shared)

    def asked_recently(self, questions: Questions) -> AbstractContextManager[int | None]:
        return self._inner.asked_recently(questions)

    def asking_beside(self, action: Callable[[], None], questions: Questions) -> AbstractContextManager[None]:
        return self._inner.asking_beside(action, questions)

    def known_still(self, questions: Questions, made: tuple[str, bytes], following: str) -> None:
        self._inner.known_still(questions, made, following)

    def entries(self, path: str) -> list[FileStatus]:
        return self._inner.entries(path)

    def names(self, path: str) -> list[str]:
        return self._inner.names(path)

    def files_below(self, path: str) -> list[str]:
        return self._inner.files_below(path)

    def names_beginning(self, path: str, beginning: str) -> list[str]:
        return self._inner.names_beginning(path, beginning)

    def sizes_beginning(self, path: str, beginning: str) -> dict[str, int]:
        return self._inner.sizes_beginning(path, beginning)

    def listed(self, path: str) -> Mapping[str, int | None]:
        return self._inner.listed(path)

    def open_input(self, path: str) -> BinaryIO:
        return self._inner.open_input(path)

    def name_limits(self, path: str) -> NameLimits:
        return self._inner.name_limits(path)

    # -- handed on: folders ----------------------------------------------------------------------------------------

    def make_dir(self, path: str) -> None:
        self._inner.make_dir(path)

    def begin_dir(self, path: str) -> None:
        self._inner.begin_dir(path)

    def begin_names(self, folder: str, staging: str, group: FlushGroup) -> None:
        self._inner.begin_names(folder, staging, group)

    def check_sources(self, paths: Sequence[str]) -> None:
        self._inner.check_sources(paths)

    def settled(self, path: str) -> None:
        self._inner.settled(path)

    def doubt(self, path: str, root: str) -> None:
        self._inner.doubt(path, root)

    def sync_dir(self, path: str) -> None:
        self._inner.sync_dir(path)

    # -- handed on: writing ----------------------------------------------------------------------------------------

    def open_output(self, path: str) -> BinaryIO:
        return self._inner.open_output(path)

    def close_output(self, stream: BinaryIO) -> None:
        self._inner.close_output(stream)

    def flush_file(self, path: str) -> None:
        self._inner.flush_file(path)

    def write(self, path: str, data: bytes) -> None:
        self._inner.write(path, data)

    def flush_group(self) -> FlushGroup:
        return self._inner.flush_group()

    def begin(self, path: str, data: bytes) -> Unflushed:
        return self._inner.begin(path, data)

    def unflushed(self, stream: BinaryIO) -> Unflushed:
        return self._inner.unflushed(stream)

    def at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        self._inner.at_once(actions)

    def mark(self, path: str, data: bytes = b"") -> None:
        self._inner.mark(path, data)

    # -- handed on: publishing -------------------------------------------------------------------------------------

    @property
    def atomic_create(self) -> bool:
        return self._inner.atomic_create

    def prepare(self, group: FlushGroup, path: str, data: bytes, unique: str) -> None:
        self._inner.prepare(group, path, data, unique)

    def give_up(self, path: str, unique: str) -> None:
        self._inner.give_up(path, unique)

    def create_new(
        self, path: str, data: bytes, unique: str = "", *, prepared: bool = False, replaceable: bool = False
    ) -> bool:
        return self._inner.create_new(path, data, unique, prepared=prepared, replaceable=replaceable)

    def place(self, source: str, target: str, keep_source: bool) -> None:
        self._inner.place(source, target, keep_source)

    def replace(self, path: str, data: bytes, unique: str) -> None:
        self._inner.replace(path, data, unique)

    # -- handed on: deleting and ownership -------------------------------------------------------------------------

    def delete(self, path: str) -> None:
        self._inner.delete(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        self._inner.delete_all(paths)

    def delete_tree(self, path: str) -> None:
        self._inner.delete_tree(path)

    def delete_empty_folder(self, path: str) -> None:
        self._inner.delete_empty_folder(path)

    def delete_unfinished(self, folder: str, beginning: str = "") -> None:
        self._inner.delete_unfinished(folder, beginning)

    def hold(self, folder: str) -> Hold:
        return self._inner.hold(folder)

    def try_hold(self, path: str) -> Callable[[], None] | None:
        return self._inner.try_hold(path)
