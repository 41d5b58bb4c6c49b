"""Real walks of accidents: those of tests/walks over real Spark drivers that are killed, a real Kafka broker, files,
and a local disk.

Events, model and operator are the ones of tests/walks; README.md there says what a walk is. A kill at a time is the one
event that does not repeat exactly when a walk is walked again.
"""

import itertools
import os
from collections import Counter
from dataclasses import replace

import pytest

from streamsink.faults import STEPS
from tests.e2e.disk import Disk
from tests.e2e.real_world import MOST_PARTS, RealFolder, RealSeveral, RealTopic, RealWorld
from tests.e2e.walk_driver import Drivers
from tests.walks import events, others, runs, several_walker
from tests.walks.events import Kind
from tests.walks.machine import Fault
from tests.walks.operators import Operator
from tests.walks.queries import partitioned
from tests.walks.several_walker import SeveralOperator, SeveralWalker
from tests.walks.walker import Walker
from tests.walks.walking import SEVERAL, draw, shrink, tell, walked
from tests.walks.world import JOBS

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

WALKS, OF_SEVERAL, IN_THE_SOAK = 5, 2, 200
# Of those so many in one run of the gate, other ones for other code.
IN_THE_GATE, OF_SEVERAL_IN_THE_GATE = 1, 1
FEWEST, MOST = 5, 9
# The gate walks these in turns, a seed whose five hold most kinds; the soak walks others as well.
SEED = "4405"
# One walk again, alone, and shrunk when it fails: STREAMSINK_WALK=<seed>-<number>.
ONE = os.environ.get("STREAMSINK_WALK")
LATEST_KILL_MS = 3000
# Steps that every start reaches which has something to write.
_STEPS = [step for step in STEPS if step.startswith(("write.", "precommit.", "commit.", "forget."))] + [
    "restore.claimed",
    "restore.swept",
]

# Kinds of tests/walks that mean the same here.
_WEIGHTS = {
    "produce": 8,
    "heal": 2,
    "run": 3,
    "overwrite_run": 1,
    "lose_checkpoint": 4,
    "copy": 5,
    "restore": 6,
    "lose_journal": 2,
    "drop": 1,
    "partition": 2,
    "retention": 2,
    "recreate": 2,
    "option": 3,
    "rename": 1,
    "foreign_append": 2,
    "foreign_overwrite": 1,
    "compaction": 2,
    "expiry": 2,
    "tag": 1,
    "rollback": 2,
    "same_run": 1,
    "upgrade_job": 1,
    "files_anew": 1,
    "upgrade": 1,
    "move": 1,
}
KINDS = {name: replace(events.KINDS[name], weight=weight) for name, weight in _WEIGHTS.items()}


def _kind(weight: int, size: int):
    def register(does):
        KINDS[does.__name__] = Kind(does.__name__, weight, size, does)
        return does

    return register


def _fed(walk, which):
    """The query, which gets something to read: a start of it takes a second and should not be in vain."""
    query = events.query_of(walk.world, which)
    if query.source.plan(query.checkpoint, 1) is None:
        walk.produce(query, 1 + which % 4)
    return query


@_kind(12, 4)
def batch(walk, which, most, batches, how):
    """The query runs for some batches: until nothing is left, until its function fails, or until it is stopped in
    order.
    """
    limit = (1000, 1 + batches % 3)[how % 3 > 0]
    walk.world.batch(_fed(walk, which), 1 + most % 4, how=("error", "error", "stop")[how % 3], batches=limit)


