"""The sink that docs/TWO_PHASE_COMMIT_SINK.md shows, and what is promised of transactions."""

import contextlib
import json
from dataclasses import replace

import pytest

from streamsink import events
from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt, Misuse, Retryable, StreamsinkError
from streamsink.options import SinkOptions
from streamsink.sink import to_sink
from streamsink.sinks.transactions.writing import TransactionWriting, abort_all
from streamsink.storage.file_io import FileIO
from streamsink.testing.conformance import SCHEMA, check_sink
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.sinks.lake import rows
from tests.sinks.shown import json_lines, rows_of_lines
from tests.sinks.transactions import Remembering, Server, World, remembered


@pytest.mark.in_turn("shown sinks in the suite of all sinks", 2)
def test_the_sink_of_the_docs_passes():
    """Some hundred calls are tried, in every way."""
    assert check_sink(json_lines, rows_of_lines, every=9) > 150


@pytest.mark.soak
def test_the_sink_of_the_docs_passes_at_every_call():
    assert check_sink(json_lines, rows_of_lines) > 1_500


@pytest.mark.in_turn("shown sinks in the suite of all sinks", 2)
def test_a_destination_that_remembers_passes():
    """Rows and state become visible at one instant; nothing is noted beside the journal."""
    assert check_sink(lambda root: Remembering(f"{root}/kept", root), remembered, every=9) > 150


@follows("destination.state-corrupt")
def test_a_destination_whose_memory_is_damaged_is_not_written():
    io, path = FileIO(MemoryCalls(), IdSource().new_id), "/db"
    checkpoint = SparkCheckpoint("query")

    def run(*ends):
        driver = MicroBatchDriver(path, SCHEMA, rows, SinkOptions.of(path, {"restore": "restore-and-continue"}))
        driver.destination = lambda: Remembering(path, "/journals")
        driver.run(io, checkpoint, ends)

    run(3)
    name = "/db/streamsink/0000000001"
    kept = io.read(name)
    io.replace(name, json.dumps({"rows": [0, 1, 2], "state": "[]"}).encode(), IdSource().new_id())
    told("destination.state-corrupt", lambda: run(3, 5)).says("Restore it from a backup", "Nothing was written")
    io.replace(name, kept, IdSource().new_id())
    run(3, 5)
    assert io.names("/db/streamsink") == ["0000000001", "0000000002"]
    assert io.entries("/journals/commits") == []


ENDS = (3, 5, 5, 9)


def test_no_transaction_stays_open_whoever_dies():
    """A driver dies at each call in turn. What it began and did not record is aborted by the next start."""
    counting = CrashingCalls(MemoryCalls())
    World().run(*ENDS, calls=counting)
    had_open = 0
    for number in range(1, counting.count + 1, 3):
        world = World()
        with contextlib.suppress(InjectedCrash, OSError, StreamsinkError):
            world.run(*ENDS, calls=CrashingCalls(world.store, number))
        world.store.process_death()
        had_open += bool(world.open)
        world.run(*ENDS)
        assert (world.open, world.rows) == ([], list(range(9))), f"call {number}"
    assert had_open > 10, "the test does not reach what it is about"


def test_a_batch_that_fails_aborts_its_transaction_at_once():
    world = World()
    world.refuse("pre_commit")
    with pytest.raises(ConnectionResetError):
        world.run(3)
    assert (world.open, world.sink.calls[-1], world.rows) == ([], "recover_and_abort", [])


def test_what_cannot_be_aborted_is_aborted_by_a_later_start():
    """The failing batch says why it failed, and not that the abort did."""
    world = World()
    for what in ("pre_commit", "abort", "recover_and_abort"):
        world.refuse(what)
    with pytest.raises(ConnectionResetError, match="pre_commit"):
        world.run(3)
    assert len(world.open) == 1
    for what in ("pre_commit", "abort"):
        world.refuse(what, False)
    world.run(3)
    assert (len(world.open), world.rows) == (1, [0, 1, 2])
    world.refuse("recover_and_abort", False)
    world.run(3, 4)
    assert (world.open, world.rows) == ([], [0, 1, 2, 3])


