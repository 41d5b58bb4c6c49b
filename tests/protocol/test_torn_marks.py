"""Marks that do not say where a record was published, or not any more: torn by a power failure, made by a start that found it published, or older."""

import copy
import dataclasses
import itertools
import re

import pytest

from streamsink import faults
from streamsink.errors import Corrupt, Misuse
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import Checkpoint
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.advice.accidents import accept, put_back, take
from tests.crash.giving_up import follow, run_from
from tests.crash.world import die_at_step, memory_world
from tests.protocol.history import (
    assert_republished_when_told, drop_from_newest, drop_states, expire, io_of, mine_of, newest_of, of_others, other_application, roll_back,
    roll_back_to, tear_mark,
)
from tests.table.foreign import Prepared, compact, record_of


@pytest.mark.parametrize("happened", ["rolled back", "and another came", "replaced"])
def test_a_torn_mark_does_not_prove_that_its_record_is_there(happened):
    """Its snapshot went, history before it has expired, and all that is retained since shows that its rows are not there. A walk lost them."""
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
    """The other advice of that error: what is given up is read again."""
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
    world.checkpoint = Checkpoint("00000000-0000-0000-0000-000000000009")
    run_from(world, 3, (6, 9))
    assert mine_of(world) == list(range(9))


def test_a_torn_mark_is_trusted_where_nothing_speaks_against_it():
    """What could tell has expired, and nothing happened to the table: its rows were compacted away. Nobody is asked, at any later start."""
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
    """It is published. The error for it had no way on: `give_up` found nothing to give up."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    tear_mark(world, 2)
    io_of(world).replace(f"{world.driver.root}/streamsink/streamsink/record-2.json", b"{}", "damaged")
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


@pytest.mark.parametrize("options", [{}, {"publish_every_batches": 3}], ids=["each-batch", "grouped"])
def test_a_record_that_is_accepted_as_seen_is_the_only_one(options):
    """The option stays: what is recorded after it is published, after a crash and in groups as well."""
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
    """A rollback that happens later is seen by it, when neither our snapshots nor all since the record was made are there."""
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
    """At any call of that start. The temporary file of the first one stood in the way of every later one."""
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


@pytest.mark.parametrize("is_started_again", [True, False])
def test_a_record_that_is_published_again_and_not_marked_and_goes_once_more(is_started_again):
    """Its first mark said nothing of a table that went back behind it and is longer than that again: the rows were lost in silence."""
    world = memory_world(restore="restore-and-continue", on_rollback="republish", journal_retain=5)
    world.run(boundaries=(6, 9))
    roll_back(world, 1)
    for name in ("a", "b", "c"):
        other_application(world, name)
    assert die_at_step("commit.published", 1, world, boundaries=(6, 9))
    assert newest_of(world) == 5 and mine_of(world) == list(range(9))
    if is_started_again:
        world.run(boundaries=(6, 9))
    for number in range(5, 1, -1):
        io_of(world).delete(f"{world.driver.root}/snapshot/snapshot-{number}")
    for name in ("d", "e"):
        other_application(world, name)
    drop_states(world)
    expire(world, 1, 2)
    if not is_started_again:
        _answer(world, "accept_as_new")
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


def test_a_start_finds_out_where_a_record_is_that_was_published_again_and_not_marked():
    """Its mark still said that another writer had replaced it, and what its user then rolled back was published again unasked."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    replacing = Prepared(world)
    world.run(boundaries=(6, 9))
    replacing.rename()
    assert die_at_step("commit.published", 1, world, boundaries=(6, 9))
    world.run(boundaries=(6, 9))
    assert newest_of(world) == 3 and mine_of(world) == list(range(9))
    roll_back(world, 2)
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9, 14))
    assert refused.value.kind == "table.rolled-back" and mine_of(world) == list(range(6))


# -- marks of records that a start was about to publish once more: nobody knows whether they are there ------------------


def _again(*, others: int = 0, **settings):
    """Record 2 was rolled back, and a start may publish it again. others: how many applications have written since."""
    world = memory_world(restore="restore-and-continue", on_rollback="republish", journal_retain=5, **settings)
    world.run(boundaries=(6, 9))
    snapshot = io_of(world).read(f"{world.driver.root}/snapshot/snapshot-2")
    roll_back(world, 1)
    for name in "abcde"[:others]:
        other_application(world, name)
    return world, snapshot


