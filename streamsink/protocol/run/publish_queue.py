"""Publishing of recorded checkpoints, in order: one snapshot for each of them, or one for a group. Driver only.

Two threads meet here: the batch function records checkpoints, and whoever publishes them (the same thread, the
``PublishThread``, or the thread that stops the query) makes them visible. What each may touch:

- ``_publishing`` is held throughout a publishing and throughout a reconciliation. So the committer that publishes, its
  table and its caches have one user at a time. The batch function reads the table with a committer of its own
  (``Committer.for_background``).
- ``changed`` guards the few facts that both sides read; it is never held during I/O.
- What is handed over is the record: frozen, and durable in the journal before it is handed over. The journal keeps its
  own lists.
"""

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from streamsink import events
from streamsink.clock import Clock
from streamsink.faults import fault_point
from streamsink.options import ONE_SNAPSHOT, SinkOptions
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.ids import Writer
from streamsink.protocol.journal import Journal
from streamsink.protocol.run.first_name import check_name_before
from streamsink.protocol.run.publish_thread import Done, QueuedRecord, Took, published_event
from streamsink.protocol.sink import Committer, Destination, Fence, Published


class PublishQueue:
    """Publishes recorded checkpoints in the order of their records.

    After the first error nothing more is published; later calls raise that error again.
    """

    def __init__(
        self, to: Destination, journal: Journal, committer: Committer, options: SinkOptions, emit: events.Listener
    ):
        self._to = to
        self._journal = journal
        self._committer = committer
        self._options = options
        self._emit = emit
        self._clock = Clock()
        self._publishing = events.NoCallback(to.path)
        self.changed = threading.Condition()
        self._pending: list[QueuedRecord] = []
        self._published: AppState | None = None
        self._failure: BaseException | None = None
        # What the next publishing, or ``settle``, does first: at most one, of the last record that was published.
        self._unsettled: deque[Callable[[], None]] = deque()
        self._writer = Writer(options.application, "", 0)  # until the first reconciliation: nobody's epoch

    # -- what both sides read --------------------------------------------------------------------------------------

    def add(self, record: QueuedRecord) -> None:
        """The record is durable: from here on it is this object's to publish."""
        with self.changed:
            self._pending.append(record)

    def pending(self) -> list[QueuedRecord]:
        """What is recorded and not published, in order."""
        with self.changed:
            return list(self._pending)

    def expected(self) -> set[str | None]:
        """Ids of the records of which one may be the table's last from now on: the published one, and those pending."""
        with self.changed:
            published = self._published.record_id if self._published else None
            return {published} | {entry.committable.state.record_id for entry in self._pending}

    def check(self) -> None:
        """Raises the error that publishing failed with, the original one."""
        if self._failure is not None:
            raise self._failure

    @property
    def failed(self) -> bool:
        """Whether publishing is over because of an error."""
        return self._failure is not None

    @property
    def has_unsettled(self) -> bool:
        """Whether ``settle`` has something to do."""
        return bool(self._unsettled)

    # -- publishing ------------------------------------------------------------------------------------------------

    def publish_up_to(self, checkpoint_id: int | None) -> list[Published]:
        """Publish everything pending up to and with this checkpoint, in order; ``None``: everything.

        Idempotent. Raises as ``Committer.publish``; what was not published stays pending for the next restore.
        """
        with self._as_the_only_one():
            outcomes = []
            queued = self._up_to(checkpoint_id)
            for unit, records in self.units([record.committable for record in queued]):
                self._settle()
                begun_ms = next(r.begun_ms for r in queued if r.committable is records[0])
                fault_point("group.before_publish")
                tried_ms = self._clock.monotonic_ms()
                outcome = self.publish(unit, records, expect=records[0].state.sequence - 1)
                took = Took.now(self._clock, begun_ms, tried_ms)
                finish = functools.partial(self._finish, unit, records, outcome, took)
                if outcome.settle is None:
                    finish()
                else:
                    self._see_published(unit)
                    self._unsettled.append(finish)
                outcomes.append(outcome)
            return outcomes

    def settle(self) -> None:
        """Do what publishing has left to be done beside the next batch. Idempotent; any thread may call it.

        Raises as ``publish_up_to``.
        """
        if self._unsettled:
            with self._as_the_only_one():
                self._settle()

    @contextmanager
    def _as_the_only_one(self) -> Iterator[None]:
        """Within it nobody else publishes. Its first error is the queue's end."""
        with self._publishing:
            self.check()
            try:
                yield
            except BaseException as failed:
                with self.changed:
                    self._failure = failed
                    self.changed.notify_all()
                of, left = (self._to.path, self._options.application), len(self.pending())
                self._emit(events.PublishingFailed(*of, *events.error_of(failed), left))
                raise

    def _settle(self) -> None:
        while self._unsettled:
            self._unsettled[0]()
            self._unsettled.popleft()

    def _finish(self, unit: Committable, records: Sequence[Committable], outcome: Published, took: Took) -> None:
        self.mark([(unit, records, outcome.settled())], took)
        self._journal.forget([committable.state.sequence for committable in records])

    def units(self, queued: Sequence[Committable]) -> Iterator[tuple[Committable, list[Committable]]]:
        """(what is published at one instant, the records that it stands for), in order."""
        joined = self._committer.join(queued) if self._options.publish_as == ONE_SNAPSHOT else queued
        rest = list(queued)
        for unit in joined:
            records = [committable for committable in rest if committable.state.sequence <= unit.state.sequence]
            rest = rest[len(records) :]
            yield unit, records

    def publish(
        self,
        unit: Committable,
        records: Sequence[Committable],
        *,
        expect: int,
        restored: bool = False,
        before: Callable[[], None] = lambda: None,
    ) -> Published:
        """Publish what stands for these records.

        expect, restored: as ``Committer.publish``. before: called in each try, when the fence has let it pass.
        """

        def ask() -> None:
            self._journal.check_owner(self._writer)
            # The table may have gone back since the records were made.
            check_name_before(self._to, records, self._committer, self._options)
            before()

        fence = Fence(ask, self._journal.questions(self._writer))
        return self._committer.publish(unit, expect=expect, restored=restored, fence=fence)

    def mark(self, done: Sequence[Done], took: Took, *, soon: bool = False) -> None:
        """These units are visible: the journal marks their records (soon: as there), and the batch function is told.

        Listeners are told also where marking fails: the start that marks them does not know that nobody was.
        """
        of = self._to.path, self._options.application
        try:
            self._journal.mark_all([(record, mine[2].where) for mine in done for record in mine[1]], soon=soon)
        except BaseException:
            for each in done:
                self._emit(published_event(*of, each, len(self._behind(each[0])), took))
            raise
        for each in done:
            if each[2].base_replaced:
                self._emit(events.SnapshotReplaced(*of, each[2].snapshot_id - 1, ()))
            left = self._see_published(each[0])
            fault_point("commit.marked")
            self._emit(published_event(*of, each, left, took))

    def _see_published(self, unit: Committable) -> int:
        """The unit is visible. Returns how many records are pending."""
        with self.changed:
            if self._published is None or self._published.sequence <= unit.state.sequence:
                self._published = unit.state
            self._pending = self._behind(unit)
            self.changed.notify_all()
            return len(self._pending)

    def _behind(self, unit: Committable) -> list[QueuedRecord]:
        return [entry for entry in self.pending() if entry.committable.state.sequence > unit.state.sequence]

    def _up_to(self, checkpoint_id: int | None) -> list[QueuedRecord]:
        entries = self.pending()
        ids = [entry.committable.state.checkpoint_id for entry in entries]
        wanted = [number for number, each in enumerate(ids, 1) if checkpoint_id is None or each <= checkpoint_id]
        return entries[: wanted[-1]] if wanted else []

    # -- reconciliation --------------------------------------------------------------------------------------------

    @contextmanager
    def alone(self, writer: Writer) -> Iterator[None]:
        """Within it nothing is published by ``publish_up_to``. When it ends, nothing is pending."""
        with self._publishing:
            self._settle()
            self._writer = writer
            yield
            with self.changed:
                self._pending.clear()

    @property
    def published(self) -> AppState | None:
        """The last state that is known to be published."""
        return self._published

    def begin_behind(self, published: AppState | None) -> None:
        """This is the last state that is published, by what the destination and the journal say."""
        with self.changed:
            self._published = published
