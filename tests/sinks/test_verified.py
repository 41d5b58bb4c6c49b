"""``streamsink.verify`` with a sink: what is lost or damaged in each destination is named, and nothing is changed."""

import contextlib
import dataclasses
import json
import shutil
import sqlite3

import pytest
from pyiceberg.exceptions import NoSuchTableError

import streamsink
from streamsink.commands.sinks_given_up import give_up_of_sink
from streamsink.commands.sinks_retired import retire_of_sink
from streamsink.commands.sinks_verified import verify_of_sink
from streamsink.databases import DatabaseSink
from streamsink.delta import DeltaSink
from streamsink.errors import Corrupt, Misuse
from streamsink.options import SinkOptions
from streamsink.protocol import upkeep
from streamsink.sink import FileSink
from streamsink.sinks import manifest_log
from streamsink.sinks.directory.file_sink import DirectoryCommitter
from streamsink.storage.file_io import local_file_io
from streamsink.table.history.integrity import Report
from streamsink.testing.crashing import dies_at
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.following import told
from tests.delta.world import DeltaOnDisk
from tests.delta.world import World as OfDelta
from tests.iceberg.lake import Lake
from tests.sinks.fan_out_world import ALL, ROOT, FanOutWorld
from tests.sinks.fan_out_world import fan_out as fan_out_of
from tests.sinks.test_fan_out_lagging import Lagging
from tests.sinks.test_file_sink import World as OfFiles
from tests.sinks.test_file_sink import named
from tests.sinks.transactions import World as OfTransactions

COMMITS, JOURNAL = "/out/_commits/streamsink", "/out/_streamsink/streamsink/streamsink"


def verified(io, sink, place):
    return verify_of_sink(io, sink, SinkOptions.of(sink.path, {}), place)


def kinds(report, severity="damage") -> list[str]:
    return [found.kind for found in report.findings if found.severity == severity]


def files(world) -> Report:
    """The report; the store has the same files after it as before."""
    before = world.io().files_below("/out")
    report = verified(world.io(), world.sink, "/out")
    assert world.io().files_below("/out") == before
    return report


def test_a_directory_that_is_whole_is_ok():
    world = OfFiles()
    world.run(3, 5)
    report = files(world)
    assert (report.ok, report.files, report.findings) == (True, 2, ())
    assert str(report) == "/out: ok, 2 data files"


def test_a_file_that_a_manifest_names_is_missed_unless_all_of_its_folder_was_removed():
    world = OfFiles()
    world.run(3, 5)
    [first, second] = named(world.io(), "/out")
    world.io().create_if_absent(f"/out/{first.rpartition('/')[0]}/part-other", b"")
    world.io().delete_tree(f"/out/{second.rpartition('/')[0]}")
    report = files(world)
    assert report.ok and kinds(report, "note") == ["folder.removed"]
    manifest = json.loads(world.io().read(f"{COMMITS}/0000000001.json"))
    manifest["files"].append(f"{first}-lost")
    world.io().delete(f"{COMMITS}/0000000001.json")
    world.io().create_if_absent(f"{COMMITS}/0000000001.json", json.dumps(manifest).encode())
    report = files(world)
    assert kinds(report) == ["file.missing"] and f"{first}-lost is gone" in str(report) and "DAMAGED" in str(report)


def test_a_directory_of_many_batches_is_looked_at_in_little_memory(monkeypatch):
    """Some manifests at a time, and what is gone is counted: who removes old rows has as many such folders."""
    world, count = OfFiles(), 6
    world.run(*range(1, count + 1))
    monkeypatch.setattr(upkeep, "MOST_NAMED", 2)
    monkeypatch.setattr(manifest_log, "_AT_ONCE", 2)
    known = [len(some) for some in manifest_log.ManifestLog(world.io(), "/out/_commits").contents("streamsink")]
    assert known == [2, 2, 2]
    first, *others = named(world.io(), "/out")
    for name in others:
        world.io().delete_tree(f"/out/{name.rpartition('/')[0]}")
    visible = DirectoryCommitter(world.sink, world.io(), False).visible()
    assert (visible.files, len(visible.removed), visible.more_removed, visible.gone) == (1, 2, 3, ())
    assert "5 folders were removed" in str(files(world))


