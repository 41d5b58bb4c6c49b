"""A suite that any sink must pass: whatever happens at any of its I/O calls, a reader sees each row once.

A numbered source is written through the sink, into a store in memory, in the order that Spark's batches have
(``protocol/run/micro_batch.py``). The numbers themselves are the oracle.
"""

import contextlib
import gc
import itertools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamsink.clock import Clock, IdSource
from streamsink.commands.offsets import Wanted
from streamsink.commands.sinks_retired import offsets_of_sink, retire_of_sink
from streamsink.commands.sinks_verified import verify_of_sink
from streamsink.errors import Fenced, Misuse, StreamsinkError
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.sink import OpenSink, Sink
from streamsink.storage.calls import PosixLikeCalls
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import journal_place
from streamsink.testing.crashing import CrashingCalls, Mode, dies_at
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint, columns
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls

ROOT = "/destination"
SCHEMA = pa.schema([("id", pa.int64()), ("version", pa.int64())])
# The ends of the batches. The third batch is empty.
ENDS = (6, 9, 9, 14)
_LATER_MS = 5  # an identity may be the time of creation, so two creations need different times
_QUERY = "00000000-0000-0000-0000-000000000001"
# So many dead drivers of this process may keep what they have open outside of the store, such as connections to a
# server, which has so many of them. The system takes them from a process that has died; here they are garbage.
_DEAD = 8


class BrokenSink(AssertionError):
    """What the sink does wrong, and where."""


def _nothing() -> None:
    """The default of ``drop``: all that the sink has is in the store."""


def check_sink(
    make: Callable[[str], Sink],
    rows_of: Callable[[FileIO, str], Sequence[int]],
    *,
    every: int = 1,
    drop: Callable[[], None] = _nothing,
    **options: Any,
) -> int:
    """Try every accident. Return the number of states of the store from which the query was restarted.

    make: returns the sink at a path. rows_of: returns the ids that a reader sees at a path. every: accidents happen at
    every n-th call of the sink, and those of ``power_later`` also right after each call that makes rows visible.
    options: of ``SinkOptions``, for ways of publishing that the sink supports.

    Raises ``BrokenSink`` for the first thing that the sink does wrong.
    """
    world = _World(make, rows_of, every, options, drop=drop)
    world.clear()
    world.go_on("all batches")
    world.go_on("a start without new batches")
    world.repeat()
    world.publish()
    world.identity()
    world.rename("published")
    world.rename("recorded")
    _commands(world)
    killed = [(mode, power) for mode in (Mode.BEFORE, Mode.TORN) for power in (False, True)]
    accidents = [*killed, *((mode, False) for mode in Mode if (mode, False) not in killed)]
    return world.sleep() + world.power_later() + sum(itertools.starmap(world.accident, accidents))


