"""The doctor names what is wrong, and the command that it names mends it."""

import shlex
import shutil
from pathlib import Path

import pytest

import streamsink
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import SparkCheckpoint
from tests.cli.conftest import run, said
from tests.cli.lakes import PENDING, PUBLISHED, driver, dying


@pytest.fixture
def table(tmp_path) -> str:
    """A table with three snapshots, and nothing pending."""
    root = str(tmp_path / "orders")
    driver(root).run(local_file_io(False), SparkCheckpoint("q1"), PUBLISHED)
    return root


def _left_pending(root: str, ends=(*PUBLISHED, PENDING), **settings) -> None:
    checkpoint = SparkCheckpoint("q1", [*PUBLISHED], len(PUBLISHED))
    dying(root, checkpoint, list(ends), "precommit.saved", **settings)


def _gone(root: str, of: str) -> None:
    [first, *_] = sorted(Path(root).rglob(of))
    first.unlink()


def _files_of_a_record_gone(root: str) -> None:
    _left_pending(root)
    _gone(root, "staging/*/*.parquet")


def _record_damaged(root: str) -> None:
    _left_pending(root)
    path = Path(root) / "streamsink" / "streamsink" / "record-4.json"
    path.write_bytes(path.read_bytes()[:-9])


def _record_missing(root: str) -> None:
    _left_pending(root, (*PUBLISHED, PENDING, 50), publish_every_batches=9)
    (Path(root) / "streamsink" / "streamsink" / "record-4.json").unlink()


def _rolled_back(root: str) -> None:
    (Path(root) / "snapshot" / "snapshot-3").unlink()
    (Path(root) / "snapshot" / "LATEST").write_text("2")


def _data_gone(root: str) -> None:
    _gone(root, "bucket-0/*.parquet")


ACCIDENTS = {
    "checkpoint.pending": (_left_pending, PENDING),
    "pending.files-gone": (_files_of_a_record_gone, 30),
    "journal.corrupt": (_record_damaged, 30),
    "journal.missing-record": (_record_missing, 30),
    "checkpoint.rolled-back": (_rolled_back, 30),
    "file.missing": (_data_gone, None),
}


@pytest.mark.parametrize("kind", ACCIDENTS)
def test_the_command_that_the_doctor_names_mends_it(table, kind):
    """Typed as it stands, with --yes; without, it changes nothing. Afterwards nothing is to be done, and nothing is
    found except that older snapshots lack a file that was dropped.
    """
    accident, rows = ACCIDENTS[kind]
    accident(table)
    found = said("doctor", table, code=1)["findings"]
    [command] = {each["command"] for each in found if each["kind"] == kind}
    assert command, found
    program, *arguments = shlex.split(command)
    assert program == "streamsink"
    before = _names(table)
    run(*arguments, code=said_code(arguments))
    assert _names(table) == before
    run(*arguments, "--yes")
    if rows is None:
        assert {each["command"] for each in said("doctor", table, code=1)["findings"]} == {""}
        assert streamsink.read_arrow(table).num_rows < 30
    else:
        left = said("doctor", table)["findings"]
        assert [each for each in left if each["command"] or each["severity"] == "damage"] == []
        assert sorted(streamsink.read_arrow(table)["id"].to_pylist()) == list(range(rows))


def said_code(arguments: list[str]) -> int:
    """A dry run ends with 1 where it shows a finding."""
    from click.testing import CliRunner

    from streamsink.cli.main import cli

    code = CliRunner().invoke(cli, arguments).exit_code
    assert code in (0, 1)
    return code


def _names(root: str) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path(root).rglob("*") if path.is_file()}


def test_nothing_is_to_be_done_while_the_driver_lives(table):
    """A record that is pending is then one of a batch under way."""
    _left_pending(table)
    living = driver(table)
    living.options = living.options.of(table, {"restore": "restore-and-continue", "publish_every_batches": 9})
    checkpoint = SparkCheckpoint("q1", [*PUBLISHED, PENDING], len(PUBLISHED) + 1)
    run_of_query = living.start(local_file_io(False), checkpoint)
    try:
        checkpoint.ends.append(50)
        run_of_query.batch(living.describe(checkpoint, len(PUBLISHED) + 1))
        [found] = said("doctor", table)["findings"]
        assert (found["kind"], found["command"]) == ("checkpoint.pending", "") and "runs" in found["text"]
    finally:
        run_of_query.close()


def test_a_manifest_that_is_gone_is_no_case_for_a_command(table):
    """Only data files can be dropped: its rows would be lost, and nobody would know which."""
    _gone(table, "manifest/manifest-list-*")
    found = said("doctor", table, code=1)["findings"]
    assert [each["command"] for each in found if each["kind"] == "file.missing"] == [""]
    assert any("Restore it from a backup ('streamsink restore /" in each["text"] for each in found)


def test_a_folder_that_is_nothing_is_refused(tmp_path):
    assert run("doctor", str(tmp_path / "none"), code=3).stderr.startswith("table.missing: ")


def test_what_a_dead_batch_has_left_is_told_without_a_command(table):
    """Its folder may be ready for its record; the query's next checkpoint removes it."""
    dying(table, SparkCheckpoint("q1", [*PUBLISHED], len(PUBLISHED)), [*PUBLISHED, PENDING], "precommit.before_record")
    [found] = said("doctor", table)["findings"]
    assert (found["kind"], found["command"]) == ("staging.files", "")


def test_a_lost_journal_is_told_without_a_command(table):
    """To retire the query would take away what is known of it."""
    shutil.rmtree(Path(table) / "streamsink")
    [found] = said("doctor", table)["findings"]
    assert (found["kind"], found["command"]) == ("journal.missing", "")
