"""Advice of errors of a query into several tables: the others must not get a row twice, whatever befell one of them."""

import dataclasses
from collections import Counter

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.sinks.many_tables import open_place
from streamsink.table.routing import ROUTE, Routing
from streamsink.table.table import create_table, new_schema
from streamsink.testing.driver import Checkpoint, MicroBatchDriver
from tests.advice.accidents import damage
from tests.advice.following import advice, follows
from tests.crash.many_world import BOUNDARIES, ROOT, RULES, SCHEMA, ManyWorld, check_complete, check_readable
from tests.crash.world import die_at_step

JOURNAL = f"{ROOT}/streamsink/streamsink"
SECOND = "00000000-0000-0000-0000-000000000002"


@pytest.fixture
def world() -> ManyWorld:
    """After four of five batches."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:4])
    return world


def _told(world, kind: str, run=None):
    before = world.rows()
    with pytest.raises(StreamsinkError) as told:
        run() if run else world.run()
    said = advice(told.value, kind)
    assert ROOT in said.message, "no table is named"
    assert world.rows() == before
    return said


def _accept(world, **options) -> None:
    world.driver.options = dataclasses.replace(world.driver.options, **options)


def _files_in(world, folder: str) -> dict[str, bytes]:
    return {path: file.data for path, file in world.calls._names.items() if path.startswith(f"{folder}/") and "/hold" not in path}


def _put_back(world, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        if path in world.calls._names:
            damage(world, path, data)
        else:
            world.file_io().create_if_absent(path, data)


def _once(world, without=()) -> None:
    """Each row is there once, but for those that were in the tables that are lost."""
    numbers = Counter(number for _, number, _ in world.rows())
    assert set(numbers.values()) == {1}
    assert set(numbers) | set(without) == set(range(BOUNDARIES[-1])) and not set(numbers) & set(without)


def _drop(world, name: str) -> tuple[dict, list[int]]:
    """(its files, the numbers of its rows)"""
    files = _files_in(world, f"{ROOT}/{name}")
    lost = [number for table, number, _ in world.rows() if table == name]
    world.file_io().delete_tree(f"{ROOT}/{name}")
    return files, lost


def _recreate(world) -> None:
    schema = new_schema(parse_ddl("id BIGINT, part STRING, n BIGINT NOT NULL, version BIGINT"), (), {})
    create_table(world.file_io(), f"{ROOT}/strict", schema)


def _go_on_without_it(world, kind: str, said, lost: list[int]) -> None:
    """Under another name, as the error says; no other table gets a row twice."""
    if kind == "table.gone":
        _recreate(world)
    said.says("set another application")
    _accept(world, application="another", adopt_from_batch=said.option("adopt_from_batch"))
    world.run()
    _once(world, lost)


LOST = {"table.gone": lambda world: None, "table.recreated": _recreate}


@follows(*LOST)
@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("way", ["restored", "another-application"])
def test_one_of_the_tables_is_lost(world, kind, way):
    """Restored; or the query goes on under another name, and no other table gets a row twice."""
    files, lost = _drop(world, "strict")
    LOST[kind](world)
    said = _told(world, kind)
    if way == "restored":
        said.says("restore the table")
        world.file_io().delete_tree(f"{ROOT}/strict")
        _put_back(world, files)
        world.run()
        check_complete(world.rows())
        return
    _go_on_without_it(world, kind, said, lost)


@follows(*LOST)
@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("batches, is_running", [(4, True), (3, False)])
def test_one_of_the_tables_is_lost_and_a_new_checkpoint_would_double_the_others(kind, batches, is_running):
    """Under the running query, of which the error said what is right for one table; or behind a batch that put no row into any table."""
    world = ManyWorld(restore="restore-and-continue")
    sink = world.driver.start(world.file_io(), world.checkpoint)
    world.checkpoint.ends += list(BOUNDARIES)
    for batch_id in range(batches):
        sink.batch(world.driver.describe(world.checkpoint, batch_id))
        world.checkpoint.committed = batch_id + 1
    files, lost = _drop(world, "strict")
    LOST[kind](world)
    if is_running:
        said = _told(world, kind, lambda: sink.batch(world.driver.describe(world.checkpoint, batches)))
    sink.close()
    if not is_running:
        said = _told(world, kind)
    _go_on_without_it(world, kind, said, lost)


@follows(*LOST)
@pytest.mark.parametrize("kind", LOST)
def test_one_of_the_tables_is_lost_while_a_batch_is_pending(kind):
    """Another name would leave out what is pending: the error says to restore the table, and no other way."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    assert die_at_step("precommit.saved", 1, world, boundaries=BOUNDARIES[:4])
    files, _ = _drop(world, "strict")
    LOST[kind](world)
    said = _told(world, kind).says("restore the table", "is pending")
    assert "another application" not in said.message
    world.file_io().delete_tree(f"{ROOT}/strict")
    _put_back(world, files)
    world.run()
    check_complete(world.rows())


