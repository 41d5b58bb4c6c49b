"""Advice of errors about one of several tables that lost what the query had written under its earlier name."""

import copy
import dataclasses
import itertools
import json
from types import SimpleNamespace

import pyarrow as pa
import pytest

from streamsink.commands.retire import retire
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.table.table import create_table, new_schema
from streamsink.testing.driver import MicroBatchDriver
from tests.advice.accidents import start_over
from tests.advice.following import Advice, follows, told
from tests.advice.many import accept, files_in, put_back, refused
from tests.crash.giving_up import follow
from tests.crash.many_world import BOUNDARIES, ROOT, SCHEMA, ManyWorld, check_complete
from tests.crash.world import World, die_at_step

_TABLE = "more_x"


def _drop(world) -> None:
    world.file_io().delete_tree(f"{ROOT}/{_TABLE}")


def _recreate(world) -> None:
    _drop(world)
    create_table(
        world.file_io(),
        f"{ROOT}/{_TABLE}",
        new_schema(parse_ddl("id BIGINT, part STRING, n STRING, version BIGINT"), (), {}),
    )


def _roll_back(world) -> None:
    """Roll the table back to before the first name had rows there."""
    for entry in world.file_io().entries(f"{ROOT}/{_TABLE}/snapshot"):
        world.file_io().delete(f"{ROOT}/{_TABLE}/snapshot/{entry.name}")


LOST = {"table.gone": _drop, "table.recreated": _recreate, "table.rolled-back": _roll_back}


def _renamed(first: int = 2, **options) -> ManyWorld:
    """A query with so many batches under the first name, which has another name from now on."""
    world = ManyWorld(restore="restore-and-continue", **options)
    world.run(boundaries=BOUNDARIES[:first])
    accept(world, application="second", adopt_from_batch=first)
    return world


def _lose(world, kind: str) -> tuple[dict, list[int]]:
    """Lose a table in this way. Returns the table's files before and the numbers of its rows."""
    files = files_in(world, f"{ROOT}/{_TABLE}")
    lost = [number for table, number, _ in world.rows() if table == _TABLE]
    assert lost
    LOST[kind](world)
    return files, lost


def _restore(world, files: dict) -> None:
    _drop(world)
    put_back(world, files)


def _all_but(world, lost: list[int]) -> None:
    assert sorted([*lost, *(number for _, number, _ in world.rows())]) == list(range(BOUNDARIES[-1]))


def _go_on_without_it(world, said, lost: list[int]) -> None:
    said.says("set another application")
    accept(world, application="third", **said.options("adopt_from_batch", "accept_as_seen"))
    world.run()
    _all_but(world, lost)


@pytest.mark.in_turn("tables that are lost under a new name", 6)
@follows(*LOST)
@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("way", ["restored", "another-application"])
@pytest.mark.parametrize("is_running", [False, True])
def test_a_table_that_has_got_nothing_under_the_new_name_is_lost(kind, way, is_running):
    """Batch 2, the first one under the second name, has no rows for it.
    Formerly the table's rows under the first name were missing in silence."""
    world = _renamed()
    if is_running:
        sink = world.driver.start(world.file_io(), world.checkpoint)
        world.checkpoint.ends = list(BOUNDARIES)
        sink.batch(world.driver.describe(world.checkpoint, 2))
        world.checkpoint.committed = 3
        files, lost = _lose(world, kind)
        said = refused(world, kind, lambda: sink.batch(world.driver.describe(world.checkpoint, 3)))
        sink.close()
    else:
        world.run(boundaries=BOUNDARIES[:3])
        files, lost = _lose(world, kind)
        said = refused(world, kind)
    if way == "restored":
        said.says("estore the table")
        _restore(world, files)
        world.run()
        check_complete(world.rows())
    else:
        _go_on_without_it(world, said, lost)


