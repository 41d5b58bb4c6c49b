"""How often a batch waits for the disk: once for what its record names and says, once for what its snapshot names and
says, and once for each of the two names."""

from streamsink.clock import IdSource
from streamsink.storage.file_io import FileIO
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import SparkCheckpoint
from tests.crash.world import memory_world
from tests.protocol.query import QUERY

_BEFORE = 3  # After so many batches everything is as in all batches that follow.


class _Waits(CrashingCalls):
    """What is made durable, in order: a list for what is begun together, a text for what is waited for alone."""

    def __init__(self, inner, root):
        super().__init__(inner)
        self._root = root
        self.waits: list = []
        self._group: list[str] | None = None

    def at_once(self, actions):
        self._group = []
        super().at_once(actions)
        self.waits.append(sorted(self._group))
        self._group = None

    def _durable(self, what):
        (self.waits if self._group is None else self._group).append(what)

    def close(self, stream, flush):
        super().close(stream, flush)
        if flush:
            self._durable("file")

    def sync_dir(self, path):
        super().sync_dir(path)
        self._durable(path.removeprefix(self._root + "/"))


def test_a_batch_waits_four_times():
    """It waits for the file, the manifest and the record's bytes; for the record's name; for the lists, the snapshot's
    bytes and final names; and for the snapshot's name."""
    world = memory_world(table_options={"manifest.merge-min-count": "1000"})
    calls = _Waits(world.calls, world.driver.root)
    sink = world.driver.start(FileIO(calls, IdSource().new_id), SparkCheckpoint(QUERY))
    ends = list(range(1, _BEFORE + 2))
    for batch_id in range(len(ends)):
        calls.waits.clear()
        sink.batch(world.driver.describe(SparkCheckpoint(QUERY, ends), batch_id))
    journal = f"streamsink/{world.driver.options.application}"
    assert calls.waits == [
        ["file", "file", "file", f"{journal}/staging", f"{journal}/staging/1-{len(ends)}"],
        journal,
        ["file", "file", "file", "manifest", "part=a/bucket-0"],
        "snapshot",
    ]


def test_the_folder_of_a_new_partition_is_durable_with_the_record():
    """It is made before the record and flushed by the same wait, so that a power failure leaves a record whose files
    can get their names. Later it costs nothing."""
    world = memory_world(table_options={"manifest.merge-min-count": "1000"})
    calls = _Waits(world.calls, world.driver.root)
    sink = world.driver.start(FileIO(calls, IdSource().new_id), SparkCheckpoint(QUERY))
    ends, first, asked = [1, 2, 3, 4, 5], [], []
    for batch_id in range(len(ends)):  # Their partitions are a, b, none, a, b.
        calls.waits.clear()
        before = calls.by_name
        sink.batch(world.driver.describe(SparkCheckpoint(QUERY, ends), batch_id))
        with_the_record = next(wait for wait in calls.waits if isinstance(wait, list))
        first.append({folder for folder in with_the_record if folder.startswith(("part=", world.driver.root))})
        asked.append(calls.by_name - before)
    made = [{world.driver.root, part} for part in ("part=a", "part=b", "part=__DEFAULT_PARTITION__")]
    assert first == [*made, set(), set()]
    assert {a["mkdir"] for a in asked[3:]} == {1} and not any(a["check_link"] for a in asked[3:]), (
        "a known partition was looked at"
    )
