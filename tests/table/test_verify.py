"""verify names every damage, is silent about a whole table, and changes nothing."""

import contextlib
import dataclasses
import json

import pytest

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.commands.verify import verify
from streamsink.errors import Corrupt, Misuse
from streamsink.format.index_manifest import HASH_INDEX, IndexManifestEntry
from streamsink.format.manifest import FileKind
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.table import new_schema, open_table
from streamsink.testing.faults import InjectedCrash, arm, crash
from streamsink.testing.memory import MemoryCalls
from tests.crash.world import BOUNDARIES, World, die_at_step, memory_world
from tests.table.entries import ROOT, add, commit, index_file, new_table, part
from tests.table.foreign import Prepared


def _look(world: World):
    names = {path: file.data for path, file in world.calls._names.items()}
    report = verify(FileIO(world.calls, IdSource().new_id), world.driver.root)
    assert names == {path: file.data for path, file in world.calls._names.items()}, "verify changed something"
    return report


def _kinds(world, severity="damage"):
    return {f.kind for f in _look(world).findings if f.severity == severity}


def _path(world, start) -> str:
    return sorted(p for p in world.calls._names if p.startswith(f"{world.driver.root}/{start}"))[0]


def _edit(world, snapshot_id, **values):
    file = world.calls._names[f"{world.driver.root}/snapshot/snapshot-{snapshot_id}"]
    file.data = json.dumps({**json.loads(file.data), **values}).encode()


@pytest.mark.parametrize("settings", [{}, {"mode": "overwrite"}, {"on_rollback": "republish"}], ids=str)
def test_a_whole_table_is_ok(settings):
    """After appends, empty batches, merges and overwrites there is no damage, and the head line has the counts."""
    world = memory_world(**settings)
    world.run()
    report = _look(world)
    assert report.ok and report.snapshots == 4 and report.rows == len(world.ids()), str(report)
    assert "on_rollback" in settings or report.findings == ()
    assert str(report).startswith(f"{world.driver.root}: ok, 4 snapshots, ")


def test_an_empty_table_is_ok():
    table = new_table(MemoryCalls())
    assert str(verify(table.file_io, ROOT)) == f"{ROOT}: ok, 0 snapshots, 0 data files, 0 rows"


def _remove(start):
    return lambda world: world.calls.unlink(_path(world, start))


def _cut(start):
    def damage(world):
        file = world.calls._names[_path(world, start)]
        file.data = file.data[:-1]

    return damage


@pytest.mark.parametrize(
    "damage, kind",
    [
        (_remove("snapshot/snapshot-2"), "snapshot.hole"),
        (_cut("snapshot/snapshot-3"), "snapshot.corrupt"),
        (_remove("manifest/manifest-list-"), "file.missing"),
        (_cut("manifest/manifest-list-"), "file.size"),
        (_remove("manifest/manifest-"), "file.missing"),
        (_cut("part=a/bucket-0/data-"), "file.size"),
        (_remove("part=a/bucket-0/data-"), "file.missing"),
        (lambda w: _edit(w, 4, totalRecordCount=15), "count.total"),
        (lambda w: _edit(w, 4, deltaRecordCount=4), "count.delta"),
        (lambda w: w.calls._names.__setitem__(f"{w.driver.root}/snapshot/LATEST", _file(b"9")), "hint.future"),
        (_cut("streamsink/streamsink/record-"), "journal.corrupt"),
        (
            lambda w: [w.calls.unlink(f"{w.driver.root}/snapshot/{n}") for n in ("snapshot-4", "LATEST")],
            "checkpoint.rolled-back",
        ),
    ],
)
def test_each_damage_is_named(damage, kind):
    """The message names the file or the snapshot, and ``ok`` is false."""
    world = memory_world()
    world.run()
    damage(world)
    report = _look(world)
    assert not report.ok and kind in {f.kind for f in report.findings}, str(report)
    assert kind in str(report) and "DAMAGED" in str(report)


def _file(data):
    from streamsink.testing.memory import _File

    file = _File()
    file.data = data
    return file


def test_an_old_hint_is_only_a_note():
    world = memory_world()
    world.run()
    world.calls._names[f"{world.driver.root}/snapshot/LATEST"].data = b"2"
    assert _look(world).ok and _kinds(world, "note") == {"hint.old"}


