"""That a sweep over states loses none: a death at a call, and a start on the state that stands for it, do the same call
by call.
"""

from types import SimpleNamespace

import pytest

from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.crash.many_world import ManyWorld
from tests.crash.sweeps import Changes, deaths, deaths_at_steps, remembered, state_of
from tests.crash.world import ADOPTED, WAYS, die_at_step, memory_world

_MAKE = {name: (lambda way=way: memory_world(**way)) for name, way in {**WAYS, "adopted": ADOPTED}.items()}
_MAKE |= {"republish": lambda: memory_world(on_rollback="republish"), "many": ManyWorld}
_EACH_DEATH = pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
_SOME = 6


def _after(world) -> tuple:
    """What a start does on what a death has left: its calls by name, the rows that readers see before and after, and
    Spark's logs.
    """
    seen = _seen(world)
    calls = CrashingCalls(world.calls)
    world.run(calls)
    return seen, calls.log, _seen(world), repr(remembered(world)["checkpoint"]), len(world.unknown_files())


def _seen(world) -> list:
    return sorted(world.rows()) if isinstance(world, ManyWorld) else world.ids()


def _died(make, n: int, power: bool, mode: Mode = Mode.BEFORE):
    """A world of its own that died at this call."""
    world = make()
    with pytest.raises(InjectedCrash):
        world.run(CrashingCalls(world.calls, n, mode))
    world.die(power)
    return world


def _same(make, power: bool, choose) -> int:
    """Compare at these calls. choose(numbers): those of one state that are tried."""
    copied, compared = make(), 0
    for left in deaths(copied, power):
        numbers = choose(left.before)
        if numbers:
            left.put_back(copied, power)
            by_state = _after(copied)
        for n in numbers:
            assert _after(_died(make, n, power)) == by_state, f"call {n} is not as {left}"
            compared += 1
    return compared


@pytest.mark.in_turn("states that stand for deaths", 6)
@_EACH_DEATH
@pytest.mark.parametrize("world", sorted(_MAKE))
def test_a_death_at_a_call_is_as_the_state_that_stands_for_it(world, power, rng):
    """At some calls, other ones in each run of the suite: most of them are not the first one with their state."""
    make = _MAKE[world]
    count = sum(len(left.before) for left in deaths(make(), power))
    chosen = set(rng.sample(range(1, count + 1), _SOME))
    assert _same(make, power, lambda numbers: [n for n in numbers if n in chosen]) == _SOME


@pytest.mark.soak
@_EACH_DEATH
@pytest.mark.parametrize("world", sorted(_MAKE))
def test_a_death_at_every_call_is_as_the_state_that_stands_for_it(world, power):
    """All calls, and every run dies by itself."""
    make = _MAKE[world]
    calls = CrashingCalls((counted := make()).calls)
    counted.run(calls)
    assert _same(make, power, lambda numbers: numbers) == calls.count


@pytest.mark.in_turn("states that stand for deaths at steps", 3)
@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_death_at_a_step_is_as_the_state_that_stands_for_it(way, rng):
    """Call by call, at some steps."""
    copied = _MAKE[way]()
    states = deaths_at_steps(copied)
    for left in rng.sample(states, _SOME):
        left.put_back(copied, False)
        by_state = _after(copied)
        step, occurrence = rng.choice(left.steps)
        died = _MAKE[way]()
        assert die_at_step(step, occurrence, died)
        assert _after(died) == by_state, f"{step}, occurrence {occurrence}, is not as {left}"


@_EACH_DEATH
def test_every_call_of_a_run_has_its_state(power):
    """None is left out, none is in two states, and a call that reads changes none."""
    world = memory_world()
    calls = Changes(world)
    world.run(calls)
    states = deaths(memory_world(), power)
    assert sorted(n for left in states for n in left.before) == list(range(1, calls.count + 1))
    assert {left.before[0] for left in states} <= set(calls.after)


def _write_twice(calls) -> None:
    stream = calls.open_new("/file")
    stream.write(b"1234")
    stream.write(b"5678")
    calls.close(stream, True)


def test_a_torn_write_is_half_in_the_copy():
    """As it is in the store of a run that dies in the middle of that write."""
    states = deaths(SimpleNamespace(calls=MemoryCalls()), torn=True, run=_write_twice)
    assert [left.calls.read("/file") for left in states] == [b"12", b"123456"]
    for left in states:
        calls = MemoryCalls()
        with pytest.raises(InjectedCrash):
            _write_twice(CrashingCalls(calls, left.before[0], Mode.TORN))
        assert calls.read("/file") == left.calls.read("/file")


@_EACH_DEATH
@pytest.mark.parametrize("way", ["plain", "async"])
def test_a_start_after_a_torn_write_is_as_on_the_state_that_stands_for_it(way, power, rng):
    """Call by call."""
    copied = _MAKE[way]()
    for left in rng.sample(deaths(copied, power, torn=True), _SOME // 2):
        left.put_back(copied, power)
        by_state = _after(copied)
        for n in {left.before[0], left.before[-1]}:
            assert _after(_died(_MAKE[way], n, power, Mode.TORN)) == by_state, f"call {n} is not as {left}"


@pytest.mark.parametrize(
    "change, killed, power",
    [
        (lambda calls: calls.open_new("/d/new"), True, False),
        (lambda calls: calls.open_new("/d/new") and calls.sync_dir("/d"), True, True),
        (lambda calls: calls.open_again.write(b"more"), True, False),
        (lambda calls: calls.close(calls.open_again, True), False, True),
        (lambda calls: calls.close(calls.open_again, False), False, False),
        (lambda calls: calls.sync_file("/d/open"), False, True),
        (lambda calls: calls.link("/d/file", "/d/second"), True, False),
        (lambda calls: calls.rename("/d/file", "/d/second"), True, False),
        (lambda calls: calls.rename("/d/file", "/d/second") or calls.sync_dir("/d"), True, True),
        (lambda calls: calls.unlink("/d/file"), True, False),
        (lambda calls: calls.unlink("/d/file") and calls.sync_dir("/d"), True, True),
        (lambda calls: calls.mkdir("/e"), True, False),
        (lambda calls: calls.mkdir("/e") or calls.sync_dir("/"), True, True),
        (lambda calls: calls.rmdir("/d/empty"), True, False),
        (lambda calls: calls.try_hold("/d/file"), False, False),
        (lambda calls: [calls.read("/d/file"), calls.size("/d/file"), calls.entries("/d")], False, False),
        (lambda calls: [calls.check_link("/d", "/d"), calls.open_existing("/d/file").read()], False, False),
    ],
)
def test_what_makes_another_state_of_a_store(change, killed, power):
    """For a process that is killed, and for a machine that loses its power: what each call of the store in memory
    changes.
    """
    calls = MemoryCalls()
    calls.mkdir("/d")
    calls.mkdir("/d/empty")
    calls.write_new("/d/file", b"content", True)
    calls.open_again = calls.open_new("/d/open")
    calls.open_again.write(b"half")
    calls.sync_dir("/")
    calls.sync_dir("/d")
    before = state_of(calls, False), state_of(calls, True)
    change(calls)
    after = state_of(calls, False), state_of(calls, True)
    assert (before[0] != after[0], before[1] != after[1]) == (killed, power)
