"""Advice of errors about locks: once it is followed, the commit, or each row, is there once."""

import json
import sys

import pytest

import streamsink
from streamsink.locks.configured import lock_of
from streamsink.options import SinkOptions
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.following import follows, told
from tests.locks import replacing


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "shop.db" / "orders")


def _lock(path, **settings):
    return lock_of(path, SinkOptions.of(path, settings))


def _write(path, checkpoint, ends, **settings):
    replacing.driver(path, "mine", settings)._run_once(replacing.store(), checkpoint, ends)


def _ids(path) -> list[int]:
    return sorted(streamsink.read_arrow(path).column("id").to_pylist())


@follows("lock.missing")
def test_a_store_that_replaces_gets_a_lock(path):
    checkpoint = SparkCheckpoint("q")
    said = told("lock.missing", lambda: _write(path, checkpoint, [2]))
    assert said.find(r"Set the option '(\w+)'") == "lock"
    checkpoint = SparkCheckpoint("q")
    _write(path, checkpoint, [2, 4], lock="file")
    assert _ids(path) == [0, 1, 2, 3]


@follows("lock.timeout")
def test_a_lock_that_another_writer_holds(path):
    """That writer ends, and what was pre-committed is published at the next start."""
    checkpoint = SparkCheckpoint("q")
    _write(path, checkpoint, [2], lock="file")
    lease = _lock(path, lock="file").acquire()
    said = told("lock.timeout", lambda: _write(path, checkpoint, [2, 4], lock="file", lock_acquire_timeout_ms=0))
    said.says("lock_acquire_timeout_ms=0", "published at the next start")
    lease.__exit__(None, None, None)
    replacing.driver(path, "mine", {"lock": "file"}).run(replacing.store(), checkpoint, [2, 4])
    assert _ids(path) == [0, 1, 2, 3]


@follows("lock.token")
def test_a_damaged_token_is_deleted(path, tmp_path):
    """It holds no data, as the error says."""
    checkpoint = SparkCheckpoint("q")
    _write(path, checkpoint, [2], lock="file")
    [token] = tmp_path.rglob("*.lock.token")
    token.write_text("torn")
    said = told("lock.token", lambda: _write(path, checkpoint, [2, 4], lock="file")).says(
        "make sure that no writer runs, and delete it"
    )
    assert said.find(r"(/\S+\.token)") == str(token)
    token.unlink()
    replacing.driver(path, "mine", {"lock": "file"}).run(replacing.store(), checkpoint, [2, 4])
    assert _ids(path) == [0, 1, 2, 3] and json.loads(token.read_text())["token"] > 0


@follows("lock.driver")
def test_a_missing_driver_is_installed(monkeypatch, path):
    """The message gives the name of the extra to install."""
    settings = {"lock": "jdbc:postgresql://127.0.0.1:1/db", "lock_acquire_timeout_ms": 0}
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "psycopg", None)
        said = told("lock.driver", lambda: _lock(path, **settings))
    assert said.find(r"pip install 'streamsink\[(\w+)\]'") == "postgresql"
    assert _lock(path, **settings)


@follows("lock.unavailable")
def test_a_lock_that_cannot_be_asked_is_mended(path, tmp_path):
    """The folder of the lock is away for a moment."""
    folder = tmp_path / "locks"
    folder.mkdir()
    settings = {"lock": f"file:{folder}", "lock_acquire_timeout_ms": 0}
    lease = _lock(path, **settings).acquire()
    [token] = folder.rglob("*.token")
    kept = token.read_bytes()
    token.unlink()
    token.mkdir()
    said = told("lock.unavailable", lease.check)
    assert said.find(r"(/\S+\.token): ") == str(token)
    token.rmdir()
    token.write_bytes(kept)
    lease.check()
    lease.__exit__(None, None, None)
