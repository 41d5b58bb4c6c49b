"""What retained snapshots and journals say of records and runs that the newest state does not name. Driver only."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from streamsink.clock import Clock
from streamsink.errors import Conflict, Corrupt
from streamsink.format.snapshot import COMPACT, Snapshot
from streamsink.journal.file_journal import JOURNAL_DIR, FileJournal
from streamsink.journal.others import newest_in, of_no_matter
from streamsink.options import SinkOptions, words_of
from streamsink.protocol import ways
from streamsink.protocol.committable import LED_ID, AppState, Committable, KnownRun, LastOfOther
from streamsink.protocol.ids import END_OF_INPUT, Writer
from streamsink.protocol.journal import Mark, readable
from streamsink.protocol.run.restore import MAY_OVERWRITE, token_of
from streamsink.sinks.paimon.past.records import state_alone
from streamsink.table.application_states import states_in
from streamsink.table.branching.fast_forward import brought_all_runs, runs_brought_by
from streamsink.table.history import lineage
from streamsink.table.history.lineage import were_named
from streamsink.table.table import Table

# In the payload of the first record under a new name: where the table had what the query published under the name
# before.
_LED_AT = "led_at"


def is_retained_since(table: Table, base: int | None) -> bool:
    """Whether every snapshot after number ``base`` is retained.

    base: 0 for the beginning; None, for which the answer is False, in a record of earlier code.
    """
    return base is not None and _are_whole(table.snapshots.ids(), base)


def known_run(table: Table, application: str, run: str) -> KnownRun:
    """Whether a bounded job's run is published; unknown when snapshots that could say so have expired.

    It reads every retained snapshot, so it is called only when the journal cannot answer.
    """
    user = Writer(application, run, 0).commit_user(0)
    ids = table.snapshots.ids()
    main, before = _before_branch(table, ids)
    are_named = True
    for snapshot in (*_loaded(table, reversed(ids)), *_loaded(main, reversed(before))):
        if snapshot.commit_identifier == END_OF_INPUT and snapshot.commit_user == user:
            said = (states_in(snapshot, table.snapshots.path(snapshot.id)) or {}).get(application)
            return KnownRun.of(AppState.from_json(said)) if said is not None else KnownRun(True)
        if user in runs_brought_by(snapshot):
            return KnownRun(True)
        are_named = are_named and brought_all_runs(snapshot)
    return KnownRun(False if are_named and _are_whole([*before, *ids], 0) else None)


def _before_branch(table: Table, ids: Sequence[int]) -> tuple[Table, Sequence[int]]:
    """The table that a branch is of, and the numbers of its snapshots before the one of which the branch was made.

    None of them for the main branch, and where the table does not have that snapshot any more. ids: the branch's own.
    """
    if not table.layout.branch or not ids:
        return table, ()
    main, first = Table(table.file_io, table.layout.main), table.snapshots.load(ids[0])
    if first is None or main.snapshots.load(ids[0]) != first:
        return table, ()
    return main, [number for number in main.snapshots.ids() if number < ids[0]]


def publishing_of(table: Table, committable: Committable) -> Snapshot | None:
    """The retained snapshot that published this record.

    None when that has expired, and for a record of earlier code, which has no base.
    """
    base, application, record_id = committable.payload.get("base"), committable.application, committable.state.record_id
    since = [number for number in table.snapshots.ids() if base is not None and number > base]
    for snapshot in _loaded(table, since):
        said = (states_in(snapshot, table.snapshots.path(snapshot.id)) or {}).get(application)
        if said is not None and AppState.from_json(said).sequence >= committable.state.sequence:
            is_it = AppState.from_json(said).record_id == record_id and _is_of(table, snapshot, application)
            return snapshot if is_it else None
    return None


def last_of_others(table: Table, application: str) -> dict[str, LastOfOther]:
    """By name, the last record of each other application that wrote the table, as its snapshots or journals have it."""
    found: dict[str, LastOfOther] = {}
    states = table.states.read(table.snapshots.last_seen())  # ``history`` has just looked
    for name, said in states.by_application.items():
        if name != application:
            with of_no_matter(table.root, name):
                state = AppState.from_json(said)
                found[name] = LastOfOther(state, True, said=state)
    for entry in table.file_io.entries(table.layout.within(JOURNAL_DIR)):
        if entry.is_dir and entry.name != application:
            journal = FileJournal(table.file_io, table.root, entry.name, 2)
            last = newest_in(
                journal,
                found.get(entry.name),
                lambda record: (
                    not states.complete
                    and record.state.table_id == table.table_id
                    and not is_undone_in(table, journal, record)
                ),
            )
            found |= {entry.name: last} if last is not None else {}
    return found


def is_undone(table: Table, record: Committable | None, mark: Mark | None) -> bool:
    """Whether what is retained shows that a published record is certainly not in the table any more.

    record: None where it was pruned. mark: where it was published; None where that is not known. Raises Conflict when
    it cannot be told.
    """
    names, base = (names_of(record), record.payload.get("base")) if record is not None else (set[str](), None)
    if mark is None or mark.again:
        return bool(names) and is_retained_since(table, base) and not were_named(table, names)
    at = (mark.snapshot_id, mark.uuid, mark.at_ms)
    if lineage.was_replaced(table, *at):
        return not were_named(table, names, 0 if mark.alone else mark.snapshot_id)
    return lineage.was_rolled_back(table, *at) and not (mark.alone and were_named(table, names))


def was_undone(table: Table, record: Committable | None, mark: Mark | None) -> bool:
    """Whether the snapshot that published a record is certainly gone, by a rollback or another writer's rename.

    Rows of it may have stayed. True as well when a start may have been about to publish the record once more.
    """
    if mark is None or mark.again:
        return mark is not None or record is not None and is_undone(table, record, None)
    at = (mark.snapshot_id, mark.uuid, mark.at_ms)
    return lineage.was_replaced(table, *at) or lineage.was_rolled_back(table, *at)


def needs_a_start(table: Table, record: Committable | None, mark: Mark | None) -> bool:
    """Whether only a start of the query settles what has become of a record whose snapshot is gone.

    That is so when the snapshot was replaced, because the start publishes the record again; when it may have had the
    state alone, because the start looks for the rows, or asks; and when a start was about to publish the record once
    more. record: None where it cannot be read. mark: where it was published; None where that is not known.
    """
    if mark is not None and (mark.again or lineage.was_replaced(table, mark.snapshot_id, mark.uuid, mark.at_ms)):
        return True
    if mark is not None and not mark.alone:
        return False
    return record is None or bool(record.files) and not is_undone(table, record, None)


def is_last_undone(table: Table, application: str, sequence: int) -> bool:
    """As ``is_undone``, for the last published record of a query of one table, by its number."""
    journal = journal_of(table, application)
    return is_undone(table, journal.load(sequence), where_marked(journal, sequence))


def record_of(table: Table, application: str, sequence: int) -> Committable | None:
    """A record as the journal of a query of one table has it; None where it is lost or damaged."""
    return readable(journal_of(table, application), sequence)


def journal_of(table: Table, application: str) -> FileJournal:
    """The journal of a query of one table, to be read and not written."""
    return FileJournal(table.file_io, table.root, application, 2, of_table=True)


def where_marked(journal: FileJournal, sequence: int) -> Mark | None:
    """The mark of a record of a query of one table; None where it does not say where the record was published."""
    mark = journal.mark_of(sequence)
    return mark if isinstance(mark, Mark) else None


def names_of(record: Committable) -> set[str]:
    """Names of the record's data files, without their folders."""
    return {os.path.basename(file.final) for file in record.files}


