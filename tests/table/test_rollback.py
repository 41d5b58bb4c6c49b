"""Rolling back on purpose: a new snapshot with the rows of the past, while streams go on, whatever dies when."""

import copy
import datetime
import itertools
import json
import os

import pyarrow as pa
import pytest

import streamsink
from streamsink import maintenance
from streamsink.clock import IdSource
from streamsink.commands.drop_missing import drop_missing
from streamsink.errors import Corrupt, Misuse
from streamsink.protocol.committable import AppState
from streamsink.storage.file_io import FileIO
from streamsink.table.branching.pins import PREFIX
from streamsink.table.branching.rollback import PROPERTY, plan_rollback, roll_back
from streamsink.table.branching.targets import find
from streamsink.table.care.expire_snapshots import Retention, expire
from streamsink.table.care.removal import Needed
from streamsink.table.care.tags import create_tag
from streamsink.table.read.scan import data_file_path, read_arrow
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls, Mode
from tests.crash.sweeps import deaths
from tests.crash.world import BOUNDARIES, SCHEMA, WAYS, World, die_at_step, expected, memory_world, posix_world
from tests.table.caring import check_whole
from tests.table.entries import OPTIONS

# Of the calls of a stream's run, each n-th one has a rollback beside it; every one with the mark "soak".
STRIDE = 101
FIRST = BOUNDARIES[0]


def _table(world, calls=None):
    return open_table(FileIO(calls or world.calls, IdSource().new_id), world.driver.root, for_writing=True)


def _back(world, to=1, calls=None, **target):
    table = _table(world, calls)
    return roll_back(table, find(table, None if target else to, **target), OPTIONS, "a test")


def _state(world):
    """What the newest snapshot says of the stream."""
    table = _table(world)
    return table.states.read(table.snapshots.latest()).by_application.get("streamsink")


def test_a_stream_goes_on_behind_a_rollback():
    """Rows of the batches behind the target are gone, none of them comes back, and the next batches are there once."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:3])
    before = _state(world)
    done = _back(world)
    assert world.ids() == list(range(FIRST)) and done.plan.leaving.rows == 3 and not done.pins
    assert _state(world) == before
    world.run()
    assert world.ids() == [*range(FIRST), *range(9, 14)]
    assert world.unknown_files() == []
    newest = _table(world).snapshots.load(done.snapshot_id)
    said = json.loads(newest.properties[PROPERTY])
    assert (said["to"], said["by"], said["applications"]) == (
        1,
        "a test",
        "go-on",
    ) and newest.commit_kind == "OVERWRITE"
    assert newest.commit_user.startswith("streamsink-rollback-")


def test_what_comes_back_is_read_whatever_was_deleted_before():
    """Each batch replaces all rows; a rollback brings files back that DELETE entries of the base would have hidden."""
    options = {"manifest.merge-min-count": "30"}
    world = memory_world(mode="overwrite", overwrite_partition={}, table_options=options)
    world.run(boundaries=(6, 9, 12))
    assert world.ids() == [9, 10, 11]
    done = _back(world, 1)
    assert world.ids() == list(range(6)) and done.plan.returning.rows == 6 and len(done.pins) == 1
    assert _back(world, 1).snapshot_id is None, "the table is as the target was"
    _back(world, 2)
    _back(world, 3)
    assert world.ids() == [9, 10, 11]
    _back(world, 1)
    world.run(boundaries=(6, 9, 12, 15))
    assert world.ids() == [12, 13, 14]
    _back(world, 1)
    for each in range(1, 10):
        other = World(world.calls, world.driver.root, application=f"other{each}")
        other.run(boundaries=(each,))
    assert world.ids() == sorted([*range(6), *itertools.chain(*(range(each) for each in range(1, 10)))])


def test_each_file_that_comes_back_is_kept_from_paimons_expiry():
    """Paimon's expiry keeps a file that an expiring snapshot deletes only where the newest tag before that has it."""
    world = memory_world(mode="overwrite", overwrite_partition={})
    world.run(boundaries=(6, 9, 12))
    for to in (1, 3, 2, 1, 3):
        _back(world, to)
        _check_kept(_table(world))


