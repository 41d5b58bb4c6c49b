"""The journal of a fan-out: its record is the point of no return of all destinations. Driver only.

The record names what each destination is given. Right behind it each destination's own journal gets its part; a driver
that dies in between leaves that to the next start (``Branch.deliver``).
"""

import os
from collections.abc import Callable, Sequence
from typing import cast

from streamsink.errors import OutcomeUnknown, StreamsinkError
from streamsink.faults import fault_point
from streamsink.journal.file_journal import FileJournal
from streamsink.protocol.committable import Committable
from streamsink.protocol.ids import Writer
from streamsink.protocol.journal import Group, Where
from streamsink.sinks.fan_out.branch import Branch
from streamsink.sinks.fan_out.parts import parts_of
from streamsink.sinks.fan_out.writing import FanOutGroup
from streamsink.storage.file_io import FileIO


class FanOutJournal(FileJournal):
    """The journal, with the journals of the destinations below it.

    settled: number of the last record that every destination has, as a start has found it; None before that. What is
    behind it counts as not marked: one of the destinations has lost it, and asks its own journal what to do.
    """

    def __init__(self, file_io: FileIO, folder: str, application: str, retain: int, branches: Sequence[Branch]):
        super().__init__(file_io, folder, application, retain)
        self.application = application
        self._branches = branches
        self._told: Callable[[Committable], None] = lambda record: None
        self.is_claimed = False
        self.settled: int | None = None
        # By number, records that a destination lacks which may stay behind.
        self._unmarked: dict[int, Committable] = {}

    def tell(self, told: Callable[[Committable], None]) -> None:
        """told: called with each record that was made, when all destinations have their parts."""
        self._told = told

    # -- ownership -------------------------------------------------------------------------------------------------

    def claim(self, query: str, above: int, run: str = "") -> Writer:
        writer = super().claim(query, above, run)
        for branch in self._branches:
            branch.claim(query, run)
        self.is_claimed, self.settled = True, None
        return writer

    def release(self, unused: bool = False) -> None:
        self.is_claimed = False
        for branch in self._branches:
            branch.release(unused)
        super().release(unused)

    def check_before_record(self, writer: Writer, sequence: int) -> None:
        super().check_before_record(writer, sequence)
        for branch in self._branches:
            branch.check_before_record()

    # -- one record ------------------------------------------------------------------------------------------------

    def staging(self, sequence: int, writer: Writer) -> str:
        """The name under which the destinations have their own folders. There is no folder of this name."""
        name = os.path.join(self.place, "staging", f"{writer.epoch}-{sequence}")
        for branch in self._branches:
            branch.begin(name)
        return name

    def discard(self, staging: str) -> None:
        for branch in self._branches:
            branch.discard(staging)

    def stage_record(self, committable: Committable, group: Group) -> None:
        parts, together = parts_of(committable), cast(FanOutGroup, group)
        for number, branch in enumerate(self._branches):
            branch.stage_record(parts[branch.to.table_id], committable, together.of(number))
        super().stage_record(committable, together.own)

    def create_record(self, committable: Committable) -> None:
        super().create_record(committable)
        fault_point("fan-out.recorded")
        parts = parts_of(committable)
        for branch in self._branches:
            try:
                branch.record(parts[branch.to.table_id], committable)
            except (OSError, StreamsinkError) as failed:
                # No Fenced and no Retryable: after those the caller deletes what this record names.
                raise OutcomeUnknown(
                    f"{branch.to.path}: record {committable.state.sequence} of application "
                    f"'{committable.application}' is durable in the journal {self.place}, and the journal "
                    f"{branch.journal.place} of the destination '{branch.name}' could not be given its part of it "
                    f"({failed}). Nothing is lost or doubled. Start the query again: the start gives it that part, and "
                    "publishes the record in all destinations",
                    kind="fan-out.not-delivered",
                ) from failed
            fault_point("fan-out.delivered")
        self._told(committable)

    # -- marks -----------------------------------------------------------------------------------------------------

    def is_marked(self, sequence: int) -> bool:
        return super().is_marked(sequence) and (self.settled is None or sequence <= self.settled)

    def mark_published(self, committable: Committable, where: Where | None = None) -> None:
        """Mark it when no destination that may stay behind lacks it, and then those before it too."""
        parts, branches = parts_of(committable), self._branches
        own = [(branch, parts[branch.to.table_id]) for branch in branches if branch.to.table_id in parts]
        if any(branch.published < part.number for branch, part in own):
            self._unmarked[committable.state.sequence] = committable
        else:
            for sequence in sorted(number for number in self._unmarked if number < committable.state.sequence):
                super().mark_published(self._unmarked.pop(sequence))
            super().mark_published(committable, where)
        if self.settled is not None:
            self.settled = max(self.settled, committable.state.sequence)

    def sweep(self, writer: Writer) -> list[str]:
        found = super().sweep(writer)
        for branch in self._branches:
            branch.restore()
            found += branch.sweep()
        return found
