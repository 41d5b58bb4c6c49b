"""A table and its branch, for tests of branches: how they are opened, made, written and taken over."""

from streamsink.clock import IdSource
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import table_path
from streamsink.table.branching import branches, fast_forward
from streamsink.table.branching.targets import find
from streamsink.table.table import open_table
from tests.crash.world import BOUNDARIES, World, memory_world
from tests.table.entries import OPTIONS

NAME = "audit"


def io_of(world, calls=None) -> FileIO:
    return FileIO(calls or world.calls, IdSource().new_id)


def opened(world, calls=None):
    return open_table(io_of(world, calls), world.driver.root, for_writing=True)


def create(world, to=1, calls=None):
    """A branch of this snapshot; of none where it is 0."""
    table = opened(world, calls)
    return branches.create(table, NAME, find(table, to) if to else None)


def forward(world, calls=None, **given):
    return fast_forward.fast_forward(opened(world, calls), NAME, OPTIONS, "a test", **given)


def writer(world, application="auditor", **options) -> World:
    """A query into the branch, with a source of its own."""
    return World(world.calls, table_path(f"{world.driver.root}$branch_{NAME}"), application=application, **options)


def branched() -> tuple[World, World]:
    """(a table with one batch, the writer of its branch, which has written three rows)."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    create(world)
    other = writer(world)
    other.run(boundaries=(3,))
    return world, other
