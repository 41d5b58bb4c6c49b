"""Advice of errors of a query into several tables: whatever befell one of them, the others must not get a row twice."""

import copy
import dataclasses
import json
from collections import Counter
from types import MappingProxyType

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.options import SinkOptions
from streamsink.sinks.paimon.past.place import open_place
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.advice.following import advice, follows
from tests.advice.many import accept, commit_of_another, files_in, four_of_five_batches, put_back, refused
from tests.crash.many_world import BOUNDARIES, ROOT, RULES, SCHEMA, ManyWorld, check_complete, check_readable
from tests.crash.world import die_at_step

SECOND = "00000000-0000-0000-0000-000000000002"


@pytest.fixture
def world() -> ManyWorld:
    return four_of_five_batches()


@follows("tables.unknown-record")
@pytest.mark.parametrize("way", ["restored", "another-application"])
def test_the_journal_of_all_tables_is_lost(world, way):
    files = files_in(world, f"{ROOT}/streamsink")
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    said = refused(world, "tables.unknown-record")
    if way == "restored":
        said.says("Restore the journal's folder")
        world.file_io().delete_tree(f"{ROOT}/streamsink")
        put_back(world, files)
    else:
        accept(
            world,
            application="another",
            adopt_from_batch=said.option("adopt_from_batch"),
            accept_as_seen=said.option("accept_as_seen"),
        )
    world.run()
    check_complete(world.rows())


@follows("tables.unknown-record")
def test_the_journal_of_all_tables_is_lost_behind_a_batch_without_rows():
    """No table knows that batch. Formerly the number that the error named was refused when the next batch came."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:3])
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    said = refused(world, "tables.unknown-record")
    accept(world, application="another", **said.options("adopt_from_batch", "accept_as_seen"))
    world.run()
    check_complete(world.rows())


@follows("checkpoint.begins-anew")
def test_the_journal_of_all_tables_and_the_checkpoint_are_lost(world):
    """The tables tell how far they were written.
    Formerly every row came a second time under the name that the error asked for."""
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    world.checkpoint = SparkCheckpoint(SECOND)
    accept(
        world,
        application="another",
        adopt_from_batch=refused(world, "tables.unknown-record").option("adopt_from_batch"),
    )
    said = refused(world, "checkpoint.begins-anew")
    at = json.loads(
        said.find(
            r"leave adopt_from_batch out and start a new checkpoint, for what was 'streamsink@tables' before with "
            r"startingOffsets='([^']*)'"
        )
    )
    accept(world, adopt_from_batch=None)
    world.driver.first_file = at["t"]["0"]  # This is where batch 0 begins.
    world.checkpoint = SparkCheckpoint(SECOND)
    world.run(boundaries=BOUNDARIES[4:])
    check_complete(world.rows())


@follows("tables.unknown-record", "checkpoint.begins-anew")
def test_an_older_journal_that_does_not_know_a_table_of_the_rules_and_a_lost_checkpoint():
    """Formerly batches without rows for that table were recorded before anybody looked at it, and said where to begin:
    what the table had came twice."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=(1,))
    older = files_in(world, f"{ROOT}/streamsink")
    world.run(boundaries=(1, 9))
    assert len({name for name, _, _ in world.rows()}) > 1
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    put_back(world, older)
    world.checkpoint = SparkCheckpoint(SECOND)
    said = refused(world, "tables.unknown-record", lambda: world.run(boundaries=(1, 12)))
    accept(world, application="another", **said.options("adopt_from_batch", "accept_as_seen"))
    said = refused(world, "checkpoint.begins-anew", lambda: world.run(boundaries=(1, 12)))
    at = json.loads(
        said.find(
            r"leave adopt_from_batch out and start a new checkpoint, for what was 'streamsink@tables' before with "
            r"startingOffsets='([^']*)'"
        )
    )
    accept(world, adopt_from_batch=None)
    world.driver.first_file = at["t"]["0"]  # This is where batch 0 begins.
    world.checkpoint = SparkCheckpoint(SECOND)
    world.run(boundaries=(12, 18))
    check_complete(world.rows(), (1, 9, 12, 18))