@pytest.mark.parametrize(
    ("gone", "kind"),
    [
        (f"{COMMITS}/0000000001.json", "files.manifest-missing"),
        (f"{COMMITS}/0000000002.json", "checkpoint.rolled-back"),
        ("/out/_streamsink/id", "destination.no-id"),
    ],
)
def test_what_a_directory_or_its_journal_has_lost_is_named(gone, kind):
    world = OfFiles()
    world.run(3, 5)
    world.io().delete(gone)
    assert kinds(files(world)) == [kind]


def test_what_an_application_has_lost_that_never_starts_again_is_named_beside_another_one():
    """Manifests are lost, and the query that goes on has its own published again: nobody would be told of the other
    one's rows, which those who list the directory see, and those who read manifests do not."""
    world = OfFiles()
    world.run(3, 5)
    going_on, world.checkpoint = world.checkpoint, SparkCheckpoint("ended")
    world.run(2, application="ended")
    ended, world.checkpoint = world.checkpoint, going_on
    assert files(world).ok
    world.io().delete_tree("/out/_commits")
    world.run(3, 5, 6, on_rollback="republish")
    report = files(world)
    assert kinds(report) == ["checkpoint.rolled-back"] and "record 1 of another application, 'ended'" in str(report)
    world.checkpoint = ended
    assert "start it once more" in str(report)
    told("table.rolled-back", lambda: world.run(2, 3, application="ended")).says("set on_rollback='republish'")
    world.run(2, 3, application="ended", on_rollback="republish")
    assert files(world).ok


@pytest.mark.parametrize(("path", "kind"), [("record-2.json", "journal.corrupt"), ("other", "journal.other-record")])
def test_a_journal_that_is_damaged_or_is_another_one_is_named(path, kind):
    world = OfFiles()
    world.run(3)
    copy = {each: world.io().read(each) for each in world.io().files_below("/out/_streamsink")}
    world.run(3, 5)
    if path == "other":
        for each in world.io().files_below("/out/_streamsink"):
            world.io().delete(each)
        for each, data in copy.items():
            world.io().create_if_absent(each, data)
        manifest = json.loads(world.io().read(f"{COMMITS}/0000000001.json"))
        manifest["state"]["record_id"] = "another"
        for number in (1, 2):
            world.io().delete(f"{COMMITS}/000000000{number}.json")
        world.io().create_if_absent(f"{COMMITS}/0000000001.json", json.dumps(manifest).encode())
    else:
        world.io().delete(f"{JOURNAL}/{path}")
        world.io().create_if_absent(f"{JOURNAL}/{path}", b"damaged")
    assert kinds(files(world)) == [kind]


def test_what_is_pending_is_a_note_as_long_as_it_can_be_published():
    world = OfTransactions()
    world.run(3)
    world.die(3, 5, step="precommit.saved")
    report = verified(world.io(), world.sink, "/journals")
    assert report.ok and kinds(report, "note") == ["checkpoint.pending"]
    staged = OfFiles()
    staged.run(3)
    assert dies_at("precommit.saved", 1, staged.store, lambda calls: staged.run(3, 5, calls=calls))
    staged.store.process_death()
    for path in staged.io().files_below(JOURNAL):
        if "/part-" in path:
            staged.io().delete(path)
    report = files(staged)
    assert kinds(report) == ["pending.files-gone"] and "streamsink.give_up(sink" in str(report)


def test_what_is_pending_behind_a_record_that_is_gone_is_damage():
    """The next start cannot publish it, and says so."""
    world = OfFiles()
    world.run(3)
    ends = {"publish_every_batches": 9}
    assert dies_at("precommit.saved", 3, world.store, lambda calls: world.run(3, 5, 7, 9, calls=calls, **ends))
    world.store.process_death()
    world.io().delete(f"{JOURNAL}/record-3.json")
    report = files(world)
    assert kinds(report) == ["journal.missing-record"] and kinds(report, "note") == ["checkpoint.pending"]
    with pytest.raises(Corrupt, match="does not have number 3"):
        world.run(3, 5, 7, 9)


def test_a_database_that_was_put_back_is_noticed(tmp_path):
    world = FanOutWorld()
    sink = DatabaseSink(f"sqlite:{tmp_path}/shop.db", "orders", journal="/journals", create_table=True)
    world.run(sink=sink, ends=(3,))
    copy = (tmp_path / "shop.db").read_bytes()
    world.run(sink=sink)
    assert verified(world.io(), sink, "/journals").ok
    other = verified(world.io(), dataclasses.replace(sink, journal="/journals/other"), "/journals")
    assert kinds(other, "note") == ["journal.missing"]
    for each in tmp_path.iterdir():
        each.unlink()
    (tmp_path / "shop.db").write_bytes(copy)
    report = verified(world.io(), sink, "/journals")
    assert set(kinds(report)) == {"checkpoint.rolled-back"} and "ends at record 1" in str(report)


