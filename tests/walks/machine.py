"""The machine of a walk, on which drivers run, die, are paused and restarted, and what is made of their errors."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.errors import OutcomeUnknown, Retryable, StreamsinkError
from streamsink.testing.crashing import Mode
from streamsink.testing.faults import InjectedCrash
from tests.walks.model import Wrong
from tests.walks.queries import Query, Run
from tests.walks.store import Process, Store

ROOT = "/lake/shop.db/orders"
# A supervised query that restarts more often than that, one time after another, does not come to rest.
MOST_RESTARTS = 6


@dataclass
class Fault:
    """What goes wrong within one event. step: the driver dies there, at that occurrence. call, mode: it goes wrong at
    that I/O call, counted from the beginning of the work.

    meanwhile: what happens while the driver is paused at ``call``, which counts from ``step`` on if there is one.
    """

    step: str = ""
    occurrence: int = 1
    call: int = 0
    mode: Mode = Mode.BEFORE
    meanwhile: Callable[[], None] | None = None


@dataclass
class Machine:
    """parts: how many values the partition column has. serial: grows with each accident and each start of a query.
    root: of the table. has_lost_power: whether it has at some time."""

    parts: int
    store: Store = field(default_factory=Store)
    queries: dict[str, Query] = field(default_factory=dict)
    serial: int = 0
    root: str = ROOT
    has_lost_power: bool = False

    def __post_init__(self):
        self._stack: list[Process] = []
        self._armed: tuple[Process, str, int, Callable[[], None]] | None = None

    @staticmethod
    def new_id() -> str:
        return IdSource().new_id()

    def start(self, query: Query) -> Run:
        """Start a new driver for the query."""
        self.serial += 1
        identity = query.checkpoint.query if query.source else self.new_id()
        run = Run(
            Process(self.store, self.root),
            self.root,
            query.settings(self.root),
            identity,
            self.parts,
            query.options.get("delay", 0),
            query.letters,
        )
        query.live = run
        return run

    @contextlib.contextmanager
    def inside(self, query: Query, run: Run, fault: Fault | None) -> Iterator[None]:
        """Let the driver work, with what is to go wrong armed."""
        process, armed = run.process, self._armed
        self._stack.append(process)
        pause = lambda: process.pause_in(fault.call, lambda: self._pause(query, run, fault.meanwhile))  # noqa: E731
        if fault is not None and fault.step:
            self._armed = (process, fault.step, fault.occurrence, process.die if fault.meanwhile is None else pause)
        elif fault is not None and fault.meanwhile is not None:
            pause()
        elif fault is not None:
            process.fail_in(fault.call, fault.mode)
        faults.arm(self._reached)
        try:
            yield
        finally:
            self._stack.pop()
            self._armed = armed
            process.calm()
            if not self._stack:
                faults.arm(None)

    def _reached(self, step: str) -> None:
        if self._armed is None or self._armed[0] is not self._stack[-1] or self._armed[1] != step:
            return
        process, _, occurrence, does = self._armed
        self._armed = (process, step, occurrence - 1, does)
        if occurrence == 1:
            does()
            if process.dead:
                raise InjectedCrash(step)

    def _pause(self, query: Query, run: Run, meanwhile: Callable[[], None]) -> None:
        """The driver stands still, and the walk goes on without it."""
        if query.live is run:
            query.live = None
        armed, self._armed = self._armed, None
        self.may_have_written(query)  # It may have, before it fell asleep.
        was = query.source.told() if query.source else None
        try:
            meanwhile()
        finally:
            if query.source:
                # What it reads of another topic when it wakes up comes again with that topic, where nothing tells.
                self.model.unsure(query.source.read_unseen(was), most=2)
            self._armed = armed
            faults.arm(self._reached)

    def attempt(self, query: Query, work: Callable[[Run], None], fault: Fault | None, start=None) -> Run | None:
        """Let the query work, restarted after intended and passing failures.
        Returns its run, or None when it died or stopped."""
        for _ in range(MOST_RESTARTS):
            run = query.live or (start() if start else self.start(query))
            query.live = run
            before = self.serial
            try:
                with self.inside(query, run, fault):
                    work(run)
                run.slept = self.serial != before
                return run
            except InjectedCrash:
                self._forget(query, run)
                return None
            except Retryable:
                self.close(query, run)
                if self.serial != before:
                    return None  # It slept meanwhile, and the world has gone on without it.
            except (StreamsinkError, OSError) as stopped:
                self._stopped(query, run, stopped, fault, is_woken=self.serial != before)
                return None
            fault = None
        raise Wrong("never rests", f"{query.name} restarted {MOST_RESTARTS} times")

    def _stopped(self, query: Query, run: Run, why: Exception, fault: Fault | None, is_woken: bool) -> None:
        """An error has ended the query after which nobody restarts it: the error must have a cause."""
        overtaken = query.live not in (run, None)
        self.close(query, run)
        excused = run.process.has_erred and isinstance(why, (OSError, OutcomeUnknown))
        asleep = is_woken and fault is not None and fault.meanwhile is not None
        if not excused and not asleep:
            if not isinstance(why, StreamsinkError):
                raise Wrong(f"raw {type(why).__name__}", str(why)) from why
            query.causes.check(why.kind, str(why))
        if not overtaken and not excused:
            query.said, query.said_at = why, self.serial - is_woken  # What a sleeper says is of another time.

    def may_have_written(self, query: Query) -> None:
        """Tell the other queries that this one may have written, even by an attempt that ended in an error."""
        for other in self.queries.values():
            if other is not query:
                other.causes.add("others")

    def close(self, query: Query, run: Run) -> bool:
        """End the query in order; the next start publishes what it cannot publish any more.
        Returns whether it has published everything."""
        self._forget(query, run)
        self.may_have_written(query)
        try:
            with self.inside(query, run, None):
                run.close()
        except InjectedCrash:
            return False
        except (StreamsinkError, OSError) as failed:
            if isinstance(failed, OSError) and not run.process.has_erred:
                raise Wrong("raw OSError", str(failed)) from failed
            return False
        finally:
            run.process.die()
        return True

    @staticmethod
    def _forget(query: Query, run: Run) -> None:
        if query.live is run:
            query.live = None

    def stop(self, query: Query) -> bool:
        """The user stops the query. Returns whether nothing is left to publish."""
        return query.live is None or self.close(query, query.live)

    def kill(self, query: Query) -> None:
        """The query's driver dies between two batches."""
        if query.live is not None:
            query.live.process.die()
            query.live = None

    def power(self) -> None:
        """Every driver is gone, even the paused ones, and so is everything that was not flushed."""
        for query in self.queries.values():
            self.kill(query)
        for process in self._stack:
            process.die()
        self.store.power_failure()
        self.has_lost_power = self.store.forgets

    def end_sleepers(self) -> None:
        """Drivers that are paused will not wake up."""
        for process in self._stack:
            process.die()

    def accident(self, *what: str, query: Query | None = None) -> None:
        """Something has happened that one query, or every one, may rightly complain of."""
        self.serial += 1
        for each in [query] if query else self.queries.values():
            each.causes.add(*what)
