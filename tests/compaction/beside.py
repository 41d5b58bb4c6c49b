"""A table with small files, a compaction that can die at each of its calls, and what others do at the same time."""

from collections import Counter
from collections.abc import Callable

from streamsink.clock import IdSource
from streamsink.compaction.compactor import By, Compactor
from streamsink.compaction.plan import pack_all
from streamsink.errors import Corrupt
from streamsink.storage.file_io import DistantFileIO
from streamsink.storage.s3 import S3FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.read.scan import data_file_path, read_arrow
from streamsink.table.table import Table, open_table
from streamsink.testing.memory import MemoryCalls
from tests.crash.world import World, memory_world
from tests.storage.memory_s3 import MemoryS3Calls
from tests.table.entries import ROOT, commit, part

# Batches before the compaction, and with the one that others add beside it.
BEFORE = (6, 9, 14)
BESIDE = (*BEFORE, 20)


S3 = "s3://bucket/shop.db/orders"


def small_files(store: str = "disk", **settings) -> World:
    """Three batches in three partitions: nine small files. store: also "s3", or "distant" for one that renames."""
    settings = {"restore": "restore-and-continue", **settings}
    if store == "s3":
        s3 = MemoryS3Calls()
        world = World(s3, S3, make_io=lambda over: S3FileIO(over, IdSource().new_id, S3), **settings)
    elif store == "distant":
        far = MemoryCalls()
        world = World(far, ROOT, make_io=lambda over: DistantFileIO(over, IdSource().new_id), **settings)
    else:
        world = memory_world(**settings)
    world.run(boundaries=BEFORE)
    return world


def opened(world, calls=None) -> Table:
    return open_table(world.file_io(calls or world.calls), world.driver.root, for_writing=True)


def compact(world, calls=None, *, abandoned_ms: int = 0, packing=pack_all, by=By(), **given) -> Compactor:
    """One compaction over these calls, written by these. It takes what other compactions have left for abandoned."""
    compactor = Compactor(opened(world, calls), world.driver.options, abandoned_ms=abandoned_ms, **given)
    compactor.settle()
    compactor.do(compactor.plan(packing), by)
    return compactor


def compact_beside(world, others: Callable[[], object]) -> Compactor:
    """One compaction; between its rewriting and its commit others do this."""
    compactor = Compactor(opened(world), world.driver.options)
    compactor.settle()
    tasks, real = compactor.plan(pack_all), compactor._publish

    def publish(attempt, done, **how):
        others()
        real(attempt, done, **how)

    compactor._publish = publish
    compactor.do(tasks)
    return compactor


def settled(world) -> None:
    """Others commit, so that the numbers of dead tries are taken, and then what they have left is swept."""
    compact(world)
    world.run(boundaries=(*world.checkpoint.ends, world.checkpoint.ends[-1] + 3))
    compact(world)
    Compactor(opened(world), world.driver.options, abandoned_ms=0).settle()


def files_of(world) -> Counter:
    """How many live files each partition has."""
    table = opened(world)
    return Counter(entry.partition for entry in table.manifests.entries_of(table.snapshots.latest()))


def ids_of(world, snapshot_id: int) -> list[int]:
    return sorted(read_arrow(opened(world), snapshot_id).column("id").to_pylist())


def left(world) -> list[str]:
    """What compactions have left: announcements, notes, and files that nothing names."""
    names = world.file_io(world.calls).names(f"{world.driver.root}/streamsink")
    unknown = [name for name in world.unknown_files() if not name.startswith(".probe-")]
    return [*(name for name in names if "compact-" in name), *unknown]


# -- what others do -------------------------------------------------------------------------------------------------


def stream_goes_on(world) -> None:
    world.run(boundaries=BESIDE)


def overwritten(world) -> None:
    """Another application replaces the partition 'a'."""
    settings = {"mode": "overwrite", "overwrite_partition": {"part": "a"}, "restore": "restore-and-continue"}
    other = World(world.calls, world.driver.root, application="other", **settings)
    rows = other.driver.rows
    other.driver.rows = lambda start, end: rows(1002, 1003)  # which is in this partition
    other.run(boundaries=(3,))


def expired(world) -> None:
    """All snapshots but the newest one, and each data file that only they name, as Paimon's expiry does."""
    table = opened(world)
    newest, schema, io = table.snapshots.latest(), table.latest_schema(), table.file_io
    kept = {e.file.file_name for e in table.manifests.entries_of(newest)}
    gone = {}
    for number in table.snapshots.ids()[:-1]:
        for entry in table.manifests.entries_of(table.snapshots.load(number)):
            if entry.file.file_name not in kept:
                gone[data_file_path(table, schema, entry)] = None
    for path in gone:
        io.delete(path)
    lists = _lists_of(table, newest)
    for number in table.snapshots.ids()[:-1]:
        for name in _lists_of(table, table.snapshots.load(number)) - lists:
            io.delete(table.layout.manifest(name))
    for number in table.snapshots.ids()[:-1]:
        io.delete(table.snapshots.path(number))
    io.replace(table.layout.earliest_hint, str(newest.id).encode(), IdSource().new_id())


def _lists_of(table: Table, snapshot) -> set[str]:
    """Names of its lists, and of the manifests in them."""
    try:
        metas = table.manifests.base_of(snapshot) + table.manifests.delta_of(snapshot)
    except Corrupt:
        return set()  # a list that several snapshots share is gone already
    return {snapshot.base_manifest_list, snapshot.delta_manifest_list, *(meta.file_name for meta in metas)}


def dropped_with_its_folder(world) -> None:
    """The partition 'a' is dropped, and goes with its folder when the snapshots before expire."""
    table = opened(world)
    live = table.manifests.entries_of(table.snapshots.latest())
    commit(table, Changes(tuple(e.deleting for e in live if e.partition == part("a"))), kind="OVERWRITE")
    expired(world)
    for folder in ("part=a/bucket-0", "part=a"):
        table.file_io.delete_empty_folder(table.layout.within(folder))


def rolled_back(world) -> None:
    """To snapshot 2, with what only the later ones name, as Paimon does."""
    table = opened(world)
    schema, io = table.latest_schema(), table.file_io
    kept = {e.file.file_name for n in (1, 2) for e in table.manifests.entries_of(table.snapshots.load(n))}
    for number in [n for n in table.snapshots.ids() if n > 2][::-1]:
        snapshot = table.snapshots.load(number)
        paths = [
            data_file_path(table, schema, e)
            for e in table.manifests.entries_of(snapshot)
            if e.file.file_name not in kept
        ]
        io.delete(table.snapshots.path(number))
        io.replace(table.layout.latest_hint, str(number - 1).encode(), IdSource().new_id())
        for path in paths:
            io.delete(path)


def compacted_by_others(world) -> None:
    """Another compaction of ours, in another process, which does not take this one for dead."""
    compactor = Compactor(opened(world), world.driver.options)
    compactor.settle()
    compactor.do(compactor.plan(pack_all))


def stream_goes_on_and_all_expires(world) -> None:
    """The number at which the compaction wants to commit is taken, and free again."""
    stream_goes_on(world)
    expired(world)


def takes_it_for_dead(world) -> None:
    """Another compaction, which sweeps whatever it may."""
    compact(world)


def foreign_append(world) -> None:
    """Another application commits a row."""
    other = World(world.calls, world.driver.root, application="other", restore="restore-and-continue")
    rows = other.driver.rows
    other.driver.rows = lambda start, end: rows(1002, 1003)
    other.run(boundaries=(1,))
