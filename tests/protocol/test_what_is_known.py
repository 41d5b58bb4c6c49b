"""What is not known stays not known:
other writers, expired history, lost journals, and tables that take another one's place."""

import dataclasses
import json
import re

import pytest

from streamsink.commands.verify import verify
from streamsink.errors import Conflict, Corrupt, Misuse
from streamsink.format.snapshot import COMPACT, Snapshot
from streamsink.journal.record_format import decode_record, encode_record
from streamsink.table.table import open_table
from streamsink.testing.driver import SparkCheckpoint
from tests.crash.giving_up import follow
from tests.crash.world import World, die_at_step, memory_world
from tests.protocol.history import (
    assert_republished_when_told,
    drop_from_newest,
    expire,
    io_of,
    mine_of,
    newest_of,
    of_others,
    other_application,
    roll_back,
    tear_mark,
)
from tests.table.foreign import Prepared


@pytest.mark.parametrize(
    "way",
    [{"publish_every_batches": 4}, {"publish_every_batches": 4, "publish_as": "one-snapshot"}],
    ids=["each", "one"],
)
def test_a_query_knows_what_it_has_not_published_itself(way):
    """Others commit and expire while a group is pending.
    Formerly the running query asked its user whether it had published the group."""
    world = memory_world(restore="restore-and-continue", **way)
    world.run(boundaries=(3,))
    rows = world.driver.rows

    def beside_others(start: int, end: int):
        if start == 6:
            for _ in range(2):
                newest = open_table(io_of(world), world.driver.root, for_writing=False).snapshots.latest()
                foreign = dataclasses.replace(newest, id=newest.id + 1, properties=None, commit_user="compactor")
                io_of(world).write(f"{world.driver.root}/snapshot/snapshot-{foreign.id}", foreign.to_json())
            expire(world, 1, newest_of(world) - 1)
        return rows(start, end)

    world.driver.rows = beside_others
    world.run(boundaries=(3, 6, 9, 12))
    assert mine_of(world) == list(range(12))


def _lost_history(world) -> None:
    """Our batch is published, a foreign writer commits,
    our snapshot expires, and another application of streamsink commits."""
    world.run(boundaries=(6, 9))
    Prepared(world).rename()
    expire(world, 1, newest_of(world) - 1)
    other_application(world, "other")


def test_an_application_whose_history_expired_goes_on_after_another_one_has_committed():
    """A5: the other application's snapshot looked as if ours had never been here:
    a false `table.rolled-back`, for ever."""
    world = memory_world(restore="restore-and-continue")
    _lost_history(world)
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


def test_expired_history_is_not_published_again_after_another_one_has_committed():
    """A5: with `republish`, which the false alarm recommended, every row was doubled."""
    world = memory_world(restore="restore-and-continue", on_rollback="republish")
    _lost_history(world)
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


def test_without_its_journal_nobody_knows_it_and_the_answer_is_an_error():
    """A5: formerly, instead of `history.incomplete`, the whole source was written a second time."""
    world = memory_world()
    _lost_history(world)
    io_of(world).delete_tree(f"{world.driver.root}/streamsink/streamsink")
    world.checkpoint = SparkCheckpoint(world.checkpoint.query)
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9, 14))
    assert refused.value.kind == "history.incomplete" and "new_application='" in str(refused.value)
    assert mine_of(world) == list(range(9))


@pytest.mark.parametrize("others_came", [False, True], ids=["ends before", "another in its place"])
def test_a_rollback_is_seen_although_the_history_before_it_has_expired(others_came):
    """A mark says which snapshot published the record. The table ends before that snapshot, or a later one has its
    number. Formerly the batch was skipped in silence."""
    world = memory_world(restore="restore-and-continue")
    of_others(world)
    world.run(boundaries=(6,))
    published = newest_of(world)
    roll_back(world, published - 1)
    if others_came:
        Prepared(world, 1).rename()
    expire(world, 1, published - 2)
    assert_republished_when_told(world)