def test_a_table_of_a_database_that_was_dropped_is_missed(tmp_path):
    """What is remembered of it is in a table of the sink's own, and stays."""
    world = FanOutWorld()
    sink = DatabaseSink(f"sqlite:{tmp_path}/shop.db", "orders", journal="/journals", create_table=True)
    world.run(sink=sink, ends=())
    assert verified(world.io(), sink, "/journals").ok
    world.run(sink=sink)
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("DROP TABLE orders")
    report = verified(world.io(), sink, "/journals")
    assert kinds(report) == ["file.missing"] and f"{sink.path} is gone" in str(report)


@pytest.mark.parametrize("command", [verify_of_sink, retire_of_sink, give_up_of_sink])
def test_no_command_makes_an_identity_in_the_place_of_a_database_that_was_dropped(tmp_path, command):
    """It would be in the way of the backup that is put back, and be taken for the one that the rows are in."""
    world = FanOutWorld()
    sink = DatabaseSink(f"sqlite:{tmp_path}/shop.db", "orders", journal="/journals", create_table=True)
    world.run(sink=sink)
    for each in tmp_path.iterdir():
        each.unlink()
    options = SinkOptions.of(sink.path, {})
    if command is verify_of_sink:
        assert kinds(verified(world.io(), sink, "/journals")) == ["table.missing"]
    else:
        told("table.missing", lambda: command(world.io(), sink, options)).says("restore it", "Nothing was changed")
    other = DatabaseSink(f"sqlite:{tmp_path}/other.db", "orders", journal="/others")
    told("table.missing", lambda: retire_of_sink(world.io(), other, SinkOptions.of(other.path, {})))
    for name in ("shop.db", "other.db"):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as database:
            assert database.execute("SELECT name FROM sqlite_master").fetchall() == []


def test_another_application_that_is_whole_or_pending_is_no_finding(tmp_path):
    """Also where the destination knows of it by means of its own."""
    lake, of_delta, of_transactions = Lake(), OfDelta(tmp_path), OfTransactions()
    worlds = [
        (lake, lambda *ends, **options: lake.run(ends, **options), lake.sink(), lake.io, "/destination"),
        (of_delta, of_delta.run, DeltaSink(of_delta.path), local_file_io, of_delta.path),
        (of_transactions, of_transactions.run, of_transactions.sink, of_transactions.io, "/journals"),
    ]
    for world, run, sink, io, place in worlds:
        run(3, 5)
        world.checkpoint = SparkCheckpoint("other")
        run(2, 4, application="other")
        for application in ("streamsink", "other"):
            options = SinkOptions.of(sink.path, {"application": application})
            assert verify_of_sink(io(), sink, options, place).findings == ()
    assert dies_at("precommit.saved", 1, world.store, lambda calls: run(2, 4, 7, calls=calls, application="other"))
    world.store.process_death()
    assert verified(io(), sink, place).findings == ()


def test_a_data_file_of_an_iceberg_table_is_missed():
    lake = Lake()
    lake.run((3, 6))
    report = verified(lake.io(), lake.sink(), "/destination")
    assert (report.ok, report.files, report.rows) == (True, 2, 6)
    lake.io().delete(lake.table().inspect.files().column("file_path").to_pylist()[0])
    assert kinds(verified(lake.io(), lake.sink(), "/destination")) == ["file.missing"]


def test_a_data_file_of_a_delta_table_is_missed(tmp_path):
    world = OfDelta(tmp_path)
    world.run(3, 5)
    sink = DeltaOnDisk(world.path, disk=world.path)
    report = verified(local_file_io(), sink, world.path)
    assert (report.ok, report.files, report.rows) == (True, 2, 5)
    next(path for path in (tmp_path).rglob("*.parquet") if "_delta_log" not in str(path)).unlink()
    assert kinds(verified(local_file_io(), sink, world.path)) == ["file.missing"]


