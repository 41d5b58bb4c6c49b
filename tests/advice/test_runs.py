"""Advice of errors about the calls within one run, about bounded jobs, and about where a new checkpoint begins."""

import dataclasses
import json
import threading

import pyarrow.compute as pc
import pytest

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.commands.give_up import give_up
from streamsink.commands.offsets import Wanted, offsets_of
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import SourceRange
from streamsink.storage.file_io import FileIO
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import arm
from tests.advice.accidents import accept, refused, take
from tests.advice.following import follows, told
from tests.crash.giving_up import ENDS, clean
from tests.crash.world import World, die_at_step, expected, memory_world, posix_world
from tests.protocol.history import drop_from_newest, expire, roll_back
from tests.protocol.query import Query
from tests.table.foreign import Prepared

PLAIN = {"restore": "restore-and-continue"}
ROOT = "/lake/shop.db/orders"


def _parity(world, parity: int) -> None:
    """Filter the query's rows to those with even, or odd, ids."""
    rows = world.driver.rows

    def part(start, end):
        batch = rows(start, end)
        return batch.filter(pc.equal(pc.bit_wise_and(batch.column("id"), 1), parity))

    world.driver.rows = part


@follows("batch.twice")
@pytest.mark.parametrize("way", ["a-name-each", "one-call"])
@pytest.mark.parametrize("called", ["one sink", "two spellings"])
def test_a_second_part_of_a_batch(way, called, tmp_path):
    """The first part is published and stays under its name, and the other part gets a name of its own. From the next
    batch on all rows come in one call."""
    (tmp_path / "linked").symlink_to(tmp_path)
    world, linked = (posix_world(folder, **PLAIN) for folder in (tmp_path, tmp_path / "linked"))
    world.driver.run_id = linked.driver.run_id = "one start"
    whole = world.driver.rows
    _parity(world, 0)
    query = Query(world)
    query.batch(6)
    said = told("batch.twice", lambda: query.again(0) if called == "one sink" else Query(linked))
    if called != "one sink":
        said.says("Spell the path in one way in both")
    query.sink.close()
    world.driver.run_id = "another start"
    said.says("Use a sink of its own name (application='...') for the second part, in this and in all later batches")
    second = World(world.calls, world.driver.root, application="second", **PLAIN)
    second.checkpoint = world.checkpoint
    world.driver.other_sinks, second.driver.other_sinks = frozenset({"second"}), frozenset({"streamsink"})
    _parity(second, 1)
    first, other = Query(world), Query(second)
    first.batch(6)
    other.batch(6)
    if way == "one-call":
        which = "batch 0" if called == "one sink" else "this batch"
        said.says(f"(df1.unionByName(df2)), let the sink of its own name write its part of {which} first")
        world.driver.rows = whole
        first.batch(9)
    else:
        first.batch(9)
        other.batch(9)
    assert world.ids() == expected((9,))


@follows("batch.twice")
def test_rows_of_a_query_by_two_spellings_in_turn(tmp_path):
    """This happens with two name nodes or endpoints, of which the function takes the one that answers."""
    (tmp_path / "linked").symlink_to(tmp_path)
    world, linked = (posix_world(folder, **PLAIN) for folder in (tmp_path, tmp_path / "linked"))
    world.driver.run_id = linked.driver.run_id = "one start"
    query = Query(world)
    query.batch(6)
    told("batch.twice", lambda: Query(linked)).says(
        "Spell the path in one way in both: if each is given all rows", world.driver.root
    )
    query.batch(9)
    assert world.ids() == expected((9,))


@follows("batch.concurrent")
def test_parts_of_a_batch_in_two_calls_at_one_time():
    """Neither part is written; so the whole batch is written once the function calls the sink once."""
    world = memory_world(**PLAIN)
    whole = world.driver.rows
    _parity(world, 0)
    query, told_first = Query(world), []
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        go_on.wait(200)

    arm("write.staged", 1, wait)
    first = threading.Thread(target=lambda: told_first.append(told("batch.concurrent", lambda: query.batch(6))))
    first.start()
    inside.wait(200)
    try:
        told("batch.concurrent", lambda: query.again(0)).says(
            "Nothing of it was written", "Call it once in the batch function, and not from a pool of threads"
        )
    finally:
        faults.arm(None)
        go_on.set()
        first.join(60)
    told_first[0].says("Nothing of it was written", "Call it once in the batch function")
    query.sink.close()
    world.driver.rows = whole
    world.run(boundaries=(6, 9))
    assert world.ids() == expected((6, 9))


