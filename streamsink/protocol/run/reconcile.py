"""Bringing journal and destination together: at a start, and when a running query finds another record than its own.

Driver only. ``restore.py`` plans it; here the plan is carried out.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from streamsink import events
from streamsink.errors import StreamsinkError
from streamsink.faults import fault_point
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.ids import Writer
from streamsink.protocol.journal import Journal, Mark, Where, comes_again, readable
from streamsink.protocol.run.journal_check import check_not_superseded
from streamsink.protocol.run.publish_queue import PublishQueue
from streamsink.protocol.run.publish_thread import Done, Took
from streamsink.protocol.run.restore import RestorePlan, plan_restore
from streamsink.protocol.sink import Committer, Destination


@dataclass(frozen=True)
class Reconciled:
    """Journal and destination agree.

    last: the last published state. published: checkpoint ids. The others are as in ``RestorePlan``; leftovers: paths of
    the files of dead tries that were deleted.
    """

    last: AppState | None
    published: tuple[int, ...]
    rolled_back: tuple[int, ...]
    replaced: tuple[int, ...]
    leftovers: list[str]


class Reconciler:
    """Publishes what is pending and marks what is published, as the plan of a restore says."""

    def __init__(
        self,
        destination: Destination,
        journal: Journal,
        committer: Committer,
        options: SinkOptions,
        emit: Callable[[events.Event], None],
        *,
        queue: PublishQueue,
    ):
        self._to = destination
        self._journal = journal
        self._committer = committer
        self._options = options
        self._emit = emit
        self._queue = queue

    def reconcile(self, writer: Writer, identify: Callable[[], None]) -> Reconciled:
        """Publish what is pending and mark what is published, for this owner.

        identify: called first. Of some errors, ``check_not_superseded`` raises another one in their place.
        """
        try:
            return self._reconcile(writer, identify)
        except StreamsinkError as failed:
            check_not_superseded(self._journal, writer, failed)
            raise

    def _reconcile(self, writer: Writer, identify: Callable[[], None]) -> Reconciled:
        with self._queue.alone(writer), ExitStack() as loading:
            with self._committer.asking(self._journal.questions_of_restore()):
                loading.enter_context(self._journal.loading())
                identify()
                history = self._committer.history(self._options.application)
                # A try of this run that fails is the end of the run, so nothing of what is pending was tried before.
                untried = {entry.committable.state.sequence for entry in self._queue.pending()}
                plan = plan_restore(self._to, history, self._journal, self._committer, self._options, untried=untried)
                known = self._known_mark(plan)
            lost = tuple(c.state.checkpoint_id for c in plan.publish if c.state.sequence in plan.rolled_back)
            for snapshot_id in plan.replaced:
                self._emit(events.SnapshotReplaced(self._to.path, self._options.application, snapshot_id, lost))
            with self._committer.restoring((*plan.mark, *plan.publish)):
                leftovers = self._filter_and_publish(plan, writer, known)
        published = tuple(c.state.checkpoint_id for c in plan.publish)
        return Reconciled(self._queue.published, published, plan.rolled_back, plan.replaced, leftovers)

    def _known_mark(self, plan: RestorePlan) -> dict[int, Where | None]:
        """The mark of the last published record, by its number, where it has one that the restart does not make."""
        sequence = plan.last.sequence if plan.last is not None else 0
        is_made = any(committable.state.sequence == sequence for committable in plan.mark)
        return {} if is_made or not self._journal.is_marked(sequence) else {sequence: self._journal.mark_of(sequence)}

    def _filter_and_publish(self, plan: RestorePlan, writer: Writer, known_mark: dict[int, Where | None]) -> list[str]:
        """Publish the records of a restore plan in order; those that are visible already are only marked.

        known_mark: of ``_known_mark``.
        Returns the files of dead tries that were deleted. They are deleted before the mark: a record with a mark is
        never looked at again. They are looked for by each record's name, whichever group its dead tries were made for.
        """
        leftovers = self._committer.sweep(plan.mark)
        older = [self._journal.is_marked(committable.state.sequence) for committable in plan.mark]
        self._journal.mark_all([(c, self._where(c) if is_older else None) for c, is_older in zip(plan.mark, older)])
        self._say_where(plan.last, known_mark)
        self._queue.begin_behind(plan.last)
        over, done = plan.over, list[Done]()
        units = self._units([c.published_by(writer.epoch) for c in plan.publish])
        for number, (unit, records) in enumerate(units, 1):
            fault_point("restore.before_publish")
            expect, over = records[0].state.sequence - 1 if over is None else over, None
            outcome = self._queue.publish(
                unit, records, expect=expect, restored=True, before=functools.partial(self._doubt_marks, records)
            )
            done.append((unit, records, outcome))
            if number % self._committer.marked_at_once == 0:
                # One that is settled while the next one is published is marked after that.
                is_settled = outcome.settle is None
                known = done if is_settled else done[:-1]
                leftovers += self._sweep_and_mark(known, plan, soon=not is_settled)
                done = done[len(known) :]
        leftovers += self._sweep_and_mark(done, plan) if done else []
        fault_point("restore.published")
        if plan.publish:
            self._journal.forget([committable.state.sequence for committable in plan.publish])
        return leftovers

    def _sweep_and_mark(self, done: Sequence[Done], plan: RestorePlan, *, soon: bool = False) -> list[str]:
        """Returns the files of dead tries that were deleted. soon: as of ``Journal.mark_all``."""
        done = [(unit, records, outcome.settled()) for unit, records, outcome in done]
        # The first publishing of one that was rolled back may still be held by a tag.
        again = set(plan.rolled_back)
        found = self._committer.sweep([c for _, records, _ in done for c in records if c.state.sequence not in again])
        self._queue.mark(done, Took(), soon=soon)
        return found

    def _units(self, records: Sequence[Committable]) -> Iterator[tuple[Committable, list[Committable]]]:
        """As ``PublishQueue.units``.

        A record that goes on from another name's, and may have to wait for that, begins one.
        """
        begins = [0, *(at for at, record in enumerate(records) if at and record.state.leads_on), len(records)]
        for first, end in itertools.pairwise(begins):
            yield from self._queue.units(records[first:end])

    def _doubt_marks(self, records: Sequence[Committable]) -> None:
        """A mark of an earlier publishing says nothing of the one that comes now, which a crash may keep from being
        marked.

        Idempotent.
        """
        for committable in (c for c in records if self._journal.is_marked(c.state.sequence)):
            known = self._journal.mark_of(committable.state.sequence) or Mark(0, "", 0)
            if isinstance(known, Mark):
                doubted = replace(known, alone=known.alone or bool(committable.payload.get("alone")), again=True)
                if doubted != known:
                    self._journal.mark_published(committable, doubted)

    def _say_where(self, last: AppState | None, known: dict[int, Where | None]) -> None:
        """Complete the mark of the last published record when it was torn, made without a place, or before it came
        again.

        By what the table says now it becomes a proof for later. So do the marks of records that came again with it.
        known: marks, by number.
        """
        sequence = last.sequence if last is not None else 0
        while sequence and self._journal.is_marked(sequence):
            mark = known[sequence] if sequence in known else self._journal.mark_of(sequence)
            if mark is not None and not comes_again(mark):
                return
            record = readable(self._journal, sequence)  # it is published, so nobody else needs to read it
            look = self._committer.where_is if mark is None else self._where
            where = look(record) if record is not None else None
            if record is not None and where is not None:
                self._journal.mark_published(record, where)
            sequence = sequence - 1 if mark is not None else 0

    def _where(self, committable: Committable) -> Where | None:
        """Where a published record is; or the place of the newest one of all."""
        return self._committer.where_is(committable) or self._committer.where_now()
