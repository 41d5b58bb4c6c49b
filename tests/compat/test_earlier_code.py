"""A table, a journal and pending records of an earlier version are opened, recovered and continued; after that the
earlier version refuses the table."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from streamsink.errors import Misuse, RestoredThenFailed
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from streamsink.testing.driver import SparkCheckpoint
from tests.crash.world import posix_world
from tests.e2e.harness import content

EARLIER = Path(__file__).parent / "earlier"
BOUNDARIES = (6, 9, 14, 20)
OF_JOBS = list(range(100, 106))

# Runs the earlier library on the table: batch by batch, as lines of its standard input ask for it, and says how each
# one ended.
OLD_DRIVER = """
import sys
import pyarrow as pa
from streamsink.options import SinkOptions
from streamsink.storage.local import local_file_io
from streamsink.testing.driver import Checkpoint, MicroBatchDriver

root, query, application = sys.argv[1:]
schema = pa.schema([("id", pa.int64()), ("part", pa.string()), ("version", pa.int64())])

def rows(start, end):
    numbers = list(range(start, end))
    columns = {"id": numbers, "part": ["a"] * len(numbers), "version": [0] * len(numbers)}
    return pa.RecordBatch.from_pydict(columns, schema=schema)

given = {"partition_by": ("part",), "restore": "restore-and-continue", "application": application}
options = SinkOptions.of(root, given)
driver = MicroBatchDriver(root, schema, rows, options)
sink = None
for line in sys.stdin:
    ends = [int(end) for end in line.split()]
    try:
        if sink is None:
            sink = driver.start(local_file_io(), Checkpoint(query))
        sink.batch(driver.describe(Checkpoint(query, ends), len(ends) - 1))
        print("done", flush=True)
    except Exception as failed:
        print(type(failed).__name__, getattr(failed, "kind", failed), flush=True)