@follows("application.renamed")
def test_the_journal_of_all_tables_is_lost_and_the_topic_recreated(world):
    """The first name cannot be started without its journal, and no other name goes on with another topic.
    Formerly there was no way on."""
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    world.driver.topic_id = "another"
    accept(
        world,
        application="another",
        adopt_from_batch=refused(world, "tables.unknown-record").option("adopt_from_batch"),
    )
    said = refused(world, "application.renamed")
    at = json.loads(
        said.find(
            r"leave adopt_from_batch out and start a new checkpoint, for what was 'streamsink@tables' before with "
            r"startingOffsets='([^']*)'"
        )
    )
    assert at == {"t": {"0": -2}}
    before = Counter(number for _, number, _ in world.rows())
    accept(world, adopt_from_batch=None)
    world.checkpoint = SparkCheckpoint(SECOND)
    world.run(boundaries=(3,))
    assert Counter(number for _, number, _ in world.rows()) == before + Counter(range(3))


@follows("tables.other-protocol")
@pytest.mark.parametrize("way", ["other-program", "its-checkpoint"])
def test_a_table_that_to_table_has_written_under_this_name(way):
    """Another program writes its rows under another name, and those of the first program stay.
    The same program goes on behind its rows."""
    world, checkpoint = ManyWorld(restore="restore-and-continue"), SparkCheckpoint(SECOND)
    rows = pa.schema([field for field in SCHEMA if field.name != ROUTE])
    options = SinkOptions.of(ROOT, {"partition_by": ("part",)})
    single = MicroBatchDriver(
        f"{ROOT}/a", rows, lambda start, end: world._rows(start, end).drop_columns([ROUTE]), options
    )
    single.run(world.file_io(), checkpoint, (3,))
    said = refused(world, "tables.other-protocol")
    if way == "other-program":
        said.says("If it is another program, set another application")
        accept(world, application="another")
        expected = Counter([*range(3), *range(BOUNDARIES[-1])])
    else:
        said.says("start it with the checkpoint that it had there under another application, and its error says how")
        world.checkpoint = checkpoint
        accept(world, application="another")
        accept(
            world,
            application="another",
            adopt_from_batch=refused(world, "application.renamed").option("adopt_from_batch"),
        )
        expected = Counter(range(BOUNDARIES[-1]))
    world.run()
    assert Counter(number for _, number, _ in world.rows()) == expected


@follows("tables.other-protocol")
@pytest.mark.parametrize("way", ["other-program", "this-name-too", "its-checkpoint"])
def test_a_table_that_to_tables_has_written_under_this_name(world, way):
    """Formerly the same program wrote each row a second time with a new checkpoint."""
    rows = pa.schema([field for field in SCHEMA if field.name != ROUTE])
    there = Counter(world.rows())

    def single(checkpoint: SparkCheckpoint, **more) -> None:
        options = SinkOptions.of(ROOT, {"partition_by": ("part",), "restore": "restore-and-continue", **more})
        make = lambda start, end: world._rows(start, end).drop_columns([ROUTE])  # noqa: E731
        MicroBatchDriver(f"{ROOT}/a", rows, make, options).run(
            world.file_io(), checkpoint, (*BOUNDARIES, 30) if way == "its-checkpoint" else (3,)
        )

    with pytest.raises(StreamsinkError) as told:
        single(SparkCheckpoint(SECOND))
    said = advice(told.value, "tables.other-protocol")
    assert Counter(world.rows()) == there
    if way == "its-checkpoint":
        said.says("start it with the checkpoint that it had there under another application, and its error says how")
        world.run()
        there = Counter(world.rows())
        with pytest.raises(StreamsinkError) as told:
            single(world.checkpoint, application="another")
        single(
            world.checkpoint,
            application="another",
            adopt_from_batch=advice(told.value, "application.renamed").option("adopt_from_batch"),
        )
        assert Counter(number for _, number, _ in world.rows()) == Counter(
            [*(n for _, n, _ in there.elements()), *range(BOUNDARIES[-1], 30)]
        )
        return
    said.says("If it is another program, set another application")
    more = {"application": "another"} if way == "other-program" else {"accept_as_new": said.option("accept_as_new")}
    single(SparkCheckpoint(SECOND), **more)
    assert Counter(number for _, number, _ in world.rows()) == Counter(
        [*(n for _, n, _ in there.elements()), *range(3)]
    )


