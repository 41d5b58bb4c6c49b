"""Walks one walk: its events one after another, over the real protocol, and then the account."""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future

from streamsink.table import manifests
from tests.walks import backups, care, changes, compactions, events, others, runs, users
from tests.walks.machine import ROOT
from tests.walks.model import Wrong
from tests.walks.operators import Operator
from tests.walks.queries import Query, partitioned
from tests.walks.sources import drawn
from tests.walks.store import Store, own_time
from tests.walks.world import JOBS, World

# How often one after another the operator may do what a query says before it must have come to rest. It is so often
# because dead letters are asked for record by record.
_MOST_ADVICE = 30
SETUP = 6

# What is drawn from a seed depends on the order of the kinds, which must not depend on the module that is imported
# first.
KINDS: Mapping[str, events.Kind] = {
    name: kind
    for module in (events, backups, changes, compactions, others, runs, users, care)
    for name, kind in events.KINDS.items()
    if kind.does.__module__ == module.__name__
}
# How a query publishes.
WAYS = (
    {},
    {},
    {"publish_every_batches": 3},
    {"publish_every_batches": 2, "publish_as": "one-snapshot"},
    {"publish": "async", "publish_queue": 2, "delay": 20},
    {"publish": "async", "publish_queue": 3, "delay": None},
)
# ("setup", numbers...) or (kind, numbers...)
Event = tuple
Walk = list[Event]


class Walker:
    """Walks one walk. depth: how many drivers are paused. prepared: another writer's snapshot; prepared_in: for which
    of several tables. copies: the backups."""

    kinds = KINDS
    setup = "setup"
    stores = Store
    # How one accident leads to the next in such walks alone; see ``walking.py``.
    stories: tuple[list[str], ...] = ()
    ways = WAYS
    # The time between falling asleep and the first thing that happens meanwhile.
    sleep_ms = 60_000

    def __init__(self, walk: Walk):
        self._walk = walk
        self._at = 0
        self.depth = 0
        self.prepared, self.prepared_in = None, ""
        self.copies: list[tuple] = []
        self.counts: Counter[str] = Counter()

    def run(self, said: list | None = None) -> None:
        """Walk it. said: gets every I/O call.
        Raises Wrong when the promise is broken; anything else that is raised is a broken promise as well."""
        with own_time() as self.time, _in_order():
            self._set_up(*self._walk[0][1:])
            self.world.store.said = said
            while self._at + 1 < len(self._walk):
                self._next()
            self._settle()

    def meanwhile(self, query: Query) -> None:
        """A driver is paused: the walk goes on until it wakes."""
        query.causes.asleep += 1
        self.depth += 1
        self.time.pass_by(self.sleep_ms)
        try:
            while self._at + 1 < len(self._walk):
                if self._next() == "wake":
                    return
        finally:
            self.depth -= 1
            query.causes.asleep -= 1
            query.causes.add("asleep")

    def _set_up(self, parts: int, first: int, second: int, positions: int, way: int, restore: int) -> None:
        store = self.stores()
        self.world = World(1 + parts % 4 if parts % 5 else 10, store, root=store.beginning + ROOT)
        self.operator = Operator(self.world)
        columns = {"position_columns": ("topic", "partition", "offset")} if positions % 4 else {}
        options = {
            "restore": "restore-and-continue" if restore % 2 else "restore-and-fail",
            "journal_retain": (2, 100)[restore % 3 > 0],
        }
        options |= {"on_rollback": ("fail", "republish")[restore % 4 > 2]} | self.ways[way % len(self.ways)]
        for name, kind in (("a", first), ("b", second)):
            source = drawn(kind, World.new_id)
            self.world.add_query(
                name,
                source,
                partition_by=partitioned(self.world.parts),
                **options,
                **(columns if source.numeric else {"file_column": "file"} if columns and source.tells else {}),
            )
            query = self.world.queries[name]
            query.stateful = not columns and restore % 5 > 2
            query.combines = "Deduplicate" if columns and way % 5 > 2 else ""
            query.hides = "MapInPandas" if columns and 1 < way % 5 < 4 else ""
            query.is_comparable = positions % 8 > 0 and not query.hides
        self.world.add_query(JOBS, None, partition_by=partitioned(self.world.parts), journal_retain=2)

    def _next(self) -> str:
        self._at += 1
        name, *numbers = self._walk[self._at]
        self.counts[name] += 1
        self.kinds[name].does(self, *numbers)
        self.world.look()
        return name

    def _settle(self) -> None:
        """Everything that was begun is brought to its end, with the operator's help; then the account is made."""
        world = self.world
        for query in world.queries.values():
            if query.source is not None:
                self._finish(query)
        for job in list(world.jobs):
            self._until_done(world.queries[JOBS], lambda: job not in world.jobs or world.job(job))
        for query in world.queries.values():
            for _ in range(_MOST_ADVICE):
                if world.stop(query):
                    break
                self._finish(query)
        for query in world.queries.values():
            if query.source is not None:
                world.model.unsure(query.source.below_former())
            # Nobody has recorded which topic it was, and the checkpoint begins where that one did.
            begun_in, start = query.begun_before
            if begun_in == query.checkpoint.query:
                world.model.unsure(query.source.before_start(start))
        world.look()
        world.check_whole()

    def _finish(self, query: Query) -> None:
        """Run the query to the end of its source, and one row more, so that a batch comes."""
        self.produce(query, 1)
        self._until_done(query, lambda: self._to_the_end(query))

    def produce(self, query: Query, count: int) -> None:
        rows = self.world.new_rows(count)
        query.source.produce(rows, 0)
        self.world.model.produced(rows)

    def _to_the_end(self, query: Query) -> bool:
        """Whether no batch is left and the last one was of the topic that is there now."""
        for _ in range(100):
            if not self.world.batch(query, 1000):
                break
        if query.said is None and query.topic_id != query.source.topic_id:
            # The topic has grown to the length of the one before, so that Spark sees nothing to do.
            self.produce(query, 1)
            return False
        if len(query.checkpoint.planned) > query.checkpoint.committed:
            return False  # An error of the store ended it; it is started again.
        return query.said is None and query.source.plan(query.checkpoint, 1000) is None and not query.source.hides()

    def _heal(self, query: Query, choice: int) -> None:
        self.operator.heal(query, choice)

    def _until_done(self, query: Query, work) -> None:
        for number in range(_MOST_ADVICE):
            if query.said is None and work():
                return
            self._heal(query, self._walk[0][1 + number % SETUP])
            self.world.look()
        raise Wrong("stuck", f"query {query.name}: {query.said}")


class _in_order:
    """Manifests are read one after another, and not by threads in an order that is left to chance."""

    class _Pool:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def submit(self, function, *arguments):
            done = Future()
            try:
                done.set_result(function(*arguments))
            except Exception as failed:
                done.set_exception(failed)
            return done

    def __enter__(self):
        self._theirs, manifests.ThreadPoolExecutor = manifests.ThreadPoolExecutor, self._Pool

    def __exit__(self, *_):
        manifests.ThreadPoolExecutor = self._theirs
