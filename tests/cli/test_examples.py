"""Each example of the help does what the help says, and the help itself is listed and documented."""

import json
import shlex
import shutil

import click
import pytest

from streamsink.cli.main import cli
from tests import cli_page
from tests.cli.conftest import run

_FOUND = (0, 1)
# It takes seconds: ``make soak`` runs it, the gate another one of the same command.
LONG = ("$ streamsink demo --kill-at commit.published --json",)
# They make something new, and delete nothing.
AT_ONCE = ("$ streamsink tag create", "$ streamsink branch create", "$ streamsink report")
# Its examples need a catalog: tests/catalogs/test_several.py runs them.
ELSEWHERE = "register"
EXAMPLES = [
    pytest.param(line, marks=[pytest.mark.soak] if line in LONG else [])
    for command in cli_page.commands()
    for line in getattr(command, "examples", ())
    if command.name != ELSEWHERE
]


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_of_the_help_runs(lake, line):
    """It ends with 0, or with 1 for findings, and says something; with --json it says one document."""
    shutil.copytree(lake / "lake" / "shop.db" / "orders", lake / "backup" / "orders")
    (lake / "checkpoints" / "orders").mkdir(parents=True)
    (lake / "checkpoints" / "orders" / "metadata").write_text("{}")
    prompt, program, *arguments = shlex.split(line)
    assert (prompt, program) == ("$", "streamsink")
    before = _names(lake)
    done = click.testing.CliRunner().invoke(cli, arguments)
    assert done.exit_code in _FOUND, done.output + done.stderr
    assert done.stdout.strip()
    if "--json" in arguments:
        json.loads(done.stdout)
    if "--yes" not in arguments and not line.startswith(AT_ONCE):
        assert _names(lake) == before, "a command without --yes changes nothing"


def _names(folder) -> dict:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_each_command_has_help_and_an_example():
    for command in cli_page.commands():
        assert command.help and getattr(command, "examples", ()), command.name


def test_the_page_of_commands_is_as_the_help_has_it():
    """``python -m tests.cli_page`` writes it."""
    assert cli_page.PAGE.read_text(encoding="utf-8") == cli_page.page()


@pytest.mark.parametrize("arguments", [("snapshots",), ("nothing",), ("recover", "lake", "--option", "x")])
def test_a_wrong_call_ends_with_2(lake, arguments):
    run(*arguments, code=2)