@follows("tables.moved")
@pytest.mark.parametrize("way", ["that-path", "another-name"])
def test_a_table_that_is_given_another_path(world, way):
    def route(rules):
        world.driver.routing = Routing.of(
            ROOT, rules, world.driver.options, dead_letters="rejected", unrouted="dead-letter"
        )

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

    said = refused(world, "tables.root-is-a-table", lambda: opened(f"{ROOT}/strict"))
    said.says("expected the folder that holds the tables")
    assert opened(ROOT)


@follows("history.incomplete")
def test_the_first_start_on_tables_whose_history_has_expired():
    world = ManyWorld(restore="restore-and-continue")
    rows = pa.schema([field for field in SCHEMA if field.name != ROUTE])
    options = SinkOptions.of(ROOT, {"application": "other", "partition_by": ("part",)})
    other = MicroBatchDriver(
        f"{ROOT}/a", rows, lambda start, end: world._rows(start, end).drop_columns([ROUTE]), options
    )
    other.run(world.file_io(), SparkCheckpoint(SECOND), (0, 0))
    _forgets(world, "a")
    accept(world, adopt_from_batch=1)
    refused(world, "history.incomplete").says(
        "If adopt_from_batch=1 names the batch that comes", "leave that option out"
    )
    accept(world, adopt_from_batch=None)
    said = refused(world, "history.incomplete")
    accept(world, new_application=said.option("new_application"))
    world.run()
    check_complete(world.rows())


def _forgets(world, name: str) -> None:
    """Another writer has committed to the table, and everything before that has expired."""
    newest = world.table(name).snapshots.latest()
    foreign = dataclasses.replace(newest, id=newest.id + 1, properties=None, commit_user="compactor")
    world.file_io().write(f"{ROOT}/{name}/snapshot/snapshot-{foreign.id}", foreign.to_json())
    for old in range(1, foreign.id):
        world.file_io().delete(f"{ROOT}/{name}/snapshot/snapshot-{old}")
    world.file_io().delete(f"{ROOT}/{name}/snapshot/LATEST")


@follows("history.incomplete")
def test_the_journal_is_lost_behind_a_batch_that_one_table_has_which_has_forgotten():
    """Formerly the error spoke of no application although it did write here,
    and its whole source was written a second time."""
    world = ManyWorld(restore="restore-and-continue")
    assert die_at_step("tables.table_published", 1, world)
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    [name] = {name for name, _, _ in world.rows()}
    _forgets(world, name)
    said = refused(world, "history.incomplete")
    said.says(
        "delete there those of a batch that only some of its tables have", "a new checkpoint with startingOffsets"
    )
    commit_of_another(world, name, keeps_earlier=False)  # as DELETE does it
    assert not world.rows()
    accept(world, new_application=said.option("new_application"))
    world.checkpoint = SparkCheckpoint(SECOND)
    world.run()
    check_complete(world.rows())


