"""The table commit is safe between processes, right over foreign writers,
fenced where history has expired, and constant in cost."""

import collections

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Fenced, Misuse
from streamsink.faults import arm
from streamsink.storage.file_io import FileIO
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from tests.crash.world import memory_world


def _table(world):
    return open_table(FileIO(world.calls, IdSource().new_id), world.driver.root, for_writing=True)


def test_a_writer_that_slept_past_expiry_is_fenced_and_leaves_nothing():
    """Its snapshot number is free again because that snapshot has expired:
    to publish there would put the old table first."""
    world = memory_world()
    world.run(boundaries=(3,))
    sleeper = world.driver.start(FileIO(world.calls, IdSource().new_id), world.checkpoint)
    others = memory_world(application="other")
    others.calls = world.calls
    path = f"{world.driver.root}/snapshot"

    def while_it_sleeps(step):
        if step == "commit.before_publish":
            arm(None)
            others.run(boundaries=(3, 6, 9, 12))
            for expired in (1, 2, 3):
                FileIO(world.calls, IdSource().new_id).delete(f"{path}/snapshot-{expired}")

    world.checkpoint.ends.append(6)
    arm(while_it_sleeps)
    try:
        with pytest.raises(Fenced) as caught:
            sleeper.batch(world.driver.describe(world.checkpoint, 1))
    finally:
        arm(None)
    assert caught.value.kind == "writer.fenced-expired"
    assert _table(world).snapshots.ids() == [4, 5]
    assert world.calls.read(f"{path}/LATEST") == b"5"


@pytest.mark.parametrize(
    "damage, kind",
    [
        (("snapshot/snapshot-1", b"{"), "snapshot.corrupt"),
        (("schema/schema-0", b"not json"), "schema.corrupt"),
        (("manifest-list", None), "manifest.missing"),
        (("manifest-list", b"Obj"), "manifest.corrupt"),
        (("manifest", b"Obj\x01torn"), "manifest.corrupt"),
    ],
)
def test_damaged_metadata_is_refused_by_the_name_of_its_file(damage, kind):
    """A file of the table is torn, altered or missing: the error names it, and nothing is written over it."""
    world = memory_world()
    world.run(boundaries=(3,))
    what, content = damage
    path = _path_of(world, what)
    if content is None:
        world.calls.unlink(path)
    else:
        world.calls._names[path].data = content
    with pytest.raises(Corrupt) as caught:
        world.ids()
    assert caught.value.kind == kind
    assert path.rsplit("/", 1)[-1] in str(caught.value)


def _path_of(world, what):
    root = world.driver.root
    if "/" in what:
        return f"{root}/{what}"
    table = _table(world)
    snapshot = table.snapshots.latest()
    if what == "manifest-list":
        return f"{root}/manifest/{snapshot.delta_manifest_list}"
    return f"{root}/manifest/{table.manifests.delta_of(snapshot)[0].file_name}"


def test_a_rollback_under_a_running_query_is_an_error_and_can_be_mended():
    """The newest snapshots are gone, and the next batch says so. With the option the journal publishes them again."""
    for option, mended in (("fail", False), ("republish", True)):
        world = memory_world(on_rollback=option, journal_retain=10)
        world.run(boundaries=(3, 6, 9))
        io = FileIO(world.calls, IdSource().new_id)
        for gone in (2, 3):
            io.delete(f"{world.driver.root}/snapshot/snapshot-{gone}")
        io.replace(f"{world.driver.root}/snapshot/LATEST", b"1", "x")
        if not mended:
            with pytest.raises(Misuse, match="on_rollback='republish'") as caught:
                world.run(boundaries=(3, 6, 9, 12))
            assert caught.value.kind == "table.rolled-back"
            assert world.ids() == [0, 1, 2]
            continue
        _delete_files_of_the_lost_snapshots(world)
        world.run(boundaries=(3, 6, 9, 12))
        assert world.ids() == list(range(12))


def test_a_rollback_is_mended_by_the_running_query_itself():
    """There is no restart in between: the next batch publishes the lost ones again, under lists with new names."""
    world = memory_world(on_rollback="republish", journal_retain=10)
    sink = world.driver.start(FileIO(world.calls, IdSource().new_id), world.checkpoint)
    world.checkpoint.ends = [3, 6, 9, 12]
    for batch_id in range(3):
        sink.batch(world.driver.describe(world.checkpoint, batch_id))
    io = FileIO(world.calls, IdSource().new_id)
    for gone in (2, 3):
        io.delete(f"{world.driver.root}/snapshot/snapshot-{gone}")
    sink.batch(world.driver.describe(world.checkpoint, 3))
    assert world.ids() == list(range(12))


def _delete_files_of_the_lost_snapshots(world):
    """Paimon's own rollback deletes the data files and manifests of the snapshots that it removes."""
    io = FileIO(world.calls, IdSource().new_id)
    table = _table(world)
    kept = {entry.file.file_name for entry in table.manifests.entries_of(table.snapshots.latest())}
    kept |= {meta.file_name for meta in table.manifests.all_of(table.snapshots.latest())}
    doomed = [
        path
        for path in list(world.calls._names)
        if "/streamsink/" not in path
        and path.rsplit("/", 1)[-1].startswith(("data-", "manifest-"))
        and "manifest-list" not in path
        and path.rsplit("/", 1)[-1] not in kept
    ]
    assert len(doomed) >= 4, "data files and manifests of two batches"
    for path in doomed:
        io.delete(path)


def test_a_hint_never_goes_back():
    """A slow writer that sets LATEST after a faster one must not send readers to an old snapshot."""
    world = memory_world()
    world.run(boundaries=(3, 6))
    snapshots = _table(world).snapshots
    snapshots.move_hint(1, "x")
    assert world.calls.read(f"{world.driver.root}/snapshot/LATEST") == b"2"


def test_a_replay_costs_a_few_reads_and_writes_nothing():
    """No file is opened for writing when the last batch comes again."""
    world = memory_world()
    world.run(boundaries=(3, 6))
    calls = CrashingCalls(world.calls)
    sink = world.driver.start(FileIO(calls, IdSource().new_id), world.checkpoint)
    before = len(calls.log)
    sink.batch(world.driver.describe(world.checkpoint, 1))
    done = collections.Counter(calls.log[before:])
    assert set(done) <= {"read", "size"} and sum(done.values()) < 15
    assert world.ids() == list(range(6))
