"""The three ways from a DataFrame to staged files. Runs on the driver.

A batch that is known to be small is written on the driver. So is one that is expected to be small, and that Spark, when
it has computed and kept it, says to be small. All others are written in Python tasks, or by Spark's own Parquet writer.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import pyspark
from pyspark.sql import DataFrame

from streamsink.events import log
from streamsink.options import LARGE_BATCHES_AUTO, LARGE_BATCHES_TASKS, SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import Offsets, all_numeric
from streamsink.protocol.sink import Writing
from streamsink.spark import worker_daemon
from streamsink.spark.gateway import running
from streamsink.spark.gateway.kept_rows import Kept, KeptRows
from streamsink.spark.gateway.running import with_settings
from streamsink.spark.names import are_alike
from streamsink.spark.rows.arrow_batches import NO_ESTIMATE, rows_at_once, settings
from streamsink.spark.rows.parquet_job import ParquetJob, can_write
from streamsink.spark.rows.tasks import COMMITTABLE_SCHEMA, write_task
from streamsink.spark.sizes import TASKS, Expected, Sizes
from streamsink.spark.types import to_fields
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import Store
from streamsink.table.write.spec import WriteSpec

# From this CPython version on, the importers of zip files read their archive only when something is imported.
_QUICK_IMPORTERS = (3, 13)
_ARCHIVE = os.path.join(os.path.dirname(pyspark.__file__), "python", "lib", "pyspark.zip")


class Given(NamedTuple):
    """The rows of a batch, and whether the driver writes them."""

    df: DataFrame
    small: bool


class _Known:
    """What is known of a batch before Spark computes it. Each is asked when it is needed, and once."""

    def __init__(self, batch: Batch):
        self._batch = batch

    @functools.cached_property
    def rows(self) -> int | None:
        """At most so many rows are read, by positions that are numbers; None for other sources."""
        return _rows(self._batch)

    @functools.cached_property
    def size(self) -> int | None:
        """Spark's estimate, in bytes; None when Spark has none."""
        size = running.estimated_bytes(self._batch.run)
        return size if size is not None and size < NO_ESTIMATE else None

    @property
    def weight(self) -> int | None:
        """As ``Forecast.begin`` takes it."""
        return self.size if self.rows is None else self.rows


@contextlib.contextmanager
def given(df: DataFrame, batch: Batch, options: SinkOptions, sizes: Sizes) -> Iterator[Given]:
    """The rows of a batch, to be written while this is open, and whether the driver writes them.

    Where only the run's earlier batches let expect that the batch is small, Spark computes it and keeps it here. What
    is given then is what is kept, so that the query does not run again even when the batch is large after all.
    """
    if options.driver_max_rows == 0:
        yield Given(df, False)
        return
    known = _Known(batch)
    small = is_small(known, options, sizes)
    sizes.forecast.begin(known.weight)
    if small:
        yield Given(df, True)
    elif sizes.must_not_keep or not _is_within(sizes.forecast.expected(), options):
        yield Given(df, False)
    else:
        with KeptRows(df) as rows:
            kept = rows.computed()
            sizes.must_not_keep = kept is None
            small = _is_within(kept, options)
            if kept is not None:
                sizes.forecast.came(kept.size, small)
            yield Given(df if kept is None else rows.df, small)


def is_known_small(batch: Batch, options: SinkOptions, sizes: Sizes) -> bool:
    """Whether the driver writes the batch, as far as that is known before Spark computes it."""
    return options.driver_max_rows > 0 and is_small(_Known(batch), options, sizes)


def is_small(known: _Known, options: SinkOptions, sizes: Sizes) -> bool:
    """Whether the batch is known to be small, by its Kafka offsets or by Spark's estimate."""
    if sizes.is_misled:
        return False
    if known.rows is not None:
        size = known.rows * (sizes.bytes_per_row or 0)
        return known.rows <= options.driver_max_rows and size <= options.driver_max_bytes
    return known.size is not None and known.size <= options.driver_max_bytes


