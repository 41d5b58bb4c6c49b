"""The machine's store in memory, with processes that may die or be paused, copies of folders, and a time of its own."""

import contextlib
import errno
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from streamsink.clock import Clock, IdSource
from streamsink.storage.calls import Calls
from streamsink.storage.file_io import FileIO
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls, _File

# Path -> bytes of each file of a copied folder; folders have None.
Copy = dict[str, bytes | None]


class Store(MemoryCalls):
    """The store in memory. Holds belong to the process that took them.

    beginning: of every path. writes_few: drivers are said to write few rows. forgets: what was not flushed is lost with
    the power.
    """

    beginning = ""
    writes_few = False
    forgets = True

    def __init__(self):
        super().__init__()
        self._owners: dict[str, object] = {}
        self.said: list | None = None  # Every call of every process, for those who compare two walks.

    def io(self, calls: Calls, root: str) -> FileIO:
        """The I/O of somebody who makes these calls. root: the folder of his table, or of his tables."""
        return FileIO(calls, IdSource().new_id)

    def in_any_order(self, actions: Sequence[Callable[[], None]], count: int) -> None:
        """Make calls that may be made at once. count: how many their process has made so far."""
        Calls.at_once(self, actions)

    def beside(self, io: FileIO) -> AbstractContextManager[None]:
        """Within it, the I/O is that of another thread of its process."""
        return contextlib.nullcontext()

    def put_over(self, path: str, data: bytes, unique: str) -> None:
        """Give a file this name, whatever has it by now."""
        folder, _, name = path.rpartition("/")
        self.io(self, folder).write(hidden := f"{folder}/.{unique}.tmp", data)
        self.rename(hidden, path)
        self.sync_dir(folder)

    def hold_for(self, path: str, process: object) -> Callable[[], None] | None:
        if self._owners.setdefault(path, process) is not process:
            return None
        return lambda: self._release(path, process)

    def _release(self, path: str, process: object) -> None:
        if self._owners.get(path) is process:
            del self._owners[path]

    def process_death(self) -> None:
        """All processes die."""
        self._owners.clear()

    def end_process(self, process: object) -> None:
        self._owners = {path: owner for path, owner in self._owners.items() if owner is not process}

    # -- an operator's commands: cp -r, rm -r ------------------------------------------------------------------------

    def copy_of(self, folder: str) -> Copy:
        """A copy of a folder, without what a driver may be writing at this moment:
        hidden files, and files that are not flushed."""
        found: Copy = {path: None for path in self._dirs if self._is_below(path, folder)}
        files = {path: file for path, file in self._names.items() if self._is_below(path, folder) and "/." not in path}
        return found | {path: file.data for path, file in files.items() if file.durable == file.data}

    def records_in(self, copy: Copy, application: str) -> dict[int, bytes]:
        """Of a copy of a table's folder, the records of this application's journal by number."""
        found = {path: re.search(rf"/streamsink/{re.escape(application)}/record-(\d+)\.json$", path) for path in copy}
        return {int(match[1]): copy[path] for path, match in found.items() if match}

    def remove(self, folder: str, keep: str = "") -> None:
        """Remove a folder. keep: a folder below it that stays, with what is in it and the folders above it."""

        def doomed(path: str) -> bool:
            return self._is_below(path, folder) and not (
                keep and (self._is_below(path, keep) or self._is_below(keep, path))
            )

        for names in (self._names, self._durable_names):
            for path in [path for path in names if doomed(path)]:
                del names[path]
        for folders in (self._dirs, self._durable_dirs):
            folders.difference_update([path for path in folders if doomed(path)])

    def remove_files(self, folder: str, begin: str) -> None:
        """Remove those files of the folder whose names begin with this."""
        for path in [path for path in self._names if path.startswith(f"{folder}/{begin}")]:
            self.remove(path)

    def put_back(self, folder: str, copy: Copy, keep: str = "") -> None:
        """Let the copy take the folder's place, durably.
        keep: as in ``remove``; what the copy has below it is left out."""
        self.remove(folder, keep)
        at = folder
        while at not in self._dirs:
            for folders in (self._dirs, self._durable_dirs):
                folders.add(at)
            at = at.rpartition("/")[0] or "/"
        for path, data in copy.items():
            if keep and self._is_below(path, keep):
                continue
            if data is None:
                self._dirs.add(path)
                self._durable_dirs.add(path)
            else:
                file = _File()
                file.data = file.durable = data
                self._names[path] = self._durable_names[path] = file

    @staticmethod
    def _is_below(path: str, folder: str) -> bool:
        return path == folder or path.startswith(folder + "/")


