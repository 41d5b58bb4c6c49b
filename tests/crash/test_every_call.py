"""A run of several batches dies at each n-th I/O call, in every way; then it restarts, and each row is there once."""

import pytest

from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash
from tests.crash.world import counting, expected, is_prefix, memory_world, posix_world

# A bound for the loop "until a run survives"; a run has a few hundred calls.
_MOST_CALLS = 5_000


def _die_at(n, world, mode, power):
    """Run, die at call n, restart. False when the run survived because it has fewer calls."""
    calls = CrashingCalls(world.calls, n, mode)
    try:
        world.run(calls)
    except InjectedCrash:
        world.die(power)
    else:
        return False
    assert is_prefix(world.ids()), f"after a crash at call {n} a reader sees a part of a batch"
    world.run()
    assert world.ids() == expected(), f"crash at call {n} ({mode.value})"
    assert world.unknown_files() == [], f"crash at call {n} ({mode.value}) left files that nobody knows"
    return True


def _die_at_each_call(make_world, power, capsys):
    points = 0
    for n in range(1, _MOST_CALLS):
        if not _die_at(n, make_world(n), Mode.BEFORE, power):
            break
        points += 1
    with capsys.disabled():
        print(f"\n[crash points: {points}, lost rows: 0, doubled rows: 0]", end=" ")
    assert points > 300


@pytest.mark.parametrize("rollback", ["fail", "republish"])
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_before_every_call_in_memory(power, rollback, capsys):
    """Killed, or the machine loses power (what was not flushed is forgotten): each row once, no unknown file."""
    _die_at_each_call(lambda n: memory_world(on_rollback=rollback), power, capsys)


def test_death_before_every_call_on_the_local_disk(tmp_path, capsys):
    """The same on real files."""
    _die_at_each_call(lambda n: posix_world(tmp_path / str(n)), False, capsys)


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_in_the_middle_of_every_write(power):
    """Half of a write is on disk: no reader and no restart takes the torn file for a whole one."""
    log = _log_of_a_run()
    for n in [i + 1 for i, name in enumerate(log) if name == "write"]:
        assert _die_at(n, memory_world(), Mode.TORN, power)


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
