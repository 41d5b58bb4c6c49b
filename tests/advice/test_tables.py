"""Advice of errors about a table that was damaged, rolled back, dropped or changed by others;
each row is there once."""

import contextlib
import dataclasses
import json

import pytest

from streamsink import faults
from streamsink.commands.drop_missing import drop_missing
from streamsink.errors import StreamsinkError
from streamsink.table.table import open_table
from streamsink.testing.faults import arm
from tests.advice.accidents import (
    POSITIONS,
    accept,
    copy_of,
    damage,
    lose_checkpoint,
    put_back,
    refused,
    start_over,
    starting_offset,
    take,
)
from tests.advice.following import advice, follows, told
from tests.crash.giving_up import ENDS, follow
from tests.crash.world import expected, memory_world

PLAIN = {"restore": "restore-and-continue"}
ROOT = "/lake/shop.db/orders"


def _table(world):
    return open_table(world.file_io(world.calls), ROOT, for_writing=False)


def _list(world) -> str:
    return f"{ROOT}/manifest/{_table(world).snapshots.latest().base_manifest_list}"


def _data(world) -> str:
    return min(p for p in world.calls._names if "/part=" in p and p.endswith(".parquet"))


def _torn(world, path: str) -> bytes:
    return damage(world, path, b"Obj" + b"\0" * (len(world.calls._names[path].data) - 3))


def _cut(world, path: str) -> bytes:
    return damage(world, path, world.calls._names[path].data[:-1])


def _says(field: str, value):
    """A damage by which the snapshot says something else in one field."""
    return lambda world, path: damage(
        world, path, json.dumps({**json.loads(world.calls._names[path].data), field: value}).encode()
    )


def _state_altered(world, path: str) -> bytes:
    data = json.loads(world.calls._names[path].data)
    data["properties"]["streamsink.app.streamsink"] = "["
    return damage(world, path, json.dumps(data).encode())


def _snapshot(world) -> str:
    return f"{ROOT}/snapshot/snapshot-2"


def _schema(world) -> str:
    return f"{ROOT}/schema/schema-0"


DAMAGED = {
    "manifest.missing": (_list, take),
    "manifest.size": (_list, _cut),
    "manifest.corrupt": (_list, _torn),
    "snapshot.corrupt": (_snapshot, damage),
    "snapshot.id": (_snapshot, _says("id", 7)),
    "snapshot.state": (_snapshot, _state_altered),
    "snapshot.version": (_snapshot, _says("version", 9)),
    "schema.corrupt": (_schema, damage),
    "data.missing": (_data, take),
}


def _damaged(kind: str, **options):
    world = memory_world(**PLAIN, **options)
    world.run(boundaries=ENDS[:2])
    where, accident = DAMAGED[kind]
    path = where(world)
    whole = accident(world, path)
    with pytest.raises(StreamsinkError) as told:
        world.run(boundaries=ENDS)
    return world, advice(told.value, kind), path, whole


RESTORED = (
    "manifest.missing",
    "manifest.size",
    "manifest.corrupt",
    "snapshot.corrupt",
    "snapshot.id",
    "snapshot.state",
    "schema.corrupt",
    "data.missing",
)


@follows(*RESTORED)
@pytest.mark.parametrize("kind", RESTORED)
def test_a_file_that_is_restored_from_a_backup(kind):
    """The error names the file. Once it is restored the query goes on by itself."""
    world, said, path, whole = _damaged(kind)
    assert "estore" in said.message
    put_back(world, said.find(rf"({path})"), whole)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


ROLLED_BACK = ("manifest.missing", "manifest.corrupt", "snapshot.corrupt", "snapshot.state", "snapshot.version")


@follows(*ROLLED_BACK)
@pytest.mark.parametrize("kind", ROLLED_BACK)
def test_a_table_that_is_rolled_back_to_a_snapshot_that_is_whole(kind):
    """This is the other way on. What it loses is published again from the journal, as the next error says."""
    world, said, path, _ = _damaged(kind, journal_retain=10)
    said.says("roll")
    for name in (f"{ROOT}/snapshot/snapshot-2", f"{ROOT}/snapshot/LATEST"):
        take(world, name)
    said = refused(world, "table.rolled-back", ENDS)
    accept(world, on_rollback=said.option("on_rollback"))
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


def _without_data(world, ends, folder: str = "/part=") -> tuple:
    world.run(boundaries=ends)
    for path in [p for p in world.calls._names if folder in p]:
        take(world, path)
    with pytest.raises(StreamsinkError) as told:
        world.run(boundaries=ENDS)
    return advice(told.value, "data.missing").call("streamsink.drop_missing")


