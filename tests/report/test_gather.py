"""What the report says is what the table, its journals and the other commands say."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from streamsink import maintenance, retire
from streamsink.errors import Corrupt, Misuse
from streamsink.format.snapshot import OVERWRITE
from streamsink.operations.report.gather import Wanted, gather, is_ill_at
from streamsink.operations.report.page import page
from streamsink.storage.file_io import local_file_io
from streamsink.table.application_states import PREFIX
from streamsink.table.table import open_table
from streamsink.testing.counting import count_calls
from streamsink.testing.driver import SparkCheckpoint
from tests.cli.conftest import said
from tests.cli.lakes import driver, dying, make_letters
from tests.report.conftest import report_on
from tests.report.lakes import long_past, small


@pytest.fixture
def root(tmp_path) -> Path:
    return small(tmp_path / "shop.db" / "orders")


def _kinds(document: dict) -> dict:
    return document["history"]["counts"]


def _alter(root: Path, number: int, **values) -> None:
    """Let a snapshot's file say something else."""
    table = open_table(local_file_io(False), str(root), for_writing=False)
    made = replace(table.snapshots.load(number), **values)
    Path(table.layout.snapshot(number)).write_bytes(made.to_json())


def test_the_numbers_are_those_of_the_other_commands(root):
    """Rows, files, bytes and partitions of the newest snapshot; and each batch is a commit of ten rows."""
    document, files = report_on(root), said("files", str(root))
    assert document["files"]["sum"] == {name: files[name] for name in ("files", "rows", "bytes")}
    largest = {each["partition"]: each for each in document["files"]["partitions"]["largest"]}
    assert largest == {each["partition"]: each for each in said("partitions", str(root))["partitions"]}
    assert document["summary"]["rows"] == 30 and document["summary"]["retained"] == 3
    assert document["batches"]["commits"] == document["batches"]["checkpoints"] == 3
    assert document["batches"]["rows"]["summary"]["median"] == 10
    sizes = [each["bytes"] for each in files["listed"]]
    assert document["batches"]["bytes"]["summary"]["count"] == 3
    assert sum(part["sum"] for part in document["batches"]["bytes"]["over_time"] if part) == sum(sizes)
    assert document["commits"]["publish"]["summary"]["count"] == 3
    assert document["findings"] == {"ill": False, "count": 0, "listed": []}


def test_a_start_after_a_death_is_a_restart_and_what_is_pending_is_told(tmp_path):
    """Its pending record is a finding, with the command that mends it; after that it is none."""
    root, checkpoint = tmp_path / "orders", SparkCheckpoint("q1")
    dying(root, checkpoint, [10, 20, 30])
    document = report_on(root)
    [finding] = document["findings"]["listed"]
    assert is_ill_at(document) and finding["command"].startswith("streamsink recover ")
    assert [each["count"] for each in document["pending"]] == [1] and "restart" not in _kinds(document)
    driver(root).run(local_file_io(False), checkpoint, [10, 20, 30, 40])
    document = report_on(root)
    assert _kinds(document) == {"restart": 1} and not is_ill_at(document)
    assert document["queries"][0]["starts"] == 2 and document["pending"][0]["count"] == 0
    assert sum(document["history"]["restarts"]) == 1


def test_accidents_and_maintenance_have_names(root):
    """A rollback, a compaction, a branch that was taken over, and a program that overwrites."""
    maintenance.rollback_to(root, 2)
    maintenance.compact(root, full=True)
    maintenance.create_branch(root, "work", snapshot_id="latest")
    document = report_on(root)
    assert _kinds(document) == {"rollback": 1}
    assert sum(document["history"]["kinds"]["COMPACT"]) == 1 and document["summary"]["rows"] == 20
    assert [each["branch"] for each in document["care"]["branches"]["listed"]] == ["work"]
    _alter(root, 3, commit_kind=OVERWRITE, commit_user="flink", properties=None)
    assert _kinds(report_on(root, findings=False))["overwrite-by-others"] == 1


def test_a_name_that_was_retired_and_is_used_again_has_published_nothing_twice(root):
    """Its records are numbered from 1 again."""
    retire(str(root), "streamsink")
    driver(root).run(local_file_io(False), SparkCheckpoint("q2"), [10, 20])
    assert _kinds(report_on(root, findings=False)) == {"retired": 1}


def test_dead_letters_are_told_at_the_table_whose_rows_did_not_fit(tmp_path):
    """And in their own table's report the query is the writer."""
    make_letters(tmp_path)
    document, letters = report_on(tmp_path / "clicks"), report_on(tmp_path / "rejected")
    assert _kinds(document) == {"dead-letters": 2}
    [beside] = document["dead_letters"]
    assert beside["path"] == str(tmp_path / "rejected") and beside["rows"] == letters["summary"]["rows"] == 4
    assert letters["batches"]["commits"] == 2 and letters["dead_letters"] == []


def test_a_branch_has_a_report_of_its_own(root):
    maintenance.create_branch(root, "work", snapshot_id="latest")
    document = report_on(root / "branch" / "branch-work")
    assert document["branch"] == "work" and document["summary"]["rows"] == 30 and "problem" in document["care"]


def test_a_snapshot_that_another_writers_rename_replaced_is_told(root):
    """The journal's mark names the snapshot that was there."""
    _alter(root, 2, uuid="00000000-0000-4000-8000-000000000000")
    assert _kinds(report_on(root, findings=False)) == {"replaced": 1}