@follows("tables.unknown-record")
@pytest.mark.parametrize("way", ["restored", "another-application"])
def test_the_journal_of_all_tables_is_lost(world, way):
    files = _files_in(world, f"{ROOT}/streamsink")
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    said = _told(world, "tables.unknown-record")
    if way == "restored":
        said.says("Restore the journal's folder")
        world.file_io().delete_tree(f"{ROOT}/streamsink")
        _put_back(world, files)
    else:
        _accept(world, application="another", adopt_from_batch=said.option("adopt_from_batch"))
    world.run()
    check_complete(world.rows())


@follows("tables.journal-behind")
def test_an_older_copy_of_the_journal_is_replaced_by_the_newest(world):
    newest = max(int(name[7:-5]) for name in world.file_io().names(JOURNAL) if name.startswith("record-"))
    files = _files_in(world, JOURNAL)
    for name in (f"record-{newest}.json", f"done-{newest}"):
        world.file_io().delete(f"{JOURNAL}/{name}")
    _told(world, "tables.journal-behind").says("Restore the newest copy")
    _put_back(world, files)
    world.run()
    check_complete(world.rows())


@follows("tables.other-protocol")
def test_a_table_that_to_table_has_written_under_this_name():
    """Under another name the query writes its rows, and those of the first one stay."""
    world = ManyWorld(restore="restore-and-continue")
    rows = pa.schema([field for field in SCHEMA if field.name != ROUTE])
    options = SinkOptions.of(ROOT, {"partition_by": ("part",)})
    single = MicroBatchDriver(f"{ROOT}/a", rows, lambda start, end: world._rows(start, end).drop_columns([ROUTE]), options)
    single.run(world.file_io(), Checkpoint(SECOND), (3,))
    _told(world, "tables.other-protocol").says("Set another application")
    _accept(world, application="another")
    world.run()
    assert Counter(number for _, number, _ in world.rows()) == Counter([*range(3), *range(BOUNDARIES[-1])])


@follows("tables.moved")
@pytest.mark.parametrize("way", ["that-path", "another-name"])
def test_a_table_that_is_given_another_path(world, way):
    def route(rules):
        world.driver.routing = Routing.of(ROOT, rules, world.driver.options, dead_letters="rejected", unrouted="dead-letter")

    route({"a": {"path": "elsewhere/a"}, "strict": {"create": False}, "more_*": {}})
    ends = (*BOUNDARIES, 30)
    with pytest.raises(StreamsinkError) as told:
        world.run(boundaries=ends)
    said = advice(told.value, "tables.moved")
    check_readable(world.rows(), ends)
    rule = {"path": said.find(r"was written at (\S+) so far")}
    if way == "that-path":
        route({"a": {**rule, "partition_by": ("part",)}, "strict": {"create": False}, "more_*": {}})
    else:
        said.says("or another name")
        route(RULES)
    world.run(boundaries=ends)
    check_complete(world.rows(), ends)


