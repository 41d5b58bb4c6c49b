"""What a command is given that is no table: the place of another author's sink, or of a table that is gone. Driver."""

from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.storage.file_io import FileIO
from streamsink.table.table import is_table


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
            f"{path}: application '{application}' writes here by a sink of its author's own, and streamsink.{command} "
            "knows Paimon tables alone. Nothing was changed. Restore what the query's error names, in the destination "
            f"or in the journal {journal.place}, and start the query again",
            kind="sink.no-tables",
        )
    if newest is not None and "heads" not in newest.payload:
        raise Misuse(
            f"{path}: there is no table, and the journal {journal.place} of application '{application}' is of one that "
            "was here. Nothing was changed. Restore the table; or, if it was dropped on purpose, remove the folder "
            f"{journal.place}, when no query writes here",
            kind="table.gone",
        )
