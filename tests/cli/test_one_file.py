"""Files that errors name: brought back from a backup, or deleted where nothing needs them."""

import os
import shutil
from pathlib import Path

import pytest

import streamsink
from streamsink.journal.file_journal import FileJournal, journal_dir
from streamsink.journal.repair import REPLAYS
from streamsink.operations.checkpoints import rewind
from streamsink.operations.discarding import discard
from streamsink.operations.restoring import restore
from streamsink.storage.file_io import local_file_io
from tests.advice.following import follows, told
from tests.cli.conftest import run, said

IO = local_file_io(False)


@pytest.fixture
def backup(orders, tmp_path) -> Path:
    """A copy of the table."""
    return Path(shutil.copytree(orders, tmp_path / "backup"))


@pytest.mark.parametrize("what", ["snapshot/snapshot-2", "schema/schema-0", "manifest", "journal", "data"])
@pytest.mark.parametrize("how", ["gone", "torn"])
def test_a_file_that_is_gone_or_torn_comes_back_from_a_backup(orders, backup, what, how):
    """A snapshot, a schema, a manifest, a record, a data file: as it was, and only that."""
    pattern = {"manifest": "manifest/manifest-*", "journal": "streamsink/streamsink/record-4.json", "data": "dt=*/*/*"}
    path = min(Path(orders).glob(pattern.get(what, what)))
    before = path.read_bytes()
    path.write_bytes(before[:20])
    if how == "gone":
        path.unlink()
    copy = str(backup / path.relative_to(orders))
    would = said("restore", str(path), "--from", copy, code=1)
    assert (would["missing"] or would["damaged"]) == [str(path)] and not path.exists() == (how == "gone")
    said("restore", str(path), "--from", copy, "--yes")
    assert path.read_bytes() == before and said("restore", str(path), "--from", copy)["whole"] == 1
    assert said("verify", orders)["ok"]


def test_a_folder_comes_back_without_what_is_whole(orders, backup):
    """What is there is not touched, hints and holds of another time are not copied."""
    shutil.rmtree(journal_dir(orders, "streamsink"))
    (Path(orders) / "snapshot" / "snapshot-1").unlink()
    kept = (Path(orders) / "snapshot" / "snapshot-2").stat().st_mtime_ns
    done = said("restore", orders, "--from", str(backup), "--yes")
    names = {os.path.relpath(path, orders) for path in done["missing"]}
    assert {"snapshot/snapshot-1", "streamsink/streamsink/record-4.json"} <= names and done["damaged"] == []
    assert not any(os.path.basename(name).startswith("hold") for name in names)
    assert (Path(orders) / "snapshot" / "snapshot-2").stat().st_mtime_ns == kept
    run("recover", orders, "--application", "streamsink", "--yes")
    assert streamsink.read_arrow(orders).num_rows == 40


@follows("restore.no-copy", "restore.damaged-copy", "restore.differs")
def test_what_is_whole_is_not_replaced_nor_is_a_torn_copy_taken(orders, backup):
    path, copy = f"{orders}/snapshot/snapshot-2", backup / "snapshot" / "snapshot-2"
    told("restore.no-copy", lambda: restore(IO, path, IO, f"{copy}-none")).says("the copy of", path)
    other = (backup / "snapshot" / "snapshot-1").read_bytes()
    whole = copy.read_bytes()
    copy.write_bytes(other)
    told("restore.differs", lambda: restore(IO, path, IO, str(copy))).says("give --from only what is missing")
    copy.write_bytes(whole[:30])
    os.unlink(path)
    told("restore.damaged-copy", lambda: restore(IO, path, IO, str(copy))).says("another copy")
    assert not os.path.exists(path)
    copy.write_bytes(whole)
    assert restore(IO, path, IO, str(copy)).missing == (path,) and Path(path).read_bytes() == whole


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("snapshot/LATEST", "9"),
        ("consumer/consumer-report", "{}"),
        ("schema/schema-7", "{"),
        ("streamsink/removal-1.json", "{"),
        ("streamsink/compact-1", "["),
        ("streamsink/streamsink/owner-9", "{"),
        ("streamsink/streamsink/files-0-1-2", "x"),
        ("streamsink/streamsink/staging/1-9/at-1", "{"),
        ("lock.token", "{"),
    ],
)
def test_a_hint_a_consumer_and_what_is_damaged_may_go(orders, name, text):
    path = Path(orders) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert said("discard", str(path), code=1)["done"] is False and path.exists()
    assert said("discard", str(path), "--yes")["done"] and not path.exists()
    assert "nothing is there" in said("discard", str(path))["what"]


@follows("discard.needed", "discard.foreign")
def test_what_is_needed_or_is_not_ours_stays(orders, lake):
    """Whole files of the table, rows, records, folders of others: the error says which command is meant."""
    data = min(Path(orders).glob("dt=*/*/*.parquet"))
    manifest = min(Path(orders).glob("manifest/manifest-*"))
    needed = {
        f"{orders}/snapshot/snapshot-1": "tag, branch, expire",
        f"{orders}/schema/schema-0": "tag, branch, expire",
        str(manifest): "tag, branch, expire",
        str(data): "streamsink orphans",
        f"{orders}/streamsink/streamsink/record-4.json": "recover --give-up",
        f"{orders}/streamsink/streamsink/owner-1": "as long as it is whole",
    }
    for path, way in needed.items():
        told("discard.needed", lambda path=path: discard(IO, path)).says(way)
    (lake / "streamsink" / "project").mkdir(parents=True)
    (lake / "streamsink" / "project" / "thesis.txt").write_text("mine")
    (lake / "dt=1").mkdir()
    (lake / "dt=1" / "mine.parquet").write_text("mine")
    for path in (
        lake / "streamsink" / "project",
        lake / "streamsink",
        lake,
        lake / "lake",
        Path(orders),
        lake / "dt=1",
    ):
        told("discard.foreign", lambda path=path: discard(IO, str(path))).says("as the error has it")
        assert said("discard", str(path), "--yes", code=3)["error"]["kind"] == "discard.foreign"
    assert data.exists() and streamsink.read_arrow(orders).num_rows == 30


