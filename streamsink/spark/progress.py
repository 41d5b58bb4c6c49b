"""Spark's progress of streaming queries as events, so that one set of listeners has both. Runs on the driver.

Spark calls a listener of its own in a thread of its own, behind each batch: no batch waits for it. It cannot carry
values of this library the other way: ``foreachBatch`` has no place for custom metrics of a sink in a progress.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from streamsink.events import (
    Listener,
    ListenerFailed,
    Listeners,
    SparkProgress,
    SparkQueryEnded,
    SparkQueryStarted,
    log,
)

_BEHIND = {"avg": "avgOffsetsBehindLatest", "max": "maxOffsetsBehindLatest", "min": "minOffsetsBehindLatest"}


class ProgressListener(StreamingQueryListener):
    """Tells a listener of events what Spark says of each query of its session. It never raises."""

    def __init__(self, listener: Listener):
        self._listener = Listeners(listener)
        self._names: dict[str, str] = {}  # by run
        self._has_failed = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        query, run = str(event.id), str(event.runId)
        self._names[run] = event.name or query
        self._listener(SparkQueryStarted("", self._names[run], query, run))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        try:
            said = progress_event(event.progress)
        except Exception as failed:  # an edge: a version of Spark may say it in another form
            self._not_understood(failed)
        else:
            self._listener(said)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing is told of a query that waits for rows."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        query, run = str(event.id), str(event.runId)
        name = self._names.pop(run, query)
        self._listener(SparkQueryEnded("", name, query, run, event.exception is not None))

    def _not_understood(self, failed: Exception) -> None:
        """As ``Listeners`` does with the error of a listener: logged once, and told each time."""
        error = type(failed).__name__
        if not self._has_failed:
            self._has_failed = True
            with suppress(Exception):  # the log may be what fails
                log.warning(
                    "Spark's progress of a query could not be read (%s: %s). The query goes on, and its numbers of "
                    "Spark's own are missing. Further errors are counted, and not logged",
                    error,
                    failed,
                )
        self._listener(ListenerFailed("", "", type(self).__name__, SparkProgress.__name__, error))


def progress_event(progress: StreamingQueryProgress) -> SparkProgress:
    """The progress as an event."""
    durations = {name: float(took_ms) for name, took_ms in progress.durationMs.items()}
    states = progress.stateOperators
    return SparkProgress(
        "",
        progress.name or str(progress.id),
        str(progress.id),
        str(progress.runId),
        progress.batchId,
        progress.numInputRows,
        _finite(progress.inputRowsPerSecond),
        _finite(progress.processedRowsPerSecond),
        durations.get("triggerExecution", 0.0),
        durations,
        _milliseconds(progress.eventTime.get("watermark")),
        sum(state.numRowsTotal for state in states),
        sum(state.memoryUsedBytes for state in states),
        tuple(_behind(source.metrics) for source in progress.sources),
        tuple((source.description, source.startOffset, source.endOffset) for source in progress.sources),
    )


def listen(spark: SparkSession, listener: Listener) -> ProgressListener:
    """Add a listener to the session. Returns it, for ``spark.streams.removeListener``."""
    made = ProgressListener(listener)
    spark.streams.addListener(made)
    return made


def _behind(said: Mapping[str, Any]) -> Mapping[str, float]:
    """How far a source is behind; empty where it does not say so."""
    return {of: float(said[name]) for of, name in _BEHIND.items() if name in (said or {})}


def _finite(value: float) -> float:
    """A rate; 0 where Spark has no time to divide by."""
    return value if math.isfinite(value) else 0.0


def _milliseconds(text: str | None) -> int | None:
    """An instant as Spark prints it, in ms since 1970; None where there is none yet, which Spark prints as 1970."""
    if not text:
        return None
    at_ms = round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
    return at_ms or None
