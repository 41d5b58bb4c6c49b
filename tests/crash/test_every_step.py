"""A run dies at each named step, each time it is reached; then it restarts, and each row is there once."""

import pytest

from streamsink import faults
from tests.crash.world import ADOPTED, WAYS, die_at_step, expected, is_prefix, memory_world

# Steps that a run without an earlier crash does not reach.
_ONLY_AFTER_A_CRASH = {"restore.before_publish"}
# Steps of a query into several tables are tried in test_many_tables.py, those of dead letters in test_many_letters.py.
_SINGLE = {step for step in faults.STEPS if not step.startswith(("tables.", "letters."))}
_OF_SPARK = {"spark.written"}
# Steps that the plain way never takes, and the others' that a run takes.
_GROUP = {"group.queued", "group.stopping"}
_OTHER_WAYS = sorted(
    step for step in _SINGLE if step.startswith(("precommit.saved", "group.", "commit.", "forget.", "batch."))
)


@pytest.mark.parametrize("step", sorted(_SINGLE - _ONLY_AFTER_A_CRASH - _GROUP - {"task.end", *_OF_SPARK}))
def test_death_at_every_occurrence_of_a_step(step):
    """Each row once, whichever time the step was reached."""
    _die_each_time(step, WAYS["plain"])


@pytest.mark.parametrize("step", sorted({*_OF_SPARK, "write.staged", "precommit.saved", "commit.placed"}))
def test_death_at_a_step_when_files_of_others_are_adopted(step):
    """Spark's own writer has left files, which nobody has looked at, or which are files of the checkpoint already."""
    _die_each_time(step, ADOPTED)


@pytest.mark.parametrize("way", sorted(set(WAYS) - {"plain"}))
@pytest.mark.parametrize("step", _OTHER_WAYS)
def test_death_at_every_step_of_grouped_and_asynchronous_publishing(step, way):
    """Several checkpoints are pending at the death, recorded by a batch, or by a batch beside which others are published."""
    _die_each_time(step, WAYS[way])


def _die_each_time(step, settings):
    occurrence = 0
    while True:
        occurrence += 1
        world = memory_world(**settings)
        if not die_at_step(step, occurrence, world):
            break
        assert is_prefix(world.ids())
        world.run()
        assert world.ids() == expected(), f"{step}, occurrence {occurrence}"
        assert world.unknown_files() == []
    assert occurrence > 1, f"the run never reached {step}"


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("second", sorted(s for s in faults.STEPS if s.startswith(("restore.", "commit.", "forget."))))
def test_death_again_while_restoring(second, way):
    """Killed between pre-commit and publishing, and again at each step of the restore that publishes it."""
    world = memory_world(**WAYS[way])
    assert die_at_step("precommit.saved", 2, world)
    assert die_at_step(second, 1, world), f"the restore never reached {second}"
    assert is_prefix(world.ids())
    world.run()
    assert world.ids() == expected()
    assert world.unknown_files() == []
