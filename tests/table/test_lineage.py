"""Snapshots that stand among those of a table although its newest one does not descend from them:
what they name is not in the table for that."""

import dataclasses
import itertools

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Conflict, Corrupt
from streamsink.format.manifest import write_manifest
from streamsink.format.manifest_list import ManifestFileMeta, write_manifest_list
from streamsink.sinks.paimon.past.records import manifest_meta
from streamsink.table.history.lineage import is_built_on, is_same_whatever_both_have
from streamsink.table.table import open_table
from tests.crash.two_tables import ENDS, TwoTables, X
from tests.crash.world import BOUNDARIES, die_at_step, expected, memory_world
from tests.protocol.history import expire_before, io_of, roll_back_to
from tests.table.foreign import Prepared, compact, rewritten


def _put(table, number: int, snapshot) -> None:
    """Put a snapshot over whatever has its number, as a writer's rename does."""
    table.file_io.replace(
        table.snapshots.path(number), dataclasses.replace(snapshot, id=number).to_json(), IdSource().new_id()
    )
    table.file_io.replace(table.layout.latest_hint, str(max(table.snapshots.ids())).encode(), IdSource().new_id())


def _table(world):
    return open_table(io_of(world), world.driver.root, for_writing=False)


@pytest.mark.parametrize("is_expired", [False, True], ids=["whole", "expired"])
@pytest.mark.parametrize("step", ["commit.published", "commit.marked"], ids=["not marked", "marked"])
def test_a_compaction_that_lost_its_line_proves_nothing(is_expired, step):
    """The compaction had rewritten our files when another writer's rename replaced ours, and replaced itself a third
    writer's snapshot, on which a fourth one had built. Its delta names our files, and they are not in the table.
    Formerly they were taken for published, and were lost."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:1])
    replacing = Prepared(world)
    assert die_at_step(step, 1, world, boundaries=BOUNDARIES[:2])
    compact(world)
    compaction = _table(world).snapshots.load(3)
    _table(world).file_io.delete(_table(world).snapshots.path(3))
    replacing.rename()
    others = [replacing]
    for number in (1, 2):
        others.append(Prepared(world, number))
        others[-1].rename()
    _put(_table(world), 3, compaction)
    if is_expired:
        expire_before(_table(world), 2)
    world.run()
    assert world.ids() == expected() + [i for each in others for i in each.ids]


def _lists(table, base, delta) -> dict:
    """The names and sizes of a snapshot's manifest lists, which have these manifests."""
    found = {}
    for kind, metas in (("base", base), ("delta", delta)):
        name, data = f"manifest-list-{IdSource().new_id()}-0", write_manifest_list(metas)
        table.file_io.write(table.layout.manifest(name), data)
        found |= {f"{kind}_manifest_list": name, f"{kind}_manifest_list_size": len(data)}
    return found


def _another_on(table, snapshot, number: int, *, delta=()) -> None:
    """A writer's snapshot that is built on this one and takes the place of the one with that number.
    delta: manifests that it adds."""
    other = dataclasses.replace(
        snapshot,
        properties=None,
        commit_user="another",
        uuid=f"of-another-{number}",
        **_lists(table, table.manifests.all_of(snapshot), delta),
    )
    _put(table, number, other)


@pytest.mark.parametrize("is_expired", [False, True], ids=["whole", "expired"])
@pytest.mark.parametrize("line", ["lost", "kept", "unknown"])
def test_one_of_several_tables_and_a_line_of_snapshots(line, is_expired):
    """Our snapshot 2 was replaced, and snapshot 3, which was built on ours, rewrites our files. line: whether the
    newest snapshot is built on that; or, because two in a row were replaced, nobody knows."""
    world = TwoTables()
    world.run(boundaries=ENDS[:1])
    assert die_at_step("commit.published", 1, world, boundaries=ENDS[:2])
    table = world.table(X)
    first, ours = table.snapshots.load(1), table.snapshots.load(2)
    mine = table.manifests.delta_of(ours)
    _another_on(table, first, 2)
    _another_on(table, ours, 3, delta=[_rewriting(table, mine)])
    _another_on(table, table.snapshots.load(3 if line == "kept" else 2), 4)
    if line == "unknown":
        _another_on(table, ours, 5)
        _another_on(table, first, 6)
    if is_expired:
        expire_before(table, 2)
    if line == "unknown":
        with pytest.raises(Conflict) as told:
            world.run(boundaries=ENDS)
        assert told.value.kind == "snapshot.replaced-undecidable" and table.root in str(told.value)
        return
    world.run(boundaries=ENDS)
    assert world.numbers() == list(range(ENDS[-1]))


