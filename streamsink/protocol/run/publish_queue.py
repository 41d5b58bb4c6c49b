"""Publishing of what is pending, in order: one snapshot for each checkpoint, or one for all of a group. Driver only.

Two threads meet here: the batch function records checkpoints, and whoever publishes them (the same thread, the committer's, or
the one that stops the query) makes them visible. What each may touch:

- ``_publishing`` is held throughout a publishing, a restore included. So the committer that publishes, its table and its
  caches have one user at a time. The batch function reads the table with a committer of its own (``Committer.for_background``).
- ``changed`` guards the few facts that both sides read; it is never held during I/O.
- What is handed over is the record: frozen, and durable in the journal before it is handed over. The journal keeps its own lists.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from streamsink import events
from streamsink.clock import Clock
from streamsink.faults import fault_point
from streamsink.options import ONE_SNAPSHOT, SinkOptions
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.ids import Writer
from streamsink.protocol.journal import Journal, Mark, Where, comes_again, readable
from streamsink.protocol.run.first_name import check_name_before
from streamsink.protocol.run.restore import RestorePlan, plan_restore
from streamsink.protocol.sink import Committer, Destination, Published
from streamsink.protocol.states import CheckpointState


@dataclass(frozen=True)
class QueuedRecord:
    """A checkpoint of this run that is durable and not published. Times in ms of the monotonic clock: its batch's begin, its record."""

    committable: Committable
    state: CheckpointState
    begun_ms: float
    recorded_ms: float


@dataclass(frozen=True)
class Reconciled:
    """Journal and table agree. last: the last published state. published: checkpoint ids. The others as ``RestorePlan`` has them."""

    last: AppState | None
    published: tuple[int, ...]
    rolled_back: tuple[int, ...]
    replaced: tuple[int, ...]
    leftovers: list[str]


