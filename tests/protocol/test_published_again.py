"""Marks of records that a start was about to publish again:
from then on these marks do not tell whether the records are there."""

import dataclasses
import re

import pytest

from streamsink import faults
from streamsink.commands.offsets import Wanted, offsets_of
from streamsink.commands.retire import retire
from streamsink.commands.verify import verify
from streamsink.errors import Corrupt, Misuse
from streamsink.options import SinkOptions
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.advice.accidents import accept, put_back, refused, stopped_by, take
from tests.crash.giving_up import clean, follow
from tests.crash.world import die_at_step, memory_world
from tests.protocol.history import (
    drop_from_newest,
    drop_states,
    expire,
    io_of,
    mine_of,
    newest_of,
    other_application,
    roll_back,
    roll_back_to,
)
from tests.table.foreign import Prepared, compact, record_of


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
    """Give this answer to what is asked about record 2; then the query goes on with each row once."""
    with pytest.raises(Corrupt) as asked:
        world.run(boundaries=(6, 9, 14))
    assert asked.value.kind == "journal.undecidable"
    world.driver.options = dataclasses.replace(
        world.driver.options, **{way: re.search(rf"{way}='(\w+)'", str(asked.value))[1]}
    )
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


@pytest.mark.parametrize("is_started_again", [True, False])
def test_a_record_that_is_published_again_and_not_marked_and_goes_once_more(is_started_again):
    """Its first mark said nothing of a table that went back behind it and then grew longer than that again.
    Formerly the rows were lost in silence."""
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
    """Its mark still said that another writer had replaced it.
    Formerly what its user then rolled back was published again unasked."""
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


@pytest.mark.parametrize("on_rollback", ["fail", "republish"])
@pytest.mark.parametrize("way", ["its files had gone", "died"])
def test_it_was_not_published_and_then_the_table_was_restored(way, on_rollback):
    """The rows are there. Formerly they were published a second time, or were said to be rolled back."""
    world, snapshot = _again(others=5, table_options={"manifest.full-compaction-threshold-size": "1 b"})
    if way == "died":
        assert die_at_step("commit.before_publish", 1, world, boundaries=(6, 9))
    else:
        paths = [
            f"{world.driver.root}/{path}" for file in record_of(world, 2).files for path in (file.final, file.staged)
        ]
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
    if way == "died":
        _answer(world, "accept_as_seen")
        return
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


def test_it_was_not_published_and_then_others_came():
    """Formerly its first mark, of a snapshot that had expired,
    was taken for a proof, and the rows were lost in silence."""
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
    """Nothing is wrong, as with a record without a mark. Formerly the table was said to be rolled back."""
    world, _ = _again()
    replacing = Prepared(world, 1)
    assert die_at_step("commit.published", 1, world, boundaries=(6, 9))
    third = Prepared(world, 2)
    replacing.rename()
    third.rename()
    accept(world, on_rollback=on_rollback)
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


def _others_came():
    """The record was not published, and its history has expired."""
    world, _ = _again()
    assert die_at_step("commit.before_publish", 1, world, boundaries=(6, 9))
    for number in (1, 2, 3):
        Prepared(world, number).rename()
    expire(world, 1, newest_of(world) - 1)
    return world


def test_another_name_does_not_go_on_from_it():
    """Formerly what may not be there was taken for published."""
    world = _others_came()
    accept(world, application="new", adopt_from_batch=2)
    refused(world, "history.incomplete", (6, 9, 14))
    accept(world, new_application=refused(world, "history.incomplete", (6, 9, 14)).option("new_application"))
    refused(world, "application.renamed", (6, 9, 14)).says("first start the query once more under the first one")


def test_it_is_given_up_when_its_files_have_gone():
    """Formerly it was taken for published, and could not be given up."""
    world = _others_came()
    clean(world, 2)
    said = refused(world, "journal.undecidable", (6, 9, 14))
    assert follow(world, said).records == (2,)
    world.checkpoint.committed = 1
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


def test_where_a_new_checkpoint_begins_is_not_told_before_a_start():
    world = _others_came()
    with pytest.raises(Misuse) as refusal:
        offsets_of(io_of(world), world.driver.root, "streamsink", Wanted())
    assert refusal.value.kind == "positions.unsettled"


def test_it_is_pending_for_verify():
    """Formerly ``verify`` said that the table was damaged."""
    world, _ = _again()
    assert die_at_step("commit.before_publish", 1, world, boundaries=(6, 9))
    found = verify(io_of(world), world.driver.root).findings
    assert [(each.severity, each.kind) for each in found] == [
        ("note", "checkpoint.pending"),
        ("note", "staging.files"),
    ], "the latter of record 1"


# -- which a start finds in the table, and from then on its mark says where it is ------------------------------------


def _found_in_the_table(how: str):
    """expired: the snapshot that published it has expired by then. group: two records came in one snapshot."""
    if how == "expired":
        world, _ = _again()
        ends = (6, 9, 12, 14)
        assert die_at_step("commit.published", 1, world, boundaries=(6, 9))
        published = newest_of(world)
        other_application(world, "a")
        expire(world, 1, published)
    else:
        ends = (3, 6, 9, 12)
        world = memory_world(
            restore="restore-and-continue",
            on_rollback="republish",
            journal_retain=20,
            publish_every_batches=2,
            publish_as="one-snapshot",
        )
        world.run(boundaries=ends)
        roll_back(world, 1)
        assert die_at_step("commit.published", 1, world, boundaries=ends)
    world.run(boundaries=ends)
    world.run(boundaries=(*ends, 16, 18))
    assert mine_of(world) == list(range(18))
    accept(world, on_rollback="fail")
    return world, (*ends, 16, 18)


