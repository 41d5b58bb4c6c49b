"""Maintenance in the background of a query: no batch waits for it, and what goes wrong with it ends the query."""

import errno
import threading
import time
from dataclasses import replace
from datetime import datetime

import pytest

from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.events import Maintained
from streamsink.options import SinkOptions
from streamsink.sinks.paimon.care.background import BackgroundCare
from streamsink.storage.s3 import S3FileIO
from streamsink.table.care.expire_partitions import PartitionRule, plan
from streamsink.table.commit.changes import Changes
from streamsink.table.history.retained import tags
from streamsink.table.table import is_table, open_table
from streamsink.testing.crashing import CrashingCalls
from tests.crash.letters_world import LettersWorld
from tests.crash.many_world import ManyWorld, check_complete
from tests.crash.world import World, memory_world
from tests.storage.memory_s3 import MemoryS3Calls
from tests.table.entries import commit

_THREAD = "streamsink-maintenance"
_FEW = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2", "manifest.merge-min-count": "3"}
ON = {"maintenance": True, "maintenance_interval_ms": 0, "table_options": _FEW, "restore": "restore-and-continue"}
ENDS = tuple(range(3, 33, 3))


class Beside(CrashingCalls):
    """Lets something happen before each call that the maintenance makes. begun, ended: of its thread's calls."""

    def __init__(self, inner, happens=lambda: None):
        super().__init__(inner)
        self.before_call = self._look
        self.asked = 0
        self._happens = happens

    def _look(self):
        if threading.current_thread().name.startswith(_THREAD):
            self.asked += 1
            self._happens()


def _table(world, path=None):
    return open_table(world.file_io(world.calls), path or world.driver.root, for_writing=False)


@pytest.mark.parametrize("way", [{}, {"publish": "async"}, {"publish_every_batches": 2}])
def test_snapshots_expire_while_a_query_runs(way):
    """By the table's own options; and the query's rows are all there."""
    world = memory_world(**ON, **way)
    world.run(Beside(world.calls), ENDS)
    assert world.ids() == list(range(ENDS[-1]))
    done = [event for event in world.driver.events if isinstance(event, Maintained)]
    expired = [number for event in done for number in event.snapshots]
    ids = _table(world).snapshots.ids()
    assert expired and sorted(expired) == list(range(1, ids[0])) and all(event.elapsed_ms > 0 for event in done)
    assert done[0].table == world.driver.root and done[0].application == "streamsink"


def test_it_runs_on_a_distant_store_too():
    """Its thread asks the store beside the one of the batches."""
    root = "s3://bucket/shop.db/orders"
    world = World(MemoryS3Calls(), root, make_io=lambda over: S3FileIO(over, IdSource().new_id, root), small=True, **ON)
    world.run(boundaries=ENDS)
    assert world.ids() == list(range(ENDS[-1])) and _table(world).snapshots.ids()[0] > 3


def test_nothing_is_done_without_the_option_or_before_something_is_published():
    """A start that finds nothing to do asks nothing."""
    for options, asks in (({"table_options": _FEW}, False), (ON, True)):
        world = memory_world(**options)
        calls = Beside(world.calls)
        world.run(calls, ())
        assert calls.asked == 0
        world.run(calls, (3,))
        assert bool(calls.asked) is asks


def test_no_batch_waits_for_it():
    """It hangs at its first call until all batches are done."""
    may_go = threading.Event()
    world = memory_world(**ON)
    calls = Beside(world.calls, lambda: may_go.wait(20))
    seen = []

    def told(event):
        seen.append(type(event).__name__)
        if seen[-1] == "CheckpointPublished" and seen.count("CheckpointPublished") == len(ENDS):
            assert calls.asked <= 1, "it has not gone on"
            may_go.set()

    world.driver.events = Told(told)
    world.run(calls, ENDS)
    assert world.ids() == list(range(ENDS[-1])) and may_go.is_set()


class Told(list):
    """A list of events that tells of each one."""

    def __init__(self, tell):
        super().__init__()
        self._tell = tell

    def append(self, event):
        super().append(event)
        self._tell(event)


@pytest.mark.parametrize("ends", [(3, 6, 9, 12), (3,)], ids=["at the next batch", "at the end"])
def test_its_error_ends_the_query(ends):
    """A consumer's file that cannot be read: nothing expires, and the query says why."""
    world = memory_world(**ON)
    world.run(boundaries=ends[:1])
    world.file_io(world.calls).make_dir(f"{world.driver.root}/consumer")
    world.file_io(world.calls).write(f"{world.driver.root}/consumer/consumer-c", b"{")
    with pytest.raises(Corrupt, match="consumer-c"):
        world.run(boundaries=(*ends, ends[-1] + 3))
    before = _table(world).snapshots.ids()
    assert before[0] == 1
    world.file_io(world.calls).delete(f"{world.driver.root}/consumer/consumer-c")
    world.run(boundaries=(*ends, ends[-1] + 3, ends[-1] + 6, ends[-1] + 9))
    assert world.ids() == list(range(ends[-1] + 9))