@follows(*LOST)
@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("way", ["restored", "without-it"])
def test_a_table_is_lost_before_the_first_batch_under_the_new_name(kind, way):
    """The first name would have reported it. Formerly the new one went on."""
    world = _renamed()
    files, lost = _lose(world, kind)
    said = refused(world, kind)
    if way == "restored":
        said.says("estore the table")
        _restore(world, files)
        world.run()
        check_complete(world.rows())
        return
    accept(world, accept_as_seen=said.option("accept_as_seen"))
    world.run()
    _all_but(world, lost)


@pytest.mark.in_turn("tables that are lost under a pending name", 6)
@follows(*LOST)
@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("way", ["restored", "given-up"])
@pytest.mark.parametrize("first", [1, 2])
def test_a_table_is_lost_while_the_first_batch_under_the_new_name_is_pending(kind, way, first):
    """first: the batch with which the new name begins; batch 2 has no rows."""
    world = _renamed(first)
    assert die_at_step("precommit.saved", 1, world)
    files, lost = _lose(world, kind)
    said = refused(world, kind).says("estore the table")
    if way == "restored":
        _restore(world, files)
        world.run()
        check_complete(world.rows())
        return
    assert follow(world, said).records == (1,)
    accept(world, accept_as_seen=refused(world, kind).option("accept_as_seen"))
    world.run()
    _all_but(world, lost)


@follows("table.gone")
def test_two_tables_are_lost_and_one_is_named_after_the_other():
    """Who goes on without one of them has said nothing about the other one."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    names = ("more_x", "more_y")
    lost = [number for table, number, _ in world.rows() if table in names]
    for name in names:
        world.file_io().delete_tree(f"{ROOT}/{name}")
    said = refused(world, "table.gone")
    accept(world, application="second", **said.options("adopt_from_batch", "accept_as_seen"))
    accept(world, accept_as_seen=refused(world, "table.gone").option("accept_as_seen"))
    world.run()
    _all_but(world, lost)


def test_the_first_name_may_be_retired_once_the_second_one_has_begun():
    """From then on what the tables had under the first name belongs to the second one."""
    world = _renamed()
    world.run(boundaries=BOUNDARIES[:3])
    assert retire(world.file_io(), ROOT, SinkOptions.of(ROOT, {}))
    world.run()
    check_complete(world.rows())


@follows("tables.unknown-record")
def test_a_table_is_lost_after_the_first_name_and_its_journal():
    """Then what the tables said when the second name began decides."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    said = refused(world, "tables.unknown-record")
    accept(world, application="second", **said.options("adopt_from_batch", "accept_as_seen"))
    world.run(boundaries=BOUNDARIES[:3])
    _lose(world, "table.gone")
    refused(world, "table.gone")


def test_a_table_may_get_another_path_with_another_name():
    """The table at its first path no longer belongs to the query."""
    world = _renamed()
    rules = {"a": {"path": "elsewhere/a"}, "strict": {"create": False}, "more_*": {}}
    world.driver.routing = Routing.of(
        ROOT, rules, world.driver.options, dead_letters="rejected", unrouted="dead-letter"
    )
    before = {number for _, number, _ in world.rows()}
    world.tables = (*world.tables, "elsewhere/a")
    world.run()
    world.file_io().delete_tree(f"{ROOT}/a")
    world.run(boundaries=(*BOUNDARIES, 24))
    assert {number for _, number, _ in world.rows()} >= set(range(24)) - before


def test_a_table_may_get_another_name_with_the_query():
    """It is one table, and has one part."""
    world = _renamed()
    world.driver.routing = Routing.of(
        ROOT,
        {"b": {"path": "a"}, "strict": {"create": False}, "more_*": {}},
        world.driver.options,
        dead_letters="rejected",
        unrouted="dead-letter",
    )
    rows = world.driver.rows
    world.driver.rows = lambda start, end: _to_b(rows(start, end))
    world.run()
    assert sorted(number for _, number, _ in world.rows()) == list(range(BOUNDARIES[-1]))


