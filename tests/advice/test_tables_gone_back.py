"""Advice of errors about one of several tables that was rolled back to where it says nothing of the query: to another
writer's snapshot, before which all snapshots have expired."""

import dataclasses
import json
from types import SimpleNamespace

import pyarrow as pa
import pytest

from streamsink.journal.record_format import decode_record, encode_record
from streamsink.sinks.paimon.past.marks import PUBLISHED
from streamsink.storage.file_io import FileIO
from streamsink.table.routed.rules import ROUTE
from streamsink.testing.driver import MicroBatchDriver
from tests.advice.accidents import start_over
from tests.advice.following import Advice, follows, told
from tests.advice.many import JOURNAL, accept, put_back, refused
from tests.crash.giving_up import follow
from tests.crash.many_world import ROOT, SCHEMA
from tests.crash.two_tables import ENDS, TwoTables, X
from tests.crash.world import World, die_at_step
from tests.protocol.history import expire_before, roll_back_to, say_new, snapshot_of_another

# Of the three batches that the tables have, the first one is in the snapshot to which the first table goes back.
LOST = [4, 6, 8, 10]


def _another_writer_came(before: int = 1) -> tuple[TwoTables, int]:
    """The world after three batches, so many of them before another writer's snapshot;
    and the number of that snapshot."""
    world = TwoTables()
    world.run(boundaries=ENDS[:before])
    others = snapshot_of_another(world.table(X))
    expire_before(world.table(X), others)
    world.run(boundaries=ENDS[:3])
    return world, others


def _only_to_the_other_table(world) -> tuple[int, ...]:
    """So many batches come without rows for the first table that the journal keeps no record of it any more.
    Returns the ends of all batches."""
    world.to_x = lambda number: False
    ends = (*ENDS[:3], 13, 14, 15, 16)
    world.run(boundaries=ends)
    assert not any(path.endswith("record-3.json") for path in world.calls._names)
    return ends


def _goes_on_without(world, said, lost: list[int], ends) -> None:
    said.says("set another application")
    accept(world, application="another", **said.options("adopt_from_batch", "accept_as_seen"))
    say_new(world, lambda: world.run(boundaries=ends))
    assert sorted([*world.numbers(), *lost]) == list(range(ends[-1]))


@follows("table.rolled-back")
@pytest.mark.parametrize("way", ["restored", "another-application"])
@pytest.mark.parametrize("is_pruned", [False, True])
@pytest.mark.parametrize("others_came", [False, True], ids=["ends before", "another in its place"])
def test_a_table_goes_back_to_where_it_says_nothing_of_the_query(way, is_pruned, others_came):
    """Formerly the journal's mark was trusted.
    is_pruned: the journal does not even have the table's last record any more."""
    world, others = _another_writer_came()
    ends = _only_to_the_other_table(world) if is_pruned else ENDS[:3]
    gone = roll_back_to(world.table(X), others)
    if others_came:
        snapshot_of_another(world.table(X), uuid="later")
        snapshot_of_another(world.table(X), uuid="latest")
    said = refused(world, "table.rolled-back")
    ends = (*ends, 20)
    if way == "another-application":
        _goes_on_without(world, said, LOST, ends)
        return
    said.says("Restore the table")
    for path, data in gone.items():
        put_back(world, {path: data})
    world.run(boundaries=ends)
    assert world.numbers() == list(range(20))


@pytest.mark.parametrize("is_pruned", [False, True])
def test_a_table_goes_back_under_the_running_query(is_pruned):
    """The loss is reported before rows come to the table. Batches without rows for it go on."""
    world, others = _another_writer_came()
    ends = _only_to_the_other_table(world) if is_pruned else ENDS[:3]
    sink = world.driver.start(world.file_io(), world.checkpoint)
    world.checkpoint.ends = [*ends, 20, 24]
    world.to_x = lambda number: number > 20
    sink.batch(world.driver.describe(world.checkpoint, len(ends)))
    roll_back_to(world.table(X), others)
    refused(world, "table.rolled-back", lambda: sink.batch(world.driver.describe(world.checkpoint, len(ends) + 1)))


@follows("table.rolled-back")
@pytest.mark.parametrize("way", ["restored", "without-it"])
@pytest.mark.parametrize("is_pruned", [False, True])
def test_a_table_goes_back_before_the_query_gets_another_name(way, is_pruned):
    """Formerly the expired history was assumed to hold all that the first name had written there."""
    world, others = _another_writer_came()
    ends = _only_to_the_other_table(world) if is_pruned else ENDS[:3]
    gone = roll_back_to(world.table(X), others)
    accept(world, application="second", adopt_from_batch=len(ends))
    ends = (*ends, 20)
    said = refused(world, "table.rolled-back", lambda: say_new(world, lambda: world.run(boundaries=ends)))
    if way == "restored":
        said.says("estore the table")
        put_back(world, gone)
        world.run(boundaries=ends)
        assert world.numbers() == list(range(20))
        return
    accept(world, accept_as_seen=said.option("accept_as_seen"))
    world.run(boundaries=ends)
    assert sorted([*world.numbers(), *LOST]) == list(range(20))


