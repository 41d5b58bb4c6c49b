"""What the errors of a rollback, and of a branch, say to do."""

import pytest

import streamsink
from streamsink import maintenance
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import open_table
from tests.advice.following import follows, told
from tests.crash.world import posix_world

ENDS = (6, 9, 12)


@pytest.fixture
def world(tmp_path):
    """Each batch has replaced all rows."""
    found = posix_world(tmp_path, mode="overwrite", overwrite_partition={})
    found.run(boundaries=ENDS)
    return found


@follows("rollback.target")
def test_a_moment_is_given_with_its_zone(world):
    """In the form that the message shows."""
    path = world.driver.root
    said = told("rollback.target", lambda: maintenance.rollback_to(path, timestamp="2099-01-01T00:00:00"))
    zone = said.find(r"such as '2026-11-27T10:15:00(\+00:00)'")
    assert maintenance.rollback_to(path, timestamp=f"2099-01-01T00:00:00{zone}").plan.target.snapshot.id == 3


@follows("rollback.target-gone")
def test_a_snapshot_is_chosen_of_those_that_there_are(world):
    """The message names them."""
    path = world.driver.root
    said = told("rollback.target-gone", lambda: maintenance.rollback_to(path, 17))
    assert maintenance.rollback_to(path, int(said.find(r"There are snapshots (\d+) to \d+"))).snapshot_id == 4
    assert world.ids() == list(range(6))


@follows("rollback.files-gone")
def test_a_file_that_is_gone_is_restored(world):
    """The message names it; then the rollback is done."""
    table = open_table(world.file_io(world.calls), world.driver.root, for_writing=True)
    gone = data_file_path(table, table.latest_schema(), next(table.manifests.entries_of(table.snapshots.load(1))))
    data = table.file_io.read(gone)
    world.calls.unlink(gone)
    said = told("rollback.files-gone", lambda: maintenance.rollback_to(world.driver.root, 1))
    table.file_io.write(said.find(r"\((\S+)\): snapshot 1"), data)
    maintenance.rollback_to(world.driver.root, 1)
    assert streamsink.verify(world.driver.root, contents=True).ok and world.ids() == list(range(6))
