"""Accidents to a query into several tables: an error that names the table before anything is written, or each row
once.
"""

import dataclasses
import re

import pyarrow as pa
import pytest

from streamsink import faults
from streamsink.errors import Corrupt, Fenced, Misuse
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.table.table import create_table, is_table, new_schema
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.crash.letters_world import LettersWorld
from tests.crash.many_world import BOUNDARIES, ROOT, SCHEMA, ManyWorld, check_complete, check_readable
from tests.protocol.history import say_new

JOURNAL = f"{ROOT}/streamsink/streamsink"


@pytest.fixture
def world() -> ManyWorld:
    """After four of five batches."""
    world = ManyWorld()
    world.run(boundaries=BOUNDARIES[:4])
    return world


def _tables(world: ManyWorld) -> dict[str, bytes]:
    """Every file but those of journals."""
    found = {}

    def look(folder):
        for entry in world.file_io().entries(folder):
            path = f"{folder}/{entry.name}"
            if entry.is_dir:
                look(path)
            elif not path.startswith(f"{ROOT}/streamsink/"):
                found[path] = world.file_io().read(path)

    look(ROOT)
    return found


def _refused(world: ManyWorld, kind: str, *words: str, error=Misuse) -> None:
    before = _tables(world)
    with pytest.raises(error) as refused:
        world.run()
    assert refused.value.kind == kind, refused.value
    for word in words:
        assert word in str(refused.value)
    assert _tables(world) == before, "something was written"


def _half_published(after: int = 1) -> ManyWorld:
    """Dead between two tables of the first batch."""
    world = ManyWorld()
    arm("tables.table_published", after, crash)
    with pytest.raises(InjectedCrash):
        world.run()
    faults.arm(None)
    world.die()
    return world


def _roll_back(world: ManyWorld, name: str, by: int = 1) -> None:
    """As Paimon's rollback: the newest snapshots go, the hint moves."""
    ids = world.table(name).snapshots.ids()
    for gone in ids[len(ids) - by :]:
        world.file_io().delete(f"{ROOT}/{name}/snapshot/snapshot-{gone}")
    world.file_io().delete(f"{ROOT}/{name}/snapshot/LATEST")


def _foreign_commit_and_expiry(world: ManyWorld, name: str) -> None:
    """A writer that carries no properties forward commits, and every snapshot before its own expires."""
    table, file_io = world.table(name), world.file_io()
    newest = table.snapshots.latest()
    foreign = dataclasses.replace(newest, id=newest.id + 1, properties=None, commit_user="compactor")
    file_io.write(f"{ROOT}/{name}/snapshot/snapshot-{foreign.id}", foreign.to_json())
    for old in table.snapshots.ids()[:-1]:
        file_io.delete(f"{ROOT}/{name}/snapshot/snapshot-{old}")
    file_io.delete(f"{ROOT}/{name}/snapshot/LATEST")


# -- who may write -------------------------------------------------------------------------------------------------


def test_a_second_query_of_the_same_name_is_refused():
    """At one time; the first one goes on unharmed."""
    world = ManyWorld()
    first = world.driver.start(world.file_io(), world.checkpoint)
    with pytest.raises(Fenced) as refused:
        world.driver.start(world.file_io(), SparkCheckpoint("00000000-0000-0000-0000-000000000002"))
    assert refused.value.kind == "application.in-use"
    first.close()
    world.run()
    check_complete(world.rows())


@pytest.mark.parametrize("occurrence", [1, 2, 3, 4])
def test_a_driver_that_wakes_up_between_two_tables_is_fenced(occurrence):
    """Its successor has finished that checkpoint and all others; the sleeper writes nothing more."""
    world = ManyWorld()

    def sleep():
        faults.arm(None)
        world.driver.run(
            world.file_io(), SparkCheckpoint(world.checkpoint.query, list(world.checkpoint.ends)), BOUNDARIES
        )
        check_complete(world.rows())

    arm("tables.table_published", occurrence, sleep)
    with pytest.raises(Fenced):
        world.driver._run_once(world.file_io(), world.checkpoint, BOUNDARIES)
    check_complete(world.rows())
    assert world.unknown_files() == []


def test_two_queries_of_two_names_share_their_tables():
    """Each has its own journal and its own records in each table; both are complete."""
    world = ManyWorld()
    world.run(boundaries=BOUNDARIES[:2])
    options = dataclasses.replace(world.driver.options, application="other")
    other = type(world.driver)(ROOT, SCHEMA, world._rows, world.driver.routing, options)
    other.run(world.file_io(), SparkCheckpoint("00000000-0000-0000-0000-000000000002"), BOUNDARIES)
    world.run()
    numbers = [number for _, number, _ in world.rows()]
    assert sorted(numbers) == sorted([*range(BOUNDARIES[-1])] * 2)


