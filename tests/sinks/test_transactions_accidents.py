"""What ordinary users and tired operators do to sinks in Flink's form, and what machines do to them."""

import json
from dataclasses import dataclass

import pytest

from streamsink import events
from streamsink.clock import Clock, IdSource
from streamsink.errors import Retryable
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.decision import Checkpoint, Decision, Verdict
from streamsink.sinks.transactions.writing import PreCommitted
from streamsink.storage.file_io import FileIO
from streamsink.testing.conformance import SCHEMA
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.sinks.lake import rows
from tests.sinks.transactions import Remembering, Server, World


def _carried(world, number: int) -> dict:
    note = json.loads(world.io().read(f"/journals/commits/streamsink/{number:010}.json"))
    return note["state"]["carried"]["user_context"]


@pytest.mark.parametrize("tried_before", [0, 1])
def test_a_try_without_a_record_leaves_no_user_context(tried_before):
    """The batch function calls the sink once more for the batch that failed, as it may."""
    world = World()
    driver = MicroBatchDriver(world.sink.path, SCHEMA, rows, SinkOptions.of(world.sink.path, {}))
    driver.destination = lambda: world.sink
    ends = world.checkpoint.ends = [3, 5][: tried_before + 1]
    driven = driver.start(world.io(), world.checkpoint)
    for batch_id in range(tried_before):
        driven.batch(driver.describe(world.checkpoint, batch_id))
    journal = driven.opened.journal
    stage, journal.stage_record = journal.stage_record, _fails
    with pytest.raises(OSError, match="no room"):
        driven.batch(driver.describe(world.checkpoint, tried_before))
    journal.stage_record = stage
    driven.batch(driver.describe(world.checkpoint, tried_before))
    driven.close()
    assert world.rows == list(range(ends[-1])) and _carried(world, tried_before + 1) == {"count": tried_before + 1}


def _fails(committable, group):
    raise OSError(28, "no room")


def test_a_user_context_may_be_changed_in_place():
    """What a transaction is committed with is what it began with, also by a later start."""
    seen = []

    class InPlace(Server):
        def begin_transaction(self, context):
            context.user_context["begun"] = True
            return super().begin_transaction(context)

        def commit(self, transaction, context):
            seen.append(dict(context.user_context))
            super().commit(transaction, context)

        def user_context(self, before, transactions):
            before["count"] = before.get("count", 0) + len(transactions)
            return before

    world = World()
    world.sink = InPlace()
    world.run(3, 5)
    world.die(3, 5, 6, step="precommit.saved")
    world.run(3, 5, 6)
    assert seen == [{}, {"count": 1}, {"count": 2}] and _carried(world, 3) == {"count": 3}


def test_a_record_has_a_large_user_context_once_however_many_transactions_it_has():
    world, batch = World(), Batch(0, "query", "run")
    opened = world.sink.open(world.io(), SinkOptions.of("/server", {}), batch, lambda: (), world.events.append)
    written = [PreCommitted(f"1-{number}", f"1-{number}", 1, 8, 0) for number in range(50)]
    checkpoint = Checkpoint(batch, Decision(Verdict.NEW, ""), 1, "/journals/streamsink/streamsink/staging/1-1", 0.0)
    opened._contexts[0] = {"large": "value"}
    with world.io().flush_group() as group:
        files, payload = opened.stage(checkpoint, written, group)
    assert (len(files), json.dumps(payload).count("value")) == (50, 1)


@follows("transaction.user-context")
def test_a_user_context_that_is_not_returned_is_noticed_before_the_record():
    """Else each later batch would be given nothing, for ever."""
    world = World()
    world.sink = type("Forgetful", (Server,), {"user_context": lambda self, before, transactions: None})()
    said = told("transaction.user-context", lambda: world.run(3, restarts=False))
    said.says("Forgetful", "NoneType", "Let it return one")
    assert world.open == []
    world.sink = Server()
    world.run(3, 5)
    assert world.rows == [0, 1, 2, 3, 4] and _carried(world, 2) == {"count": 2}


