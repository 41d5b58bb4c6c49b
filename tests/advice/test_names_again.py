"""Advice for a query that had another name, got its first one back, and comes under the other one once more."""

import copy
import dataclasses

import pytest

from streamsink.format.snapshot import Snapshot
from streamsink.table.states import HISTORY
from tests.advice.accidents import POSITIONS, accept, lose_checkpoint, refused
from tests.advice.following import follows
from tests.crash.giving_up import follow
from tests.crash.world import expected, memory_world
from tests.protocol.history import io_of, newest_of, roll_back

ENDS = (6, 9, 12, 15, 18)


@follows("table.rolled-back-too-far")
@pytest.mark.parametrize("on_rollback", ["fail", "republish"])
@pytest.mark.parametrize("way", ["first-name", "given-up"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_query_has_gone_on_under_its_first_name_since_the_table_was_rolled_back(way, on_rollback, is_whole):
    """Found by a bred walk: what the other name had lost was published again, as its error said, although the first name had written it since. The
    first name had not been told of it, because the last record of the other one is of another checkpoint. is_whole: all of history is known."""
    world = memory_world(restore="restore-and-continue", position_columns=POSITIONS)
    world.run(boundaries=ENDS[:2])
    accept(world, application="new", adopt_from_batch=2)
    world.run(boundaries=ENDS[:3])
    checkpoint = copy.deepcopy(world.checkpoint)
    lose_checkpoint(world)
    accept(world, adopt_from_batch=None)
    world.run(boundaries=ENDS[:1])
    for newest in (3, 2):
        roll_back(world, newest)
    world.checkpoint = checkpoint
    world.checkpoint.committed -= 1
    accept(world, application="streamsink", adopt_from_batch=None)
    world.run(boundaries=ENDS[:4])
    if not is_whole:
        _says_that_history_is_incomplete(world)
    accept(world, application="new", on_rollback=on_rollback)
    said = refused(world, "table.rolled-back-too-far", ENDS)
    if way == "first-name":
        accept(world, application=said.find(r"Set application='([^']*)' to go on"))
    else:
        follow(world, said)
        if not is_whole:
            accept(world, new_application=refused(world, "history.incomplete", ENDS).option("new_application"))
        said = refused(world, "application.renamed", ENDS)
        accept(world, adopt_from_batch=said.option("adopt_from_batch"))
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS[-1:])


def _says_that_history_is_incomplete(world) -> None:
    """As where snapshots had expired before anybody had read what they said of applications."""
    path = f"{world.driver.root}/snapshot/snapshot-{newest_of(world)}"
    newest = Snapshot.from_json(io_of(world).read(path), path)
    io_of(world).replace(path, dataclasses.replace(newest, properties={**newest.properties, HISTORY: "incomplete"}).to_json(), "incomplete")
