"""streamsink's own compaction as an event: whole, or cut off at a call; see ``events.py``."""

from streamsink.compaction.compactor import Compactor
from streamsink.compaction.plan import pack_all
from streamsink.errors import StreamsinkError
from streamsink.options import SinkOptions
from streamsink.table.table import open_table
from streamsink.testing.faults import InjectedCrash
from tests.walks.events import MODES, event
from tests.walks.store import Process

_MOST_CALLS = 150


@event(3, 2)
def own_compaction(walk, call, mode):
    """Small files become few by streamsink's own compaction, which may die, or meet an error of the store, at a call.
    What an earlier one has left is swept.
    """
    world = walk.world
    if not world.others.is_table():
        return
    process = Process(world.store, world.root)
    if call % 3:
        process.fail_in(1 + call % _MOST_CALLS, MODES[mode % len(MODES)])
    options = SinkOptions.of(world.root, {"commit_min_wait_ms": 0, "commit_max_wait_ms": 0})
    try:
        table = open_table(process.io, world.root, for_writing=True)
        compactor = Compactor(table, options, abandoned_ms=0)
        compactor.settle()
        compactor.do(compactor.plan(pack_all))
    except (InjectedCrash, StreamsinkError, OSError):
        pass  # it is tried again by the next one
    process.calm()
    process.die()
    world.accident("others")
