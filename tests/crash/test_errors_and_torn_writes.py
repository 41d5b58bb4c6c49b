"""Each write torn in the middle, each call failing, each reply lost: the restarted query ends right."""

import pytest

from streamsink.storage.calls import PosixCalls
from streamsink.testing.crashing import REPEATED, CrashingCalls, Mode
from tests.crash.sweeps import deaths
from tests.crash.world import ADOPTED, STRIDE, WAYS, counting, ends_right, expected, is_prefix, memory_world


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_in_the_middle_of_every_write(power):
    """Half of a write is on disk: no reader and no restart takes the torn file for a whole one."""
    assert _torn("plain", power) >= (10 if power else 100)


@pytest.mark.parametrize("way", sorted(set(WAYS) - {"plain"}))
def test_death_in_the_middle_of_a_write_of_a_group(way):
    """The same with several checkpoints pending, without power."""
    assert _torn(way, True) >= 10


def _torn(way: str, power: bool) -> int:
    """Each state that a death in the middle of a write leaves, once; how many they are."""
    world = memory_world(**WAYS[way])
    states = deaths(world, power, torn=True)
    for left in states:
        left.put_back(world, power)
        ends_right(world, str(left))
    return len(states)


# Every so-manieth call, other ones in each run of the suite; every call with the mark "soak".
_SOME = 3


@pytest.mark.in_turn("errors at calls", 4)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["", "every"])
@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("mode", [Mode.ERROR, Mode.REPLY_LOST, Mode.REPEATED], ids=lambda m: m.value)
def test_an_error_at_calls_loses_nothing(mode, way, every, rng):
    """An I/O error fails the query at that call (done or not: its reply is lost); the restarted query ends right.

    An error of the committer beside a batch fails the next one, or the stop.
    """
    stride = 1 if every else _SOME if way == "plain" else STRIDE
    # Only what changes names is ever repeated: at any other call the run would be one in which nothing happens.
    log = _log_of_a_run(way)
    numbers = [n for n, name in enumerate(log, 1) if mode is not Mode.REPEATED or name in REPEATED]
    for n in numbers[rng.randrange(stride) :: stride]:
        world = memory_world(**WAYS[way])
        try:
            world.run(CrashingCalls(world.calls, n, mode))
        except OSError:
            world.die()
            assert is_prefix(world.ids())
            world.run()
        assert world.ids() == expected(), f"error at call {n} ({mode.value})"
        assert world.unknown_files() == [], f"error at call {n} ({mode.value})"


class _Flushers(CrashingCalls):
    """What is flushed together is flushed by threads, as on a real disk. grouped: the numbers of those calls."""

    def __init__(self, *args):
        super().__init__(*args)
        self.grouped: list[int] = []

    def at_once(self, actions):
        first = self.count + 1
        try:
            PosixCalls.at_once(self, actions)
        finally:
            self.grouped += range(first, self.count + 1)


@pytest.mark.in_turn("flushes that fail", 1)
@pytest.mark.parametrize(
    "settings", [WAYS["plain"], WAYS["one-snapshot"], ADOPTED], ids=["plain", "one-snapshot", "adopted"]
)
def test_one_flush_that_fails_fails_all_that_goes_with_it(settings):
    """In whichever thread it fails: nothing is named that refers to it.

    So a power failure right after takes no row away.
    """
    world = memory_world(**settings)
    undisturbed = _Flushers(world.calls)
    world.run(undisturbed)
    for n in undisturbed.grouped:
        world = memory_world(**settings)
        with pytest.raises(OSError, match="injected"):
            world.run(_Flushers(world.calls, n, Mode.ERROR))
        world.die(power=True)
        assert is_prefix(world.ids()), f"flush at call {n}"
        world.run()
        assert world.ids() == expected(), f"flush at call {n}"
        assert world.unknown_files() == [], f"flush at call {n}"


def _log_of_a_run(way):
    """Names of all I/O calls of a run in which nothing happens."""
    world = memory_world(**WAYS[way])
    calls = counting(world)
    world.run(calls)
    return calls.log