def _is_within(found: Expected | Kept | None, options: SinkOptions) -> bool:
    return found is not None and found.rows <= options.driver_max_rows and found.size <= options.driver_max_bytes


@dataclass(frozen=True)
class Large:
    """How a batch that is not small is written.

    job: the job of Spark's own writer; None when tasks write it. rows_at_once: how many rows the tasks are given at
    once; None when Spark measures.
    """

    job: ParquetJob | None = None
    rows_at_once: int | None = None


def large(
    df: DataFrame, spec: WriteSpec, batch: Batch, options: SinkOptions, file_io: FileIO, *, sizes: Sizes
) -> Large:
    """Choose the way for a batch of one table that is not small.

    Tasks are faster where Spark need not measure what it gives them, and where they start at once. Not every file that
    Spark writes can be adopted.
    """
    tasks = by_tasks(df, batch, sizes)
    auto = options.large_batches == LARGE_BATCHES_AUTO and tasks.rows_at_once is not None and not _start_slowly()
    if auto or options.large_batches == LARGE_BATCHES_TASKS or running.encrypts_parquet(df.sparkSession):
        return tasks
    schema = spec.schema()
    if not can_write(to_fields(df.schema), schema, file_io):
        return tasks
    if spec.staging.startswith("/") and running.not_spelled([spec.staging]):
        return tasks
    return Large(ParquetJob(schema, spec.staging, sizes.rows_in(spec.target_file_bytes, schema)))


def by_tasks(df: DataFrame, batch: Batch, sizes: Sizes) -> Large:
    """By tasks, with as many rows at once as what is known of the batch allows."""
    return Large(rows_at_once=rows_at_once(df.sparkSession, to_fields(df.schema), batch, sizes.bytes_per_row))


def write_large(df: DataFrame, writing: Writing, file_io: FileIO, store: Store, large: Large) -> tuple[list[Any], str]:
    """Write all rows of the DataFrame into staged files, flushed, by tasks.

    Returns what the writers hand back, and the way, which is ``TASKS``. Raises Misuse when a row does not fit.
    """
    _advise_daemon()
    # Spark's mapInArrow parses the names of columns as SQL, in which a dot or a backtick has a meaning and case has
    # none.
    names = (
        df.columns if are_alike(df.columns) or any(letter in name for name in df.columns for letter in ".`") else None
    )
    plain = df.toDF(*(f"c{place}" for place in range(len(names)))) if names else df
    with with_settings(df.sparkSession, settings(large.rows_at_once)):
        rows = plain.mapInArrow(write_task(writing, store, names), COMMITTABLE_SCHEMA).collect()
    return [writing.decode(row.committable) for row in rows], TASKS


@functools.cache
def _start_slowly() -> bool:
    """Whether Python tasks read an archive before they start, and the user has not set a daemon that avoids it."""
    return sys.version_info < _QUICK_IMPORTERS and os.path.isfile(_ARCHIVE) and running.daemon_module() is None


@functools.cache
def _advise_daemon() -> None:
    """Write one line to the log, once in a process, when its Python tasks could start sooner."""
    if _start_slowly():
        log.warning(
            "each Python task spends up to 0.7 s on reading pyspark.zip again (CPython before 3.13); a session built "
            "with .config('spark.python.daemon.module', '%s') does not; streamsink must be installed where the tasks "
            "run, or spark.executorEnv.PYTHONPATH name the archive of --py-files",
            worker_daemon.MODULE,
        )


def _rows(batch: Batch) -> int | None:
    """An upper bound of the number of rows, from numeric positions; None for other sources."""
    if not all_numeric(batch.sources) or any(source.start is None for source in batch.sources):
        return None
    return sum(
        max(0, last - (source.first(topic, part) or 0))
        for source in batch.sources
        for topic, parts in cast(Offsets, source.end).items()  # ``all_numeric`` has checked its form
        for part, last in parts.items()
    )
