"""Advice of the error for a name that another driver holds, where one of the two is a command or a replay of dead
letters: it has no checkpoint, and no other name helps it."""

import pytest

import streamsink
from streamsink.clock import IdSource
from streamsink.commands.retire import retire
from streamsink.errors import Fenced
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.testing.faults import arm
from tests.advice.accidents import SECOND
from tests.advice.following import Advice, follows, told
from tests.cli.conftest import said
from tests.cli.lakes import allow_nulls
from tests.cli.replaying import ALL, ids, rejected, replayed

OWN_NAME = "application='...'"


def _refusal_of_a_claim(table: str, holder: str, claim) -> Advice:
    """What ``claim`` is told while a journal is claimed as ``holder``."""
    journal = FileJournal(local_file_io(False), table, "streamsink", 2)
    journal.claim(holder, 0, IdSource().new_id() if holder == SECOND else "")
    try:
        return told("application.in-use", claim)
    finally:
        journal.release()


@follows("application.in-use")
def test_a_name_that_a_query_holds_while_a_command_wants_it(orders):
    """A command has no checkpoint and no other name. When the query has ended it does its work."""
    for call in (
        lambda: streamsink.give_up(orders),
        lambda: retire(local_file_io(False), orders, SinkOptions.of(orders, {})),
    ):
        found = _refusal_of_a_claim(orders, SECOND, call)
        found.says("held by another start", "Call this again, as it is, when that has ended", "end that query or call")
        assert OWN_NAME not in found.message
    said("recover", orders, "--yes")
    assert retire(local_file_io(False), orders, SinkOptions.of(orders, {}))


@follows("application.in-use")
@pytest.mark.parametrize("query", [True, False])
def test_a_name_that_a_command_holds(query, orders):
    """A query or a run that starts while a command is at work starts again when that has ended."""
    journal = FileJournal(local_file_io(False), orders, "streamsink", 2)
    claim = (SECOND, 0, IdSource().new_id()) if query else ("monday", 0)
    found = _refusal_of_a_claim(orders, "give-up", lambda: journal.claim(*claim))
    found.says("held by a command,", "Call this again, as it is")
    assert OWN_NAME not in found.message
    assert journal.claim(*claim).epoch > 0
    journal.release()


@follows("application.in-use")
@pytest.mark.parametrize("claim", ["run", "query"])
def test_a_name_that_a_query_shares_with_a_job(claim, orders):
    """Each gets a name of its own."""
    journal = FileJournal(local_file_io(False), orders, "streamsink", 2)
    holder, mine = ((SECOND, ("monday", 0)), ("monday", (SECOND, 0, IdSource().new_id())))[claim == "query"]
    found = _refusal_of_a_claim(orders, holder, lambda: journal.claim(*mine))
    found.says("Queries and bounded jobs need names of their own", OWN_NAME)
    other = FileJournal(local_file_io(False), orders, "other", 2)
    assert other.claim(*mine).epoch == 1
    other.release()


@follows("application.in-use")
def test_a_replay_while_another_one_runs(clicks):
    """It is called again as it is. Formerly the error spoke of a new checkpoint."""
    allow_nulls(clicks)
    caught = []

    def meanwhile() -> None:
        caught.append(told("application.in-use", lambda: replayed(clicks)))

    arm("write.begin", 1, meanwhile)
    assert replayed(clicks).replayed == 4
    (found,) = caught
    found.says("held by a replay of dead letters", "Call this again, as it is, when that has ended")
    assert "checkpoint" not in found.message and OWN_NAME not in found.message
    again = replayed(clicks)
    assert (again.replayed, again.before, ids(clicks)) == (0, 4, ALL)


@follows("application.in-use")
def test_a_replay_under_the_name_of_a_query_that_runs(clicks):
    """Without --application it has the name that replays of these letters have."""
    allow_nulls(clicks)
    letters = rejected(clicks)
    replay = ("dead-letters", "replay", letters, "--target", "clicks", "--yes")
    journal = FileJournal(local_file_io(False), clicks, "shop", 2)
    journal.claim(SECOND, 0, IdSource().new_id())
    try:
        refusal = said(*replay, "--application", "shop", code=3)["error"]
        found = Advice(Fenced(refusal["message"], kind=refusal["kind"]))
        found.says("That is no replay", "leave --application out", "--application NEW-NAME")
        said(*replay)
    finally:
        journal.release()
    assert ids(clicks) == ALL
