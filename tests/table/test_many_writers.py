"""Many processes on one table, killed and restarted along the way:
every row is there once, no commit is lost, and no number is missing."""

import collections
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import streamsink
from streamsink.clock import IdSource
from streamsink.errors import Retryable
from streamsink.faults import arm
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.memory import MemoryCalls
from tests.crash.world import World, memory_world
from tests.services.forking import Forked
from tests.table.entries import OPTIONS, ROOT, add, commit, new_table
from tests.table.killed_committer import committed

PROJECT = Path(__file__).resolve().parents[2]
ROWS = 3
_LONGEST_S = 900


class Fleet:
    """Writers of one table. The first half is killed at random times and started again."""

    def __init__(self, table: str, folder: Path, size: tuple[int, int, int], rng: random.Random):
        self.table, self.folder = table, folder
        self.writers, self.batches, kills = size
        self.kills = 0
        self._doom = {
            n: sorted(rng.randrange(self.batches) for _ in range(kills)) if n < self.writers // 2 else []
            for n in range(self.writers)
        }
        self._delay = {n: [rng.random() * 0.03 for _ in range(kills)] for n in range(self.writers)}

    def run(self) -> float:
        """Run until everyone is done. Returns the seconds."""
        begun = time.monotonic()
        with ThreadPoolExecutor(self.writers) as pool:
            for done in [pool.submit(self._live, n) for n in range(self.writers)]:
                done.result(_LONGEST_S)
        return time.monotonic() - begun

    def attempts(self) -> list[int]:
        """The number of attempts of each commit that reported it."""
        return [int(line) for file in self.folder.glob("*.attempts") for line in file.read_text().splitlines() if line]

    def _live(self, n: int) -> None:
        command = ("tests.table.killed_committer", self.table, f"app{n}", self.batches, ROWS, self.folder, 1000)
        for after, delay in zip(self._doom[n], self._delay[n]):
            process = Forked(*command)
            while process.poll() is None and committed(self.folder / f"app{n}.committed") <= after:
                time.sleep(0.01)
            time.sleep(delay)
            process.kill()
            self.kills += process.wait() < 0
        assert Forked(*command).wait(_LONGEST_S) == 0, f"app{n}"


def _race(tmp_path, rng, size) -> tuple[Fleet, float]:
    table = str(tmp_path / "shop.db" / "raced")
    streamsink.create_table(table, "application STRING, id BIGINT", options={"snapshot.num-retained.min": "100000"})
    fleet = Fleet(table, tmp_path, size, rng)
    took = fleet.run()
    writers, batches, _ = size
    rows = streamsink.read_arrow(table).to_pylist()
    seen = collections.Counter((row["application"], row["id"]) for row in rows)
    assert seen == {(f"app{i}", n): 1 for i in range(writers) for n in range(batches * ROWS)}
    opened = open_table(local_file_io(), table, for_writing=False)
    assert opened.snapshots.ids() == list(range(1, writers * batches + 1))
    states = opened.states.read(opened.snapshots.latest()).by_application
    assert {name: state["sequence"] for name, state in states.items()} == {f"app{i}": batches for i in range(writers)}
    return fleet, took


def test_writers_that_are_killed_lose_no_commit(tmp_path, rng):
    """Six processes, 20 commits each, three of them killed twice and restarted."""
    fleet, _ = _race(tmp_path, rng, (6, 20, 2))
    assert fleet.kills > 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_writers_for_long(tmp_path, rng):
    """Eight processes, 250 commits each, half of them killed eight times."""
    fleet, took = _race(tmp_path, rng, (8, 250, 8))
    tries = fleet.attempts()
    print(
        f"RESULT soak: commits=2000 seconds={took:.0f} kills={fleet.kills} lost=0 doubled=0 "
        f"tries_mean={sum(tries) / len(tries):.2f} tries_max={max(tries)} "
        f"over_11={sum(t > 11 for t in tries)}"
    )


# -- names that are raced for ---------------------------------------------------------------------------------------

_RACER = """
import sys
from streamsink.storage.file_io import local_file_io
folder, me, names, start = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
io = local_file_io(flush=False)
sys.stdin.readline()
print(sum(io.create_if_absent(f"{folder}/name-{n}", me.encode()) for n in range(names)))
"""


