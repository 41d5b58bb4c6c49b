"""The number of crash states of a whole gate is summed up and has a least."""

from types import SimpleNamespace

import pytest

from tests.crash import tried

WHOLE, PART = pytest.Config.ArgsSource.TESTPATHS, pytest.Config.ArgsSource.ARGS


def _session(source, markexpr="not soak"):
    option = SimpleNamespace(keyword="", markexpr=markexpr, collectonly=False)
    return SimpleNamespace(
        config=SimpleNamespace(args_source=source, option=option, stash=pytest.Stash()), exitstatus=pytest.ExitCode.OK
    )


def _ends(monkeypatch, session, *of_workers: int):
    """How a run ends whose workers have tried so many; none was tried in its own process."""
    monkeypatch.setattr(tried, "_here", 0)
    for number in of_workers:
        worker = SimpleNamespace(config=SimpleNamespace(workeroutput={}))
        monkeypatch.setattr(tried, "_here", number)
        tried.finish(worker)
        tried.of_worker(SimpleNamespace(config=session.config, workeroutput=worker.config.workeroutput))
    monkeypatch.setattr(tried, "_here", 0)
    tried.finish(session)
    said = []
    tried.say(SimpleNamespace(write_line=said.append), session.config)
    assert said == [] or f" {sum(of_workers):,} crash states" in said[0]
    return session.exitstatus


def test_a_whole_gate_that_tries_fewer_fails(monkeypatch):
    """Also when each worker has tried some; a part of the tests may try as few as it likes."""
    assert _ends(monkeypatch, _session(WHOLE), tried.LEAST - 1, 1) == pytest.ExitCode.OK
    assert _ends(monkeypatch, _session(WHOLE), tried.LEAST - 2, 1) == pytest.ExitCode.TESTS_FAILED
    assert _ends(monkeypatch, _session(WHOLE)) == pytest.ExitCode.TESTS_FAILED
    assert _ends(monkeypatch, _session(PART), 1) == pytest.ExitCode.OK
    assert _ends(monkeypatch, _session(WHOLE, "soak"), 1) == pytest.ExitCode.OK
