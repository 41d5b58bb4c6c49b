"""A fan-out as the destination of a walk: a directory, a table of SQLite, which may lag, and a Delta table."""

from collections import Counter
from dataclasses import dataclass

from streamsink.sink import FanOut
from tests.walks.elsewhere.database import Database
from tests.walks.elsewhere.delta import Delta
from tests.walks.elsewhere.places import Files, Place
from tests.walks.elsewhere.walker import KINDS, ElsewhereWalker, crash
from tests.walks.elsewhere.walker import copy as copy_of
from tests.walks.elsewhere.world import Elsewhere
from tests.walks.events import Kind, query_of
from tests.walks.machine import Fault
from tests.walks.model import Wrong

# So many records may wait for the database.
_MOST = 1_000
# Where a driver may die so that some destinations have what others lack: their parts of the record, or its rows. The
# first three leave parts that the next start must give them.
_BETWEEN = (
    ("fan-out.recorded", 1),
    ("fan-out.delivered", 1),
    ("fan-out.delivered", 2),
    ("fan-out.before_destination", 1),
    ("fan-out.before_destination", 2),
    ("fan-out.before_destination", 3),
)
_OPTIONS = (
    {"restore": "restore-and-continue"},
    {"restore": "restore-and-fail"},
    {"journal_retain": 2},
    {"journal_retain": 100},
    {"position_columns": ("topic", "partition", "offset")},
    {"position_columns": ()},
)


class Several(Place):
    """A backup of it has all of the destinations. What the directory shows is what the query's user looks at."""

    def __init__(self, store, root: str):
        super().__init__(store, root)
        self.journals = f"{root}/journal"
        self.database = Database(store, f"{root}/database")
        self.of = {"files": Files(store, f"{root}/files"), "database": self.database}
        self.of["delta"] = Delta(store, f"{root}/delta")

    def close(self):
        for place in self.of.values():
            place.close()

    def strike_at(self, number, mode):
        self.database.strike_at(number, mode)

    def refuse(self, refuses: bool) -> None:
        """The database takes no rows, until it does again."""
        self.database.refuse(refuses)

    def sink(self, process):
        sinks = {name: place.sink(process) for name, place in self.of.items()}
        return FanOut(sinks, journal=self.journals, may_lag={"database": _MOST})

    def visible(self):
        return self.of["files"].visible()

    def listed(self):
        return self.of["files"].listed()

    def applications(self):
        return self.of["files"].applications()

    def copy(self):
        return {name: place.copy() for name, place in self.of.items()}

    def put_back(self, copy):
        for name, place in self.of.items():
            place.put_back(copy[name])


@dataclass
class FanOutWorld(Elsewhere):
    """Each row is in each destination."""

    def destination(self):
        return Several(self.store, self.root)

    def look(self) -> None:
        super().look()
        for name, place in self.place.of.items():
            try:
                self.model.check_never_twice(self._read(place.visible))
            except Wrong as wrong:
                raise Wrong(wrong.what, f"in {name}: {wrong}") from wrong

    def check_whole(self) -> None:
        super().check_whole()
        for name, place in self.place.of.items():
            found = Counter(place.listed())
            if found != self.visible():
                more, less = found - self.visible(), self.visible() - found
                raise Wrong("destinations differ", f"{name} has {sorted(more)} besides, and lacks {sorted(less)}")


def option(walk, which, number):
    """The query comes back with another option."""
    query, given = query_of(walk.world, which), _OPTIONS[number % len(_OPTIONS)]
    if "position_columns" not in given or query.source.numeric and not query.stateful:
        walk.world.stop(query)
        query.options.update(given)


def crash_between(walk, which, most, place):
    """The driver dies between two destinations, in a batch that has rows."""
    query = query_of(walk.world, which)
    walk.produce(query, 1)
    step, occurrence = _BETWEEN[place % len(_BETWEEN)]
    walk.world.batch(query, 1 + most % 4, Fault(step=step, occurrence=occurrence))


def copy(walk, what, which):
    """A backup is made of a checkpoint or of everything."""
    copy_of(walk, (0, 4)[what % 2], which)


def refuse(walk, _):
    """From now on the database takes no rows."""
    walk.world.place.refuse(True)


def mend(walk, _):
    """It does again."""
    walk.world.place.refuse(False)


# Not "twice" and "at_once": nobody starts a sink of its own name for a second part again, so what waits there for the
# database would wait for good.
_SAME = (
    *("produce", "batch", "stop", "heal", "pause_at", "wake", "kill", "power"),
    *("lose_checkpoint", "lose_checkpoint_behind", "begin_at_latest", "partition", "retention", "recreate", "ids"),
    *("leave_topic", "upgrade", "move", "call", "pause", "statement", "restore"),
)


class FanOutWalker(ElsewhereWalker):
    setup = "fanout"
    worlds = FanOutWorld
    kinds = {name: KINDS[name] for name in _SAME} | {
        does.__name__: Kind(does.__name__, weight, size, does)
        for does, weight, size in (
            *((crash, 4, 4), (crash_between, 8, 3), (option, 3, 2), (copy, 3, 2), (refuse, 9, 1), (mend, 5, 1)),
        )
    }
    ways = ({},)
    # Each so often that they are not lost among those of all walks.
    stories = 4 * tuple(
        map(
            str.split,
            (
                "batch refuse batch batch mend batch",
                "refuse batch crash_between batch mend batch heal",
                "refuse batch kill batch mend stop batch",
                "batch crash_between power batch heal batch",
                "refuse batch copy batch mend batch restore batch heal batch heal",
                "pause_at refuse batch wake mend batch heal",
                "refuse batch lose_checkpoint mend batch heal batch",
                "crash_between batch crash_between heal crash_between batch",
                "copy crash_between batch restore crash_between batch heal",
            ),
        )
    )

    def _settle(self):
        self.world.place.refuse(False)
        super()._settle()
