"""Compaction beside a stream: within its budget, never in the way of a batch, and its errors are seen."""

import dataclasses
import functools
import json
import logging
import threading

import pytest

from streamsink.clock import IdSource
from streamsink.compaction import attempts
from streamsink.compaction.attempts import Attempt
from streamsink.compaction.beside import Beside
from streamsink.compaction.budget import Bytes, Core
from streamsink.compaction.compactor import Compactor
from streamsink.compaction.rewrite import Stopped
from streamsink.errors import Corrupt, Retryable
from streamsink.events import CheckpointPublished
from streamsink.storage.file_io import local_file_io
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from tests.compaction.beside import BEFORE, BESIDE, compact, left, opened, small_files, stream_goes_on
from tests.compaction.test_by_hand import Query, files_of_path
from tests.crash.world import expected


class _Clock:
    """A clock that is set."""

    def __init__(self):
        self.at_ms = 0.0

    def monotonic_ms(self):
        return self.at_ms


def _beside(world, calls=None, **options) -> tuple[Beside, list]:
    told = []
    given = {"compaction_core_percent": 100, "compaction_interval_ms": 1, **options}
    options = dataclasses.replace(world.driver.options, **given)
    beside = Beside(
        lambda: [world.driver.root],
        lambda root: opened(world, calls),
        options,
        is_over=lambda: False,
        tell=lambda *done: told.append(done),
    )
    return beside, told


def test_the_bytes_of_an_hour_are_not_exceeded():
    """A quarter of them may be saved up; what is larger than that is waited for as long as it takes."""
    clock = _Clock()
    budget, used = Bytes(1_000, clock), 0
    for _ in range(20 * 60):
        if budget.may_use(60):
            budget.use(60)
            used += 60
        clock.at_ms += 3_000
    assert 900 <= used <= 1_250
    assert not budget.may_use(10_000)
    clock.at_ms += 3_600_000
    assert budget.may_use(10_000)
    budget.use(10_000)
    clock.at_ms += 9 * 3_600_000
    assert not budget.may_use(251)


def test_it_sleeps_three_times_as_long_as_it_works_for_a_quarter_of_a_core():
    clock, slept = _Clock(), []
    core = Core(25, clock, slept.append)
    for work_ms in (10, 0, 5):
        clock.at_ms += work_ms
        core.pace()
    clock.at_ms += 10**9
    core.pace()
    assert slept == [30, 0, 15, 30_000], "a machine that stood still is no work"
    assert Core(100, clock, slept.append).pace() is None and slept[-1] == 0


@pytest.mark.in_turn("streams and their compactions", 1)
def test_a_stream_leaves_few_files(tmp_path):
    """Over 120 batches a reader never sees more files than the rule leaves, and each row is there once."""
    path = str(tmp_path / "shop.db" / "orders")
    query = Query(path, table_options={"target-file-size": "60 kb"})
    told, most = [], 0
    options = dataclasses.replace(query.driver.options, compaction_core_percent=100, compaction_idle_ms=10**9)
    beside = Beside(
        lambda: [path],
        lambda root: open_table(local_file_io(False), root, for_writing=True),
        options,
        is_over=lambda: False,
        tell=lambda root, done, ms: told.append(done),
    )
    for _ in range(12):
        query.write(10)
        beside.round()
        most = max(most, len(files_of_path(path)))
    assert sum(done.files_before for done in told) > 150 and most < 100 and sum(d.conflicts for d in told) == 0
    table = open_table(local_file_io(False), path, for_writing=False)
    assert sorted(read_arrow(table).column("id").to_pylist()) == list(range(1_200))


def test_each_commit_is_of_about_one_file(tmp_path):
    """So what one conflict, or the end of the query, makes vain is no more than that, however much there is to do."""
    path, told = str(tmp_path / "shop.db" / "orders"), []
    query = Query(path, table_options={"target-file-size": "10 kb"})
    query.write(24)
    size = files_of_path(path)[0].file_size
    options = dataclasses.replace(query.driver.options, compaction_core_percent=100, compaction_idle_ms=10**9)
    open_it = functools.partial(open_table, local_file_io(False), for_writing=True)
    beside = Beside(lambda: [path], open_it, options, is_over=lambda: False, tell=lambda *done: told.append(done))
    beside.round()
    [(_, done, _)] = told
    assert done.bytes_before > 30_000 and len(done.snapshots) >= done.bytes_before // (10_240 + size)


def test_a_partition_to_which_nothing_comes_is_compacted_whole():
    world = small_files()
    beside, told = _beside(world, compaction_idle_ms=0)
    beside.round()
    assert [(root, done.files_after) for root, done, _ in told] == [(world.driver.root, 3)]
    beside.round()
    assert len(told) == 1 and world.ids() == expected(BEFORE)


