"""A run dies at each named step, each time it is reached; then it restarts, and each row is there once."""

import functools

import pytest

from streamsink import faults
from tests.crash.sweeps import Left, deaths_at_steps
from tests.crash.world import ADOPTED, WAYS, World, ends_right, memory_world

# Steps that a run without an earlier crash does not reach.
_ONLY_AFTER_A_CRASH = {"restore.before_publish"}
# Steps of a query into several tables are tried in test_many_tables.py, those of dead letters in test_many_letters.py,
# those of a fan-out in tests/sinks/test_fan_out.py, those of Iceberg's metadata in tests/iceberg_metadata.
_SINGLE = {step for step in faults.STEPS if not step.startswith(("tables.", "letters.", "fan-out.", "iceberg."))}
_OF_SPARK = {"spark.written"}
# Steps that the plain way never takes, and the others' that a run takes.
_GROUP = {"group.queued", "group.stopping"}
_OTHER_WAYS = sorted(
    step for step in _SINGLE if step.startswith(("precommit.saved", "group.", "commit.", "forget.", "batch."))
)


_SETTINGS = {**WAYS, "adopted": ADOPTED}


@functools.cache
def _deaths(way: str) -> tuple[World, list[Left]]:
    """Of one run: what a death leaves at each step. Many steps leave the same, which is tried once."""
    world = memory_world(**_SETTINGS[way])
    return world, deaths_at_steps(world)


@functools.cache
def _ends_right(way: str, number: int) -> None:
    world, states = _deaths(way)
    states[number].put_back(world, False)
    ends_right(world, f"{states[number]}: {states[number].steps}")


@pytest.mark.parametrize("step", sorted(_SINGLE - _ONLY_AFTER_A_CRASH - _GROUP - {"task.end", *_OF_SPARK}))
def test_death_at_every_occurrence_of_a_step(step):
    """Each row once, whichever time the step was reached."""
    _die_each_time(step, "plain")


@pytest.mark.parametrize("step", sorted({*_OF_SPARK, "write.staged", "precommit.saved", "commit.placed"}))
def test_death_at_a_step_when_files_of_others_are_adopted(step):
    """Spark's own writer has left files, which nobody has looked at, or which are files of the checkpoint already."""
    _die_each_time(step, "adopted")


@pytest.mark.parametrize("way", sorted(set(WAYS) - {"plain"}))
@pytest.mark.parametrize("step", _OTHER_WAYS)
def test_death_at_every_step_of_grouped_and_asynchronous_publishing(step, way):
    """Several checkpoints are pending at the death, recorded by a batch, or by a batch beside which others are
    published.
    """
    _die_each_time(step, way)


def _die_each_time(step, way):
    reached = [number for number, left in enumerate(_deaths(way)[1]) if step in dict(left.steps)]
    assert reached, f"the run never reached {step}"
    for number in reached:
        _ends_right(way, number)


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("second", sorted(s for s in faults.STEPS if s.startswith(("restore.", "commit.", "forget."))))
def test_death_again_while_restoring(second, way):
    """Killed between pre-commit and publishing, and again at each step of the restore that publishes it."""
    world, states = _second_deaths(way)
    (left,) = [left for left in states if (second, 1) in left.steps] or pytest.fail(
        f"the restore never reached {second}"
    )
    left.put_back(world, False)
    ends_right(world, f"{second}, in the restore")


@functools.cache
def _second_deaths(way: str) -> tuple[World, list[Left]]:
    """Of the start after a death between pre-commit and publishing."""
    world, states = _deaths(way)
    (first,) = [left for left in states if ("precommit.saved", 2) in left.steps]
    world = memory_world(**_SETTINGS[way])
    first.put_back(world, False)
    return world, deaths_at_steps(world)
