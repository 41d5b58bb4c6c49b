"""What the errors of the command line say, done as they say it."""

import pytest

from streamsink.journal.file_journal import FileJournal
from streamsink.operations import holds
from streamsink.operations.journals import look_at_journals
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


@follows("unlock.unknown")
def test_where_the_system_does_not_tell_the_query_is_started(table, monkeypatch):
    """A system without a list of its locks: a start finds out by itself whether it may take over."""
    monkeypatch.setattr(holds, "_LOCKS", "/proc/no-such-list")
    io = local_file_io(False)
    told("unlock.unknown", lambda: holds.release_hold(io, table, "streamsink")).says("start the query")
    again = SparkCheckpoint("q1", [*PUBLISHED, PENDING], len(PUBLISHED))
    driver(table).run(io, again, [*PUBLISHED, PENDING])
    assert look_at_journals(io, table, "streamsink")[0].pending == []
