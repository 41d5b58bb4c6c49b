"""The hold on an application ends with its query, not with the driver's process. Runs on the driver.

A query that fails, stops or has read everything tells nobody: ``foreachBatch`` is not called any more. Its process may
live on, as a notebook does, and without this its hold would keep every other query of the name out for as long.
"""

import os
import threading

from streamsink.clock import Clock
from streamsink.spark.runs import Run

LOOK_MS = 5_000
_LOCK = threading.Lock()
_WATCHED: list[Run] = []
_THREAD: threading.Thread | None = None


def let_go_at_end(run: Run) -> None:
    """Release the application within seconds after the end of the run's query, unless that is done before.

    What is pending then is published as ever: by a thread of the run's own, by whoever closes the run, or by the next
    start.
    """
    global _THREAD
    with _LOCK:
        _WATCHED.append(run)
        if _THREAD is None:
            _THREAD = threading.Thread(target=_watch, name="streamsink-ended", daemon=True)
            _THREAD.start()


def _watch() -> None:
    """Look at all watched runs, as long as there are any. One thread for all: asking Spark takes a millisecond."""
    while _goes_on():
        Clock().sleep_ms(LOOK_MS)
        for run in list(_WATCHED):
            if run.is_over():
                run.let_go()
                _WATCHED.remove(run)


def _goes_on() -> bool:
    global _THREAD
    with _LOCK:
        if not _WATCHED:
            _THREAD = None
        return bool(_WATCHED)


def _forget_all() -> None:
    """A forked child has neither the queries nor the thread."""
    global _THREAD, _LOCK
    _LOCK, _THREAD = threading.Lock(), None
    _WATCHED.clear()


os.register_at_fork(after_in_child=_forget_all)
