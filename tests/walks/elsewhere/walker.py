"""Walks into destinations that are no tables: which kinds of events there are; see ``world.py``."""

from streamsink.faults import STEPS
from tests.walks.elsewhere.operators import ElsewhereOperator
from tests.walks.elsewhere.world import ROOT, Elsewhere
from tests.walks.events import MODES, Kind, query_of
from tests.walks.machine import Fault
from tests.walks.model import Version
from tests.walks.sources import drawn
from tests.walks.walker import KINDS as OF_ONE_TABLE
from tests.walks.walker import Walker

# Kinds that mean the same here.
_SAME = (
    *("produce", "batch", "stop", "heal", "pause_at", "wake", "kill", "power", "twice", "at_once"),
    *("lose_checkpoint", "lose_checkpoint_behind", "begin_at_latest", "partition", "retention", "recreate", "ids"),
    *("leave_topic", "upgrade", "move", "rename", "old_words", "rename_at_once", "copied_job"),
    *("lose_journal", "lose_identity"),
)
KINDS: dict[str, Kind] = {name: OF_ONE_TABLE[name] for name in _SAME}
_STEPS = [step for step in STEPS if not step.startswith(("tables.", "letters.", "spark.", "iceberg."))]
_OPTIONS = (
    {"restore": "restore-and-continue"},
    {"restore": "restore-and-fail"},
    {"publish": "sync", "publish_every_batches": 1},
    {"publish": "sync", "publish_every_batches": 3},
    {"publish": "async", "publish_every_batches": 1, "publish_queue": 2, "delay": 20},
    {"publish": "async", "publish_every_batches": 1, "publish_queue": 3, "delay": None},
    {"journal_retain": 2},
    {"journal_retain": 100},
    {"position_columns": ("topic", "partition", "offset")},
    {"position_columns": ()},
    {"on_rollback": "republish"},
    {"on_rollback": "fail"},
)
_WAYS = (
    {},
    {},
    {"publish_every_batches": 3},
    {"publish": "async", "publish_queue": 2, "delay": 20},
    {"publish": "async", "publish_queue": 3, "delay": None},
)
# How one accident leads to the next here, besides the stories of ``walking.py``.
STORIES = tuple(
    map(
        str.split,
        (
            "batch batch drop batch heal batch heal batch",
            "option batch batch lose_known batch heal batch heal",
            "crash lose_journal batch heal lose_known batch heal",
            "lose_known lose_journal batch heal batch",
            "batch copy batch batch restore batch heal batch heal",
            "option copy batch crash restore batch heal batch heal",
            "pause_at drop wake batch heal batch heal",
            "pause_at lose_journal batch wake batch heal",
            "pause batch copy batch restore wake batch heal",
            "crash drop rename batch heal batch heal",
            "batch delete lose_known batch heal batch",
            "crash add lose_journal batch heal",
        ),
    )
)
_COPIES = ("checkpoint", "journal", "place", "place and journals", "all")


_MOST_CALLS = 70
_MOST_STATEMENTS = 60


def _kind(weight: int, size: int = 1):
    def register(does):
        KINDS[does.__name__] = Kind(does.__name__, weight, size, does)
        return does

    return register


@_kind(8, 4)
def crash(walk, which, most, step, occurrence):
    """The driver dies at a step of a batch."""
    fault = Fault(step=_STEPS[step % len(_STEPS)], occurrence=1 + occurrence % 2)
    walk.world.batch(query_of(walk.world, which), 1 + most % 4, fault)


@_kind(6, 4)
def call(walk, which, most, number, mode):
    """Something happens at an I/O call of a batch; see ``events.py``. A batch makes fewer of them here."""
    fault = Fault(call=1 + number % _MOST_CALLS, mode=MODES[mode % len(MODES)])
    walk.world.batch(query_of(walk.world, which), 1 + most % 4, fault)


@_kind(4, 3)
def pause(walk, which, most, number):
    """The driver stands still at an I/O call of a batch, until ``wake``."""
    query = query_of(walk.world, which)
    if walk.depth < 2:
        fault = Fault(call=1 + number % _MOST_CALLS, meanwhile=lambda: walk.meanwhile(query))
        walk.world.batch(query, 1 + most % 4, fault)


@_kind(4, 4)
def statement(walk, which, most, number, mode):
    """Something happens at a statement that a batch makes in the destination, or when it is committed."""
    walk.world.place.strike_at(1 + number % _MOST_STATEMENTS, MODES[mode % len(MODES)])
    walk.world.batch(query_of(walk.world, which), 1 + most % 4)
    walk.world.place.strike_at(0, MODES[0])


@_kind(3, 2)
def option(walk, which, number):
    """The query comes back with another option."""
    query, given = query_of(walk.world, which), _OPTIONS[number % len(_OPTIONS)]
    if "position_columns" in given and (not query.source.numeric or query.stateful):
        return
    if given.get("on_rollback") != "republish" or walk.world.place.republishes:
        walk.world.stop(query)
        query.options.update(given)


