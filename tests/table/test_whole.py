"""What a commit builds on exists: this is checked at each start, and for one manifest at each commit;
the way on that the error names works."""

import re

import pytest

import streamsink
from streamsink.clock import IdSource
from streamsink.commands.drop_missing import drop_missing
from streamsink.commands.verify import verify
from streamsink.errors import Corrupt, Misuse
from streamsink.storage.file_io import FileIO
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from tests.crash.test_names import _records
from tests.crash.world import World, expected, memory_world, posix_world
from tests.protocol.query import Query
from tests.storage.back_ends import ALL, REMOTE, back_end
from tests.table.foreign import Prepared

NO_MERGE = {"table_options": {"manifest.merge-min-count": "1000"}}
ENDS = (2, 4, 6, 8, 10, 12)


def _table(world):
    return open_table(world.file_io(world.calls), world.driver.root, for_writing=False)


def _manifests(world) -> list[str]:
    table = _table(world)
    return [table.layout.manifest(meta.file_name) for meta in table.manifests.all_of(table.snapshots.latest())]


def _take(world, path) -> bytes:
    io = world.file_io(world.calls)
    data = io.read(path)
    io.delete(path)
    return data


def _refused(world, kind, ends=ENDS) -> Corrupt:
    before = _records(world)
    with pytest.raises(Corrupt) as refused:
        world.run(boundaries=ends)
    assert refused.value.kind == kind, refused.value
    assert world.driver.root in str(refused.value) and _records(world) == before
    return refused.value


_EACH_STORE = [
    pytest.param(kind, marks=pytest.mark.in_turn(f"manifests on {kind}", 1)) if kind in REMOTE else kind for kind in ALL
]


@pytest.mark.parametrize("kind", _EACH_STORE)
@pytest.mark.parametrize("number", [0, 2, -1], ids=["first", "middle", "last"])
def test_a_start_finds_any_manifest_that_is_gone(kind, number, request):
    """It does so before anything is written. Once the manifest is put back the query goes on."""
    made = back_end(kind, request)
    world = World(made.calls, f"{made.root}/shop.db/orders", make_io=made.io, **NO_MERGE)
    world.run(boundaries=ENDS[:4])
    path = _manifests(world)[number]
    data = _take(world, path)
    assert path in str(_refused(world, "manifest.missing"))
    world.file_io(world.calls).write(path, data)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@pytest.mark.parametrize("which", ["base", "delta"])
def test_a_start_finds_a_list_that_was_cut(which):
    """The snapshot has the list's size."""
    world = memory_world(**NO_MERGE)
    world.run(boundaries=ENDS[:4])
    newest = _table(world).snapshots.latest()
    file = world.calls._names[f"{world.driver.root}/manifest/{getattr(newest, f'{which}_manifest_list')}"]
    file.data, whole = file.data[:-1], file.data
    _refused(world, "manifest.size")
    file.data = whole
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@pytest.mark.parametrize("settings", [{}, {"publish_every_batches": 2}], ids=["sync", "grouped"])
@pytest.mark.parametrize("number", range(4))
def test_a_running_query_finds_it_within_as_many_commits_as_there_are_manifests(number, settings):
    """Each commit looks at one manifest, in turn,
    so that nothing is committed for long on a table that nobody can read."""
    world = memory_world(**NO_MERGE, **settings)
    query = Query(world)
    for end in range(1, 5):
        query.batch(end)
    metas = _manifests(world)
    path = metas[number % len(metas)]
    data = _take(world, path)
    newest = _table(world).snapshots.latest().id
    with pytest.raises(Corrupt) as refused:
        for end in range(5, 30):
            query.batch(end)
    assert refused.value.kind == "manifest.missing" and path in str(refused.value)
    assert _table(world).snapshots.latest().id - newest <= 3 * len(metas)  # The rest of this pass, and the next one.
    world.file_io(world.calls).write(path, data)


def test_a_batch_asks_for_one_file_more():
    """It is one however many manifests there are."""
    costs = []
    for before in (3, 9):
        world = memory_world(**NO_MERGE)
        calls = CrashingCalls(world.calls)
        world.driver.background = None
        sink = world.driver.start(FileIO(calls, IdSource().new_id), world.checkpoint)
        world.checkpoint.ends = list(range(3, 3 * before + 6, 3))
        for batch_id in range(before):
            sink.batch(world.driver.describe(world.checkpoint, batch_id))
        asked = calls.by_name
        sink.batch(world.driver.describe(world.checkpoint, before))
        costs.append(calls.by_name - asked)
    assert costs[0] == costs[1]


