"""Which files in the folders of a table belong to a commit, as their names say;
and that nothing is deleted that anything retained names."""

import dataclasses
import json
import uuid

import pytest

from streamsink.clock import IdSource
from streamsink.commands.verify import verify
from streamsink.format.snapshot import Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.table.history import leftovers
from streamsink.testing.memory import MemoryCalls
from tests.crash.world import World, die_at_step, memory_world
from tests.table.entries import new_table
from tests.table.foreign import Prepared


def test_all_files_of_a_commit_s_tries_are_found_and_no_others(rng):
    """Lists, manifests, index manifests and temporary files of each attempt are found,
    among files of commits that were not asked for."""
    table = new_table(MemoryCalls())
    names = [str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(60)]
    manifest_dir, snapshot_dir = table.layout.manifest_dir, table.layout.snapshot_dir
    made = {}
    for name in names:
        tries = [f"{name}-{rng.getrandbits(32):08x}-{attempt}" for attempt in (1, 2)]
        made[name] = {
            path
            for one in tries
            for path in (
                f"{manifest_dir}/manifest-list-{one}-0",
                f"{manifest_dir}/manifest-list-{one}-1",
                f"{manifest_dir}/manifest-{one}-d",
                f"{manifest_dir}/manifest-{one}-m0",
                f"{manifest_dir}/index-manifest-{one}",
                f"{snapshot_dir}/.snapshot-{rng.randint(1, 99)}.{one}.tmp",
                f"{snapshot_dir}/.LATEST.{one}.tmp",
            )
        }
    others = [
        f"{manifest_dir}/manifest-{names[0][:-1]}x-0",
        f"{manifest_dir}/data-{names[0]}",
        f"{snapshot_dir}/snapshot-1",
    ]
    for path in [path for paths in made.values() for path in paths] + others:
        table.file_io.write(path, b"")
    asked = rng.sample(names, 20) + [str(uuid.uuid4())]
    found = leftovers.look(table, asked)
    assert {name: set(paths) for name, paths in found.items()} == {name: made[name] for name in asked[:-1]}
    assert all(len(paths) == len(set(paths)) for paths in found.values()), "a file is named twice"


def test_the_index_manifest_of_a_try_is_not_the_one_of_the_tenth_try():
    """The name of a try is the beginning of the name of another one, and the name of an index manifest ends with it."""
    world = _dead_before_the_mark()
    name = _opened(world).snapshots.latest().base_manifest_list
    of_try = name.removeprefix("manifest-list-").removesuffix("-0")
    root, io = world.driver.root, _io(world)
    for left in (of_try, f"{of_try}0"):
        io.write(f"{root}/manifest/index-manifest-{left}", b"")
    world.run(boundaries=_BATCHES)
    assert [file for file in io.names(f"{root}/manifest") if file.startswith("index-")] == [f"index-manifest-{of_try}"]


# The commit of batch 3 merges the manifests of the three before it.
_MERGING = {"table_options": {"manifest.merge-min-count": "3"}}
_BATCHES = (3, 6, 9, 12)


def _io(world):
    return FileIO(world.calls, IdSource().new_id)


def _dead_before_the_mark(published: bool = True) -> World:
    """Batches 0 to 2 are done.
    The driver is killed in batch 3, right after publishing (before the mark) or right before it."""
    world = memory_world(**_MERGING)
    world.run(boundaries=_BATCHES[:3])
    assert die_at_step("commit.published" if published else "commit.before_publish", 1, world, boundaries=_BATCHES)
    return world


def _copy(world, source: str, target: str, **more) -> None:
    """Paimon's tags and branches begin as copies of a snapshot file, with fields of their own."""
    root, io = world.driver.root, _io(world)
    value = {**json.loads(io.read(f"{root}/{source}")), **more}
    io.make_dir(f"{root}/{target}".rpartition("/")[0])
    io.write(f"{root}/{target}", json.dumps(value).encode())


