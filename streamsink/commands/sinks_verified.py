"""``streamsink.verify`` for a sink: its files, and its journal against what it says of itself. Driver only.

A destination that is no table has no history to walk through. What can be asked of each one is asked: do the files
exist that it names to its readers, and is the last record that it has the one that the journal has?
"""

import os
from dataclasses import dataclass, field

from streamsink.commands.own_sinks import journal_of, open_existing
from streamsink.commands.verify import behind_a_hole, first_missing
from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.journal.others import is_certain, of_no_matter
from streamsink.journal.repair import RepairJournal
from streamsink.options import SinkOptions
from streamsink.protocol import ways
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.sink import OpenSink, Sink
from streamsink.storage.file_io import FileIO
from streamsink.table.history.integrity import DAMAGE, NOTE, Finding, Report

_NAMED = 5  # files that are listed by name


@dataclass(frozen=True)
class SinkReport(Report):
    """The result for a sink, which has no snapshots. files, rows: those that it names to readers, 0 for none."""

    def __str__(self) -> str:
        head = f"{self.table}: {'ok' if self.ok else 'DAMAGED'}, {self.files} data files"
        return "\n".join([head, *(f"  {f.severity} {f.kind}: {f.message}" for f in self.findings)])


def verify_of_sink(file_io: FileIO, sink: Sink, options: SinkOptions, place: str) -> Report:
    """As ``verify``, of one application. place: of the journals, or of the destination where these lie in it.

    What a start of the query would be refused for is damage too. Raises Misuse where there is nothing.
    """
    check = _Check()
    try:
        opened = open_existing(file_io, sink, options, place)
    except (Corrupt, Misuse) as wrong:
        if wrong.kind == "sink.missing" and not file_io.entries(place):
            raise
        check.add(DAMAGE, wrong.kind, str(wrong))
    else:
        for part in (opened, *opened.parts):
            check.look(part)
    return SinkReport(sink.path, 0, check.files, check.rows, tuple(check.findings))