@pytest.mark.parametrize("way", ["accept_as_new", "accept_as_seen"])
@pytest.mark.parametrize("is_torn", [False, True], ids=["whole", "torn"])
def test_a_record_before_a_rollback_that_nothing_proves_is_asked_for(is_torn, way):
    """It is asked for whatever its mark says.
    Found by a walk: `republish` published what was behind the record, and skipped its rows in silence."""
    world = memory_world(restore="restore-and-continue", journal_retain=100)
    _rolled_back_beside_expired_history(world, to=2, others=2)
    if is_torn:
        tear_mark(world)
    with pytest.raises(Corrupt) as asked:
        world.run(boundaries=(3, 6, 9))
    assert asked.value.kind == "journal.undecidable" and "rows of checkpoint 0" in str(asked.value)
    assert mine_of(world) == []
    token = re.search(rf"{way}='(\w+)'", str(asked.value))[1]
    world.driver.options = dataclasses.replace(world.driver.options, **{way: token})
    world.run(boundaries=(3, 6, 9))
    assert mine_of(world) == list(range(0 if way == "accept_as_new" else 3, 9))


def test_a_record_before_a_rollback_that_a_snapshot_names_is_published():
    """Nothing is asked where a snapshot shows it."""
    world = memory_world(restore="restore-and-continue", journal_retain=100)
    _rolled_back_beside_expired_history(world, to=3, keep=3)
    tear_mark(world)
    world.run(boundaries=(3, 6, 9))
    assert mine_of(world) == list(range(9))


def test_records_that_were_pruned_before_a_rollback_are_not_taken_for_published():
    """Nobody knows whether the rollback took them too. Formerly a walk lost their rows.
    What is given up is read again from where they end."""
    world = memory_world(restore="restore-and-continue")
    _rolled_back_beside_expired_history(world, to=2)
    assert not io_of(world).exists(f"{world.driver.root}/streamsink/streamsink/record-1.json")
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(3, 6, 9))
    assert refused.value.kind == "table.rolled-back-too-far" and "Nothing was written" in str(refused.value)
    assert mine_of(world) == []
    assert follow(world, refused.value).records == (2, 3)


def _rolled_back_beside_expired_history(world, to: int, others: int = 1, keep: int | None = None) -> None:
    """Snapshots 3 to 5 are ours, on top of two of others. The table goes back to ``to``, others write more, and
    everything before ``keep``, or before the newest snapshot, expires."""
    of_others(world)
    world.run(boundaries=(3, 6, 9))
    for number in range(newest_of(world) - 1, to - 1, -1):
        roll_back(world, number)
    for number in range(others):
        Prepared(world, 1 + number).rename()
    expire(world, 1, (keep or newest_of(world)) - 1)
    world.driver.options = dataclasses.replace(world.driver.options, on_rollback="republish")


def test_verify_knows_that_expired_history_is_not_a_rollback():
    """Formerly it called a whole table damaged as soon as the last snapshot of an application had expired."""
    world = memory_world(restore="restore-and-continue")
    _lost_history(world)
    report = verify(io_of(world), world.driver.root)
    assert report.ok, report


