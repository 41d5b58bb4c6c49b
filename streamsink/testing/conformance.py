"""A suite that any sink must pass: whatever happens at whichever of its I/O calls, a reader sees each row once.

A numbered source is written through the sink, in memory, in the order that Spark's batches have (``protocol/micro_batch.py``). The oracle is
the numbers themselves.
"""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.errors import Misuse, StreamsinkError
from streamsink.options import SinkOptions
from streamsink.protocol.sink import Sink
from streamsink.storage.calls import PosixLikeCalls
from streamsink.storage.file_io import FileIO
from streamsink.storage.memory import MemoryCalls
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.driver import Checkpoint, MicroBatchDriver
from streamsink.testing.faults import InjectedCrash

ROOT = "/destination"
SCHEMA = pa.schema([("id", pa.int64()), ("version", pa.int64())])
# Ends of the batches; the third one is empty.
ENDS = (6, 9, 9, 14)
_QUERY = "00000000-0000-0000-0000-000000000001"


class Broken(AssertionError):
    """What the sink does wrong, and where."""


def check_sink(make: Callable[[str], Sink], rows_of: Callable[[FileIO, str], Sequence[int]], *, every: int = 1, **options: Any) -> int:
    """Try everything; how many states of the store were restarted from. Raises ``Broken``.

    make: the sink at a path. rows_of: ids that a reader sees there. every: accidents come at each so many-th call of the sink. options: of
    ``SinkOptions``, for ways of publishing that the sink supports.
    """
    world = _World(make, rows_of, every, options)
    world.clear()
    world.go_on("all batches")
    world.go_on("a start without new batches")
    world.repeat()
    world.rename()
    killed = [(mode, power) for mode in (Mode.BEFORE, Mode.TORN) for power in (False, True)]
    return world.sleep() + sum(itertools.starmap(world.accident, [*killed, *((mode, False) for mode in Mode if (mode, False) not in killed)]))


class _World:
    """One store, one query, and Spark's own logs, which outlive every crash."""

    def __init__(self, make: Callable[[str], Sink], rows_of: Callable[[FileIO, str], Sequence[int]], every: int, options: dict[str, Any]):
        self._make, self._rows_of, self._every = make, rows_of, every
        self._settings = SinkOptions.of(ROOT, {"restore": "restore-and-continue", "commit_min_wait_ms": 0, "commit_max_wait_ms": 0, **options})
        self._versions = itertools.count()
        self.all = list(range(ENDS[-1]))

    def clear(self) -> None:
        """An empty store and a new checkpoint."""
        self.calls = MemoryCalls()
        self.checkpoint = Checkpoint(_QUERY)

    def driver(self, **changes: Any) -> MicroBatchDriver:
        driver = _Driver(ROOT, SCHEMA, self._rows, replace(self._settings, **changes))
        driver.sink = self._make(ROOT)
        return driver

    def io(self, calls: PosixLikeCalls | None = None) -> FileIO:
        return FileIO(calls or self.calls, IdSource().new_id)

    def run(self, calls: PosixLikeCalls | None = None) -> None:
        self.driver().run(self.io(calls), self.checkpoint, ENDS)

    def go_on(self, when: str) -> None:
        """Start the query again, with nothing in its way: it gets to its end, and each row is there once."""
        try:
            self.run()
        except (OSError, StreamsinkError) as failed:
            raise Broken(f"after {when} the query cannot go on: {failed}") from failed
        self.see(when, self.all)

    def visible(self, when: str) -> list[int]:
        """What a reader sees. One that cannot read is a failure."""
        try:
            return sorted(self._rows_of(self.io(), ROOT))
        except (OSError, StreamsinkError) as failed:
            raise Broken(f"after {when} a reader cannot read: {failed}") from failed

    def see(self, when: str, expected: list[int]) -> None:
        found = self.visible(when)
        if found != expected:
            raise Broken(f"after {when} a reader sees {found}, expected {expected}")

    def repeat(self) -> None:
        """Spark has lost its commit log: the last batch comes again, with other rows of the same numbers."""
        self.checkpoint.committed -= 1
        self.go_on("a batch that came again")

    def sleep(self) -> int:
        """A driver stands still at each call in turn, while another start of the query does all; then it wakes. How many calls."""
        numbers = self._calls()
        for number in numbers:
            self.clear()
            calls, own = CrashingCalls(self.calls), replace(self.checkpoint, ends=list(self.checkpoint.ends))

            def meanwhile(calls: CrashingCalls = calls, number: int = number) -> None:
                if calls.count + 1 == number:
                    calls.before_call = lambda: None
                    self.run()

            calls.before_call = meanwhile
            with contextlib.suppress(OSError, StreamsinkError):  # what a superseded driver says is of no matter
                self.driver().run(self.io(calls), own, ENDS)
            self.go_on(f"a driver that slept at call {number}")
        return len(numbers)

    def rename(self) -> None:
        """The query comes under another name, and must be told that it has written here."""
        self.clear()
        self.run()
        self.checkpoint.ends.append(ENDS[-1] + 3)
        try:
            self.driver(application="other").run(self.io(), self.checkpoint, (*ENDS, ENDS[-1] + 3))
        except Misuse as told:
            if told.kind != "application.renamed":
                raise Broken(f"a query whose name was changed is told what is not so: does 'others' know its first name? {told}") from told
        else:
            raise Broken("a query whose name was changed writes its rows once more: 'others' does not know its first name")
        self.see("a refused change of the name", self.all)

    def accident(self, mode: Mode, power: bool) -> int:
        """At each call in turn the driver dies, alone or with the machine (power), or the store fails. How many calls."""
        numbers = self._calls()
        for number in numbers:
            self.clear()
            with contextlib.suppress(InjectedCrash, OSError, StreamsinkError):
                self.run(CrashingCalls(self.calls, number, mode))
            self.calls.power_failure() if power else self.calls.process_death()
            where = f"{'a power failure' if power else 'an accident'} ({mode.value}) at call {number}"
            found = self.visible(where)
            if found != list(range(len(found))) or len(found) not in (0, *ENDS):
                raise Broken(f"after {where} a reader sees a part of a batch: {found}")
            self.go_on(where)
        return len(numbers)

    def _calls(self) -> range:
        self.clear()
        counting = CrashingCalls(self.calls)
        self.run(counting)
        return range(1, counting.count + 1, self._every)

    def _rows(self, start: int, end: int) -> pa.RecordBatch:
        """``version`` is never the same twice, as with a query that is not deterministic."""
        version = next(self._versions)
        return pa.RecordBatch.from_pydict({"id": list(range(start, end)), "version": [version] * (end - start)}, schema=SCHEMA)


class _Driver(MicroBatchDriver):
    """Over a sink that is not ours."""

    sink: Sink

    def destination(self) -> Sink:
        return self.sink