def test_a_slow_clock_of_an_executor_gives_no_transaction_up(monkeypatch):
    """Its transactions would look as if their timeout had passed, and one failure would lose their rows."""

    class Slow(Clock):
        def now_ms(self):
            return super().now_ms() - 3_600_000

    monkeypatch.setattr("streamsink.sinks.transactions.writing.Clock", Slow)
    world = World(transaction_timeout_ms=1_000_000, ignore_failures_after_transaction_timeout=True)
    world.refuse("commit")
    with pytest.raises(Retryable):
        world.run(3, restarts=False)
    world.refuse("commit", False)
    world.run(3)
    said = [type(event).__name__ for event in world.events if isinstance(event, events.TransactionNearsTimeout)]
    assert world.rows == [0, 1, 2] and said == []


@follows("table.rolled-back")
@pytest.mark.parametrize("gone", ["streamsink", "0000000002.json"])
def test_notes_of_what_was_committed_can_be_made_again(gone):
    """Somebody has removed them, all or the newest, and there is no backup."""
    world = World()
    world.run(3, 5)
    if gone == "streamsink":
        world.io().delete_tree("/journals/commits/streamsink")
    else:
        world.io().delete(f"/journals/commits/streamsink/{gone}")
    said = told("table.rolled-back", lambda: world.run(3, 5, 6)).says("Nothing was written", "ten digits")
    assert "give_up('" not in said.message and "on_rollback" not in said.message
    number = said.find(r"record (\d+) was published")
    record = said.find(r"second line of the file (\S+),").replace("<number>", number)
    note = said.find(r"into a file (\S+),").replace("<number>", f"{int(number):010}")
    world.io().create_if_absent(note, world.io().read(record).splitlines(True)[1])
    world.run(3, 5, 6)
    assert (world.rows, world.open) == ([0, 1, 2, 3, 4, 5], [])


def test_another_file_beside_the_notes_is_no_note():
    """As what a file manager leaves."""
    world = World()
    world.run(3)
    for name in ("copy.json", "._0000000001.json"):
        world.io().create_if_absent(f"/journals/commits/streamsink/{name}", b"{}")
    world.die(3, 5, step="precommit.saved")
    world.run(3, 5)
    assert world.rows == [0, 1, 2, 3, 4]


@dataclass(frozen=True)
class Database(Remembering):
    """A table of a database, which remembers the applications of all tables, and has an identity of its own."""

    def identity(self, session):
        self.io[0].create_if_absent("/db.id", IdSource().new_id().encode())
        return self.io[0].read("/db.id").decode()

    def commit_checkpoint(self, checkpoint):
        Remembering.commit_checkpoint(Remembering("/db", self.journal, self.io), checkpoint)

    def last_committed(self, application, session):
        return Remembering("/db", self.journal, self.io).last_committed(application, session)

    def applications(self, session):
        return Remembering("/db", self.journal, self.io).applications(session)


class OfADatabase:
    """One query into it."""

    def __init__(self):
        self.io, self.checkpoint = FileIO(MemoryCalls(), IdSource().new_id), SparkCheckpoint("query")

    def run(self, *ends, journal="/journals", table="/db/orders", **options):
        settings = SinkOptions.of(table, {"restore": "restore-and-continue", **options})
        driver = MicroBatchDriver(table, SCHEMA, rows, settings)
        driver.destination = lambda: Database(table, journal)
        driver.run(self.io, self.checkpoint, ends)

    @property
    def rows(self):
        names = self.io.names("/db/streamsink")
        return [row for name in names for row in json.loads(self.io.read(f"/db/streamsink/{name}"))["rows"]]


@pytest.mark.parametrize("lost", [True, False])
def test_a_destination_that_remembers_outlives_its_journal(lost):
    """The journal is lost, or the query now has another one: what is committed is known by the destination."""
    world = OfADatabase()
    world.run(3, 5)
    if lost:
        world.io.delete_tree("/journals")
    world.checkpoint.committed -= 1  # the last batch comes again
    world.run(3, 5, 6, journal="/journals" if lost else "/elsewhere")
    assert world.rows == list(range(6))


