"""A run of several batches dies at each of its calls; the next start brings the Iceberg metadata up to the table.

What readers of Iceberg see between the death and the start is the table as of an earlier snapshot, or of the newest.
"""

import pytest

from streamsink import faults
from streamsink.sinks.paimon.care.needed import needed_of_all
from streamsink.table.care.orphan_files import remove_orphans
from streamsink.table.iceberg_metadata.following import Following
from streamsink.table.table import is_table, open_table
from streamsink.testing.crashing import CrashingCalls, dies_at
from tests.crash.many_world import ManyWorld, check_complete
from tests.crash.sweeps import deaths, deaths_at_steps
from tests.crash.world import WAYS, World, ends_right, memory_world
from tests.iceberg_metadata.mirrored import AT_TABLE, check_named

OPTIONS = {
    **AT_TABLE,
    "manifest.merge-min-count": "3",
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "2",
    "metadata.iceberg.compaction.min.file-num": "2",
    "metadata.iceberg.compaction.max.file-num": "2",
}


def _table(world: World):
    io = world.file_io(world.calls)
    return open_table(io, world.driver.root, for_writing=False) if is_table(io, world.driver.root) else None


def _ends_right(world: World, what: str) -> None:
    table = _table(world)
    folder = f"{world.driver.root}/metadata"
    if table is not None and table.file_io.exists(f"{folder}/version-hint.text"):
        check_named(table, folder, at_newest=False)
    ends_right(world, what)
    table = _table(world)
    check_named(table, folder)


@pytest.mark.parametrize(
    ("power", "stride"),
    [
        (False, 24),
        (True, 6),
        pytest.param(False, 2, marks=pytest.mark.soak),
        pytest.param(True, 1, marks=pytest.mark.soak),
    ],
)
def test_death_at_calls(power, stride, rng):
    """Each row once, and the metadata is whole before the start and up to date behind it."""
    world = memory_world(table_options=OPTIONS)
    states = deaths(world, power)
    assert len(states) > (50 if power else 260), "no death while metadata is made"
    for left in states[rng.randrange(stride) :: stride]:
        left.put_back(world, power)
        _ends_right(world, str(left))


@pytest.mark.soak
@pytest.mark.parametrize("way", sorted(set(WAYS) - {"plain"}))
def test_death_at_calls_of_grouped_and_asynchronous_publishing(way):
    world = memory_world(table_options=OPTIONS, **WAYS[way])
    for left in deaths(world, False)[::6]:
        left.put_back(world, False)
        _ends_right(world, str(left))


def test_death_at_each_step_of_the_metadata():
    """And a start without a batch makes what the death has left out."""
    world = memory_world(table_options=OPTIONS)
    states = [left for left in deaths_at_steps(world) if any(step.startswith("iceberg.") for step, _ in left.steps)]
    seen = {step for left in states for step, _ in left.steps}
    assert seen >= {step for step in faults.STEPS if step.startswith("iceberg.")}
    for left in states:
        left.put_back(world, False)
        _ends_right(world, f"{left}: {left.steps}")


def test_a_start_alone_catches_up():
    """The driver died when its last batch was marked, and no further batch comes."""
    world = memory_world(table_options=OPTIONS)
    world.run()
    table, folder = _table(world), f"{world.driver.root}/metadata"
    table.file_io.delete_tree(folder)
    world.run()
    check_named(_table(world), folder)


@pytest.mark.parametrize("error", [OSError(5, "no answer"), PermissionError(13, "denied"), ValueError("a defect")])
def test_no_batch_fails_because_of_the_metadata(error, caplog):
    """It is said once, not with each batch, and made as soon as it can be."""

    world = memory_world(table_options=OPTIONS)
    calls = CrashingCalls(world.calls)
    link = calls.link

    def refusing(source, target):
        if "/metadata/" in target:
            raise error
        return link(source, target)

    calls.link = refusing
    world.run(calls)
    assert len([line for line in caplog.records if "could not be made" in line.getMessage()]) <= 2
    assert not _table(world).file_io.exists(f"{world.driver.root}/metadata/version-hint.text")
    ends_right(world, "refused")
    check_named(_table(world), f"{world.driver.root}/metadata")


@pytest.mark.parametrize("step", sorted(step for step in faults.STEPS if step.startswith("iceberg.")))
def test_death_while_one_of_several_tables_gets_its_metadata(step, rng):
    """The start of a query into many tables, dead letters among them, catches up in each."""
    world = ManyWorld(table_options=OPTIONS)
    occurrence = rng.randint(1, 8)
    assert dies_at(step, occurrence, world.calls, world.run)
    world.die()
    world.run()
    check_complete(world.rows())
    for name in world.tables:
        if name != "strict":  # which its owner has made, without the option
            check_named(world.table(name), f"{world.root}/{name}/metadata")


def test_what_dead_writers_have_left_is_an_orphan():
    """When it is old enough; what the metadata names stays."""
    world = memory_world(table_options=OPTIONS)
    for step in ("iceberg.files_written", "iceberg.metadata_made"):
        assert dies_at(step, 1, world.calls, world.run)
        world.die()
    world.run()
    table = open_table(world.file_io(world.calls), world.driver.root, for_writing=True)
    left = {path for path, _ in Following(table).unnamed()}
    assert left and remove_orphans(table, needed_of_all(table)).paths == ()
    for file in world.calls._names.values():
        file.modified_ms -= 2 * 86_400_000
    assert set(remove_orphans(table, needed_of_all(table)).paths) == left
    check_named(table, f"{world.driver.root}/metadata")
    assert Following(table).unnamed() == []