def _job(world, run_id: str, start: int, end: int) -> None:
    """A bounded run with these rows."""
    world.driver.job_rows = (start, end)
    described = world.driver.describe(SparkCheckpoint(run_id, [end]), 0)
    sink = world.driver.start(world.file_io(world.calls), SparkCheckpoint(run_id))
    try:
        sink.batch(dataclasses.replace(described, batch_id=END_OF_INPUT, run=run_id, sources=(), has_one_count=True))
    finally:
        sink.close()


def _runs_that_nobody_knows() -> World:
    """The journal of three runs was removed, and the snapshots of the first two have expired."""
    world = memory_world(application="batch", **PLAIN)
    for number, run_id in enumerate(("monday", "tuesday", "wednesday")):
        _job(world, run_id, 3 * number, 3 * number + 3)
    world.file_io(world.calls).delete_tree(f"{ROOT}/streamsink/batch")
    for number in (1, 2):
        take(world, f"{ROOT}/snapshot/snapshot-{number}")
    return world


@follows("run.undecidable")
@pytest.mark.parametrize("way", ["accept_as_new", "accept_as_seen"])
def test_a_bounded_run_that_nobody_knows(way):
    world = _runs_that_nobody_knows()
    said = told("run.undecidable", lambda: _job(world, "monday", 0, 3)).says("Look whether its rows are in the table")
    accept(world, **{way: said.option(way)})
    _job(world, "monday", 0, 3)
    assert world.ids() == sorted([*range(9), *(range(3) if way == "accept_as_new" else ())])


@follows("run.undecidable")
def test_runs_that_are_never_repeated_are_asked_for_once():
    """Formerly each later run was asked about, night after night.
    The answer for all of them may stay in the job until a journal is lost again."""
    world = _runs_that_nobody_knows()
    said = told("run.undecidable", lambda: _job(world, "thursday", 9, 12)).says("never repeated")
    accept(world, accept_as_new=said.find(r"accept_as_new='(\w+)' for all"))
    for run_id in ("thursday", "friday", "friday", "saturday"):
        _job(world, run_id, *{"thursday": (9, 12), "friday": (12, 15), "saturday": (15, 18)}[run_id])
    assert world.ids() == list(range(18))
    world.file_io(world.calls).delete_tree(f"{ROOT}/streamsink/batch")
    for number in (3, 4):
        take(world, f"{ROOT}/snapshot/snapshot-{number}")
    told("run.undecidable", lambda: _job(world, "monday", 0, 3))


@follows("run.other")
@pytest.mark.parametrize("way", ["run-id", "application", "accept_as_seen"])
def test_other_rows_under_the_id_of_a_published_run(way):
    world = memory_world(application="batch", **PLAIN)
    _job(world, "nightly", 0, 3)
    said = told("run.other", lambda: _job(world, "nightly", 3, 7)).says("nightly", "Nothing was written")
    assert ROOT in said.message and world.ids() == [0, 1, 2]
    if way == "accept_as_seen":
        accept(world, accept_as_seen=said.option(way))
        _job(world, "nightly", 3, 7)
        assert world.ids() == [0, 1, 2]
        return
    said.says("give them a run id of their own, or a job of its own a name of its own (application='...')")
    if way == "application":
        accept(world, application="other-job")
    for _ in range(2):
        _job(world, "nightly-2" if way == "run-id" else "nightly", 3, 7)
    assert world.ids() == list(range(7))


@follows("application.of-a-query")
def test_a_run_under_the_name_of_a_query():
    """Formerly the run's record hid the query's,
    and the query's next start was asked about a checkpoint that nobody had touched."""
    world = memory_world(tells_files=True, **PLAIN)
    world.run(boundaries=(3, 6))
    rows = world.driver.options
    said = told("application.of-a-query", lambda: _job(world, "backfill", 100, 103)).says("application='...'")
    assert ROOT in said.message and world.ids() == list(range(6))
    accept(world, application="own")
    _job(world, "backfill", 100, 103)
    world.driver.options = rows
    world.run(boundaries=(3, 6, 9))
    assert world.ids() == [*range(9), *range(100, 103)]


@follows("overwrite.other-partitions")
@pytest.mark.parametrize("way", ["left-out", "another-table"])
def test_partitions_that_an_existing_table_has_not(way):
    """Formerly the run replaced the whole table, where its user meant the days that he gave."""
    world = memory_world(application="batch", partition_by=(), **PLAIN)
    _job(world, "first", 0, 6)
    accept(world, mode="overwrite", partition_by=("part",))
    said = told("overwrite.other-partitions", lambda: _job(world, "again", 6, 9)).says("part", "Nothing was written")
    assert world.ids() == list(range(6))
    if way == "left-out":
        said.says("leave partition_by out")
        accept(world, partition_by=())
        _job(world, "again", 6, 9)
        assert world.ids() == [6, 7, 8]
        return
    said.says("into a table that has these partitions")
    world.driver.root += "_by_part"
    _job(world, "again", 6, 9)
    assert world.ids() == [6, 7, 8]


