"""Ctrl-C while a program waits for its query stops the query in an orderly way. Runs on the driver.

What is pending is published then.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from streamsink.events import log

# What ``signal.getsignal`` returns.
_Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None


class Interruptible:
    """A context around the wait for a query, which handles Ctrl-C.

    asked: whether Ctrl-C has come, so that the query was told to stop.

    PySpark's own handler would ask Spark from within the wait, over the connection that is waiting, and this breaks
    both. A program that has set a handler of its own keeps it. A second Ctrl-C is handled as before.
    """

    def __init__(self, query: StreamingQuery):
        self.asked = False
        self._query = query
        self._before: _Handler = None

    def __enter__(self) -> "Interruptible":
        handler = signal.getsignal(signal.SIGINT)
        of_pyspark = getattr(handler, "__module__", None) or ""
        is_default = handler is signal.default_int_handler or of_pyspark.startswith("pyspark.")
        if is_default and threading.current_thread() is threading.main_thread():
            self._before = handler
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *raised: object) -> None:
        self._restore()

    def _restore(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            signal.signal(signal.SIGINT, before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()
        threading.Thread(target=self._stop, name="streamsink-interrupt", daemon=True).start()

    def _stop(self) -> None:
        """Runs on a thread of its own, and so on a connection of its own."""
        try:
            self._query.stop()
        except (PySparkException, Py4JError, OSError) as failed:
            log.warning("the query could not be stopped: %s", failed)