@pytest.mark.parametrize("after", [1, 2])
def test_a_half_published_batch_is_not_left_behind_under_an_earlier_name(after):
    """Found by a walk: one of the tables has its part, so the batch was skipped under the new name, and the others
    never got theirs.
    """
    world = _half_published(after)
    first, world.driver.options = (
        world.driver.options,
        dataclasses.replace(world.driver.options, application="other", adopt_from_batch=1),
    )
    _refused(
        world,
        "application.renamed",
        "first start the query once more under the first one",
        "recorded and not published yet",
    )
    world.driver.options = first
    world.run(boundaries=BOUNDARIES[:1])
    world.driver.options = dataclasses.replace(first, application="other", adopt_from_batch=1)
    world.run()
    check_complete(world.rows())


def test_a_half_published_batch_whose_journal_is_lost_is_not_left_behind_under_an_earlier_name():
    """Found by a walk: only the journal can say whether the other tables have theirs.

    The error says what a word leaves out.
    """
    world = _half_published()
    there = len(world.rows())
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    world.driver.options = dataclasses.replace(world.driver.options, application="other", adopt_from_batch=1)
    _refused(
        world, "application.renamed", "restore the journal's folder", "to go on without what a table may lack of it"
    )
    with pytest.raises(Misuse) as refused:
        world.run()
    word = re.search(r"set adopt_from_batch=1 and accept_as_seen='(\w+)'", str(refused.value))[1]
    world.driver.options = dataclasses.replace(world.driver.options, accept_as_seen=word)
    world.run(boundaries=BOUNDARIES[:1])
    assert len(world.rows()) == there
    world.run()
    numbers = [number for _, number, _ in world.rows()]
    assert sorted(set(numbers)) == sorted(numbers) and set(range(BOUNDARIES[0], BOUNDARIES[-1])) <= set(numbers)


# -- the journal ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_a_removed_journal_is_an_error(world, checkpoint):
    """Also when Spark's checkpoint is gone: the tables remember."""
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    if checkpoint == "lost":
        world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000002")
    _refused(world, "tables.unknown-record", "journal")


def test_a_removed_journal_of_a_half_published_checkpoint_is_an_error():
    """One table has it, the others never will: nothing is guessed."""
    world = _half_published()
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    _refused(world, "tables.unknown-record")


def test_a_journal_removed_under_the_running_query_is_an_error():
    """Noticed before the next batch is written."""
    world = ManyWorld()
    sink = world.driver.start(world.file_io(), world.checkpoint)
    world.checkpoint.ends += [6, 9]
    sink.batch(world.driver.describe(world.checkpoint, 0))
    before = world.rows()
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    with pytest.raises((Corrupt, Misuse)):
        sink.batch(world.driver.describe(world.checkpoint, 1))
    assert world.rows() == before


def test_an_older_copy_of_the_journal_is_an_error(world):
    """The tables are ahead of it."""
    file_io = world.file_io()
    newest = max(int(e.name[7:-5]) for e in file_io.entries(JOURNAL) if e.name.startswith("record-"))
    file_io.delete(f"{JOURNAL}/record-{newest}.json")
    file_io.delete(f"{JOURNAL}/done-{newest}")
    _refused(world, "tables.journal-behind", "older copy")


# -- a table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "more_x", "rejected"])
def test_a_rolled_back_table_is_named(world, name):
    """Before any table is written, dead letters included."""
    _roll_back(world, name)
    _refused(world, "table.rolled-back", f"{ROOT}/{name}")


def test_a_rolled_back_table_is_named_without_marks_too():
    """A power failure may forget marks; other tables that have later records prove that it had this one."""
    world = ManyWorld(journal_retain=10)
    world.run(boundaries=BOUNDARIES[:4])
    for entry in world.file_io().entries(JOURNAL):
        if entry.name.startswith("done-"):
            world.file_io().delete(f"{JOURNAL}/{entry.name}")
    _roll_back(world, "strict")
    _refused(world, "table.rolled-back", f"{ROOT}/strict")


def test_a_table_that_lost_only_a_pending_part_gets_it_again():
    """Rolled back between two tables' commits of one checkpoint: its part is in the record still, and its files are
    there.
    """
    world = _half_published(2)
    _roll_back(world, "a")
    world.run()
    check_complete(world.rows())


@pytest.mark.parametrize("name", ["a", "strict", "rejected"])
def test_a_dropped_table_is_named(world, name):
    """It is not created again silently."""
    world.file_io().delete_tree(f"{ROOT}/{name}")
    _refused(world, "table.gone", f"{ROOT}/{name}")


