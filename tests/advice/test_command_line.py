"""What the errors of the command line say, done as they say it."""

import os

import pytest

from streamsink.errors import Fenced
from streamsink.journal.file_journal import FileJournal
from streamsink.locks.configured import lock_of
from streamsink.operations import holds
from streamsink.operations.journals import look_at_journals
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.following import follows, told
from tests.cli.lakes import PENDING, PUBLISHED, driver, dying


@pytest.fixture
def table(tmp_path) -> str:
    """A table with a record that is pending."""
    root = str(tmp_path / "orders")
    dying(root, SparkCheckpoint("q1"), [*PUBLISHED, PENDING])
    return root


@follows("journal.unknown")
def test_a_name_without_a_journal_is_told_which_have_one(table):
    io = local_file_io(False)
    name = told("journal.unknown", lambda: look_at_journals(io, table, "orders")).find(r"have one: (\w+)")
    assert [look.application for look in look_at_journals(io, table, name)] == [name]


@follows("unlock.alive")
def test_a_hold_is_not_released_while_its_driver_lives(table):
    """Ending the driver is enough: its hold ends with it."""
    io = local_file_io(False)
    living = FileJournal(io, table, "streamsink", 2)
    living.claim("q1", 0)
    told("unlock.alive", lambda: holds.release_hold(io, table, "streamsink")).says("End that process", "ends with it")
    living.release()
    assert holds.release_hold(io, table, "streamsink").state == holds.FREE


@follows("unlock.no-lock", "lock.ends-by-itself")
def test_a_lock_is_taken_away_only_where_its_holder_cannot_end_by_itself(table, tmp_path):
    """A lock in a database, whose holder is a dead writer of another program; not one that a process holds."""
    told("unlock.no-lock", lambda: holds.take_lock_away(table, SinkOptions.of(table, {}))).says("-o lock=...")
    by_file = SinkOptions.of(table, {"lock": "file", "lock_id": "jdbc.shop.orders"})
    with lock_of(table, by_file).acquire():
        said = told("lock.ends-by-itself", lambda: holds.take_lock_away(table, by_file)).says("end that process")
        assert str(os.getpid()) in said.message
    assert holds.look_at_lock(table, by_file).holder == ""
    by_database = SinkOptions.of(table, {"lock": f"jdbc:sqlite:{tmp_path}/locks.db", "lock_id": "jdbc.shop.orders"})
    assert not holds.take_lock_away(table, by_database)
    sleeping = lock_of(table, by_database).acquire()
    assert holds.look_at_lock(table, by_database).holder
    assert holds.take_lock_away(table, by_database) and holds.look_at_lock(table, by_database).holder == ""
    with pytest.raises(Fenced):
        sleeping.check()


@follows("unlock.unknown")
def test_where_the_system_does_not_tell_the_query_is_started(table, monkeypatch):
    """A system without a list of its locks: a start finds out by itself whether it may take over."""
    monkeypatch.setattr(holds, "_LOCKS", "/proc/no-such-list")
    monkeypatch.setattr(holds, "_is_locked", lambda path: None)
    io = local_file_io(False)
    told("unlock.unknown", lambda: holds.release_hold(io, table, "streamsink")).says("start the query")
    again = SparkCheckpoint("q1", [*PUBLISHED, PENDING], len(PUBLISHED))
    driver(table).run(io, again, [*PUBLISHED, PENDING])
    assert look_at_journals(io, table, "streamsink")[0].pending == []
