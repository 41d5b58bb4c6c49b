"""What is told beside the batches, and that listening asks a store for nothing."""

import dataclasses

from streamsink.compaction.beside import Beside
from streamsink.metrics import Metrics
from streamsink.table.read.scan import read_arrow
from tests.compaction.beside import compact, opened, small_files
from tests.crash.world import counting, memory_world
from tests.metrics.chaos import Heard


def test_small_files_are_told_when_a_look_finds_others():
    """How many there are, in how many partitions; once, as long as nothing changes."""
    world, seen = small_files(), []
    given = {"compaction_core_percent": 100, "compaction_interval_ms": 1}
    options = dataclasses.replace(world.driver.options, **given)
    beside = Beside(
        lambda: [world.driver.root],
        lambda root: opened(world),
        options,
        is_over=lambda: False,
        tell=lambda *done: None,
        look=lambda *found: seen.append(found),
    )
    for _ in range(2):
        beside.round()
    compact(world)
    for _ in range(2):
        beside.round()
    first, last = seen
    assert (first[:3], last[:3]) == ((world.driver.root, 3, 9), (world.driver.root, 3, 3))
    assert first[3] > last[3] > 0
    assert len(read_arrow(opened(world))) == 14


def test_listening_asks_the_store_for_nothing():
    """A query with metrics makes the calls that it makes without, one by one."""
    asked = []
    for listener in (None, Metrics()):
        world = memory_world()
        if listener is not None:
            world.driver.events = Heard(listener)
        calls = counting(world)
        world.run(calls)
        asked.append(calls.log)
    assert asked[0] == asked[1]