@follows("data.missing")
def test_data_files_that_are_lost_are_taken_out_of_the_table():
    """Exactly their rows are lost."""
    world = memory_world(**PLAIN)
    (path,), given = _without_data(world, ENDS[:2], "/part=b/")
    assert drop_missing(world.file_io(world.calls), path, **given).rows == 2
    world.run(boundaries=ENDS)
    assert world.ids() == [n for n in range(12) if n >= 6 or n % 3 != 1]


@follows("data.missing")
def test_who_reads_data_files_that_are_lost_is_told_the_same():
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS[:2])
    for lost in [p for p in world.calls._names if "/part=b/" in p]:
        take(world, lost)
    (path,), given = told("data.missing", world.ids).call("streamsink.drop_missing")
    drop_missing(world.file_io(world.calls), path, **given)
    assert world.ids() == [n for n in range(6) if n % 3 != 1]


@follows("data.missing", "drop-missing.everything")
def test_a_table_without_any_data_file_is_emptied_when_that_is_said_expressly():
    world = memory_world(**PLAIN)
    (path,), given = _without_data(world, ENDS[:2])
    with pytest.raises(StreamsinkError) as told:
        drop_missing(world.file_io(world.calls), path, **given)
    everything = advice(told.value, "drop-missing.everything").option("everything")
    drop_missing(world.file_io(world.calls), path, **given, everything=everything)
    world.run(boundaries=ENDS)
    assert world.ids() == list(range(6, 12))


# -- rolled back ---------------------------------------------------------------------------------------------------


def _roll_back(world, *snapshots) -> dict[str, bytes]:
    return {
        path: take(world, path)
        for path in (*(f"{ROOT}/snapshot/snapshot-{n}" for n in snapshots), f"{ROOT}/snapshot/LATEST")
    }


@follows("table.rolled-back")
@pytest.mark.parametrize("way", ["restored", "on_rollback", "given-up"])
@pytest.mark.parametrize("running", [False, True], ids=["between-runs", "while-it-runs"])
def test_a_table_that_was_rolled_back(way, running):
    """It is restored; or its rows are published again;
    or they are read again from the source, from where the command says."""
    world = memory_world(journal_retain=10, **PLAIN)
    world.run(boundaries=ENDS[:2])
    if running:
        sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
        world.checkpoint.ends = list(ENDS[:3])
        gone = _roll_back(world, 2)
        with pytest.raises(StreamsinkError) as told:
            sink.batch(world.driver.describe(world.checkpoint, 2))
        said = advice(told.value, "table.rolled-back")
        sink.close()
    else:
        gone = _roll_back(world, 2)
        said = refused(world, "table.rolled-back", ENDS)
    if way == "restored":
        said.says("Restore the table")
        for path, data in gone.items():
            put_back(world, path, data)
    elif way == "on_rollback":
        accept(world, on_rollback=said.option("on_rollback"))
    else:
        assert follow(world, said).records == (2,)
        gap = refused(world, "positions.gap", ENDS)
        start_over(world, starting_offset(world, gap), (7, 12))
        assert world.ids() == expected(ENDS)
        return
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("table.rolled-back-too-far")
@pytest.mark.parametrize("way", ["restored", "given-up"])
def test_a_table_that_was_rolled_back_further_than_the_journal_remembers(way):
    world = memory_world(journal_retain=2, on_rollback="republish", **PLAIN)
    world.run(boundaries=(*ENDS, 15))
    gone = _roll_back(world, 2, 3, 4, 5)
    said = refused(world, "table.rolled-back-too-far", (*ENDS, 15, 18))
    if way == "restored":
        said.says("Restore the table")
        for path, data in gone.items():
            put_back(world, path, data)
        world.run(boundaries=(*ENDS, 15, 18))
    else:
        follow(world, said)
        gap = refused(world, "positions.gap", (*ENDS, 15, 18))
        start_over(world, starting_offset(world, gap), (14, 18))
    assert world.ids() == expected((18,))


@follows("table.history-changed")
def test_a_table_rolled_back_while_a_batch_is_committed():
    """The restart finds out, and its error says what to do."""
    world = memory_world(journal_retain=10, **PLAIN)
    world.run(boundaries=ENDS[:2])

    def roll_back():
        faults.arm(None)
        _roll_back(world, 2)

    arm("commit.before_filter", 1, roll_back)
    with pytest.raises(StreamsinkError) as told:
        world.driver._run_once(world.file_io(world.calls), world.checkpoint, ENDS)
    advice(told.value, "table.history-changed").says(
        "The restart of the query finds out which", "on_rollback says what it does"
    )
    accept(world, on_rollback=refused(world, "table.rolled-back", ENDS).option("on_rollback"))
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


