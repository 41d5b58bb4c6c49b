"""An operator sees that Iceberg metadata does not follow its table, and gets a command that makes it or says why."""

import dataclasses
import os
import shlex
import shutil

import pytest

from streamsink import events, maintenance
from streamsink.format.types import parse_ddl
from streamsink.metrics import Metrics
from streamsink.storage.file_io import local_file_io
from streamsink.testing.crashing import CrashingCalls
from tests.cli.conftest import run, said
from tests.crash.world import memory_world
from tests.iceberg_metadata.mirrored import AT_TABLE, STORAGE, Query, check, folder_of, iceberg


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "shop.db" / "orders")


def _cut_off(path, query, monkeypatch):
    """Another writer, which makes no metadata, commits."""
    with monkeypatch.context() as patch:
        patch.setattr("streamsink.table.iceberg_metadata.following.makes_iceberg", lambda options: False)
        query.write(2)


def _never_made(path, query, monkeypatch):
    shutil.rmtree(folder_of(path))


def _damaged(path, query, monkeypatch):
    os.truncate(f"{folder_of(path)}/v2.metadata.json", 20)


def _went_back(path, query, monkeypatch):
    """A rollback of Paimon, which deletes snapshots."""
    table = query.table()
    table.file_io.delete(table.layout.snapshot(2))
    table.file_io.replace(table.layout.latest_hint, b"1", "x")
    shutil.rmtree(f"{path}/streamsink")  # which tells of a rollback by itself


def _came_again(path, query, monkeypatch):
    """Behind such a rollback another writer commits, under the number that there was."""
    _went_back(path, query, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("streamsink.table.iceberg_metadata.following.makes_iceberg", lambda options: False)
        Query(path, application="other").write()


def _copied(path, query, monkeypatch):
    """The table is a copy, and its metadata names the files of the place where it was."""
    original = f"{path}_original"
    Query(original).write(2)
    shutil.rmtree(path)
    shutil.copytree(original, path)


ACCIDENTS = {
    "another writer": (_cut_off, "see snapshot 2, and 4 is the newest one"),
    "no metadata": (_never_made, f"has no Iceberg metadata, which its option {STORAGE} asks for"),
    "damaged": (_damaged, "damaged, or of another table"),
    "went back": (_went_back, "of a snapshot that the table does not have any more"),
    "came again": (_came_again, "of a snapshot that the table does not have any more"),
    "a copy": (_copied, "damaged, or of another table"),
}


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_the_doctor_says_that_readers_are_behind_and_its_command_mends_it(path, monkeypatch, accident):
    """Without --yes the command changes nothing. Afterwards nothing is found."""
    query = Query(path)
    query.write(2)
    assert said("doctor", path)["findings"] == []
    does, text = ACCIDENTS[accident]
    does(path, query, monkeypatch)
    command = _found(path, text)
    before = sorted(os.listdir(folder_of(path))) if os.path.exists(folder_of(path)) else None
    assert text in said(*command, code=1)["lacking"]
    assert before is None or sorted(os.listdir(folder_of(path))) == before
    assert text in said(*command, "--yes")["lacking"]
    assert [each for each in said("doctor", path)["findings"] if each["kind"] == "iceberg.behind"] == []
    assert said(*command)["lacking"] == "" and "lack nothing" in run(*command, "--yes").stdout
    check(path)


def _found(path, text) -> list[str]:
    """The words of the command that the doctor names."""
    [found] = [each for each in said("doctor", path, code=1)["findings"] if each["kind"] == "iceberg.behind"]
    assert found["severity"] == "note" and text in found["text"]
    program, *words = shlex.split(found["command"])
    assert program == "streamsink"
    return words


def test_the_command_says_why_the_metadata_cannot_be_made(path):
    """Another program has added a column that Iceberg does not have: a commit only logs it."""
    query = Query(path)
    query.write(2)
    table = query.table(for_writing=True)
    schema = table.latest_schema()
    [column] = parse_ddl("at TIME")
    fields = (*schema.fields, dataclasses.replace(column, id=schema.highest_field_id + 1))
    table.schemas.add(
        dataclasses.replace(schema, id=schema.id + 1, fields=fields, highest_field_id=schema.highest_field_id + 1)
    )
    shutil.rmtree(folder_of(path))
    command = _found(path, "has no Iceberg metadata")
    refused = said(*command, "--yes", code=3)["error"]
    assert refused["kind"] == "table.unsupported-column" and refused["message"].startswith(f"{path}: column 'at'")


def test_a_table_that_asks_for_none_lacks_nothing(path):
    Query(path, table_options={STORAGE: "disabled"}).write(2)
    assert said("doctor", path)["findings"] == [] and said("iceberg-metadata", path, "--yes")["lacking"] == ""
    assert not os.path.exists(folder_of(path))


def test_nothing_is_to_be_done_while_a_driver_lives(path, monkeypatch):
    """It makes the metadata with its next commit. Where it does not, the command says why."""
    query = Query(path)
    query.write(2)
    _cut_off(path, query, monkeypatch)
    checkpoint = query.checkpoint
    with monkeypatch.context() as patch:
        patch.setattr("streamsink.table.iceberg_metadata.following.makes_iceberg", lambda options: False)
        living = query.driver.start(local_file_io(False), checkpoint)
        checkpoint.ends.append(checkpoint.ends[-1] + 10)
        living.batch(query.driver.describe(checkpoint, checkpoint.committed))
    try:
        [found] = said("doctor", path)["findings"]
        assert (found["kind"], found["command"]) == ("iceberg.behind", "")
        assert f"'streamsink iceberg-metadata {path}' says why" in found["text"]
    finally:
        living.close()


def test_snapshots_that_iceberg_metadata_still_has_keep_their_files(path, monkeypatch):
    """Not only its newest one. The files are orphans when it has followed."""
    query = Query(path)
    query.write(6)
    maintenance.create_tag(path, "before", 6)
    maintenance.compact(path)
    table = query.table()
    for number in range(2, 8):
        table.file_io.delete(table.layout.snapshot(number))
    table.file_io.replace(table.layout.latest_hint, b"1", "x")
    with monkeypatch.context() as patch:
        patch.setattr("streamsink.table.iceberg_metadata.mirror.columns_of", _fail)
        maintenance.delete_tag(path, "before")
    assert iceberg(folder_of(path)).scan(snapshot_id=6).to_arrow().num_rows == 60
    for folder, _, names in os.walk(path):
        for name in names:
            os.utime(f"{folder}/{name}", (0, 0))
    shutil.rmtree(f"{path}/streamsink")
    gone = maintenance.remove_orphan_files(path, dry_run=False, without_journals=("streamsink",))
    assert gone.paths
    check(path)


def _fail(*_):
    raise OSError("no room")


def test_metrics_say_that_metadata_does_not_follow_and_when_it_does_again():
    """One event for the first failure, and one when it has caught up."""
    world, metrics = memory_world(table_options=AT_TABLE), Metrics()
    calls = CrashingCalls(world.calls)
    link, refused = calls.link, []

    def refusing(source, target):
        if "/metadata/" in target and len(refused) < 2:
            refused.append(target)
            raise PermissionError(13, "denied")
        return link(source, target)

    calls.link = refusing
    world.run(calls)
    told = [event for event in world.driver.events if isinstance(event, events.IcebergMetadataBehind)]
    assert [event.failures for event in told] == [1, 0]
    assert "denied" in told[0].why and told[1].why == ""
    seen = []
    for event in told:
        metrics(event)
        seen.append(metrics.registry.value("iceberg_metadata_behind", event.table, event.application))
    assert seen == [1, 0] and told[0].table == world.driver.root
