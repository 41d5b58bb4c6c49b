"""Paimon's own rollback as latest, which takes the states of applications back, as a stream meets it."""

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.storage.file_io import FileIO
from streamsink.table.branching.rollback import BackTo
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.table import open_table
from tests.crash.world import BOUNDARIES, die_at_step, expected, memory_world
from tests.protocol.history import expire_before
from tests.table.entries import OPTIONS

FIRST = BOUNDARIES[0]


class _OfThen(Guard):
    """Paimon's rollback as latest: the snapshot's properties are those of the target."""

    def __init__(self, states):
        self._states = states

    def carried(self, states):
        return self._states


@pytest.mark.parametrize("is_expired", [False, True], ids=["whole", "expired"])
@pytest.mark.parametrize("way", ["fail", "republish"])
@pytest.mark.parametrize("dies", ["not", "precommit.saved", "commit.published"])
def test_paimons_rollback_as_latest_is_no_purpose_that_we_know(dies, way, is_expired):
    """It takes the states of the target, so it is to streams what a restored backup is: an error, or published again.

    Formerly the snapshots between, which are retained, were taken for a proof that the rows are there: they were lost.
    """
    world = memory_world(on_rollback=way, restore="restore-and-continue", journal_retain=10)
    world.run(boundaries=BOUNDARIES[:1])
    if dies == "not":
        world.run()
    else:
        assert die_at_step(dies, 1, world, boundaries=BOUNDARIES[:2])
    table = open_table(FileIO(world.calls, IdSource().new_id), world.driver.root, for_writing=True)
    then = table.snapshots.load(1)
    request = CommitRequest(
        "rollback-to-as-latest-1",
        2**63 - 1,
        Changes(),
        IdSource().new_id(),
        "OVERWRITE",
        overwrite=BackTo(entries=tuple(table.manifests.entries_of(then))),
        adds_again=True,
    )
    TableCommit(table, OPTIONS).commit(request, _OfThen(table.states.read(then)))
    assert world.ids() == list(range(FIRST))
    if is_expired:
        expire_before(table, table.snapshots.latest().id)
    if way == "fail" and dies == "not":
        with pytest.raises(Misuse) as stopped:
            world.run()
        assert stopped.value.kind == "table.rolled-back" and world.ids() == list(range(FIRST))
        return
    world.run()
    assert world.ids() == expected()