class _World:
    """One store, one query, and Spark's own logs, which survive every crash."""

    def __init__(
        self,
        make: Callable[[str], Sink],
        rows_of: Callable[[FileIO, str], Sequence[int]],
        every: int,
        options: dict[str, Any],
        *,
        drop: Callable[[], None],
    ):
        self._drop = drop
        self.make, self._rows_of, self._every = make, rows_of, every
        self.settings = SinkOptions.of(
            ROOT, {"restore": "restore-and-continue", "commit_min_wait_ms": 0, "commit_max_wait_ms": 0, **options}
        )
        self._versions, self._outside = itertools.count(), itertools.count()
        self.all = list(range(ENDS[-1]))

    def clear(self) -> None:
        """Begin with an empty store and a new checkpoint."""
        self.calls = MemoryCalls()
        self.checkpoint = SparkCheckpoint(_QUERY)
        if self._drop is not _nothing and next(self._outside) % _DEAD == 0:
            gc.collect()
        self._drop()

    def driver(self, **changes: Any) -> MicroBatchDriver:
        """A driver over the sink. changes: of the options."""
        driver = _Driver(ROOT, SCHEMA, self._rows, replace(self.settings, **changes))
        driver.sink = self.make(ROOT)
        return driver

    def io(self, calls: PosixLikeCalls | None = None) -> FileIO:
        return FileIO(calls or self.calls, IdSource().new_id)

    def run(self, calls: PosixLikeCalls | None = None, batches: int = len(ENDS)) -> None:
        """Run the first batches, as far as they are not committed yet.

        calls: the I/O calls to use instead of those of the store.
        """
        self.driver().run(self.io(calls), self.checkpoint, ENDS[:batches])

    def go_on(self, when: str, batches: int = len(ENDS)) -> None:
        """Start the query again, with nothing in its way. It must get to its end, and each row must be there once."""
        try:
            self.run(batches=batches)
        except (OSError, StreamsinkError) as failed:
            raise BrokenSink(f"after {when} the query cannot go on: {failed}") from failed
        self.see(when, self.all[: ENDS[batches - 1]])

    def visible(self, when: str) -> list[int]:
        """What a reader sees. A reader that cannot read is a failure of the sink."""
        try:
            return sorted(self._rows_of(self.io(), ROOT))
        except (OSError, StreamsinkError) as failed:
            raise BrokenSink(f"after {when} a reader cannot read: {failed}") from failed

    def see(self, when: str, expected: list[int]) -> None:
        """Raise BrokenSink unless a reader sees the expected ids."""
        found = self.visible(when)
        if found != expected:
            raise BrokenSink(f"after {when} a reader sees {found}, expected {expected}")

    def repeat(self) -> None:
        """Spark has lost its commit log: the last batch comes again, with other rows of the same numbers."""
        self.checkpoint.committed -= 1
        self.go_on("a batch that came again")

    def sleep(self) -> int:
        """At each call in turn a driver stands still while another start of the query does all the work.

        Then the first driver wakes up. Returns the number of calls.
        """
        numbers = self._calls()
        for number in numbers:
            self.clear()
            calls, own = CrashingCalls(self.calls), replace(self.checkpoint, ends=list(self.checkpoint.ends))

            def meanwhile(calls: CrashingCalls = calls, number: int = number) -> None:
                if calls.count + 1 == number:
                    calls.before_call = lambda: None
                    self.run()

            calls.before_call = meanwhile
            with contextlib.suppress(OSError, StreamsinkError):  # a superseded driver may fail in any way
                self.driver().run(self.io(calls), own, ENDS)
            self.go_on(f"a driver that slept at call {number}")
        return len(numbers)

    def rename(self, what: str) -> None:
        """The query comes under another name. It must be told that it has written here before.

        what: whether the batches were "published", or the first one is "recorded" only.
        """
        self.clear()
        self.recorded() if what == "recorded" else self.run()
        before = self.visible(f"what was {what}")
        try:
            self.driver(application="other").run(self.io(), self.checkpoint, (*ENDS, ENDS[-1] + 3))
        except Misuse as told:
            if told.kind != "application.renamed":
                raise BrokenSink(
                    f"a query whose name was changed is told something wrong: does 'others' know its first name? {told}"
                ) from told
        else:
            raise BrokenSink(
                f"a query whose name was changed writes again what was {what}: 'others' does not know its first name"
            )
        self.see("a refused change of the name", before)

    def recorded(self) -> None:
        """The driver dies when its first batch is recorded."""
        if not dies_at("precommit.saved", 1, self.calls, self.run):
            raise BrokenSink("a run that writes rows comes to its end without a record")
        self.calls.process_death()

    def publish(self) -> None:
        """What ``publish`` must refuse, what it must accept twice, and what a restart is told before and after."""
        self.clear()
        self.recorded()
        opened = self.opened()
        opened.journal.claim(_QUERY, 0)
        record = opened.journal.load(1)
        if record is None:
            raise BrokenSink("the journal does not have the record of the first batch")
        names = self.io().names(os.path.dirname(os.path.join(ROOT, record.files[0].staged)))
        if not any(name.startswith("manifest-") for name in names):
            raise BrokenSink(f"the staging folder of a record has no file that begins with 'manifest-': {names}")
        committer, first = opened.committer, self.all[: ENDS[0]]
        if committer.mentions(record) or committer.history(opened.application).state is not None:
            raise BrokenSink("the sink says of a record that is not published that it is")
        for expect, fence, what in (
            (0, _fenced, "publishing by a fenced writer"),
            (7, _free, "publishing over another record than the last published one"),
        ):
            try:
                committer.publish(record, expect=expect, restored=True, fence=fence)
            except StreamsinkError:
                self.see(what, [])
            else:
                raise BrokenSink(f"{what} is not refused")
        for _ in range(2):
            committer.publish(record, expect=0, restored=True, fence=_free)
            self.see("a record's publishing", first)
        said = committer.history(opened.application).state
        if (
            not committer.mentions(record)
            or said is None
            or said.record_id != record.state.record_id
            or committer.files_in_place(record)[2]
        ):
            raise BrokenSink(
                "the sink does not say of a published record that it is published, or that its files are in place"
            )
        opened.journal.release()

    def identity(self) -> None:
        """The destination is dropped, and created again."""
        self.clear()
        known = self.opened().to.table_id
        again = self.opened().to.table_id
        self.io().delete_tree(ROOT)
        self._drop()
        Clock().sleep_ms(_LATER_MS)
        anew = self.opened().to.table_id
        if known != again or known == anew:
            raise BrokenSink(
                f"the destination's identity is {known}, at the next start {again}, and {anew} when it was dropped and "
                "created again; only the last one must differ"
            )

    def opened(self) -> OpenSink:
        """The sink as the first batch of a start opens it."""
        batch = Batch(0, _QUERY, "")
        return self.make(ROOT).open(self.io(), self.settings, batch, lambda: columns(SCHEMA), lambda event: None)

    def accident(self, mode: Mode, power: bool) -> int:
        """At each call in turn the driver dies, alone or with the machine (``power``), or the store fails.

        Returns the number of calls.
        """
        numbers = self._calls()
        for number in numbers:
            self.clear()
            with contextlib.suppress(InjectedCrash, OSError, StreamsinkError):
                self.run(CrashingCalls(self.calls, number, mode))
            self.calls.power_failure() if power else self.calls.process_death()
            where = f"{'a power failure' if power else 'an accident'} ({mode.value}) at call {number}"
            found = self.visible(where)
            if found != list(range(len(found))) or len(found) not in (0, *ENDS):
                raise BrokenSink(f"after {where} a reader sees a part of a batch: {found}")
            self.go_on(where)
        return len(numbers)

    def power_later(self) -> int:
        """At each call in turn the driver dies, another start ends the batch, and then the machine loses its power.

        What the dead driver made visible must be durable by then: the next start does not look at it again. Nothing is
        published after it that could make it durable in passing. Returns the number of calls.
        """
        numbers = sorted({*self._calls(), *self._made_visible()})
        for number in numbers:
            self.clear()
            with contextlib.suppress(InjectedCrash, OSError, StreamsinkError):
                self.run(CrashingCalls(self.calls, number))
            self.calls.process_death()
            # Where the driver dies when all is committed, Spark has lost the last commit: else no batch comes.
            self.checkpoint.committed = min(self.checkpoint.committed, len(ENDS) - 1)
            where, ends = f"a death at call {number} and a start that ended its batch", self.checkpoint.committed + 1
            self.go_on(where, ends)
            self.calls.power_failure()
            self.see(f"{where}, and a power failure", self.all[: ENDS[ends - 1]])
            self.go_on(f"{where}, and a power failure")
        return len(numbers)

    def _made_visible(self) -> list[int]:
        """Numbers of calls before which a reader sees what it did not see before the call before."""
        self.clear()
        calls, found, seen = CrashingCalls(self.calls), [], [0]

        def look() -> None:
            if calls.log and calls.log[-1] in ("link", "rename"):  # only these give names to what is written
                rows = len(self.visible(f"call {calls.count}"))
                if rows != seen[0]:
                    found.append(calls.count + 1)
                seen[0] = rows

        calls.before_call = look
        self.run(calls)
        return found

    def _calls(self) -> range:
        self.clear()
        counting = CrashingCalls(self.calls)
        self.run(counting)
        return range(1, counting.count + 1, self._every)

    def _rows(self, start: int, end: int) -> pa.RecordBatch:
        """Rows whose ``version`` is never the same twice, as those of a query that is not deterministic."""
        version = next(self._versions)
        return pa.RecordBatch.from_pydict(
            {"id": list(range(start, end)), "version": [version] * (end - start)}, schema=SCHEMA
        )


