"""What a script may rely on: one convention of exit codes, in the help of each command, and as each command does it."""

import os
import shutil
from pathlib import Path

import pytest

from streamsink.cli.frame import WITHOUT_YES
from streamsink.journal.file_journal import FileJournal
from streamsink.storage.file_io import local_file_io
from tests import cli_page
from tests.cli.conftest import run
from tests.cli.lakes import allow_nulls

_WOULD = {
    "recover": ("recover", "{orders}"),
    "retire": ("retire", "{orders}", "-a", "streamsink"),
    "drop-missing": ("drop-missing", "{orders}"),
    "replay": ("dead-letters", "replay", "{rejected}", "--target", "clicks"),
    "restore": ("restore", "{orders}/schema", "--from", "backup/schema"),
    "discard": ("discard", "{orders}/snapshot/LATEST"),
    "rewind": ("rewind", "checkpoint", "--from-batch", "0"),
    "expire": ("expire", "{orders}", "--retain-max", "1", "--retain-min", "1"),
    "expire-partitions": ("expire-partitions", "{orders}", "--older-than", "1d", "--formatter", "yyyy-MM-dd"),
    "create-due": ("tag", "create-due", "{orders}"),
    "tag delete": ("tag", "delete", "{orders}", "release-1"),
    "branch delete": ("branch", "delete", "{orders}", "work"),
    "rollback": ("rollback", "{orders}", "--snapshot", "2"),
    "compact": ("compact", "{orders}", "--full"),
    "orphans": ("orphans", "{orders}", "--older-than", "2d"),
    "clear": ("consumer", "clear", "{orders}"),
    "set-options": ("set-options", "{orders}", "tag.num-retained-max=3"),
    "iceberg-metadata": ("iceberg-metadata", "{orders}"),
}


@pytest.fixture
def care(orders, lake) -> str:
    """A table in which every command has something to do."""
    shutil.copytree(orders, lake / "backup")
    allow_nulls(str(lake / "lake" / "shop.db" / "clicks"))
    run("set-options", orders, "tag.automatic-creation=process-time", "tag.creation-period=hourly", "--yes")
    run("set-options", orders, "metadata.iceberg.storage=table-location", "--yes")
    (Path(orders) / "consumer").mkdir()
    (Path(orders) / "consumer" / "consumer-a").write_text('{"nextSnapshot": 3}')
    for name in ("offsets", "commits"):
        (lake / "checkpoint" / name).mkdir(parents=True)
        (lake / "checkpoint" / name / "0").write_text("v1")
    (lake / "checkpoint" / "metadata").write_text("{}")
    left = Path(orders) / "dt=2026-11-01" / "bucket-0" / "data-left-0.parquet"
    left.write_text("left")
    os.utime(left, (0, 0))
    return orders


def _words(command: str, orders: str) -> list[str]:
    rejected = orders.replace("orders", "rejected")
    return [word.format(orders=orders, rejected=rejected) for word in _WOULD[command]]


@pytest.mark.parametrize("command", sorted(set(_WOULD) - {"drop-missing", "restore", "retire"}))
def test_a_dry_run_ends_with_1_where_there_is_something_to_do(care, command):
    run(*_words(command, care), code=1)


def test_a_dry_run_ends_with_1_where_a_file_is_gone_or_a_query_is_there(care):
    """drop-missing, restore and retire, each with 0 where there is nothing to do."""
    for command in ("drop-missing", "restore"):
        run(*_words(command, care))
    run(*_words("retire", care), code=3)
    run("set-options", care, "--remove", "tag.automatic-creation", "--yes")
    run("recover", care, "--yes")
    run(*_words("retire", care), code=1)
    min(Path(care).glob("dt=*/*/data-*"), key=lambda path: path.name == "data-left-0.parquet").unlink()
    (Path(care) / "schema" / "schema-0").rename(Path(care) / "gone")
    run(*_words("restore", care), code=1)
    (Path(care) / "gone").rename(Path(care) / "schema" / "schema-0")
    run(*_words("drop-missing", care), code=1)


def test_with_yes_each_ends_with_0_and_then_there_is_nothing_to_do(care):
    """What was done needs not be done again. What a rollback or a compaction would do once more is nothing."""
    once = ("replay", "discard", "rewind", "create-due", "clear", "set-options", "expire", "compact")
    once = ("iceberg-metadata", *once)  # before anything else makes it
    for command in once:
        run(*_words(command, care), "--yes")
        run(*_words(command, care), code=0)


def test_a_name_that_is_held_is_told_by_3_with_and_without_yes(orders):
    """Unlocking is refused while the driver lives; the look says so as well."""
    living = FileJournal(local_file_io(False), orders, "streamsink", 2)
    living.claim("q1", 0)
    for yes in ((), ("--yes",)):
        run("unlock", orders, "-a", "streamsink", *yes, code=3)
    living.release()
    run("unlock", orders, "-a", "streamsink")


def test_looks_end_with_1_for_findings(care):
    run("doctor", care, code=1)
    run("verify", care)
    (Path(care) / "snapshot" / "snapshot-2").write_text("{")
    run("verify", care, code=1)


def test_each_help_says_what_its_codes_mean():
    """Each command with --yes says the rule, and each that has findings says which."""
    helps = {
        command.name: (command.epilog or "", any("--yes" in option.opts for option in command.params))
        for command in cli_page.commands()
    }
    assert [name for name, (text, is_confirmed) in helps.items() if is_confirmed and WITHOUT_YES not in text] == []
    says = {name for name, (text, _) in helps.items() if "Exit code: 1" in text or "Exit code: 3" in text}
    assert says == {"pending", "verify", "doctor", "recover", "accept", "unlock", "retire", "replay", "demo", "report"}
