"""Rows of one checkpoint that several writers share, each in a thread of its own."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

# So often the main transaction says that it is alive while it waits for the writers: the server ends one that stands
# still.
_ALIVE_S = 15
# Writers that take the next rows when they have written what they had end at about the same time.
_SHARES = 2


class OneWriterInstead(Exception):
    """Several writers have failed; one writer has the same error, or none. cause: of the driver."""

    def __init__(self, cause: Exception):
        super().__init__(type(cause).__name__)
        self.cause = cause


@dataclass(frozen=True)
class Rows:
    """The rows of a checkpoint. read: reads them, each time the same ones. count: how many they are."""

    read: Callable[[], Iterable[pa.RecordBatch]]
    count: int

    def at_once(self, writers: int, most: int) -> int:
        """How many rows each of so many writers takes at once, at most ``most``."""
        return min(most, self.count // (writers * _SHARES) + 1)


class Shared:
    """Rows of which each writer takes the next ``at_once`` when it has written what it had."""

    def __init__(self, batches: Iterable[pa.RecordBatch], at_once: int):
        self.at_once = at_once
        self._batches: Iterator[pa.RecordBatch] = (
            batch.slice(first, at_once) for batch in batches for first in range(0, batch.num_rows, at_once)
        )
        self._lock = threading.Lock()

    def __iter__(self) -> "Shared":
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            return next(self._batches)

    def stop(self) -> None:
        """Nobody gets any more rows."""
        with self._lock:
            self._batches = iter(())


def await_all(running: Iterable["Future[Any]"], run: Callable[..., Any]) -> None:
    """Wait for threads. run: of the main transaction. Raises the first error of any of them."""
    waiting = set(running)
    while waiting:
        done, waiting = wait(waiting, timeout=_ALIVE_S)
        for each in done:
            each.result()
        if waiting:
            run("SELECT 1")