def _check_kept(table):
    """No expiry of Paimon's deletes what a retained snapshot has, in whichever order the snapshots expire."""
    at = table.file_io
    tags = {}
    for name in at.names(table.layout.within("tag")):
        snapshot = json.loads(at.read(table.layout.within(f"tag/{name}")))
        tags[snapshot["id"]] = snapshot["baseManifestList"], snapshot["deltaManifestList"]
    live = {s: _names(table, table.manifests.all_of(table.snapshots.load(s))) for s in table.snapshots.ids()}
    for number in table.snapshots.ids():
        snapshot = table.snapshots.load(number)
        entries = [e for m in table.manifests.delta_of(snapshot) for e in table.manifests.read(m.file_name)]
        deleted = {entry.file.file_name for entry in entries if entry.kind.name == "DELETE"}
        before = max((tag for tag in tags if tag < number), default=None)
        kept = _names(table, [m for n in tags[before] for m in table.manifests.list_of(n)]) if before else set()
        later = set().union(*(live[each] for each in live if each >= number))
        assert not (deleted - kept) & later, f"snapshot {number} takes what a later one has"


def _names(table, metas):
    return {identity[3] for identity in table.manifests.identities_of(metas)}


@pytest.mark.in_turn("rollbacks that die", 3)
@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.ERROR, Mode.REPLY_LOST], ids=lambda mode: mode.value)
@pytest.mark.parametrize("kind", ["append", "overwrite"])
def test_a_rollback_that_dies_is_done_or_not_done(kind, mode, rng):
    """Whatever happens at whichever call: the rows are those of before or of the target. Called again, it is done."""
    first = rng.randrange(19)
    settings = {} if kind == "append" else {"mode": "overwrite", "overwrite_partition": {}}
    world = memory_world(**settings)
    world.run(boundaries=(6, 9, 12))
    rows = [list(range(12)) if kind == "append" else [9, 10, 11], list(range(6))]
    calls = CrashingCalls(copy.deepcopy(world.calls))
    _back(world, calls=calls)
    if mode is Mode.BEFORE:
        for left in deaths(world, run=lambda over: _back(world, calls=over)):
            left.put_back(world, False)
            _ends_at(world, rows, kind, str(left))
        return
    begun = copy.deepcopy(world.calls)
    for number in range(1 + first, calls.count + 1, 19):
        world.calls = copy.deepcopy(begun)
        try:
            _back(world, calls=CrashingCalls(world.calls, number, mode))
        except OSError:
            world.die()
        _ends_at(world, rows, kind, f"call {number}")


def _ends_at(world, rows, kind, what):
    assert world.ids() in rows, what
    _back(world)
    assert world.ids() == rows[1], what
    checkpoint = copy.deepcopy(world.checkpoint)
    world.run(boundaries=(6, 9, 12, 14))
    world.checkpoint = checkpoint
    assert world.ids() == ([*range(6), 12, 13] if kind == "append" else [12, 13]), what


@pytest.mark.parametrize("way", WAYS)
def test_a_rollback_at_any_call_of_a_running_stream(way, rng):
    """The stream does not notice: what was published till then is gone, and each later batch is there once."""
    _at_calls(way, 1 + rng.randrange(STRIDE), STRIDE)


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS)
def test_a_rollback_at_every_call_of_a_running_stream(way):
    """All of them."""
    print(f"RESULT rollback beside a stream, {way}: {_at_calls(way, 1, 1)} calls, lost=0 doubled=0 stopped=0")


def _at_calls(way, first, stride):
    """Roll the table back at these calls of a stream that has published one batch; how many were tried."""
    world = memory_world(**WAYS[way])
    world.run(boundaries=BOUNDARIES[:1])
    begun, checkpoint = copy.deepcopy(world.calls), copy.deepcopy(world.checkpoint)
    counting = CrashingCalls(world.calls)
    world.run(counting)
    chosen = range(first, counting.count + 1, stride)
    for number in chosen:
        world.calls, world.checkpoint = copy.deepcopy(begun), copy.deepcopy(checkpoint)
        world.driver.events.clear()
        calls, done = CrashingCalls(world.calls), []
        inner = world.calls

        def before_call(calls=calls, number=number, inner=inner, done=done):
            if calls.count + 1 >= number and not done:
                done.append(True)
                world.calls = inner
                done[0] = _back(world)

        calls.before_call = before_call
        world.run(calls)
        done = done or [_back(world)]  # this run had fewer calls
        world.run()
        assert world.ids() == _expected(world, done[0]), f"rolled back at call {number}"
        assert world.unknown_files() == [], f"rolled back at call {number}"
    return len(chosen)


