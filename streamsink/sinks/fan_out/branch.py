"""One destination of a start of a fan-out: its journal gets its part of each record, and its committer publishes it.

What a record, a mark and a rollback are to this destination is what they are to a query that writes to it alone: the
code is the same. Driver only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from streamsink import events
from streamsink.clock import Clock, IdSource
from streamsink.errors import Retryable
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState, Committable, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.ids import Writer
from streamsink.protocol.journal import Group
from streamsink.protocol.run.journal_check import JournalCheck
from streamsink.protocol.run.publish_queue import PublishQueue
from streamsink.protocol.run.publish_thread import QueuedRecord
from streamsink.protocol.run.reconcile import Reconciler
from streamsink.protocol.run.restore import plan_restore
from streamsink.protocol.sink import OpenSink
from streamsink.sinks.fan_out.parts import Part
from streamsink.sinks.fan_out.ways import way_on
from streamsink.storage.file_io import FileIO


@dataclass(frozen=True)
class _Begun:
    """The part of a checkpoint that is being written: its number, its staging folder, the id of its record."""

    number: int
    staging: str
    attempt: str


class Branch:
    """A destination, with what is recorded, pending and published there.

    The batch function calls all methods but ``publish_up_to``, which the thread that publishes calls.

    name: for messages. is_running: whether what earlier starts left is settled.
    """

    def __init__(
        self, name: str, opened: OpenSink, file_io: FileIO, options: SinkOptions, emit: Callable[[events.Event], None]
    ):
        """opened: the destination, as this start has opened it. file_io: of its store."""
        self.name, self.opened, self.to, self.journal = name, opened, opened.to, opened.journal
        self._io, self._emit, self._clock = file_io, emit, Clock()
        self._options = replace(options, application=opened.application)
        self._committer = opened.committer
        self._publishes = self._committer.for_background() if options.publishes_later else self._committer
        self._begin_anew()
        self._check = JournalCheck(self.to.path, opened.application, self.journal, IdSource().new_id)
        self._writer = Writer(opened.application, "", 0)  # until ``claim``: nobody's epoch
        self._before: AppState | None = None
        self._last: AppState | None = None
        self._planned = 0
        self._begun: dict[str, _Begun] = {}  # by the fan-out's staging folder, the one that is being written
        self._begun_ms = 0.0
        self.is_running = False

    def _begin_anew(self) -> None:
        """Nothing is pending, and nothing has failed."""
        of = self.to, self.journal, self._publishes, self._options, self._emit
        self._queue = PublishQueue(*of)
        self._reconciler = Reconciler(*of, queue=self._queue)

    # -- start of a run --------------------------------------------------------------------------------------------

    def state(self) -> AppState | None:
        """What the destination itself says, now, of its last published record."""
        return self._committer.history(self.opened.application).state

    def claim(self, query: str, run: str) -> None:
        """Own the application here as well, so that no other query writes under it. Raises as ``Journal.claim``."""
        with self._committer.asking(self.journal.questions(self._writer)):
            self._before = self.state()
            self._writer = self.journal.claim(query, self._before.epoch if self._before else 0, run)
        self.is_running = False

    def identify(self) -> None:
        """Give the journal an identity, or learn it. Raises as ``JournalCheck.identify``."""
        self._check.identify(self._before)

    def release(self, unused: bool) -> None:
        """As ``Journal.release``."""
        self.journal.release(unused)

    def recorded(self) -> int:
        """The number of the last record that the journal or the destination has. Called when it is claimed."""
        said = self.state()
        return max(self.journal.last_sequence(), said.sequence if said is not None else 0)

    def last_recorded(self) -> AppState | None:
        """The state of the last record that journal or destination have, published or not. Nothing is claimed."""
        said = self.state()
        newest = self.journal.newest() if isinstance(self.journal, FileJournal) else None
        is_newer = newest is not None and (said is None or newest.state.sequence > said.sequence)
        return newest.state if newest is not None and is_newer else said

    def pending_records(self) -> int:
        """How many records the journal has that the destination does not say it has published."""
        said = self.state()
        published = said.sequence if said is not None else 0
        return sum(number > published and not self.journal.is_marked(number) for number in self.journal.retained())

    def may_lack_records(self) -> bool:
        """Whether its journal may lack more than the newest record although nobody has put it back.

        A record is made when each journal has its part of the one before. So that is so when the journal was lost.
        """
        return not self.journal.last_sequence()

    def has(self, part: Part) -> bool:
        """Whether the record of this number, here, is the part. True where nothing retained tells any more."""
        if part.number in self.journal.retained():
            record = self.journal.load(part.number)
            return record is not None and record.state.record_id == part.record_id
        said = self.state()
        return said is None or said.sequence != part.number or said.record_id == part.record_id

    def deliver(self, part: Part, whole: Committable) -> None:
        """Give this journal its part of a record which the driver that made it could not give it any more.

        The part's files were durable before the record. whole: the record of the fan-out.
        """
        record = part.record_of(whole)
        # What is left of the first try: the bytes of the record, without its name.
        self._io.give_up(f"{self.journal.place}/record-{part.number}.json", part.record_id)
        with self.opened.group() as group:
            self.journal.stage_record(record, group)
            group.flush()
        self.journal.create_record(record)

    def plan(self) -> None:
        """Find out what is published here, for ``published``. Nothing is published. Raises as ``plan_restore``."""
        self._planned = self._compare(self.identify)

    def _compare(self, identify: Callable[[], None] = lambda: None) -> int:
        """The number of the last record that is published here. Raises as ``plan_restore``. identify: called first."""
        with self.journal.loading(), self._with_its_way_on():
            identify()
            history = self._committer.history(self.opened.application)
            plan = plan_restore(self.to, history, self.journal, self._committer, self._options)
        return plan.last.sequence if plan.last is not None else 0

    def restore(self) -> None:
        """Publish what earlier starts left here. Idempotent. Raises as ``TwoPhaseCommit.restore``."""
        if not self.is_running:
            self._reconcile(self.identify)
            self.is_running = True

    def sweep(self) -> list[str]:
        """As ``Journal.sweep``."""
        return self.journal.sweep(self._writer)

    # -- one micro-batch -------------------------------------------------------------------------------------------

    @property
    def published(self) -> int:
        """The number of the last published record here."""
        if not self.is_running:
            return self._planned
        last = self._queue.published
        return last.sequence if last is not None else 0

    @property
    def counted(self) -> int:
        """The number of the last record that this destination has, as far as the others wait for it."""
        return self.published

    def look(self) -> None:
        """The destination must carry the last published record, or one that was pending; else what is missing is
        published again, as the options say. Raises as ``TwoPhaseCommit.admit``.
        """
        expected = self._queue.expected()
        with self._committer.asking(self.journal.questions(self._writer)):
            history = self._committer.history(self.opened.application)
            self.journal.check_owner(self._writer)
        found = history.state.record_id if history.state else None
        if found in expected and (found is not None or history.complete):
            return
        if history.state is not None:
            self._check.check(history.state)
        self._reconcile(lambda: None)

    def _with_its_way_on(self) -> AbstractContextManager[None]:
        return way_on(self.name, self.to.path, self._options.application, self.journal.place)

    def _reconcile(self, identify: Callable[[], None]) -> None:
        with self._with_its_way_on():
            reconciled = self._reconciler.reconcile(self._writer, identify)
        self._last = reconciled.last
        if reconciled.rolled_back and not reconciled.replaced:
            told = events.RolledBackRepublished(self.to.path, self._options.application, reconciled.published)
            self._emit(told)

    def begin(self, staging: str) -> None:
        """Open this destination's part of a checkpoint. staging: the fan-out's folder for it."""
        number = max(self._last.sequence if self._last else 0, self.journal.last_sequence()) + 1
        folder = self.journal.staging(number, self._writer)
        self._begun = {staging: _Begun(number, folder, self.journal.attempt(number, IdSource().new_id))}
        self._begun_ms = self._clock.monotonic_ms()

    def checkpoint(self, whole: Checkpoint) -> Checkpoint:
        """The checkpoint as this destination knows it. whole: as the fan-out does."""
        begun = self._begun[whole.staging]
        return replace(whole, sequence=begun.number, staging=begun.staging, attempt=begun.attempt)

    def part(self, mine: Checkpoint, files: Sequence[StagedFile], payload: Mapping[str, Any]) -> Part:
        """What the record is to say. mine: as of ``checkpoint``. files, payload: of ``OpenSink.stage``."""
        last = self._last
        since = mine.sequence if mine.decision.forgets_files else last.files_from if last else 0
        return Part(
            name=self.name,
            path=self.to.path,
            identity=self.to.table_id,
            application=self.opened.application,
            number=mine.sequence,
            record_id=mine.attempt,
            epoch=self._writer.epoch,
            journal_id=self.journal.identity().id,
            staging=mine.staging,
            files_from=since,
            behind=last.behind if last else self.journal.identity().behind,
            carried=payload.get("carried", last.carried if last else {}),
            files=tuple(files),
            payload=payload,
            tells_files=last is not None or mine.batch.batch_id == 0,
        )

    def discard(self, staging: str) -> None:
        """The checkpoint is given up. staging: as of ``begin``."""
        begun = self._begun.pop(staging, None)
        if begun is not None:
            self.journal.discard(begun.staging)

    def stage_record(self, part: Part, whole: Committable, group: Group) -> None:
        """As ``Journal.stage_record``."""
        self.journal.stage_record(part.record_of(whole), group)

    def check_before_record(self) -> None:
        """As of ``Journal``. Raises Fenced when a newer driver owns the application here."""
        for begun in self._begun.values():
            self.journal.check_before_record(self._writer, begun.number)

    def record(self, part: Part, whole: Committable) -> None:
        """The record of the fan-out is durable: this journal gets its part, which is pending from now on."""
        record = part.record_of(whole)
        self.journal.create_record(record)
        self._last = record.state
        self._queue.add(QueuedRecord(record, self._begun_ms, self._clock.monotonic_ms()))

    # -- publishing ------------------------------------------------------------------------------------------------

    def publish_up_to(self, part: Part, checkpoint_id: int) -> None:
        """Publish what is pending here up to this part. Idempotent. Raises as ``Committer.publish``."""
        with self._with_its_way_on():
            self._queue.publish_up_to(checkpoint_id)
            self._queue.settle()
        if self.published < part.number:
            raise Retryable(
                f"{self.to.path}: record {part.number} of application '{part.application}' is neither pending nor "
                f"published in the destination '{self.name}', whose last record is {self.published}. Nothing is lost: "
                "the record is safe in the journal. The restart of the query finds out what has happened",
                kind="destination.history-changed",
            )

    # -- what others ask -------------------------------------------------------------------------------------------

    def files_in_place(self, record: Committable) -> tuple[int, int, tuple[str, ...]]:
        """As of ``Committer``. record: as ``Part.record_of`` makes it."""
        return self._committer.files_in_place(record)

    def path_of_rows(self, record: Committable) -> str:
        """As of ``Committer``."""
        return self._committer.path_of_rows(record)

    def others(self, as_of: str) -> Iterable[tuple[str, Any]]:
        """As of ``Committer``, as if the records were of the destination with the identity ``as_of``."""
        found = self._committer.others(self.opened.application)
        for name, last in found.items():
            yield name, replace(last, state=replace(last.state, table_id=as_of))
