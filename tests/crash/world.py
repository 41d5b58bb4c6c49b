"""A small world for crash tests: a numbered source whose rows are different each time they are computed, and an
oracle.
"""

import itertools
import uuid
from collections.abc import Callable

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.storage.calls import Calls, PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import is_table, open_table
from streamsink.testing.crashing import CrashingCalls, Mode, dies_at
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from streamsink.testing.stepping import Stepping
from tests.crash import tried

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("version", pa.int64())])
# Batch 2 is empty. The last ones make the journal prune and the manifests merge.
BOUNDARIES = (6, 9, 9, 14)
# Of the ways beside the plain one each n-th call is tried; every call with the mark "soak".
STRIDE = 11
# The ways of publishing. ``delay``: at which I/O call of the next batch the committer's work is done; without it
# nothing is async. Batches 0 to 2 make a group of three, and stopping publishes batch 3.
WAYS = {
    "plain": {},
    "grouped": {"publish_every_batches": 3},
    "one-snapshot": {"publish_every_batches": 3, "publish_as": "one-snapshot"},
    "async": {"publish": "async", "publish_queue": 2, "delay": 20},
    "async-late": {"publish": "async", "publish_queue": 3, "publish_as": "one-snapshot", "delay": None},
}


# Rows as Spark's own writer hands them over: files that nobody has flushed, in a table without partitions.
ADOPTED = {"partition_by": (), "adopts": True}


FIRST = "streamsink"


def query_of(application: str) -> str:
    """The id of the query that writes under this name: one query has no two names."""
    return str(uuid.UUID(int=1)) if application == FIRST else str(uuid.uuid5(uuid.UUID(int=1), application))


class World:
    """One store, one query, and Spark's own logs, which outlive every crash."""

    def __init__(
        self,
        calls: Calls,
        root: str,
        numeric: bool = True,
        delay: int | None = 0,
        *,
        make_io: Callable | None = None,
        adopts: bool = False,
        tells_files: bool = False,
        small: bool = False,
        **options,
    ):
        """delay: of the committer's work, as ``Stepping`` has it. make_io: FileIO over some calls, for stores unlike
        POSIX.

        adopts: rows come as files of another program. tells_files: each number is a file of a file source. small: the
        driver knows that its rows are few.
        """
        self.delay = delay
        self.calls = calls
        self.file_io = make_io or (lambda over: FileIO(over, IdSource().new_id))
        self.checkpoint = SparkCheckpoint(query_of(options.get("application", FIRST)))
        self._versions = itertools.count()
        settings = SinkOptions.of(
            root,
            {
                "partition_by": ("part",),
                "journal_retain": 2,
                "commit_min_wait_ms": 0,
                "commit_max_wait_ms": 0,
                "table_options": {"manifest.merge-min-count": "3"},
                **options,
            },
        )
        self.driver = MicroBatchDriver(root, SCHEMA, self._rows, settings, numeric and not tells_files)
        self.driver.tells_files = tells_files
        self.driver.adopts = adopts
        self.driver.is_small = small

    def run(self, calls: Calls | None = None, boundaries=BOUNDARIES) -> None:
        """Start the query and let it run to its end, over these calls."""
        calls = calls or CrashingCalls(self.calls)
        self.driver.background = lambda step: Stepping(step, calls, self.delay)
        self.driver.run(self.file_io(calls), self.checkpoint, boundaries)

    def die(self, power: bool = False) -> None:
        """The driver is gone; with ``power`` the machine too."""
        tried.note()
        if isinstance(self.calls, MemoryCalls):
            self.calls.power_failure() if power else self.calls.process_death()

    def ids(self) -> list[int]:
        """Ids in the table, sorted, as a reader sees them."""
        file_io = self.file_io(self.calls)
        if not is_table(file_io, self.driver.root):
            return []
        table = open_table(file_io, self.driver.root, for_writing=False)
        return sorted(read_arrow(table).column("id").to_pylist())

    def unknown_files(self) -> list[str]:
        """Data files, manifests, lists and temporary files that no snapshot names."""
        file_io = self.file_io(self.calls)
        table = open_table(file_io, self.driver.root, for_writing=False)
        named = set()
        for snapshot_id in table.snapshots.ids():
            snapshot = table.snapshots.load(snapshot_id)
            named |= {snapshot.base_manifest_list, snapshot.delta_manifest_list}
            for meta in table.manifests.base_of(snapshot) + table.manifests.delta_of(snapshot):
                named.add(meta.file_name)
                named |= {entry.file.file_name for entry in table.manifests.read(meta.file_name)}
        return sorted(name for name in self._data_files(file_io, self.driver.root) if name not in named)

    def _data_files(self, file_io: FileIO, folder: str) -> list[str]:
        found = []
        for entry in file_io.entries(folder):
            if entry.is_dir:
                found += self._data_files(file_io, f"{folder}/{entry.name}")
            elif entry.name.startswith(("data-", "manifest-", ".")):
                found.append(entry.name)
        return found

    def _rows(self, start: int, end: int) -> pa.RecordBatch:
        """Rows of these numbers; ``version`` is never the same twice, as with a query that is not deterministic."""
        numbers = list(range(start, end))
        version = next(self._versions)
        return pa.RecordBatch.from_pydict(
            {"id": numbers, "part": [("a", "b", None)[n % 3] for n in numbers], "version": [version] * len(numbers)},
            schema=SCHEMA,
        )


def expected(boundaries=BOUNDARIES) -> list[int]:
    """The oracle: every number once."""
    return list(range(boundaries[-1]))


def is_prefix(ids: list[int], boundaries=BOUNDARIES) -> bool:
    """Whether a reader sees whole batches, in order, each once."""
    return ids == list(range(len(ids))) and (not ids or len(ids) in boundaries)


def posix_world(folder, **settings) -> World:
    """On the local disk."""
    return World(PosixCalls(), f"{folder}/shop.db/orders", **settings)


def memory_world(**settings) -> World:
    """In memory."""
    return World(MemoryCalls(), "/lake/shop.db/orders", **settings)


def counting(world: World) -> CrashingCalls:
    """Calls of this world that only count."""
    return CrashingCalls(world.calls)


def die_at_step(step: str, occurrence: int, world, power: bool = False, **run) -> bool:
    """Run a world, of one table or of many, and die there: from that instant on not even cleanup code reaches the
    store.

    power: the machine dies too. run: arguments of ``world.run``. False when the run survived."""
    died = dies_at(step, occurrence, world.calls, lambda calls: world.run(calls, **run))
    if died:
        world.die(power)
    return died


def ends_right(world: World, what: str, boundaries=BOUNDARIES) -> None:
    """After a death: readers see whole batches; restarted, each row is there once, and no unknown file."""
    assert is_prefix(world.ids(), boundaries), f"{what}: a reader sees a part of a batch"
    world.run(boundaries=boundaries)
    assert world.ids() == expected(boundaries), what
    assert world.unknown_files() == [], f"{what}: files are left that nobody knows"


def die_at(n: int, world: World, mode: Mode, power: bool) -> bool:
    """Run, die at call n, restart. False when the run survived because it has fewer calls."""
    try:
        world.run(CrashingCalls(world.calls, n, mode))
    except InjectedCrash:
        world.die(power)
    else:
        return False
    ends_right(world, f"crash at call {n} ({mode.value})")
    return True