def is_undone_in(table: Table, journal: FileJournal, record: Committable) -> bool:
    """As ``is_undone``, with the mark that the journal of a query of one table has."""
    return is_undone(table, record, where_marked(journal, record.state.sequence))


def last_of(table: Table, application: str, sequence: int) -> dict[str, Any]:
    """What the first record under a new name says of the last one under the name before, which the table has.

    The result is entries of its payload: the snapshot that has that record, or a later one, where the snapshot has an
    id; and the record's own id, where it is known.
    """
    mark = where_marked(journal_of(table, application), sequence)
    if mark is None or mark.again:
        record = record_of(table, application, sequence)
        mark = where_is(table, record) if record is not None else None
    where, record_id = mark or newest_now(table), _id_of(table, application, sequence)
    return ({_LED_AT: where.to_json()} if where is not None else {}) | ({LED_ID: record_id} if record_id else {})


def has_record(table: Table, application: str, sequence: int, where: Mark) -> bool:
    """Whether nothing shows that the table has lost this record of another application.

    where: the record was there, or before that. If it has gone from there, a start of that application may have found
    it since; then nothing may show that it went after that.
    """
    journal = journal_of(table, application)
    record = readable(journal, sequence)
    if not is_undone(table, record, where):
        return True
    mark = where_marked(journal, sequence)
    return mark is not None and not mark.again and mark.at_ms > where.at_ms and not is_undone(table, record, mark)


def led_at(record: Committable) -> Mark | None:
    """Where the table had what the first record under a new name goes on from; None where it does not say it."""
    said = record.payload.get(_LED_AT)
    return Mark.from_json(said) if said is not None else None


def is_of_the_past_that_it_leads_on(table: Table, record: Committable) -> bool:
    """Whether the record from which this first one under a new name goes on is the one that has its number now.

    It need not be, because numbers that were given up are used again. True as well when either of the two ids is not
    known.
    """
    known, said = record.payload.get(LED_ID), _id_of(table, *record.state.leads_on)
    return not known or not said or known == said


def _id_of(table: Table, application: str, sequence: int) -> str:
    """The id of a record of another application, as the table or the journal has it; '' where neither has it.

    '' as well for an application of several tables, each of which has an id of its own.
    """
    if "@" in application:
        return ""
    said = table.states.read(table.snapshots.latest()).by_application.get(application)
    if said is not None and AppState.from_json(said).sequence == sequence:
        return AppState.from_json(said).record_id
    record = record_of(table, application, sequence)
    return record.state.record_id if record is not None else ""


