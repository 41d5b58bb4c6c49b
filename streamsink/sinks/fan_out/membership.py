"""Which destinations a fan-out has, compared with those of its last record. Driver only.

A destination is known by its identity; the names and the order may change. One that joins has no history, one that
leaves may have rows pending, and one that somebody else has written to under the same name has another past: each of
these is said, and nothing is written before the user has answered.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from streamsink import shell
from streamsink.errors import Misuse
from streamsink.options import SinkOptions, with_word, words_of
from streamsink.protocol import ways
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.sink import Destination
from streamsink.sinks.fan_out.branch import Branch
from streamsink.sinks.fan_out.parts import Part, parts_of, word_of_leaving


class Membership:
    """The destinations of a start."""

    def __init__(self, branches: Sequence[Branch], options: SinkOptions, is_marked: Callable[[int], bool], place: str):
        """is_marked: whether the fan-out's journal knows that all destinations have the record of this number. place:
        of that journal.
        """
        self._place = place
        self._branches = branches
        self._options = options
        self._is_marked = is_marked

    def from_destinations(self, to: Destination) -> AppState | None:
        """What is recorded in all destinations, when the fan-out's journal has no record; None for nothing.

        The journal may be lost, or the destinations may have been written one by one before. to: the fan-out. Raises
        Misuse when they were not at the same batch.
        """
        # Recorded and not published counts: it will be published, so a batch that comes again must not be new.
        said = {branch.name: state for branch in self._branches if (state := branch.last_recorded()) is not None}
        if not said:
            return None
        first = next(iter(said.values()))
        for state in said.values():
            if _batch(state) != _batch(first):
                raise Misuse(
                    f"{to.path}: the fan-out's journal has no record, and its destinations are not at the same batch: "
                    + ", ".join(f"'{name}' has {state.checkpoint_name}" for name, state in said.items())
                    + f". Nothing was written. Restore the journal {shell.restore(self._place)}. "
                    "Where the destinations were written one by one before, let the query that did so come to the end "
                    "of a "
                    "batch in all of them. Else leave those out that are behind, and name them again later, which says "
                    "from where on they have rows",
                    kind="fan-out.histories-differ",
                )
        number = max(state.sequence for state in said.values())
        return replace(first, sequence=number, table_id=to.table_id, journal_id="", carried={}, behind=())

    def settle(self, to: Destination, records: Iterator[Committable], *, only_looks: bool = False) -> None:
        """At a start, when all is claimed: each destination gets the parts that its journal lacks.

        to: the fan-out. records: of its journal, the newest first. only_looks: nothing is claimed, and nothing changed.
        Raises Misuse when the destinations are not those of the last record, or not as it left them, and the user has
        not said that this is right.
        """
        for branch in self._branches if not only_looks else ():
            branch.identify()
        newest = next(records, None)
        if newest is None:
            last = self.from_destinations(to)
            if last is not None:
                self._check_joining(to, last, [b for b in self._branches if b.last_recorded() is None], [])
            return
        self._check_identity(to, newest.state)
        pending = [newest]
        while not self._is_marked(pending[-1].state.sequence) and (older := next(records, None)) is not None:
            pending.append(older)
        parts = parts_of(newest)
        self._check_names(to, parts)
        known = {branch.to.table_id for branch in self._branches}
        left = [part for identity, part in parts.items() if identity not in known]
        self._check_joining(to, newest.state, [b for b in self._branches if b.to.table_id not in parts], left)
        unmarked = [record for record in reversed(pending) if not self._is_marked(record.state.sequence)]
        self._check_leaving(to, known, unmarked)
        for branch in self._branches:
            self._catch_up(to, branch, unmarked or [newest], only_looks=only_looks)

    def joining(self, to: Destination, newest: Committable | None) -> Iterator[tuple[Branch, AppState, str]]:
        """Each destination that the newest record says nothing of, what all others have, and the word with which it
        begins behind that. to: the fan-out. newest: of its journal. Nothing is claimed.
        """
        last = newest.state if newest is not None else self.from_destinations(to)
        if last is None:
            return
        known = parts_of(newest).keys() if newest is not None else set()
        for branch in self._branches:
            state = branch.last_recorded()
            if branch.to.table_id not in known and (newest is not None or state is None):
                yield branch, last, _word_of_joining(to, last, branch.to.table_id, state)

    def _check_identity(self, to: Destination, newest: AppState) -> None:
        """Raises Misuse when the fan-out's journal has records of another one, which was in its place before."""
        if newest.table_id != to.table_id:
            raise Misuse(
                f"{to.path}: record {newest.sequence} in the fan-out's journal {self._place} is of a fan-out with the "
                f"id {newest.table_id}, and the one that is there has the id {to.table_id}: the journal was put there "
                f"from elsewhere, or from a backup without the file {to.path}/id. Nothing was written. Restore what "
                f"belongs together; or remove the folder {self._place}: the destinations tell how far they are "
                f"{shell.discard(self._place)}",
                kind="table.recreated",
            )

    def _check_names(self, to: Destination, parts: Mapping[str, Part]) -> None:
        """Raises Misuse when a destination is to know the query by another name than in its part of the last record.

        What is pending would be recorded under that name, where another query may have its records.
        """
        for branch in self._branches:
            part = parts.get(branch.to.table_id)
            if part is not None and part.application != branch.opened.application:
                raise Misuse(
                    f"{branch.to.path}: the destination '{branch.name}' of {to.path} knows the query as "
                    f"'{part.application}', and it is given '{branch.opened.application}' now. Nothing was written. "
                    f"Give it the name before: options={{'{branch.name}': {{'application': '{part.application}'}}}}. "
                    "To begin there under another name, leave the destination out until the others have a batch more, "
                    "and name it again then",
                    kind="fan-out.renamed",
                )

    def _check_joining(self, to: Destination, last: AppState, joining: Sequence[Branch], left: Sequence[Part]) -> None:
        """Raises Misuse unless the user has said of each destination that is new that it begins here."""
        for branch in joining:
            state = branch.last_recorded()
            if state is not None and _is_ahead(state, last):
                raise Misuse(
                    f"{to.path}: the destination '{branch.name}' ({branch.to.path}) has rows up to "
                    f"{state.checkpoint_name}, and the others have all up to {last.checkpoint_name}: it would be given "
                    "once more what the others lack. Nothing was written. Leave it out until the others have that "
                    "too, and name it again then",
                    kind="fan-out.histories-differ",
                )
            word = _word_of_joining(to, last, branch.to.table_id, state)
            if word in words_of(self._options.accept_as_new):
                continue
            before = next((part for part in left if branch.name == part.name or branch.to.path == part.path), None)
            found = (
                f"the destination '{branch.name}' ({branch.to.path}) has the id {branch.to.table_id}, and the one that "
                f"was there has the id {before.identity}: it was dropped and created again, or is another one"
                if before is not None
                else f"the destination '{branch.name}' ({branch.to.path}) is new, and the others have all up to "
                f"{last.checkpoint_name}"
            )
            has = f", and has rows up to {state.checkpoint_name}" if state is not None else ""
            if state is not None and (pending := branch.pending_records()):
                has += (
                    f", of which the last {pending} records are pending in its journal {branch.journal.place} and are "
                    "published when it joins"
                )
            raise Misuse(
                f"{to.path}: {found}{has}. Nothing was written. It is given no rows from before it is one of the "
                "destinations. If it shall have what comes from now on, copy the earlier rows into it, if they are "
                f"needed, and set accept_as_new='{_with(self._options.accept_as_new, word)}'. Else leave it out"
                f"{', or restore the destination that was there' if before is not None else ''}",
                kind="fan-out.new-destination",
            )

    def _check_leaving(self, to: Destination, known: set[str], pending: Sequence[Committable]) -> None:
        """Raises Misuse when a destination that is not named any more may lack rows of these records."""
        lost = {
            identity: (part, record)
            for record in pending
            for identity, part in parts_of(record).items()
            if identity not in known
        }
        for identity, (part, record) in lost.items():
            word = word_of_leaving(record, identity)
            if word not in words_of(self._options.accept_as_seen):
                raise Misuse(
                    f"{to.path}: {record.state.checkpoint_name} is recorded for the destination '{part.name}' "
                    f"({part.path}) as well, which is not one of the destinations any more, and may not be published "
                    "there. Nothing was written. Name it once more, and leave it out when a start has published what "
                    "is pending. If it is gone for good, or its rows are not needed, set "
                    f"accept_as_seen='{_with(self._options.accept_as_seen, word)}'",
                    kind="fan-out.left-destination",
                )

    def _catch_up(self, to: Destination, branch: Branch, records: Sequence[Committable], *, only_looks: bool) -> None:
        """Give the destination's journal what it lacks of these records, which are the newest ones, in order."""
        has = branch.recorded()
        mine = _since_it_joined(branch.to.table_id, records)
        went_back = bool(mine) and has < mine[-1][0].number - 1 and not branch.may_lack_records()
        for part, record in mine:
            if part.number == has + 1 and not went_back and not self._is_marked(record.state.sequence):
                if not only_looks:
                    branch.deliver(part, record)
                has += 1
        if mine and (mine[-1][0].number != has or not branch.has(mine[-1][0])):
            part, record = mine[-1]
            raise Misuse(
                f"{branch.to.path}: the destination '{branch.name}' of {to.path} has records of application "
                f"'{part.application}' up to number {has}, and the fan-out has given it number {part.number} "
                f"({record.state.checkpoint_name}) as its last one: another query has written there under the same "
                "name, or the destination was put back to an earlier state together with its journal "
                f"{branch.journal.place}, or the fan-out's own journal was. Nothing was written. Restore what was put "
                "back as the fan-out left it. If that is the fan-out's journal, and there is no newer copy, remove its "
                f"folder {self._place}: the destinations tell how far they are {shell.discard(self._place)}. Else "
                "leave the destination out until the others have a batch more, and name it again then, which says from "
                "where on it has rows",
                kind="fan-out.other-records",
            )