"""


class OldDriver:
    """A process that runs the earlier library."""

    def __init__(self, root: str, query: str, application: str = "streamsink"):
        env = {**os.environ, "PYTHONPATH": str(EARLIER / "cde7565-code.zip")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", OLD_DRIVER, root, query, application],
            env=env,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait(200)
        self._process.stdin.close()
        self._process.stdout.close()

    def batch(self, *ends: int) -> str:
        """How the last of the batches with these ends went."""
        self._process.stdin.write(" ".join(map(str, ends)) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@pytest.fixture
def world(tmp_path):
    """The earlier table, and the query that wrote it, in this version."""
    with tarfile.open(EARLIER / "cde7565-table.tar.gz") as archive:
        archive.extractall(tmp_path)
    world = posix_world(tmp_path, restore="restore-and-continue")
    world.checkpoint.ends = [6, 9, 14]
    world.checkpoint.committed = 2
    return world


def _states(world) -> dict:
    table = open_table(local_file_io(), world.driver.root, for_writing=False)
    newest = table.snapshots.latest()
    return {**table.states.read(newest).by_application, "complete": table.states.read(newest).complete}


def test_an_earlier_table_is_recovered_and_continued_each_row_once(world):
    """Its pending record is published, its replay is skipped, and the next batches follow.
    The first commit upgrades the state."""
    world.run(boundaries=BOUNDARIES)
    assert world.ids() == list(range(20)) + OF_JOBS
    state = _states(world)["streamsink"]
    journal = json.loads(Path(world.driver.root, "streamsink/streamsink/journal-1").read_text())
    assert (state["version"], state["journal_id"], journal["began"]) == (2, journal["id"], 0)
    assert "query" not in state and state["query_id"] == world.checkpoint.query
    assert _states(world)["complete"]


def test_the_first_commit_after_an_earlier_one_goes_on_for_a_query_that_lost_its_checkpoint(world):
    """Positions of version 1 filter like those of version 2,
    once somebody has said that it is the same query, which version 1 did not record."""
    world.run(boundaries=BOUNDARIES[:3])
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000002")
    world.driver.options = dataclasses.replace(
        world.driver.options, position_columns=("t", "p", "o"), store_position_columns=True
    )
    with pytest.raises(Misuse, match="older streamsink") as refused:
        world.run(boundaries=(14, 20))
    assert refused.value.kind == "query.not-comparable" and world.ids() == list(range(14)) + OF_JOBS
    word = re.search(r"accept_as_same='([0-9a-f]{12})'", str(refused.value))[1]
    world.driver.options = dataclasses.replace(world.driver.options, accept_as_same=word)
    world.run(boundaries=(14, 20))
    assert world.ids() == list(range(20)) + OF_JOBS


def test_earlier_runs_of_bounded_jobs_are_known(world):
    """Their markers are those of version 1."""
    jobs = posix_world(Path(world.driver.root).parent.parent, application="batch")
    for run_id, rows in (("monday", (100, 103)), ("tuesday", (103, 106)), ("wednesday", (106, 109))):
        jobs.driver.job_rows = rows
        sink = jobs.driver.start(local_file_io(), SparkCheckpoint(run_id))
        described = jobs.driver.describe(SparkCheckpoint(run_id, [rows[1]]), 0)
        sink.batch(dataclasses.replace(described, batch_id=END_OF_INPUT, sources=()))
        sink.close()
    assert [i for i in world.ids() if i >= 100] == list(range(100, 109))


def test_restore_and_fail_publishes_the_earlier_record_first(world):
    """The record of version 1 is published as it stands."""
    world.driver.options = dataclasses.replace(world.driver.options, restore="restore-and-fail")
    with pytest.raises(RestoredThenFailed):
        world.driver.start(local_file_io(), world.checkpoint)
    assert world.ids() == list(range(14)) + OF_JOBS


def test_the_earlier_code_refuses_an_upgraded_table_before_it_writes(world):
    """Somebody goes back to the earlier version: it does not understand the state, and changes nothing."""
    world.run(boundaries=BOUNDARIES)
    before = content(world.driver.root)
    with OldDriver(world.driver.root, world.checkpoint.query) as old:
        assert old.batch(6, 9, 14, 20, 25).startswith("KeyError")
    with OldDriver(world.driver.root, "00000000-0000-0000-0000-000000000007") as old:
        assert old.batch(6).startswith("KeyError")
    assert content(world.driver.root) == before
    world.run(boundaries=(*BOUNDARIES, 25))
    assert world.ids() == list(range(25)) + OF_JOBS


def test_an_earlier_driver_that_still_runs_is_fenced(world):
    """The query is restarted with this version while its earlier driver lives: the earlier driver writes nothing more,
    whether it finds the new owner or the new state first."""
    with OldDriver(world.driver.root, world.checkpoint.query) as old:
        assert old.batch(6, 9, 14) == "done"
        assert old.batch(6, 9, 14, 20) == "done"
        world.checkpoint.ends, world.checkpoint.committed = [6, 9, 14, 20], 4
        world.run(boundaries=(*BOUNDARIES, 25))
        before = content(world.driver.root)
        assert old.batch(6, 9, 14, 20, 25).startswith(("Fenced", "KeyError"))
        assert content(world.driver.root) == before
    assert world.ids() == list(range(25)) + OF_JOBS


def test_another_application_of_the_earlier_code_carries_the_new_state_along(world):
    """Applications are upgraded one by one: the earlier code passes on as it is what it does not understand."""
    world.run(boundaries=BOUNDARIES)
    mine = _states(world)["streamsink"]
    with OldDriver(world.driver.root, "00000000-0000-0000-0000-000000000008", "other") as old:
        assert old.batch(3) == "done"
    assert _states(world)["streamsink"] == mine
    world.run(boundaries=(*BOUNDARIES, 25))
    assert sorted(world.ids()) == sorted([*range(25), 0, 1, 2, *OF_JOBS])
