"""What operators and users do to a fan-out, and to one of its destinations: nothing is lost, doubled or skipped, and
what cannot be decided is asked."""

import contextlib
import copy
import itertools
import sqlite3
from dataclasses import replace
from types import SimpleNamespace

import pytest

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.databases import DatabaseSink
from streamsink.errors import Fenced, Misuse, StreamsinkError
from streamsink.format.snapshot import Snapshot
from streamsink.options import SinkOptions
from streamsink.sink import FanOut, FileSink, PaimonTable
from streamsink.sinks.fan_out.writing import FanOutWriting
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.storage.stores import Store
from streamsink.testing.conformance import SCHEMA
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash, arm, crash
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import advice, follows, told
from tests.sinks import shown
from tests.sinks.fan_out_world import ALL, ENDS, ROOT, FanOutWorld, roll_back
from tests.sinks.lake import rows
from tests.sinks.test_file_sink import rows_of

EARLY = ENDS[:2]
HALF = list(range(EARLY[-1]))


@pytest.mark.parametrize("name", ["files", "table", "own"])
def test_one_destination_that_went_back_is_named(name):
    """The query stops, and the others are not harmed."""
    world = FanOutWorld("files", "table", "own")
    world.run(ends=EARLY)
    roll_back(world, name)
    said = told("table.rolled-back", lambda: world.run()).says(f"{ROOT}/{name}:", "Nothing was written")
    assert said.kind and world.ids(name) == ALL[: ENDS[0]]
    assert all(world.ids(other) == HALF for other in world.names if other != name)


@pytest.mark.parametrize("running", [False, True], ids=["between runs", "under the query"])
@pytest.mark.parametrize("name", ["files", "table", "own"])
def test_only_that_destination_gets_again_what_it_has_lost(name, running):
    """With on_rollback='republish', at a start, and under a running query."""
    world = FanOutWorld("files", "table", "own", on_rollback="republish")
    if running:
        _during(world, "batch.end", 2, lambda: roll_back(world, name))
    else:
        world.run(ends=EARLY)
        roll_back(world, name)
    world.ends_right("a rollback of one destination")


def _during(world, step: str, occurrence: int, act) -> None:
    """The query runs to its end, and this happens at a step."""
    arm(step, occurrence, act)
    try:
        world.run()
    finally:
        faults.arm(None)


@pytest.mark.parametrize("name", ["files", "table", "lines", "own"])
def test_the_journal_of_one_destination_is_lost(name):
    """The destination knows what it has, and what was pending comes from the record."""
    for step, occurrence in (("batch.end", 2), ("fan-out.recorded", 2)):
        world = FanOutWorld("files", "table", "lines", "own")
        world.dies_at(step, occurrence)
        folder = {"files": "_streamsink/streamsink/streamsink"}.get(name, "streamsink/streamsink")
        io = world.io()
        kept = {n: io.read(f"{ROOT}/{name}/{folder}/{n}") for n in io.names(f"{ROOT}/{name}/{folder}") if "json" in n}
        for n in kept:
            if n.startswith("record-"):
                io.delete(f"{ROOT}/{name}/{folder}/{n}")
        world.ends_right(f"{name} has lost its records at {step}")


def test_the_journal_of_the_fan_out_is_lost():
    """The destinations know how far the query has come, when all have come equally far."""
    world = FanOutWorld("files", "table", "own")
    world.run(ends=EARLY)
    world.io().delete_tree(f"{ROOT}/journal")
    world.ends_right("the loss of the journal")
    world.run(ends=(*ENDS, 12))
    assert world.seen() == dict.fromkeys(world.names, list(range(12)))


@follows("fan-out.histories-differ")
def test_the_journal_of_the_fan_out_is_lost_with_a_record_between_the_destinations():
    """Who has it and who has not can be seen; what the others lack is nowhere but in the journal."""
    world = FanOutWorld("files", "own")
    world.dies_at("fan-out.delivered", 3)
    journal = f"{ROOT}/journal"
    kept = world.copy()
    world.io().delete_tree(journal)
    said = told("fan-out.histories-differ", lambda: world.run())
    said.says("'files' has checkpoint 1", "'own' has checkpoint 0", "Restore the journal", "Nothing was written")
    kept.ends_right("the journal was restored")
    world.names = ("files",)  # there is no copy of it
    world.run()
    world.names = ("files", "own")
    word = told("fan-out.new-destination", lambda: world.run(ends=(*ENDS, 12))).option("accept_as_new")
    world.run(ends=(*ENDS, 12), accept_as_new=word)
    assert world.seen() == {"files": list(range(12)), "own": [*ALL[: ENDS[0]], 9, 10, 11]}