@pytest.mark.parametrize("make, name", [(ManyWorld, "a"), (ManyWorld, "more_x"), (LettersWorld, "orders")])
def test_a_table_that_is_dropped_while_a_batch_is_written_is_not_created_again(make, name):
    """It was there when the batch began, so the rows of this batch alone would be in the new one."""
    world = make()
    world.run(boundaries=(6, 9))
    path = f"{ROOT}/{name}"
    arm("write.staged", 1, lambda: world.file_io().delete_tree(path))
    try:
        with pytest.raises(Misuse) as refused:
            world.run(boundaries=(6, 9, 18))
    finally:
        faults.arm(None)
    assert refused.value.kind == "table.gone" and path in str(refused.value)
    assert not is_table(world.file_io(), path)


def test_a_recreated_table_is_named(world):
    """An equal one at the same path is another table."""
    world.file_io().delete_tree(f"{ROOT}/strict")
    schema = new_schema(parse_ddl("id BIGINT, part STRING, n BIGINT NOT NULL, version BIGINT, extra INT"), (), {})
    create_table(world.file_io(), f"{ROOT}/strict", schema)
    _refused(world, "table.recreated", f"{ROOT}/strict")


@pytest.mark.parametrize("name", ["a", "strict", "more_x", "more_y", "rejected"])
def test_a_table_rolled_back_under_the_running_query_is_named_before_the_record(name):
    """Whether the last batch touched it or the next one does: no other table gets a part of that batch."""
    world = ManyWorld()
    sink = world.driver.start(world.file_io(), world.checkpoint)
    world.checkpoint.ends += list(BOUNDARIES)
    for batch_id in range(4):
        sink.batch(world.driver.describe(world.checkpoint, batch_id))
    records = [e.name for e in world.file_io().entries(JOURNAL) if e.name.startswith("record-")]
    _roll_back(world, name)
    with pytest.raises(Misuse) as refused:
        sink.batch(world.driver.describe(world.checkpoint, 4))
    assert refused.value.kind == "table.rolled-back" and name in str(refused.value)
    assert [e.name for e in world.file_io().entries(JOURNAL) if e.name.startswith("record-")] == records


@pytest.mark.parametrize("name", ["a", "more_x", "rejected"])
def test_expired_history_is_answered_by_the_journal(world, name):
    """Foreign commits carry no record, and ours have expired: the mark tells."""
    _foreign_commit_and_expiry(world, name)
    world.run()
    check_complete(world.rows())


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_expired_history_of_a_half_published_checkpoint_is_answered_by_its_files(after):
    """No mark and no snapshot of ours: the files are in the table, or still staged."""
    world = _half_published(after)
    for name in ("a", "more_x"):
        if world.table(name) and world.table(name).snapshots.ids():
            _foreign_commit_and_expiry(world, name)
    world.run()
    check_complete(world.rows())


def test_the_first_start_on_expired_history_asks():
    """Whether this application wrote there cannot be told; the option says that it did not."""
    world = ManyWorld()
    other = MicroBatchDriver(
        f"{ROOT}/a",
        pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.string()), ("version", pa.int64())]),
        lambda start, end: world._rows(start, end).drop_columns([ROUTE]),
        SinkOptions.of(ROOT, {"application": "other", "partition_by": ("part",)}),
    )
    other.run(world.file_io(), SparkCheckpoint("00000000-0000-0000-0000-000000000002"), (0, 0))
    _foreign_commit_and_expiry(world, "a")
    say_new(world, world.run)
    assert world.driver.options.new_application
    check_complete(world.rows())


def test_a_table_that_to_table_wrote_under_the_same_name_is_refused():
    """Its records and positions are not this journal's."""
    world = ManyWorld()
    single = MicroBatchDriver(
        f"{ROOT}/a",
        pa.schema([("id", pa.int64())]),
        lambda start, end: pa.RecordBatch.from_pydict({"id": pa.array(range(start, end), pa.int64())}),
        SinkOptions.of(ROOT, {}),
    )
    single.run(world.file_io(), SparkCheckpoint("00000000-0000-0000-0000-000000000002"), (3,))
    _refused(world, "tables.other-protocol", f"{ROOT}/a")


def test_a_rule_that_moves_a_table_is_refused(world):
    """Else the two halves of it would be two tables."""
    rules = {"a": {"path": "elsewhere/a"}, "strict": {"create": False}, "more_*": {}}
    world.driver.routing = Routing.of(
        ROOT, rules, world.driver.options, dead_letters="rejected", unrouted="dead-letter"
    )
    with pytest.raises(Misuse) as refused:
        world.run()
        world.run(boundaries=(*BOUNDARIES, 30))
    assert refused.value.kind == "tables.moved"
    check_readable(world.rows())


@pytest.mark.parametrize(
    "option, value",
    [
        ("on_rollback", "republish"),
        ("mode", "overwrite"),
        ("lock_id", "a.b.c"),
        ("publish", "async"),
        ("publish_every_batches", 2),
    ],
)
def test_options_of_one_table_are_refused_by_name(option, value):
    """Not ignored."""
    world = ManyWorld()
    world.driver.options = dataclasses.replace(world.driver.options, **{option: value})
    _refused(world, "option.value", option)