def test_a_data_file_that_was_cut_is_discarded_and_then_dropped(orders):
    """As the doctor says it, where the rows are lost."""
    data = min(Path(orders).glob("dt=*/*/*.parquet"))
    data.write_bytes(data.read_bytes()[:40])
    [text] = {each["text"] for each in said("doctor", orders, code=1)["findings"] if each["kind"] == "file.size"}
    for words in (f"streamsink discard {data} --yes", f"streamsink drop-missing {orders} --yes"):
        assert words in text
        run(*words.split()[1:])
    assert 20 < streamsink.read_arrow(orders).num_rows < 30


@follows("discard.in-use")
def test_a_journal_goes_only_without_a_driver_and_says_what_goes_with_it(orders):
    path = journal_dir(orders, "streamsink")
    living = FileJournal(IO, orders, "streamsink", 2)
    living.claim("q1", 0)
    told("discard.in-use", lambda: discard(IO, path)).says("End it first")
    living.release()
    assert said("discard", path, code=1)["pending"] == 1 and os.path.exists(path)
    assert said("discard", path, "--yes")["pending"] == 1 and not os.path.exists(path)


def test_a_journal_that_knows_what_was_replayed_stays(orders):
    """Else dead letters would be written a second time."""
    path = Path(journal_dir(orders, "streamsink")) / REPLAYS
    path.mkdir()
    (path / "1-a").write_text("{}")
    for folder in (path.parent, path.parent.parent):
        told("discard.needed", lambda folder=folder: discard(IO, str(folder))).says("dead letters")


def test_what_a_dropped_table_left_goes_as_its_error_says(orders, backup):
    """Journal, manifests and data files, of a table whose metadata was deleted on purpose."""
    from streamsink.format.types import parse_ddl
    from streamsink.table.table import create_table, new_schema

    for name in ("schema", "snapshot", "tag", "branch"):
        shutil.rmtree(Path(orders) / name)
    columns = new_schema(parse_ddl("id BIGINT"), (), {})
    words = told("table.not-empty", lambda: create_table(IO, orders, columns)).find(r"'streamsink ([^']*)'")
    run(*words.split())
    assert not os.path.exists(orders)
    create_table(IO, orders, columns)
    assert streamsink.read_arrow(orders).num_rows == 0


@follows("lock.token")
def test_a_torn_token_of_a_lock_is_deleted_as_its_error_says(tmp_path):
    from streamsink.locks.file_lock import FileLock
    from streamsink.locks.lock import LockTerms

    lock = FileLock(IO, str(tmp_path / "table.lock"), LockTerms("l", 1000, 1000))
    Path(f"{tmp_path}/table.lock.token").write_text("{")
    words = told("lock.token", lambda: lock.try_acquire("me:1:a")).find(r"'streamsink ([^']*)'")
    run(*words.split())
    assert lock.try_acquire("me:1:a") == 1
    lock.give_up("me:1:a")


def _checkpoint(folder: Path, batches: int) -> Path:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
        for batch in range(batches):
            (folder / name / str(batch)).write_text("v1")
            (folder / name / f".{batch}.crc").write_text("x")
    (folder / "metadata").write_text("{}")
    return folder


@follows("rewind.no-checkpoint", "rewind.stateful")
def test_a_checkpoint_is_rewound_where_its_rows_are_planned_again(tmp_path):
    """The last batches go, the newest first; a stateful query's state cannot."""
    folder = _checkpoint(tmp_path / "checkpoint", 4)
    told("rewind.no-checkpoint", lambda: rewind(IO, str(folder / "offsets"), 2)).says("checkpointLocation")
    (folder / "state").mkdir()
    (folder / "state" / "0").mkdir()
    told("rewind.stateful", lambda: rewind(IO, str(folder), 2)).says("Start the query with a new checkpoint")
    shutil.rmtree(folder / "state")
    done = said("rewind", str(folder), "--from-batch", "2", code=1)
    assert done["batches"] == [2, 3] and (folder / "offsets" / "3").exists()
    assert said("rewind", str(folder), "--from-batch", "2", "--yes")["batches"] == [2, 3]
    for name in ("offsets", "commits"):
        assert sorted(path.name for path in (folder / name).iterdir()) == [".0.crc", ".1.crc", "0", "1"]
    assert said("rewind", str(folder), "--from-batch", "2")["batches"] == []


def test_a_torn_list_of_what_an_expiry_was_deleting_goes_as_its_error_says(orders):
    """Nothing expires until somebody has said so."""
    path = Path(orders) / "streamsink" / "removal-1.json"
    path.write_text("{")
    error = said("expire", orders, "--retain-max", "1", "--retain-min", "1", "--yes", code=4)["error"]
    words = error["message"].split("'streamsink ")[1].partition("'")[0]
    run(*words.split())
    assert not path.exists() and said("expire", orders, "--retain-max", "1", "--retain-min", "1", "--yes")["snapshots"]
