"""What operators and users do to a fan-out, and to one of its destinations: nothing is lost, doubled or skipped, and
what cannot be decided is asked."""

import contextlib
import itertools

import pytest

from streamsink import faults
from streamsink.errors import StreamsinkError
from streamsink.sink import FileSink, PaimonTable
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import arm
from tests.advice.following import advice, follows, told
from tests.sinks.fan_out_world import ALL, ENDS, ROOT, FanOutWorld

EARLY = ENDS[:2]
HALF = list(range(EARLY[-1]))


def _roll_back(world, name: str) -> None:
    """The destination loses its last record, as a rollback or a restore from a backup does it."""
    io, last = world.io(), {"files": "_commits/streamsink", "own": "commits/streamsink", "table": "snapshot"}[name]
    folder = f"{ROOT}/{name}/{last}"
    newest = max((n for n in io.names(folder) if "LATEST" not in n and "EARLIEST" not in n), key=_number)
    io.delete(f"{folder}/{newest}")
    if name == "table":
        io.replace(f"{folder}/LATEST", str(_number(newest) - 1).encode(), "rolled")


def _number(name: str) -> int:
    return int("".join(letter for letter in name if letter.isdigit()))


@pytest.mark.parametrize("name", ["files", "table", "own"])
def test_one_destination_that_went_back_is_named(name):
    """The query stops, and the others are not harmed."""
    world = FanOutWorld("files", "table", "own")
    world.run(ends=EARLY)
    _roll_back(world, name)
    said = told("table.rolled-back", lambda: world.run()).says(f"{ROOT}/{name}:", "Nothing was written")
    assert said.kind and world.ids(name) == ALL[: ENDS[0]]
    assert all(world.ids(other) == HALF for other in world.names if other != name)


@pytest.mark.parametrize("running", [False, True], ids=["between runs", "under the query"])
@pytest.mark.parametrize("name", ["files", "table", "own"])
def test_only_that_destination_gets_again_what_it_has_lost(name, running):
    """With on_rollback='republish', at a start, and under a running query."""
    world = FanOutWorld("files", "table", "own", on_rollback="republish")
    if running:
        _during(world, "batch.end", 2, lambda: _roll_back(world, name))
    else:
        world.run(ends=EARLY)
        _roll_back(world, name)
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
    world.dies_at("fan-out.before_destination", 4)
    journal = f"{ROOT}/journal"
    kept = world.copy()
    world.io().delete_tree(journal)
    said = told("fan-out.histories-differ", lambda: world.run())
    said.says("'files' has checkpoint 1", "'own' has checkpoint 0", "Restore the journal", "Nothing was written")
    kept.ends_right("the journal was restored")


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