@follows("tables.root-is-a-table")
def test_the_path_of_a_table_instead_of_its_folder(world):
    def opened(path):
        return open_place(world.file_io(), path, "another", IdSource().new_id)

    said = _told(world, "tables.root-is-a-table", lambda: opened(f"{ROOT}/strict"))
    said.says("expected the folder that holds the tables")
    assert opened(ROOT)


@follows("table.rolled-back")
def test_one_of_the_tables_is_rolled_back(world):
    """Which can only be restored: the error says so."""
    name = f"{ROOT}/strict/snapshot"
    newest = max(world.table("strict").snapshots.ids())
    files = {path: world.calls._names[path].data for path in (f"{name}/snapshot-{newest}", f"{name}/LATEST")}
    for path in files:
        world.file_io().delete(path)
    _told(world, "table.rolled-back").says("Restore the table")
    _put_back(world, files)
    world.run()
    check_complete(world.rows())


@follows("history.incomplete")
def test_the_first_start_on_tables_whose_history_has_expired():
    world = ManyWorld(restore="restore-and-continue")
    rows = pa.schema([field for field in SCHEMA if field.name != ROUTE])
    options = SinkOptions.of(ROOT, {"application": "other", "partition_by": ("part",)})
    other = MicroBatchDriver(f"{ROOT}/a", rows, lambda start, end: world._rows(start, end).drop_columns([ROUTE]), options)
    other.run(world.file_io(), Checkpoint(SECOND), (0, 0))
    table = world.table("a")
    newest = table.snapshots.latest()
    foreign = dataclasses.replace(newest, id=newest.id + 1, properties=None, commit_user="compactor")
    world.file_io().write(f"{ROOT}/a/snapshot/snapshot-{foreign.id}", foreign.to_json())
    for old in range(1, foreign.id):
        world.file_io().delete(f"{ROOT}/a/snapshot/snapshot-{old}")
    world.file_io().delete(f"{ROOT}/a/snapshot/LATEST")
    said = _told(world, "history.incomplete")
    _accept(world, new_application=said.option("new_application"))
    world.run()
    check_complete(world.rows())


def _undecidable(step: str, occurrence: int) -> ManyWorld:
    """Killed between two tables of the first batch; others committed to the first one, and what could tell has expired."""
    world = ManyWorld(restore="restore-and-continue")
    assert die_at_step(step, occurrence, world)
    table = world.table("a")
    newest = table.snapshots.latest()
    foreign = dataclasses.replace(
        newest, id=newest.id + 1, properties=None, commit_user="compactor", base_manifest_list=newest.base_manifest_list,
        delta_manifest_list=newest.base_manifest_list, base_manifest_list_size=newest.base_manifest_list_size,
        delta_manifest_list_size=newest.base_manifest_list_size, total_record_count=0, delta_record_count=0,
    )
    world.file_io().write(f"{ROOT}/a/snapshot/snapshot-{foreign.id}", foreign.to_json())
    for old in range(1, foreign.id):
        world.file_io().delete(f"{ROOT}/a/snapshot/snapshot-{old}")
    world.file_io().delete(f"{ROOT}/a/snapshot/LATEST")
    return world


@follows("journal.undecidable")
@pytest.mark.parametrize("way", ["accept_as_seen", "accept_as_new"])
def test_a_table_of_which_nobody_knows_whether_it_has_its_part(way):
    """Its part is left alone or published; the other tables get theirs in any case."""
    world = _undecidable("tables.table_published", 1)
    said = _told(world, "journal.undecidable")
    _accept(world, **{way: said.option(way)})
    world.run()
    if way == "accept_as_new":
        check_complete(world.rows())
    else:
        numbers = Counter(number for _, number, _ in world.rows())
        assert set(numbers.values()) == {1} and set(range(BOUNDARIES[-1])) - set(numbers) <= set(range(BOUNDARIES[0]))
        assert len(numbers) < BOUNDARIES[-1]