@follows("give-up.undecidable")
@pytest.mark.parametrize("is_there", [False, True])
def test_a_record_that_is_given_up_although_nobody_knows_whether_it_was_published(is_there):
    """The user has looked, and says so by this token, or by the one of the next start."""
    world = memory_world(journal_retain=10, **PLAIN)
    assert die_at_step("precommit.saved", 3, world, boundaries=ENDS)
    for number in range(2):
        Prepared(world, number).rename()
    for number in (1, 2, 3):
        take(world, f"{ROOT}/snapshot/snapshot-{number}")
    clean(world, 3, 1)

    def settle(**options):
        return give_up(world.file_io(world.calls), ROOT, dataclasses.replace(world.driver.options, **options))

    said = told("give-up.undecidable", settle)
    if is_there:
        said.says("if they are, or those of the first records are, start the query")
        accept(world, accept_as_seen=refused(world, said.find(r"its error \((.*?)\)"), ENDS).option("accept_as_seen"))
    else:
        assert settle(accept_as_new=said.option("accept_as_new")).records == (3,)
    world.run(boundaries=ENDS)
    of_record = range(*ENDS[1:3]) if is_there else ()
    assert [i for i in world.ids() if i < 1000] == [i for i in expected(ENDS) if i not in of_record]


@follows("give-up.undecidable")
@pytest.mark.parametrize("there", [0, 1, 2])
def test_a_rollback_before_which_nobody_knows_what_was_published(there):
    """Found by a walk: the message did not say which rows to look for,
    and sent a user who had found them to an error that sent him back."""
    world = memory_world(journal_retain=10, **PLAIN)
    world.run(boundaries=ENDS[:3])
    roll_back(world, 2)
    Prepared(world).rename()
    expire(world, 1, 2)
    drop_from_newest(world)

    def settle(**options):
        return give_up(world.file_io(world.calls), ROOT, dataclasses.replace(world.driver.options, **options))

    refused(world, "table.rolled-back", ENDS)
    said = told("give-up.undecidable", settle).says(
        "Look whether the rows of checkpoint 0 to checkpoint 1 are in the table"
    )
    if there:
        word = said.find(r"'(\w+)' for checkpoint 0") if there == 1 else said.option("accept_as_seen")
        assert settle(accept_as_seen=word).records == tuple(range(there + 1, 4))
    else:
        assert settle(accept_as_new=said.option("accept_as_new")).records == (1, 2, 3)


# -- where a new checkpoint begins ---------------------------------------------------------------------------------


def _read(*ends) -> World:
    """Write a batch of several sources, each up to its offsets."""
    world = memory_world(**PLAIN)
    ranges = tuple(SourceRange({topic: {"0": 0} for topic in end}, end) for end in ends)
    sink = world.driver.start(FileIO(world.calls, IdSource().new_id), world.checkpoint)
    sink.batch(Batch(0, world.checkpoint.query, "run", ranges))
    sink.close()
    return world


def _begin(world, application="streamsink", **wanted):
    return json.loads(offsets_of(world.file_io(world.calls), ROOT, application, Wanted(**wanted)))


@follows("positions.several-sources")
def test_sources_that_stand_at_different_positions_are_asked_for_one_by_one():
    world = _read({"t": {"0": 7}}, {"t": {"0": 3}})
    said = told("positions.several-sources", lambda: _begin(world)).says("Name one of them: source=...")
    names = said.find(r"sources (.*?) have read").split(", ")
    assert [_begin(world, source=eval(name)) for name in names] == [{"t": {"0": 7}}, {"t": {"0": 3}}]  # noqa: S307


@follows("positions.unknown-topic")
def test_a_topic_to_leave_out_that_is_not_recorded():
    world = _read({"t": {"0": 7}, "u": {"0": 3}})
    said = told("positions.unknown-topic", lambda: _begin(world, without=["T"]))
    assert _begin(world, without=[said.find(r"recorded are (\w+)")]) == {"u": {"0": 3}}


@follows("positions.none")
@pytest.mark.parametrize(
    "wrong, pattern, right",
    [
        ({"application": "stremsink"}, r"have written here: (\w+)", "application"),
        ({"source": 4}, r"those that are: '(\w+)'", "source"),
    ],
)
def test_an_application_or_a_source_without_positions(wrong, pattern, right):
    """The error names the applications or sources that have positions."""
    world = _read({"t": {"0": 7}})
    said = told("positions.none", lambda: _begin(world, **wrong))
    assert _begin(world, **{right: said.find(pattern)}) == {"t": {"0": 7}}