def _rewriting(table, mine) -> ManifestFileMeta:
    """A manifest that replaces the rows of these manifests by the same rows under other names."""
    old = [entry for meta in mine for entry in table.manifests.read(meta.file_name)]
    entries = [entry.deleting for entry in old] + rewritten(table, old)
    name, data = f"manifest-{IdSource().new_id()}-0", write_manifest(entries)
    table.file_io.write(table.layout.manifest(name), data)
    return manifest_meta(table, {"final": name, "size": len(data)}, entries)


def test_what_stands_above_the_newest_snapshot_proves_nothing():
    """A rollback by hand has left a snapshot behind a hole.
    It names our files, which are not in the table. Formerly they were taken for published."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:1])
    table = _table(world)
    _another_on(table, table.snapshots.load(1), 2)
    assert die_at_step("commit.published", 1, world, boundaries=BOUNDARIES[:2])
    _another_on(table, table.snapshots.load(3), 4)
    _another_on(
        table, table.snapshots.load(4), 5, delta=[_rewriting(table, table.manifests.delta_of(table.snapshots.load(3)))]
    )
    kept = table.snapshots.load(5)
    roll_back_to(table, 2)
    table.file_io.write(table.snapshots.path(5), kept.to_json())
    expire_before(table, 2)
    with pytest.raises(Corrupt) as asked:
        world.run(boundaries=BOUNDARIES[:2])
    assert asked.value.kind == "journal.undecidable"


def test_manifests_that_two_snapshots_have_need_not_be_read():
    """Whatever they say of a file, the others lead to the same; tried with all that three sets of them can say."""
    said = list(itertools.product((False, True), repeat=2))  # (added, deleted) of one file

    def is_live(*sets) -> bool:
        return any(added for added, _ in sets) and not any(deleted for _, deleted in sets)

    certain = 0
    for one, other in itertools.product(said, repeat=2):
        named = ([{"file"} if is_named else set() for is_named in each] for each in (one, other))
        if is_same_whatever_both_have(*named):
            certain += 1
            assert all(is_live(one, third) == is_live(other, third) for third in said)
    assert certain >= len(said)


def test_what_a_snapshot_is_built_on_is_told_by_the_manifests_that_were_merged(monkeypatch):
    """Of a large table that a dead driver has left unchecked all manifests were read, which took seconds."""
    large = {"manifest.merge-min-count": "4", "manifest.target-file-size": "3 kb"}
    world = memory_world(restore="restore-and-continue", table_options=large)
    world.run(boundaries=range(1, 25))
    table, read = _table(world), []
    real = type(table.manifests)._bytes
    monkeypatch.setattr(type(table.manifests), "_bytes", lambda self, path: read.append(path) or real(self, path))
    merged = 0
    for number in table.snapshots.ids()[1:]:
        below, following = table.snapshots.load(number - 1), table.snapshots.load(number)
        found = table.manifests.all_of(below), table.manifests.base_of(following)
        names = [{meta.file_name for meta in metas} for metas in found]
        read.clear()
        assert is_built_on(table, following, below) is True
        named = {path.rpartition("/")[2] for path in read if "manifest-list" not in path}
        assert named == names[0] ^ names[1]
        merged += names[0] != names[1] and bool(names[0] & names[1])
        assert number < 3 or is_built_on(table, following, table.snapshots.load(number - 2)) is False
    assert merged
