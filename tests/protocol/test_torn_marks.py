"""Marks that do not say where a record was published:
they were torn by a power failure, or made by a start that found the record published."""

import copy
import dataclasses
import itertools
import re

import pytest

from streamsink.errors import Corrupt, Misuse
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from tests.crash.giving_up import follow, run_from
from tests.crash.world import die_at_step, memory_world
from tests.protocol.history import (
    assert_republished_when_told,
    drop_from_newest,
    expire,
    io_of,
    mine_of,
    newest_of,
    of_others,
    roll_back,
    tear_mark,
)
from tests.table.foreign import Prepared


@pytest.mark.parametrize("happened", ["rolled back", "and another came", "replaced"])
def test_a_torn_mark_does_not_prove_that_its_record_is_there(happened):
    """Found by a walk that lost rows: the record's snapshot was deleted, the history before it has expired, and
    everything that is retained since shows that its rows are not there."""
    world = memory_world(restore="restore-and-continue")
    of_others(world)
    prepared = Prepared(world, 1)
    world.run(boundaries=(6,))
    published = newest_of(world)
    if happened == "replaced":
        prepared.rename()
    else:
        roll_back(world, published - 1)
    if happened == "and another came":
        Prepared(world, 1).rename()
    expire(world, 1, published - 2)
    tear_mark(world)
    assert_republished_when_told(world)


def test_a_torn_mark_of_a_record_that_a_rollback_took_is_given_up():
    """This is the other advice of that error: what is given up is read again."""
    world = memory_world(restore="restore-and-continue")
    of_others(world)
    world.run(boundaries=(3, 6))
    roll_back(world, newest_of(world) - 1)
    Prepared(world, 1).rename()
    expire(world, 1, newest_of(world) - 1)
    tear_mark(world, 2)
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(3, 6, 9))
    assert refused.value.kind == "table.rolled-back" and mine_of(world) == [0, 1, 2]
    assert follow(world, refused.value).records == (2,)
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000009")
    run_from(world, 3, (6, 9))
    assert mine_of(world) == list(range(9))


def test_a_torn_mark_is_trusted_where_nothing_speaks_against_it():
    """What could tell has expired, and nothing happened to the table: its rows were compacted away.
    Nobody is asked, at any later start."""
    world = memory_world(restore="restore-and-continue")
    of_others(world)
    world.run(boundaries=(6,))
    prepared = Prepared(world, 1)
    prepared.rename()
    drop_from_newest(world)
    expire(world, 1, newest_of(world) - 1)
    tear_mark(world)
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9))
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(6, 14))


def test_the_last_record_need_not_be_readable_for_its_mark_to_be_mended():
    """The record is published. Formerly the error for it had no way on: `give_up` found nothing to give up."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    tear_mark(world, 2)
    io_of(world).replace(f"{world.driver.root}/streamsink/streamsink/record-2.json", b"{}", "damaged")
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


@pytest.mark.parametrize("options", [{}, {"publish_every_batches": 3}], ids=["each-batch", "grouped"])
def test_a_record_that_is_accepted_as_seen_is_the_only_one(options):
    """The option stays in the job.
    What is recorded after that record is published, after a crash and in groups as well."""
    world = memory_world(restore="restore-and-continue", **options)
    of_others(world)
    assert die_at_step("commit.hinted", 1, world, boundaries=(6,))
    prepared = Prepared(world, 1)
    prepared.rename()
    drop_from_newest(world)
    expire(world, 1, newest_of(world) - 1)
    with pytest.raises(Corrupt) as asked:
        world.run(boundaries=(6, 9))
    token = re.search(r"accept_as_seen='(\w+)'", str(asked.value))[1]
    world.driver.options = dataclasses.replace(world.driver.options, accept_as_seen=token)
    if not options:
        assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9))
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(6, 14))


@pytest.mark.parametrize("accident", ["killed before the mark", "torn"])
def test_a_mark_that_does_not_say_where_is_mended_while_the_table_can_tell(accident):
    """With the mended mark a later rollback is noticed,
    even when neither our snapshots nor all snapshots since the record are there."""
    world = memory_world(restore="restore-and-continue")
    of_others(world)
    assert die_at_step("precommit.saved", 1, world, boundaries=(6,))
    Prepared(world, 1).rename()
    if accident == "torn":
        world.run(boundaries=(6,))
        tear_mark(world)
    else:
        assert die_at_step("commit.hinted", 1, world, boundaries=(6,))
    world.run(boundaries=(6,))
    roll_back(world, newest_of(world) - 1)
    Prepared(world, 2).rename()
    expire(world, 1, newest_of(world) - 1)
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9))
    assert refused.value.kind == "table.rolled-back" and mine_of(world) == []


def test_a_mark_that_is_mended_by_a_driver_that_dies_is_mended_by_the_next():
    """The driver dies at any call of that start. Formerly its temporary file stood in the way of every later start."""
    before = memory_world(restore="restore-and-continue")
    of_others(before)
    before.run(boundaries=(6,))
    tear_mark(before)
    for number in itertools.count(1):
        world = copy.deepcopy(before)
        try:
            world.run(CrashingCalls(world.calls, number), boundaries=(6,))
        except InjectedCrash:
            world.die()
        else:
            break
        world.run(boundaries=(6, 9))
        assert mine_of(world) == list(range(9))
    assert number > 10
