"""``streamsink.verify``: check a table, and what the journals of its applications say of it. Changes nothing."""

import contextlib
from collections.abc import Callable, Sequence

from streamsink import shell
from streamsink.errors import Corrupt
from streamsink.format.snapshot import Snapshot
from streamsink.journal.file_journal import JOURNAL_DIR, FileJournal
from streamsink.journal.identity import is_of
from streamsink.journal.others import is_certain
from streamsink.protocol import ways
from streamsink.protocol.committable import AppState, Committable
from streamsink.sinks.paimon.past.history_of import names_of, where_marked
from streamsink.sinks.paimon.past.records import check_schemas, files_in_place
from streamsink.storage.file_io import FileIO
from streamsink.table.application_states import States
from streamsink.table.history.integrity import Report, TableCheck
from streamsink.table.history.lineage import was_replaced, were_named
from streamsink.table.history.retained import branches
from streamsink.table.iceberg_metadata.behind import what_readers_lack
from streamsink.table.table import Table, open_table


def verify(
    file_io: FileIO, root: str, contents: bool = False, told: Callable[[int, int], None] = lambda done, all: None
) -> Report:
    """Check every retained snapshot, every file that they refer to, and every journal of the table.

    Each file must be there, with its size. Each manifest is read once, and each data file's size is asked for once;
    with ``contents`` each data file is read whole, one after another. told: as of ``TableCheck``. A commit that happens
    meanwhile may show as a note. Raises Misuse when the path is not a table that can be read here, Corrupt when its
    schema is damaged.
    """
    table = open_table(file_io, root, for_writing=False)
    check = TableCheck(table, contents, told)
    check.run()
    newest = check.snapshots[-1] if check.snapshots else None
    try:
        states = table.states.read(newest)
    except Corrupt as broken:
        check.damage(broken.kind, str(broken))
        states = States({}, True)
    journals = [e.name for e in file_io.entries(table.layout.within(JOURNAL_DIR)) if e.is_dir]
    altered = _check_states(check, states)
    for application in (name for name in journals if name not in altered):
        _Journal(check, table, application, states).look()
    for application in sorted(set(states.by_application) - set(journals) - altered):
        # A writer of several tables keeps its journal beside them. What main wrote before the branch was made, and what
        # a branch wrote that main took over, has its journal there: to retire it here would forget what was written.
        if "@" not in application and not _lies_elsewhere(table, application, states):
            check.note("journal.missing", f"application '{application}' wrote here, but its journal is gone")
    with contextlib.suppress(Corrupt):  # the newest snapshot is damaged, which has been found
        lacking = what_readers_lack(table)
        if lacking:
            check.note(
                "iceberg.behind", f"{lacking}. The next commit of a query, or its next start, makes it if it can"
            )
    rows = newest.total_record_count if newest else 0
    return Report(table.root, len(check.snapshots), len(check.files), rows, tuple(check.findings))


def _check_states(check: TableCheck, states: States) -> set[str]:
    """The applications whose states cannot be read: what their journals say cannot be compared with anything."""
    altered = set[str]()
    for application, said in sorted(states.by_application.items()):
        try:
            AppState.from_json(said)
        except Corrupt as broken:
            check.damage(broken.kind, str(broken))
            altered.add(application)
    return altered


def _lies_elsewhere(table: Table, application: str, states: States) -> bool:
    """Whether the journal that wrote this state is that of the main one, or of another branch."""
    said = AppState.told(states.by_application[application])
    return any(
        is_of(table.file_io, f"{path}/{JOURNAL_DIR}/{application}", said)
        for _, path in branches(table)
        if path != table.root
    )


def first_missing(retained: Sequence[int], base: int) -> int | None:
    """Number of the first record behind the last published one, ``base``, that is missing before a retained one."""
    ahead = [sequence for sequence in retained if sequence > base]
    return next((number for number, sequence in enumerate(ahead, base + 1) if sequence != number), None)


def behind_a_hole(path: str, record: Committable, hole: int, place: str, *, is_table: bool = True) -> tuple[str, str]:
    """Kind and text for a pending record before which another one is missing, with that one's number ``hole``.

    place: of the journal.
    """
    return (
        "journal.missing-record",
        f"record {record.state.sequence} of application '{record.application}' is pending, and the journal {place} "
        f"does not have record {hole} before it: the next start cannot publish it. Restore record {hole} "
        f"{shell.restore(f'{place}/record-{hole}.json')}. "
        f"{ways.give_up(path, record.application, is_table=is_table)}",
    )