FOUND = pytest.mark.parametrize("how", ["expired", "group"])


@FOUND
def test_what_is_rolled_back_behind_it_is_given_up(how):
    """Formerly nothing was given up, and the error that had named the command came again, for ever."""
    world, ends = _found_in_the_table(how)
    roll_back(world, newest_of(world) - 1)
    assert follow(world, refused(world, "table.rolled-back", ends)).records
    assert "rolled back" not in (stopped_by(world, ends) or "")


@FOUND
def test_what_is_rolled_back_behind_it_does_not_come_unasked(how):
    world, ends = _found_in_the_table(how)
    roll_back(world, newest_of(world) - 1)
    drop_states(world)
    for number in range(1, newest_of(world)):
        if io_of(world).exists(f"{world.driver.root}/snapshot/snapshot-{number}"):
            expire(world, number, number)
    refused(world, "table.rolled-back", ends)


@FOUND
def test_its_history_expires_and_nothing_is_asked(how):
    """Nothing is wrong."""
    world, ends = _found_in_the_table(how)
    other_application(world, "z")
    drop_states(world)
    drop_from_newest(world)
    for number in range(1, newest_of(world)):
        if io_of(world).exists(f"{world.driver.root}/snapshot/snapshot-{number}"):
            expire(world, number, number)
    world.run(boundaries=(*ends, 20))


def test_what_its_user_has_seen_is_not_asked_for_again():
    """The word has recorded it as published, as its message said."""
    world, _ = _again(others=5, table_options={"manifest.full-compaction-threshold-size": "1 b"})
    assert die_at_step("commit.published", 1, world, boundaries=(6, 9))
    compact(world)
    Prepared(world, 7).rename()
    expire(world, 1, newest_of(world) - 1)
    accept(world, accept_as_seen=refused(world, "journal.undecidable", (6, 9)).option("accept_as_seen"))
    world.run(boundaries=(6, 9))
    accept(world, accept_as_seen=None)
    world.run(boundaries=(6, 9))
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


def test_another_name_goes_on_from_it_and_the_table_goes_back_behind_it():
    """Formerly the other name's record said where it had been before, and what a rollback took was lost in silence."""
    world, _ = _again(others=5)
    assert die_at_step("commit.published", 1, world, boundaries=(6, 9))
    accept(world, application="new", adopt_from_batch=2)
    world.run(boundaries=(6, 9, 14))
    for newest in (7, 6):
        roll_back(world, newest)
    other_application(world, "z")
    drop_states(world)
    expire(world, 1, newest_of(world) - 1)
    accept(world, adopt_from_batch=None)
    refused(world, "table.rolled-back-too-far", (6, 9, 14, 16))


@pytest.mark.parametrize("application", ["streamsink", "new"])
def test_it_is_not_retired(application):
    """It is pending."""
    world = memory_world(restore="restore-and-continue", on_rollback="republish", journal_retain=10)
    world.run(boundaries=(6, 9))
    accept(world, application=application, adopt_from_batch=2)
    world.run(boundaries=(6, 9, 12))
    roll_back(world, 2)
    assert die_at_step("commit.before_publish", 1, world, boundaries=(6, 9, 12))
    with pytest.raises(Misuse) as refusal:
        retire(io_of(world), world.driver.root, SinkOptions.of(world.driver.root, {"application": "streamsink"}))
    assert refusal.value.kind == "retire.pending"


@pytest.mark.parametrize("is_expired", [True, False])
def test_another_name_believes_the_first_one_that_has_found_it_since(is_expired):
    """Found by a walk: nobody knew any more where it had been, the table went back behind where it was, and the names
    were sent to each other. is_expired: the snapshot that tells where it is has expired when the query gets its other
    name."""
    world, _ = _again()
    assert die_at_step("commit.published", 1, world, boundaries=(6, 9))
    for name in "ab":
        other_application(world, name)
    if is_expired:
        expire(world, 1, 2)
    accept(world, application="new", adopt_from_batch=2)
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9, 14))
    roll_back(world, 3)
    Prepared(world, 5).rename()
    expire(world, 3 if is_expired else 1, 3)
    if is_expired:
        accept(world, application="streamsink", adopt_from_batch=None)
        accept(
            world,
            application=refused(world, "application.renamed", (6, 9, 14)).find(r"Set application='([^']*)' to go on"),
        )
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


def test_what_its_user_has_seen_behind_it_is_not_denied_by_an_older_mark():
    """Found by a walk: the query was restarted for ever,
    because the mark of the record behind the one that had come again said that it had gone."""
    world = memory_world(restore="restore-and-continue", on_rollback="republish", journal_retain=5)
    world.run(boundaries=(6, 9))
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9, 14))
    for name in "ab":
        other_application(world, name)
    world.run(boundaries=(6, 9, 14))
    for newest in (4, 3, 2, 1):
        roll_back(world, newest)
    assert die_at_step("commit.published", 1, world, boundaries=(6, 9, 14))
    for number in (5, 6):
        Prepared(world, number).rename()
    expire(world, 1, newest_of(world) - 1)
    accept(world, accept_as_seen=refused(world, "journal.undecidable", (6, 9, 14)).option("accept_as_seen"))
    world.run(boundaries=(6, 9, 14, 17))
    assert mine_of(world) == [*range(9), *range(14, 17)]
