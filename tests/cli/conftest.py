"""A lake that is made once, and copied for each test."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamsink.cli.main import cli
from tests.cli.lakes import make_lake


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    make_lake(folder)
    return folder


@pytest.fixture
def lake(made, tmp_path, monkeypatch) -> Path:
    """The folder of a copy of the lake, which is the working folder."""
    shutil.copytree(made / "lake", tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def orders(lake) -> str:
    return str(lake / "lake" / "shop.db" / "orders")


@pytest.fixture
def clicks(lake) -> str:
    """The table of which each third row is a dead letter."""
    return str(lake / "lake" / "shop.db" / "clicks")


def run(*arguments: str, code: int = 0) -> Result:
    """Run a command, which must end with this exit code, and without a traceback."""
    done = CliRunner().invoke(cli, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    assert done.exit_code == code, done.output + done.stderr
    return done


def said(*arguments: str, code: int = 0) -> dict:
    """What a command says as JSON."""
    return json.loads(run(*arguments, "--json", code=code).stdout)