def test_a_new_checkpoint_over_what_is_there_filters_as_for_one_destination():
    """Offsets tell which rows are there."""
    world = FanOutWorld("files", "table")
    world.run(ends=EARLY)
    world.checkpoint = SparkCheckpoint("another")
    world.run(ends=(4, 9), position_columns=("topic", "partition", "offset"))
    assert world.seen() == dict.fromkeys(world.names, ALL)


def test_a_query_of_one_table_goes_on_as_a_fan_out_with_a_second_destination():
    """It goes on where the table is; the new destination begins there."""
    world = FanOutWorld("table")
    world.run(ends=EARLY, sink=PaimonTable(f"{ROOT}/table"))
    world.names = ("files", "table")
    said = told("fan-out.new-destination", lambda: world.run()).says("'files'")
    world.run(accept_as_new=said.option("accept_as_new"))
    assert world.seen() == {"files": ALL[EARLY[-1] :], "table": ALL}
    world.run(ends=(*ENDS, 12), sink=PaimonTable(f"{ROOT}/table"))  # and it may go back to be one
    assert world.ids("table") == list(range(12))


def test_two_sinks_of_one_function_become_a_fan_out():
    """Where both were written by the same query, each has the same batches."""
    world = FanOutWorld("table", "files")
    for sink in (PaimonTable(f"{ROOT}/table"), FileSink(f"{ROOT}/files")):
        world.checkpoint = SparkCheckpoint("query")
        world.run(ends=EARLY, sink=sink)
    world.ends_right("the change to a fan-out")


@follows("fan-out.other-records")
@pytest.mark.parametrize("pending", [False, True], ids=["all published", "a record is pending"])
def test_another_query_that_writes_to_a_destination_under_the_same_name_is_noticed(pending):
    """Its batches would be taken for ours, or ours be published behind them."""
    world = FanOutWorld("files", "table")
    world.dies_at("fan-out.recorded" if pending else "batch.end", 2)
    world.run(sink=FileSink(f"{ROOT}/files"))
    assert world.ids("files") == ALL
    world.checkpoint.committed = 2 - pending
    told("fan-out.other-records", lambda: world.run()).says("'files'", "under the same name", "Nothing was written")
    assert world.ids("table") == ALL[: ENDS[1 - pending]]
    world.names = ("table",)
    if pending:
        word = told("fan-out.left-destination", lambda: world.run()).option("accept_as_seen")
        world.run(accept_as_seen=word)
    else:
        world.run()
    assert world.ids("table") == ALL


def test_such_a_destination_joins_again_when_the_others_have_a_batch_more():
    """Before that the same error came again, whose advice said "later"."""
    world = FanOutWorld("files", "table")
    world.dies_at("fan-out.recorded", 2)
    world.run(sink=FileSink(f"{ROOT}/files"), ends=ENDS[:2])
    world.checkpoint.committed = 1
    told("fan-out.other-records", lambda: world.run()).says("until the others have a batch more, and name it again")
    world.names = ("table",)
    word = told("fan-out.left-destination", lambda: world.run()).option("accept_as_seen")
    world.run(ends=ENDS[:2], accept_as_seen=word)
    world.names = ("files", "table")
    told("fan-out.other-records", lambda: world.run())
    world.names = ("table",)
    world.run(ends=ENDS[:3])
    world.names = ("files", "table")
    word = told("fan-out.new-destination", lambda: world.run()).option("accept_as_new")
    world.run(accept_as_new=word)
    assert world.seen() == dict.fromkeys(world.names, ALL)


def test_a_destination_that_another_query_uses_at_the_same_time():
    """Under the same name it is refused; under another name both write."""
    world, other = FanOutWorld("files", "table"), FanOutWorld("files")
    other.calls, other.checkpoint = world.calls, SparkCheckpoint("another")
    seen = []

    def meanwhile(**options):
        with contextlib.suppress(StreamsinkError):
            other.run(sink=FileSink(f"{ROOT}/files"), **options)
            seen.append(options)

    _during(world, "write.staged", 2, meanwhile)
    assert seen == [] and world.seen() == dict.fromkeys(world.names, ALL)
    other.run(sink=FileSink(f"{ROOT}/files"), application="other")
    assert world.ids("files") == sorted(ALL + ALL) and world.ids("table") == ALL


