"""How a job ends: told to before its query runs, and with rows less than its source gave."""

import os
import signal
import threading
import types
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"
LONG_S = 60


class _Query:
    """It runs until it is stopped. A real one takes seconds to come to the point that matters here."""

    id = runId = "a query"

    def __init__(self):
        self._stopped = threading.Event()

    @property
    def isActive(self):
        return not self._stopped.is_set()

    def stop(self):
        self._stopped.set()

    def awaitTermination(self):
        assert self._stopped.wait(LONG_S), "it runs on"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_before_the_query_starts_is_not_lost(number, monkeypatch):
    """A session is there many seconds before the query, on a machine that is busy."""
    monkeypatch.syspath_prepend(JOBS)
    from support.ending import Ending

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    streams = types.SimpleNamespace(active=[])
    try:
        ending = Ending(types.SimpleNamespace(streams=streams))
        os.kill(os.getpid(), number)
        asked = threading.Event()
        while not ending.asked:
            asked.wait(0.001)

        def start():
            streams.active.append(_Query())
            return streams.active[-1]

        ending.run(start)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert ending.by_signal and not streams.active[-1].isActive


@pytest.mark.parametrize("lost", [0, 3])
def test_the_closing_table_says_what_else_counts_as_lost(lost, monkeypatch, capsys):
    """An operator who went back on purpose is not to look for lost rows."""
    monkeypatch.syspath_prepend(JOBS)
    from support.progress import Progress
    from support.report import Outcome, close

    code = close(Outcome("messages read", 9, rows=9 - lost, duplicates=0, lost=lost), Progress(lambda published: 0))
    assert code == (1 if lost else 0) and ("a rollback" in capsys.readouterr().out) == bool(lost)
