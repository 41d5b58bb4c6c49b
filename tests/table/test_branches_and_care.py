"""Expiry, orphan cleaning and tags beside rollbacks and branches: nothing goes that another root has."""

import pytest

from streamsink.clock import IdSource
from streamsink.commands.branches import delete_branch
from streamsink.sinks.paimon.care.needed import needed_by_journals, needed_of_all
from streamsink.storage.file_io import FileIO
from streamsink.table.branching import branches
from streamsink.table.branching.fast_forward import fast_forward
from streamsink.table.branching.rollback import roll_back
from streamsink.table.branching.targets import find
from streamsink.table.care import orphan_files
from streamsink.table.care.expire_snapshots import Retention, expire
from streamsink.table.care.orphan_files import remove_orphans
from streamsink.table.history.integrity import TableCheck
from streamsink.table.table import open_table
from tests.crash.world import BOUNDARIES, World, die_at_step, expected, memory_world
from tests.protocol.bounded_runs import run_job
from tests.table.entries import OPTIONS

NEWEST = Retention(num_min=1, num_max=1, time_ms=0, limit=100)


def _table(world, path=None):
    return open_table(FileIO(world.calls, IdSource().new_id), path or world.driver.root, for_writing=True)


def _expire(world, path=None):
    table = _table(world, path)
    return expire(table, NEWEST, needed_by_journals(table))


def _is_whole(world, path=None):
    check = TableCheck(_table(world, path), True)
    check.run()
    assert not [each for each in check.findings if each.severity == "damage"], check.findings


def test_what_comes_back_by_a_rollback_outlives_the_snapshots_that_deleted_it():
    """By our own expiry."""
    world = memory_world(mode="overwrite", overwrite_partition={})
    world.run(boundaries=(6, 9, 12))
    for to in (1, 3, 1):
        roll_back(_table(world), find(_table(world), to), OPTIONS, "a test")
    _expire(world)
    assert world.ids() == list(range(6))
    _is_whole(world)


@pytest.mark.parametrize("first", ["main", "branch"])
def test_main_and_a_branch_keep_each_others_files(first):
    """Whichever expires first, and whatever each has replaced since."""
    world = memory_world(mode="overwrite", overwrite_partition={})
    world.run(boundaries=(6,))
    table = _table(world)
    made = branches.create(table, "audit", find(table, 1))
    other = World(world.calls, made.path, application="auditor", mode="overwrite", overwrite_partition={})
    other.run(boundaries=(3, 5))
    world.run(boundaries=(6, 9))
    for path in [world.driver.root, made.path][:: 1 if first == "main" else -1]:
        _expire(world, path)
        _is_whole(world)
        _is_whole(world, made.path)
    assert world.ids() == [6, 7, 8] and other.ids() == [3, 4]
    other.run(boundaries=(3, 5, 6))
    assert other.ids() == [5]


@pytest.mark.parametrize("step", ["precommit.saved", "commit.placed", "commit.before_publish"])
def test_orphan_cleaning_keeps_what_is_pending_in_a_branch(step, monkeypatch):
    """Its files lie in the folders of the table, and its journal in the branch."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    table = _table(world)
    made = branches.create(table, "audit", None)
    other = World(world.calls, made.path, application="auditor")
    assert die_at_step(step, 2, other)
    monkeypatch.setattr(orphan_files, "_LEAST_AGE_MS", -(10**15))
    for path in (world.driver.root, made.path):
        opened = _table(world, path)
        remove_orphans(opened, needed_of_all(opened), 10**15)
    other.run()
    assert other.ids() == expected()
    _is_whole(world)
    _is_whole(world, made.path)


def test_nights_of_names_of_their_own_are_known_whatever_has_expired():
    """Each with a branch that is made anew; under one name the second night's run would be an error."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])

    def write(night, path):
        run_job(World(world.calls, path, application=f"night-{night}"), "run", (2 * night, 2 * night + 2))

    for night in range(3):
        table = _table(world)
        write(night, branches.create(table, "audit", find(table, table.snapshots.latest().id)).path)
        fast_forward(_table(world), "audit", OPTIONS, "a test")
        delete_branch(FileIO(world.calls, IdSource().new_id), world.driver.root, "audit")
        _expire(world)
        for earlier in range(night + 1):
            write(earlier, world.driver.root)
        assert world.ids() == sorted([*range(6), *range(2 * night + 2)])