def test_journal_and_checkpoint_that_go_back_together_double_nothing_there():
    """A machine was restored from a backup, and the database was not."""
    world = OfADatabase()
    world.run(3, 5)
    kept = {path: world.io.read(path) for path in world.io.files_below("/journals")}
    world.run(3, 5, 6, 8)
    world.io.delete_tree("/journals")
    for path, data in kept.items():
        world.io.create_if_absent(path, data)
    world.checkpoint.committed, world.checkpoint.ends[2:] = 2, []
    told("positions.overlap", lambda: world.run(3, 5, 7)).says("position_columns", "Nothing was written")
    world.run(3, 5, 7, 9, position_columns=("topic", "partition", "offset"))
    assert world.rows == list(range(9))


@follows("application.other-destination")
@pytest.mark.parametrize("way", ["name", "path"])
def test_two_tables_of_a_database_are_not_taken_for_one(way):
    """Two queries under one name, each with a journal of its own: the second one is not the first one's successor."""
    world = OfADatabase()
    world.run(3, 5)
    first, other = world.checkpoint, {"table": "/db/letters", "journal": "/elsewhere"}
    world.checkpoint = SparkCheckpoint("another")
    said = told("application.other-destination", lambda: world.run(2, **other)).says(
        "/db/orders", "Nothing was written"
    )
    if way == "name":
        said.says("application='...'")
        world.run(2, **other, application="letters")
        assert world.io.names("/db/letters") == ["0000000001"]
    world.checkpoint = first
    said.says("name it as before")
    world.run(3, 5, 6, journal="/journals" if way == "name" else "/elsewhere")
    assert world.rows == list(range(6))


def test_what_an_author_calls_like_an_announcement_stops_no_start():
    world = World()
    world.die(3, step="precommit.before_record")
    (staging,) = world.io().entries("/journals/streamsink/streamsink/staging")
    world.io().create_if_absent(f"/journals/streamsink/streamsink/staging/{staging.name}/transaction-log", b"")
    world.run(3, 5)
    assert (world.rows, world.open) == ([0, 1, 2, 3, 4], [])


@follows("table.rolled-back")
def test_a_database_that_was_emptied_is_written_anew_when_its_journal_is_removed():
    world = OfADatabase()
    world.run(3, 5)
    kept = {name: world.io.read(f"/db/streamsink/{name}") for name in world.io.names("/db/streamsink")}
    world.io.delete_tree("/db")
    said = told("table.rolled-back", lambda: world.run(3, 5, 6)).says("Restore the destination", "Nothing was written")
    assert "give_up('" not in said.message and "on_rollback" not in said.message
    world.io.delete_tree(said.find(r"remove the journal (\S+),"))
    world.checkpoint = SparkCheckpoint("another")
    world.run(3, 5, 6)
    assert world.rows == list(range(6)) and len(kept) == 2


@follows("destination.no-id")
def test_a_folder_that_has_lost_its_identity_and_its_notes_is_not_taken_for_a_new_one():
    """Formerly the journal was said to be of a dropped table, with the advice to remove it and to read all again."""
    world = World()
    world.run(3, 5)
    notes = {
        name: world.io().read(f"/journals/commits/streamsink/{name}") for name in ("0000000001.json", "0000000002.json")
    }
    world.io().delete("/journals/id")
    world.io().delete_tree("/journals/commits")
    told("destination.no-id", lambda: world.run(3, 5, 6)).says("has records", "'table_id', up to a '/'")
    record = world.io().read("/journals/streamsink/streamsink/record-2.json").splitlines()[1]
    table_id = json.loads(record)["state"]["table_id"]
    world.io().create_if_absent("/journals/id", table_id.partition("/")[0].encode())
    said = told("table.rolled-back", lambda: world.run(3, 5, 6))
    said.says("Restore the folder /journals/commits/streamsink")
    assert world.rows == [0, 1, 2, 3, 4]
    for name, note in notes.items():
        world.io().create_if_absent(f"/journals/commits/streamsink/{name}", note)
    world.run(3, 5, 6)
    assert (world.rows, world.open) == ([0, 1, 2, 3, 4, 5], [])
