"""Compaction beside a query: a thread that looks at the tables now and then, and has each of them opened for itself.

No batch waits for it. An error that only a user can mend is raised by the query's next batch; what passes by itself, as
a store that does not answer, is logged and tried again.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streamsink.clock import Clock
from streamsink.compaction.budget import Bytes, Core
from streamsink.compaction.compactor import Compactor, Limits, Totals
from streamsink.compaction.plan import Packing, Sizes, Task, doubled, grown
from streamsink.compaction.rewrite import Stopped
from streamsink.errors import Conflict, Fenced, OutcomeUnknown, Retryable
from streamsink.events import log
from streamsink.format.data_file import DataFileMeta
from streamsink.options import SinkOptions
from streamsink.storage.store_failures import in_words
from streamsink.table.table import Table

# How often the thread asks whether the query has ended.
LOOK_MS = 1_000
# So long the end of a query waits for a piece of work, which is a commit at most.
PATIENCE_MS = 30_000
# Told after each round in which something was done: the table's path, what was done, in how many ms.
Tell = Callable[[str, Totals, float], None]


@dataclass
class _Partition:
    """The small files of a partition as of the last look, and since when they are the same (monotonic, ms)."""

    names: frozenset[str]
    since_ms: float


@dataclass
class _OneTable:
    """A table, opened for this thread."""

    compactor: Compactor
    seen: dict[bytes, _Partition] = field(default_factory=dict)


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
    ):
        """roots: paths of the tables that exist. open_table: opens one anew. is_over: whether no batch can come any
        more. All of them are called by the thread, which nothing else of the query sees.
        """
        self._roots, self._open, self._options = roots, open_table, options
        self._is_over, self._tell = is_over, tell
        self._clock = Clock()
        self._tables: dict[str, _OneTable] = {}
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
        """Raise the error that has ended the thread. Called by each batch."""
        if self._failed is not None:
            raise self._failed

    def round(self) -> None:
        """Look at each table, and compact as much as the budget allows. Raises what a user must mend."""
        for root in self._roots():
            begun_ms = self._clock.monotonic_ms()
            self._core.begin()
            try:
                self._round_of(root)
            except (Retryable, Conflict, Fenced, OutcomeUnknown) as passing:
                self._say(root, passing)
            except OSError as failed:
                words = in_words(root, failed.errno, failed.filename, said=failed.strerror or "")
                if words is not None and not isinstance(words, Retryable):
                    raise words from failed
                self._say(root, words or failed)
            done = self._done(root)
            if done.snapshots or done.conflicts:
                self._tell(root, done, self._clock.monotonic_ms() - begun_ms)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._wait(self._options.compaction_interval_ms):
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
            self._tables[root] = _OneTable(Compactor(table, options, pace=self._core.pace, limits=limits))
        mine = self._tables[root]
        compactor = mine.compactor
        compactor.settle()
        chosen = list[Task]()
        for task in compactor.plan(self._packing(mine)):
            if not self._bytes.may_use(task.bytes):
                break  # those with the most small files have come first
            self._bytes.use(task.bytes)
            chosen.append(task)
        compactor.do(chosen)

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
