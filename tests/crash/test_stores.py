"""The crash tests on a real HDFS and a real S3, thinned: each step, some of the calls, lost replies; each row once."""

import random

import pytest

from streamsink import faults
from streamsink.errors import OutcomeUnknown, Retryable
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash
from tests.crash.world import World, die_at_step, expected, is_prefix
from tests.storage.back_ends import REMOTE, back_end

BOUNDARIES = (4, 6)
FEW_CALLS, MANY_CALLS = 6, 150
# In a run of their own each; a few of them in the default run are the ones that a store could get wrong.
STEPS = [
    "restore.claimed",
    "precommit.before_record",
    "precommit.saved",
    "commit.placing",
    "commit.placed",
    "commit.before_publish",
    "commit.published",
    "forget.staging_removed",
]


@pytest.fixture(params=REMOTE)
def make_world(request):
    """A function that makes a new world on the store each time."""

    def make(**options):
        made = back_end(request.param, request)
        return World(made.calls, f"{made.root}/shop.db/orders", make_io=made.io, **options)

    return make


def _restart_and_check(world, what):
    assert is_prefix(world.ids(), BOUNDARIES), f"{what}: a reader sees a part of a batch"
    world.run(boundaries=BOUNDARIES)
    assert world.ids() == expected(BOUNDARIES), what
    assert world.unknown_files() == [], what


def _die_at_step(world, step, occurrence):
    assert die_at_step(step, occurrence, world, boundaries=BOUNDARIES)
    _restart_and_check(world, step)


@pytest.mark.in_turn("steps on stores", 4)
@pytest.mark.parametrize("step", STEPS)
def test_death_at_a_step(make_world, step):
    """At its first occurrence, from which instant on nothing reaches the store any more."""
    _die_at_step(make_world(), step, 1)


@pytest.mark.soak
@pytest.mark.parametrize("rollback", ["fail", "republish"])
def test_death_at_every_step(make_world, rollback):
    """All that a run comes to, with links to what may have to be published again as well."""
    reached: set[str] = set()
    faults.arm(reached.add)
    try:
        make_world(on_rollback=rollback).run(boundaries=BOUNDARIES)
    finally:
        faults.arm(None)
    assert reached.issuperset(STEPS)
    for step in sorted(reached):
        _die_at_step(make_world(on_rollback=rollback), step, 1)


def _fail_at_calls(make_world, seed, count, modes):
    chance = random.Random(seed)
    counting = CrashingCalls(make_world().calls)
    world = make_world()
    world.run(counting, BOUNDARIES)
    for n in sorted(chance.sample(range(1, counting.count + 1), min(count, counting.count))):
        world, mode = make_world(), chance.choice(modes)
        what = f"{mode.value} at call {n} ({counting.log[n - 1]}), seed {seed}"
        try:
            world.run(CrashingCalls(world.calls, n, mode), BOUNDARIES)
        except (InjectedCrash, OSError, Retryable, OutcomeUnknown):
            pass
        _restart_and_check(world, what)


@pytest.mark.in_turn("calls on stores", 1)
def test_death_and_lost_replies_at_some_calls(make_world, seed):
    """Other ones in each run of the suite: killed before a call or in the middle of a write, an error, a lost reply."""
    _fail_at_calls(make_world, seed, FEW_CALLS, list(Mode))


@pytest.mark.soak
@pytest.mark.parametrize("mode", list(Mode), ids=lambda m: m.value)
def test_death_and_lost_replies_at_many_calls(make_world, seed, mode):
    """Of each kind at many calls of the run."""
    _fail_at_calls(make_world, seed, MANY_CALLS, [mode])