@dataclass
class _Check:
    files: int = 0
    rows: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, severity: str, kind: str, message: str) -> None:
        self.findings.append(Finding(severity, kind, message))

    def look(self, opened: OpenSink) -> None:
        """Check one destination."""
        path = opened.to.path
        if opened.to.is_table:
            self.add(NOTE, "verify.table", f"{path} is a Paimon table: streamsink.verify({path!r}) checks all of it")
            return
        try:
            self._files(opened)
            journal = journal_of(opened)
            journal.read_listing()
            self._journal(opened, journal, opened.committer.history(opened.application).state)
            self._not_given(opened, journal)
            self._others(opened, journal)
            opened.committer.check_parts()
        except (Corrupt, Misuse) as wrong:
            self.add(DAMAGE, wrong.kind, str(wrong))

    def _files(self, opened: OpenSink) -> None:
        visible = opened.committer.visible()
        if visible is None:
            return
        self.files, self.rows = self.files + visible.files, self.rows + visible.rows
        for path in visible.gone[:_NAMED]:
            self.add(DAMAGE, "file.missing", f"{path} is gone, or has another size: its readers fail, or miss rows")
        more = len(visible.gone) + visible.more_gone - _NAMED
        if more > 0:
            self.add(DAMAGE, "file.missing", f"{opened.to.path}: and {more} files more")
        if visible.removed:
            self.add(
                NOTE,
                "folder.removed",
                f"{opened.to.path}: {len(visible.removed) + visible.more_removed} folders were removed with all of "
                "their files, first "
                f"{visible.removed[0]}. If nobody has done so on purpose, restore them",
            )

    def _journal(self, opened: OpenSink, journal: RepairJournal, state: AppState | None) -> None:
        base = state.sequence if state is not None else 0
        if state is None and not journal.retained():
            self.add(NOTE, "journal.empty", f"{opened.to.path}: nothing of '{opened.application}' is recorded or there")
        elif state is not None and not journal.retained() and not journal.is_of(state):
            self.add(
                NOTE,
                "journal.missing",
                f"{opened.to.path}: record {base} of '{opened.application}' is of another journal than {journal.place}"
                ", or that was removed: what is pending in the right one is not seen here",
            )
        hole = first_missing(journal.retained(), base)
        for sequence in journal.retained():
            try:
                record = journal.load(sequence)
            except Corrupt as broken:
                self.add(DAMAGE, broken.kind, str(broken))
                continue
            if record is None:
                continue  # it was pruned meanwhile
            if record.state.table_id != opened.to.table_id:
                self.add(
                    DAMAGE,
                    "journal.other-destination",
                    f"record {sequence} in {journal.place} is of the destination {record.state.table_id}, and the one "
                    f"that is there is {opened.to.table_id}: the next start stops, and says what to do",
                )
                return
            if hole is not None and sequence > hole and not is_certain(journal, sequence):
                self.add(DAMAGE, *behind_a_hole(opened.to.path, record, hole, journal.place, is_table=False))
            else:
                self._record(opened, journal, record, state if sequence == base else None, base)

    def _not_given(self, opened: OpenSink, journal: RepairJournal) -> None:
        """Records of a fan-out that a destination may lack: its own journal may not have its part yet."""
        for sequence in journal.retained() if opened.parts else ():
            if not is_certain(journal, sequence):
                what = f"record {sequence} of application '{opened.application}'"
                said = f"{opened.to.path}: not all destinations have {what} yet: the next start sees to that"
                self.add(NOTE, "checkpoint.pending", said)

    def _others(self, opened: OpenSink, journal: RepairJournal) -> None:
        """Other applications whose marks say more than the destination: perhaps no start comes to tell of that.

        The marks are read first, since such an application may be publishing now.
        """
        folder = os.path.dirname(os.path.dirname(journal.place))
        others = opened.committer.others(opened.application) if not opened.parts else {}
        for name, last in sorted(others.items()):
            other = FileJournal(journal.store, folder, name, 2)
            with of_no_matter(other.place, "what is published"):
                other.read_listing()
                known = max((s for s in other.retained() if is_certain(other, s)), default=0)
                history = opened.committer.history(name)
                there = history.state.sequence if history.state is not None else 0
                if known > there and history.complete and last.state.table_id == opened.to.table_id:
                    self.add(
                        DAMAGE,
                        "checkpoint.rolled-back",
                        f"{opened.to.path}: record {known} of another application, '{name}', was published, and the "
                        f"destination ends at record {there} of it: it has gone back, or what it remembers was lost. "
                        "The next start of its query stops, and says what to do; where none would come, because that "
                        f"has ended, start it once more. With application='{name}' verify looks at all of its records",
                    )

    def _record(
        self, opened: OpenSink, journal: RepairJournal, record: Committable, last: AppState | None, base: int
    ) -> None:
        """last: what the destination says of the record of this number, None of others. base: its last number."""
        number, what = record.state.sequence, f"record {record.state.sequence} of application '{opened.application}'"
        if last is not None and last.record_id != record.state.record_id:
            self.add(
                DAMAGE,
                "journal.other-record",
                f"{opened.to.path}: {what} is another one in the journal {journal.place} than the destination has: the "
                "journal, or the destination, was put back from an older copy",
            )
        elif number > base and is_certain(journal, number):
            self.add(
                DAMAGE,
                "checkpoint.rolled-back",
                f"{opened.to.path}: {what} was published, and the destination ends at record {base}: it has gone back, "
                "or what it remembers was lost; the next start stops, and says what to do",
            )
        elif number > base:
            gone = opened.committer.files_in_place(record)[2]
            if not gone and opened.committer.is_readable(record):
                self.add(NOTE, "checkpoint.pending", f"{what} is pending: the next start publishes it")
                return
            lost = f"{len(gone)} of its files are gone (first: {gone[0]})" if gone else "what it needs is damaged"
            self.add(
                DAMAGE,
                "pending.files-gone",
                f"{opened.to.path}: {what} is pending, and {lost}: the next start cannot publish it. Restore them. "
                f"{ways.give_up(opened.to.path, opened.application, is_table=False)}",
            )
