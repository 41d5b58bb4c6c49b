"""The outermost edge of a call for a batch: what it raises is remembered and handed to Spark, and listeners are told
how it has ended. Driver only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamsink import events
from streamsink.clock import Clock
from streamsink.spark import runs
from streamsink.spark.explain import explain


@contextmanager
def remembered(of: tuple[str, str], batch_id: int, start_id: Callable[[], str]) -> Iterator[None]:
    """Why the batch fails is remembered for the supervisor, because Spark hands on only the text of an error.

    of: (path, application). start_id: the id of this start of the query. Raises the error as ``explain`` words it.
    """
    try:
        yield
    except Exception as failed:  # the outermost edge: remembered for the supervisor, then handed to Spark
        cause = runs.remember((start_id(), *of), batch_id, explain(of[0], failed))
        if cause is failed:
            raise
        raise cause from failed


@contextmanager
def told(of: tuple[str, str], batch_id: int, listener: events.Listener) -> Iterator[None]:
    """The listener is told how the call ends, and how long it took. of: (path, application)."""
    clock = Clock()
    begun_ms = clock.monotonic_ms()
    try:
        yield
    except BaseException as failed:
        words = events.error_of(failed)
        listener(events.BatchFailed(*_known_as(of), batch_id, *words, clock.monotonic_ms() - begun_ms))
        raise
    listener(events.BatchReturned(*_known_as(of), batch_id, clock.monotonic_ms() - begun_ms))


def _known_as(of: tuple[str, str]) -> tuple[str, str]:
    """The path and the name in the events of the run, which may have the name of an earlier version of this library."""
    run = runs.of(*of)
    return of if run is None else (run.to.to.path, run.to.application)