@_kind(3, 2)
def copy(walk, what, which):
    """A backup is made of a checkpoint, a journal, the destination, the destination with journals, or everything."""
    kind, world = _COPIES[what % len(_COPIES)], walk.world
    query = query_of(world, which)
    checkpoints = {each.name: each.checkpoint.copy() for each in world.queries.values()}
    tree = world.store.copy_of(world.journal_of(query) if kind == "journal" else world.root)
    place = world.place.copy() if kind not in ("checkpoint", "journal") else None
    walk.copies.append((kind, query, query.name, (tree, place), checkpoints, world.backup()))


@_kind(4, 2)
def restore(walk, number, in_order):
    """A backup takes the place of what is there. in_order: drivers are stopped before; otherwise they are killed."""
    if not walk.copies:
        return
    world = walk.world
    kind, query, name, (tree, place), checkpoints, version = walk.copies[number % len(walk.copies)]
    if kind in ("checkpoint", "journal") and query.name != name:
        return
    for each in world.queries.values():
        world.stop(each) if in_order % 2 else world.kill(each)
    if kind == "checkpoint":
        world.put_checkpoint(query, checkpoints[name].copy())
    elif kind == "journal":
        if tree:
            world.store.put_back(world.journal_of(query), tree)
            world.older_journal(query)
    else:
        world.replace_place(lambda: _put(world, kind, tree, place))
        if kind != "place" or world.place.has_rows:
            world.went_back(version)
        if kind == "place":
            world.journals_stayed(tree)
        if kind == "place" and not world.place.has_rows:
            # Notes may be newer than what they are of, which is not asked.
            visible = world.visible()
            world.model.unsure(
                row for each in world.queries.values() for row in each.source.all_rows() if not visible[row]
            )
            world.notes_went_back()
        world.accident("table")
        if kind != "place":
            world.accident("journal", "journal-ever")
        if kind == "all":
            for each in world.queries.values():
                if each.name in checkpoints:
                    world.put_checkpoint(each, checkpoints[each.name].copy())


def _put(world, kind: str, tree, place) -> None:
    if kind != "place":
        world.store.put_back(world.root, tree)
    world.place.put_back(place)


@_kind(1)
def drop(walk, keep):
    """The destination is dropped, with the journals or without them."""
    world = walk.world
    world.replace_place(lambda: _drop(world, keep % 2 == 0))
    if keep % 2 == 0 or world.place.has_rows:
        world.went_back(Version())
    world.accident("table", "journal", "journal-ever")


@_kind(1)
def lose_known(walk, all_of_it):
    """What says which rows are there is deleted, and they stay: the manifests of a directory, perhaps with what is
    hidden in it."""
    world, with_journals = walk.world, all_of_it % 3 == 0
    if world.place.lose_known(with_journals):
        world.went_back(Version())
        world.accident("table", *(("journal", "journal-ever") if with_journals else ()))


def _drop(world, with_journals: bool) -> None:
    world.place.drop()
    if with_journals:
        world.store.remove(world.root)


@_kind(1, 2)
def delete(walk, first, count):
    """Rows are deleted on purpose, as the manual says how."""
    if walk.world.rows:
        first %= walk.world.rows
        walk.world.deleted(range(first, first + 1 + count % 4))
        walk.world.accident("others")


@_kind(2)
def add(walk, count):
    """Another program adds rows."""
    rows = walk.world.new_rows(1 + count % 3)
    if walk.world.place.add(rows):
        walk.world.model.foreign_came(rows)
        walk.world.accident("others")


class ElsewhereWalker(Walker):
    """Walks one walk. setup: kind of the destination."""

    kinds = KINDS
    stories = STORIES
    ways = _WAYS
    setup = "files"
    worlds = Elsewhere

    def run(self, said=None):
        try:
            super().run(said)
        finally:
            self.world.place.close()

    def _set_up(self, parts, first, second, positions, way, restore):
        store = self.stores()
        self.world = self.worlds(1 + parts % 4, store, root=store.beginning + ROOT, kind=self.setup)
        self.operator = ElsewhereOperator(self.world)
        columns = {"position_columns": ("topic", "partition", "offset")} if positions % 4 else {}
        options = {
            "restore": "restore-and-continue" if restore % 2 else "restore-and-fail",
            "journal_retain": (2, 100)[restore % 3 > 0],
            "on_rollback": ("fail", "republish")[restore % 4 > 1 and self.world.place.republishes],
        } | self.ways[way % len(self.ways)]
        for name, kind in (("a", first), ("b", second)):
            source = drawn(kind, self.world.new_id)
            self.world.add_query(
                name,
                source,
                **options,
                **(columns if source.numeric else {"file_column": "file"} if columns and source.tells else {}),
            )
            query = self.world.queries[name]
            query.stateful = not columns and restore % 5 > 2
            query.combines = "Deduplicate" if columns and way % 5 > 2 else ""
            query.hides = "MapInPandas" if columns and 1 < way % 5 < 4 else ""
            query.is_comparable = positions % 8 > 0 and not query.hides

    def _settle(self):
        """What befell a destination under a running query may be noticed by the next start alone, which comes now."""
        for query in self.world.queries.values():
            self._finish(query)
            self.world.stop(query)
        super()._settle()


class DatabaseWalker(ElsewhereWalker):
    setup = "database"


class NotesWalker(ElsewhereWalker):
    setup = "notes"


class KeptWalker(ElsewhereWalker):
    setup = "kept"
