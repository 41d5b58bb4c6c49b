"""One of several tables, or a record, that changes under the running query or under a command that looks at it."""

import pytest

from streamsink.commands.give_up import _open
from streamsink.errors import Misuse
from streamsink.sinks.paimon.past.chains import Chains
from streamsink.sinks.paimon.past.progress import TableProgress
from tests.advice.following import follows
from tests.advice.many import JOURNAL, files_in, four_of_five_batches, put_back, refused
from tests.crash.many_world import ROOT, ManyWorld
from tests.crash.world import die_at_step


@follows("tables.unknown-record")
def test_tables_of_a_lost_journal_are_put_back_under_the_running_query():
    """The first one that gets rows is not the one that has the newest batch: the error goes by that one all the same,
    or the new name would write its rows a second time."""
    world = ManyWorld(restore="restore-and-continue")
    for _ in range(2):
        next(world._versions)
    world.run(boundaries=(6, 9))
    assert {name for name, number, _ in world.rows() if number >= 6} == {"more_y"}
    files = files_in(world, f"{ROOT}/more_x") | files_in(world, f"{ROOT}/more_y")
    world = ManyWorld(restore="restore-and-continue")
    world.checkpoint.ends = [1, 12]
    sink = world.driver.start(world.file_io(), world.checkpoint)
    sink.batch(world.driver.describe(world.checkpoint, 0))
    world.checkpoint.committed = 1
    assert {name for name, _, _ in world.rows()} == {"a"}
    put_back(world, files)
    said = refused(world, "tables.unknown-record", lambda: sink.batch(world.driver.describe(world.checkpoint, 1)))
    assert f"{ROOT}/more_x" in said.message and said.option("adopt_from_batch") == 2


def _looking(world) -> Chains:
    tables, _ = _open(world.file_io(), ROOT, world.driver.options)
    return tables._chains()


def test_a_table_that_is_ahead_of_the_journal_was_not_rolled_back():
    """What a running query finds is told as a start tells it: the way on for a table that went back would write rows
    again that this one has."""
    world = four_of_five_batches()
    chains = _looking(world)
    head = chains._journal.newest().payload["heads"]["a"]
    older = {**head, "sequence": head["sequence"] - 1}
    with pytest.raises(Misuse) as refused:
        chains.check_head("a", chains._member("a", "a"), older)
    assert refused.value.kind == "tables.journal-behind"


@pytest.mark.parametrize("is_last", [True, False])
def test_a_record_that_is_deleted_while_a_command_looks_at_it_is_gone(monkeypatch, is_last):
    """The answer is the one that the command would have given a moment later. is_last: the journal is empty then."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=(6,))
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 18))
    chains, whole = _looking(world), TableProgress.behind

    def behind(*asked):
        found = whole(*asked)
        for number in (1, 2) if is_last else (2,):
            world.file_io().delete(f"{JOURNAL}/record-{number}.json")
        return found

    monkeypatch.setattr(TableProgress, "behind", behind)
    lost = chains.lost()
    assert lost
    assert (chains.option_without(lost) is None) == is_last