def _word_of_joining(to: Destination, last: AppState, identity: str, state: AppState | None) -> str:
    had = f"{identity}|{state.record_id if state is not None else ''}"
    return ways.word(f"{to.table_id}|{last.record_id}|{had}|begins here")


def _with(option: str | None, word: str) -> str:
    """What the option must be to answer this question too. What it has answered may be asked again meanwhile."""
    return with_word(option, word, words_of(option))


def _since_it_joined(identity: str, records: Sequence[Committable]) -> list[tuple[Part, Committable]]:
    """The destination's parts of the newest of these records, in order.

    What it was given before it left was given up: its rows were read by the user's own means since, or by nobody.
    """
    found: list[tuple[Part, Committable]] = []
    for record in reversed(records):
        part = parts_of(record).get(identity)
        if part is None:
            break
        found.insert(0, (part, record))
    return found


def _is_ahead(state: AppState, last: AppState) -> bool:
    """Whether a destination has rows of batches that the others, whose last record this is, are given next."""
    if state.query == last.query and (state.generation, state.checkpoint_id) > (last.generation, last.checkpoint_id):
        return True
    known = {record.identity: record.next for record in last.recorded.topics}
    return any(
        offset > known[record.identity].get(partition, 0)
        for record in state.recorded.topics
        if record.identity in known
        for partition, offset in record.next.items()
    )


def _batch(state: AppState) -> tuple[object, ...]:
    return state.query, state.generation, state.checkpoint_id, state.sources, state.recorded
