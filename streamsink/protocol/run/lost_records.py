"""Records that were published and that the table no longer has: what is published of them again, and the errors. Pure.

The table was rolled back or restored, or another writer's snapshot replaced one of ours.
"""

from collections.abc import Mapping, Sequence

from streamsink import shell
from streamsink.errors import Corrupt, Misuse, StreamsinkError
from streamsink.options import SinkOptions
from streamsink.protocol import ways
from streamsink.protocol.committable import Committable
from streamsink.protocol.journal import Journal, Mark
from streamsink.protocol.sink import Committer, Destination


def load(journal: Journal, sequence: int) -> Committable:
    """A record that the journal has listed. Raises Corrupt when it is damaged, or is not there any more."""
    committable = journal.load(sequence)
    if committable is None:
        raise Corrupt(f"record {sequence} of the journal vanished while it was read", kind="journal.missing-record")
    return committable


def replaced_ones(marks: Mapping[int, Mark], committer: Committer) -> dict[int, int]:
    """The records whose snapshot another writer replaced in a race, by number, with the number of that snapshot."""
    return {s: mark.snapshot_id for s, mark in marks.items() if committer.was_replaced(mark)}


def to_publish(committable: Committable, replaced: Mapping[int, int], committer: Committer) -> Committable:
    """What is to be published of a record. replaced: as ``replaced_ones`` returns it.

    It is the state alone when another writer had built on the record's snapshot before that was replaced: then the
    table has the files.
    """
    sequence = committable.state.sequence
    if sequence in replaced and committer.holds(committable, replaced[sequence]):
        return committer.state_alone(committable, held=True)
    return committable


def without_their_state(
    lost: Sequence[int], marks: Mapping[int, Mark], journal: Journal, committer: Committer
) -> tuple[dict[int, Committable], list[Committable]]:
    """Look for rows that are in the table although the snapshot that said so is gone.

    That happens to records whose state was published alone, or may have been: their rows are in an earlier snapshot.
    Records are published in order, so the newest one whose files are mentioned answers for all before it.

    lost: numbers of the records whose marked snapshot is gone or was replaced, in order. Returns what is to be
    published of those whose rows are there, by number, and the records of which that cannot be told.
    """
    may_be_alone = (load(journal, sequence) for sequence in lost if sequence not in marks or marks[sequence].alone)
    alone = [committable for committable in may_be_alone if committable.files]
    there = next((number for number in range(len(alone), 0, -1) if committer.mentions(alone[number - 1])), 0)
    unsure = [committable for committable in alone[there:] if not committer.sees_all_since(committable)]
    return {c.state.sequence: committer.state_alone(c, held=True) for c in alone[:there]}, unsure


def states_of(seen: Sequence[Committable], committer: Committer) -> dict[int, Committable]:
    """What is to be published of records whose rows are in the table as the user says, by number.

    Because the user has said so, no snapshot has to name their files any more.
    """
    return {committable.state.sequence: committer.state_alone(committable) for committable in seen}


def there_behind(loaded: Mapping[int, Committable | None], committer: Committer) -> dict[int, Committable]:
    """What is to be published of records behind a hole in the journal whose rows are in the table, by number.

    The table says nothing of these records, and the journal has lost the ones before them. Records are published in
    order, so the rows of those before are in the table as well. Empty where a record between these is lost.
    """
    if len(loaded) <= max(loaded) - min(loaded):
        return {}
    proof = next(
        (
            s
            for s in sorted(loaded, reverse=True)
            if (record := loaded[s]) is not None and record.files and committer.mentions(record)
        ),
        0,
    )
    return {
        s: committer.state_alone(record, held=True) for s, record in loaded.items() if s <= proof and record is not None
    }


def cannot_follow(
    to: Destination, numbers: tuple[int, int, int], lost: Sequence[int], options: SinkOptions
) -> StreamsinkError:
    """The error for records behind one that is missing, which can never be published.

    numbers: of the table's last record, of the missing one, of the journal's last one. lost: numbers of those that were
    published.
    """
    table, (base, missing, newest) = to.path, numbers
    found = (
        f"{table}: the table's last record of application '{options.application}' is number {base}, and of those up to "
        f"{newest} the journal does not have number {missing}"
    )
    way_on = ways.give_up(table, options.application, to.is_table)
    if lost and to.way_back:
        return Misuse(
            f"{found}: what the destination knows was lost, or put back to an earlier state than the journal remembers "
            f"(journal_retain={options.journal_retain}). Up to record {lost[-1]} all were published. Nothing was "
            f"written. {to.way_back}",
            kind="table.rolled-back-too-far",
        )
    if lost:
        return Misuse(
            f"{found}: the table was rolled back further than the journal remembers "
            f"(journal_retain={options.journal_retain}). Nothing was written. Restore the table. {way_on}",
            kind="table.rolled-back-too-far",
        )
    place = f"{table}/streamsink/{options.application}/record-{missing}.json"
    record = f" {shell.restore(place)}" if to.is_table else ""
    return Corrupt(
        f"{found}: it was removed by hand, and those behind it cannot be published in its place. Nothing was written. "
        f"Restore the record{record}. {way_on}",
        kind="journal.missing-record",
    )


def rolled_back(to: Destination, found: str, newest: int, options: SinkOptions) -> Misuse:
    """The error for a table that has lost published records.

    found: what the table says. newest: number of the last record that was published.
    """
    name = options.application
    if to.way_back:
        return Misuse(
            f"{to.path}: {found}, but record {newest} was published: what the destination knows was lost, or put back "
            f"to an earlier state. Nothing was written. {to.way_back}",
            kind="table.rolled-back",
        )
    return Misuse(
        f"{to.path}: {found}, but record {newest} was published: the table was rolled back, restored, recreated or "
        "lost its metadata. Nothing was written. Restore the table, or set on_rollback='republish' to publish the lost "
        f"batches again from the journal. {ways.give_up(to.path, name, to.is_table)}",
        kind="table.rolled-back",
    )


def rolled_back_past_the_journal(to: Destination, oldest: int, newest: int, options: SinkOptions) -> Misuse:
    """The error for a table that may have lost records which the journal does not retain.

    oldest: number of the first record that the journal has. newest: number of the last one that was published.
    """
    way_on = to.way_back or f"Restore the table. {ways.give_up(to.path, options.application, to.is_table)}"
    return Misuse(
        f"{to.path}: no snapshot names application '{options.application}', snapshots have expired, and record "
        f"{newest} was published: the table was rolled back, and the journal remembers nothing before record {oldest} "
        f"(journal_retain={options.journal_retain}), so whether what was before it is in the table cannot be told. "
        f"Nothing was written. {way_on}",
        kind="table.rolled-back-too-far",
    )
