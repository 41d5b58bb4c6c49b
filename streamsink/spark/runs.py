"""The runs of this process. Runs on the driver.

It knows which query holds which application, why the last batch of a run failed, and closes runs whose query has ended.
"""

import atexit
import os
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql.types import StructType

from streamsink import events
from streamsink.errors import Fenced, StreamsinkError
from streamsink.events import log
from streamsink.format.types import DataField
from streamsink.journal.owners import in_use
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.run.micro_batch import QueryRun
from streamsink.protocol.sink import OpenSink
from streamsink.spark.explain import explain
from streamsink.spark.sizes import Sizes
from streamsink.spark.types import to_fields
from streamsink.storage.stores import one_spelling

# Held while a run starts, because two queries of this process may want one application.
LOCK = events.NoCallback()
# By (table, application). The run of a query that has ended stays here, and releases its application when another query
# wants it.
_RUNS: dict[tuple[str, str], "Run"] = {}
# By (run of a query, table, application): the last batch that failed, and why. The supervisor reads this, because Spark
# hands on only the text of a Python error, and nothing of an error that the program's batch function has swallowed.
_FAILURES: dict[tuple[str, str, str], tuple[int, Exception]] = {}
_MOST_FAILURES = 16


class Run:
    """One start of one query, and what the Spark side remembers of its batches.

    A new one takes its place when the query restarts.
    """

    def __init__(self, sink: Any, to: OpenSink, started: QueryRun, batch: Batch, has_ended: Callable[[], bool]):
        """sink: the ``SparkSink`` that began the run. to: what the run writes to. started: the protocol's side of the
        run. batch: its first batch.
        has_ended: tells whether the query has ended. It is not asked for a bounded job, which is over when its call
        returns.
        """
        self.sink = sink
        self.to = to
        self.started = started
        self.id = batch.run
        self.query = batch.query
        self.sizes = Sizes()
        self.at_end: Callable[[], None] = _nothing  # what else waits for the last publishing
        self._columns: tuple[StructType, Sequence[DataField]] | None = None
        self._has_ended = has_ended
        self._is_bounded = batch.batch_id == END_OF_INPUT
        self._is_closed = False
        self._has_told_its_end = False

    def fields(self, given: StructType) -> Sequence[DataField]:
        """The columns of a batch as fields of a table; the same object as long as they do not change."""
        if self._columns is None or self._columns[0] != given:
            self._columns = given, to_fields(given)
            named = tuple((each.name, str(each.type)) for each in self._columns[1])
            self.started.protocol.emit(events.ColumnsChanged, columns=named)
        return self._columns[1]

    def close(self) -> None:
        """Publish what is pending, and release the application. Raises what publishing raises."""
        self._is_closed = True
        try:
            self.started.close()
        finally:
            self.at_end()
            self.tell_its_end()

    def let_go(self) -> None:
        """Release the application, and publish nothing: for a query that has ended. Idempotent, from any thread."""
        self.to.journal.release()
        self.tell_its_end()

    def tell_its_end(self) -> None:
        """Tell the listener that no batch will come, once."""
        if not self._has_told_its_end:
            self._has_told_its_end = True
            self.started.protocol.emit(events.RunEnded, run=self.id)

    def is_over(self, query: str | None = None) -> bool:
        """Whether no batch of this run can come any more.

        query: the id of a query that starts now. A run of the same query is over then, because a query does not run
        twice at one time.
        """
        if self._is_bounded:
            return self._is_closed
        return self._is_closed or self.query == query or self._has_ended()


def add(path: str, application: str, run: Run) -> None:
    """The run holds the application from now on. Called under ``LOCK``."""
    _RUNS[(one_spelling(path), application)] = run


def of(path: str, application: str) -> Run | None:
    """The run that holds the application, or the last one that held it. Called under ``LOCK``."""
    return _RUNS.get((one_spelling(path), application))


def other_sinks(path: str, application: str, run_id: str) -> frozenset[str]:
    """The names under which this start of a query has called other sinks of the same place.

    That is: of the same table, of a folder of tables that the table is in, or of a table in this folder.

    Not called under ``LOCK``: every batch asks this, and another query of this process holds the lock while it starts.
    All sinks of a query, also the one that asks, are called in the query's one thread.
    """
    runs, path = list(_RUNS.items()), one_spelling(path)
    others = [
        (place, run.to.known_as)
        for (place, name), run in runs
        if run.id == run_id and (place, name) != (path, application)
    ]
    return frozenset(name for place, name in others if _is_within(place, path) or _is_within(path, place))