def _expected(world, done):
    """The rows of the first batch, and those of the batches that the rollback's snapshot does not have as published."""
    if done.snapshot_id is None:
        return expected()
    table = _table(world)
    snapshot = table.snapshots.load(done.snapshot_id)
    state = json.loads(snapshot.properties["streamsink.app.streamsink"])
    published = BOUNDARIES[AppState.from_json(state).checkpoint_id]
    return [*range(FIRST), *range(published, BOUNDARIES[-1])]


def test_what_is_pending_is_published_behind_a_rollback():
    """A recorded batch was promised, so it comes, once, by the restart of its query."""
    world = memory_world()
    assert die_at_step("precommit.saved", 2, world)
    assert world.ids() == list(range(FIRST))
    World(world.calls, world.driver.root, application="other").run(boundaries=(3,))
    _back(world)
    world.run()
    assert world.ids() == expected()


def test_a_rollback_is_no_lost_snapshot_to_the_restart_of_a_query():
    """Neither way of ``on_rollback`` takes it for one;"""
    for on_rollback in ("fail", "republish"):
        world = memory_world(on_rollback=on_rollback)
        world.run(boundaries=BOUNDARIES[:2])
        _back(world)
        for _ in range(2):
            world.run()
        assert world.ids() == [*range(FIRST), *range(9, 14)]


def test_verify_finds_nothing_wrong_after_rollbacks(tmp_path):
    """Nor does it take the rollback for a hole; data files are read, too."""
    world = posix_world(tmp_path, mode="overwrite", overwrite_partition={})
    world.run(boundaries=(6, 9, 12))
    path = world.driver.root
    planned = maintenance.rollback_to(path, 1, dry_run=True)
    assert planned.snapshot_id is None and "6 rows come back" in str(planned) and world.ids() == [9, 10, 11]
    done = maintenance.rollback_to(path, 1, by="me")
    assert done.snapshot_id == 4 and "snapshot 4" in str(done) and PREFIX in str(done)
    report = streamsink.verify(path, contents=True)
    assert report.ok and not report.findings, str(report)
    assert sorted(streamsink.read_arrow(path)["id"].to_pylist()) == list(range(6))


def test_a_target_by_tag_and_by_time(tmp_path):
    """A tag may hold a snapshot that has expired; a moment means the newest snapshot not later than it."""
    world = posix_world(tmp_path)
    world.run()
    path, table = world.driver.root, _table(world)
    first, second = table.snapshots.load(1), table.snapshots.load(2)
    os.makedirs(f"{path}/tag")
    os.rename(table.snapshots.path(1), f"{path}/tag/tag-first")
    assert maintenance.rollback_to(path, tag="first", dry_run=True).plan.target.snapshot == first
    assert maintenance.rollback_to(path, 1, dry_run=True).plan.target.tag == "first"
    millis = second.time_millis
    when = datetime.datetime.fromtimestamp(millis / 1000, datetime.timezone.utc)
    for moment in (millis, when, when.isoformat(), when.isoformat().replace("+00:00", "Z")):
        newest = max(s for s in table.snapshots.ids() if table.snapshots.load(s).time_millis <= millis)
        assert find(table, timestamp=moment).snapshot.id == newest
    assert maintenance.rollback_to(path, tag="first").snapshot_id == 5
    assert world.ids() == list(range(FIRST))


@pytest.mark.parametrize(
    "given, kind",
    [
        ({}, "rollback.target"),
        ({"snapshot_id": 1, "tag": "x"}, "rollback.target"),
        ({"timestamp": "yesterday"}, "rollback.target"),
        ({"timestamp": "2026-11-27T10:15:00"}, "rollback.target"),
        ({"timestamp": 1}, "rollback.target-gone"),
        ({"snapshot_id": 99}, "rollback.target-gone"),
        ({"tag": "../../snapshot/snapshot-1"}, "rollback.target-gone"),
    ],
)
def test_a_target_that_there_is_not_is_refused(given, kind, tmp_path):
    """Before anything is written."""
    world = posix_world(tmp_path)
    world.run()
    with pytest.raises(Misuse) as refused:
        maintenance.rollback_to(world.driver.root, **given)
    assert refused.value.kind == kind and "Nothing was written" in str(refused.value)
    assert _table(world).snapshots.ids() == [1, 2, 3, 4]