@pytest.mark.parametrize(
    "left",
    [
        ("streamsink",),
        ("manifest",),
        ("streamsink", "manifest", "part=a"),
        ("snapshot", "LATEST"),
        ("snapshot", "EARLIEST"),
        ("snapshot", "LATEST", "EARLIEST"),
    ],
    ids=" ".join,
)
def test_what_a_dropped_table_left_is_named_with_the_way_on(left):
    """A driver that was at work when the table was dropped writes there again.
    The next start found a folder that is neither a table nor empty."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    for name in [name for name in io_of(world).names(world.driver.root) if name not in left]:
        io_of(world).delete_tree(f"{world.driver.root}/{name}")
    for name in io_of(world).names(f"{world.driver.root}/snapshot"):
        if name not in left:  # A driver that slept right before writes these hints.
            io_of(world).delete(f"{world.driver.root}/snapshot/{name}")
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000009")
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9))
    assert refused.value.kind == "table.not-empty"
    for path in re.search(r"remove (\S+(?: and \S+)*) as well", str(refused.value))[1].split(" and "):
        io_of(world).delete_tree(path)
    world.run(boundaries=(6, 9))
    assert world.ids() == list(range(9))


# -- published and not marked --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"on_rollback": "republish"}, {}], ids=["originals-stay", "final-names-stay"])
def test_a_record_that_may_be_published_is_not_published_again(options):
    """A9: the driver was killed before the mark; then every snapshot that could tell expired, while the files stayed
    (under a tag). Formerly the rows were doubled."""
    world = memory_world(restore="restore-and-continue", **options)
    assert die_at_step("commit.hinted", 2, world, boundaries=(6, 9))
    prepared = Prepared(world)
    prepared.rename()
    drop_from_newest(world)
    expire(world, 1, newest_of(world) - 1)
    with pytest.raises(Corrupt) as refused:
        world.run(boundaries=(6, 9))
    assert refused.value.kind == "journal.undecidable"


def test_a_record_of_which_all_snapshots_since_are_there_is_pending_for_certain():
    """A9, the other side: when only what was before the record has expired, that is no reason for an error."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    Prepared(world).rename()
    world.checkpoint.ends.append(9)
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9))
    expire(world, 1, newest_of(world) - 1)
    world.run(boundaries=(6, 9))
    assert mine_of(world) == list(range(9))


# -- another table in its place ------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["precommit.saved", "commit.marked"], ids=["pending", "published"])
def test_records_of_a_dropped_table_are_not_published_into_the_new_one(step):
    """C3: the journal outlived its table, and its pending rows were published in a table with other columns."""
    world = memory_world(restore="restore-and-continue")
    assert die_at_step(step, 1, world, boundaries=(6,))
    io, root = io_of(world), world.driver.root
    table = open_table(io, root, for_writing=False)
    for name in [e.name for e in io.entries(root) if e.name != "streamsink"]:
        io.delete_tree(f"{root}/{name}")
    io.create_if_absent(f"{root}/schema/schema-0", dataclasses.replace(table.latest_schema(), time_millis=1).to_json())
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6,))
    assert refused.value.kind == "table.recreated"
    assert table.table_id in str(refused.value) and f"{root}/streamsink/streamsink" in str(refused.value)
    # The advice is to delete that folder and start a new checkpoint.
    io.delete_tree(f"{root}/streamsink/streamsink")
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000009")
    world.run(boundaries=(6,))
    assert world.ids() == list(range(6))


# -- overwriting late ----------------------------------------------------------------------------------------------


def _pending_overwrite() -> World:
    """An overwrite of all partitions is recorded and its driver dies; then another application repairs the table."""
    world = memory_world(mode="overwrite", restore="restore-and-continue")
    world.run(boundaries=(6,))
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9))
    other_application(world, "repair")
    return world


def test_an_overwrite_does_not_delete_what_others_wrote_since_its_record():
    """A10: days later the first application started again, and the repair was gone."""
    world = _pending_overwrite()
    before = world.ids()
    with pytest.raises(Conflict) as refused:
        world.run(boundaries=(6, 9))
    assert refused.value.kind == "overwrite.changed-since" and "snapshot" in str(refused.value)
    assert world.ids() == before


