"""What a run has recorded and what was recorded before it, as admission asks for it. Driver only."""

import functools
from collections.abc import Mapping
from typing import Any

from streamsink.options import SinkOptions
from streamsink.protocol import run_inputs
from streamsink.protocol.admission.admit import Past
from streamsink.protocol.committable import AppState, Batch, Committable, KnownRun, LastOfOther, StagedFile
from streamsink.protocol.decision import Checkpoint, Decision, Verdict
from streamsink.protocol.ids import END_OF_INPUT, Writer
from streamsink.protocol.journal import Journal
from streamsink.protocol.recorded_files import KnownFiles, recorded_files
from streamsink.protocol.sink import Committer, Destination


class RecordedPast:
    """Answers from the journal first, and from the destination where the journal does not know.

    last: the last state that is recorded, published or not. begins: whether nothing of this run is recorded yet.
    """

    def __init__(self, destination: Destination, journal: Journal, committer: Committer, options: SinkOptions):
        self._to = destination
        self._journal = journal
        self._committer = committer
        self._options = options
        self._known: list[KnownFiles | None] = []  # what the journal knew at this run's first question
        self.last: AppState | None = None
        self.begins = True

    def past(self) -> Past:
        """As of now. What takes a look at the store is looked up when admission asks for it."""
        return Past(
            self._to.path,
            self._to.table_id,
            self.last,
            self._earlier,
            self._known_run,
            functools.cache(self._others),
            self._known_files,
            self._journal.identity().id,
            self._journal.identity().behind,
            begins=self.begins,
            says_offsets=not self._to.is_table,
            application=self._options.application,
        )

    def record_of(
        self, checkpoint: Checkpoint, files: tuple[StagedFile, ...], payload: Mapping[str, Any], writer: Writer
    ) -> Committable:
        """The record of a checkpoint: what is published of it, and the state that the destination then has.

        files, payload: as ``OpenSink.stage`` has returned them. writer: this driver.
        """
        batch, decision, last = checkpoint.batch, checkpoint.decision, self.last
        state = AppState(
            query=batch.query,
            generation=decision.generation,
            epoch=writer.epoch,
            checkpoint_id=batch.batch_id,
            sequence=checkpoint.sequence,
            record_id=checkpoint.attempt,
            table_id=self._to.table_id,
            sources=batch.sources,
            recorded=decision.recorded,
            journal_id=self._journal.identity().id,
            fingerprint=batch.fingerprint,
            place=batch.place,
            replaying=decision.replaying,
            files_from=checkpoint.sequence if decision.forgets_files else last.files_from if last else 0,
            carried=payload.get("carried", last.carried if last else {}),
            rows=_rows_of_run(batch, files, decision),
            inputs=run_inputs.kept(batch.inputs),
            planned_ms=batch.planned_ms if any(source.is_counted for source in batch.sources) else 0,
            leads_on=decision.leads_on or (),
            behind=decision.leads_on or (last.behind if last else self._journal.identity().behind),
        )
        read = recorded_files(batch, last if not decision.leads_on else None)
        return Committable(state, self._options.application, batch.watermark_ms, files, payload, read)

    def newest_record(self, query: str, checkpoint_id: int) -> Committable | None:
        """The newest record of that checkpoint of the query, or of that bounded run, as long as the journal has it."""
        for sequence in reversed(self._journal.retained()):
            committable = self._journal.load(sequence)
            if committable and (committable.state.query, committable.state.checkpoint_id) == (query, checkpoint_id):
                return committable
        return None

    def _earlier(self, query: str, checkpoint_id: int) -> AppState | None:
        found = self.newest_record(query, checkpoint_id)
        return found.state if found is not None else None

    def _others(self) -> Mapping[str, LastOfOther]:
        return self._committer.others(self._options.application)

    def _known_run(self, run: str) -> KnownRun:
        """Whether a bounded job's run is published.

        The journal says so; the destination is asked where the journal does not know every run, or knew this one as an
        older copy, which may be of another past.
        """
        known, identity = self._journal.known_run(run, self._to.table_id), self._journal.identity()
        if identity.began == 0 or known.is_published and (identity.ended or known.journal_id in ("", identity.id)):
            return known
        return self._committer.known_run(self._options.application, run)

    def _known_files(self) -> KnownFiles | None:
        """Which files earlier records were made of; None when the journal does not know all of them.

        Looked up once in a run: Spark does not list a file twice in one, so what the run itself records is not asked
        for.
        """
        if not self._known:
            whole = self._journal.identity().began == 0
            self._known.append(self._journal.known_files(self.last.files_from if self.last else 0) if whole else None)
        return self._known[0]


def _rows_of_run(batch: Batch, files: tuple[StagedFile, ...], decision: Decision) -> int | None:
    """How many rows a bounded run was given; None when that is not known, or when the batch is a micro-batch."""
    if batch.batch_id != END_OF_INPUT or batch.rows is not None:
        return batch.rows
    return None if decision.verdict is Verdict.SEEN else sum(file.rows for file in files)
