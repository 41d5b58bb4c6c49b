"""A run of several batches dies at each n-th I/O call, in every way; then it restarts, and each row is there once."""

import pytest

from streamsink.testing.crashing import Mode
from tests.crash.world import die_at, memory_world, posix_world

# A bound for the loop "until a run survives"; a run has a few hundred calls.
_MOST_CALLS = 5_000
_MINOR = {"manifest.merge-min-count": "3"}
# Every commit that has two manifests to build on merges them, into more than one.
_FULL = {"manifest.target-file-size": "4 kb", "manifest.full-compaction-threshold-size": "1 kb"}


def _die_at_each_call(make_world, power, capsys):
    points = 0
    for n in range(1, _MOST_CALLS):
        if not die_at(n, make_world(n), Mode.BEFORE, power):
            break
        points += 1
    with capsys.disabled():
        print(f"\n[crash points: {points}, lost rows: 0, doubled rows: 0]", end=" ")
    assert points > 300


@pytest.mark.parametrize("rollback, merging", [("fail", _MINOR), ("republish", _FULL)], ids=["fail", "republish"])
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_before_every_call_in_memory(power, rollback, merging, capsys):
    """Killed, or the machine loses power (what was not flushed is forgotten): each row once, no unknown file."""
    _die_at_each_call(lambda n: memory_world(on_rollback=rollback, table_options=merging), power, capsys)


def test_death_before_every_call_on_the_local_disk(tmp_path, capsys):
    """The same on real files."""
    _die_at_each_call(lambda n: posix_world(tmp_path / str(n)), False, capsys)