@follows("transaction.failed")
def test_a_pre_committed_transaction_is_committed_again_until_that_succeeds():
    """Nothing that comes after it is committed before."""
    world = World()
    world.refuse("commit")
    with pytest.raises(Retryable):
        world.run(3, 5, restarts=False)
    said = told("transaction.failed", lambda: world.run(3, 5, restarts=False))
    said.says("checkpoint 0", "3 rows", "commits it again", "start the query again")
    assert (world.rows, len(world.open)) == ([], 1)
    world.refuse("commit", False)
    world.run(3, 5)
    assert (world.rows, world.open) == ([0, 1, 2, 3, 4], [])
    assert "recover_and_commit" in world.sink.calls


def test_a_replayed_batch_begins_no_transaction():
    world = World()
    world.run(3, 5)
    world.checkpoint.committed -= 1
    before = world.sink.calls.count("begin")
    world.run(3, 5)
    assert (world.sink.calls.count("begin"), world.rows) == (before, [0, 1, 2, 3, 4])


def test_a_timeout_that_nears_is_said():
    world = World(transaction_timeout_ms=100_000)
    world.sink = replace(world.sink, transaction_timeout_ms=1)
    world.die(3, step="precommit.saved")
    Clock().sleep_ms(3)
    world.run(3)
    said = [event for event in world.events if isinstance(event, events.TransactionNearsTimeout)]
    assert [(event.checkpoint_id, event.rows, event.timeout_ms) for event in said] == [(0, 3, 1)]
    assert world.rows == [0, 1, 2]


@follows("transaction.timed-out")
def test_a_transaction_that_is_lost_after_its_timeout_is_given_up_by_an_option_only():
    """The way on is the one that the error says."""
    world = World(transaction_timeout_ms=1)
    world.die(3, step="precommit.saved")
    Clock().sleep_ms(3)
    for name in world.open:  # the server has aborted it
        world.io().delete(f"/server/open/{name}")
    said = told("transaction.timed-out", lambda: world.run(3, 5))
    said.says("checkpoint 0", "3 rows", "after 1 ms")
    assert world.rows == []
    sink = world.sink
    world.sink = replace(
        sink, ignore_failures_after_transaction_timeout=said.option("ignore_failures_after_transaction_timeout")
    )
    world.run(3, 5)
    assert world.rows == [3, 4]
    assert [type(event).__name__ for event in world.events if "Given" in type(event).__name__] == ["TransactionGivenUp"]
    world.sink = sink
    world.run(3, 5, 6)
    assert world.rows == [3, 4, 5]


def test_within_its_timeout_no_transaction_is_given_up():
    world = World(transaction_timeout_ms=1_000_000, ignore_failures_after_transaction_timeout=True)
    world.refuse("commit")
    with pytest.raises(Retryable):
        world.run(3, restarts=False)
    world.refuse("commit", False)
    world.run(3)
    assert world.rows == [0, 1, 2]


def test_the_user_context_goes_from_record_to_record():
    """Also over a death, and over a batch without rows."""
    world = World()
    world.run(3)
    world.die(3, 5, step="precommit.saved")
    world.run(3, 5, 5, 9)
    state = json.loads(world.io().read("/journals/commits/streamsink/0000000004.json"))["state"]
    assert state["carried"] == {"user_context": {"count": 3}}


@follows("journal.other-destination")
def test_a_journal_of_another_destination_is_refused():
    """What is pending in it would be committed elsewhere."""
    world = World()
    world.die(3, step="precommit.saved")
    first, world.sink = world.sink, replace(world.sink, path="/other")
    said = told("journal.other-destination", lambda: world.run(3))
    said.says("/server", "name it as before", "application='...'")
    world.checkpoint, checkpoint = SparkCheckpoint("another"), world.checkpoint
    world.run(2, application="second")
    assert world.io().names("/other/committed") != [] and world.rows == []
    world.sink, world.checkpoint = first, checkpoint
    world.run(3)
    assert world.rows == [0, 1, 2]


