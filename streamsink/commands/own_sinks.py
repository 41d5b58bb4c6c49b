"""What a command is given that is no table: a sink, or the place of one, or of a table that is gone. Driver only."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from streamsink import shell
from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.journal.repair import RepairJournal
from streamsink.options import SinkOptions, words_of
from streamsink.protocol import ways
from streamsink.protocol.committable import OF_FAN_OUT, AppState, Batch, Committable
from streamsink.protocol.ids import check_application
from streamsink.protocol.journal import readable
from streamsink.protocol.sink import OpenSink, Sink
from streamsink.storage.file_io import FileIO
from streamsink.table.table import is_table

# What there is instead, by the command's name. Without the last full stop.
_INSTEAD = {
    "give_up": "Call streamsink.give_up(sink, application='...') with the sink that to_sink was given",
    "retire": "Call streamsink.retire(sink, application='...') with the sink that to_sink was given",
    "recover": "Start the query; or give `streamsink recover` the sink as well, with --sink MODULE:NAME",
    "starting_offsets": (
        "Call streamsink.starting_offsets(sink, application='...') with the sink that to_sink was given"
    ),
}


@runtime_checkable
class Composed(Protocol):
    """A sink with destinations."""

    def places(self, file_io: FileIO, options: SinkOptions) -> Sequence[tuple[str, str, FileIO]]:
        """For each destination: its name, the place of its journals, or of itself where they lie in it, and the store
        of that. file_io: of the sink's own journal.
        """


def check_of_tables(file_io: FileIO, path: str, application: str, command: str) -> None:
    """Raises Misuse when the application writes here by a sink that has no Paimon tables, or its one table is gone.

    It is called before anything is changed. The records tell: the payload of one of Paimon's tables has a kind.
    """
    journal = FileJournal(file_io, path, application, 2)
    try:
        newest = journal.newest() if not is_table(file_io, path) else None
    except Corrupt:
        return
    if newest is not None and "kind" not in newest.payload:
        raise Misuse(
            f"{path}: application '{application}' writes here by a sink that has no Paimon tables, and "
            f"streamsink.{command} is given such tables. Nothing was changed. {_INSTEAD[command]}. The journal is "
            f"{journal.place}",
            kind="sink.no-tables",
        )
    if newest is not None and "heads" not in newest.payload:
        raise Misuse(
            f"{path}: there is no table, and the journal {journal.place} of application '{application}' is of one that "
            "was here. Nothing was changed. Restore the table; or, if it was dropped on purpose, remove the folder "
            f"{journal.place}, when no query writes here {shell.discard(journal.place)}",
            kind="table.gone",
        )


def open_sink(file_io: FileIO, sink: Sink, options: SinkOptions) -> OpenSink:
    """The sink as a start of the query opens it, but for a table that is not there: it would be made without columns.

    Raises Misuse then, and as ``Sink.open`` does.
    """
    check_application(sink.path, options.application)
    try:
        return sink.open(file_io, replace(options, create=False), Batch(0, "", ""), tuple, lambda event: None)
    except Misuse as missing:
        told = str(missing)
        if missing.kind != "table.missing" or "Restore" in told:
            raise
        leave = " If it was dropped on purpose, leave it out of the fan-out" if is_fan_out(sink) else ""
        found = told.partition(". ")[0].partition(", and create")[0]
        raise Misuse(
            f"{found}. Nothing was changed: only a query makes a table. If it was dropped by mistake, restore it; else "
            f"give the sink as the query has it{'.' if leave else ''}{leave}",
            kind=missing.kind,
        ) from missing


def open_existing(file_io: FileIO, sink: Sink, options: SinkOptions, place: str) -> OpenSink:
    """As ``open_sink``, for a command that only looks: it makes no destination. Raises Misuse when there is none.

    place: of the journals, or of the destination where these lie in it. The destinations of a fan-out have each one.
    """
    found = "" if file_io.entries(place) else place
    for name, its_place, its_io in sink.places(file_io, options) if isinstance(sink, Composed) and not found else ():
        found = "" if its_io.entries(its_place) else f"{its_place}, the place of its destination '{name}'"
        if found:
            break
    if found:
        raise Misuse(
            f"{sink.path}: there is nothing in {found}, where the journal of application '{options.application}' "
            "should be. Nothing was changed. Give the sink as the query has it; or, if that place was lost, restore it",
            kind="sink.missing",
        )
    return open_sink(file_io, sink, options)


def open_remembered(file_io: FileIO, sink: Sink, options: SinkOptions, place: str) -> OpenSink:
    """As ``open_existing``; also where no journal is left, and the destination itself remembers the application."""
    try:
        return open_existing(file_io, sink, options, place)
    except Misuse as missing:
        if missing.kind != "sink.missing" or not getattr(sink, "remembers", False):
            raise
        return open_sink(file_io, sink, options)


def journal_of(opened: OpenSink) -> RepairJournal:
    """The journal of the sink, which keeps what the sink does about transactions that nobody commits any more."""
    if not isinstance(opened.journal, FileJournal):
        raise Misuse(
            f"{opened.to.path}: the sink keeps its journal in a {type(opened.journal).__name__}, expected a "
            "FileJournal. Nothing was changed. Restore what the query's error names, and start the query again",
            kind="sink.no-tables",
        )
    return RepairJournal.of(opened.journal)


def published(opened: OpenSink) -> AppState | None:
    """The state of the last record that the destination says it has; None for none. Raises as ``Committer.history``."""
    history = opened.committer.history(opened.application)
    if not history.complete:
        raise Misuse(
            f"{opened.to.path}: a part of the destination's history has expired, so that nobody can tell which records "
            "are published. Nothing was changed. Restore what the query's error names, and start the query again",
            kind="sink.no-tables",
        )
    return history.state


def check_identity(opened: OpenSink, journal: FileJournal, state: AppState | None) -> None:
    """Raises Misuse when what is recorded is of another destination: nothing of that is lost or doubled here.

    state: as ``published`` returns it.
    """
    newest = next((r for s in reversed(journal.retained()) if (r := readable(journal, s)) is not None), None)
    for found in (newest.state if newest else None, state):
        if found is not None and found.table_id != opened.to.table_id:
            raise Misuse(
                f"{opened.to.path}: record {found.sequence} is of the destination {found.table_id}, and the one that "
                f"is there is {opened.to.table_id}. Nothing was changed. Restore the first one; or remove the journal "
                f"{journal.place} {shell.discard(journal.place)}, and what the destination remembers of the "
                "application, and start a new checkpoint, "
                "which reads the source from its beginning, or behind those of its rows that are here already",
                kind="table.recreated",
            )


def check_of_no_fan_out(path: str, options: SinkOptions, records: Sequence[Committable], journal: str) -> None:
    """Raises Misuse when one of these records, which are to be given up, is of a fan-out, which would give it again.

    journal: the place of the destination's journal. Nothing is raised when the user says that no fan-out is left.
    """
    given = [record for record in records if OF_FAN_OUT in record.payload]
    if not given:
        return
    first, fan_out = given[0], given[0].payload[OF_FAN_OUT]
    word = word_of_no_fan_out(first)
    if word not in words_of(options.accept_as_new):
        raise Misuse(
            f"{path}: record {first.state.sequence} of application '{options.application}' is one that a fan-out, of "
            f"which this is the destination '{fan_out['name']}', has recorded as well, with the other destinations, "
            "and would give to this one once more. Nothing was given up. Leave the destination out of the fan-out, and "
            "answer what the start asks then: what it lacks is not written there. To have it again from then on, "
            f"remove its journal {journal} when the others have a batch more, and name it again "
            f"{shell.discard(journal)}. If "
            "that fan-out is "
            f"not used any more, call streamsink.give_up again with accept_as_new='{word}'",
            kind="give-up.fan-out",
        )


def check_not_of_fan_out(path: str, options: SinkOptions, journal: FileJournal, *sink: str) -> None:
    """Raises Misuse when a fan-out writes here, which is to be retired as a whole.

    Nothing is raised when the user says that no fan-out is left. sink: how a command is given the sink, where this is
    none of Paimon's tables.
    """
    try:
        newest = journal.newest()
    except Corrupt:
        return  # it is told of otherwise
    if newest is None or OF_FAN_OUT not in newest.payload:
        return
    word = word_of_no_fan_out(newest)
    if word not in words_of(options.accept_as_new):
        of = "retire", path, "-a", options.application
        raise Misuse(
            f"{path}: application '{options.application}' writes here as the destination "
            f"'{newest.payload[OF_FAN_OUT]['name']}' of a fan-out: retired here alone, what that has recorded, and has "
            "not given to this destination yet, would be lost, and its next start would stop. Nothing was changed. "
            "Retire the fan-out: call streamsink.retire with the FanOut that to_sink was given "
            f"{shell.in_a_shell(*of, *ways.OF_SINK, '--yes')}. If that fan-out is not used any more, or this is not "
            f"one of its destinations any more, call this again with accept_as_new='{word}' "
            f"{shell.in_a_shell(*of, *sink, '-o', f'accept_as_new={word}', '--yes')}",
            kind="retire.fan-out",
        )


def word_of_no_fan_out(record: Committable) -> str:
    """The word by which the user says that the fan-out is not used any more which has given this record."""
    state = record.state
    return ways.word(f"{state.table_id}|{state.record_id}|{record.payload[OF_FAN_OUT]['id']}|no fan-out any more")


def is_fan_out(sink: Sink) -> bool:
    """Whether the sink has destinations."""
    return isinstance(getattr(sink, "sinks", None), Mapping)


def check_of_one(sink: Sink) -> None:
    """Raises Misuse for a fan-out."""
    if is_fan_out(sink):
        raise Misuse(
            f"{sink.path}: streamsink.give_up was given a fan-out, whose destinations have journals of their own. "
            "Nothing was given up. What leads on is said by the error that stops the query: it names the destination",
            kind="give-up.fan-out",
        )
