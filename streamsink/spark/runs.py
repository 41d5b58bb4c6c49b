"""The runs of this process: which application is held by which query, why one failed, and what happens when it ends. DRIVER."""

import atexit
import logging
import os
import threading
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from streamsink.errors import StreamsinkError
from streamsink.format.schema import TableSchema
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.micro_batch import QueryRun
from streamsink.sinks.opening import Opened
from streamsink.spark import gateway, write_ways
from streamsink.spark.explain import explain

log = logging.getLogger("streamsink")

# Held while a run starts: two queries of this process may want one application.
LOCK = threading.Lock()
# By (table, application): a query that has ended gives its hold back when another one comes.
_RUNS: dict[tuple[str, str], "Run"] = {}
# Why a run of a query failed, for the supervisor: Spark hands on only the text of a Python error.
_FAILURES: dict[str, Exception] = {}
_MOST_FAILURES = 16


@dataclass(frozen=True)
class Fitted:
    """What the data's schema was found to be in the table: the same answer as long as neither changes."""

    given: StructType
    schema: TableSchema
    schema_json: bytes


class Run:
    """One start of one query, and what Spark's side remembers of its batches. Replaced when the query restarts."""

    def __init__(self, opened: Opened, started: QueryRun, options: SinkOptions, batch: Batch):
        self.table = opened.tables
        self.committer = opened.committer
        self.started = started
        self.options = options
        self.dead_letters = opened.dead_letters
        self.id = batch.run
        self.query = batch.query
        self.sizes = write_ways.Sizes()
        self.fitted: Fitted | None = None


def add(path: str, application: str, run: Run) -> None:
    """It holds the application from now on. Called under ``LOCK``."""
    _RUNS[(path, application)] = run


def of(path: str, application: str) -> Run | None:
    """The run that holds the application, or held it last. Called under ``LOCK``."""
    return _RUNS.get((path, application))


def close_ended(path: str, application: str, spark: SparkSession, query: str) -> None:
    """A query of this process that has ended, or an earlier start of this one, no longer holds the application.

    What it had pending is published, now or by the restore that follows. Called under ``LOCK``.
    """
    earlier = _RUNS.get((path, application))
    if earlier is not None and (earlier.query == query or not gateway.is_active(spark, earlier.query)):
        _close(earlier)


def release(query: str) -> Exception | None:
    """A query of this process has ended: publish what it left pending, and give back the applications that it held.

    Returns the error that this ended with; what could not be published is published at the next start.
    """
    with LOCK:
        ended = [(path, _RUNS.pop((path, name))) for (path, name), run in list(_RUNS.items()) if run.query == query]
    errors = [(path, _close(run)) for path, run in ended]
    return next((explain(path, error) for path, error in errors if error is not None), None)


def remember(run_id: str, cause: Exception) -> Exception:
    """Why this start of a query failed."""
    while len(_FAILURES) >= _MOST_FAILURES:
        _FAILURES.pop(next(iter(_FAILURES)))
    _FAILURES[run_id] = cause
    return cause


def failure(run_id: str) -> Exception | None:
    """Why this start of a query failed, once; None when it is not known here."""
    return _FAILURES.pop(run_id, None)


def _close(run: Run) -> Exception | None:
    try:
        run.started.close()
    except (StreamsinkError, OSError) as failed:
        log.warning("what is pending could not be published: %s", failed)
        return failed
    return None


def _finish_all() -> None:
    """The interpreter exits: publish what is pending. Bounded, as every publishing is. Holds end with the process."""
    for run in list(_RUNS.values()):
        try:
            run.started.finish()
        except (StreamsinkError, OSError) as failed:
            log.warning("what is pending could not be published at exit: %s", failed)


atexit.register(_finish_all)
# A forked child has the list, but neither the queries nor their threads.
os.register_at_fork(after_in_child=_RUNS.clear)
