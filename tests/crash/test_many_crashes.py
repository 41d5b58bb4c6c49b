"""Crash upon crash: a run dies at a random call, its restart dies too, and so on, killed or without power; each row
once.
"""

import os
import random

import pytest

from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash
from tests.crash.world import WAYS, expected, is_prefix, memory_world

FEW, MANY = 120, 20_000


def _survive(seed: str) -> int:
    """One life of a query with up to six deaths; how many there were."""
    chance = random.Random(seed)
    way = dict(WAYS[chance.choice(sorted(WAYS))])
    if "delay" in way:
        way["delay"] = chance.choice([0, 1, 7, 20, 45, None])
    world = memory_world(
        on_rollback=chance.choice(["fail", "republish"]),
        restore=chance.choice(["restore-and-fail", "restore-and-continue"]),
        **way,
    )
    deaths = 0
    for _ in range(chance.randint(2, 6)):
        mode = chance.choice([Mode.BEFORE, Mode.TORN, Mode.ERROR, Mode.REPLY_LOST])
        try:
            world.run(CrashingCalls(world.calls, chance.randint(1, 600), mode))
        except (InjectedCrash, OSError):
            deaths += 1
            world.die(power=mode in (Mode.BEFORE, Mode.TORN) and chance.random() < 0.5)
        assert is_prefix(world.ids()), f"seed {seed}"
    world.run()
    assert world.ids() == expected(), f"seed {seed}"
    assert world.unknown_files() == [], f"seed {seed}"
    return deaths


def test_crash_upon_crash(seed):
    """A few lives, other ones in each run of the suite."""
    assert sum(_survive(f"{seed}-{number}") for number in range(FEW)) > FEW


@pytest.mark.soak
def test_crash_upon_crash_for_long(seed):
    """Many lives; STREAMSINK_SEED repeats them."""
    lives = int(os.environ.get("STREAMSINK_LIVES", MANY))
    deaths = sum(_survive(f"{seed}-{number}") for number in range(lives))
    print(f"RESULT soak: lives={lives} deaths={deaths} lost=0 doubled=0 seed={seed}")
