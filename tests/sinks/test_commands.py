"""``streamsink.retire`` and ``starting_offsets`` with a sink, and what each destination says of itself there."""

import contextlib
import json
import sqlite3
from dataclasses import dataclass

import pytest

import streamsink
from streamsink.commands.offsets import Wanted
from streamsink.commands.sinks_given_up import give_up_of_sink
from streamsink.commands.sinks_retired import offsets_of_sink, retire_of_sink
from streamsink.databases import DatabaseSink
from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.sink import FileSink, PaimonTable
from streamsink.sinks.transactions.function import TwoPhaseCommitFunction
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from tests.advice.following import follows, told
from tests.sinks.fan_out_world import ALL, ENDS, ROOT, FanOutWorld, ids_in
from tests.sinks.test_file_sink import World as OfFiles
from tests.sinks.test_file_sink import rows_of
from tests.sinks.transactions import Remembering
from tests.sinks.transactions import World as OfTransactions


@dataclass(frozen=True)
class Silent(Remembering):
    """A destination whose author has not said how it forgets."""

    forget = TwoPhaseCommitFunction.forget


def retire(world, sink=None, **options) -> bool:
    sink = sink or world.sink
    return retire_of_sink(world.io(), sink, SinkOptions.of(sink.path, options))


def offsets(world, place, sink=None):
    sink = sink or world.sink
    return json.loads(offsets_of_sink(world.io(), sink, SinkOptions.of(sink.path, {}), place, Wanted()))


def test_what_is_pending_is_not_retired_and_counts_as_written():
    """Its rows would be lost; and a new checkpoint begins behind them, because the next start commits them."""
    world = OfTransactions()
    world.run(3)
    world.die(3, 5, step="precommit.saved")
    with pytest.raises(Misuse, match="is pending.*would lose its rows.*Nothing was changed") as refused:
        retire(world)
    assert refused.value.kind == "retire.pending"
    assert offsets(world, "/journals") == {"t": {"0": 5}}
    world.run(3, 5)
    assert world.rows == list(range(5)) and retire(world) and not retire(world)
    assert world.rows == list(range(5)) and world.io().names("/journals/commits/streamsink") == []
    with pytest.raises(Misuse) as refused:
        offsets(world, "/journals")
    assert refused.value.kind == "positions.none"


@follows("retire.left-open")
def test_a_transaction_that_a_dead_driver_has_left_open_is_aborted_before_its_name_is_forgotten():
    """Only the journal knows that name."""
    world = OfTransactions()
    world.run(3)
    world.die(3, 5, step="precommit.before_record")
    assert world.open
    world.refuse("recover_and_abort")
    told("retire.left-open", lambda: retire(world)).says("Nothing was forgotten", "call this again")
    world.refuse("recover_and_abort", False)
    assert retire(world)
    assert (world.rows, world.open) == ([0, 1, 2], [])


def test_a_destination_of_which_nobody_has_said_how_it_forgets_is_refused():
    world = OfFiles()
    sink = Silent("/kept", "/journals", [world.io()])
    with pytest.raises(Misuse, match="Silent: its author has not said how.*Nothing was changed"):
        retire(world, sink)
    with pytest.raises(Misuse, match="its author has not said how.*Nothing was changed"):
        sink.forget("streamsink", {})
    assert world.io().entries("/") == []


@follows("retire.keeps-names")
def test_a_destination_that_never_forgets_says_why():
    world = OfFiles()
    world.run(3, 5)
    said = told("retire.keeps-names", lambda: retire(world)).says("readers find its rows by the manifests")
    said.says("Nothing was changed", "start the query with a new checkpoint under another name, application='...'")
    assert sorted(rows_of(world.io(), "/out")) == list(range(5)) and world.run(3, 5, 6) is None


@follows("positions.unsettled")
def test_where_a_destination_has_gone_back_no_offsets_are_told():
    world = OfFiles()
    world.run(3, 5, on_rollback="republish")
    world.io().delete("/out/_commits/streamsink/0000000002.json")
    said = told("positions.unsettled", lambda: offsets(world, "/out")).says("record 2", "Nothing was changed")
    world.run(3, 5, on_rollback=said.option("on_rollback"))
    assert offsets(world, "/out") == {"t": {"0": 5}} and sorted(rows_of(world.io(), "/out")) == list(range(5))


@follows("sink.missing")
def test_a_command_that_only_looks_makes_no_destination(tmp_path):
    sink = FileSink(tmp_path / "out")
    told("sink.missing", lambda: streamsink.starting_offsets(sink, "orders")).says("Nothing was changed")
    assert list(tmp_path.iterdir()) == []


