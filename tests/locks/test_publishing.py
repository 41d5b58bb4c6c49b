"""Commits to a store that replaces names:
only the lock keeps writers apart, and a writer that lost it publishes nothing, or says so."""

import collections
import json
import os
import signal
import time
from pathlib import Path

import pytest

import streamsink
from streamsink.commands.retire import retire
from streamsink.errors import Misuse, OutcomeUnknown
from streamsink.faults import arm
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.following import advice, follows
from tests.locks import replacing, worker
from tests.services.forking import Forked

WRITERS, BATCHES, ROWS = 3, 6, 2
_LONGEST_S = 300
ROOT = Path(__file__).resolve().parents[2]


def _counted(table) -> collections.Counter:
    return collections.Counter((row["application"], row["id"]) for row in streamsink.read_arrow(table).to_pylist())


def _ids(table) -> list[int]:
    return open_table(local_file_io(), table, for_writing=False).snapshots.ids()


@pytest.mark.in_turn("writers that race under a lock", 2)
def test_writers_that_race_lose_no_commit_under_a_lock(place, processes):
    """Three processes write to one table in a store whose rename replaces:
    every row is there once, and snapshot ids have no hole."""
    streamsink.create_table(place.root, "application STRING, id BIGINT")
    batches = BATCHES // 3 if place.kind == "hive" else BATCHES
    settings = json.dumps(place.settings)
    racers = [
        processes.Process(target=replacing.main, args=(place.root, f"app{i}", batches, ROWS, settings), daemon=True)
        for i in range(WRITERS)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(300)
    assert [racer.exitcode for racer in racers] == [0] * WRITERS
    assert _counted(place.root) == {(f"app{i}", n): 1 for i in range(WRITERS) for n in range(batches * ROWS)}
    assert _ids(place.root) == list(range(1, WRITERS * batches + 1))


@pytest.fixture
def two(tmp_path):
    """The table and the settings of two applications under a lock whose lease is one second."""
    table = str(tmp_path / "shop.db" / "orders")
    streamsink.create_table(table, "application STRING, id BIGINT")
    return table, {"lock": f"jdbc:sqlite:{tmp_path}/locks.db", "lock_lease_ms": 1000, "on_rollback": "republish"}


def _other_commits(table, settings):
    """Commit another application's batch when the sleeper's lease has ended."""
    time.sleep(2.1)  # The database counts whole seconds.
    other = SparkCheckpoint("other")
    replacing.driver(table, "other", settings).run(replacing.store(), other, [3])
    return other


@pytest.mark.in_turn("holders that slept before", 2)
def test_a_holder_that_slept_before_its_check_replaces_nothing(two):
    """It has the lock and has seen that the number is free.
    When it wakes up the number is another's, and it takes the next one."""
    table, settings = two

    class Sleeping(replacing.ReplacingFileIO):
        slept = False

        def exists(self, path):
            found = super().exists(path)
            if path.endswith("/snapshot-1") and not found and not self.slept:
                self.slept = True
                _other_commits(table, settings)
            return found

    awake = replacing.store()
    sleeper = Sleeping(awake._calls, awake._new_id, False)
    replacing.driver(table, "sleeper", settings).run(sleeper, SparkCheckpoint("sleeper"), [2])
    assert sleeper.slept and _ids(table) == [1, 2]
    assert _counted(table) == {("other", 0): 1, ("other", 1): 1, ("other", 2): 1, ("sleeper", 0): 1, ("sleeper", 1): 1}


@follows("publish.lock-lost")
@pytest.mark.in_turn("holders that slept after", 2)
def test_a_holder_that_slept_after_its_check_says_so_and_nobody_goes_on_silently(two):
    """This is the window that no lock can close: it replaces the other writer's snapshot. Its own outcome is unknown,
    and the other writer publishes again."""
    table, settings = two
    others = []

    def sleep(step):
        if step == "commit.before_publish":
            arm(None)
            others.append(_other_commits(table, settings))

    arm(sleep)
    sleepers = SparkCheckpoint("sleeper")
    try:
        with pytest.raises(OutcomeUnknown) as caught:
            replacing.driver(table, "sleeper", settings).run(replacing.store(), sleepers, [2])
    finally:
        arm(None)
    advice(caught.value, "publish.lock-lost").says("Nothing was deleted; the next start settles it")
    replacing.driver(table, "sleeper", settings).run(replacing.store(), sleepers, [2, 4])
    replacing.driver(table, "other", {**settings, "on_rollback": "fail"}).run(replacing.store(), others[0], [3, 6])
    assert _counted(table) == {**{("other", n): 1 for n in range(6)}, **{("sleeper", n): 1 for n in range(4)}}


@pytest.mark.in_turn("writers killed under a lock", 2)
def test_a_writer_killed_under_the_lock_is_followed_and_publishes_at_its_restart(two):
    """It gets SIGKILL right before the creation, while it holds the lock. Another writer goes on after the lease, and
    the restart publishes the rest."""
    table, settings = two
    command = ("tests.locks.replacing", table, "killed", 4, 2, json.dumps(settings))
    dead = Forked(*command, env={**os.environ, "STREAMSINK_FAULT": "commit.before_publish@3:kill"})
    assert dead.wait(_LONGEST_S) == -signal.SIGKILL and _ids(table) == [1, 2]
    _other_commits(table, settings)
    assert Forked(*command).wait(_LONGEST_S) == 0
    assert _counted(table) == {**{("killed", n): 1 for n in range(8)}, **{("other", n): 1 for n in range(3)}}
    assert _ids(table) == [1, 2, 3, 4, 5]


@pytest.mark.in_turn("what is created under a lock", 2)
def test_epochs_records_and_schemas_are_created_under_the_lock_as_well(two, processes):
    """Four processes race for the same names, which the store would write over:
    each name is won once, and keeps its winner's bytes."""
    table, settings = two
    settings = {**settings, "lock_lease_ms": 30_000}
    with processes.Pool(WRITERS + 1) as pool:
        won = pool.starmap(
            worker.create_names,
            [(table, settings, f"{table}/streamsink", f"racer-{n}", 12) for n in range(WRITERS + 1)],
        )
    owners = [name for names in won for name in names]
    assert sorted(owners) == sorted(f"owner-{n}" for n in range(12))
    for number, names in enumerate(won):
        assert {Path(f"{table}/streamsink/{name}").read_text() for name in names} <= {f"racer-{number}"}


def test_an_application_is_retired_under_the_lock(two):
    """Without it nothing is changed. Formerly the function had no option for it."""
    table, settings = two
    _other_commits(table, settings)
    with pytest.raises(Misuse) as refused:
        retire(replacing.store(), table, SinkOptions.of(table, {"application": "other"}))
    assert refused.value.kind == "lock.missing"
    assert retire(replacing.store(), table, SinkOptions.of(table, {"application": "other", **settings})) and _ids(
        table
    ) == [1, 2]
    assert not retire(replacing.store(), table, SinkOptions.of(table, {"application": "other", **settings}))


def test_a_store_that_replaces_wants_a_lock(two):
    """Without one it is refused before anything is written."""
    table, _ = two
    with pytest.raises(Misuse, match="Set the option 'lock'") as caught:
        replacing.driver(table, "bare", {}).run(replacing.store(), SparkCheckpoint("bare"), [2])
    assert caught.value.kind == "lock.missing" and _ids(table) == []
