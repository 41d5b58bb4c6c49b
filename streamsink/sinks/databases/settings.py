"""Options of a database sink that do not go together.

They are looked at when the sink is made, so before anything is opened.
"""

from typing import Any

from streamsink.sinks.databases.address import Address
from streamsink.sinks.databases.branches import EITHER, PREPARED, STAGED
from streamsink.sinks.databases.dialect import BRANCHES, CHECKPOINTS, IDENTITY

INSERT, UPSERT = "insert", "upsert"
_MOST_WRITERS = 16
# Files that SQLite makes, and opens, beside a database have its name with these behind.
_OF_SQLITE = ("-journal", "-wal", "-shm")


def wrong_options(sink: Any, address: Address) -> str:
    """What does not go together; '' when all does. sink: a ``DatabaseSink``."""
    if sink.mode not in (INSERT, UPSERT):
        return f"mode is {sink.mode!r}, expected 'insert' or 'upsert'"
    if isinstance(sink.keys, str) or (sink.mode == UPSERT) != bool(sink.keys):
        return f"mode is {sink.mode!r} and keys are {sink.keys!r}: 'upsert' needs keys, and 'insert' has none"
    if (sink.delete_column or sink.order_by) and sink.mode != UPSERT:
        return "delete_column and order_by are for mode='upsert' with keys"
    if not isinstance(sink.check_rows_up_to, int) or sink.check_rows_up_to < 0:
        return f"check_rows_up_to is {sink.check_rows_up_to!r}, expected a number of rows"
    if not isinstance(sink.writers, int) or not 1 <= sink.writers <= _MOST_WRITERS:
        return f"writers is {sink.writers!r}, expected 1 to {_MOST_WRITERS}"
    if sink.writers > 1 and address.system == "sqlite":
        return f"writers is {sink.writers!r}, which is for databases that have a server"
    if sink.writers_by not in (EITHER, PREPARED, STAGED):
        return f"writers_by is {sink.writers_by!r}, expected 'prepared', 'staged' or 'auto'"
    if sink.writers_by == PREPARED and sink.mode != INSERT:
        return "writers_by is 'prepared', which is for mode='insert': rows with keys have an order; 'staged' takes them"
    if sink.table in (CHECKPOINTS, IDENTITY, BRANCHES):
        return f"the table is {sink.table}, which is the sink's own"
    if address.system == "sqlite" and sink.journal in [f"{address.database}{end}" for end in _OF_SQLITE]:
        return f"the journal is {sink.journal}, which is SQLite's own file beside the database"
    if len({*sink.keys, sink.delete_column}) != len(sink.keys) + 1:
        return f"keys are {sink.keys!r} and delete_column {sink.delete_column!r}: a column is named twice"
    return ""