def _race_for_names(folder, names, racers=8):
    folder.mkdir()
    command = [sys.executable, "-c", _RACER, str(folder)]
    processes = [
        subprocess.Popen(
            [*command, str(n), str(names), "go"], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(racers)
    ]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [int(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0] * racers
    return won


def _check_names(folder, names):
    won = _race_for_names(folder, names)
    assert sum(won) == names and sorted(os.listdir(folder)) == sorted(f"name-{n}" for n in range(names))
    owners = collections.Counter((folder / f"name-{n}").read_text() for n in range(names))
    assert {n: won[n] for n in range(8) if won[n]} == {int(k): v for k, v in owners.items()}


def test_a_raced_name_has_one_winner(tmp_path):
    """Eight processes race for 800 names: each is created once, by the process that was told so."""
    _check_names(tmp_path / "names", 800)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_raced_names_have_one_winner(tmp_path):
    """They race for 20,000 names."""
    _check_names(tmp_path / "names", 20_000)


def test_a_rename_between_looking_and_publishing_loses_one(tmp_path):
    """The contrast, step by step: look, look, rename, rename.
    Both writers believe that they have won, and one snapshot is gone."""
    path = tmp_path / "snapshot-1"
    free = [not path.exists(), not path.exists()]
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        os.rename(tmp_path / name, path)
    assert free == [True, True] and path.read_text() == "b"
    io = local_file_io()
    assert [io.create_if_absent(f"{path}-ours", name) for name in (b"a", b"b")] == [True, False]


# -- what a lost try costs -------------------------------------------------------------------------------------------


def test_a_lost_try_is_cheap_and_leaves_nothing():
    """The I/O calls of an attempt that another writer beats: what is the same in every attempt is not written again."""
    table = new_table(MemoryCalls(), partition_by=())
    commit(table, Changes((add("first"),)))
    calls = CrashingCalls(table.file_io._calls)
    mine = open_table(FileIO(calls, IdSource().new_id), ROOT, for_writing=True)
    manifest = mine.manifests.delta_of(mine.snapshots.latest())[0]
    beaten = []

    def others_win(step):
        if step == "commit.before_publish" and len(beaten) < 3:
            arm(None)
            commit(table, Changes((add(f"other{len(beaten)}"),)))
            beaten.append(calls.count)
            arm(others_win)

    request = CommitRequest("me", 1, Changes((add("mine"),)), "name", manifests=(manifest,))
    arm(others_win)
    try:
        done = TableCommit(mine, OPTIONS).commit(request, Guard())
    finally:
        arm(None)
    assert (done.attempts, done.snapshot_id) == (4, 5)
    lost = calls.log[beaten[1] : beaten[2]]
    assert len(lost) <= 26 and lost.count("open") == 2, lost
    left = [name for name, *_ in calls.entries(f"{ROOT}/manifest") if name.startswith("manifest-list-name-")]
    assert left == ["manifest-list-name-s2-1-1", "manifest-list-name-s5-4-0"]


def test_retries_end():
    """A writer that always loses says so after its last attempt. The next start publishes what it had recorded."""
    world = memory_world(commit_max_retries=2)
    others = World(world.calls, world.driver.root, application="other")
    world.run(boundaries=(3,))
    count = []

    def others_win(step):
        if step == "commit.before_publish":
            arm(None)
            count.append(1)
            others.run(boundaries=tuple(range(3, 3 * len(count) + 3, 3)))
            arm(others_win)

    sink = world.driver.start(FileIO(world.calls, IdSource().new_id), world.checkpoint)
    world.checkpoint.ends.append(6)
    arm(others_win)
    try:
        with pytest.raises(Retryable) as caught:
            sink.batch(world.driver.describe(world.checkpoint, 1))
    finally:
        arm(None)
        sink.close()
    assert caught.value.kind == "commit.retries" and len(count) == 3
    world.run(boundaries=(3, 6))
    assert sorted(set(world.ids())) == list(range(9)) and world.ids().count(5) == 2
