"""Processes that the tests fork are like processes that they start: own streams, environment, session, and ends."""

import os
import signal
import subprocess

import pytest

from tests.services.forking import Forked

PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
WAIT_S = 200


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A function that forks a process which executes a statement."""
    monkeypatch.syspath_prepend(tmp_path)

    def run(statement: str, **given) -> Forked:
        (tmp_path / "statement_of_a_fork.py").write_text(statement)
        return Forked("statement_of_a_fork", **given)

    return run


def test_it_has_the_arguments_and_the_streams_that_it_is_given():
    fork = Forked("json.tool", "--compact", **PIPES)
    fork.stdin.write('{"a":  [1, 2]}')
    fork.stdin.close()
    assert fork.communicate(WAIT_S)[0] == '{"a":[1,2]}\n' and fork.returncode == 0


def test_it_has_the_environment_that_it_is_given_and_no_other(runs, monkeypatch):
    """Also what was set after the first fork is there, and what was set before and is not wanted is not."""
    monkeypatch.setenv("STREAMSINK_TEST_FORK", "late")
    say = "import os; print(os.environ.get('STREAMSINK_TEST_FORK'), len(os.environ))"
    assert runs(say, **PIPES).communicate(WAIT_S)[0] == f"late {len(os.environ)}\n"
    assert runs(say, env={"A": "1"}, **PIPES).communicate(WAIT_S)[0] == "None 1\n"


def test_a_session_of_its_own_is_there_when_it_is_started_and_dies_as_a_group(runs):
    """Else a test that kills the group at once would kill nothing."""
    fork = runs("import subprocess; subprocess.run(['sleep', '600'])", session=True)
    assert os.getpgid(fork.pid) == fork.pid != os.getpgid(0)
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0.01)
    assert fork.poll() is None
    os.killpg(fork.pid, signal.SIGKILL)
    assert fork.wait(WAIT_S) == fork.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "statement, code, words",
    [
        ("pass", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("import os; os._exit(4)", 4, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("raise MemoryError('what it says')", 1, "MemoryError: what it says"),
    ],
)
def test_it_ends_as_a_process_does(runs, statement, code, words, tmp_path):
    with open(tmp_path / "err", "wb") as err:
        assert runs(statement, stdout=subprocess.DEVNULL, stderr=err).wait(WAIT_S) == code
    assert words in (tmp_path / "err").read_text()
