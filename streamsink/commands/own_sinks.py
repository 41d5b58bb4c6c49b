"""Commands that know Paimon tables alone, given the place of a sink of another author. Driver only."""

from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.storage.file_io import FileIO
from streamsink.table.table import is_table


def check_of_tables(file_io: FileIO, path: str, application: str, command: str) -> None:
    """Raises Misuse, before anything is changed, when the application writes here by a sink that has no Paimon tables.

    Its records say so: the payload of a table's has a kind.
    """
    journal = FileJournal(file_io, path, application, 2)
    try:
        newest = journal.newest() if not is_table(file_io, path) else None
    except Corrupt:
        return
    if newest is not None and "kind" not in newest.payload:
        raise Misuse(
            f"{path}: application '{application}' writes here by a sink of its author's own, and streamsink.{command} knows Paimon tables alone. "
            f"Nothing was changed. Restore what the query's error names, in the destination or in the journal {journal.place}, and start the query again",
            kind="sink.no-tables",
        )