class Process(CrashingCalls):
    """The I/O of one driver. It may die, fail or be paused at a call that is chosen ahead.
    has_erred: whether it has failed before."""

    def __init__(self, store: Store, root: str):
        """root: the folder of its table, or of its tables."""
        super().__init__(store)
        self._store = store
        self.has_erred = False
        self._turn = 0
        self._pause: tuple[int, Callable[[], None]] | None = None
        self._is_awake = False
        self.io = store.io(self, root)

    def fail_in(self, calls: int, mode: Mode) -> None:
        """Let the n-th call from now go wrong."""
        self._at, self._mode = self.count + calls, mode

    def pause_in(self, calls: int, meanwhile: Callable[[], None]) -> None:
        self._pause = (self._turn + calls, meanwhile)

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Within it, it is not paused, because it holds what everybody else would wait for; it is paused behind it."""
        self._is_awake = True
        try:
            yield
        finally:
            self._is_awake = False

    def calm(self) -> None:
        """What was chosen and has not come about will not."""
        self._at, self._pause = 0, None

    def die(self) -> None:
        self.dead = True
        self._store.end_process(self)

    def at_once(self, actions):
        self._store.in_any_order(actions, self.count)

    def beside(self) -> AbstractContextManager[None]:
        """Within it, another thread of this process is at work."""
        return self._store.beside(self.io)

    def writes_few(self) -> bool:
        """Whether it is said to write few rows."""
        return self._store.writes_few

    def try_hold(self, path):
        return self._do("hold", lambda: self._store.hold_for(path, self))

    def _do(self, name, action, torn=None):
        self._turn += 1
        if self._pause is not None and self._turn >= self._pause[0] and not self._is_awake:
            meanwhile, self._pause = self._pause[1], None
            meanwhile()
        if self._store.said is not None:
            self._store.said.append(name)
        try:
            return super()._do(name, action, torn)
        except InjectedCrash:
            self.die()
            raise
        except OSError as failed:
            self.has_erred |= failed.errno == errno.EIO
            raise


class Time:
    """A time in which a millisecond passes from one look to the next.
    passes_asleep: whether it passes while somebody waits."""

    def __init__(self):
        self._now_ms = 1_700_000_000_000
        self.passes_asleep = False

    def look(self) -> int:
        self._now_ms += 1
        return self._now_ms

    def pass_by(self, milliseconds: int) -> None:
        """Let time pass, while somebody sleeps."""
        self._now_ms += milliseconds

    def wait(self, milliseconds: float) -> None:
        if self.passes_asleep:
            self.pass_by(int(milliseconds))


@contextlib.contextmanager
def own_time() -> Iterator[Time]:
    """Ids, chance and time come from counters: the same walk does the same things at the same moments."""
    ids, time = itertools.count(1), Time()
    mine = {
        (Clock, "now_ms"): lambda self: time.look(),
        (Clock, "monotonic_ms"): lambda self: float(time.look()),
        (Clock, "sleep_ms"): lambda self, milliseconds: time.wait(milliseconds),
        (IdSource, "jitter"): lambda self: 0.5,
        (IdSource, "new_id"): lambda self: (lambda n: f"{n:08x}-0000-4000-8000-{n:012x}")(next(ids)),
    }
    theirs = {(kind, name): getattr(kind, name) for kind, name in mine}
    try:
        for (kind, name), function in mine.items():
            setattr(kind, name, function)
        yield time
    finally:
        for (kind, name), function in theirs.items():
            setattr(kind, name, function)
