"""Advice of the error for a name that another driver holds: another query, an earlier start, another run of one job,
a command, or another replay of dead letters. Each needs something else (commands and replays: ``tests/cli``)."""

import pytest

from streamsink.errors import Fenced
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import arm
from tests.advice.accidents import POSITIONS, SECOND, accept, lose_checkpoint, refused, renew_topic
from tests.advice.following import advice, follows
from tests.crash.world import World, expected, memory_world
from tests.protocol.bounded_runs import run_job
from tests.protocol.history import io_of

PLAIN = {"restore": "restore-and-continue"}
OWN_NAME = "application='...'"


@follows("application.in-use")
def test_a_name_that_another_query_holds():
    """The second query writes under a name of its own, and the first one is not harmed."""
    world = memory_world(**PLAIN)
    world.driver.run_id = "a start"
    first = world.driver.start(io_of(world), SparkCheckpoint(world.checkpoint.query))
    second = World(world.calls, world.driver.root, **PLAIN)
    second.checkpoint, second.driver.run_id = SparkCheckpoint(SECOND), "another start"
    renew_topic(second)
    refused(second, "application.in-use", (4,)).says(
        f"Only if this is another query, whose rows are not in the table, give it a name of its own, {OWN_NAME}"
    )
    accept(second, application="own")
    second.run(boundaries=(4,))
    first.batch(world.driver.describe(SparkCheckpoint(world.checkpoint.query, [6]), 0))
    first.close()
    assert world.ids() == [*range(6), *range(1000, 1004)]


@follows("application.in-use")
@pytest.mark.parametrize("scheduler", [False, True])
def test_a_name_that_an_earlier_start_of_this_query_holds(scheduler):
    """The query hung, and meanwhile its checkpoint was lost; or a scheduler has started it once more. Formerly the only
    advice was a name of its own, under which it would have written every row again."""
    world = memory_world(position_columns=POSITIONS)
    world.driver.run_id = "a start"
    first = world.driver.start(io_of(world), SparkCheckpoint(world.checkpoint.query))
    first.batch(world.driver.describe(SparkCheckpoint(world.checkpoint.query, [6]), 0))
    lose_checkpoint(world)
    world.driver.run_id = "another start"
    found = refused(world, "application.in-use", (6, 9))
    if scheduler:
        found.says("call this again, with the same name and checkpoint, when that start has ended")
    else:
        found.says("an earlier start of this same query", "and call this again")
    first.close()
    world.run(boundaries=(6, 9))
    assert world.ids() == expected((9,))


def _during_monday(then):
    """A world in which ``then`` is called while the run of monday is written, under the name 'batch'; and what the
    call has raised."""
    world, caught = memory_world(application="batch", **PLAIN), []
    run_job(world, "sunday", (0, 3))

    def meanwhile() -> None:
        with pytest.raises(Fenced) as refusal:
            then(world)
        world.driver.job_rows = (3, 6)
        caught.append(refusal.value)

    arm("write.begin", 1, meanwhile)
    run_job(world, "monday", (3, 6))
    assert world.ids() == list(range(6)), "the run that is written is not harmed"
    return world, advice(caught[0], "application.in-use")


@follows("application.in-use")
def test_a_name_that_the_run_of_another_day_holds():
    """The same name and run id, when that has ended. Formerly the only advice was a name of its own: a day that was
    written before and is run once more under such a name is doubled, as is seen here."""
    world, found = _during_monday(lambda world: run_job(world, "tuesday", (6, 9)))
    found.says("held by run 'monday' of a bounded job", "with the same name and run id, when that has ended")
    found.says("Give no run a name of its own")
    for _ in range(2):
        run_job(world, "tuesday", (6, 9))
        run_job(world, "sunday", (0, 3))
    assert world.ids() == list(range(9))
    accept(world, application="sunday-alone")
    run_job(world, "sunday", (0, 3))
    assert world.ids() == sorted([0, 1, 2, *range(9)]), "so the error must warn of it"


@follows("application.in-use")
def test_a_name_that_another_job_s_run_holds():
    """A job of which no run is in the table has a name of its own for all of its runs."""
    world, found = _during_monday(lambda world: run_job(world, "eu-monday", (100, 103)))
    found.says("Only a job of which no run is in the table yet may have another name", OWN_NAME)
    accept(world, application="eu")
    for run_id, rows in (("eu-monday", (100, 103)), ("eu-tuesday", (103, 106)), ("eu-monday", (100, 103))):
        run_job(world, run_id, rows)
    assert world.ids() == [*range(6), *range(100, 106)]