def _to_b(rows: pa.RecordBatch) -> pa.RecordBatch:
    routes = ["b" if name == "a" else name for name in rows.column(ROUTE).to_pylist()]
    return rows.set_column(rows.schema.get_field_index(ROUTE), ROUTE, pa.array(routes, pa.string()))


def test_a_query_with_its_third_name_knows_what_the_tables_had_under_the_first_one():
    world = _renamed()
    world.run(boundaries=BOUNDARIES[:3])
    accept(world, application="third", adopt_from_batch=3)
    world.run(boundaries=BOUNDARIES[:4])
    _lose(world, "table.gone")
    refused(world, "table.gone", lambda: world.run(boundaries=BOUNDARIES[:4]))


# -- the next name is one of streamsink.to_table --------------------------------------------------------------------


def _alone(world, batches: int) -> World:
    """The query as one of ``to_table``, which writes all rows to table a from then on."""
    alone = World(
        world.calls, f"{ROOT}/a", application="alone", restore="restore-and-continue", adopt_from_batch=batches
    )
    fields = pa.schema([field for field in SCHEMA if field.name != ROUTE])
    options = dataclasses.replace(alone.driver.options, partition_by=("part",))
    alone.driver = MicroBatchDriver(
        f"{ROOT}/a", fields, lambda start, end: world.driver.rows(start, end).drop_columns([ROUTE]), options
    )
    alone.checkpoint = world.checkpoint
    return alone


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_a_query_of_several_tables_goes_on_as_one_of_a_single_table(batches):
    """The last batch may or may not have put rows there.
    Formerly the way that the error named led nowhere, or doubled what is in the other tables."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:batches])
    alone = _alone(world, batches)
    alone.run(boundaries=BOUNDARIES)
    assert sorted(number for _, number, _ in world.rows()) == list(range(BOUNDARIES[-1]))
    alone.run(boundaries=(*BOUNDARIES, 24))
    assert sorted(number for _, number, _ in world.rows()) == list(range(24))


@follows("application.renamed")
@pytest.mark.parametrize("is_journal_lost", [False, True])
def test_a_query_of_a_single_table_leaves_no_part_of_a_batch_behind(is_journal_lost):
    """Formerly this table had its part, and the others never got theirs."""
    world = ManyWorld(restore="restore-and-continue")
    assert die_at_step("tables.table_published", 1, world, boundaries=BOUNDARIES)
    assert {table for table, _, _ in world.rows()} == {"a"}
    if is_journal_lost:
        world.file_io().delete_tree(f"{ROOT}/streamsink")
    alone = _alone(world, 1)
    said = told("application.renamed", lambda: alone.run(boundaries=BOUNDARIES))
    if is_journal_lost:
        had = len(world.rows())
        alone.driver.options = dataclasses.replace(
            alone.driver.options, **said.options("adopt_from_batch", "accept_as_seen")
        )
        alone.run(boundaries=BOUNDARIES)
        assert len(world.rows()) == had + BOUNDARIES[-1] - BOUNDARIES[0]
        return
    said.says("first start the query once more under the first one", "recorded and not published yet")
    world.run(boundaries=BOUNDARIES[:1])
    alone.run(boundaries=BOUNDARIES)
    assert sorted(number for _, number, _ in world.rows()) == list(range(BOUNDARIES[-1]))


@follows("application.renamed")
def test_a_query_of_a_single_table_does_not_go_on_where_that_went_back():
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:4])
    newest = max(world.table("a").snapshots.ids())
    assert newest > 1
    for name in (f"snapshot-{newest}", "LATEST"):
        world.file_io().delete(f"{ROOT}/a/snapshot/{name}")
    told("application.renamed", lambda: _alone(world, 4).run(boundaries=BOUNDARIES)).says(
        "first start the query once more under the first one"
    )
    refused(world, "table.rolled-back")


def test_a_query_of_a_single_table_dies_before_its_first_batch_is_published():
    """The first name's last record had no rows for this table, so nothing of it is missing here."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:3])
    alone = _alone(world, 3)
    assert die_at_step("precommit.saved", 1, alone, boundaries=BOUNDARIES)
    alone.run(boundaries=BOUNDARIES)
    assert sorted(number for _, number, _ in world.rows()) == list(range(BOUNDARIES[-1]))


