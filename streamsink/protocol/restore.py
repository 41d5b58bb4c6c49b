"""What a restart must do, as a pure plan over what the table and the journal say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamsink.errors import Corrupt, Misuse
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.pending import PendingStore
from streamsink.protocol.sink import Committer, History


@dataclass(frozen=True)
class RestorePlan:
    """publish: records to publish, in order. mark: published ones whose mark is missing. last: the last published state.

    rolled_back: numbers of those that had been published. replaced: snapshots of theirs that another writer replaced.
    """

    publish: tuple[Committable, ...]
    mark: tuple[Committable, ...]
    last: AppState | None
    rolled_back: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()


def plan_restore(
    table: str, history: History, store: PendingStore, committer: Committer, options: SinkOptions
) -> RestorePlan:
    """Compare table and journal. Raises Misuse (rolled back, history incomplete) or Corrupt; changes nothing."""
    retained = store.retained()
    if history.state is None and not history.complete:
        return _from_journal(table, retained, store, committer, options)
    base = history.state.sequence if history.state else 0
    ahead = [s for s in retained if s > base]
    lost = tuple(s for s in ahead if store.is_marked(s))
    replaced = _replaced(lost, store, committer)
    if len(replaced) < len(lost) and options.on_rollback != ON_ROLLBACK_REPUBLISH:
        raise _rolled_back(table, base, lost[-1], options)
    if ahead and ahead[0] != base + 1:
        raise Misuse(
            f"{table}: the table's last record of application '{options.application}' is number {base}, but the "
            f"journal begins at number {ahead[0]}: the table was rolled back further than the journal remembers "
            f"(journal_retain={options.journal_retain}). Nothing was written. Restore the table, or start a new "
            "checkpoint at streamsink.starting_offsets(...).",
            kind="table.rolled-back-too-far",
        )
    publish = tuple(_to_publish(store, s, replaced, committer) for s in ahead)
    behind = tuple(_load(store, s) for s in retained if s <= base and not store.is_marked(s))
    return RestorePlan(publish, behind, history.state, lost, tuple(sorted(set(replaced.values()))))


def _replaced(marked: Sequence[int], store: PendingStore, committer: Committer) -> dict[int, int]:
    """Of these records those whose snapshot another writer replaced in a race: with that snapshot's number."""
    marks = {sequence: store.mark_of(sequence) for sequence in marked}
    return {s: mark.snapshot_id for s, mark in marks.items() if mark is not None and committer.was_replaced(mark)}


def _to_publish(store: PendingStore, sequence: int, replaced: Mapping[int, int], committer: Committer) -> Committable:
    """The record; without its files when another writer had built on its snapshot before that was replaced."""
    committable = _load(store, sequence)
    if sequence in replaced and committer.holds(committable, replaced[sequence]):
        return committable.without_files()
    return committable


def _rolled_back(table: str, base: int, newest: int, options: SinkOptions) -> Misuse:
    return Misuse(
        f"{table}: the newest snapshot carries record {base} of application '{options.application}', but record "
        f"{newest} was published: the table was rolled back, restored, recreated or lost its metadata. "
        "Nothing was written. Set on_rollback='republish' to publish the lost batches again from the journal, or "
        "start a new checkpoint at streamsink.starting_offsets(...) to read them again from the source.",
        kind="table.rolled-back",
    )


def _from_journal(table, retained, store, committer, options) -> RestorePlan:
    """No snapshot of ours is left and older ones have expired: only the journal and the files can tell."""
    if not retained:
        if options.new_application:
            return RestorePlan((), (), None)
        raise Misuse(
            f"{table}: no snapshot names application '{options.application}', its journal is empty, and older "
            "snapshots have expired, so whether it wrote here before cannot be told. Nothing was written. If it never "
            "did, set new_application=True for its first start.",
            kind="history.incomplete",
        )
    replaced = _replaced([s for s in retained if store.is_marked(s)], store, committer)
    records = [_to_publish(store, sequence, replaced, committer) for sequence in retained]
    published = _published_ones(records, replaced, store, committer)
    for committable in records[published:]:
        if committable.state.sequence not in replaced:
            _check_never_published(table, committable, committer)
    mark = tuple(c for c in records[:published] if not store.is_marked(c.state.sequence))
    last = records[published - 1].state if published else None
    return RestorePlan(tuple(records[published:]), mark, last, tuple(replaced), tuple(sorted(set(replaced.values()))))


def _published_ones(
    records: Sequence[Committable], replaced: Mapping[int, int], store: PendingStore, committer: Committer
) -> int:
    """How many, from the oldest on, none of them replaced.

    Publishing keeps the order, so the newest one that is published answers for all before it. One without files cannot tell:
    it may stand in one snapshot with others, and publishing it again changes no row.
    """
    kept = [c for c in records if c.state.sequence < min(replaced, default=c.state.sequence + 1)]
    for number in range(len(kept), 0, -1):
        if store.is_marked(kept[number - 1].state.sequence) or committer.mentions(kept[number - 1]):
            return number
    return 0


def _check_never_published(table: str, committable: Committable, committer: Committer) -> None:
    _, _, gone = committer.files_adopted(committable)
    if gone:
        raise Corrupt(
            f"{table}: checkpoint {committable.state.checkpoint_id} is pending in the journal, {len(gone)} of its files "
            f"are gone (first: {gone[0]}) and the history that could say whether it was published has expired. "
            "Nothing was written. Look whether its rows are in the table; then set accept_as_new or accept_as_seen on "
            "a new checkpoint.",
            kind="journal.undecidable",
        )


def _load(store: PendingStore, sequence: int) -> Committable:
    committable = store.load(sequence)
    if committable is None:
        raise Corrupt(f"record {sequence} of the journal vanished while it was read", kind="journal.missing-record")
    return committable