def test_snapshots_that_are_missing_or_damaged_are_told_and_the_rest_is_there(root):
    (root / "snapshot" / "snapshot-2").unlink()
    (root / "snapshot" / "snapshot-1").write_text("{")
    document = report_on(root, findings=False)
    assert _kinds(document) == {"damaged": 1, "missing": 1} and document["summary"]["rows"] == 30


def test_a_newest_snapshot_that_is_damaged_is_told_in_each_part_that_needs_it(root):
    """So there is a page all the same, which says which file it is."""
    (root / "snapshot" / "snapshot-3").write_text("{")
    document = report_on(root)
    assert "snapshot-3" in document["files"]["problem"] and "snapshot-3" in document["queries"]["problem"]
    assert document["summary"]["newest"] == 2 and is_ill_at(document)


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize(
    ("name", "odd"), [("sequence", None), ("epoch", "x"), ("epoch", []), ("sources", [1]), ("fingerprint", "x")]
)
def test_a_state_that_is_no_state_is_told_and_the_rest_is_there(root, number, name, odd):
    """Whoever edits properties by hand, or a bug of another program: of an older snapshot, and of the newest one."""
    table = open_table(local_file_io(False), str(root), for_writing=False)
    properties = dict(table.snapshots.load(number).properties)
    key = next(each for each in properties if each.startswith(PREFIX))
    _alter(root, number, properties={**properties, key: json.dumps(json.loads(properties[key]) | {name: odd})})
    document = report_on(root)
    assert document["files"]["sum"]["rows"] == 30
    is_told = number == 2 and name == "sources"  # of older ones nobody reads the positions
    is_told |= "damaged" in document["history"]["counts"] or "problem" in document["queries"]
    assert is_told and f"<h1><bdi>{root}" in page(document)


@pytest.mark.parametrize("name", ["delta_manifest_list", "base_manifest_list"])
def test_a_list_without_a_name_is_told_in_its_place(root, name):
    """Its path is the folder of all lists."""
    _alter(root, 3, **{name: ""})
    assert "problem" in report_on(root)["files"]


def test_a_state_that_was_altered_is_told_and_the_rest_is_there(root):
    """It is JSON, and lacks what it should say."""
    table = open_table(local_file_io(False), str(root), for_writing=False)
    [(key, text)] = [each for each in table.snapshots.latest().properties.items() if each[0].startswith(PREFIX)]
    state = {name: value for name, value in json.loads(text).items() if name != "sequence"}
    _alter(root, 3, properties={key: json.dumps(state)})
    document = report_on(root)
    assert "sequence" in document["queries"]["problem"] and is_ill_at(document)
    assert _kinds(document)["damaged"] == 1 and document["files"]["sum"]["files"] == 9
    assert "snapshot.state" in page(document)


def test_a_manifest_that_is_gone_is_told_in_the_part_on_files(root):
    for manifest in (root / "manifest").glob("manifest-*"):
        if "list" not in manifest.name:
            manifest.unlink()
    document = report_on(root)
    assert "is missing" in document["files"]["problem"] and document["batches"]["bytes"] is None
    assert document["summary"]["rows"] == 30 and is_ill_at(document)


def test_a_table_without_a_snapshot_has_a_report(root):
    for snapshot in (root / "snapshot").iterdir():
        snapshot.unlink()
    document = report_on(root, findings=False)
    assert document["summary"]["newest"] is None and document["files"]["sum"]["files"] == 0


def test_no_table_is_a_clear_error(tmp_path):
    with pytest.raises(Misuse, match="not a Paimon table"):
        report_on(tmp_path)


def test_a_damaged_schema_is_a_clear_error(root):
    (root / "schema" / "schema-0").write_text("{")
    with pytest.raises(Corrupt, match="schema-0"):
        report_on(root)


def test_what_a_compaction_and_an_expiry_would_do_is_what_they_say(tmp_path):
    """By their own dry runs."""
    root = small(tmp_path / "orders", 12)
    document = report_on(root)
    would = maintenance.compact(root, dry_run=True)
    found = document["files"]["compaction"]
    assert (found["files"], found["bytes"], found["rows"]) == (would.files_before, would.bytes_before, would.rows)
    assert found["files"] > 0
    gone = maintenance.expire_snapshots(root, dry_run=True)
    assert document["care"]["snapshots"]["going"] == len(gone.snapshots)
    assert document["care"]["snapshots"]["first_kept"] == gone.first_kept


def test_a_table_of_another_program_alone_has_no_queries(root):
    for number in (1, 2, 3):
        _alter(root, number, commit_user="7f3c-java", properties=None)
    shutil.rmtree(root / "streamsink")
    document = report_on(root)
    assert document["queries"] == [] and document["batches"]["commits"] == 0 and document["pending"] == []
    assert list(document["history"]["writers"]) == ["another program, user 7f3c-java"]


def test_what_is_read_has_a_bound_that_does_not_grow_with_the_past(tmp_path):
    """A table with three times as many snapshots is read as often, by the number of snapshots that is given."""
    calls = []
    for snapshots in (200, 600):
        file_io = local_file_io(False)
        root = long_past(tmp_path / f"orders{snapshots}", snapshots)
        counts = count_calls(file_io)
        gather(file_io, str(root), Wanted(100, findings=False))
        calls.append(counts["read"])
    few, many = calls
    assert few == many and few < 100 + 100 * 2 + 200, "each snapshot once, two files for its manifests, and some more"


def test_the_data_are_one_json_document(root):
    assert json.loads(json.dumps(report_on(root)))["table"] == str(root)
