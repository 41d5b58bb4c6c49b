"""What a Paimon table says of the records of its applications: the questions that a restart and an admission ask.

Driver only.
"""

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.events import Event, IcebergMetadataBehind
from streamsink.format.iceberg_options import check_place
from streamsink.format.snapshot import BATCH_COMMIT_IDENTIFIER
from streamsink.format.supported import check_writable
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Committable, KnownRun, LastOfOther
from streamsink.protocol.journal import Mark
from streamsink.protocol.sink import Committer, History
from streamsink.sinks.paimon.past import filter_of, history_of
from streamsink.sinks.paimon.past.above import as_journals_say
from streamsink.sinks.paimon.past.history_of import names_of
from streamsink.sinks.paimon.past.place import Place
from streamsink.sinks.paimon.past.records import check_schemas, files_in_place, is_readable, path_of_rows, state_alone
from streamsink.storage.reading import Questions
from streamsink.table.application_states import States
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.history import lineage
from streamsink.table.history.lineage import were_named
from streamsink.table.history.renamed_folders import folder_names
from streamsink.table.history.whole import Whole
from streamsink.table.table import Table, is_table, of_being_tables, of_opening

_MARKED_AT_ONCE = 16


class _Open(Protocol):
    """One of several tables, open."""

    @property
    def committer(self) -> "PaimonHistory": ...


def looking_at_all(
    place: Place, opened: Mapping[str, _Open], member: Callable[[str, str], _Open], paths: Mapping[str, str]
) -> AbstractContextManager[None]:
    """Look for the first time at several tables, in a distant store at all of them at once.

    What is wrong with one of them is said by the look that follows within the block, of which the first questions are
    answered. opened: those that are open, by name. member: opens one that exists, as ``ManyTables.member``; raises what
    that raises. paths: by name, relative to the folder, also of tables that do not exist.
    """
    file_io, known = place.file_io, set(opened)
    if not file_io.is_distant:
        return nullcontext()
    roots = {name: place.absolute(path) for name, path in paths.items()}
    being = of_being_tables(roots.values())
    with file_io.asking(being + of_opening(root for name, root in roots.items() if name not in known)):
        there = [name for name, root in roots.items() if is_table(file_io, root)]
        committers = {name: member(name, paths[name]).committer for name in there}

    def look(committer: PaimonHistory) -> None:
        with suppress(OSError, StreamsinkError):
            committer.history(place.key)

    file_io.together([functools.partial(look, each) for name, each in committers.items() if name not in known])
    return file_io.asking(sum((committer.questions() for committer in committers.values()), being))