def test_all_destinations_of_a_fan_out_are_looked_at():
    world = FanOutWorld("files", "server", "table")
    world.run()
    sink = world.make(ROOT)
    report = verified(world.io(), sink, sink.journal)
    assert report.ok and report.files == 3 and kinds(report, "note") == ["verify.table"]
    world.io().delete(f"{ROOT}/files/_commits/streamsink/0000000004.json")
    assert kinds(verified(world.io(), sink, sink.journal)) == ["checkpoint.rolled-back"]


def of_fan_out(world) -> Report:
    """The report; the store has the same files after it as before."""
    before, sink = world.io().files_below("/destination"), world.make(ROOT)
    report = verified(world.io(), sink, sink.journal)
    assert world.io().files_below("/destination") == before
    return report


@pytest.mark.parametrize("gone", ["files", "server journal", "table"])
def test_a_destination_of_a_fan_out_that_is_gone_is_named_and_not_made(gone):
    """A new one in its place would have another identity, and nothing."""
    world = FanOutWorld("files", "server", "table")
    world.run()
    world.io().delete_tree(f"{ROOT}/{gone}")
    report = of_fan_out(world)
    assert kinds(report) == ["sink.missing"] and f"destination '{gone.partition(' ')[0]}'" in str(report)


def test_a_destination_that_has_not_what_the_fan_out_has_given_it_is_named():
    """It has gone back together with its journal, so that the two agree."""
    world = FanOutWorld("server", "table")
    world.run()
    server = world.make(ROOT).sinks["server"]

    def retired(**options) -> bool:
        return retire_of_sink(world.io(), server, SinkOptions.of(server.path, options))

    assert retired(accept_as_new=told("retire.fan-out", retired).option("accept_as_new"))
    assert kinds(of_fan_out(world)) == ["fan-out.other-records"]


@pytest.mark.parametrize("step", ["fan-out.recorded", "fan-out.delivered", "fan-out.before_destination"])
def test_what_a_start_of_a_fan_out_makes_up_for_is_no_damage(step):
    world = FanOutWorld("server", "files")
    world.dies_at(step, 2)
    report = of_fan_out(world)
    assert kinds(report) == [] and "not all destinations have record" in str(report)
    world.run()
    assert "not all destinations" not in str(of_fan_out(world))
    assert of_fan_out(world).ok and all(found == ALL for found in world.seen().values())


def test_a_destination_that_may_stay_behind_is_no_damage():
    world = Lagging()
    world.run()
    assert kinds(of_fan_out(world)) == [] and world.ids("server") == []


def test_no_command_makes_a_table_in_the_place_of_one_that_was_dropped(tmp_path):
    """It would have no columns, and be taken for the one that rows are to be written into."""
    lake = Lake()
    lake.run((3, 6))
    lake.drop()
    told("table.missing", lambda: give_up_of_sink(lake.io(), lake.sink(), SinkOptions.of("lake.shop.orders", {})))
    assert kinds(verified(lake.io(), lake.sink(), "/destination")) == ["table.missing"]
    with pytest.raises(NoSuchTableError):
        lake.table()
    world = OfDelta(tmp_path, sink=lambda path: DeltaSink(path, journal=f"{tmp_path}/journals"))
    world.run(3, 5)
    shutil.rmtree(world.path)
    report = verified(local_file_io(), world.sink, f"{tmp_path}/journals")
    assert kinds(report) == ["table.missing"] and "only a query makes a table" in str(report)
    fan_out = FanOutWorld("server", "table")
    fan_out.run()
    fan_out.io().delete_tree(f"{ROOT}/table")
    options = SinkOptions.of(ROOT, {})
    said = told("table.missing", lambda: retire_of_sink(fan_out.io(), fan_out.make(ROOT), options))
    said.says("leave it out of the fan-out")
    forced = fan_out_of(ROOT, *fan_out.names, options={"table": {"create": True}})
    told("table.missing", lambda: retire_of_sink(fan_out.io(), forced, options))
    assert fan_out.io().names(f"{ROOT}/table") == []
    fan_out.names = ("server",)
    assert retire_of_sink(fan_out.io(), fan_out.make(ROOT), options)


def test_nothing_is_made_where_nothing_is(tmp_path):
    with pytest.raises(Misuse) as refused:
        streamsink.verify(FileSink(tmp_path / "out"), application="orders")
    assert refused.value.kind == "sink.missing" and list(tmp_path.iterdir()) == []