@pytest.mark.parametrize("option, expected", [("accept_as_new", [6, 7, 8]), ("accept_as_seen", None)])
def test_an_overwrite_of_earlier_code_is_not_published_over_what_has_expired(option, expected):
    """Its record does not say what the table had. The repair's snapshot has expired behind a compaction, and formerly
    its rows were deleted in silence."""
    world = _pending_overwrite()
    io, root, newest, before = io_of(world), world.driver.root, newest_of(world), world.ids()
    path = f"{root}/streamsink/streamsink/record-2.json"
    record = decode_record(io.read(path), path)
    earlier = {name: said for name, said in record.payload.items() if name != "base"}
    io.replace(path, encode_record(dataclasses.replace(record, payload=earlier)), "earlier")
    repair = Snapshot.from_json(io.read(f"{root}/snapshot/snapshot-{newest}"), root)
    compacted = dataclasses.replace(repair, id=newest + 1, commit_kind=COMPACT, commit_user="compactor")
    io.write(f"{root}/snapshot/snapshot-{newest + 1}", compacted.to_json())
    expire(world, 1, newest)
    with pytest.raises(Conflict, match="snapshots of this table have expired") as refused:
        world.run(boundaries=(6, 9))
    assert refused.value.kind == "overwrite.changed-since" and world.ids() == before
    token = str(refused.value).partition(f"{option}='")[2][:12]
    world.driver.options = dataclasses.replace(world.driver.options, **{option: token})
    world.run(boundaries=(6, 9))
    assert world.ids() == (expected if expected is not None else before)


@pytest.mark.parametrize("option, expected", [("accept_as_new", [6, 7, 8]), ("accept_as_seen", None)])
def test_both_ways_on_that_the_conflict_names(option, expected):
    """A10: the token overwrites all the same, or leaves the table as it is and goes on."""
    world = _pending_overwrite()
    before = world.ids()
    with pytest.raises(Conflict) as refused:
        world.run(boundaries=(6, 9))
    token = str(refused.value).partition(f"{option}='")[2][:12]
    world.driver.options = dataclasses.replace(world.driver.options, **{option: token})
    world.run(boundaries=(6, 9))
    assert world.ids() == (expected if expected is not None else before)
    world.run(boundaries=(6, 9, 14))
    assert set(range(9, 14)) <= set(world.ids())


def test_an_overwrite_behind_pending_ones_of_its_own_is_no_conflict():
    """A10: two are pending, and the first one's snapshot comes after the second one's record.
    Nobody else has changed anything."""
    world = memory_world(mode="overwrite", restore="restore-and-continue", publish_every_batches=5)
    assert die_at_step("precommit.saved", 2, world, boundaries=(6, 9))
    assert world.ids() == []
    world.run(boundaries=(6, 9))
    assert world.ids() == [6, 7, 8]


def test_a_pending_overwrite_of_which_files_are_gone_says_so():
    """A10: whether it is still meant is asked only of an overwrite that can be published."""
    world = memory_world(mode="overwrite", restore="restore-and-continue")
    world.run(boundaries=(6,))
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9))
    io, staging = io_of(world), f"{world.driver.root}/streamsink/streamsink/staging"
    for folder in io.names(staging):
        for name in io.names(f"{staging}/{folder}"):
            io.delete(f"{staging}/{folder}/{name}")
    with pytest.raises(Corrupt) as refused:
        world.run(boundaries=(6, 9))
    assert refused.value.kind == "pending.files-gone"


@pytest.mark.parametrize("broken", ["record", "newer record", "newer state"])
def test_another_application_that_cannot_be_read_stops_itself_only(broken):
    """Each start reads the last record of every other name."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    other_application(world, "other")
    io, record = io_of(world), f"{world.driver.root}/streamsink/other/record-1.json"
    if broken == "newer state":
        path = f"{world.driver.root}/snapshot/snapshot-{newest_of(world)}"
        snapshot = Snapshot.from_json(io.read(path), path)
        said = json.loads(snapshot.properties["streamsink.app.other"]) | {"version": 9}
        newer = snapshot.properties | {"streamsink.app.other": json.dumps(said)}
        io.replace(path, dataclasses.replace(snapshot, properties=newer).to_json(), "newer")
    else:
        io.replace(
            record,
            io.read(record)[:-9]
            if broken == "record"
            else io.read(record).replace(b'"version": 2', b'"version": 9', 1),
            "broken",
        )
    world.run(boundaries=(6, 9))
    assert mine_of(world) == list(range(9))