def newest_now(table: Table, *, alone: bool = False) -> Mark | None:
    """A mark of the newest snapshot, which has all that was published before. alone: as in ``Mark``."""
    newest = table.snapshots.latest()
    return mark_of(newest, Clock().now_ms(), alone=alone) if newest is not None else None


def mark_of(snapshot: Snapshot, at_ms: int, *, alone: bool = False) -> Mark | None:
    """The mark of a snapshot; None when that has no id.

    at_ms: a moment at which the snapshot was in its place. alone: as in ``Mark``.
    """
    return Mark(snapshot.id, snapshot.uuid, at_ms, alone) if snapshot.uuid else None


def where_is(table: Table, committable: Committable) -> Mark | None:
    """The mark of a published record; None when no retained snapshot says where it was published."""
    now_ms, found = Clock().now_ms(), publishing_of(table, committable)
    return mark_of(found, now_ms, alone=_says_state_alone(table, found, committable)) if found is not None else None


def _says_state_alone(table: Table, snapshot: Snapshot, record: Committable) -> bool:
    """Whether the snapshot that published this record adds none of the record's files.

    True as well when its manifests cannot be read: it may expire meanwhile.
    """
    try:
        added = {
            entry.file.file_name
            for meta in table.manifests.delta_of(snapshot)
            for entry in table.manifests.read(meta.file_name)
        }
    except Corrupt:
        return True
    return bool(record.files) and names_of(record).isdisjoint(added)


def still_meant(
    table: Table, committable: Committable, covers: Callable[[bytes], bool], options: SinkOptions
) -> Committable:
    """What is to be published of a pending overwrite of an earlier run.

    Only its state, when the user has decided so by a token. covers: whether the overwrite replaces the partition of
    this key. Raises Conflict when others have changed rows of such partitions since it was recorded, or may have. A
    compaction changes no row.
    """
    word = token_of(committable, MAY_OVERWRITE)
    if word in words_of(options.accept_as_seen):
        return state_alone(committable)
    if word not in words_of(options.accept_as_new):
        _check_unchanged(table, committable, covers, word)
    return committable


def _check_unchanged(table: Table, committable: Committable, covers: Callable[[bytes], bool], word: str) -> None:
    base, application = committable.payload.get("base"), committable.application
    ids = table.snapshots.ids()
    since = [number for number in ids if number > (base if base is not None else 0)]
    found = [
        s
        for s in _loaded(table, reversed(since))
        if s.commit_kind != COMPACT and not _is_of(table, s, application) and _touches(table, s, covers)
    ]
    if not found and _are_whole(ids, base or 0):
        return
    if found:
        what = f"snapshot {found[0].id} of user '{found[0].commit_user}' has changed these partitions since then"
    else:
        since_when = f"since then (after number {base})" if base is not None else "of this table"
        what = f"snapshots {since_when} have expired, so whether others changed these partitions cannot be told"
    raise Conflict(
        f"{table.root}: record {committable.state.sequence} of application '{application}', an overwrite of "
        f"{committable.state.checkpoint_name}, is pending from an earlier run, and {what}: publishing it would delete "
        f"what they wrote. Nothing was published. Set accept_as_new='{word}' to overwrite all the same, or "
        f"accept_as_seen='{word}' to leave the table as it is and go on after that checkpoint. "
        f"{ways.answer_in_a_shell(table.root, application, 'accept_as_seen')}",
        kind="overwrite.changed-since",
    )


def _are_whole(ids: Sequence[int], base: int) -> bool:
    """Whether no snapshot between number ``base`` and the newest one is missing. ids: those retained, in order."""
    after = [number for number in ids if number > base]
    newest = ids[-1] if ids else 0
    return newest < base or len(after) == newest - base


def _loaded(table: Table, ids: Iterable[int]) -> Iterator[Snapshot]:
    """Yield the snapshots of these numbers, in this order. One that expires meanwhile is left out."""
    for number in ids:
        snapshot = table.snapshots.load(number)
        if snapshot is not None:
            yield snapshot


def _is_of(table: Table, snapshot: Snapshot, application: str) -> bool:
    """Whether the application itself has published the snapshot."""
    said = (states_in(snapshot, table.snapshots.path(snapshot.id)) or {}).get(application)
    if said is None:
        return False
    state = AppState.from_json(said)
    mine = Writer(application, state.query, state.epoch).commit_user(state.generation)
    return (snapshot.commit_user, snapshot.commit_identifier) == (mine, state.checkpoint_id)


def _touches(table: Table, snapshot: Snapshot, covers: Callable[[bytes], bool]) -> bool:
    """Whether the snapshot adds or deletes files of partitions that ``covers`` tells."""
    names = (meta.file_name for meta in table.manifests.delta_of(snapshot))
    return any(covers(entry.partition) for name in names for entry in table.manifests.read(name))
