"""Maintenance of the tables of a query beside its batches: one thread for each start of the query.

It has openings of the tables of its own, so it shares no cache with the batches. It writes nothing that a batch reads,
and what it deletes nobody needs (``table/care/removal.py``); so no batch waits for it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from streamsink.clock import Clock
from streamsink.errors import Conflict, Misuse, Retryable
from streamsink.events import Event, Maintained, log
from streamsink.options import SinkOptions
from streamsink.protocol.upkeep import Care, begun
from streamsink.sinks.paimon.care.needed import needed_by_journals
from streamsink.storage.file_io import FileIO
from streamsink.table.care.auto_tags import MODE, AutoTags
from streamsink.table.care.maintain import Maintainer, check_options
from streamsink.table.history.retained import check_main
from streamsink.table.table import Table

# A store that does not answer, or others that were first, end the query when that happens so often in a row.
_MOST_FAILURES = 3
# How long a stop waits for a run to end.
_PATIENCE_MS = 120_000


def check_care(table: str, said: Mapping[str, str], options: SinkOptions) -> None:
    """Raises Misuse where the table's options cannot be followed, or want tags by period that nobody here would make,
    and for a branch with maintenance.

    table: its path. said: its options, whether it is there yet or not.
    """
    if options.maintenance:
        check_main(table, "maintenance=True")
        check_options(table, said)
    elif AutoTags.of(table, said) is not None:
        raise Misuse(
            f"{table}: its option {MODE} is {said[MODE]!r}, which asks writers to make tags. Nothing was written. Give "
            "maintenance=True, so that this query makes them; or take the option off, and call "
            "streamsink.maintenance.create_tag",
            kind="table.unsupported-option",
        )


def check_tags(table: Table, options: SinkOptions) -> Table:
    """Returns the table. Raises as ``check_care``."""
    check_care(table.root, table.known_schema.options, options)
    return table


class BackgroundCare(Care):
    """Runs maintenance after publishing, at most one run at a time and not more often than the options say.

    What was published last is followed by a run as well: a stop waits for that one, so that queries which run for a
    moment now and then look after their tables too. The thread is there while a run is due or under way, so nothing is
    left of a query that ends without telling.
    """

    def __init__(
        self,
        file_io: FileIO,
        tables: Callable[[], Sequence[str]],
        options: SinkOptions,
        emit: Callable[[Event], None] = lambda event: None,
    ):
        """tables(): paths of the tables that this start of the query has written, or is about to write."""
        self._io = file_io
        self._tables = tables
        self._options = options
        self._emit = emit
        self._clock = Clock()
        self._changed = threading.Condition()
        self._is_due = self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._maintainers: dict[str, Maintainer] = {}
        self._begun_ms: float | None = None
        self._failures = 0
        self._error: BaseException | None = None
        self._told = False

    def published(self) -> None:
        with self._changed:
            self._is_due = True
            self._changed.notify_all()
            if self._thread is None and not self._is_stopping:
                self._thread = begun(self._follow, f"streamsink-maintenance {self._options.application}")

    def check(self) -> None:
        if self._error is not None:
            self._told = True
            raise self._error

    def stop(self) -> None:
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_PATIENCE_MS / 1000)  # one that hangs is a daemon, and what it leaves the next run finishes
        if not self._told:
            self.check()

    def _follow(self) -> None:
        while self._wait():
            self._begun_ms = self._clock.monotonic_ms()
            try:
                self.run()
                self._failures = 0
            except (OSError, Retryable, Conflict) as passing:
                self._failures += 1
                log.warning("maintenance in the background failed (%d in a row): %s", self._failures, passing)
                if self._failures >= _MOST_FAILURES:
                    self._end_with(passing)
            except BaseException as failed:  # handed on: the next batch raises it
                self._end_with(failed)

    def run(self) -> None:
        """One run, in this thread: all tables, one after another. Raises as ``Maintainer.run``."""
        for path in self._tables():
            begun_ms = self._clock.monotonic_ms()
            done = self._maintainer(path).run()
            if done:
                elapsed_ms = self._clock.monotonic_ms() - begun_ms
                self._emit(Maintained(path, self._options.application, **asdict(done), elapsed_ms=elapsed_ms))

    def _maintainer(self, path: str) -> Maintainer:
        if path not in self._maintainers:
            table = Table(self._io, path)
            self._maintainers[path] = Maintainer(table, needed_by_journals(table), self._options)
        return self._maintainers[path]

    def _wait(self) -> bool:
        """Until the next run may begin; False, and the thread ends, when none is due. A stop lets it begin at once."""
        with self._changed:
            left_ms = self._left_ms()
            if self._is_due and left_ms > 0:
                self._changed.wait_for(lambda: self._is_stopping, left_ms / 1000)
            is_due, self._is_due = self._is_due and self._error is None, False
            if not is_due:
                self._thread = None
            return is_due

    def _left_ms(self) -> float:
        if self._begun_ms is None:
            return 0.0
        return self._begun_ms + self._options.maintenance_interval_ms - self._clock.monotonic_ms()

    def _end_with(self, error: BaseException) -> None:
        log.warning(
            "maintenance of %s in the background has ended, and the query ends with its next batch: %s",
            ", ".join(self._maintainers),
            error,
        )
        with self._changed:
            self._error = error
            self._changed.notify_all()


def care_of(
    file_io: FileIO, tables: Callable[[], Sequence[str]], options: SinkOptions, emit: Callable[[Event], None]
) -> Care:
    """What looks after these tables, if the options ask for it."""
    return BackgroundCare(file_io, tables, options, emit) if options.maintenance else Care()
