"""The two ways from a DataFrame to staged files: on the driver when the batch is known to be small, else in tasks. DRIVER."""

import functools
import logging
import os
import sys
from dataclasses import dataclass

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import all_numeric, offsets
from streamsink.spark import gateway, worker_daemon
from streamsink.spark.tasks import COMMITTABLE_SCHEMA, Writing, write_task
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import Store

log = logging.getLogger("streamsink")
# From this CPython on the importers of zip files read their archive only when something is imported.
_QUICK_IMPORTERS = (3, 13)
_ARCHIVE = os.path.join(os.path.dirname(pyspark.__file__), "python", "lib", "pyspark.zip")
DRIVER, TASKS = "driver", "tasks"


@dataclass
class Sizes:
    """What earlier batches of this run were like: Arrow bytes a row, None before the first one."""

    bytes_per_row: float | None = None


def choose(batch: Batch, options: SinkOptions, sizes: Sizes) -> str:
    """The driver's way is for a batch that is known to be small, by its Kafka offsets or by Spark's own estimate."""
    if options.driver_max_rows == 0:
        return TASKS
    rows = _rows(batch)
    if rows is not None:
        small = rows * (sizes.bytes_per_row or 0) <= options.driver_max_bytes
        return DRIVER if rows <= options.driver_max_rows and small else TASKS
    size = gateway.estimated_bytes(batch.run)
    return DRIVER if size is not None and size <= options.driver_max_bytes else TASKS


def write(df: DataFrame, way: str, writing: Writing, file_io: FileIO, store: Store) -> list:
    """All rows of the DataFrame in staged files, flushed: what the writers hand back. Raises Misuse when a row does not fit."""
    if way == DRIVER:
        written = _on_driver(df, writing, file_io)
        if written is not None:
            return written
    _advise_daemon()
    rows = df.mapInArrow(write_task(writing, store), COMMITTABLE_SCHEMA).collect()
    return [writing.decode(row.committable) for row in rows]


def _on_driver(df: DataFrame, writing: Writing, file_io: FileIO) -> list | None:
    """None when Spark refuses to collect so much: the estimate was wrong, and tasks do it."""
    try:
        table = df.toArrow()
    except (Py4JError, PySparkException) as refused:
        if "maxResultSize" in str(refused):
            return None
        raise
    writer = writing.open(file_io)
    try:
        for piece in table.to_batches():
            writer.write(piece)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


@functools.cache
def _advise_daemon() -> None:
    """One line in the log, once in a process, when its Python tasks could start sooner and nobody has seen to it."""
    if sys.version_info < _QUICK_IMPORTERS and os.path.isfile(_ARCHIVE) and gateway.daemon_module() is None:
        log.warning(
            "each Python task spends up to 0.7 s on reading pyspark.zip again (CPython before 3.13); a session built with "
            ".config('spark.python.daemon.module', '%s') does not; streamsink must be installed where the tasks run",
            worker_daemon.MODULE,
        )


def _rows(batch: Batch) -> int | None:
    """An upper bound of the rows, from numeric positions; None for other sources."""
    if not all_numeric(batch.sources) or any(source.start is None for source in batch.sources):
        return None
    start, end = offsets(batch.sources, "start"), offsets(batch.sources, "end")
    return sum(
        max(0, last - start.get(topic, {}).get(part, 0)) for topic, parts in end.items() for part, last in parts.items()
    )