def _commands(world: _World) -> None:
    """``starting_offsets`` tells where the rows end, and ``retire`` takes the application away, or refuses to."""
    world.clear()
    world.run()
    sink, options = world.make(ROOT), world.settings
    place = journal_place(sink.journal) if sink.journal else sink.path
    offsets = offsets_of_sink(world.io(), sink, options, place, Wanted())
    if json.loads(offsets) != {"t": {"0": ENDS[-1]}}:
        raise BrokenSink(f"after {ENDS[-1]} rows starting_offsets says {offsets}")
    report = verify_of_sink(world.io(), sink, options, place)
    if not report.ok:
        raise BrokenSink(f"after all batches verify finds damage: {report}")
    if sink.never_forgets:
        with contextlib.suppress(Misuse):
            retire_of_sink(world.io(), sink, options)
            raise BrokenSink("the sink says that it never forgets an application, and it is retired all the same")
        world.go_on("a refused call of retire")
        return
    found = [retire_of_sink(world.io(), sink, options) for _ in range(2)]
    if found != [True, False] or world.opened().committer.history(options.application).state is not None:
        raise BrokenSink(f"retire returns {found}, and the application must not be known any more")
    world.see("retire", world.all)
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000002")
    world.run()
    again = world.visible("a query that began anew")
    if again not in (world.all, sorted(world.all * 2)):
        raise BrokenSink(f"after a query that began anew under a retired name a reader sees {again}")


def _free() -> None:
    """A fence that lets through: no newer driver has taken over."""


def _fenced() -> None:
    raise Fenced("a newer driver has taken over", kind="writer.fenced")


class _Driver(MicroBatchDriver):
    """A driver over a sink that is not one of this library."""

    sink: Sink

    def destination(self) -> Sink:
        return self.sink