def test_a_fan_out_of_another_checkpoint_is_refused_while_one_runs():
    """And the one that runs is not harmed."""
    world, other = FanOutWorld("files", "table"), FanOutWorld("files", "table")
    other.calls, other.checkpoint = world.calls, SparkCheckpoint("another")
    kinds = []

    def meanwhile():
        try:
            other.run()
        except StreamsinkError as refused:
            kinds.append(refused.kind)

    _during(world, "write.staged", 2, meanwhile)
    assert kinds == ["application.in-use"] and world.seen() == dict.fromkeys(world.names, ALL)


def test_another_writer_of_the_table_is_no_matter():
    """Its commits come between ours."""
    world, other = FanOutWorld("files", "table"), FanOutWorld("table")
    other.calls, other.checkpoint = world.calls, SparkCheckpoint("another")
    for ends in (EARLY, ENDS):
        world.run(ends=ends)
        other.run(ends=ends, sink=PaimonTable(f"{ROOT}/table"), application="other")
    assert world.ids("table") == sorted(ALL + ALL) and world.ids("files") == ALL


@follows("fan-out.not-delivered")
def test_a_store_that_fails_behind_the_record_loses_nothing():
    """What the record names must not be deleted then, whatever the error of the destination's journal is."""
    world, at = FanOutWorld("files", "own"), []
    counting = CrashingCalls(world.calls)
    faults.arm(lambda step: at.append(counting.count) if step == "fan-out.recorded" else None)
    world.run(counting)
    faults.arm(None)
    found = []
    for call, mode in itertools.product(range(at[1] + 1, at[1] + 12), (Mode.ERROR, Mode.REPLY_LOST)):
        world = FanOutWorld("files", "own")
        try:
            world.run(CrashingCalls(world.calls, call, mode))
        except (OSError, StreamsinkError) as failed:
            found += [failed] if getattr(failed, "kind", "") == "fan-out.not-delivered" else []
        world.die(power=True)
        world.ends_right(f"{mode.value} at call {call}")
    assert found, "no call fails between the record and its parts"
    advice(found[0], "fan-out.not-delivered").says("Nothing is lost", "Start the query again")


@follows("fan-out.renamed")
def test_a_fan_out_keeps_its_name():
    world = FanOutWorld("files", "table")
    world.run(ends=EARLY)
    adopt = told("application.renamed", lambda: world.run(application="other")).option("adopt_from_batch")
    renamed = {"application": "other", "adopt_from_batch": adopt}
    again = told("fan-out.renamed", lambda: world.run(**renamed)).option("application")
    assert world.seen() == dict.fromkeys(world.names, HALF)
    world.run(application=again)
    assert world.seen() == dict.fromkeys(world.names, ALL)


@follows("fan-out.other-records")
def test_a_destination_that_is_put_back_with_its_journal_is_noticed():
    """What it lacks was published there once, and its files may be gone from the staging folders."""
    world = FanOutWorld("files", "own")
    world.run(ends=ENDS[:1])
    io = world.io()
    kept = {path: io.read(path) for path in io.files_below(f"{ROOT}/own")}
    world.run(ends=EARLY)
    newer = {path: io.read(path) for path in io.files_below(f"{ROOT}/own")}
    _put_back(io, kept)
    said = told("fan-out.other-records", lambda: world.run()).says(
        "'own'", "put back to an earlier", "Restore what was put back"
    )
    assert said.kind and world.seen() == {"files": HALF, "own": ALL[: ENDS[0]]}
    _put_back(io, newer)
    world.ends_right("a newer copy was put back")


def _put_back(io, files: dict[str, bytes]) -> None:
    io.delete_tree(f"{ROOT}/own")
    for path, data in files.items():
        io.create_if_absent(path, data)


def test_a_driver_that_wakes_up_behind_its_record_deletes_nothing():
    """A successor has given the destinations their parts and has died before it published them."""
    for step in ("fan-out.recorded", "fan-out.delivered"):
        world = FanOutWorld("files", "own")
        other = FanOutWorld("files", "own")

        def meanwhile(other=other, world=world):
            other.calls, other.checkpoint = world.calls, copy.deepcopy(world.checkpoint)
            other.dies_at("restore.before_publish")

        arm(step, 2, meanwhile)
        with contextlib.suppress(StreamsinkError):
            world.run()
        faults.arm(None)
        world.die(power=False)
        world.ends_right(f"a driver that slept at {step}")


