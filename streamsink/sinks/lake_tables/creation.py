"""How a start comes to the table of another format: it is found, or made, or refused. Driver only."""

from collections.abc import Callable
from typing import TypeVar

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.storage.file_io import FileIO

_Table = TypeVar("_Table")


def found_or_made(
    file_io: FileIO,
    path: str,
    options: SinkOptions,
    batch: Batch,
    *,
    find: Callable[[], _Table | None],
    make: Callable[[], _Table],
) -> _Table:
    """The table as ``find`` returns it; where there is none, as ``make`` does, when it may be made.

    file_io: of the store that the sink's path is tried out in. path: of the sink, for messages. batch: the first one of
    this start. Raises Misuse, before anything is written, where a table is to be there: a command asks, the user says
    so, or the query has written before.
    """
    file_io.sweep_probes()
    table = find()
    if table is not None:
        return table
    if not options.create:
        raise Misuse(
            f"{path}: there is no such table, and create is False. Nothing was written. Create it, correct its name, "
            "or let the sink create it with create=True",
            kind="table.missing",
        )
    if batch.batch_id not in (0, END_OF_INPUT, options.adopt_from_batch):
        raise Misuse(
            f"{path}: there is no such table, but the query's checkpoint is past: its next batch is {batch.batch_id}. "
            "The table was dropped or moved, or the query wrote elsewhere before. Nothing was written, so nothing is "
            "in the way of the table. Restore it; or start a new checkpoint; or, for a query that moves to streamsink, "
            f"set adopt_from_batch={batch.batch_id}",
            kind="table.gone",
        )
    return make()
