"""A query into several tables dies anywhere: each row ends once, in the table of one evaluation, or among the dead
letters.
"""

import random

import pytest

from streamsink import faults
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.crash.many_world import ManyWorld, check_complete, check_readable
from tests.crash.sweeps import Left, deaths, deaths_at_steps
from tests.crash.world import die_at_step

# Steps that a run without an earlier crash does not reach, that only grouped publishing has, and those of Spark's tasks
# and writer.
_ELSEWHERE = {
    "restore.before_publish",
    "group.queued",
    "group.stopping",
    "task.end",
    "spark.written",
    "letters.before_publish",
    "letters.published",
    *(step for step in faults.STEPS if step.startswith(("fan-out.", "iceberg."))),
}
# A run has about 1,500 calls; each test of the default run tries every so-manieth, beginning somewhere else each time.
_STRIDE = 97
# Deaths at them leave about 550 states, or 90 when the power fails.
_FEW_STATES = 18


def _ends_right(world: ManyWorld, what: str) -> None:
    check_readable(world.rows())
    world.run()
    check_complete(world.rows())
    assert world.unknown_files() == [], what


@pytest.fixture(scope="module")
def of_steps() -> tuple[ManyWorld, dict[str, list[Left]]]:
    """What a death leaves at each step of a run, each time that it is reached."""
    world = ManyWorld()
    found: dict[str, list[Left]] = {}
    for _, step, left in sorted(
        ((occurrence, step, left) for left in deaths_at_steps(world) for step, occurrence in left.steps),
        key=lambda at: at[:2],
    ):
        found.setdefault(step, []).append(left)
    return world, found


@pytest.mark.in_turn("steps of several tables", 16)
@pytest.mark.parametrize("step", sorted(set(faults.STEPS) - _ELSEWHERE))
def test_death_at_a_step(step, of_steps, rng):
    """The first time it is reached, the last time, and once between: several tables pass through the same steps as
    one.
    """
    world, found = of_steps
    assert step in found, f"the run never reaches {step}"
    times = len(found[step])
    for occurrence in sorted({1, rng.randint(1, times), times}):
        found[step][occurrence - 1].put_back(world, False)
        _ends_right(world, f"{step}, occurrence {occurrence}")


def test_death_between_two_tables(of_steps):
    """Each time that some tables have a checkpoint and others do not."""
    world, found = of_steps
    assert len(found["tables.table_published"]) > 10
    for between, left in enumerate(found["tables.table_published"], 1):
        left.put_back(world, False)
        _ends_right(world, f"after {between} tables")


@pytest.mark.parametrize("between", range(1, 6))
def test_death_between_tables_with_several_files_each(between):
    """Each table gets its own files of the one record, however many they are."""
    boundaries = (60, 120)
    world = ManyWorld()
    arm("tables.table_published", between, crash)
    with pytest.raises(InjectedCrash):
        world.run(boundaries=boundaries)
    faults.arm(None)
    world.die()
    check_readable(world.rows(), boundaries)
    world.run(boundaries=boundaries)
    check_complete(world.rows(), boundaries)
    assert world.unknown_files() == []


@pytest.fixture(scope="module")
def of_restore() -> tuple[ManyWorld, list[Left]]:
    """What a second death leaves, in the start after one between two tables."""
    world = ManyWorld()
    assert die_at_step("tables.table_published", 1, world)
    return world, deaths_at_steps(world)


@pytest.mark.parametrize("second", sorted(s for s in faults.STEPS if s.startswith(("restore.", "tables.", "commit."))))
def test_death_again_while_restoring(second, of_restore):
    """Killed between two tables, and again at each step of the restore that finishes them."""
    world, states = of_restore
    (left,) = [left for left in states if (second, 1) in left.steps] or pytest.fail(
        f"the restore never reached {second}"
    )
    left.put_back(world, False)
    _ends_right(world, second)


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_at_calls(power, rng):
    """Some of the states that a death before an I/O call leaves, of all in turn over many runs of the suite."""
    world = ManyWorld()
    states = deaths(world, power)
    for left in rng.sample(states, _FEW_STATES):
        left.put_back(world, power)
        _ends_right(world, str(left))


@pytest.mark.parametrize("mode", [Mode.ERROR, Mode.REPLY_LOST], ids=lambda m: m.value)
def test_errors_and_lost_replies(mode, rng):
    """An I/O error fails the query at that call, done or not; the restarted query ends right."""
    for n in range(rng.randint(1, _STRIDE), len(_calls_of_a_run()), _STRIDE):
        world = ManyWorld()
        try:
            world.run(CrashingCalls(world.calls, n, mode))
        except OSError:
            world.die()
            check_readable(world.rows())
            world.run()
        check_complete(world.rows())
        assert world.unknown_files() == [], f"error at call {n}"


def _calls_of_a_run() -> list[str]:
    world = ManyWorld()
    calls = CrashingCalls(world.calls)
    world.run(calls)
    return calls.log


def _survive(seed: str) -> int:
    """One life of a query with up to six deaths; how many there were."""
    chance = random.Random(seed)
    world = ManyWorld(restore=chance.choice(["restore-and-fail", "restore-and-continue"]))
    deaths = 0
    for _ in range(chance.randint(2, 6)):
        mode = chance.choice([Mode.BEFORE, Mode.TORN, Mode.ERROR, Mode.REPLY_LOST])
        try:
            world.run(CrashingCalls(world.calls, chance.randint(1, 1600), mode))
        except (InjectedCrash, OSError):
            deaths += 1
            world.die(power=mode in (Mode.BEFORE, Mode.TORN) and chance.random() < 0.5)
        check_readable(world.rows())
    world.run()
    check_complete(world.rows())
    assert world.unknown_files() == [], f"seed {seed}"
    return deaths


def test_crash_upon_crash(seed):
    """A few lives, other ones in each run of the suite."""
    print(f"STREAMSINK_SEED={seed}")
    assert sum(_survive(f"{seed}-many-{number}") for number in range(8)) > 0


@pytest.mark.soak
def test_crash_upon_crash_for_long(seed):
    """Many lives; STREAMSINK_SEED repeats them."""
    deaths = sum(_survive(f"{seed}-many-{number}") for number in range(2_000))
    print(f"RESULT soak many tables: lives=2000 deaths={deaths} lost=0 doubled=0 seed={seed}")


@pytest.mark.soak
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_at_every_call(power):
    """All that deaths leave."""
    world = ManyWorld()
    states = deaths(world, power)
    for left in states:
        left.put_back(world, power)
        _ends_right(world, str(left))
    print(f"RESULT many tables: {len(states)} states of deaths, power={power}, lost=0 doubled=0")
    assert len(states) > (80 if power else 400)