def test_the_commands_take_a_table_as_a_sink_too(tmp_path):
    """It is known by its path."""
    streamsink.create_table(tmp_path / "orders", "id BIGINT")
    table = PaimonTable(str(tmp_path / "orders"))
    assert not streamsink.retire(table, "nobody") and not streamsink.give_up(table, application="nobody").records
    with pytest.raises(Misuse, match="applications that have written here: none"):
        streamsink.starting_offsets(table, "nobody")


def test_a_database_forgets_one_application_of_one_table(tmp_path):
    """What it remembers of other names and tables stays."""
    world = FanOutWorld()
    sinks = [
        DatabaseSink(f"sqlite:{tmp_path}/shop.db", table, journal=f"/journals-{table}", create_table=True)
        for table in ("orders", "returns")
    ]
    for sink in sinks:
        world.checkpoint = SparkCheckpoint("query")
        world.run(sink=sink)
    assert retire(world, sinks[0]) and not retire(world, sinks[0])
    assert [sink.applications({}) for sink in sinks] == [[], ["streamsink"]]
    world.run(sink=sinks[1])
    assert offsets(world, "/journals-returns", sinks[1]) == {"t": {"0": ENDS[-1]}}


@follows("retire.other-journal")
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_destination_is_not_retired_with_another_journal_than_the_query_has(tmp_path, is_lost):
    """That one would give it all of its rows once more."""
    world = FanOutWorld(on_rollback="republish")

    def sink(journal):
        return DatabaseSink(f"sqlite:{tmp_path}/shop.db", "orders", journal=journal, create_table=True)

    def ids():
        with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as database:
            return sorted(found for (found,) in database.execute("SELECT id FROM orders"))

    world.run(sink=sink("/journals"), ends=ENDS[:2])
    if is_lost:
        world.io().delete_tree("/journals/streamsink")
    said = told("retire.other-journal", lambda: retire(world, sink("/journals" if is_lost else "/jornals")))
    said.says("Nothing was changed", "Give the sink with the journal that the query has")
    word = said.option("accept_as_new")
    if is_lost:
        assert retire(world, sink("/journals"), accept_as_new=word)
    else:
        world.run(sink=sink("/journals"))
        assert ids() == ALL and retire(world, sink("/journals"))


def test_a_fan_out_is_retired_from_all_of_its_destinations_even_if_it_dies_in_between():
    """At each call in turn; then it is called again."""
    at = 0
    while True:
        at += 41
        world = FanOutWorld("server", "table", "server:other")
        world.run()
        sink, options = world.make(ROOT), SinkOptions.of(ROOT, world.options)
        assert json.loads(offsets_of_sink(world.io(), sink, options, sink.journal, Wanted())) == {"t": {"0": 9}}
        calls = CrashingCalls(world.calls, at)
        try:
            done = retire_of_sink(world.io(calls), sink, options)
        except InjectedCrash:
            world.calls.process_death()
            retire_of_sink(world.io(), world.make(ROOT), options)
        else:
            assert done and calls.count < at
            break
        finally:
            assert not retire_of_sink(world.io(), world.make(ROOT), options)
        assert all(ids_in(world.io(), ROOT, name) == ALL for name in world.names)
        world.checkpoint = SparkCheckpoint("another")
        world.run()
        assert all(ids_in(world.io(), ROOT, name) == sorted(ALL * 2) for name in world.names), at
    assert at > 50


def test_a_fan_out_with_a_destination_that_never_forgets_stays_as_it_is():
    world = FanOutWorld("server", "files")
    world.run()
    options = SinkOptions.of(ROOT, world.options)
    with pytest.raises(Misuse, match="FanOut: of its destination 'files', readers find") as refused:
        retire_of_sink(world.io(), world.make(ROOT), options)
    assert refused.value.kind == "retire.keeps-names"
    with pytest.raises(Misuse, match="journals of their own. Nothing was given up"):
        give_up_of_sink(world.io(), world.make(ROOT), options)
    world.run(ends=(*ENDS, 12))
    assert ids_in(world.io(), ROOT, "files") == list(range(12))


def test_a_fan_out_is_not_retired_while_one_destination_waits_for_rows():
    world = FanOutWorld("server", "table")
    world.run(ends=ENDS[:1])
    world.dies_at("fan-out.recorded", ends=ENDS[:2])
    with pytest.raises(Misuse) as refused:
        retire_of_sink(world.io(), world.make(ROOT), SinkOptions.of(ROOT, world.options))
    assert refused.value.kind == "retire.pending"
    world.run()
    assert all(ids_in(world.io(), ROOT, name) == ALL for name in world.names)
