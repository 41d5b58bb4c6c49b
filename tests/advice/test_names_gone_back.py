"""Advice of errors where a table goes back under a query that gets another name,
and the table says nothing of the first name any more."""

import json
from types import SimpleNamespace

import pytest

from streamsink.commands.offsets import Wanted, offsets_of
from streamsink.table.table import open_table
from tests.advice.accidents import accept, put_back, refused, start_over, starting_offset
from tests.advice.following import Advice, follows, told
from tests.crash.giving_up import follow
from tests.crash.letters_world import NAME, LettersWorld
from tests.crash.world import World, die_at_step, memory_world
from tests.protocol.history import expire_before, io_of, roll_back_to, say_new, snapshot_of_another, tear_mark


def _another_writer_came() -> tuple[World, int]:
    """A world with batches of 4 rows under the first name, two of them after another writer's snapshot, before which
    all snapshots have expired; and the number of that snapshot."""
    world = memory_world(restore="restore-and-continue", journal_retain=10)
    world.run(boundaries=(4,))
    others = snapshot_of_another(_table(world))
    expire_before(_table(world), others)
    world.run(boundaries=(4, 8, 12))
    return world, others


def _gets_another_name(world, **options) -> None:
    """The query gets another name, and its user says that it has not written here under that name."""
    accept(world, application="new", adopt_from_batch=3, **options)
    say_new(world, lambda: world.driver.start(world.file_io(world.calls), world.checkpoint).close())


def _table(world):
    return open_table(io_of(world), world.driver.root, for_writing=False)


@follows("application.renamed", "table.rolled-back")
@pytest.mark.parametrize("way", ["restored", "republish"])
def test_a_table_goes_back_to_another_writers_snapshot_before_the_query_gets_another_name(way):
    """Formerly the journal's mark of the first name was taken for a proof that the rows are there."""
    world, others = _another_writer_came()
    gone = roll_back_to(_table(world), others)
    accept(world, application="new", adopt_from_batch=3)
    said = refused(
        world,
        "application.renamed",
        (4, 8, 12, 16),
        lambda: say_new(world, lambda: world.run(boundaries=(4, 8, 12, 16))),
    )
    said.says("first start the query once more under the first one")
    accept(world, application=said.find(r"Set application='([^']*)' to go on"))
    said = refused(world, "table.rolled-back", (4, 8, 12))
    if way == "restored":
        said.says("Restore the table")
        for path, data in gone.items():
            put_back(world, path, data)
    else:
        accept(world, on_rollback=said.option("on_rollback"))
        world.run(boundaries=(4, 8, 12))
    accept(world, application="new", on_rollback="fail")
    world.run(boundaries=(4, 8, 12, 16))
    assert world.ids() == list(range(16))


@follows("table.rolled-back-too-far")
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("is_retired", [False, True])
def test_a_table_goes_back_to_another_writers_snapshot_to_before_the_query_had_its_name(pending, is_retired):
    """Formerly the expired history was assumed to hold all that the first name had written.
    is_retired: only the record still knows what that was."""
    world, others = _another_writer_came()
    _gets_another_name(world, on_rollback="republish")
    if pending:
        assert die_at_step("precommit.saved", 1, world, boundaries=(4, 8, 12, 16))
    else:
        world.run(boundaries=(4, 8, 12, 16))
    if is_retired:
        world.file_io(world.calls).delete_tree(f"{world.driver.root}/streamsink/streamsink")
    gone = roll_back_to(_table(world), others)
    said = refused(world, "table.rolled-back-too-far", (4, 8, 12, 16, 20)).says("Restore the table")
    if not is_retired:
        _give_up_and_start_over(world, said)
        return
    for path, data in gone.items():
        put_back(world, path, data)
    world.run(boundaries=(4, 8, 12, 16, 20))
    assert world.ids() == list(range(20))


def _give_up_and_start_over(world, said) -> None:
    """Give up what is pending, and start a new checkpoint behind what the table has of the first name,
    about which it says nothing."""
    found = Advice(SimpleNamespace(kind=said.kind, message=str(follow(world, said))))
    accept(world, adopt_from_batch=None)
    start = starting_offset(world, found)
    say_new(world, lambda: start_over(world, start, (20,)))
    assert world.ids() == list(range(20))


@follows("table.rolled-back-too-far")
def test_a_table_with_dead_letters_goes_back_to_another_writers_snapshot_to_before_the_query_had_its_name():
    world = LettersWorld()
    world.run(boundaries=(4,))
    others = snapshot_of_another(world.table(NAME))
    expire_before(world.table(NAME), others)
    world.run(boundaries=(4, 8, 12))
    renamed = {"application": "new", "adopt_from_batch": 3}
    word = told("history.incomplete", lambda: world.run(boundaries=(4, 8, 12), **renamed)).option("new_application")
    renamed["new_application"] = word
    assert die_at_step("precommit.saved", 1, world, boundaries=(4, 8, 12, 16), **renamed)
    roll_back_to(world.table(NAME), others)
    told("table.rolled-back-too-far", lambda: world.run(boundaries=(4, 8, 12, 16), **renamed)).says("Restore the table")


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_name_that_begins_behind_another_writers_snapshots_knows_how_far_the_table_may_go_back(is_torn):
    """The table may go back to any snapshot after the one that the first name's mark names. A torn mark names none;
    where its snapshot has expired, the table may go back only to the newest snapshot that there was."""
    world, _ = _another_writer_came()
    ours = _table(world).snapshots.latest().id
    for _ in range(2):
        snapshot_of_another(_table(world))
    if is_torn:
        tear_mark(world, 3)
    expire_before(_table(world), ours + 1)
    _gets_another_name(world)
    assert die_at_step("precommit.saved", 1, world, boundaries=(4, 8, 12, 16))
    roll_back_to(_table(world), ours + 1)
    if is_torn:
        refused(world, "table.rolled-back-too-far", (4, 8, 12, 16))
        return
    world.run(boundaries=(4, 8, 12, 16))
    assert world.ids() == list(range(16))


@follows("positions.unsettled")
def test_where_a_new_checkpoint_begins_is_not_told_of_a_table_that_went_back_before_a_start_has_asked():
    """Nobody knows whether one of the records is there, and of another it is known that it is not."""
    world, others = _another_writer_came()
    roll_back_to(_table(world), others)
    for uuid in ("first", "second"):
        latest = snapshot_of_another(_table(world), uuid=uuid, later_ms=3_600_000)
    expire_before(_table(world), latest)
    tear_mark(world, 2)
    said = told("positions.unsettled", lambda: offsets_of(io_of(world), world.driver.root, "streamsink", Wanted()))
    accept(world, **said.options("application", "on_rollback"))
    accept(world, **refused(world, "journal.undecidable", (4, 8, 12)).options("accept_as_new"))
    world.run(boundaries=(4, 8, 12))
    assert world.ids() == list(range(12))
    assert json.loads(offsets_of(io_of(world), world.driver.root, "streamsink", Wanted())) == {"t": {"0": 12}}


def test_expiry_alone_takes_nothing_from_a_query_that_gets_another_name():
    """The snapshot of the first name's mark has expired,
    and so has the one on which the first record under the second name was made."""
    world, _ = _another_writer_came()
    expire_before(_table(world), snapshot_of_another(_table(world)))
    _gets_another_name(world)
    assert die_at_step("precommit.saved", 1, world, boundaries=(4, 8, 12, 16))
    expire_before(_table(world), snapshot_of_another(_table(world)))
    world.run(boundaries=(4, 8, 12, 16, 20))
    assert world.ids() == list(range(20))
