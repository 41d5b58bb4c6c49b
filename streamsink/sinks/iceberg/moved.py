"""Whether records wait in the journal at the place that an Iceberg table had before. Driver only.

Without ``journal`` the journal lies where the table does. Somebody may change the table's location (``SET LOCATION``):
then a start finds no journal there, and what was recorded and not committed waits in the first one.
"""

from typing import Any

from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions
from streamsink.sinks.iceberg.columns import is_same_store
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import Store, table_path

JOURNALS = "_streamsink"  # in the table's location; Iceberg's orphan cleaning leaves out names that begin so


def check_not_left_behind(file_io: FileIO, table: Any, published: int, path: str, options: SinkOptions) -> None:
    """Raises Misuse when records wait in the application's journal at the location that the table had before.

    Called where the journal has no records and the checkpoint is past: it reads the table's earlier metadata files, the
    newest first, until one tells of another location. file_io: of the journal. published: number of the last record
    that the table has. path: of the sink.
    """
    before = _location_before(table)
    if not before:
        return
    folder = f"{before}/{JOURNALS}"
    if not is_same_store(folder, table_path(table.location())):
        file_io = Store(folder, options.store_options, options.flush).open()
    newest = _newest(file_io, folder, options)
    if newest > published:
        raise Misuse(
            f"{path}: the table is at {table_path(table.location())}, and was at {before} before. The journal there "
            f"has records of application '{options.application}' up to number {newest}, of which the table has those "
            f"up to {published}: the others would be lost. Nothing was written. Give the sink journal='{folder}', the "
            "journal that it had until the location was changed",
            kind="iceberg.options",
        )


def _location_before(table: Any) -> str:
    """The last other location of the table of which an earlier metadata file tells that is still there; else ''."""
    from pyiceberg.serializers import FromInputFile

    now = table_path(table.location())
    for entry in reversed(table.metadata.metadata_log):
        try:
            metadata = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except (OSError, ValueError):
            continue  # deleted, or altered
        if table_path(metadata.location) != now:
            return table_path(metadata.location)
    return ""


def _newest(file_io: FileIO, folder: str, options: SinkOptions) -> int:
    """The number of the newest record of that journal; 0 for none. One that is damaged was given its number as well."""
    journal = FileJournal(file_io, folder, options.application, options.journal_retain)
    try:
        newest = journal.newest()
    except Corrupt:
        journal.read_listing()
        return journal.last_sequence()
    return newest.state.sequence if newest is not None else 0