@follows("table.rolled-back")
@pytest.mark.parametrize("journal", ["whole", "torn mark", "lost"])
@pytest.mark.parametrize("way", ["restored", "given-up"])
def test_a_table_goes_back_while_the_first_batch_under_another_name_is_pending(way, journal):
    """The pending record has what the table had under the first name, whatever that name's journal says."""
    world, others = _another_writer_came()
    accept(world, application="second", adopt_from_batch=3)
    say_new(world, lambda: world.driver.start(world.file_io(), world.checkpoint).close())
    if journal == "torn mark":
        _say_in_marks(world, b"")
    if journal == "lost":
        world.file_io().delete_tree(JOURNAL)
        accept(
            world,
            accept_as_seen=refused(world, "application.renamed", lambda: world.run(boundaries=ENDS)).option(
                "accept_as_seen"
            ),
        )
    assert die_at_step("precommit.saved", 1, world, boundaries=ENDS)
    gone = roll_back_to(world.table(X), others)
    said = refused(world, "table.rolled-back").says("estore the table")
    if way == "restored":
        put_back(world, gone)
        world.run(boundaries=ENDS)
        assert world.numbers() == list(range(ENDS[-1]))
        return
    assert follow(world, said).records == (1,)
    if journal != "whole":
        return  # The table says nothing of the first name any more, and neither does anything else.
    accept(
        world,
        accept_as_seen=refused(world, "table.rolled-back", lambda: say_new(world, world.run)).option("accept_as_seen"),
    )
    world.run(boundaries=ENDS)
    assert sorted([*world.numbers(), *LOST]) == list(range(ENDS[-1]))


@follows("table.rolled-back")
@pytest.mark.parametrize("is_pruned", [False, True])
def test_a_table_goes_back_while_a_batch_is_pending(is_pruned):
    """Formerly the table's part was published behind what the table had lost."""
    world, others = _another_writer_came()
    ends = (*(_only_to_the_other_table(world) if is_pruned else ENDS[:3]), 20)
    world.to_x = lambda number: number % 2 == 0
    assert die_at_step("precommit.saved", 1, world, boundaries=ends)
    roll_back_to(world.table(X), others)
    said = refused(world, "table.rolled-back").says("is pending")
    assert follow(world, said).records == (len(ends),)
    _goes_on_without(world, refused(world, "table.rolled-back"), LOST, ends)


_SAY_NOTHING = [b"", b'{"tables": {"more_x": 7}}', b'{"tables": []}']


@pytest.mark.parametrize("mark", _SAY_NOTHING)
def test_a_mark_that_does_not_say_where_is_mended_or_trusted(mark):
    """The mark was torn by a power failure, or earlier code made it. It is mended while the tables can tell, and
    trusted where nothing speaks against it."""
    world, _ = _another_writer_came()
    _say_in_marks(world, mark)
    world.run(boundaries=ENDS[:3])
    assert b'"snapshot"' in world.file_io().read(f"{JOURNAL}/done-3")
    expire_before(world.table(X), snapshot_of_another(world.table(X)))
    _say_in_marks(world, mark)
    world.run(boundaries=ENDS)
    assert world.numbers() == list(range(ENDS[-1]))


@pytest.mark.parametrize("mark", _SAY_NOTHING)
@pytest.mark.parametrize("before", [1, 2])
def test_a_mark_that_does_not_say_where_proves_nothing_that_snapshots_deny(mark, before):
    """All snapshots since the record was made are there, and none names its files.
    before: how many batches came before another writer's snapshot."""
    world, others = _another_writer_came(before)
    _say_in_marks(world, mark)
    roll_back_to(world.table(X), others)
    refused(world, "table.rolled-back")


def test_records_of_earlier_code_go_on():
    """Neither they nor their marks say where they are; the first batches of this code do."""
    world, _ = _another_writer_came()
    _say_in_marks(world, b"")
    for number in (2, 3):
        path = f"{JOURNAL}/record-{number}.json"
        record = decode_record(world.file_io().read(path), path)
        payload = {key: value for key, value in record.payload.items() if key != PUBLISHED}
        world.file_io().replace(path, encode_record(dataclasses.replace(record, payload=payload)), "earlier")
    behind = snapshot_of_another(world.table(X))
    expire_before(world.table(X), behind)
    world.run(boundaries=ENDS)
    assert world.numbers() == list(range(ENDS[-1]))
    roll_back_to(world.table(X), behind)
    refused(world, "table.rolled-back")


def _say_in_marks(world, text: bytes) -> None:
    for name in world.file_io().names(JOURNAL):
        if name.startswith("done-"):
            world.file_io().replace(f"{JOURNAL}/{name}", text, "torn")