@_kind(7, 4)
def crash(walk, which, most, step, occurrence):
    """The driver dies at a step of a batch, and its JVM with it."""
    walk.world.batch(
        _fed(walk, which), 1 + most % 4, Fault(step=_STEPS[step % len(_STEPS)], occurrence=1 + occurrence % 3 // 2)
    )


@_kind(4, 3)
def killed(walk, which, most, at):
    """The driver and its JVM are killed, whatever they do then."""
    walk.world.batch(_fed(walk, which), 1 + most % 4, kill_after_ms=at * LATEST_KILL_MS // 1000)


@_kind(2, 3)
def run_killed(walk, number, again, step):
    """A bounded run dies at a step."""
    walk.world.job(runs.job_of(walk.world, number, again), Fault(step=_STEPS[step % len(_STEPS)]))


@_kind(2, 3)
def foreign_race(walk, which, most, count):
    """While a batch is written, another writer builds a snapshot on the one before, and renames it over the batch's
    own.
    """
    others.foreign_prepare(walk, count)
    walk.world.batch(_fed(walk, which), 1 + most % 4, batches=1)
    others.foreign_rename(walk)


@_kind(1, 0)
def file_column(walk):
    """The query over files comes back with the option that names the file of each row."""
    for query in walk.world.queries.values():
        if query.source is not None and not query.source.numeric:
            query.options["file_column"] = "file"


# Kinds of walks over several tables.
_WEIGHTS_OF_SEVERAL = {
    "produce": 8,
    "heal": 2,
    "lose_checkpoint": 3,
    "copy": 4,
    "restore": 5,
    "lose_journal": 2,
    "drop": 1,
    "partition": 1,
    "retention": 1,
    "recreate": 1,
    "option": 2,
    "rename": 1,
    "foreign_append": 2,
    "foreign_overwrite": 1,
    "compaction": 2,
    "expiry": 2,
    "tag": 1,
    "rollback": 2,
    "upgrade": 1,
    "move": 1,
}
KINDS_OF_SEVERAL = {
    name: replace(several_walker.KINDS[name], weight=weight) for name, weight in _WEIGHTS_OF_SEVERAL.items()
}
KINDS_OF_SEVERAL |= {name: KINDS[name] for name in ("batch", "crash", "killed", "file_column")}


def half_published(walk, which, most, occurrence):
    """The driver dies between two tables of a batch with rows for several."""
    walk.produce(events.query_of(walk.world, which), 6)
    walk.world.batch(
        _fed(walk, which), 4 + most % 8, Fault(step="tables.table_published", occurrence=1 + occurrence % 2)
    )


KINDS_OF_SEVERAL["half_published"] = Kind("half_published", 4, 3, half_published)


class RealWalker(Walker):
    """Walks one walk in a folder of its own."""

    kinds = KINDS

    def __init__(self, walk, folder, drivers, bootstrap):
        super().__init__(walk)
        self._folder, self._drivers, self._bootstrap = folder, drivers, bootstrap
        self.world = None

    def run(self, said=None):
        self._set_up(*self._walk[0][1:])
        while self._at + 1 < len(self._walk):
            self._next()
        self._settle()

    def _set_up(self, parts, first, second, positions, way, restore):
        """Two queries, of a topic and of a folder, whose sources have some rows already."""
        self._begin(1 + parts % MOST_PARTS)
        options = {
            "restore": "restore-and-continue" if restore % 2 else "restore-and-fail",
            "journal_retain": (2, 100)[restore % 3 > 0],
        }
        options |= self._options(way, restore)
        sources = [RealTopic(self._bootstrap), RealFolder(self._folder)]
        for name, source in zip("ab", sources if first % 3 else reversed(sources)):
            carried = (
                {"position_columns": ("topic", "partition", "offset")} if source.numeric else {"file_column": "file"}
            )
            self.world.add_query(name, source, **options, **(carried if positions % 4 else {}))
            self.produce(self.world.queries[name], 2 + second % 5)

    def _begin(self, parts: int) -> None:
        self.world = self._new(RealWorld, parts, "lake/orders")
        self.operator = Operator(self.world)
        self.world.add_query(JOBS, None, partition_by=partitioned(self.world.parts), journal_retain=2)

    def _new(self, kind: type[RealWorld], parts: int, root: str) -> RealWorld:
        copies = self._folder / "copies"
        copies.mkdir(parents=True)
        return kind(
            parts,
            Disk(copies),
            root=str(self._folder / root),
            drivers=self._drivers,
            bootstrap=self._bootstrap,
            folder=self._folder,
        )

    def _options(self, way: int, restore: int) -> dict:
        return {
            "on_rollback": ("fail", "republish")[restore % 4 > 2],
            "partition_by": partitioned(self.world.parts),
        } | _WAYS[way % len(_WAYS)]


class RealSeveralWalker(RealWalker, SeveralWalker):
    """Walks one walk over several tables."""

    kinds = KINDS_OF_SEVERAL

    def _begin(self, parts):
        self.world = self._new(RealSeveral, parts, "lake")
        self.operator = SeveralOperator(self.world)

    def _options(self, way, restore):
        return {}


_WAYS = (
    {},
    {},
    {"publish_every_batches": 3},
    {"publish_every_batches": 2, "publish_as": "one-snapshot"},
    {"publish": "async", "publish_queue": 2},
    {"publish": "async", "publish_queue": 3},
)


class Walks:
    """Many walks, one after another, over the same drivers and broker."""

    def __init__(self, folder, broker):
        self._folder, self._broker = folder, broker
        self._number = itertools.count()
        self.counts: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.wrong: list[tuple[str, str, str]] = []

    def walk(self, seeds: list[str], drivers: Drivers) -> None:
        for seed in seeds:
            self._walk_one(seed, drivers)
        print(f"events: {', '.join(f'{name} {count}' for name, count in sorted(self.counts.items()))}")
        print(f"ways on: {', '.join(f'{name} {count}' for name, count in sorted(self.ways.items()))}")
        print(
            f"RESULT real walks: {len(seeds)}, wrong {len(self.wrong)}, starts {drivers.orders}, kills {drivers.kills}"
        )
        if self.wrong and ONE:
            self._shrink(drivers)
        again = "\n".join(f"STREAMSINK_WALK={seed}: {more}\n{tell(draw_real(seed))}" for seed, _, more in self.wrong)
        assert not self.wrong, again

    def _walk_one(self, seed: str, drivers: Drivers) -> None:
        walker = self._walker(draw_real(seed), drivers)
        what, more = walked(walker)
        self.counts += walker.counts
        self.ways += walker.operator.used if walker.world else Counter()
        said = f"; Spark said: {walker.world.failures}" if walker.world and walker.world.failures else ""
        print(f"{seed}: {more or 'all is well'}{said}", flush=True)
        if what:
            self.wrong.append((seed, what, more))

    def _shrink(self, drivers: Drivers) -> None:
        seed, what, _ = self.wrong[0]
        shortest = shrink(draw_real(seed), what, lambda walk: walked(self._walker(walk, drivers)))
        print(f"The shortest walk that ends in the same: {tell(shortest)}")

    def _walker(self, walk, drivers: Drivers) -> RealWalker:
        kind = RealSeveralWalker if walk[0][0] == RealSeveralWalker.setup else RealWalker
        return kind(walk, self._folder / f"walk-{next(self._number)}", drivers, self._broker.bootstrap)


def draw_real(seed: str):
    """Draw a walk that begins with a run of a query, because most accidents would otherwise happen to nothing."""
    setup, *rest = draw(seed, KINDS_OF_SEVERAL if seed.startswith(SEVERAL) else KINDS, FEWEST - 1, MOST - 1)
    return [setup, ("batch", 0, *setup[1:4]), *rest]


@pytest.fixture(scope="module")
def drivers(tmp_path_factory, spark_settings):
    """All walks give their orders to the same ones: of two, one is ready when the other is killed."""
    with Drivers(tmp_path_factory.mktemp("walks") / "drivers") as drivers:
        yield drivers


@pytest.mark.in_turn("real walks", IN_THE_GATE)
@pytest.mark.parametrize("walk", [ONE] if ONE else [f"{SEED}-{number}" for number in range(WALKS)])
def test_real_walks_of_accidents(tmp_path, kafka_broker, drivers, walk):
    """Every row once, or an error whose advice leads there; readers can always read."""
    Walks(tmp_path, kafka_broker).walk([walk], drivers)


@pytest.mark.in_turn("real walks to several tables", OF_SEVERAL_IN_THE_GATE)
@pytest.mark.parametrize("walk", [f"{SEVERAL}{SEED}-{number}" for number in range(OF_SEVERAL)])
def test_real_walks_of_accidents_to_several_tables(tmp_path, kafka_broker, drivers, walk):
    """The same over several tables."""
    Walks(tmp_path, kafka_broker).walk([walk], drivers)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("tables", ["", SEVERAL])
def test_real_walks_of_accidents_for_long(tmp_path, kafka_broker, drivers, seed, tables):
    """STREAMSINK_REAL_WALKS says how many; others in each run."""
    number = int(os.environ.get("STREAMSINK_REAL_WALKS") or IN_THE_SOAK)
    Walks(tmp_path, kafka_broker).walk([f"{tables}{seed}-{n}" for n in range(number)], drivers)
