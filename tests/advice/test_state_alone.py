"""Advice for a record whose rows were hidden when another writer's snapshot replaced theirs: its state was published
alone, and then a rollback took that state."""

from types import SimpleNamespace

import pytest

from streamsink.errors import StreamsinkError
from tests.advice.accidents import accept, damage, lose_checkpoint, refused, start_over, starting_offset
from tests.advice.following import Advice, follows, told
from tests.crash.giving_up import follow
from tests.crash.world import BOUNDARIES, die_at_step, expected, memory_world
from tests.protocol.history import (
    drop_states,
    expire,
    io_of,
    mine_of,
    newest_of,
    other_application,
    published_not_marked,
    say_new,
)
from tests.table.foreign import Prepared, compact, record_of

ENDS = BOUNDARIES[:3]
# The third batch of such a query, which has another name from there on, and the batch after it.
RENAMED, NEXT = (*ENDS[:2], 14), (*ENDS[:2], 14, 17)
# A commit leaves no manifest that adds a file and another one that deletes it.
MERGES = {"manifest.full-compaction-threshold-size": "1 b"}


def _rolled_back(to: int, *, compacted: int | None = None, is_carried: bool = False, is_torn: bool = False, **settings):
    """The record is in snapshot 2, a third writer's snapshot is 3, a compaction of the record's files is 4, the
    record's state alone is in 5; and then the table goes back.

    Another application's snapshot follows, and all snapshots before it expire. compacted: how many of the record's
    files were compacted; None for all. is_carried: the newest snapshot says how far the application was. is_torn: a
    power failure has torn the mark of the record, and a start has found out where the record is.
    """
    world, _ = published_not_marked(table_options=MERGES, **settings)
    compact(world, compacted)
    world.run(boundaries=ENDS[:2])
    assert newest_of(world) == 5 and mine_of(world) == expected(ENDS[:2])
    if is_torn:
        damage(world, f"{world.driver.root}/streamsink/streamsink/done-2", b"")
        world.run(boundaries=ENDS[:2])
    for number in range(5, to, -1):
        io_of(world).delete(f"{world.driver.root}/snapshot/snapshot-{number}")
    other_application(world, "merging")
    if not is_carried:
        drop_states(world)
    expire(world, 1, to)
    return world


def _asked(world):
    """The error with which the start asks; by then the journal may publish again."""
    accept(world, on_rollback="republish")
    return refused(world, "journal.undecidable", ENDS)


@follows("journal.undecidable")
@pytest.mark.parametrize("settings", [{}, {"on_rollback": "republish"}, {"is_torn": True}], ids=str)
@pytest.mark.parametrize("is_carried", [True, False])
def test_its_rows_were_compacted_and_are_there(is_carried, settings):
    """Found by variants of a walk: with on_rollback='republish' they were published again without a question."""
    world = _rolled_back(4, is_carried=is_carried, **settings)
    accept(world, accept_as_seen=_asked(world).option("accept_as_seen"))
    world.run(boundaries=ENDS)
    assert mine_of(world) == expected(ENDS)


@pytest.mark.parametrize("gone", ["its manifest", "its data files, which are staged still"])
def test_what_is_asked_names_a_file_with_its_rows(gone):
    """Found by walks: who has lost the checkpoint does not know otherwise which rows they are."""
    world = _rolled_back(4, on_rollback="republish")
    record = record_of(world, 2)
    for name in (
        [record.payload["manifest"]["final"]] if gone == "its manifest" else [file.final for file in record.files]
    ):
        io_of(world).delete(f"{world.driver.root}/{name}")
    path = _asked(world).find(r"\(those of checkpoint 1 are in (\S+\.parquet)")
    assert io_of(world).exists(path)


@follows("journal.undecidable")
@pytest.mark.parametrize("is_carried", [True, False])
def test_its_rows_went_too(is_carried):
    """The table looks the same to the journal. Its user has looked at the rows."""
    world = _rolled_back(2, is_carried=is_carried)
    accept(world, accept_as_new=_asked(world).option("accept_as_new"))
    world.run(boundaries=ENDS)
    assert mine_of(world) == expected(ENDS)


def test_one_of_its_files_is_there_still():
    """Its manifest has expired, and one of its files was compacted. Formerly the error for restoring them and the
    command for giving up led to each other for ever."""
    world = _rolled_back(4, compacted=1)
    manifest = record_of(world, 2).payload["manifest"]["final"]
    io_of(world).delete(f"{world.driver.root}/{manifest}")
    accept(world, on_rollback="republish")
    world.run(boundaries=ENDS)
    assert mine_of(world) == expected(ENDS)


@follows("give-up.undecidable")
@pytest.mark.parametrize("is_carried", [True, False])
@pytest.mark.parametrize("are_there", [True, False])
def test_it_is_given_up(are_there, is_carried):
    """Nothing that is there is read again, because the command asks whether it is there."""
    world = _rolled_back(4 if are_there else 2, is_carried=is_carried)
    said = refused(world, "table.rolled-back", ENDS)
    asked = told("give-up.undecidable", lambda: follow(world, said))
    assert io_of(world).exists(asked.find(r"\(those of checkpoint 1 are in (\S+\.parquet)"))
    if are_there:
        accept(world, **asked.options("on_rollback", "accept_as_seen"))
    else:
        assert follow(world, said, **asked.options("accept_as_new")).records == (2,)
        world.checkpoint.committed = 1
    world.run(boundaries=ENDS)
    assert mine_of(world) == expected(ENDS)