def test_young_small_files_wait():
    """Three files are not worth a rewriting while more of them come."""
    world = small_files()
    beside, told = _beside(world)
    beside.round()
    assert told == []


def test_a_table_that_rests_costs_no_listing():
    """Until a snapshot comes, or a partition has rested for long enough: two requests a look."""
    world = small_files()
    calls = CrashingCalls(world.calls)
    beside, told = _beside(world, calls, compaction_idle_ms=1_000)
    beside._clock = clock = _Clock()
    looks = []
    for wait_ms in (0, 0, 400, 700, 0, 0):
        clock.at_ms += wait_ms
        before = calls.count
        beside.round()
        looks.append(calls.log[before:])
    assert looks[1] == looks[2] == ["read", "size"] and len(told) == 1, "compacted when the partitions had rested"
    assert looks[-1] == looks[1] != looks[-2], "the snapshot of the compaction itself is looked at once"
    world.run(boundaries=BESIDE)
    before = calls.count
    beside.round()
    assert len(calls.log[before:]) > len(looks[1]), "a batch has come"


def test_a_budget_that_is_used_up_leaves_the_rest_for_later():
    world = small_files()
    beside, told = _beside(world, compaction_idle_ms=0, compaction_bytes_per_hour=4)
    for _ in range(3):
        beside.round()
    assert [done.files_after for _, done, _ in told] == [1], "the first one is larger than a full budget"


def test_a_stop_gives_up_what_is_being_written():
    """The query waits for no rewriting, and nothing is left of it."""
    world = small_files()
    beside, told = _beside(world, compaction_idle_ms=0)
    beside._stopping.set()
    with pytest.raises(Stopped):
        beside.round()
    assert told == [] and left(world) == [] and world.ids() == expected(BEFORE)


class _StreamIsFirst(CrashingCalls):
    """The stream takes the number of the first snapshot that is created over these calls."""

    def __init__(self, world):
        super().__init__(world.calls)
        self._world, self._left = world, 1

    def link(self, source, target):
        if "/snapshot/snapshot-" in target and self._left:
            self._left = 0
            stream_goes_on(self._world)
        return super().link(source, target)


def test_work_is_told_that_was_in_vain_because_the_stream_was_first_in_every_try(caplog):
    """Its files go, and a later round does the work."""
    world = small_files()
    beside, told = _beside(world, _StreamIsFirst(world), compaction_idle_ms=0, commit_max_retries=0)
    beside.round()
    [(_, lost, _)] = told
    assert (lost.conflicts, lost.snapshots) == (1, []) and lost.bytes_lost > 0
    assert "is tried again" in caplog.text and left(world) != []
    beside.round()
    [_, (_, done, _)] = told
    assert (done.conflicts, done.bytes_lost, len(done.snapshots)) == (0, 0, 1) and left(world) == []
    assert world.ids() == expected(BESIDE)


def test_an_error_that_a_user_must_mend_is_raised_by_the_next_batch(caplog):
    """And a passing one is logged and tried again."""
    world = small_files()
    beside, told = _beside(world, compaction_idle_ms=0)
    settle, errors = (
        Compactor.settle,
        [Retryable("away", kind="t.t"), OSError(5, "away"), Corrupt("broken", kind="t.t")],
    )

    def fails(self):
        if errors:
            raise errors.pop(0)
        return settle(self)

    Compactor.settle = fails
    try:
        with caplog.at_level(logging.WARNING, "streamsink"):
            beside.start()
            beside._thread.join(60)
    finally:
        Compactor.settle = settle
    assert not errors and not beside._thread.is_alive() and caplog.text.count("is tried again") == 2
    with pytest.raises(Corrupt, match="broken"):
        beside.check()
    beside.stop()


def _recreated(world):
    path = f"{world.driver.root}/schema/schema-0"
    io = world.file_io(world.calls)
    said = json.loads(io.read(path))
    io.replace(path, json.dumps({**said, "timeMillis": 1}).encode(), IdSource().new_id())


def _no_table_of_ours(world):
    table = opened(world)
    table.schemas.add(dataclasses.replace(table.known_schema, id=1, options={"deletion-vectors.enabled": "true"}))


def _dropped(world):
    world.file_io(world.calls).delete(f"{world.driver.root}/schema/schema-0")