# -- dropped, recreated, moved -------------------------------------------------------------------------------------


def _dropped(world, running: bool, kind: str):
    """The table's folder is deleted, between two runs or under the running query."""
    kept = {
        path: file.data for path, file in world.calls._names.items() if path.startswith(ROOT) and "/hold" not in path
    }
    io = world.file_io(world.calls)
    sink = world.driver.start(io, world.checkpoint) if running else None
    io.delete_tree(ROOT)
    with pytest.raises(StreamsinkError) as told:
        if running:
            world.checkpoint.ends = list(ENDS[:3])
            sink.batch(world.driver.describe(world.checkpoint, 2))
        else:
            world.run(boundaries=ENDS)
    if running:
        with contextlib.suppress(StreamsinkError):
            sink.close()
        world.die()
    return advice(told.value, kind), kept


@follows("table.gone")
@pytest.mark.parametrize("way", ["restored", "new-checkpoint", "adopt_from_batch"])
@pytest.mark.parametrize("running", [False, True], ids=["between-runs", "while-it-runs"])
def test_a_table_that_was_dropped(way, running):
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS[:2])
    said, kept = _dropped(world, running, "table.gone")
    if way == "adopt_from_batch" and running:
        said = refused(world, "table.gone", ENDS)  # The restart names this way as well.
    if way == "restored":
        said.says("Restore the table")
        io = world.file_io(world.calls)
        for path, data in kept.items():
            io.create_if_absent(path, data)
    elif way == "new-checkpoint":
        said.says("start a new checkpoint")
        lose_checkpoint(world)
    else:
        accept(world, adopt_from_batch=said.option("adopt_from_batch"))
    world.run(boundaries=ENDS)
    assert world.ids() == (list(range(6, 12)) if way == "adopt_from_batch" else expected(ENDS))


@follows("table.recreated")
@pytest.mark.parametrize("journal", ["dropped", "kept"])
def test_a_table_recreated_under_the_running_query(journal):
    """A new checkpoint fills it. A journal that outlived its table is removed first, as the error of the start says."""
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS[:2])
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    io, table = world.file_io(world.calls), _table(world)
    for name in [e.name for e in io.entries(ROOT) if e.name != "streamsink" or journal == "dropped"]:
        io.delete_tree(f"{ROOT}/{name}")
    io.create_if_absent(f"{ROOT}/schema/schema-0", dataclasses.replace(table.latest_schema(), time_millis=1).to_json())
    world.checkpoint.ends = list(ENDS[:3])
    with pytest.raises(StreamsinkError) as told:
        sink.batch(world.driver.describe(world.checkpoint, 2))
    advice(told.value, "table.recreated").says("Stop the query; start a new checkpoint for the new table")
    with contextlib.suppress(StreamsinkError):
        sink.close()
    world.die()
    lose_checkpoint(world)
    if journal == "kept":
        said = refused(world, "table.recreated", (5, 12))
        said.says("start a new checkpoint, which reads the source from its beginning")
        io.delete_tree(said.find(r"remove the journal (\S+) "))
    world.run(boundaries=(5, 12))
    assert world.ids() == expected((12,))


@follows("table.not-empty")
def test_a_folder_that_is_no_table():
    """Its metadata was removed. It is restored, or the query writes elsewhere."""
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS[:2])
    schema = take(world, f"{ROOT}/schema/schema-0")
    lose_checkpoint(world)
    with pytest.raises(StreamsinkError) as told:
        world.run(boundaries=ENDS)
    advice(told.value, "table.not-empty").says("Restore it, or choose another path")
    elsewhere = copy_of(world)
    elsewhere.driver.root = "/lake/shop.db/other"
    elsewhere.run(boundaries=ENDS)
    assert elsewhere.ids() == expected(ENDS)
    put_back(world, f"{ROOT}/schema/schema-0", schema)
    accept(world, position_columns=POSITIONS)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("commit.not-previously-added")
def test_data_files_that_another_call_takes_out_at_that_moment():
    """When the call is repeated, as the error says, there is nothing left to do."""
    world = memory_world(**PLAIN)
    (path,), given = _without_data(world, ENDS[:2], "/part=b/")
    io = world.file_io(world.calls)

    def other() -> None:
        faults.arm(None)
        drop_missing(io, path, **given)

    arm("commit.before_filter", 1, other)
    with pytest.raises(StreamsinkError) as told:
        drop_missing(io, path, **given)
    advice(told.value, "commit.not-previously-added").says(
        "Nothing was published", "do it again from what the table is now"
    )
    assert drop_missing(io, path, **given).files == 0
    world.run(boundaries=ENDS)
    assert world.ids() == [n for n in range(12) if n >= 6 or n % 3 != 1]