def test_the_query_comes_under_another_name():
    """Its rows are there, as one of its files shows. Nothing is lost."""
    world = _rolled_back(4, compacted=1)
    accept(world, application="new", adopt_from_batch=2)
    say_new(world, lambda: world.run(boundaries=ENDS))
    assert mine_of(world) == expected(ENDS)


def _gone_back_to_rows_without_a_state(ends, **settings):
    """Records 2 and 3 come in one snapshot, which is replaced after a third writer has built on it.
    The table goes back to that writer's snapshot."""
    world = memory_world(restore="restore-and-continue", publish_every_batches=2, publish_as="one-snapshot", **settings)
    world.run(boundaries=ends[:1])
    replacing = Prepared(world)
    assert die_at_step("commit.published", 1, world, boundaries=ends[:3])
    third = Prepared(world, 1)
    replacing.rename()
    third.rename()
    world.run(boundaries=ends)
    for number in range(newest_of(world), 3, -1):
        io_of(world).delete(f"{world.driver.root}/snapshot/snapshot-{number}")
    return world


@follows("table.rolled-back")
def test_the_journal_has_lost_the_first_of_the_records_whose_rows_are_there():
    """Found by a bred walk:
    the error that the journal cannot follow and the one that the record is published led to each other for ever."""
    ends = (6, 9, 14, 20, 26)
    world = _gone_back_to_rows_without_a_state(ends[:4], journal_retain=2)
    accept(world, on_rollback=refused(world, "table.rolled-back", ends).option("on_rollback"))
    world.run(boundaries=ends)
    assert mine_of(world) == expected(ends)
    world.run(boundaries=(*ends, 29))
    assert mine_of(world) == expected((*ends, 29))


@pytest.mark.parametrize("lost", ["all whose rows are there", "one behind them"])
def test_the_journal_cannot_follow(lost):
    """Then restoring the table is the way on."""
    ends = (6, 9, 14, 20, 23, 26)
    world = _gone_back_to_rows_without_a_state(
        ends[:5], journal_retain=3 if lost == "one behind them" else 2, on_rollback="republish"
    )
    if lost == "one behind them":
        io_of(world).delete(f"{world.driver.root}/streamsink/streamsink/record-4.json")
    refused(world, "table.rolled-back-too-far", ends)


def _renamed_and_rolled_back(*, is_there: bool):
    """The query has had another name since, whose first record was rolled back too.
    is_there: the rows of the first name's last record are there."""
    world, _ = published_not_marked(table_options=MERGES)
    compact(world, None)
    world.run(boundaries=ENDS[:2])
    accept(world, application="new", adopt_from_batch=2)
    world.run(boundaries=RENAMED)
    assert newest_of(world) == 6 and mine_of(world) == expected(RENAMED)
    to = 4 if is_there else 2
    for number in range(6, to, -1):
        io_of(world).delete(f"{world.driver.root}/snapshot/snapshot-{number}")
    other_application(world, "merging")
    expire(world, 1, to)
    return world


def _asked_under_its_first_name(world, said: Advice, ends, *, is_there: bool) -> Advice:
    """Do what the error says, and answer what the start then asks.
    Returns the error that ends that start, which writes nothing."""
    accept(world, **said.options("application", "on_rollback"), adopt_from_batch=None)
    asked = refused(world, "journal.undecidable", ends)
    way = "accept_as_seen" if is_there else "accept_as_new"
    accept(world, **asked.options(way))
    before = mine_of(world)
    with pytest.raises(StreamsinkError) as refusal:
        world.run(boundaries=ends)
    assert mine_of(world) == (before if is_there else sorted({*before, *expected(ENDS[:2])}))
    return Advice(refusal.value)


@follows("table.rolled-back-too-far")
@pytest.mark.parametrize("is_there", [True, False])
def test_a_query_with_another_name_is_sent_to_its_first_one_which_asks(is_there):
    """Formerly the error said that the rows had gone, and where they are there they were read once more."""
    world = _renamed_and_rolled_back(is_there=is_there)
    accept(world, on_rollback="republish")
    said = refused(world, "table.rolled-back-too-far", NEXT)
    told_so = _asked_under_its_first_name(world, said, NEXT, is_there=is_there)
    assert told_so.kind == "application.renamed"
    accept(world, application=told_so.find(r"Set application='([^']*)' to go on"))
    world.run(boundaries=NEXT)
    assert mine_of(world) == expected(NEXT)


@follows("positions.unsettled")
@pytest.mark.parametrize("is_there", [True, False])
def test_a_query_with_another_name_is_given_up_and_its_checkpoint_is_lost(is_there):
    """Formerly the new checkpoint began before rows that are there."""
    world = _renamed_and_rolled_back(is_there=is_there)
    accept(world, on_rollback="republish")
    given_up = follow(world, refused(world, "table.rolled-back-too-far", NEXT))
    says_where = Advice(SimpleNamespace(kind="", message=str(given_up)))
    said = told("positions.unsettled", lambda: starting_offset(world, says_where))
    lose_checkpoint(world)
    _asked_under_its_first_name(world, said, NEXT, is_there=is_there)
    start = starting_offset(world, says_where)
    accept(world, application="new", adopt_from_batch=None, accept_as_seen=None, accept_as_new=None)
    say_new(world, lambda: start_over(world, start, NEXT[-1:]))
    assert mine_of(world) == expected(NEXT)