def _answer(world, way: str) -> None:
    """What is asked of record 2 is answered so, and the query goes on with each row once."""
    with pytest.raises(Corrupt) as asked:
        world.run(boundaries=(6, 9, 14))
    assert asked.value.kind == "journal.undecidable"
    world.driver.options = dataclasses.replace(world.driver.options, **{way: re.search(rf"{way}='(\w+)'", str(asked.value))[1]})
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


@pytest.mark.parametrize("on_rollback", ["fail", "republish"])
@pytest.mark.parametrize("way", ["its files had gone", "died"])
def test_it_was_not_published_and_then_the_table_was_restored(way, on_rollback):
    """The rows are there, and were published a second time, or said to be rolled back."""
    world, snapshot = _again(others=5, table_options={"manifest.full-compaction-threshold-size": "1 b"})
    if way == "died":
        assert die_at_step("commit.before_publish", 1, world, boundaries=(6, 9))
    else:
        paths = [f"{world.driver.root}/{path}" for file in record_of(world, 2).files for path in (file.final, file.staged)]
        gone = {path: take(world, path) for path in paths if io_of(world).exists(path)}
        with pytest.raises(Corrupt) as stopped:
            world.run(boundaries=(6, 9))
        assert stopped.value.kind == "pending.files-gone"
        for path, data in gone.items():
            put_back(world, path, data)
    for number in range(3, newest_of(world) + 1):
        io_of(world).delete(f"{world.driver.root}/snapshot/snapshot-{number}")
    put_back(world, f"{world.driver.root}/snapshot/snapshot-2", snapshot)
    io_of(world).replace(f"{world.driver.root}/snapshot/LATEST", b"2", "restored")
    compact(world)
    Prepared(world, 7).rename()
    expire(world, 1, newest_of(world) - 1)
    accept(world, on_rollback=on_rollback)
    _answer(world, "accept_as_seen")


def test_it_was_not_published_and_then_others_came():
    """Its first mark, of a snapshot that had expired, was taken for a proof, and the rows were lost in silence."""
    world, _ = _again()
    assert die_at_step("commit.before_publish", 1, world, boundaries=(6, 9))
    for number in (1, 2, 3):
        Prepared(world, number).rename()
    expire(world, 1, newest_of(world) - 1)
    _answer(world, "accept_as_new")


@pytest.mark.parametrize("is_compacted", [True, False])
@pytest.mark.parametrize("on_rollback", ["fail", "republish"])
def test_it_was_published_behind_a_rollback_that_came_meanwhile(on_rollback, is_compacted):
    """The rows are there."""
    world, _ = _again(others=5, table_options={"manifest.full-compaction-threshold-size": "1 b"})
    calls, table = CrashingCalls(world.calls), open_table(io_of(world), world.driver.root, for_writing=False)

    def die():
        calls.dead = True
        crash()

    def goes_back():
        roll_back_to(table, 2)
        arm("commit.published", 1, die)

    arm("commit.before_filter", 1, goes_back)
    with pytest.raises(InjectedCrash):
        world.run(calls, boundaries=(6, 9))
    faults.arm(None)
    world.die()
    assert newest_of(world) == 3 and mine_of(world) == list(range(9))
    if is_compacted:
        compact(world)
    Prepared(world, 7).rename()
    expire(world, 1, newest_of(world) - 1)
    accept(world, on_rollback=on_rollback)
    if is_compacted:
        _answer(world, "accept_as_seen")
        return
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


@pytest.mark.parametrize("on_rollback", ["fail", "republish"])
def test_it_was_published_and_its_snapshot_replaced_when_a_third_one_had_built_on_it(on_rollback):
    """As of a record without a mark, nothing was wrong: and the table was said to be rolled back."""
    world, _ = _again()
    replacing = Prepared(world, 1)
    assert die_at_step("commit.published", 1, world, boundaries=(6, 9))
    third = Prepared(world, 2)
    replacing.rename()
    third.rename()
    accept(world, on_rollback=on_rollback)
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))
