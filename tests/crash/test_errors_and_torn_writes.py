"""Each write torn in the middle, each call failing, each reply lost: the restarted query ends right."""

import pytest

from streamsink.testing.crashing import CrashingCalls, Mode
from tests.crash.world import counting, die_at, expected, is_prefix, memory_world


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_in_the_middle_of_every_write(power):
    """Half of a write is on disk: no reader and no restart takes the torn file for a whole one."""
    log = _log_of_a_run()
    for n in [i + 1 for i, name in enumerate(log) if name == "write"]:
        assert die_at(n, memory_world(), Mode.TORN, power)


@pytest.mark.parametrize("mode", [Mode.ERROR, Mode.REPLY_LOST], ids=lambda m: m.value)
def test_an_error_at_every_call_loses_nothing(mode):
    """An I/O error fails the query at that call (done or not: its reply is lost); the restarted query ends right."""
    for n in range(1, len(_log_of_a_run()) + 1):
        world = memory_world()
        try:
            world.run(CrashingCalls(world.calls, n, mode))
        except OSError:
            world.die()
            assert is_prefix(world.ids())
            world.run()
        assert world.ids() == expected(), f"error at call {n} ({mode.value})"
        assert world.unknown_files() == [], f"error at call {n} ({mode.value})"


def _log_of_a_run():
    """Names of all I/O calls of a run in which nothing happens."""
    world = memory_world()
    calls = counting(world)
    world.run(calls)
    return calls.log
