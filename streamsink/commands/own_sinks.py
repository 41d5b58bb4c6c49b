"""What a command is given that is no table: the place of another author's sink, or of a table that is gone. Driver."""

from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal
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
