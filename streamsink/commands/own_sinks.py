"""What a command is given that is no table: the place of another author's sink, or of a table that is gone. Driver."""

from collections.abc import Mapping, Sequence

from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions, words_of
from streamsink.protocol import ways
from streamsink.protocol.committable import OF_FAN_OUT, Committable
from streamsink.protocol.sink import Sink
from streamsink.storage.file_io import FileIO
from streamsink.table.table import is_table

# What there is instead, by the command's name. Without the last full stop.
_INSTEAD = {
    "give_up": "Call streamsink.give_up(sink, application='...') with the sink that to_sink was given",
    "retire": "Remove what the destination remembers of the application, and its journal, when no query writes here",
    "starting_offsets": "Start the query with its new checkpoint: the error that it gets has the offsets themselves",
}


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
            f"{journal.place}, when no query writes here",
            kind="table.gone",
        )


def check_of_no_fan_out(path: str, options: SinkOptions, records: Sequence[Committable], journal: str) -> None:
    """Raises Misuse when one of these records, which are to be given up, is of a fan-out, which would give it again.

    journal: the place of the destination's journal. Nothing is raised when the user says that no fan-out is left.
    """
    given = [record for record in records if OF_FAN_OUT in record.payload]
    if not given:
        return
    first, fan_out = given[0], given[0].payload[OF_FAN_OUT]
    word = ways.word(f"{first.state.table_id}|{first.state.record_id}|{fan_out['id']}|no fan-out any more")
    if word not in words_of(options.accept_as_new):
        raise Misuse(
            f"{path}: record {first.state.sequence} of application '{options.application}' is one that a fan-out, of "
            f"which this is the destination '{fan_out['name']}', has recorded as well, with the other destinations, "
            "and would give to this one once more. Nothing was given up. Leave the destination out of the fan-out, and "
            "answer what the start asks then: what it lacks is not written there. To have it again from then on, "
            f"remove its journal {journal} when the others have a batch more, and name it again. If that fan-out is "
            f"not used any more, call streamsink.give_up again with accept_as_new='{word}'",
            kind="give-up.fan-out",
        )


def check_of_one(sink: Sink) -> None:
    """Raises Misuse for a fan-out."""
    if isinstance(getattr(sink, "sinks", None), Mapping):
        raise Misuse(
            f"{sink.path}: streamsink.give_up was given a fan-out, whose destinations have journals of their own. "
            "Nothing was given up. What leads on is said by the error that stops the query: it names the destination",
            kind="give-up.fan-out",
        )