# -- data files ----------------------------------------------------------------------------------------------------


def _data_files(world) -> list[str]:
    table = _table(world)
    folder = {entry.file.file_name: entry for entry in table.manifests.entries_of(table.snapshots.latest())}
    return sorted(p for p in world.calls._names if p.rsplit("/", 1)[-1] in folder and "/streamsink/" not in p)


def _drop(world, told):
    """Follow the error's advice to take missing files out of the table."""
    path = re.search(r"streamsink\.drop_missing\('([^']*)'\)", str(told))[1]
    return drop_missing(world.file_io(world.calls), path)


def test_a_start_finds_data_files_that_are_gone():
    """Someone removed a partition's folder by hand.
    The command takes what is gone out of the table, and the query goes on."""
    world = memory_world(**NO_MERGE)
    world.run(boundaries=ENDS[:4])
    for path in [p for p in _data_files(world) if "/part=b/" in p]:
        world.file_io(world.calls).delete(path)
    told = _refused(world, "data.missing")
    assert not verify(world.file_io(world.calls), world.driver.root).ok
    done = _drop(world, told)
    assert done.rows == 3 and done.files == 3 and "part=b" in str(done)
    assert _drop(world, told).files == 0  # Nothing is left to do.
    world.run(boundaries=ENDS)
    assert world.ids() == [n for n in range(12) if n % 3 != 1 or n >= 8]


def test_data_files_that_are_put_back_are_fine():
    """This is the other way on."""
    world = memory_world(**NO_MERGE)
    world.run(boundaries=ENDS[:4])
    table = _table(world)
    oldest = table.manifests.read(_manifests(world)[0].rsplit("/", 1)[-1])
    path = next(p for p in _data_files(world) if p.endswith(oldest[0].file.file_name))
    data = _take(world, path)
    assert path in str(_refused(world, "data.missing"))
    world.file_io(world.calls).write(path, data)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


def test_a_start_looks_at_a_bounded_number_of_data_files():
    """This holds however many there are."""
    asked = []
    for batches in (20, 60):
        world = memory_world(**NO_MERGE)
        world.run(boundaries=tuple(range(3, 3 * batches + 3, 3)))
        calls = CrashingCalls(world.calls)
        world.driver.start(FileIO(calls, IdSource().new_id), world.checkpoint).close()
        asked.append(calls.by_name)
    assert asked[0] == asked[1]


# -- no false alarm ------------------------------------------------------------------------------------------------


def test_files_that_another_writer_removes_rightly_meanwhile_are_no_alarm():
    """While the start looks, another writer commits, and what only older snapshots named expires: it looks again."""
    for at in range(1, 60):
        world = memory_world(**NO_MERGE)
        world.run(boundaries=ENDS[:2])
        prepared = Prepared(world)
        calls = CrashingCalls(world.calls)

        def replace(calls=calls, prepared=prepared, world=world) -> None:
            if calls.count + 1 == at:
                calls.before_call = lambda: None
                old = _table(world).snapshots.latest()
                prepared.rename()
                io = FileIO(world.calls, IdSource().new_id)
                for number in range(1, old.id + 1):
                    io.delete(f"{world.driver.root}/snapshot/snapshot-{number}")
                for name in (old.base_manifest_list, old.delta_manifest_list):
                    io.delete(f"{world.driver.root}/manifest/{name}")

        calls.before_call = replace
        world.driver.start(FileIO(calls, IdSource().new_id), world.checkpoint).close()
        if calls.before_call is replace:
            break  # A start makes fewer calls than that.
        assert world.ids() == list(range(4)) + prepared.ids, f"at call {at}"
    assert at > 20


def test_a_table_without_any_file_is_not_emptied_by_mistake(tmp_path):
    """A disk that is not mounted looks like such a table. Said expressly, it is done, through the public command."""
    world = posix_world(tmp_path)
    world.run(boundaries=ENDS[:2])
    for path in tmp_path.glob("shop.db/orders/part=*/bucket-0/*.parquet"):
        path.unlink()
    told = _refused(world, "data.missing")
    with pytest.raises(Misuse) as refused:
        streamsink.drop_missing(re.search(r"drop_missing\('([^']*)'\)", str(told))[1])
    assert refused.value.kind == "drop-missing.everything"
    assert streamsink.drop_missing(world.driver.root, everything=True).rows == 4
    world.run(boundaries=ENDS)
    assert world.ids() == list(range(4, 12))