class _Journal:
    """Compares the records of one application with what the table says of it.

    The table may say nothing because its snapshots have expired.
    """

    def __init__(self, check: TableCheck, table: Table, application: str, states: States):
        self._check = check
        self._table = table
        self._name = application
        said = states.by_application.get(application)
        self._is_known = said is not None or states.complete
        self._published = AppState.from_json(said).sequence if said is not None else 0
        self._hole: int | None = None  # number of the first record that is missing before a retained one
        self._log = FileJournal(table.file_io, table.root, application, 2, of_table=True)

    def look(self) -> None:
        self._log.read_listing()
        self._hole = first_missing(self._log.retained(), self._published) if self._is_known else None
        for sequence in self._log.retained():
            try:
                committable = self._log.load(sequence)
            except Corrupt as broken:
                self._check.damage(broken.kind, str(broken))
                continue
            if committable is None:
                continue  # it was pruned meanwhile
            if committable.state.table_id != self._table.table_id:
                self._other_table(committable)
                return
            self._record(sequence, committable)
        self._staging()

    def _other_table(self, committable: Committable) -> None:
        self._check.note(
            "journal.other-table",
            f"record {committable.state.sequence} of application '{self._name}' was made for the table with the id "
            f"{committable.state.table_id}, which had this path before: the application's next start stops, and says "
            "what to do",
        )

    def _pending(self, committable: Committable) -> None:
        gone = files_in_place(self._table, committable)[2]
        what = f"record {committable.state.sequence} of application '{self._name}' is pending"
        if self._hole is not None and committable.state.sequence > self._hole:
            names = names_of(committable)
            if not were_named(self._table, names) and not self._is_published_by_now(committable):
                self._check.damage(*behind_a_hole(self._table.root, committable, self._hole, self._log.place))
        elif not gone:
            try:
                check_schemas(self._table, committable, ways.give_up(self._table.root, self._name))
                self._check.note("checkpoint.pending", f"{what}: the next start publishes it")
            except Corrupt as other:
                self._check.damage(other.kind, f"{what}: {other}")
        elif not self._is_published_by_now(committable):
            self._check.damage(
                "pending.files-gone",
                f"{what}, and {len(gone)} of its files are gone (first: {gone[0]}): the next start cannot publish it. "
                f"Restore them {shell.restore(gone[0])}. {ways.give_up(self._table.root, self._name)}",
            )

    def _is_published_by_now(self, committable: Committable) -> bool:
        found = self._table.states.read(self._table.snapshots.latest()).by_application.get(self._name)
        return found is not None and AppState.from_json(found).sequence >= committable.state.sequence

    def _record(self, sequence: int, committable: Committable) -> None:
        if not is_certain(self._log, sequence):
            if sequence > self._published:
                self._pending(committable)
            return
        mark, in_place = where_marked(self._log, sequence), None
        try:
            if mark is not None and was_replaced(self._table, mark.snapshot_id, mark.uuid, mark.at_ms):
                in_place = self._table.snapshots.load(mark.snapshot_id)
        except Corrupt:
            return  # the check of the table has reported that snapshot already
        if in_place is not None:
            self._replaced(sequence, in_place)
        elif sequence > self._published and self._is_known:
            self._check.damage(
                "checkpoint.rolled-back",
                f"record {sequence} of application '{self._name}' was published, but the newest snapshot ends at "
                f"record {self._published}: the table was rolled back, restored, or lost snapshots; see on_rollback",
            )

    def _replaced(self, sequence: int, by: Snapshot) -> None:
        what = (
            f"snapshot {by.id}, which published record {sequence} of application '{self._name}', was replaced by one "
            f"of '{by.commit_user}': a writer that publishes by a rename that replaces"
        )
        if sequence > self._published:
            self._check.damage(
                "checkpoint.lost", f"{what}. The next start of the application publishes the record again"
            )
        else:
            self._check.note("snapshot.replaced", f"{what}. Nothing of the application is lost")

    def _staging(self) -> None:
        pending = {s for s in self._log.retained() if not is_certain(self._log, s)}
        folder = self._table.layout.within(f"{JOURNAL_DIR}/{self._name}/staging")
        for entry in self._table.file_io.entries(folder):
            number = entry.name.rpartition("-")[2]
            if entry.is_dir and number.isdigit() and int(number) not in pending:
                files = self._table.file_io.entries(f"{folder}/{entry.name}")
                if files:
                    self._check.note(
                        "staging.files",
                        f"{len(files)} files in {folder}/{entry.name} are of no pending record: of a batch under way, "
                        "of a dead one (the next start removes them, or the next checkpoint), or kept for "
                        "on_rollback='republish'",
                    )
