"""What a restart with pending checkpoints asks of the store: a part for the table, and a part for each checkpoint."""

import collections
import os
from dataclasses import replace

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Conflict
from streamsink.journal.record_format import decode_record
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import SparkCheckpoint
from tests.crash.world import die_at_step, memory_world
from tests.protocol.query import QUERY
from tests.table.entries import commit

_NO_MERGE = {"manifest.merge-min-count": "1000"}


class _Counting(CrashingCalls):
    """Remembers which manifests and records were read and which folders were listed."""

    def __init__(self, inner):
        super().__init__(inner)
        self.manifests: collections.Counter[str] = collections.Counter()
        self.records: collections.Counter[str] = collections.Counter()
        self.listed: collections.Counter[str] = collections.Counter()

    def read(self, path):
        name = os.path.basename(path)
        if name.startswith("manifest-") and not name.startswith("manifest-list-"):
            self.manifests[name] += 1
        self.records[name] += name.startswith("record-")
        return super().read(path)

    def names(self, path):
        self.listed[os.path.basename(path)] += 1
        return super().names(path)


def _run(world, ends, first):
    """Write batches of one row from ``first`` on; then the driver dies."""
    sink = world.driver.start(FileIO(CrashingCalls(world.calls), IdSource().new_id), SparkCheckpoint(QUERY))
    for batch_id in range(first, len(ends)):
        sink.batch(world.driver.describe(SparkCheckpoint(QUERY, ends), batch_id))
    world.die()


def _with_pending(snapshots, pending):
    """A table of so many snapshots, and so many checkpoints that are recorded and not published."""
    world = memory_world(restore="restore-and-continue", table_options=_NO_MERGE)
    plain = world.driver.options
    ends = list(range(1, snapshots + pending + 1))
    _run(world, ends[:snapshots], 0)
    world.driver.options = replace(plain, publish_every_batches=pending + 1)
    _run(world, ends, snapshots)
    world.driver.options = plain
    assert len(world.ids()) == snapshots
    return world


def _restart(world, calls):
    world.driver.start(FileIO(calls, IdSource().new_id), SparkCheckpoint(QUERY)).close()


def test_a_restart_costs_a_part_for_the_table_and_a_part_for_each_pending_checkpoint():
    """Calls and manifests read grow as a(snapshots) + b * pending.
    No manifest of the table is read for a second checkpoint."""
    found = {}
    for snapshots in (20, 60):
        for pending in (5, 10):
            world = _with_pending(snapshots, pending)
            calls = _Counting(world.calls)
            old = {e.name for e in FileIO(world.calls, IdSource().new_id).entries(f"{world.driver.root}/manifest")}
            _restart(world, calls)
            assert world.ids() == list(range(snapshots + pending)) and world.unknown_files() == []
            # The first and the last are read once more, to look for the names of data files; and the folder is listed
            # once more, to see that every manifest is there.
            assert sorted(calls.manifests[name] for name in calls.manifests if name in old) == [1] * (snapshots - 2) + [
                2,
                2,
            ]
            assert calls.listed["manifest"] == 2
            found[snapshots, pending] = calls.by_name, sum(calls.manifests.values())
            print(
                f"{pending} pending at {snapshots} snapshots: {calls.count} calls, {sum(calls.manifests.values())} "
                "manifests read"
            )
    for snapshots in (20, 60):
        (few, few_read), (many, many_read) = found[snapshots, 5], found[snapshots, 10]
        each = found[20, 10][0] - found[20, 5][0]
        assert each["sync_dir"] == 2 * 5, (
            "a record more costs the syncs of the manifest folder and of the snapshot folder"
        )
        assert many - few == each and few - many == collections.Counter(), (
            "what one more checkpoint costs depends on the table"
        )
        assert many_read - few_read == found[20, 10][1] - found[20, 5][1]
    fewer, more = found[20, 10], found[60, 10]
    assert more[0] - fewer[0] == collections.Counter(read=40), "a snapshot more costs one read"
    assert more[1] - fewer[1] == 40


def test_a_file_that_another_writer_adds_in_the_middle_of_a_restart_is_refused():
    """Three checkpoints are pending.
    Before the third one is published somebody adds its file: what was read for the first one does not hide that."""
    world = _with_pending(4, 3)
    table = open_table(FileIO(world.calls, IdSource().new_id), world.driver.root, for_writing=True)
    calls = CrashingCalls(world.calls)

    def add_the_third() -> None:
        newest = table.snapshots.latest()
        if newest.id == 6:
            calls.before_call = lambda: None
            path = f"{world.driver.root}/streamsink/streamsink/record-7.json"
            its_manifest = decode_record(table.file_io.read(path), path).payload["manifest"]["final"]
            table.file_io.write(
                f"{table.layout.manifest_dir}/manifest-copy", table.file_io.read(table.layout.within(its_manifest))
            )
            commit(table, Changes(tuple(table.manifests.read("manifest-copy"))), user="foreign")

    calls.before_call = add_the_third
    with pytest.raises(Conflict, match="already in the map"):
        _restart(world, calls)
    assert table.snapshots.latest().id == 7 and len(table.states.read(table.snapshots.latest()).by_application) == 1


def test_a_pending_record_is_read_once():
    """The newest one is an exception: by it the journal tells whose it is."""
    world, ends = memory_world(restore="restore-and-continue", publish_every_batches=100), tuple(range(3, 33, 3))
    assert die_at_step("precommit.saved", len(ends), world, boundaries=ends)
    calls = _Counting(world.calls)
    world.run(calls, boundaries=ends)
    assert {calls.records[f"record-{number}.json"] for number in range(1, len(ends))} == {1}
