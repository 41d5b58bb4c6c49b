"""Walks into Delta and Iceberg tables: what only such tables have, and what is done to them by their own means."""

from tests.walks.elsewhere.catalog import in_order
from tests.walks.elsewhere.lake_world import LakeWorld
from tests.walks.elsewhere.walker import KINDS, STORIES, ElsewhereWalker
from tests.walks.events import Kind


def roll_back(walk, number):
    """A table goes back to an earlier version by its own means, under whoever writes it."""
    if walk.world.points:
        walk.world.roll_back(*walk.world.points[number % len(walk.world.points)])


class DeltaWalker(ElsewhereWalker):
    setup = "delta"
    kinds = KINDS | {"roll_back": Kind("roll_back", 4, 1, roll_back)}
    stories = (
        *STORIES,
        *map(
            str.split,
            (
                "batch batch roll_back batch heal batch heal",
                "batch pause_at roll_back wake batch heal batch heal",
                "batch crash roll_back add batch heal batch heal",
                "batch batch roll_back roll_back rename batch heal batch heal",
            ),
        ),
    )


def expire(walk, kept):
    """Snapshots expire, and files go with them that only those have named."""
    walk.world.expire(kept % 3)


def tag(walk, number):
    """Somebody tags the current snapshot, which does not expire then."""
    walk.tags += 1
    walk.world.place.tag(f"t{walk.tags}")


def pick(walk, number):
    """What was rolled back comes back, as a copy of its snapshot."""
    walk.world.picked(walk.world.place.pick(number))


def rename_table(walk, _):
    """The table gets another name, or the first one again."""
    walk.world.rename_table()


def register(walk, number):
    """The table is dropped from its catalog, and registered again from one of its metadata files."""
    walk.world.register(number)


def change_columns(walk, number):
    """Others add a column, rename it, or drop it."""
    walk.world.place.change_columns(number)


def compact(walk, _):
    """All files become one."""
    walk.world.place.compact()


class IcebergWalker(ElsewhereWalker):
    setup = "iceberg"
    worlds = LakeWorld
    tags = 0
    kinds = KINDS | {
        does.__name__: Kind(does.__name__, weight, 1, does)
        for does, weight in (
            *((roll_back, 4), (expire, 3), (pick, 3), (register, 2), (rename_table, 2)),
            *((tag, 1), (change_columns, 1), (compact, 2)),
        )
    }
    stories = (
        *STORIES,
        *map(
            str.split,
            (
                "batch batch roll_back batch heal batch heal",
                "batch pause_at roll_back wake batch heal batch heal",
                "batch crash roll_back add batch heal batch heal",
                "option batch batch roll_back pick batch heal batch heal",
                "option batch batch roll_back add expire batch heal batch heal",
                "batch batch register batch heal batch heal",
                "option batch crash register batch heal batch heal",
                "batch rename_table batch heal rename_table batch heal",
                "batch add compact expire batch heal batch",
                "pause_at add compact expire wake batch heal batch",
                "change_columns stop batch change_columns batch heal batch",
                "batch tag batch roll_back expire batch heal batch heal",
            ),
        ),
    )

    def run(self, said=None):
        with in_order():
            super().run(said)

    def _set_up(self, *numbers):
        super()._set_up(*numbers)
        for query in self.world.queries.values():
            query.options["add_columns"] = True  # others add columns that the rows lack