@pytest.mark.parametrize("failures", [2, 3])
def test_a_store_that_fails_now_and_then_does_not_end_the_query(failures):
    """Only when it fails several times in a row. What waits for the next publishing is done with it."""
    left, failed = list(range(failures)), threading.Semaphore(0)

    def happens():
        if left:
            left.pop()
            failed.release()
            raise OSError(errno.EIO, "injected")

    world = memory_world(**ON)
    world.run(boundaries=ENDS)
    for _ in range(8):
        commit(_table(world), Changes(), "another")
    care = BackgroundCare(world.file_io(Beside(world.calls, happens)), lambda: [world.driver.root], SinkOptions(**ON))
    care.check()
    for _ in range(failures):
        care.published()
        assert failed.acquire(timeout=20)
    care.published()
    while failures == 2 and _table(world).snapshots.ids()[0] < 10:
        threading.Event().wait(0.01)
    if failures == 3:
        with pytest.raises(OSError, match="injected"):
            care.stop()
        with pytest.raises(OSError, match="injected"):
            care.check()
    care.stop()
    assert care._thread is None or not care._thread.is_alive()


def test_a_thread_that_cannot_be_had_fails_no_batch(monkeypatch):
    """As while an interpreter ends. The next publishing begins it."""
    world = memory_world(**ON)
    world.run(boundaries=ENDS)
    care = BackgroundCare(world.file_io(world.calls), lambda: [world.driver.root], SinkOptions(**ON))

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        care.published()
    assert care._thread is None
    care.published()
    assert care._thread is not None
    care.stop()


@pytest.mark.parametrize("make", [ManyWorld, LettersWorld], ids=["many", "letters"])
def test_all_tables_of_a_query_are_looked_after(make):
    """Those that it has written, and that of its dead letters."""
    world, ends = make(**{key: value for key, value in ON.items() if key != "restore"}), (6, 9, 9, 14, 18)
    for n in range(len(ends)):
        world.run(boundaries=ends[: n + 1])
    check_complete(world.rows(), ends) if make is ManyWorld else world.check_complete(ends)
    events = world.driver.events if make is ManyWorld else world.events
    told = {event.table.rpartition("/")[2] for event in events if isinstance(event, Maintained)}
    assert told >= ({"rejected", "a"} if make is ManyWorld else {"rejected"}), "the others keep what they have"


def test_tags_are_made_by_the_query_or_by_nobody():
    """A table that asks its writers for tags is refused by a query that would make none."""
    options = _FEW | {"tag.automatic-creation": "process-time"}
    with pytest.raises(Misuse, match="maintenance=True") as refused:
        memory_world(table_options=options).run()
    assert refused.value.kind == "table.unsupported-option"
    world = memory_world(**ON | {"table_options": options})
    world.run(boundaries=ENDS)
    assert len(tags(_table(world))) == 1 and world.ids() == list(range(ENDS[-1]))


@pytest.mark.parametrize(
    "said",
    [
        {"snapshot.num-retained.min": "x"},
        {"changelog.time-retained": "9 d"},
        {"tag.automatic-creation": "process-time", "tag.creation-period": "weekly"},
        {"tag.default-time-retained": "never"},
        {"consumer.expiration-time": "soon"},
        {"partition.expiration-time": "7 d", "partition.expiration-check-interval": "x"},
    ],
    ids=str,
)
def test_options_that_maintenance_would_stop_at(said):
    """They are refused before anything is written, of one table and of several, new or there already."""
    option = list(said)[-1].split(".")[0]
    for world in (memory_world(**ON | {"table_options": said}), ManyWorld(**ON | {"table_options": said})):
        before = set(world.calls._names)
        with pytest.raises(Misuse, match=option):
            world.run()
        assert set(world.calls._names) == before
    world = memory_world(table_options=said if "tag.automatic-creation" not in said else {}, restore=ON["restore"])
    world.run(boundaries=(3,))
    if "tag.automatic-creation" not in said:
        world.driver.options = replace(world.driver.options, maintenance=True)
        with pytest.raises(Misuse, match=option):
            world.run(boundaries=(3, 6))
        assert world.ids() == [0, 1, 2]


def test_tags_by_period_without_maintenance_make_no_table():
    """Nobody would make them."""
    world = memory_world(table_options={"tag.automatic-creation": "process-time"})
    with pytest.raises(Misuse, match="maintenance=True"):
        world.run()
    assert not is_table(world.file_io(world.calls), world.driver.root)


@pytest.mark.parametrize("written_in", ["the same zone", "UTC"])
@pytest.mark.parametrize("zone", ["JST-9", "PST8", "UTC0"])
def test_rows_that_were_just_written_stay_in_every_time_zone(zone, written_in, monkeypatch):
    """Where the newest file of a partition tells its time. Formerly files said UTC while everybody, Paimon too, takes
    it for a local time: east of Greenwich rows were dropped hours too early, and with a short time at once. Files of
    that code are there still, and executors may be in UTC where the driver is not."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    if written_in == "UTC":
        monkeypatch.setattr(Clock, "local_ms", Clock.now_ms)
    try:
        options = {"partition.expiration-time": "1 h", "partition.expiration-strategy": "update-time"}
        world = memory_world(**ON | {"table_options": options}, partition_by=("part",))
        world.run(boundaries=ENDS)
        assert world.ids() == list(range(ENDS[-1]))
        table, rule = _table(world), PartitionRule.of("", options)
        made = [entry.file.creation_time for entry in table.manifests.entries_of(table.snapshots.latest())]
        now, hour = Clock().now_ms(), 3_600_000
        local = (datetime.now() - datetime(1970, 1, 1)).total_seconds() * 1000
        assert abs((now if written_in == "UTC" else local) - max(made)) < hour // 6
        assert not plan(table, rule, now + hour // 2).partitions
        assert plan(table, rule, now + 11 * hour).partitions
    finally:
        monkeypatch.undo()
        time.tzset()
