"""A run of several batches dies at its I/O calls, in every way; then it restarts, and each row is there once.

In memory each state that a death can leave is tried once (``sweeps.py``): calls that only read leave nothing else.
"""

import pytest

from streamsink.testing.crashing import Mode
from tests.crash.sweeps import Changes, deaths
from tests.crash.world import ADOPTED, WAYS, die_at, ends_right, memory_world, posix_world

# Of the states that killed processes leave every so-manieth, other ones in each run of the suite; all of them with the
# mark "soak".
_SOME, _OF_OTHERS, _FEW = 2, 4, 5
_MINOR = {"manifest.merge-min-count": "3"}
# Every commit that has two manifests to build on merges them, into more than one.
_FULL = {"manifest.target-file-size": "4 kb", "manifest.full-compaction-threshold-size": "1 kb"}
# Of a run of four batches: a power failure forgets most of what a killed process leaves.
_LEAST = {True: 35, False: 190}


def _die_at_each(world, power, capsys, stride=1, first=0):
    states = deaths(world, power)
    for left in states[first::stride]:
        left.put_back(world, power)
        ends_right(world, str(left))
    with capsys.disabled():
        tried = len(states[first::stride])
        print(f"\n[crash states: {tried} of {len(states)}, lost rows: 0, doubled rows: 0]", end=" ")
    assert len(states) >= _LEAST[power]


_EACH_MERGING = pytest.mark.parametrize(
    "rollback, merging", [("fail", _MINOR), ("republish", _FULL)], ids=["fail", "republish"]
)


@_EACH_MERGING
def test_death_before_every_call_in_memory(rollback, merging, capsys):
    """The machine loses power, and what was not flushed is forgotten: each row once, no unknown file."""
    _die_at_each(memory_world(on_rollback=rollback, table_options=merging), True, capsys)


@_EACH_MERGING
@pytest.mark.parametrize("stride", [_SOME, pytest.param(1, marks=pytest.mark.soak)])
def test_a_killed_process_at_calls_in_memory(rollback, merging, stride, capsys, rng):
    """What was not flushed stays: more is left behind, and less is lost."""
    world = memory_world(on_rollback=rollback, table_options=merging)
    _die_at_each(world, False, capsys, stride, rng.randrange(stride))


@pytest.mark.in_turn("calls of ways of publishing", 6)
@pytest.mark.parametrize("way", sorted(set(WAYS) - {"plain"}))
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_at_calls_of_grouped_and_asynchronous_publishing(power, way, capsys, rng):
    """All that a power failure can leave; of what a killed process leaves a fifth, other ones in each run of the
    suite.
    """
    rollback = rng.choice(["fail", "republish"])
    stride = 1 if power else _FEW
    _die_at_each(memory_world(on_rollback=rollback, **WAYS[way]), power, capsys, stride, rng.randrange(stride))


@pytest.mark.in_turn("calls of adopted files", 1)
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_at_calls_when_files_of_others_are_adopted(power, capsys, rng):
    """Files that Spark's own writer left: looked at, flushed, linked.

    Killed, at one state in four, other ones in each run.
    """
    rollback = rng.choice(["fail", "republish"])
    stride = 1 if power else _OF_OTHERS
    _die_at_each(memory_world(on_rollback=rollback, **ADOPTED), power, capsys, stride, rng.randrange(stride))


@pytest.mark.soak
@pytest.mark.parametrize("delay", [0, 3, 12, 40, None])
@pytest.mark.parametrize("as_", ["snapshot-per-checkpoint", "one-snapshot"])
@pytest.mark.parametrize("rollback", ["fail", "republish"])
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_before_every_call_whenever_the_committer_works(power, rollback, as_, delay, capsys):
    """Asynchronous publishing at five instants of the next batch, and each call of it."""
    settings = {"publish": "async", "publish_queue": 2, "publish_as": as_, "on_rollback": rollback, "delay": delay}
    _die_at_each(memory_world(**settings), power, capsys)


@pytest.mark.parametrize("stride", [_FEW, pytest.param(1, marks=pytest.mark.soak)])
def test_death_at_calls_on_the_local_disk(tmp_path, stride, rng):
    """The same on real files, after calls that changed something."""
    world = posix_world(tmp_path / "counted")
    calls = Changes(world)
    world.run(calls)
    chosen = calls.after[rng.randrange(stride) :: stride]
    assert len(chosen) * stride > 250
    for n in chosen:
        assert die_at(n, posix_world(tmp_path / str(n)), Mode.BEFORE, False)
