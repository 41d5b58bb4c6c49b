"""The functions of users for branches, and what they refuse."""

import os

import pytest

import streamsink
from streamsink import maintenance
from streamsink.clock import IdSource
from streamsink.commands.branches import delete_branch
from streamsink.errors import Fenced, Misuse
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import table_path
from streamsink.table.application_states import States
from streamsink.table.branching import branches, fast_forward
from streamsink.table.branching.targets import find
from streamsink.table.commit.changes import Changes
from streamsink.table.table import open_table
from tests.crash.world import BOUNDARIES, World, memory_world, posix_world
from tests.table.entries import add, commit, part

NAME = "audit"


def _io(world):
    return FileIO(world.calls, IdSource().new_id)


def _table(world):
    return open_table(_io(world), world.driver.root, for_writing=True)


@pytest.mark.parametrize(
    "name", ["", " ", "main", "17", "a/b", "..", "a$b", "a\nb", "x" * 201, " audit", "a:b", "\ud800"]
)
def test_hostile_names_are_refused(name):
    """Before anything is written."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    with pytest.raises(Misuse) as refused:
        branches.create(_table(world), name, find(_table(world), 1))
    assert refused.value.kind == "branch.name" and not _io(world).entries(f"{world.driver.root}/branch")


def test_a_branch_that_there_is_not_is_refused(tmp_path):
    """By each function; no table is created in its place."""
    world = posix_world(tmp_path)
    path = world.driver.root
    world.run(boundaries=BOUNDARIES[:1])
    other = World(world.calls, table_path(f"{path}$branch_{NAME}"))
    for do in (
        lambda: other.run(boundaries=(3,)),
        lambda: streamsink.read_arrow(f"{path}$branch_{NAME}"),
        lambda: maintenance.fast_forward(path, NAME),
        lambda: maintenance.delete_branch(path, NAME),
    ):
        with pytest.raises(Misuse) as refused:
            do()
        assert refused.value.kind == "branch.missing"
    assert not os.path.exists(f"{path}/branch")


def test_the_functions_of_users(tmp_path):
    """Each by its path; journals of a branch lie in it, data files and manifests in the table."""
    world = posix_world(tmp_path)
    path = world.driver.root
    world.run(boundaries=BOUNDARIES[:1])
    assert maintenance.create_branch(path, NAME, snapshot_id="latest", dry_run=True).newest.id == 1
    assert maintenance.branches(path) == []
    made = maintenance.create_branch(path, NAME, snapshot_id="latest")
    assert maintenance.create_branch(path, NAME, ignore_if_exists=True) == made
    other = World(world.calls, made.path, application="auditor")
    other.run(boundaries=(3,))
    assert os.listdir(f"{made.path}/streamsink") == ["auditor"] and sorted(os.listdir(made.path)) == [
        *("schema", "snapshot", "streamsink", "tag")
    ]
    [found] = maintenance.branches(path)
    assert (found.name, found.newest.id, found.newest.total_record_count) == (NAME, 2, 9)
    assert streamsink.verify(f"{path}$branch_{NAME}", contents=True).ok
    planned = maintenance.fast_forward(path, NAME, dry_run=True)
    assert planned.snapshot_id is None and "3 rows come" in str(planned) and len(world.ids()) == 6
    assert maintenance.fast_forward(path, NAME, by="me").snapshot_id == 2
    assert streamsink.verify(path, contents=True).ok and len(streamsink.read_arrow(path)) == 9
    assert maintenance.delete_branch(path, NAME, dry_run=True)[0] == made.path and os.path.exists(made.path)
    assert len(maintenance.delete_branch(path, NAME)) == 3 and os.listdir(f"{path}/tag") == []
    assert maintenance.branches(path) == [] and streamsink.verify(path, contents=True).ok


def test_a_branch_is_not_deleted_under_a_query():
    """The query that writes to it must be stopped first."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    path = branches.create(_table(world), NAME, find(_table(world), 1)).path
    other = World(world.calls, path, application="auditor")
    running = other.driver.start(_io(world), other.checkpoint)
    with pytest.raises(Fenced):
        delete_branch(_io(world), world.driver.root, NAME)
    running.close()
    assert [each.name for each in branches.branches(_table(world))] == [NAME]
    delete_branch(_io(world), world.driver.root, NAME)


def test_what_a_branch_does_not_know_of_its_writers_main_does_not_know_either():
    """History of the branch has expired that nobody had read: an application may have written there."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    branch = open_table(_io(world), branches.create(_table(world), NAME, None).path, for_writing=True)
    for number in (1, 2):
        commit(branch, Changes((add(f"data-{number}-0.parquet", part("a")),)))
    assert fast_forward.plan_fast_forward(_table(world), NAME, ("streamsink",)).is_complete
    world.calls.unlink(branch.snapshots.path(1))
    plan = fast_forward.plan_fast_forward(_table(world), NAME, ("streamsink",))
    assert not fast_forward._AsPlanned(_table(world), plan).carried(States({}, True)).complete
