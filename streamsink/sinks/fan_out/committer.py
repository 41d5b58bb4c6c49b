"""Publishes the records of a fan-out: a record is published when every destination has its part. Driver only."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from streamsink.errors import Retryable
from streamsink.faults import fault_point
from streamsink.journal.file_journal import FileJournal
from streamsink.journal.others import last_of_others, of_no_matter
from streamsink.protocol.committable import AppState, Committable, LastOfOther
from streamsink.protocol.sink import Committer, Destination, History, Published
from streamsink.sinks.fan_out.branch import Branch
from streamsink.sinks.fan_out.journal import FanOutJournal
from streamsink.sinks.fan_out.membership import Membership
from streamsink.sinks.fan_out.parts import Part, parts_of
from streamsink.sinks.fan_out.ways import way_on_without_the_journal
from streamsink.storage.file_io import FileIO


class _Known:
    """A record, as far as it is needed to say which of them all destinations have."""

    def __init__(self, record: Committable):
        self.state = record.state
        self._numbers = {identity: part.number for identity, part in parts_of(record).items()}

    def is_with(self, branches: Sequence[Branch]) -> bool:
        """Whether each destination has its part. One that joins later needs none."""
        return all(branch.counted >= self._numbers.get(branch.to.table_id, 0) for branch in branches)


class FanOutCommitter(Committer):
    """The destinations as one: its history is what all of them have.

    One thread publishes, another one looks at history: they share the branches, each of which keeps them apart.
    """

    def __init__(
        self,
        to: Destination,
        journal: FanOutJournal,
        branches: Sequence[Branch],
        membership: Membership,
        *,
        file_io: FileIO,
    ):
        """to: its path is the folder with the journals of fan-outs."""
        self._to, self._journal, self._branches, self._membership = to, journal, branches, membership
        self._io = file_io
        self._known: list[_Known] = []  # records that not all had when it was last asked, and the last that all had
        self._first: AppState | None = None  # what all had before the first of these
        self._published = 0
        journal.tell(lambda record: self._known.append(_Known(record)))

    def for_background(self) -> "FanOutCommitter":
        """This one: what a thread that publishes changes is in the branches' queues."""
        return self

    def asking(self, questions: Any, *, others: bool = False) -> AbstractContextManager[Any]:
        """What the fan-out's journal is asked meanwhile may be damaged."""
        return way_on_without_the_journal(self._to.path, self._journal.application, self._journal.place)

    # -- history ---------------------------------------------------------------------------------------------------

    def history(self, application: str) -> History:
        """What all destinations have. A destination that has lost what it had says so, or gets it again."""
        if not self._journal.is_claimed:
            newest = self._journal.newest()
            return History(newest.state if newest else self._membership.from_destinations(self._to), True)
        if self._journal.settled is None:
            self._find_out()
        else:
            for branch in (branch for branch in self._branches if branch.is_running):
                branch.look()
        while len(self._known) > 1 and self._known[1].is_with(self._branches):
            self._known.pop(0)
        is_first = bool(self._known) and self._known[0].is_with(self._branches)
        return History(self._known[0].state if is_first else self._first, True)

    def _find_out(self) -> None:
        """At a start: what each destination has, and what of the newest records its journal lacks."""
        records, newest_first = itertools.tee(self._newest_first())
        self._membership.settle(self._to, newest_first)
        for branch in self._branches:
            branch.plan()
        self._known, self._first = [], None
        for record in records:
            self._known.insert(0, _Known(record))
            if self._known[0].is_with(self._branches):
                break
        if not self._known:
            self._first = self._membership.from_destinations(self._to)
        elif not self._known[0].is_with(self._branches) and self._known[0].state.sequence > 1:
            # The journal does not have the record before. Its number is all that is needed.
            before = self._known[0].state
            self._first = replace(before, sequence=before.sequence - 1, record_id=f"before {before.record_id}")
        settled = next((known for known in self._known[:1] if known.is_with(self._branches)), None)
        found = settled.state if settled is not None else self._first
        self._published = self._journal.settled = found.sequence if found is not None else 0

    def check_parts(self) -> None:
        """As of ``Upkeep``."""
        for branch in self._branches:
            if isinstance(branch.journal, FileJournal):
                branch.journal.read_listing()
        self._membership.settle(self._to, self._newest_first(), only_looks=True)

    def _newest_first(self) -> Iterator[Committable]:
        for sequence in reversed(self._journal.retained()):
            record = self._journal.load(sequence)
            if record is not None:
                yield record

    def mentions(self, committable: Committable) -> bool:
        """Whether every destination has its part."""
        state = self.history(committable.application).state
        return state is not None and state.sequence >= committable.state.sequence

    def sees_all_since(self, committable: Committable) -> bool:
        """True: each destination has answered by itself what its history does not show."""
        return True

    def others(self, application: str) -> Mapping[str, LastOfOther]:
        """Also of queries that write to one of the destinations alone."""
        every = [other for branch in self._branches for other in branch.others(self._to.table_id)]
        found = {name: last for name, last in every if name != application}
        return {**found, **last_of_others(self._io, self._to.path, application, (), self._last_that_all_have)}

    def _last_that_all_have(self, application: str) -> AppState | None:
        """The newest record of another fan-out below the same folder, if its journal says that it is published."""
        journal = FileJournal(self._io, self._to.path, application, retain=0)
        with of_no_matter(journal.place, "its newest record"):
            journal.read_listing()
            newest = journal.newest()
            return newest.state if newest is not None and journal.is_marked(newest.state.sequence) else None
        return None

    # -- the files of a record -------------------------------------------------------------------------------------

    def files_in_place(self, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
        found = [branch.files_in_place(part.record_of(committable)) for branch, part in self._parts(committable)]
        return sum(f[0] for f in found), sum(f[1] for f in found), tuple(path for f in found for path in f[2])

    def path_of_rows(self, committable: Committable) -> str:
        paths = (branch.path_of_rows(part.record_of(committable)) for branch, part in self._parts(committable))
        return next(filter(None, paths), "")

    def _parts(self, committable: Committable) -> list[tuple[Branch, Part]]:
        parts = parts_of(committable)
        return [(branch, parts[branch.to.table_id]) for branch in self._branches if branch.to.table_id in parts]

    # -- publishing ------------------------------------------------------------------------------------------------

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        """Each destination settles its own records, before these are marked."""
        if published:
            self._restore()
        return []

    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]) -> Published:
        fence()
        state = committable.state
        if self._journal.settled is None:
            self.history(committable.application)
        if self._published not in (expect, state.sequence):
            raise Retryable(
                f"{self._to.path}: record {self._published} of application '{committable.application}' is the last one "
                f"that all destinations have, expected {expect} before record {state.sequence}. Nothing was published; "
                "the record is safe in the journal. The restart of the query finds out what has happened",
                kind="destination.history-changed",
            )
        if restored:
            self._restore()
        for branch, part in self._parts(committable):
            fault_point("fan-out.before_destination")
            branch.publish_up_to(part, state.checkpoint_id)
        self._published = state.sequence
        return Published(state.checkpoint_id, state.sequence, 1)

    def _restore(self) -> None:
        for branch in self._branches:
            fault_point("fan-out.before_destination")
            branch.restore()