def _readable_through(world, path: str) -> bool:
    """Whether everything is there that this copy of a snapshot names."""
    root, io = world.driver.root, _io(world)
    snapshot = Snapshot.from_json(io.read(f"{root}/{path}"), path)
    lists = [f"{root}/manifest/{name}" for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list)]
    table = _opened(world)
    return all(io.exists(path) for path in lists) and all(
        io.exists(f"{root}/manifest/{meta.file_name}")
        for meta in table.manifests.base_of(snapshot) + table.manifests.delta_of(snapshot)
    )


def _opened(world):
    from tests.table.test_commit import _table

    return _table(world)


@pytest.mark.parametrize("streaming", [True, False], ids=["streamsink", "foreign"])
def test_merged_manifests_that_a_snapshot_built_on_a_replaced_one_names_stay(streaming):
    """The driver is killed before the mark, another writer builds on the snapshot, and a rename replaces it. The
    restart's sweep leaves the table whole."""
    world = memory_world(**_MERGING)
    world.run(boundaries=_BATCHES[:3])
    replacing = Prepared(world)
    assert die_at_step("commit.published", 1, world, boundaries=_BATCHES)
    merged = [meta.file_name for meta in _opened(world).manifests.base_of(_opened(world).snapshots.latest())]
    assert any(name.endswith("-m0") for name in merged)
    if streaming:
        third = World(world.calls, world.driver.root, application="third", table_options={})
        third.run(boundaries=(2,))
    else:
        third = Prepared(world, 1)
        third.snapshot = dataclasses.replace(third.snapshot, properties=_opened(world).snapshots.latest().properties)
        third.rename()
    replacing.rename()
    _io(world).replace(f"{world.driver.root}/snapshot/LATEST", b"5", "x")
    before = world.ids()
    world.run(boundaries=_BATCHES)
    assert world.ids() == before
    report = verify(_io(world), world.driver.root)
    assert [f for f in report.findings if f.kind.startswith(("file.", "manifest."))] == [], str(report)


@pytest.mark.parametrize(
    "holder",
    ["tag/tag-kept", "changelog/changelog-4", "branch/branch-b/snapshot/snapshot-4", "branch/branch-b/tag/tag-kept"],
)
def test_what_a_tag_a_changelog_or_a_branch_names_stays(holder):
    """The snapshot is published, its driver killed before the mark, the snapshot is held by another name and rolled
    back. The restart publishes it again, and the copy is readable."""
    world = _dead_before_the_mark()
    _copy(world, "snapshot/snapshot-4", holder, tagCreateTime=[2026, 11, 22, 1, 2, 3, 4], tagTimeRetained=86400)
    for name in ("snapshot-4", "LATEST"):
        _io(world).delete(f"{world.driver.root}/snapshot/{name}")
    world.run(boundaries=_BATCHES)
    assert world.ids() == list(range(12))
    assert _readable_through(world, holder)


def test_what_nothing_names_goes_although_there_are_tags_and_branches():
    """These are of other snapshots, before and after."""
    world = _dead_before_the_mark(published=False)
    left = world.unknown_files()
    assert left
    for holder in ("tag/tag-kept", "branch/branch-b/snapshot/snapshot-3"):
        _copy(world, "snapshot/snapshot-3", holder)
    world.run(boundaries=_BATCHES)
    assert world.unknown_files() == []


@pytest.mark.parametrize("damage", [b"{", b""], ids=["torn", "empty"])
def test_a_tag_that_cannot_be_read_keeps_everything_and_stops_nobody(damage):
    """Nobody knows what it names: nothing is deleted, and the restart goes on."""
    world = _dead_before_the_mark(published=False)
    left = [name for name in world.unknown_files() if name.startswith("manifest-list-")]
    assert left
    io = _io(world)
    io.make_dir(f"{world.driver.root}/tag")
    io.write(f"{world.driver.root}/tag/tag-torn", damage)
    world.run(boundaries=_BATCHES)
    assert world.ids() == list(range(12))
    assert set(left) <= set(world.unknown_files())