class PublishQueue:
    """Publishes recorded checkpoints in the order of their records. Its first error is its last: the run is over then."""

    def __init__(
        self,
        destination: Destination,
        store: Journal,
        committer: Committer,
        options: SinkOptions,
        emit: Callable[[events.Event], None],
    ):
        self._to = destination
        self._store = store
        self._committer = committer
        self._options = options
        self._emit = emit
        self._clock = Clock()
        self._publishing = threading.Lock()
        self.changed = threading.Condition()
        self._pending: list[QueuedRecord] = []
        self._published: AppState | None = None
        self._failure: BaseException | None = None
        self._writer: Writer | None = None

    # -- what both sides read --------------------------------------------------------------------------------------

    def add(self, recorded: QueuedRecord) -> None:
        """The record is durable: from here on it is this object's to publish."""
        with self.changed:
            self._pending.append(recorded)

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

    # -- publishing ------------------------------------------------------------------------------------------------

    def publish_up_to(self, checkpoint_id: int | None) -> list[Published]:
        """Publish everything pending up to and with this checkpoint, in order; ``None``: everything.

        Idempotent. Raises as ``Committer.publish``; what was not published stays pending for the next restore.
        """
        with self._publishing:
            self.check()
            try:
                return self._publish_all(self._up_to(checkpoint_id))
            except BaseException as failed:
                with self.changed:
                    self._failure = failed
                    self.changed.notify_all()
                raise

    def reconcile(self, writer: Writer) -> Reconciled:
        """Bring journal and table together for this owner: what is pending is published, what is published is marked."""
        with self._publishing:
            self._writer = writer
            history = self._committer.history(self._options.application)
            untried = {
                entry.committable.state.sequence for entry in self.pending()
            }  # a try that fails is this run's end
            plan = plan_restore(self._to, history, self._store, self._committer, self._options, untried=untried)
            lost = tuple(c.state.checkpoint_id for c in plan.publish if c.state.sequence in plan.rolled_back)
            for snapshot_id in plan.replaced:
                self._emit(events.SnapshotReplaced(self._to.path, self._options.application, snapshot_id, lost))
            with self._committer.restoring((*plan.mark, *plan.publish)):
                leftovers = self._filter_and_publish(plan)
            with self.changed:
                self._pending.clear()
                last = self._published
        published = tuple(c.state.checkpoint_id for c in plan.publish)
        return Reconciled(last, published, plan.rolled_back, plan.replaced, leftovers)

    def _filter_and_publish(self, plan: RestorePlan) -> list[str]:
        """Publish the records of a restore plan in order, those that are visible already only being marked.

        Returns the files of dead tries that were deleted. Those go before the mark: a record with a mark is never looked at
        again. They are looked for by each record's name, whichever group its dead tries were made for.
        """
        leftovers = self._committer.sweep(plan.mark)
        for committable in plan.mark:
            is_older = self._store.is_marked(committable.state.sequence)
            self._store.mark_published(committable, self._where(committable) if is_older else None)
        self._say_where(plan.last)
        with self.changed:
            self._published = plan.last
        over = plan.over
        for unit, group in self._units_of([c.published_by(self._writer.epoch) for c in plan.publish]):
            fault_point("restore.before_publish")
            outcome, over = self._publish(unit, group, restored=True, over=over), None
            # The first publishing of one that was rolled back may still be held by a tag.
            leftovers += self._committer.sweep([c for c in group if c.state.sequence not in plan.rolled_back])
            self._mark(unit, group, outcome, 0.0)
        fault_point("restore.published")
        if plan.publish:
            self._store.forget([committable.state.sequence for committable in plan.publish])
        return leftovers

    def _doubt_marks(self, group: Sequence[Committable]) -> None:
        """A mark of an earlier publishing says nothing of the one that comes now, which a crash may keep from being marked. Idempotent."""
        for committable in (c for c in group if self._store.is_marked(c.state.sequence)):
            known = self._store.mark_of(committable.state.sequence) or Mark(0, "", 0)
            if isinstance(known, Mark):
                doubted = replace(known, alone=known.alone or bool(committable.payload.get("alone")), again=True)
                if doubted != known:
                    self._store.mark_published(committable, doubted)

    def _say_where(self, last: AppState | None) -> None:
        """The mark of the last published record was torn, made without knowing, or before it came again: by what the table says now it is a proof
        for later. So are those of records that came again with it."""
        sequence = last.sequence if last is not None else 0
        while sequence and self._store.is_marked(sequence):
            mark = self._store.mark_of(sequence)
            if mark is not None and not comes_again(mark):
                return
            record = readable(self._store, sequence)  # it is published, so nobody else needs to read it
            look = self._committer.where_is if mark is None else self._where
            where = look(record) if record is not None else None
            if where is not None:
                self._store.mark_published(record, where)
            sequence = sequence - 1 if mark is not None else 0

    def _where(self, committable: Committable) -> Where | None:
        """Where a record is that is published; or the newest of all that is."""
        return self._committer.where_is(committable) or self._committer.where_now()

    def _up_to(self, checkpoint_id: int | None) -> list[QueuedRecord]:
        entries = self.pending()
        wanted = [
            number
            for number, entry in enumerate(entries, 1)
            if checkpoint_id is None or entry.committable.state.checkpoint_id <= checkpoint_id
        ]
        return entries[: wanted[-1]] if wanted else []

    def _publish_all(self, entries: Sequence[QueuedRecord]) -> list[Published]:
        outcomes = []
        by_sequence = {entry.committable.state.sequence: entry for entry in entries}
        for unit, group in self._units([entry.committable for entry in entries]):
            mine = [by_sequence[committable.state.sequence] for committable in group]
            self._store.check_owner(self._writer)
            fault_point("group.before_publish")
            outcome = self._publish(unit, group, restored=False)
            for entry in mine:
                entry.state.step("publish")
            self._mark(unit, group, outcome, self._clock.monotonic_ms() - mine[0].begun_ms)
            for entry in mine:
                entry.state.step("forget")
            self._store.forget([committable.state.sequence for committable in group])
            outcomes.append(outcome)
        return outcomes

    def _units_of(self, records: Sequence[Committable]) -> Iterator[tuple[Committable, list[Committable]]]:
        """As ``_units``; a record that goes on from another name's, and may have to wait for that, begins one."""
        begins = [0, *(at for at, record in enumerate(records) if at and record.state.leads_on), len(records)]
        for first, end in itertools.pairwise(begins):
            yield from self._units(records[first:end])

    def _units(self, records: Sequence[Committable]) -> Iterator[tuple[Committable, list[Committable]]]:
        """(what is published at one instant, the records that it stands for), in order."""
        joined = self._committer.join(records) if self._options.publish_as == ONE_SNAPSHOT else records
        rest = list(records)
        for unit in joined:
            group = [committable for committable in rest if committable.state.sequence <= unit.state.sequence]
            rest = rest[len(group) :]
            yield unit, group

    def _publish(
        self, unit: Committable, group: Sequence[Committable], restored: bool, over: int | None = None
    ) -> Published:
        """over: the number of the last published record where that is not the one before."""

        def fence() -> None:
            self._store.check_owner(self._writer)
            check_name_before(
                self._to.path, group, self._committer, self._options
            )  # the table may have gone back since the records were made
            if restored:
                self._doubt_marks(group)

        return self._committer.publish(
            unit, expect=group[0].state.sequence - 1 if over is None else over, restored=restored, fence=fence
        )

    def _mark(self, unit: Committable, group: Sequence[Committable], outcome: Published, elapsed_ms: float) -> None:
        """The journal learns of it, and so does the batch function."""
        for committable in group:
            self._store.mark_published(committable, outcome.where)
        if outcome.base_replaced:
            self._emit(events.SnapshotReplaced(self._to.path, self._options.application, outcome.snapshot_id - 1, ()))
        with self.changed:
            self._published = unit.state
            self._pending = [e for e in self._pending if e.committable.state.sequence > unit.state.sequence]
            left = len(self._pending)
            self.changed.notify_all()
        fault_point("commit.marked")
        self._emit(
            events.CheckpointPublished(
                self._to.path,
                self._options.application,
                outcome.checkpoint_id,
                outcome.snapshot_id,
                unit.rows,
                len(unit.files),
                left,
                outcome.attempts,
                elapsed_ms,
                len(group),
            )
        )