@follows("table.rolled-back-too-far")
def test_a_query_of_several_tables_has_gone_on_since_the_single_table_went_back():
    """Formerly the error told the user to set a name with one of our suffixes, which no sink of the user's can have."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    before = max(world.table("a").snapshots.ids())
    alone = _alone(world, 2)
    alone.run(boundaries=BOUNDARIES[:3])
    checkpoint = copy.deepcopy(alone.checkpoint)
    # The query of several tables is not to be told of the other name.
    start_over(alone, BOUNDARIES[2], BOUNDARIES[3:4])
    for newest in range(max(world.table("a").snapshots.ids()), before, -1):
        for name in (f"snapshot-{newest}", "LATEST"):
            world.file_io().delete(f"{ROOT}/a/snapshot/{name}")
    world.checkpoint = alone.checkpoint = checkpoint
    checkpoint.committed = 2
    world.run(boundaries=BOUNDARIES[:4])
    alone.driver.options = dataclasses.replace(alone.driver.options, on_rollback="republish")
    said = told("table.rolled-back-too-far", lambda: alone.run(boundaries=BOUNDARIES)).says(
        "write through streamsink.to_tables"
    )
    assert said.find(r"Set application='([^']*)' and write") == world.driver.options.application
    world.run(boundaries=BOUNDARIES)
    assert sorted(number for _, number, _ in world.rows()) == list(range(BOUNDARIES[-1]))


def _lose_files_of_pending(world) -> None:
    for path in [path for path in world.calls._names if "/staging/" in path]:
        world.file_io(world.calls).delete(path)


def _begin_where_it_says(world, said) -> None:
    """Start a new checkpoint where the command says, after what is pending was given up."""
    found = Advice(SimpleNamespace(kind=said.kind, message=str(follow(world, said))))
    world.driver.options = dataclasses.replace(world.driver.options, adopt_from_batch=None)
    start = json.loads(found.option("startingOffsets"))["t"]["0"]
    start_over(world, start, [end for end in BOUNDARIES if end > start])


@follows("pending.files-gone")
@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("is_journal_lost", [False, True])
def test_a_query_of_a_single_table_gives_up_its_first_batch(batches, is_journal_lost):
    """Formerly the call in the message asked the table about a name that only the folder above knows."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:batches])
    alone = _alone(world, batches)
    assert die_at_step("precommit.saved", 1, alone, boundaries=BOUNDARIES)
    if is_journal_lost:
        world.file_io().delete_tree(f"{ROOT}/streamsink")
    _lose_files_of_pending(alone)
    _begin_where_it_says(alone, told("pending.files-gone", lambda: alone.run(boundaries=BOUNDARIES)))
    assert sorted(number for _, number, _ in world.rows()) == list(range(BOUNDARIES[-1]))


@follows("pending.files-gone")
def test_a_query_of_several_tables_gives_up_the_first_batch_after_that_of_a_single_table():
    """The folder knows nothing of the single table's name."""
    world = ManyWorld(restore="restore-and-continue", application="several")
    alone = _alone(world, 0)
    alone.driver.options = dataclasses.replace(alone.driver.options, adopt_from_batch=None)
    alone.run(boundaries=BOUNDARIES[:1])
    accept(world, adopt_from_batch=1)
    # All rows of this batch come to the table that already has some, so that the other one has nothing of it.
    world._versions = itertools.count(6)
    assert die_at_step("precommit.saved", 1, world, boundaries=BOUNDARIES)
    _lose_files_of_pending(world)
    _begin_where_it_says(world, refused(world, "pending.files-gone"))
    assert sorted(number for _, number, _ in world.rows()) == list(range(BOUNDARIES[-1]))
