"""Compaction beside a query: a thread that looks at the tables now and then, and has each of them opened for itself.

No batch waits for it. An error that only a user can mend is raised by the query's next batch; what passes by itself, as
a store that does not answer, is logged and tried again.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from streamsink.clock import Clock
from streamsink.compaction.attempts import ABANDONED_MS
from streamsink.compaction.budget import Bytes, Core
from streamsink.compaction.compactor import By, Compactor, Limits, Totals
from streamsink.compaction.left_alone import is_of_rows
from streamsink.compaction.plan import Packing, Sizes, Task, doubled, grown
from streamsink.compaction.rewrite import Rewriting, Stopped
from streamsink.errors import Conflict, Fenced, Misuse, OutcomeUnknown, Retryable
from streamsink.events import log
from streamsink.format.data_file import DataFileMeta
from streamsink.format.manifest import ManifestEntry
from streamsink.options import COMPACTION_AUTO, COMPACTION_DRIVER, SinkOptions
from streamsink.storage.store_failures import in_words
from streamsink.table.table import Table

# How often the thread asks whether the query has ended.
LOOK_MS = 1_000
# So long the end of a query waits for a piece of work, which is a commit at most.
PATIENCE_MS = 30_000
# The query itself says these of a table when it writes there next, and how it goes on. It may have no more rows for it.
_SAID_BY_THE_QUERY = (
    "table.gone",
    "table.missing",
    "table.recreated",
    "table.primary-key",
    "table.unsupported-column",
    "table.unsupported-option",
)
# Told after each round in which something was done: the table's path, what was done, in how many ms.
Tell = Callable[[str, Totals, float], None]
# Who else than the driver may write for the table at this path; None while there is nobody. Given is what waits for so
# many ms, and raises to give up.
Others = Callable[[str, Callable[[float], None]], By | None]


def _nobody(root: str, pause: Callable[[float], None]) -> None:
    """The driver does all."""


@dataclass
class _Partition:
    """The small files of a partition as of the last look, and since when they are the same (monotonic, ms)."""

    names: frozenset[str]
    since_ms: float


@dataclass
class _OneTable:
    """A table, opened for this thread. by: how the driver itself does it.

    nothing_in: the snapshot, as of ``Compactor.newest``, in which there was nothing to do, until this time (monotonic,
    ms); None where there may be something.
    """

    compactor: Compactor
    by: By
    seen: dict[bytes, _Partition] = field(default_factory=dict)
    nothing_in: tuple[int, str] | None = None
    until_ms: float = 0


class Beside:
    """Compacts the tables of one run of a query until the run is over.

    After a crash: what a compaction leaves is swept by a later one, an hour after it began.
    """

    def __init__(
        self,
        roots: Callable[[], Sequence[str]],
        open_table: Callable[[str], Table],
        options: SinkOptions,
        *,
        is_over: Callable[[], bool],
        tell: Tell,
        others: Others = _nobody,
    ):
        """roots: paths of the tables that exist. open_table: opens one anew. is_over: whether no batch can come any
        more. others: who writes what is much. All of them are called by the thread, which nothing else of the query
        sees.
        """
        self._roots, self._open, self._options = roots, open_table, options
        self._is_over, self._tell, self._others = is_over, tell, others
        self._have_failed = False  # the others
        self.is_told = False  # the error has been raised
        self._clock = Clock()
        self._tables: dict[str, _OneTable] = {}
        self._left_alone: set[str] = set()  # paths
        self._bytes = Bytes(options.compaction_bytes_per_hour, self._clock)
        self._core = Core(options.compaction_core_percent, self._clock, self._sleep)
        self._stopping = threading.Event()
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="streamsink-compaction", daemon=True)

    def start(self) -> None:
        """Begin. Called once."""
        self._thread.start()

    def stop(self) -> None:
        """End soon: what is being written again is given up. Idempotent; waits for a commit, but not for ever."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE_MS / 1000)

    def check(self) -> None:
        """Raise the error that has ended the thread. Called by each batch, and at the end if no batch was told."""
        if self._failed is not None:
            self.is_told = True
            raise self._failed

    def round(self) -> None:
        """Look at each table, and compact as much as the budget allows. Raises what a user must mend."""
        for root in self._roots():
            begun_ms = self._clock.monotonic_ms()
            self._core.begin()
            is_refused = False
            try:
                self._round_of(root)
            except (Retryable, Conflict, Fenced, OutcomeUnknown) as passing:
                if self._is_over():
                    raise Stopped from passing  # as when the session of those who write is stopped
                self._say(root, passing)
            except Misuse as refused:
                if refused.kind not in _SAID_BY_THE_QUERY:
                    raise
                is_refused = True
                if root not in self._left_alone:
                    log.warning("%s: compaction beside the query leaves this table alone: %s", root, refused)
            except OSError as failed:
                words = in_words(root, failed.errno, failed.filename, said=failed.strerror or "")
                if words is not None and not isinstance(words, Retryable):
                    raise words from failed
                self._say(root, words or failed)
            done = self._done(root)
            if done.snapshots or done.conflicts:
                self._tell(root, done, self._clock.monotonic_ms() - begun_ms)
            if is_refused:
                self._left_alone.add(root)
                self._tables.pop(root, None)  # the next round opens what is there then
            else:
                self._left_alone.discard(root)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        wait_ms = 0  # a query that ends soon, and is started now and then, would never see a look otherwise
        while not self._wait(wait_ms):
            wait_ms = self._options.compaction_interval_ms
            try:
                self.round()
            except Stopped:
                return
            except Exception as failed:  # the outermost edge of this thread: the query's next batch raises it
                log.warning("compaction beside the query has ended, and the next batch raises why: %s", failed)
                self._failed = failed
                return

    def _wait(self, wait_ms: float) -> bool:
        """Whether to stop, behind so many ms or sooner."""
        until_ms = self._clock.monotonic_ms() + wait_ms
        left_ms = wait_ms
        while left_ms > 0:
            if self._stopping.wait(min(left_ms, LOOK_MS) / 1000) or self._is_over():
                return True
            left_ms = until_ms - self._clock.monotonic_ms()
        return self._stopping.is_set()

    def _sleep(self, wait_ms: float) -> None:
        if self._wait(wait_ms):
            raise Stopped

    def _done(self, root: str) -> Totals:
        """What the last round has done with this table, also when it has failed in the end. It is told once."""
        if root not in self._tables:
            return Totals()
        compactor = self._tables[root].compactor
        done, compactor.totals = compactor.totals, Totals()
        return done

    def _round_of(self, root: str) -> None:
        """One look at one table."""
        options = self._options
        if root not in self._tables:
            table = self._open(root)
            # What is committed together is lost together, and in vain when the query ends before: so it is one file.
            limits = Limits(Sizes.of(root, table.latest_schema().options).target_bytes)
            self._tables[root] = _OneTable(Compactor(table, options, pace=self._core.pace), By(limits=limits))
        mine = self._tables[root]
        compactor = mine.compactor
        now_ms = self._clock.monotonic_ms()
        if mine.nothing_in is not None and now_ms < mine.until_ms and compactor.newest() == mine.nothing_in:
            return  # a table that rests costs no listing
        mine.nothing_in = None
        compactor.settle()
        chosen, tasks = list[Task](), compactor.plan(self._packing(mine))
        if not tasks:
            mine.nothing_in, mine.until_ms = compactor.looked_at, self._until_ms(mine, now_ms)
        for task in tasks:
            if compactor.is_taken(task):
                continue
            if not self._bytes.may_use(task.bytes):
                break  # those with the most small files have come first
            self._bytes.use(task.bytes)
            chosen.append(task)
        compactor.do(chosen, self._by(root, chosen))
        if not chosen:
            self._core.pace()  # what planning has taken counts as well

    def _until_ms(self, mine: _OneTable, now_ms: float) -> float:
        """So long there is nothing to do if nothing comes: until a partition has rested, or leftovers are old."""
        idle_ms = self._options.compaction_idle_ms
        rests = [each.since_ms + idle_ms for each in mine.seen.values()]
        return min([now_ms + ABANDONED_MS, *(at_ms for at_ms in rests if at_ms > now_ms)])

    def _by(self, root: str, tasks: Sequence[Task]) -> By:
        """Who does these tasks: the driver, unless they are much, or others are to do all."""
        options = self._options
        is_auto = options.compaction_by == COMPACTION_AUTO
        is_little = sum(task.bytes for task in tasks) <= options.compaction_driver_max_bytes
        if not tasks or options.compaction_by == COMPACTION_DRIVER or is_auto and (is_little or self._have_failed):
            return self._tables[root].by
        by = self._others(root, self._sleep)
        if by is None or not is_auto:
            return by or self._tables[root].by
        return By(functools.partial(self._until_they_fail, by), by.limits)

    def _until_they_fail(
        self, by: By, table: Table, tasks: Sequence[Task], how: Rewriting
    ) -> Iterator[Sequence[ManifestEntry]]:
        """As ``Rewriter``. Where the others cannot do it, as without this library, the driver does it from now on."""
        try:
            yield from by.rewriter(table, tasks, how)
        except (Misuse, Retryable) as failed:
            if is_of_rows(failed):
                raise
            self._have_failed = True
            raise Retryable(
                f"{failed} (with compaction_by='auto' the driver compacts from now on, until the query starts again)",
                kind=failed.kind,
            ) from failed

    def _packing(self, mine: _OneTable) -> Packing:
        """The rule for a stream; for a partition to which nothing comes for a while, ``doubled``."""
        growing, now_ms = grown(self._options.compaction_rewrites), self._clock.monotonic_ms()
        before, mine.seen = mine.seen, {}

        def packing(partition: bytes, files: Sequence[DataFileMeta], sizes: Sizes) -> list[list[int]]:
            names = frozenset(file.file_name for file in files)
            known = before.get(partition)
            known = known if known is not None and known.names == names else _Partition(names, now_ms)
            mine.seen[partition] = known
            is_idle = now_ms - known.since_ms >= self._options.compaction_idle_ms
            return (doubled if is_idle else growing)(partition, files, sizes)

        return packing

    def _say(self, root: str, why: Exception) -> None:
        log.warning("%s: a compaction beside the query has failed, and is tried again: %s", root, why)