class PaimonHistory(Committer):
    """The side of a ``PaimonCommitter`` that queries only ask."""

    # What to do about a record that can never be published.
    _way_on = ""

    def __init__(
        self,
        table: Table,
        options: SinkOptions,
        *,
        is_undone: Callable[[int], bool] | None = None,
        is_running: bool = False,
    ):
        """is_undone: as ``filter_of.is_published``; as the table's own journal says when it is not given.
        is_running: this is a second committer of a run that has looked already whether the table is whole.
        """
        self._table = table
        self._options = options
        self._is_undone = is_undone or (
            lambda sequence: history_of.is_last_undone(table, options.application, sequence)
        )
        self._whole = Whole(table, started=is_running)
        self._commit = TableCommit(table, options, self._whole)
        self._checked_schema = -1

    def tell_of_iceberg(self, emit: Callable[[Event], None], application: str) -> None:
        """Let ``emit`` take an event when the table's Iceberg metadata does not follow, and when it has caught up."""
        root = self._table.root
        self._commit.iceberg.told = lambda failures, why: emit(IcebergMetadataBehind(root, application, failures, why))

    @property
    def marked_at_once(self) -> int:  # type: ignore[override]  # nobody sets what the contract names
        return _MARKED_AT_ONCE if self._table.file_io.is_distant else 1

    def asking(self, questions: Any, *, others: bool = False) -> AbstractContextManager[Any]:
        more = questions if isinstance(questions, Questions) else Questions()
        more += Questions(names=(self._table.layout.within(JOURNAL_DIR),) if others else ())
        return self._table.file_io.asking_to_keep(self.questions() + more)

    def questions(self) -> Questions:
        """What ``history`` will ask."""
        return self._table.questions() + self._whole.questions()

    def next_snapshots(self) -> tuple[str, ...]:
        """Paths of the snapshots that the next record will be in, if nobody else is first."""
        return self._table.snapshots.questions().size

    def history(self, application: str) -> History:
        with self._table.file_io.asking(self.questions()):
            self._table.check_identity()
            self._check_schema()
            newest = self._whole.look(self._table.snapshots.latest())
        states = self._table.states.read(newest)
        return History(filter_of.state_of(states, application), states.complete)

    def _check_schema(self) -> None:
        """A foreign writer may have set an option that is not honoured here, or that a commit cannot read."""
        schema = self._table.latest_schema()
        if schema.id != self._checked_schema:
            before = self._table.schemas.load(self._checked_schema) if self._checked_schema >= 0 else schema
            if folder_names(schema) != folder_names(before):
                self._whole.start_over()  # files may be where no reader looks for them any more
            check_writable(schema)
            check_place(self._table.layout.main, schema.options)
            self._commit.check_options()
            self._checked_schema = schema.id

    def state_alone(self, committable: Committable, *, held: bool = False) -> Committable:
        return state_alone(committable, held=held)

    def mentions(self, committable: Committable) -> bool:
        return were_named(self._table, names_of(committable))

    def others(self, application: str) -> Mapping[str, LastOfOther]:
        return as_journals_say(self._table, history_of.last_of_others(self._table, application))

    def has_reached(self, application: str, sequence: int, where: Mark | None = None) -> bool:
        states = self._table.states.read(self._table.snapshots.latest())
        state = filter_of.state_of(states, application)
        if state is not None or states.complete:
            return state is not None and state.sequence >= sequence
        return where is None or history_of.has_record(self._table, application, sequence, where)

    def has_what_was_before(self, committable: Committable) -> bool:
        before = committable.state.leads_on
        if not before:
            return True
        has_reached = self.has_reached(*before, history_of.led_at(committable))
        return has_reached and history_of.is_of_the_past_that_it_leads_on(self._table, committable)

    def known_run(self, application: str, run: str) -> KnownRun:
        return history_of.known_run(self._table, application, run)

    def places_of(self, committable: Committable) -> list[str]:
        """Paths of the tables of which a retained snapshot names a file of the record."""
        return [self._table.root] if self.mentions(committable) else []

    def sees_all_since(self, committable: Committable) -> bool:
        return history_of.is_retained_since(self._table, committable.payload.get("base"))

    def where_is(self, committable: Committable) -> Mark | None:
        return history_of.where_is(self._table, committable)

    def where_now(self) -> Mark | None:
        return history_of.newest_now(self._table, alone=True)

    def was_replaced(self, mark: Mark) -> bool:
        return lineage.was_replaced(self._table, mark.snapshot_id, mark.uuid, mark.at_ms)

    def was_rolled_back(self, mark: Mark) -> bool:
        return lineage.was_rolled_back(self._table, mark.snapshot_id, mark.uuid, mark.at_ms)

    def holds(self, committable: Committable, since: int) -> bool:
        return were_named(self._table, names_of(committable), since)

    def files_in_place(self, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
        return files_in_place(self._table, committable)

    def forget(self, application: str) -> None:
        forget(self._table, application, self._options)

    def path_of_rows(self, committable: Committable) -> str:
        return path_of_rows(self._table, committable)

    def is_readable(self, committable: Committable) -> bool:
        """Whether the record's manifests, and the schemas of its files, are as they were recorded."""
        return is_readable(self._table, committable)

    def check_schemas(self, committable: Committable) -> None:
        """Raises Corrupt when a schema of the record's files is gone, or is another one by now."""
        check_schemas(self._table, committable, self._way_on)


class _IsForgotten(Guard):
    def __init__(self, application: str):
        self._application = application

    def is_published(self, states: States) -> bool:
        return self._application not in states.by_application


def forget(table: Table, application: str, options: SinkOptions) -> None:
    """Publish a snapshot that has the states of all other applications; none where there is no state of this one."""
    if application not in table.states.read(table.snapshots.latest()).by_application:
        return
    name = IdSource().new_id()
    request = CommitRequest(
        f"streamsink-retire-{name}", BATCH_COMMIT_IDENTIFIER, Changes(()), name, application=application
    )
    TableCommit(table, options).commit(request, _IsForgotten(application))