@pytest.mark.parametrize("happens", [_dropped, _recreated, _no_table_of_ours])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_table_that_the_query_need_not_write_any_more_ends_nothing(caplog, happens, when):
    """One of many was dropped, dropped and created again, or made another kind of table. The others are compacted, and
    the query itself says what is to be done, when it writes there. One that was created again is opened again.
    """
    gone, world = small_files(), small_files()
    worlds, told = {"gone": gone, world.driver.root: world}, []
    options = dataclasses.replace(world.driver.options, compaction_idle_ms=0, compaction_core_percent=100)
    beside = Beside(
        lambda: list(worlds),
        lambda root: opened(worlds[root]),
        options,
        is_over=lambda: False,
        tell=lambda root, done, ms: told.append(root),
    )
    if when == "after":
        beside.round()
        for each in (gone, world):
            each.run(boundaries=(*BEFORE, 20, 26, 32, 38))
    happens(gone)
    with caplog.at_level(logging.WARNING, "streamsink"):
        beside.round()
        beside.round()
    left_alone = when == "after" or happens is not _recreated
    assert caplog.text.count("leaves this table alone") == left_alone
    rounds = 2 if when == "after" else 1
    stays_alone = happens is not _recreated
    assert told.count(world.driver.root) == rounds and told.count("gone") == rounds - stays_alone


def test_two_queries_do_not_compact_the_same_partition_at_once(monkeypatch):
    """One of them would write in vain. What is announced for long may be of a dead one, and holds nobody up."""
    world = small_files()
    first, told_first = _beside(world, compaction_idle_ms=0)
    second, told_second = _beside(world, compaction_idle_ms=0)
    monkeypatch.setattr(first._core, "pace", second.round)
    first._round_of(world.driver.root)
    done = first._tables[world.driver.root].compactor.totals
    assert (done.conflicts, done.files_before, told_second) == (0, 9, [])
    world.run(boundaries=(*BEFORE, 20, 26, 32, 38))
    table = opened(world)
    attempts.announce(table, Attempt.new(["part=a/bucket-0"], (0, "")))
    second.round()
    assert [done.files_after for _, done, _ in told_second] == [2], "the two other partitions"
    monkeypatch.setattr(attempts, "AT_WORK_MS", 0)
    second.round()
    assert [done.files_after for _, done, _ in told_second] == [2, 1]


def test_planning_takes_its_share_of_a_core_as_well(monkeypatch):
    """A table with very many files takes long to look at, although there is nothing to do."""
    world, paced = small_files(), []
    beside, told = _beside(world)
    monkeypatch.setattr(beside._core, "pace", lambda: paced.append(1))
    beside.round()
    assert (paced, told) == ([1], [])


def test_a_query_that_runs_for_a_moment_now_and_then_is_looked_after_as_well():
    """The first look is at the start, not a minute later."""
    world, looked = small_files(), threading.Event()
    beside, told = _beside(world, compaction_idle_ms=0, compaction_interval_ms=10**9)
    beside._tell = lambda *done: (told.append(done), looked.set())
    beside.start()
    assert looked.wait(60)
    beside.stop()
    beside.check()
    assert [done.files_after for _, done, _ in told] == [3]


@pytest.mark.in_turn("streams and their compactions", 1)
def test_a_stream_and_its_compaction_at_the_same_time(tmp_path):
    """With real threads: no row is lost or doubled, and the stream is never stopped by it."""
    path = str(tmp_path / "shop.db" / "orders")
    query, over, told = Query(path), threading.Event(), []
    query.write(1)
    given = {"compaction_core_percent": 100, "compaction_idle_ms": 0, "compaction_interval_ms": 1}
    beside = Beside(
        lambda: [path],
        lambda root: open_table(local_file_io(False), root, for_writing=True),
        dataclasses.replace(query.driver.options, **given),
        is_over=over.is_set,
        tell=lambda root, done, ms: told.append(done),
    )
    beside.start()
    batches = 1
    while batches < 200 and (batches < 31 or not told):
        query.write(5)
        batches += 5
    over.set()
    beside.stop()
    beside.check()
    assert not beside._thread.is_alive() and told
    table = open_table(local_file_io(False), path, for_writing=False)
    assert sorted(read_arrow(table).column("id").to_pylist()) == list(range(10 * batches))


def test_a_stream_loses_at_most_one_try_to_each_compaction():
    """Compactions commit between any two calls of a batch: it is published by its second try at the latest."""
    world = small_files()
    calls = CrashingCalls(world.calls)
    at, batches = [40], len(world.checkpoint.ends)

    def now_and_then():
        if calls.count >= at[0]:
            at[0] = 10**9  # one compaction a batch
            compact(world)

    calls.before_call = now_and_then
    for number in range(12):
        at[0] = calls.count + 5 * number
        world.driver.events.clear()
        ends = [*world.checkpoint.ends, world.checkpoint.ends[-1] + 3]
        world.driver.run(world.file_io(calls), world.checkpoint, ends)
        [published] = [e for e in world.driver.events if isinstance(e, CheckpointPublished)]
        assert published.attempts <= 2
    assert len(world.checkpoint.ends) == batches + 12 and world.ids() == expected((world.checkpoint.ends[-1],))