@follows("tables.unknown-record", "history.incomplete")
@pytest.mark.parametrize("is_looked_first", [True, False])
def test_the_journal_is_lost_and_a_table_has_forgotten_a_batch_that_only_it_has(is_looked_first):
    """Found by a walk: for the other tables an earlier batch is the last one, and the rows of the forgotten batch were
    written a second time behind it."""
    world = ManyWorld(restore="restore-and-continue")
    for _ in range(5):
        next(world._versions)
    world.run(boundaries=(6, 9))
    assert {name for name, number, _ in world.rows() if number >= 6} == {"a"}
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    _forgets(world, "a")
    said = refused(world, "tables.unknown-record").says(
        f"look into {ROOT}/a, where older snapshots have expired", "If no row of one is there, set another"
    )
    accept(world, application="another")
    if not is_looked_first:
        accept(world, **said.options("adopt_from_batch", "accept_as_seen"))
        accept(world, new_application=refused(world, "history.incomplete").option("new_application"))
        refused(world, "application.renamed").says(
            "leave adopt_from_batch out and let the query begin behind what is there (a new checkpoint with "
            "startingOffsets"
        )
        accept(world, adopt_from_batch=None)
    world.checkpoint, world.driver.first_file = (
        SparkCheckpoint(SECOND),
        1 + max(number for _, number, _ in world.rows()),
    )
    if is_looked_first:
        accept(world, new_application=refused(world, "history.incomplete").option("new_application"))
    world.run(boundaries=(14, 18))
    check_complete(world.rows(), (6, 9, 14, 18))


@follows("tables.unknown-record", "history.incomplete")
def test_the_journal_is_lost_and_the_first_table_has_forgotten(world):
    """The other tables say how far the query was.
    Formerly the error asked whether it had ever written here, and no answer to that was right."""
    world.file_io().delete_tree(f"{ROOT}/streamsink")
    _forgets(world, "a")
    said = refused(world, "tables.unknown-record")
    accept(world, application="another", **said.options("adopt_from_batch", "accept_as_seen"))
    said = refused(world, "history.incomplete").says("If it never did")
    accept(world, new_application=said.option("new_application"))
    world.run()
    check_complete(world.rows())


@follows("journal.other")
@pytest.mark.parametrize("way", ["restored", "another-application"])
def test_the_tables_are_those_of_another_past_than_the_journal(way):
    """Found by a bred walk: a backup of the tables was put back whose last record has the number of the journal's last
    record and is another one. The query went on behind the journal's record, and what the tables lack of it was lost
    without a word."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=(6,))
    all_of_it, checkpoint, versions = files_in(world, ROOT), copy.deepcopy(world.checkpoint), copy.copy(world._versions)
    world.run(boundaries=(6, 8))
    tables = _tables(world)
    _replace(world, all_of_it)
    world.checkpoint, world._versions = checkpoint, versions  # The rows go to the same tables.
    world.run(boundaries=(6, 9))
    right_ones = _tables(world)
    _replace(world, tables, keep=files_in(world, f"{ROOT}/streamsink"))
    said = refused(world, "journal.other", lambda: world.run(boundaries=(6, 9, 14)))
    if way == "restored":
        said.says("Restore the tables or the journal, so that both are of one time")
        _replace(world, right_ones, keep=files_in(world, f"{ROOT}/streamsink"))
        world.run(boundaries=(6, 9, 14))
        check_complete(world.rows(), (6, 9, 14))
        return
    accept(world, application="another", **said.options("adopt_from_batch", "accept_as_seen"))
    said = refused(world, "application.renamed", lambda: world.run(boundaries=(6, 9, 14)))
    at = json.loads(
        said.find(
            r"leave adopt_from_batch out and start a new checkpoint, for what was 'streamsink@tables' before with "
            r"startingOffsets='([^']*)'"
        )
    )
    accept(world, adopt_from_batch=None)
    world.driver.first_file = at["t"]["0"]  # This is where batch 0 begins.
    world.checkpoint = SparkCheckpoint(SECOND)
    world.run(boundaries=(14,))
    check_complete(world.rows(), (6, 8, 14))


def _tables(world) -> dict[str, bytes]:
    return {path: data for path, data in files_in(world, ROOT).items() if not path.startswith(f"{ROOT}/streamsink")}


def _replace(world, files: dict[str, bytes], keep: dict[str, bytes] = MappingProxyType({})) -> None:
    """Make these files, and those of ``keep``, all that is in the warehouse."""
    world.file_io().delete_tree(ROOT)
    put_back(world, {**files, **keep})