def test_a_query_that_takes_over_a_destination_stops_the_fan_out():
    """Before its record: what the record would name may be swept."""
    world, other = FanOutWorld("files", "own"), FanOutWorld("files")

    def meanwhile():
        other.calls, other.checkpoint = world.calls, copy.deepcopy(world.checkpoint)
        other.run(sink=FileSink(f"{ROOT}/files"))

    with pytest.raises(Fenced):
        _during(world, "write.staged", 2, meanwhile)
    names = world.io().names(f"{ROOT}/journal/streamsink/streamsink")
    assert [name for name in names if name.startswith("record-")] == ["record-1.json"]
    told("fan-out.other-records", lambda: world.run())


def test_a_snapshot_that_another_writer_replaced_comes_again():
    """Paimon's own writers on a bare disk do that. It is no rollback, and the other destinations have the record."""
    world = FanOutWorld("files", "table")
    world.run(ends=ENDS[:1])
    path = f"{ROOT}/table/snapshot/snapshot-"
    first = Snapshot.from_json(world.io().read(f"{path}1"), path)
    foreign = replace(first, id=2, uuid="of another", commit_user="another", properties=None)
    world.run(ends=EARLY)
    world.io().replace(f"{path}2", foreign.to_json(), "renamed")
    assert world.ids("table") == ALL[: ENDS[0]]
    world.run()
    assert world.seen() == dict.fromkeys(world.names, ALL)
    assert "SnapshotReplaced" in {type(event).__name__ for event in world.events}


def test_tasks_flush_what_they_write_into_another_store():
    """The group of a task is of one store, which need not be that of each destination."""
    here, there = MemoryCalls(), MemoryCalls()
    store = SimpleNamespace(open=lambda: FileIO(there, IdSource().new_id))
    own = shown.shown().ParquetFiles("/staging")
    io = FileIO(here, IdSource().new_id)
    for calls in (here, there):
        FileIO(calls, IdSource().new_id).make_dir("/staging")
    writer = FanOutWriting((own, own), (None, store)).open(io)
    writer.write(rows(0, 3))
    with io.flush_group() as group:
        written = writer.close(group)
        group.flush()
    for (number, file), calls in zip(written, (here, there), strict=True):
        calls.power_failure()
        data = FileIO(calls, IdSource().new_id).read(f"/staging/{file.name}")
        assert (len(data), file.rows) == (file.size, 3), number


def test_destinations_and_the_journal_are_in_different_stores(tmp_path):
    """The journal in a database, one destination on a disk, one in a database."""
    files, database = FileSink(str(tmp_path / "out")), tmp_path / "rows.db"
    into = DatabaseSink(f"sqlite:{database}", table="rows", create_table=True, journal=str(tmp_path / "of db"))
    sink = FanOut({"files": files, "db": into}, journal=f"sqlite:{tmp_path}/journal.db")
    checkpoint = SparkCheckpoint("query")
    for step, ends in (("fan-out.recorded", ENDS[:1]), ("fan-out.before_destination", EARLY), (None, ENDS)):
        driver = MicroBatchDriver(
            sink.path, SCHEMA, rows, SinkOptions.of(sink.path, {"restore": "restore-and-continue"})
        )
        driver.destination = lambda: sink
        arm(step, 1, crash) if step else faults.arm(None)
        with pytest.raises(InjectedCrash) if step else contextlib.nullcontext():
            driver.run(Store(sink.path).open(), checkpoint, ends)
    assert sorted(rows_of(local_file_io(), files.path)) == ALL
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT id FROM rows ORDER BY id").fetchall() == [(number,) for number in ALL]


def test_a_destination_that_went_back_under_the_query_is_noticed_before_the_next_batch():
    """No other destination is given the batch then."""
    world = FanOutWorld("own", "table", "files")
    with pytest.raises(Misuse) as refused:
        _during(world, "batch.end", 3, lambda: roll_back(world, "files"))
    assert refused.value.kind == "table.rolled-back" and world.ids("own") == world.ids("table") == HALF


def test_a_destination_that_is_taken_over_behind_the_record_takes_nothing_from_the_others():
    """Its journal cannot be given its part any more. Theirs is recorded, and must stay."""
    world, other = FanOutWorld("files", "own"), FanOutWorld("files")

    def meanwhile():
        other.calls, other.checkpoint = world.calls, copy.deepcopy(world.checkpoint)
        other.run(sink=FileSink(f"{ROOT}/files"))

    with pytest.raises(StreamsinkError):
        _during(world, "fan-out.recorded", 2, meanwhile)
    world.names = ("own",)
    word = told("fan-out.left-destination", lambda: world.run()).option("accept_as_seen")
    world.run(accept_as_seen=word)
    assert world.ids("own") == ALL