def test_a_file_that_is_there_twice_is_named():
    """Two manifests have the same ADD: every reader sees its rows twice."""
    table = new_table(MemoryCalls())
    for _ in range(2):
        commit(table, Changes((add("a", part("x")),)))
    found = {f.kind for f in verify(table.file_io, ROOT).findings}
    assert "file.twice" in found


def test_a_missing_index_file_is_named():
    table = new_table(MemoryCalls())
    commit(table, Changes((), (IndexManifestEntry(FileKind.ADD, part("x"), 0, index_file("h1", HASH_INDEX)),)))
    found = [f.message for f in verify(table.file_io, ROOT).findings if f.kind == "file.missing"]
    assert len(found) == 1 and "index/h1" in found[0]


def test_a_hidden_foreign_commit_is_named():
    """Its rename came when our next snapshot was already published:
    snapshot 3 is built on ours, not on what is 2 now."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    prepared = Prepared(world)
    world.run()
    prepared.rename()
    report = _look(world)
    found = [f.message for f in report.findings if f.kind == "snapshot.not-derived"]
    assert (
        not report.ok
        and len(found) == 1
        and "snapshot 3" in found[0]
        and "foreign0" in found[0]
        and "3 files are hidden" in found[0]
    )
    assert "checkpoint.lost" not in _kinds(world)


def test_a_lost_checkpoint_is_named_until_it_is_published_again():
    """Our snapshot was replaced, and no batch has come since."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    prepared = Prepared(world)
    world.run(boundaries=BOUNDARIES[:2])
    prepared.rename()
    assert _kinds(world) == {"checkpoint.lost"}
    world.run()
    assert _look(world).ok and world.ids()[-3:] == prepared.ids


def test_what_is_pending_and_what_a_dead_batch_left_are_notes():
    world = memory_world()
    arm("precommit.saved", 2, crash)
    with pytest.raises(InjectedCrash):
        world.run()
    arm("write.staged", 1, crash)
    faults.arm(None)
    world.die()
    assert _look(world).ok and _kinds(world, "note") == {"checkpoint.pending"}
    world.calls.mkdir(f"{world.driver.root}/streamsink/streamsink/staging/9-9")
    world.calls.open_new(f"{world.driver.root}/streamsink/streamsink/staging/9-9/data-x.parquet").close()
    assert _kinds(world, "note") == {"checkpoint.pending", "staging.files"}


def test_what_is_pending_behind_a_record_that_is_gone_is_damage():
    """The next start cannot publish it, and says so."""
    world = memory_world(publish_every_batches=9)
    world.run(boundaries=BOUNDARIES[:1])
    assert die_at_step("precommit.saved", 2, world)
    world.calls.unlink(f"{world.driver.root}/streamsink/streamsink/record-2.json")
    assert _kinds(world) == {"journal.missing-record"} and "does not have record 2" in str(_look(world))
    with pytest.raises(Corrupt) as refused:
        world.run()
    assert refused.value.kind == "journal.missing-record"


@pytest.mark.parametrize("is_pending", [False, True])
def test_a_journal_of_a_table_that_was_dropped_is_a_note(is_pending):
    """A tool that drops a table leaves it.
    Nothing of the new table is damaged, and the application's next start says what to do."""
    world = memory_world()
    arm("precommit.saved", 2 if is_pending else 99, crash)
    with contextlib.suppress(InjectedCrash):
        world.run()
    faults.arm(None)
    world.die()
    io = FileIO(world.calls, IdSource().new_id)
    schema = open_table(io, world.driver.root, for_writing=True).latest_schema()
    for entry in io.entries(world.driver.root):
        if entry.name != "streamsink":
            io.delete_tree(f"{world.driver.root}/{entry.name}")
    io.create_new(
        f"{world.driver.root}/schema/schema-0", new_schema(schema.fields, (), {"of": "another table"}).to_json()
    )
    report = _look(world)
    assert report.ok and _kinds(world, "note") - {"staging.files"} == {"journal.other-table"}
    with pytest.raises(Misuse, match="remove the journal") as refused:
        world.run()
    assert refused.value.kind == "table.recreated"


def test_what_is_no_table_is_refused():
    with pytest.raises(Misuse) as caught:
        verify(FileIO(MemoryCalls(), IdSource().new_id), "/lake/none")
    assert caught.value.kind == "table.missing"


def test_a_report_is_a_value():
    """It is frozen, so that a program may keep it."""
    table = new_table(MemoryCalls())
    with pytest.raises(dataclasses.FrozenInstanceError):
        verify(table.file_io, ROOT).rows = 1
