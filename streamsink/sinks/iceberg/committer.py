"""Publishes records as snapshots of an Iceberg table, and tells what is published. Driver only."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamsink import shell
from streamsink.clock import Clock
from streamsink.errors import Corrupt, Misuse, Retryable
from streamsink.faults import fault_point
from streamsink.journal.file_journal import FileJournal
from streamsink.journal.others import last_of_others, of_no_matter
from streamsink.protocol import ways
from streamsink.protocol.committable import AppState, Committable, LastOfOther
from streamsink.protocol.sink import Committer, Destination, History, Published
from streamsink.protocol.upkeep import Visible
from streamsink.sinks.iceberg import table_state
from streamsink.sinks.iceberg.catalog import CatalogTable
from streamsink.sinks.iceberg.commit import Refused, commit, data_file, files_in, is_whole, names_in
from streamsink.sinks.iceberg.exchange import one_flush
from streamsink.sinks.iceberg.table_state import Standing
from streamsink.sinks.lake_tables.attempts import Places
from streamsink.sinks.lake_tables.parquet_file import LakeFile
from streamsink.sinks.manifest_log import is_last
from streamsink.storage.stores import table_path

# Tries of one commit, and the wait between two of them, which doubles up to the last one.
_TRIES, _WAIT_MS, _LONGEST_WAIT_MS = 20, 10, 2_000
# Keys in the description of a record's files.
SCHEMA_ID, SPEC_ID, DATA_URI, BEHIND = "schema", "spec", "data", "behind"
# Key in the payload of a record: the path of the sink.
DESTINATION = "destination"
PARTITION = "partition"  # ids of the columns that the files are partitioned by


class IcebergCommitter(Committer):
    """Commits to one table."""

    def __init__(self, to: Destination, table: CatalogTable, places: Places, load: Callable[[int], Committable | None]):
        """load: reads a record of the application's journal by its number."""
        self._to = to
        self._catalog = table
        self._places = places
        self._load = load
        self._looked_at: Any = None
        # The table as it was at the last look; None before the first one.
        self.seen: Any = None

    def for_background(self) -> "IcebergCommitter":
        return IcebergCommitter(self._to, self._catalog.anew(), self._places, self._load)

    def history(self, application: str) -> History:
        return History(self._newest(self._look(), application), complete=True)

    def others(self, application: str) -> Mapping[str, LastOfOther]:
        table, lost = self._look(), dict[str, AppState]()

        def said(name: str) -> AppState | None:
            with of_no_matter(self._to.path, f"the property of '{name}'"):
                found = self._standing(table, name)
                if not found.is_lost or found.state is None:
                    return found.state
                lost[name] = found.state
                return self._said_before(table, name, found.newest[1]) if found.newest[0] else None
            return None

        known = table_state.applications(table)
        found = last_of_others(self._places.journal_io, self._places.journal, application, known, said)
        for name, state in lost.items():  # the journal may be lost as well, and what it would say is not published
            last = found.get(name)
            if last is None or last.state.sequence < state.sequence:
                found[name] = LastOfOther(state, False, said=last.said if last is not None else None)
        # Journals of other tables may lie in the same folder. One that was in the place of this one counts.
        return {name: last for name, last in found.items() if self._is_of_here(name, last.state)}

    def _is_of_here(self, application: str, last: AppState) -> bool:
        """Whether what another application has recorded last is of a table of this name, which is here or was here."""
        if last.table_id == self._to.table_id:
            return True
        newest = None
        with of_no_matter(self._places.journal, f"the newest record of '{application}'"):
            newest = FileJournal(self._places.journal_io, self._places.journal, application, 2).newest()
        return newest is not None and newest.payload.get(DESTINATION) == self._to.path

    def mentions(self, committable: Committable) -> bool:
        return table_state.mentions(self._look(), committable)

    def sees_all_since(self, committable: Committable) -> bool:
        table = self._look()
        if self._standing(table, committable.application).is_whole:
            return True
        behind = self._described(committable).get(BEHIND)
        return table_state.reaches_back_to(table, behind)

    def files_in_place(self, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
        found = self._places.in_place(committable, self._data(committable))
        # Where somebody has added the files, they may have been rewritten since.
        is_there = bool(found[2]) and self._is_there(self._look(), committable)
        return (len(committable.files), 0, ()) if is_there else found

    def is_readable(self, committable: Committable) -> bool:
        return self._places.is_described(committable) or self._is_there(self._look(), committable)

    def holds(self, committable: Committable, since: int) -> bool:
        """Somebody may have added the files since, by ``cherrypick_snapshot`` or by name."""
        table = self._look()
        return self._was_picked(table, committable) or bool(self._names(table, committable))

    def visible(self) -> Visible:
        """The files of the current snapshot, also those that say which rows are deleted."""
        table = self._look()
        with self._catalog.answered("the table's files could not be looked for"), self._catalog.whole():
            files = files_in(table)
            gone = [path for path, size, _ in files if not is_whole(table, path, size)]
        return Visible(len(files), sum(rows for _, _, rows in files), tuple(gone))

    def path_of_rows(self, committable: Committable) -> str:
        if not committable.files:
            return ""
        return self._places.path(committable, committable.files[0].final, self._data(committable))

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        """Nothing: what a catalog has answered for is durable, and metadata of dead tries has no name that is known."""
        return []

    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]) -> Published:
        state = committable.state
        for attempt in range(1, _TRIES + 1):
            fence()
            # What was looked at for the batch counts once: a commit on top of it is refused if the table has changed.
            table, self._looked_at = self._looked_at or self._look(), None
            newest = self._newest(table, committable.application)
            if not is_last(self._to.path, newest, committable, expect):
                try:
                    self._commit(table, committable, restored)
                except Refused:
                    Clock().sleep_ms(min(_WAIT_MS << attempt, _LONGEST_WAIT_MS))
                    continue
            fault_point("commit.published")
            return Published(state.checkpoint_id, state.sequence, attempt)
        raise Retryable(
            f"{self._to.path}: other writers were first in each of {_TRIES} tries to commit {state.checkpoint_name}. "
            "It is safe in the journal, and is published at the next start",
            kind="commit.retries",
        )

    # -- parts -----------------------------------------------------------------------------------------------------

    def _look(self) -> Any:
        """The table as it is now. Raises Misuse when it is gone, or another one."""
        table = self._catalog.load()
        if table is None:
            raise Misuse(
                f"{self._to.path}: the table is gone, which was there when the query was started. Nothing was written. "
                "Restore it; if it was dropped on purpose, the next start says how to go on",
                kind="table.gone",
            )
        found = str(table.metadata.table_uuid)
        if found != self._to.table_id:
            raise Misuse(
                f"{self._to.path}: the table was dropped and recreated while the query ran: its id is {found}, "
                f"expected {self._to.table_id}. Nothing was written. Restore the first table; or remove the journal "
                "of the dropped one and start a new checkpoint, which reads the source from its beginning",
                kind="table.recreated",
            )
        self._looked_at = self.seen = table
        return table

    def _standing(self, table: Any, application: str) -> Standing:
        return table_state.standing(table, application, self._to.path)

    def _newest(self, table: Any, application: str) -> AppState | None:
        """The state of the last record that the table has. Where it was rolled back, the journal has that state."""
        found = self._standing(table, application)
        if not found.is_lost:
            return found.state
        number, record_id = found.newest
        if not number and found.is_whole:
            return None
        record = self._load(number) if number else None
        if record is not None and record.state.record_id == record_id:
            return record.state
        before = self._said_before(table, application, record_id) if number else None
        if before is not None:
            return before
        last = found.state.sequence if found.state is not None else 0
        raise Misuse(
            f"{self._to.path}: the table was rolled back, or replaced: record {last} of application '{application}' "
            f"is not in it any more, and what it still has, up to record {number or 'unknown'}, the journal does not "
            f"know. Nothing was written. {self._to.way_back}. Where this is what the command says as well, give the "
            "query another name (application='...') and a new checkpoint, behind those of its rows that are here",
            kind="table.rolled-back-too-far",
        )

    def _said_before(self, table: Any, application: str, record_id: str) -> AppState | None:
        with self._catalog.answered("what the table said before could not be read"):
            return table_state.said_before(table, application, record_id)

    def _data(self, record: Committable) -> str:
        """The folder that had all data files when the record's were written; '' where nobody knows."""
        uri = self._described(record).get(DATA_URI)
        return table_path(str(uri)) if uri else ""

    def _described(self, record: Committable) -> Mapping[str, Any]:
        """What is beside the description of the record's files; nothing where that is gone."""
        try:
            return self._places.described(record)[1] if record.files else {}
        except Corrupt:
            return {}

    def _commit(self, table: Any, record: Committable, restored: bool) -> None:
        described, more = self._to_add(table, record, restored) if record.files else ([], {})
        spec_id = _spec_id(self._to.path, table, record, more) if described else table.metadata.default_spec_id
        folder = f"{more.get(DATA_URI, '')}/{self._places.folder_name(record.state.record_id)}"
        with self._catalog.answered("the files of a record could not be described"):
            files = [
                data_file(table, file, f"{folder}/{file.name}", int(more[SCHEMA_ID]), spec_id) for file in described
            ]
        fault_point("commit.before_publish")
        with one_flush(table.io):
            self._looked_at = commit(self._catalog, table, record, files, spec_id)

    def _to_add(self, table: Any, record: Committable, restored: bool) -> tuple[list[LakeFile], Mapping[str, Any]]:
        """The files that the table must be given, and what is beside their description; nothing where it has all.

        That is told without the description as well, which goes when a record is published.
        """
        try:
            described, more = self._places.described(record)
        except Corrupt:
            if restored and self._is_there(table, record):
                return [], {}
            raise
        return (self._missing(table, record, described, more) if restored else described), more

    def _is_there(self, table: Any, record: Committable) -> bool:
        """Whether somebody has added all files of the record, which were pending or rolled back."""
        return self._was_picked(table, record) or 0 < len(record.files) == len(self._names(table, record))

    def _was_picked(self, table: Any, record: Committable) -> bool:
        with self._catalog.answered("what the table has could not be read"):
            return table_state.was_picked(table, record)

    def _names(self, table: Any, record: Committable, behind: int | None = None) -> set[str]:
        """The names of those of its files that the table has now. behind: as of ``names_in``."""
        with self._catalog.answered("what the table has could not be read"), self._catalog.whole():
            return names_in(table, self._places.folder_name(record.state.record_id), behind)

    def _missing(
        self, table: Any, record: Committable, described: list[LakeFile], more: Mapping[str, Any]
    ) -> list[LakeFile]:
        """Those files of a record of an earlier run that the table must be given: all, or none.

        Somebody may have added them already, by ``cherrypick_snapshot`` after a rollback, or by name.
        """
        folder, number = self._places.folder_name(record.state.record_id), record.state.sequence
        is_there = self._was_picked(table, record)
        there = set[str]() if is_there else self._names(table, record, more.get(BEHIND))
        if is_there or len(there) == len(described):
            return []
        if there:
            raise Misuse(
                f"{self._to.path}: {len(there)} of the {len(described)} data files of record {number} are in the "
                f"table, although it was not committed, or was rolled back: somebody has added them. Nothing was "
                f"written. Take them out of the table, or add the others as well. They are in the folder {folder}; "
                f"there is, for instance, {min(there)}",
                kind="iceberg.partly-there",
            )
        gone = self._places.in_place(record, table_path(str(more.get(DATA_URI, ""))))[2]
        if gone:
            raise Corrupt(
                f"{self._to.path}: {gone[0]} is gone, or not whole: {len(gone)} of the {len(record.files)} data files "
                f"of record {number}, which waits for its commit. Nothing was published. Restore them "
                f"{shell.restore(gone[0])}; something "
                "deletes files that no snapshot names, before they are old enough. "
                f"{ways.give_up(self._to.path, record.application, is_table=False)}",
                kind="pending.files-gone",
            )
        return described


def _spec_id(path: str, table: Any, record: Committable, more: Mapping[str, Any]) -> int:
    """The partition spec by which files were written, or the same one again where that was removed since.

    A number is given again then, so a spec counts by what it says: the columns, as they are.
    """
    by = [(source, "identity") for source in more[PARTITION]]
    specs = [(each.spec_id, each.fields) for each in table.metadata.partition_specs]
    found = [number for number, fields in specs if [(f.source_id, str(f.transform)) for f in fields] == by]
    if not found:
        names = [str(table.schema().find_column_name(each) or each) for each in more[PARTITION]]
        raise Misuse(
            f"{path}: record {record.state.sequence} waits for its commit, and its files are partitioned "
            f"by {', '.join(names) or 'nothing'}, which the table does not know any more. Nothing was published. "
            "Partition the table so again; when the record is committed, change it back",
            kind="iceberg.unsupported",
        )
    return int(more[SPEC_ID]) if more[SPEC_ID] in found else int(found[-1])