def test_files_that_are_gone_are_not_brought_back():
    """They are looked for before anything is written, and once more behind the commit."""
    world = memory_world(mode="overwrite", overwrite_partition={})
    world.run(boundaries=(6, 9))
    table = _table(world)
    entries = list(table.manifests.entries_of(table.snapshots.load(1)))
    path = data_file_path(table, table.latest_schema(), entries[0])
    calls = CrashingCalls(world.calls)

    def expire():
        """As another program's expiry, right before the snapshot is created."""
        if calls.log[-1:] == ["sync_dir"] and world.calls.size(path) is not None and _temporary(table):
            world.calls.unlink(path)

    calls.before_call = expire
    with pytest.raises(Corrupt) as broken:
        _back(world, calls=calls)
    assert (
        broken.value.kind == "rollback.files-gone" and path in str(broken.value) and "drop_missing" in str(broken.value)
    )
    assert drop_missing(table.file_io, table.root).files == 1
    _back(world, 2)
    with pytest.raises(Corrupt) as broken:
        plan_rollback(table, find(table, 1))
    assert broken.value.kind == "rollback.files-gone" and "Nothing was written" in str(broken.value)


def _temporary(table):
    return any(name.startswith(".") for name in table.file_io.names(table.layout.snapshot_dir))


def test_a_target_that_expires_meanwhile_is_refused():
    """It is looked for in each try of the commit; the tag that was to keep it is taken back."""
    world = memory_world(mode="overwrite", overwrite_partition={})
    world.run(boundaries=(6, 9))
    table = _table(world)
    target = find(table, 1)
    world.calls.unlink(target.path)
    with pytest.raises(Misuse) as refused:
        roll_back(table, target, OPTIONS, "a test")
    assert refused.value.kind == "rollback.target-gone" and table.snapshots.latest().id == 2
    assert table.file_io.names(table.layout.within("tag")) == []


@pytest.mark.in_turn("expiries beside a rollback", 1)
@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("tagged", [False, True])
def test_an_expiry_that_takes_the_target_at_any_call(tagged, stride, rng):
    """Until the tag is there the expiry wins, and the error says so; from then on the rollback has all files. It takes
    nothing but other snapshots where a tag has the target.
    """
    world, target = memory_world(mode="overwrite", overwrite_partition={}), {"tag": "t"} if tagged else {}
    world.run(boundaries=(6, 9, 12))
    if tagged:
        create_tag(_table(world), "t", 1)
        _back(world, 1)
        _back(world, 3)  # so that the snapshot between the two is to be tagged as well
    begun, outcomes = copy.deepcopy(world.calls), set()
    for n in itertools.count(1 + rng.randrange(stride), stride):
        world.calls, done = copy.deepcopy(begun), []
        calls = CrashingCalls(world.calls)

        def happens(calls=calls, done=done, n=n):
            if calls.count == n - 1 and not done:
                done.append(expire(_table(world), Retention(num_max=1, num_min=1), Needed).snapshots)

        calls.before_call = happens
        try:
            _back(world, 1, calls, **target)
        except Misuse as gone:
            assert gone.kind == "rollback.target-gone" and "Nothing was written" in str(gone), f"call {n}"
            assert (
                not tagged
                and world.ids() == [9, 10, 11]
                and not _table(world).file_io.names(f"{world.driver.root}/tag")
            )
            outcomes.add("refused")
        else:
            assert world.ids() == list(range(6)), f"call {n}"
            check_whole(_table(world))  # its own tags, too
            outcomes.add("done")
        if not done:
            break
    assert outcomes == ({"done"} if tagged else {"refused", "done"})


def test_columns_that_came_after_the_target_stay():
    """Their values are null in the rows of the past, and the stream goes on writing them."""
    world = memory_world(add_columns=True)
    world.run(boundaries=BOUNDARIES[:1])
    world.driver.schema = pa.schema([*SCHEMA, ("more", pa.int64())])
    rows = world.driver.rows
    world.driver.rows = lambda start, end: _with_more(rows(start, end))
    world.run(boundaries=BOUNDARIES[:2])
    _back(world)
    table = _table(world)
    assert read_arrow(table)["more"].to_pylist() == [None] * FIRST
    world.run()
    assert sorted(read_arrow(_table(world))["more"].to_pylist(), key=lambda n: n or 0) == [None] * FIRST + [
        *range(9, 14)
    ]


def _with_more(rows):
    return pa.RecordBatch.from_arrays([*rows.columns, rows["id"]], schema=pa.schema([*SCHEMA, ("more", pa.int64())]))
