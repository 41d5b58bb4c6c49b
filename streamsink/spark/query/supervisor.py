"""Restarts a query after a failure that is intended or may be retried, a bounded number of times. Runs on the driver.

After any other failure it stops with the cause.
"""

from collections.abc import Callable

import tenacity
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from streamsink.clock import Clock
from streamsink.errors import Misuse, OutcomeUnknown, Retryable
from streamsink.events import log
from streamsink.spark import runs
from streamsink.spark.explain import is_of_a_stop
from streamsink.spark.query.interrupt import Interruptible
from streamsink.spark.query.rivals import met


def run(
    start: Callable[[], StreamingQuery], *, max_restarts: int = 10, min_wait_ms: int = 100, max_wait_ms: int = 30_000
) -> StreamingQuery:
    """Start the query, wait for its end, and start it again after a failure that a restart mends.

    start: builds and starts the query, anew at each call (``lambda: df.writeStream...start()``).
    max_restarts: the number of restarts in all.
    min_wait_ms, max_wait_ms: the wait before a restart doubles from the one to the other, with jitter.

    Returns the query after it has ended without an error (``availableNow``, or ``stop()`` from elsewhere) and
    everything that it left pending is published.
    Raises the error of ``streamsink.errors`` that was the cause, also when the batch function has swallowed it, or
    Spark's own error. Raises KeyboardInterrupt after Ctrl-C, when the query is stopped and what it left pending is
    published.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((Retryable, OutcomeUnknown)),
        stop=tenacity.stop_after_attempt(max_restarts + 1),
        wait=tenacity.wait_random_exponential(multiplier=min_wait_ms / 1000, max=max_wait_ms / 1000),
        sleep=lambda seconds: Clock().sleep_ms(seconds * 1000),
        before_sleep=_say,
        reraise=True,
    )
    query, interrupted = retrying(lambda: _run_once(start))
    if interrupted:
        raise KeyboardInterrupt
    return query


def _run_once(start: Callable[[], StreamingQuery]) -> tuple[StreamingQuery, bool]:
    """The query at its end, and whether Ctrl-C ended it."""
    try:
        query = start() if callable(start) else start
    except PySparkException as refused:
        if "null string" in str(refused):
            raise Misuse(
                "the query's checkpointLocation is null. Nothing was written. Set .option('checkpointLocation', ...)",
                kind="checkpoint.missing",
            ) from refused
        raise
    if not callable(start) or not hasattr(query, "awaitTermination"):
        raise _no_query(start, query)
    waiting = Interruptible(query)
    try:
        with waiting:
            query.awaitTermination()
    except (PySparkException, Py4JError) as failed:
        cause = runs.failure(str(query.runId))
        if not waiting.asked:
            cause = cause or met(query, failed)
            if cause is None:
                raise
            raise cause from failed
        log.info("interrupted in a batch; the next run begins with this batch", exc_info=True)
    finally:
        left_pending = runs.release(str(query.id))
    swallowed = runs.failure(str(query.runId))
    if swallowed is not None and not waiting.asked and not is_of_a_stop(swallowed):
        raise swallowed
    if left_pending is not None:
        raise left_pending
    return query, waiting.asked


def _no_query(start: object, given: object) -> Misuse:
    """given: what ``start`` has returned, or ``start`` itself where it is no function."""
    returned = "start() has returned" if callable(start) else "start is"
    return Misuse(
        f"streamsink.run: {returned} {given!r}, expected a function that returns the query that it starts, anew each "
        "time: nobody would wait for its end, or restart it. A query that runs already runs on without that: stop it "
        "(for query in spark.streams.active: query.stop()). Then let the function end with: return df.writeStream. "
        "... .start()",
        kind="query.not-returned",
    )


def _say(state: tenacity.RetryCallState) -> None:
    cause = state.outcome.exception() if state.outcome is not None else None
    log.warning("restart %d of the query: %s: %s", state.attempt_number, getattr(cause, "kind", "?"), cause)