def _is_within(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def sink_of(path: str, run_id: str) -> Any:
    """The sink of this place in this start of a query, as the query was given it; None where it is not known here."""
    place = one_spelling(path)
    for (other, _), run in list(_RUNS.items()):
        if other == place and run.id == run_id:
            return run.sink.destination
    return None


def close_ended(path: str, application: str, query: str | None = None) -> None:
    """Close the run that holds the application, when its query has ended or when it is an earlier start of ``query``.

    What the run had pending is published, now or by the restore that follows. Called under ``LOCK``. Raises Fenced for
    a bounded job whose run is being written by another call: as a restart, this call would take the application over
    from that one.
    """
    earlier = _RUNS.get((one_spelling(path), application))
    if earlier is None:
        return
    if earlier.is_over(query):
        _close(earlier)
    elif earlier.query == query:
        mine = {"query": query, "run": "", "pid": os.getpid(), "host": os.uname().nodename}
        raise in_use(path, application, mine, query)


def let_go(path: str, application: str) -> None:
    """Do what ``close_ended`` does, before something else than a query claims the application."""
    with LOCK:
        close_ended(path, application)


def superseded(query: str) -> Exception | None:
    """The error that says that a newer driver has taken over an application which a query of this process held, or
    None.

    query: its checkpoint id. What else is wrong there is told by the next start.
    """
    for (path, _), run in list(_RUNS.items()):
        if run.query == query:
            try:
                run.to.journal.check_owner(run.started.protocol.writer)
            except Fenced as fenced:
                return explain(path, fenced)
            except (StreamsinkError, OSError) as failed:
                log.debug("%s: who owns the application is not known: %s", path, failed)
    return None


def release(query: str) -> Exception | None:
    """Publish what a query of this process left pending, and release the applications that it held.

    Called when the query has ended.

    query: its checkpoint id. Returns the error that publishing ended with, or None. What could not be published is
    published at the next start.
    """
    with LOCK:
        ended = [(path, _RUNS.pop((path, name))) for (path, name), run in list(_RUNS.items()) if run.query == query]
    errors = [(path, _close(run)) for path, run in ended]
    return next((explain(path, error) for path, error in errors if error is not None), None)


def remember(of: tuple[str, str, str], batch_id: int, cause: Exception) -> Exception:
    """Remember why this batch failed, and return ``cause``.

    of: (run of the query, table, application).
    """
    while len(_FAILURES) >= _MOST_FAILURES:
        _FAILURES.pop(next(iter(_FAILURES)))
    _FAILURES.pop(of, None)  # so that the last failure stands last
    _FAILURES[of] = batch_id, cause
    return cause


def forget(of: tuple[str, str, str], batch_id: int) -> None:
    """Forget why this batch failed, because it has gone through now: the program has tried it again."""
    if _FAILURES.get(of, (None,))[0] == batch_id:
        _FAILURES.pop(of, None)


def failure(run_id: str) -> Exception | None:
    """Why this start of a query failed, or None when it is not known here. The answer is given once."""
    found = [_FAILURES.pop(of)[1] for of in list(_FAILURES) if of[0] == run_id]
    return found[-1] if found else None


def _close(run: Run) -> Exception | None:
    try:
        run.close()
    except (StreamsinkError, OSError) as failed:
        log.warning("what is pending could not be published: %s", failed)
        return failed
    return None


def _nothing() -> None:
    """What ends with most runs."""


def finish_all() -> None:
    """Publish what is pending, because the interpreter exits. Idempotent.

    This takes a bounded time, as all publishing does. Holds end with the process.
    """
    for run in list(_RUNS.values()):
        try:
            run.started.finish()
        except (StreamsinkError, OSError) as failed:
            log.warning("what is pending could not be published at exit: %s", failed)
        run.at_end()
        run.tell_its_end()


atexit.register(finish_all)
# A forked child process has this dictionary, but neither the queries nor their threads.
os.register_at_fork(after_in_child=_RUNS.clear)