def test_expiry_alone_is_no_rollback():
    """Another writer's snapshot is the only one, and the table's last record is in the journal or pruned."""
    world, _ = _another_writer_came()
    for ends in (ENDS, (*ENDS, 17), (*ENDS, 17, 18), (*ENDS, 17, 18, 19), (*ENDS, 17, 18, 19, 20)):
        world.to_x = lambda number: False
        expire_before(world.table(X), snapshot_of_another(world.table(X)))
        world.run(boundaries=ends)
    world.to_x = lambda number: True
    world.run(boundaries=(*ends, 24))
    assert world.numbers() == list(range(24))


def test_a_table_whose_snapshot_was_replaced_after_another_had_built_on_it_has_its_rows():
    """One writer renames its snapshot over ours, and a third writer had read ours before.
    Nothing is lost, and no user is told that something is."""
    world, _ = _another_writer_came()
    ours = world.table(X).snapshots.latest()
    latest = snapshot_of_another(world.table(X))
    in_place = dataclasses.replace(ours, properties=None, commit_user="renamed", uuid="renamed", time_millis=0)
    put_back(world, {f"{world.root}/{X}/snapshot/snapshot-{ours.id}": in_place.to_json()})
    expire_before(world.table(X), ours.id)
    world.run(boundaries=ENDS)
    assert latest == ours.id + 1 and world.numbers() == list(range(ENDS[-1]))


# -- the next name is one of streamsink.to_table --------------------------------------------------------------------


def _alone(world) -> World:
    """The query as one of ``to_table``, which writes all rows to the first table from then on."""
    alone = World(world.calls, f"{ROOT}/{X}", application="alone", restore="restore-and-continue", adopt_from_batch=3)
    fields = pa.schema([field for field in SCHEMA if field.name != ROUTE])
    alone.driver = MicroBatchDriver(
        alone.driver.root,
        fields,
        lambda start, end: world.driver.rows(start, end).drop_columns([ROUTE]),
        alone.driver.options,
    )
    alone.checkpoint = world.checkpoint
    return alone


@follows("application.renamed", "table.rolled-back")
@pytest.mark.parametrize("others_came", [False, True])
def test_a_table_goes_back_before_a_query_of_a_single_table_goes_on(others_came):
    """The table says nothing of the query of several tables, whose journal is in the folder above."""
    world, others = _another_writer_came()
    gone = roll_back_to(world.table(X), others)
    if others_came:
        expire_before(world.table(X), snapshot_of_another(world.table(X)))
    alone = _alone(world)
    told("application.renamed", lambda: say_new(alone, lambda: alone.run(boundaries=ENDS))).says(
        "first start the query once more under the first one"
    )
    refused(world, "table.rolled-back").says("Restore the table")
    put_back(world, gone)
    alone.run(boundaries=ENDS)
    assert world.numbers() == list(range(ENDS[-1]))


@pytest.mark.parametrize("is_denied", [False, True])
def test_expiry_alone_takes_nothing_from_a_query_of_a_single_table_that_goes_on(is_denied, monkeypatch):
    """is_denied: the query may not look into the folder above,
    so no journal of its query of several tables can be there."""
    world, _ = _another_writer_came()
    if is_denied:
        entries = FileIO.entries
        monkeypatch.setattr(
            FileIO, "entries", lambda io, path: _deny() if path.startswith("/streamsink") else entries(io, path)
        )
    expire_before(world.table(X), snapshot_of_another(world.table(X)))
    alone = _alone(world)
    say_new(alone, lambda: alone.run(boundaries=ENDS))
    assert world.numbers() == list(range(ENDS[-1]))


def _deny():
    raise PermissionError(13, "denied")


@follows("table.rolled-back-too-far")
@pytest.mark.parametrize("way", ["restored", "given-up"])
def test_a_table_goes_back_while_the_first_batch_of_a_single_table_is_pending(way):
    world, others = _another_writer_came()
    alone = _alone(world)
    say_new(alone, lambda: alone.driver.start(alone.file_io(alone.calls), alone.checkpoint).close())
    assert die_at_step("precommit.saved", 1, alone, boundaries=ENDS)
    gone = roll_back_to(world.table(X), others)
    said = told("table.rolled-back-too-far", lambda: alone.run(boundaries=ENDS)).says("Restore the table")
    if way == "given-up":
        found = Advice(SimpleNamespace(kind=said.kind, message=str(follow(alone, said))))
        found.says("what the table does not have any more of 'streamsink' is left out then")
        alone.driver.options = dataclasses.replace(alone.driver.options, adopt_from_batch=None)
        start = json.loads(found.option("startingOffsets"))["t"]["0"]
        say_new(alone, lambda: start_over(alone, start, ENDS[3:]))
        assert sorted([*world.numbers(), *LOST]) == list(range(ENDS[-1]))
        return
    put_back(world, gone)
    alone.run(boundaries=ENDS)
    assert world.numbers() == list(range(ENDS[-1]))
