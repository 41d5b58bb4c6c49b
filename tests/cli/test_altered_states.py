"""A state that somebody has altered by hand in the newest snapshot: commands and queries say so, by its kind."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsink.cli.main import cli
from streamsink.errors import StreamsinkError
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import SparkCheckpoint
from tests.cli.conftest import run, said
from tests.cli.lakes import driver

KIND = "snapshot.state"
PROPERTY = "streamsink.app.streamsink"
LOOKS = ("doctor", "positions", "pending", "verify", "report", "accept", "expire", "orphans", "retire", "recover")
NAMED = {"retire": ("-a", "streamsink"), "recover": ("-a", "streamsink"), "accept": ("streamsink-0123456789",)}
GONE = object()
WRONG = (GONE, None, "x", 1.5, [], [1], {}, {"x": 1}, [[]], [{}])
_TRIED = 60


def _newest(orders: str) -> Path:
    return max(Path(orders).glob("snapshot/snapshot-*"), key=lambda path: int(path.name.rpartition("-")[2]))


def _alter(path: Path, change) -> None:
    snapshot = json.loads(path.read_text())
    state = json.loads(snapshot["properties"][PROPERTY])
    snapshot["properties"][PROPERTY] = json.dumps(change(state))
    path.write_text(json.dumps(snapshot))


def _without(state, name):
    return {key: value for key, value in state.items() if key != name}


@pytest.mark.parametrize("name", ["sequence", "query_id", "sources", "recorded", "epoch"])
def test_each_look_says_that_a_state_was_altered(orders, name):
    """``doctor`` and ``verify`` find it beside all else that is wrong; other looks end with the error."""
    path = _newest(orders)
    _alter(path, lambda state: _without(state, name) if name != "epoch" else state | {name: "x"})
    for look in ("positions", "pending"):
        failed = said(look, orders, code=4)["error"]
        assert failed["kind"] == KIND and str(path) in failed["message"] and name in failed["message"]
        assert PROPERTY in failed["message"] and "Restore the file" in failed["message"]
    for look in ("doctor", "verify"):
        findings = said(look, orders, code=1)["findings"]
        assert [each["kind"] for each in findings if each["severity"] == "damage"] == [KIND]


def test_no_altered_state_ends_a_command_or_a_query_with_an_error_of_python(orders, rng, tmp_path):
    """Whatever part of a state is gone, or is of another type."""
    path, before = _newest(orders), tmp_path / "before"
    shutil.copytree(orders, before)
    whole, kinds = path.read_text(), set()
    names = list(json.loads(json.loads(whole)["properties"][PROPERTY]))
    for _ in range(_TRIED):
        name, value, look = rng.choice(names), rng.choice(WRONG), rng.choice((*LOOKS, "query"))
        path.write_text(whole)
        _alter(path, lambda state: _without(state, name) if value is GONE else state | {name: value})
        tried = f"{look}, {name}: {'gone' if value is GONE else value!r}"
        if look == "query":
            kinds.add(_start(orders, tried))
            shutil.rmtree(orders)  # a query that may start has written, and the newest snapshot is its own
            shutil.copytree(before, orders)
            continue
        done = CliRunner().invoke(cli, (look, orders, *NAMED.get(look, ()), "--json"))
        assert isinstance(done.exception, SystemExit | None), (tried, done.exception)
        if done.exit_code > 1:
            kinds.add(json.loads(done.stdout)["error"]["kind"])
    assert KIND in kinds


def _start(orders: str, tried: str) -> str:
    """The kind of the error with which the query starts; '' for none."""
    try:
        driver(orders).run(local_file_io(False), SparkCheckpoint("another"), (10, 20, 30))
    except StreamsinkError as refused:
        return refused.kind
    except Exception as raw:
        raise AssertionError((tried, repr(raw))) from raw
    return ""


def test_what_is_altered_is_restored_as_the_error_says(orders, lake):
    """By the command that it names, which takes no copy that is altered as well."""
    path = _newest(orders)
    backup = lake / "backup"
    backup.mkdir()
    (backup / path.name).write_text(path.read_text())
    whole = path.read_bytes()
    _alter(path, lambda state: {})
    altered = backup / f"altered-{path.name}"
    altered.write_bytes(path.read_bytes())
    command = said("positions", orders, code=4)["error"]["message"]
    assert f"streamsink restore {path}" in command
    assert said("restore", str(path), "--from", str(altered), code=3)["error"]["kind"] == "restore.damaged-copy"
    run("restore", str(path), "--from", str(backup / path.name), "--yes")
    assert path.read_bytes() == whole and said("positions", orders)["applications"]
