"""A run of several batches dies at each n-th I/O call, in every way; then it restarts, and each row is there once."""

import pytest

from streamsink.testing.crashing import Mode
from tests.crash.world import ADOPTED, STRIDE, WAYS, die_at, memory_world, posix_world

# Of what other tests try at every call, every so-manieth, other ones in each run of the suite; all of them with the mark "soak".
_SOME, _FEW = 4, 8
# A bound for the loop "until a run survives"; a run has a few hundred calls.
_MOST_CALLS = 5_000
_MINOR = {"manifest.merge-min-count": "3"}
# Every commit that has two manifests to build on merges them, into more than one.
_FULL = {"manifest.target-file-size": "4 kb", "manifest.full-compaction-threshold-size": "1 kb"}


def _die_at_each_call(make_world, power, capsys, stride=1, first=1):
    points = 0
    for n in range(first, _MOST_CALLS, stride):
        if not die_at(n, make_world(n), Mode.BEFORE, power):
            break
        points += 1
    with capsys.disabled():
        print(f"\n[crash points: {points}, lost rows: 0, doubled rows: 0]", end=" ")
    assert points * stride > 300


_EACH_MERGING = pytest.mark.parametrize(
    "rollback, merging", [("fail", _MINOR), ("republish", _FULL)], ids=["fail", "republish"]
)


@pytest.mark.in_turn("every call", 1)
@_EACH_MERGING
def test_death_before_every_call_in_memory(rollback, merging, capsys):
    """The machine loses power, and what was not flushed is forgotten: each row once, no unknown file."""
    _die_at_each_call(lambda n: memory_world(on_rollback=rollback, table_options=merging), True, capsys)


@_EACH_MERGING
@pytest.mark.parametrize("stride", [_SOME, pytest.param(1, marks=pytest.mark.soak)])
def test_a_killed_process_at_calls_in_memory(rollback, merging, stride, capsys, rng):
    """What was not flushed stays: more is left behind, and less is lost."""
    first = rng.randint(1, stride)
    _die_at_each_call(lambda n: memory_world(on_rollback=rollback, table_options=merging), False, capsys, stride, first)


@pytest.mark.parametrize("way", sorted(set(WAYS) - {"plain"}))
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_at_calls_of_grouped_and_asynchronous_publishing(power, way, capsys, rng):
    """One call in eleven, other ones in each run of the suite."""
    rollback = rng.choice(["fail", "republish"])
    first = rng.randint(1, STRIDE)
    _die_at_each_call(lambda n: memory_world(on_rollback=rollback, **WAYS[way]), power, capsys, STRIDE, first)


@pytest.mark.in_turn("files of others", 1)
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_at_calls_when_files_of_others_are_adopted(power, capsys, rng):
    """Files that Spark's own writer left: looked at, flushed, linked. One call in three, other ones in each run of the suite."""
    rollback = rng.choice(["fail", "republish"])
    stride = 3
    first = rng.randint(1, stride)
    _die_at_each_call(lambda n: memory_world(on_rollback=rollback, **ADOPTED), power, capsys, stride, first)


@pytest.mark.soak
@pytest.mark.parametrize("delay", [0, 3, 12, 40, None])
@pytest.mark.parametrize("as_", ["snapshot-per-checkpoint", "one-snapshot"])
@pytest.mark.parametrize("rollback", ["fail", "republish"])
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_before_every_call_whenever_the_committer_works(power, rollback, as_, delay, capsys):
    """Asynchronous publishing at five instants of the next batch, and each call of it."""
    settings = {"publish": "async", "publish_queue": 2, "publish_as": as_, "on_rollback": rollback, "delay": delay}
    _die_at_each_call(lambda n: memory_world(**settings), power, capsys)


@pytest.mark.parametrize("stride", [_FEW, pytest.param(1, marks=pytest.mark.soak)])
def test_death_at_calls_on_the_local_disk(tmp_path, stride, capsys, rng):
    """The same on real files."""
    _die_at_each_call(lambda n: posix_world(tmp_path / str(n)), False, capsys, stride, rng.randint(1, stride))
