"""Errors that tell an operator to do something name the command that does it; the command is typed as they say it."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import streamsink
from streamsink.cli.main import COMMANDS, cli
from streamsink.errors import StreamsinkError
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.kinds import called
from tests.cli.conftest import run, said
from tests.cli.lakes import PENDING, PUBLISHED, driver, dying

ENDS = [*PUBLISHED, PENDING, 50]


@pytest.fixture
def table(tmp_path) -> Path:
    """A table in a folder whose name has a space, with a record that is pending."""
    root = tmp_path / "my lake" / "orders"
    dying(root, SparkCheckpoint("q1"), ENDS[:4])
    return root


def _start(table: Path) -> None:
    """The query starts again with its checkpoint, in which the last batch is not committed."""
    driver(table).run(local_file_io(False), SparkCheckpoint("q1", ENDS[:4], len(PUBLISHED)), ENDS)


def _told(table: Path, kind: str) -> list[str]:
    """The command that the error of the query's start names."""
    with pytest.raises(StreamsinkError) as refused:
        _start(table)
    assert refused.value.kind == kind, refused.value
    found = re.search(r"\(in a shell: streamsink (.+?)\)", str(refused.value))
    assert found, refused.value
    return shlex.split(found[1])


def _journal(table: Path, name: str) -> Path:
    return table / "streamsink" / "streamsink" / name


def _whole(table: Path, rows: int = 50) -> None:
    """The query goes on, and each row is there once."""
    _start(table)
    assert sorted(streamsink.read_arrow(table)["id"].to_pylist()) == list(range(rows))


def test_a_record_whose_files_are_gone_is_given_up(table):
    next(_journal(table, "staging").rglob("*.parquet")).unlink()
    run(*_told(table, "pending.files-gone"))
    _whole(table)


def test_a_damaged_record_is_given_up(table):
    path = _journal(table, "record-4.json")
    path.write_bytes(path.read_bytes()[:-5])
    run(*_told(table, "journal.corrupt"))
    _whole(table)


def test_what_is_given_up_says_where_a_new_checkpoint_begins(table):
    """The command in the report of another command prints the offsets."""
    next(_journal(table, "staging").rglob("*.parquet")).unlink()
    [done] = said(*_told(table, "pending.files-gone"))["given_up"]
    found = re.search(r"\(in a shell: streamsink (.+?)\)", done["text"])
    assert said(*shlex.split(found[1]))["startingOffsets"] == {"t": {"0": PUBLISHED[-1]}}


@pytest.mark.parametrize("name", ["owner-1", "journal-1"])
def test_a_damaged_file_that_holds_no_data_is_deleted(table, name):
    """What claims the name, and which journal it is. Without --yes the command only names the file."""
    path = _journal(table, name)
    path.write_text("{")
    words = _told(table, "journal.owner" if name == "owner-1" else "journal.identity")
    assert str(path) in run(*(word for word in words if word != "--yes"), code=1).stdout and path.exists()
    assert said(*words)["damaged"] == [str(path)] and not path.exists()
    _whole(table)


def test_data_files_that_are_gone_are_dropped(table):
    """The rest of the table can be read and written again."""
    run("recover", str(table), "--yes")
    gone = sorted((table / "dt=2026-11-01" / "bucket-0").glob("*.parquet"))
    lost = sum(streamsink.read_arrow(table)["dt"].to_pylist().count(day) for day in ["2026-11-01"])
    for path in gone:
        path.unlink()
    run(*_told(table, "data.missing"))
    _start(table)
    assert streamsink.read_arrow(table).num_rows == 50 - lost


def _named() -> Iterator[tuple[str, list[str]]]:
    """(where in the code, words) of each command that a message of the library names; what is put in later is '1'."""
    code = Path(streamsink.__file__).parent
    for path in sorted(path for path in code.rglob("*.py") if "cli" not in path.parts):
        for call in ast.walk(ast.parse(path.read_text())):
            is_named = isinstance(call, ast.Call) and called(call) in _NAMING
            words = [each for each in call.args if not isinstance(each, ast.Starred)] if is_named else []
            said = [each.value if isinstance(each, ast.Constant) and each.value != "ID" else "1" for each in words]
            if said and said[0] in COMMANDS:
                yield f"{path.relative_to(code)}:{call.lineno}", said


_NAMING = ("in_a_shell", "command", "_quoted")


def test_each_command_that_a_message_names_can_be_typed():
    """It is one of the command line, with the arguments and options that this takes. Nothing is run."""
    wrong, found = [], list(_named())
    for place, words in found:
        context, command, left = click.Context(cli), cli, words
        try:
            while isinstance(command, click.Group):
                name, command, left = command.resolve_command(context, left)
            command.make_context(name, list(left), parent=context)
        except click.UsageError as refused:
            wrong.append(f"{place}: streamsink {' '.join(words)}: {refused.format_message()}")
    assert not wrong and len(found) > 15, wrong
