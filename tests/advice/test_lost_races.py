"""Advice of a commit that other writers were always faster than, of what has no journal: it is called once more."""

import pyarrow as pa
import pytest

import streamsink
from streamsink import faults, maintenance
from tests.advice.following import follows, told
from tests.crash.world import World, expected, posix_world

PLAIN = {"restore": "restore-and-continue"}
ENDS = tuple(range(3, 33, 3))


def _raced(world, call) -> None:
    """``call``, while another writer commits before each of its snapshots."""
    other, wins = World(world.calls, world.driver.root, application="other", **PLAIN), []
    rows = other.driver.rows

    def shifted(start, end):
        batch = rows(start, end)
        return batch.set_column(0, "id", pa.array([n + 1000 for n in batch.column("id").to_pylist()], pa.int64()))

    def first(step: str) -> None:
        if step == "commit.before_publish":
            faults.arm(None)
            wins.append(step)
            other.run(boundaries=tuple(range(3, 3 * len(wins) + 3, 3)))
            faults.arm(first)

    other.driver.rows = shifted
    faults.arm(first)
    try:
        call()
    finally:
        faults.arm(None)


# What the tries run out of, with the option that the error must name.
RUN_OUT = {"commit_max_retries": {"commit_max_retries": 1}, "commit_timeout_ms": {"commit_timeout_ms": 1}}


@follows("commit.retries")
@pytest.mark.parametrize("option", RUN_OUT)
def test_a_compaction_that_always_loses_is_called_again(option, tmp_path):
    """Its error formerly said that what it had recorded was safe in a journal, which a compaction does not have, and
    named the number of tries where the time had run out."""
    world = posix_world(tmp_path, partition_by=(), **PLAIN)
    root = world.driver.root
    world.run(boundaries=ENDS)

    def compact() -> None:
        maintenance.compact(root, full=True, commit_min_wait_ms=0, **RUN_OUT[option])

    found = told("commit.retries", lambda: _raced(world, compact))
    found.says(f"{root}: ", "The files that were to be compacted are in the table as they were", "can be made again")
    assert "journal" not in found.message and found.find(r"With many writers raise (\w+)$") == option
    assert [n for n in world.ids() if n < 1000] == expected(ENDS)
    assert maintenance.compact(root, full=True).files_before >= len(ENDS)
    assert [n for n in world.ids() if n < 1000] == expected(ENDS) and streamsink.verify(root).ok


@follows("commit.retries")
def test_a_query_that_is_to_be_retired_while_others_win_is_retired_by_the_next_call(tmp_path):
    """It has a journal, and nothing pending in it."""
    world = posix_world(tmp_path, partition_by=(), **PLAIN)
    root = world.driver.root
    world.run(boundaries=ENDS)

    def retire() -> None:
        streamsink.retire(root, "streamsink", commit_max_retries=1)

    found = told("commit.retries", lambda: _raced(world, retire))
    found.says("The table is as it was. Call this again")
    assert "pending" not in found.message and "published" not in found.message
    assert streamsink.retire(root, "streamsink")
    assert [n for n in world.ids() if n < 1000] == expected(ENDS)