def test_one_query_writes_to_two_destinations_whose_journals_are_in_one_folder():
    """The second name is not taken for the first one's new name."""
    world = World()
    world.run(3)
    first, world.sink = world.sink, replace(world.sink, path="/other")
    world.checkpoint = replace(world.checkpoint, ends=[], committed=0)
    world.run(3, application="second")
    world.sink = first
    assert world.rows == [0, 1, 2] and len(world.io().names("/other/committed")) == 1


def test_a_query_under_another_name_is_told_so():
    """As for every sink: the destination knows it under its first name."""
    world = World()
    world.run(3)
    with pytest.raises(Misuse) as refused:
        world.run(3, 5, application="new")
    assert refused.value.kind == "application.renamed"


@follows("sink.no-journal", "option.on-rollback")
@pytest.mark.parametrize("kind", ["sink.no-journal", "option.on-rollback"])
def test_what_cannot_be_is_refused_before_anything_is_written(kind):
    world = World(journal="" if kind == "sink.no-journal" else "/journals")
    options = {} if kind == "sink.no-journal" else {"on_rollback": "republish"}
    told(kind, lambda: world.run(3, **options)).says("Nothing was written")
    assert world.rows == [] and world.io().names("/server") == []
    world.sink = replace(world.sink, journal="/journals")
    world.run(3)
    assert world.rows == [0, 1, 2]


def test_a_damaged_record_stops_the_start_and_aborts_nothing():
    """Whether its transactions are recorded cannot be told."""
    world = World()
    world.die(3, step="precommit.saved")
    world.io().replace("/journals/streamsink/streamsink/record-1.json", b"damaged", IdSource().new_id())
    with pytest.raises(Corrupt):
        world.run(3)
    assert len(world.open) == 1 and "recover_and_abort" not in world.sink.calls


def test_a_task_that_outlives_its_batch_aborts_its_own_transaction():
    """What was announced is gone, so nobody else would find it."""
    world = World()
    io = world.io()
    writing = TransactionWriting(world.sink, "streamsink", 1, "/journals/streamsink/streamsink/staging/1-1", {})
    writer = writing.open(io)
    writer.write(rows(0, 3))
    assert abort_all(world.sink, io, "streamsink", writing.staging, ())
    io.delete_tree(writing.staging)
    with pytest.raises(Retryable, match="given up"), io.flush_group() as group:
        writer.close(group)
    assert len(world.open) == 1  # it was pre-committed after all
    writer.abort()
    assert world.open == []


def test_a_transaction_is_announced_before_it_begins():
    world = World()
    world.refuse("begin")
    writing = TransactionWriting(world.sink, "streamsink", 1, "/staging/1-1", {})
    writer = writing.open(world.io())
    with pytest.raises(ConnectionResetError):
        writer.write(rows(0, 3))
    assert [name.partition("-")[0] for name in world.io().names("/staging/1-1")] == ["transaction"]
    writer.abort()
    writer.abort()
    assert world.sink.calls == ["begin", "recover_and_abort"]


def test_a_user_context_that_is_no_json_is_refused_before_the_record():
    world = World()
    world.sink = type("Odd", (Server,), {"user_context": lambda self, before, transactions: {"a": object()}})()
    with pytest.raises(Retryable, match="user context"):
        world.run(3, restarts=False)
    assert world.open == [] and world.io().names("/journals/streamsink/streamsink/staging") == []


def test_options_of_tables_are_refused(tmp_path):
    with pytest.raises(Misuse, match="mode"):
        to_sink(json_lines(str(tmp_path)), mode="overwrite")
