"""I/O that dies, fails or tears at the n-th call, so that every call of a run can be tried, one after another."""

import errno
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from streamsink import faults
from streamsink.storage.calls import Calls, NameLimits, PosixLikeCalls
from streamsink.storage.hold import BEAT_THREAD
from streamsink.testing.faults import InjectedCrash, arm, crash

if TYPE_CHECKING:
    from typing_extensions import Buffer  # of the standard library only since Python 3.12

T = TypeVar("T")


class Mode(Enum):
    """What happens at the chosen call.

    BEFORE: the process dies before the call, which is also "after the call before".
    TORN: the process dies with half of a write done.
    ERROR: the call fails and did nothing.
    REPLY_LOST: the call is done, and reports an error all the same.
    REPEATED: the call is done, the client of the store misses the reply and repeats the call, as NFS and HTTP clients
    do. The caller sees the second answer.
    """

    BEFORE = "before"
    TORN = "torn"
    ERROR = "error"
    REPLY_LOST = "reply-lost"
    REPEATED = "repeated"


# Calls that only change names, which a client repeats by itself. A client that writes into an open file knows how far
# it has come.
REPEATED = {"link", "unlink", "rename", "mkdir", "rmdir", "move", "remove_tree", "put_new", "try_new", "copy"}


class CrashingCalls(PosixLikeCalls):
    """Wraps the calls of any store and counts them.

    After its death every further call dies too: no cleanup code reaches the store.

    Calls of several threads are made one after another. before_call: set it to act between two calls. order: set it to
    choose in which order calls are made that may be made at once. The beat of a lease comes when its time comes, so it
    is neither counted nor chosen.
    """

    def __init__(self, inner: Calls, at: int = 0, mode: Mode = Mode.BEFORE):
        """at: the number of the call (from 1) at which ``mode`` happens; 0 for never, which only counts."""
        self._inner: Any = inner  # which of the calls it has depends on the store
        self._at = at
        self._mode = mode
        self.log: list[str] = []
        self.dead = False
        self.before_call: Callable[[], None] = lambda: None
        self.order: Callable[[list[Callable[[], None]]], list[Callable[[], None]]] = lambda actions: actions
        self._one_at_a_time = threading.Lock()

    @property
    def count(self) -> int:
        """The number of calls so far."""
        return len(self.log)

    @property
    def by_name(self) -> Counter[str]:
        """The number of calls so far, by name."""
        return Counter(self.log)

    def _do(self, name: str, action: Callable[[], T], torn: Callable[[], object] | None = None) -> T:
        if threading.current_thread().name.startswith(BEAT_THREAD):
            if self.dead:
                raise OSError(errno.EIO, "its process is dead", name)
            return action()
        self.before_call()
        with self._one_at_a_time:
            return self._call(name, action, torn)

    def _call(self, name: str, action: Callable[[], T], torn: Callable[[], object] | None) -> T:
        if self.dead:
            raise InjectedCrash(name)
        self.log.append(name)
        if self.count != self._at:
            return action()
        if self._mode is Mode.ERROR:
            raise OSError(errno.EIO, "injected", name)
        if self._mode is Mode.REPLY_LOST:
            action()
            raise OSError(errno.EIO, "injected: done, reply lost", name)
        if self._mode is Mode.REPEATED:
            if name in REPEATED:
                action()
            return action()
        if self._mode is Mode.TORN and torn is not None:
            torn()
        self.dead = True
        raise InjectedCrash(f"{name} (call {self.count}, {self._mode.value})")

    def at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        super().at_once(self.order(list(actions)))

    def read(self, path: str) -> bytes:
        return self._do("read", lambda: self._inner.read(path))

    def size(self, path: str) -> int | None:
        if self.dead and threading.current_thread().name.startswith(BEAT_THREAD):
            return 0  # that of its successor's file: so the thread of a dead process ends, without a traceback
        return self._do("size", lambda: self._inner.size(path))

    def modified_ms(self, path: str) -> int | None:
        return self._do("modified", lambda: self._inner.modified_ms(path))

    def entries(self, path: str, *beginning: str) -> list[tuple[str, int, bool]]:
        return self._do("entries", lambda: self._inner.entries(path, *beginning))

    def names(self, path: str) -> list[str]:
        return self._do("entries", lambda: self._inner.names(path))

    def mkdir(self, path: str) -> None:
        return self._do("mkdir", lambda: self._inner.mkdir(path))

    def open_new(self, path: str) -> BinaryIO:
        # The stream has what a writer of files calls, and nothing else of BinaryIO.
        opened: Any = self._do("open", lambda: _CrashingStream(self, self._inner.open_new(path)))
        return opened

    def close(self, stream: BinaryIO, flush: bool) -> None:
        own: Any = stream
        return self._do("close", lambda: self._inner.close(own.inner, flush))

    def link(self, source: str, target: str) -> bool:
        return self._do("link", lambda: self._inner.link(source, target))

    def check_link(self, source: str, target: str) -> None:
        return self._do("check_link", lambda: self._inner.check_link(source, target))

    def rename(self, source: str, target: str) -> None:
        return self._do("rename", lambda: self._inner.rename(source, target))

    def unlink(self, path: str) -> bool | None:
        return self._do("unlink", lambda: self._inner.unlink(path))

    def rmdir(self, path: str) -> None:
        return self._do("rmdir", lambda: self._inner.rmdir(path))

    def sync_dir(self, path: str) -> None:
        return self._do("sync_dir", lambda: self._inner.sync_dir(path))

    def sync_file(self, path: str) -> None:
        return self._do("sync_file", lambda: self._inner.sync_file(path))

    def open_existing(self, path: str) -> BinaryIO:
        return self._do("open_existing", lambda: self._inner.open_existing(path))

    def name_limits(self, path: str) -> NameLimits:
        return self._inner.name_limits(path)  # not counted, because it looks at no file

    def check_sources(self, paths: Sequence[str]) -> None:
        self._inner.check_sources(paths)  # not counted, because it changes nothing and only a local disk asks

    def try_hold(self, path: str) -> Callable[[], None] | None:
        return self._do("hold", lambda: self._inner.try_hold(path))

    # -- calls that only some stores have ---------------------------------------------------------------------------

    def move(self, source: str, target: str) -> bool:
        return self._do("move", lambda: self._inner.move(source, target))

    def below(self, path: str) -> list[str]:
        return self._do("entries", lambda: self._inner.below(path))

    def remove_tree(self, path: str) -> None:
        return self._do("remove_tree", lambda: self._inner.remove_tree(path))

    def remove_all(self, paths: Sequence[str]) -> None:
        return self._do("remove_all", lambda: self._inner.remove_all(paths))

    def put(self, path: str, data: bytes) -> None:
        return self._do("put", lambda: self._inner.put(path, data))

    def put_new(self, path: str, data: bytes, unique: str) -> bool:
        return self._do("put_new", lambda: self._inner.put_new(path, data, unique))

    def try_new(self, path: str, data: bytes, unique: str) -> bool:
        return self._do("try_new", lambda: self._inner.try_new(path, data, unique))

    def copy(self, source: str, target: str) -> None:
        return self._do("copy", lambda: self._inner.copy(source, target))

    def unfinished(self, path: str, *beginning: str) -> list[tuple[str, str]]:
        return self._do("unfinished", lambda: self._inner.unfinished(path, *beginning))

    def abort(self, path: str, upload: str) -> None:
        return self._do("abort", lambda: self._inner.abort(path, upload))

    def write(self, stream: BinaryIO, data: "Buffer") -> int:
        """One write to an open file."""
        whole = bytes(data)
        half = whole[: len(whole) // 2]
        return self._do("write", lambda: stream.write(data), torn=lambda: stream.write(half))


class _CrashingStream:
    """A file whose writes are counted."""

    def __init__(self, calls: CrashingCalls, inner: BinaryIO):
        self._calls = calls
        self.inner = inner

    def write(self, data: "Buffer") -> int:
        return self._calls.write(self.inner, data)

    def tell(self) -> int:
        return self.inner.tell()

    def flush(self) -> None:
        return self.inner.flush()

    def close(self) -> None:
        return self.inner.close()

    @property
    def closed(self) -> bool:
        return self.inner.closed

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class MeteredCalls(CrashingCalls):
    """Counts calls and bytes, and never dies."""

    def __init__(self, inner: Calls):
        super().__init__(inner)
        self.bytes_read = self.bytes_written = 0

    def read(self, path: str) -> bytes:
        data = super().read(path)
        self.bytes_read += len(data)
        return data

    def write(self, stream: BinaryIO, data: "Buffer") -> int:
        self.bytes_written += memoryview(data).nbytes
        return super().write(stream, data)


def dies_at(step: str, occurrence: int, calls: Calls, run: Callable[[CrashingCalls], object]) -> bool:
    """Run until ``step`` is reached for the ``occurrence``-th time (from 1), and let the driver die there.

    run: does its I/O through the calls that it is given, which wrap ``calls``. From the death on each of them raises
    ``InjectedCrash``, so that not even cleanup code reaches the store. The holds of the dead process are for the caller
    to end. Returns False when the run came to its end without reaching the step. Raises what the run raises otherwise;
    Misuse when there is no such step.
    """
    mortal = CrashingCalls(calls)

    def death() -> None:
        mortal.dead = True
        crash()

    arm(step, occurrence, death)
    try:
        run(mortal)
    except InjectedCrash:
        return True
    finally:
        faults.arm(None)
    return False
