"""``streamsink.give_up``: forget pending records that can never be published, so that their rows are read again.

It refuses what might be published, claims the application, so that every earlier driver is fenced, and changes nothing
but the journal. Files of these records that have their final names stay in the table, for orphan cleaning. Driver only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from streamsink.clock import IdSource
from streamsink.commands.given_up_text import report, where_it_begins
from streamsink.commands.own_sinks import check_of_no_fan_out, check_of_tables
from streamsink.commands.unpublishable import Unpublishable
from streamsink.errors import Misuse
from streamsink.journal.file_journal import journal_dir
from streamsink.journal.identity import behind_of
from streamsink.journal.repair import RepairJournal
from streamsink.locks.locked_file_io import under_lock
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.ids import END_OF_INPUT, check_application
from streamsink.protocol.journal import readable
from streamsink.sinks.paimon.letters import TableCommitter
from streamsink.sinks.paimon.many_tables import ManyTables
from streamsink.sinks.paimon.past.place import open_place
from streamsink.storage.file_io import FileIO
from streamsink.table.table import is_table, open_table

# Stands for this command in the record of who owns the application, where queries have their ids.
CLAIMED_BY = "give-up"

# The way on where all retained snapshots name the files, so that there is none to which the table could go back.
_WHERE_ALL_NAME_THEM = (
    "; or, where no snapshot before that is left, start the query with on_rollback='republish', which writes no row "
    "again that the table has"
)


@dataclass(frozen=True)
class GivenUp:
    """What was given up; ``str()`` of it says how to go on.

    records: numbers of the records, also of those that could not be read. checkpoints, runs: of those that could be
    read, the ids of the checkpoints, and of the bounded runs.
    """

    records: tuple[int, ...]
    checkpoints: tuple[int, ...]
    text: str
    runs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


def give_up(file_io: FileIO, path: str, options: SinkOptions) -> GivenUp:
    """Forget the first pending record that the next start cannot publish, and all records behind it.

    Those before it stay pending. options: the query's.
    Idempotent. After a crash some are forgotten, the last ones first, or none; calling it again forgets the rest,
    except what the next start can publish by then. Raises Fenced while the query runs; Misuse when a record might be
    published; and what a restore raises about a damaged table.
    """
    check_application(path, options.application)
    check_of_tables(file_io, path, options.application, "give_up")
    file_io = under_lock(file_io, path, options)
    committer, journal = _open(file_io, path, options)
    look = Unpublishable(path, committer, journal, options, limits=file_io.name_limits(path))
    state = look.history().state
    writer = journal.claim(CLAIMED_BY, state.epoch if state else 0)
    try:
        state, records = look.doomed()
        known = [record for record in (readable(journal, sequence) for sequence in records) if record is not None]
        check_of_no_fan_out(path, options, known, journal.place)
        for record in known:
            _check_unpublished(path, committer, record)
        journal.check_owner(writer)
        base, is_whole = state.sequence if state else 0, len(known) == len(records) or not journal.runs()
        unknown = _unknown_runs(committer, journal, options, known=known, base=base if is_whole else None)
        behind = _behind(known, state) or (
            behind_of(file_io, journal_dir(path, options.application)) if state is None else ()
        )
        journal.give_up(records, unknown, base, knows_runs=is_whole, behind=behind if state is None else ())
    finally:
        journal.release()
    checkpoints = tuple(record.state.checkpoint_id for record in known if record.state.checkpoint_id != END_OF_INPUT)
    runs = tuple(record.state.query for record in known if record.state.checkpoint_id == END_OF_INPUT)
    begins = where_it_begins(path, committer, options, records, known=known, behind=behind)
    text = report(path, options, state, records, known=known, runs=runs, begins=begins)
    return GivenUp(tuple(records), checkpoints, text, runs)


def _open(file_io: FileIO, path: str, options: SinkOptions) -> tuple[TableCommitter | ManyTables, RepairJournal]:
    def journal() -> RepairJournal:
        return RepairJournal(file_io, path, options.application, options.journal_retain, of_table=True)

    if is_table(file_io, path):
        return TableCommitter(open_table(file_io, path, for_writing=True), options), journal()
    if not file_io.names(journal_dir(path, options.application)):
        raise Misuse(
            f"{path}: there is neither a table nor a journal of application '{options.application}' here, so nothing "
            "was given up. Give the path of the table, or of the folder of the tables that streamsink.to_tables "
            "writes, and the query's own application",
            kind="table.missing",
        )
    place = open_place(file_io, path, options.application, IdSource().new_id)
    return ManyTables(place, journal(), options, lambda event: None), journal()


def _unknown_runs(
    committer: TableCommitter | ManyTables,
    journal: RepairJournal,
    options: SinkOptions,
    *,
    known: Sequence[Committable],
    base: int | None,
) -> list[str]:
    """Ids of bounded runs that the journal takes for published and that are not, or may not be, since a rollback.

    known: the records that are given up. base: number of the last published record; None when others of those that are
    given up are damaged.
    """
    given_up = {record.state.query for record in known if record.state.checkpoint_id == END_OF_INPUT}
    if base is not None and min((record.state.sequence for record in known), default=base + 1) == base + 1:
        return sorted(given_up)
    # Records before them were pruned, or are damaged, so that it is not known any more to which runs they belonged.
    return [
        run
        for run in journal.runs()
        if run in given_up or not committer.known_run(options.application, run).is_published
    ]


def _check_unpublished(path: str, committer: TableCommitter | ManyTables, record: Committable) -> None:
    """Raises Misuse when a table has the record, because reading its rows again would double them there."""
    places = committer.places_of(record)
    if places:
        beside = " and ".join(place for place in places if place != path)
        drop = (
            f", or drop {beside} where there is none before it, or it has expired (then first copy to another table "
            "what else is in it)"
            if beside
            else ""
        )
        if isinstance(committer, ManyTables):
            way_on = _without_the_lost(committer)
        else:
            way_on = _WHERE_ALL_NAME_THEM if places == [path] else ""
        raise Misuse(
            f"{path}: record {record.state.sequence} ({record.state.checkpoint_name}) is in {', '.join(places)}: "
            "reading its rows again would double them there. Nothing was given up. Restore the files that are gone; or "
            f"roll back {' and '.join(places)} to the snapshot before the one that names them{drop}, and call this "
            f"again{way_on}",
            kind="give-up.published",
        )


def _without_the_lost(committer: ManyTables) -> str:
    """The way on that takes nothing from the tables that have their part of the record; empty when no table is lost."""
    lost, option = committer.without_the_lost()
    if not lost or option is None:
        return ""
    return (
        f"; or, where others have written to them since, start the query with accept_as_seen='{option}', which "
        f"publishes the record in the other tables, and follow its next error: its rows for {' and '.join(lost)} "
        "are lost then"
    )


def _behind(known: Sequence[Committable], state: AppState | None) -> tuple[str, int] | tuple[()]:
    """The name that the query had before the records that are given up, and its last record under that name.

    Empty unless that name has all that is published before them. known: the records that are given up. state: what is
    published under the present name.
    """
    first = known[0].state if known else None
    return first.leads_on or (first.behind if state is None else ()) if first else ()
