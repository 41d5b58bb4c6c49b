"""What runs in the tasks of the large-batch breakdown:
the writer, cut short after a stage or with other settings. EXECUTOR."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink.format.stats import StatsCollector
from streamsink.sinks.paimon.writing import encode
from streamsink.spark.rows.tasks import forget_zip_importers
from streamsink.storage.file_io import local_file_io
from streamsink.table.write import writer
from streamsink.table.write.conform import Conform
from streamsink.table.write.spec import WriteSpec
from streamsink.table.write.split import split_by_partition
from streamsink.table.write.writer import TableWriter

RESULT = "result string"


@dataclass(frozen=True)
class Variant:
    """One way of running the task.
    ``stage``: how far it goes; ``writer``: other arguments of pyarrow's ParquetWriter."""

    name: str
    stage: str = "all"
    flush: bool = True
    writer: tuple[tuple[str, object], ...] = ()
    row_group_bytes: int | None = None
    keep_statistics: bool = True
    thread: bool = False
    conf: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()


def task(variant: Variant, spec: WriteSpec) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: yield one JSON text a task, with the processor seconds of its parts."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        times: dict[str, float] = {}
        begun = time.process_time()
        with _changed(variant, times):
            files = _STAGES[variant.stage](batches, spec, variant)
        times["all of the task in Python"] = time.process_time() - begun
        yield pa.RecordBatch.from_pydict({"result": [json.dumps({"times": times, "files": files})]})

    return run


def lean(function: Callable) -> Callable:
    """The same task, but it leaves no zip importer in the worker's cache, as the sink's own tasks do."""

    def run(batches):
        try:
            yield from function(batches)
        finally:
            forget_zip_importers()

    return run


def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Only the hand-over."""
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"result": [str(rows)]})


def _count(batches, spec, variant) -> list[str]:
    return [str(sum(batch.num_rows for batch in batches))]


def _conform(batches, spec, variant) -> list[str]:
    schema = spec.schema()
    conform = Conform(schema.fields)
    return [str(sum(rows.num_rows for batch in batches for _, rows in split_by_partition(conform(batch), schema)))]


def _statistics(batches, spec, variant) -> list[str]:
    schema = spec.schema()
    conform, stats = Conform(schema.fields), StatsCollector(schema.fields, schema.options)
    for batch in batches:
        for _, rows in split_by_partition(conform(batch), schema):
            stats.update(rows)
    stats.finish()
    return []


def _all(batches, spec, variant) -> list[str]:
    file_io = local_file_io(variant.flush)
    writer = TableWriter(file_io, spec)
    try:
        if variant.thread:
            _in_second_thread(batches, writer)
        else:
            for batch in batches:
                writer.write(batch)
        with file_io.flush_group() as group:
            written = writer.close(group)
            group.flush()
        return [encode(file) for file in written]
    except BaseException:
        writer.abort()
        raise


def _in_second_thread(batches, writer: TableWriter) -> None:
    """At most one batch is being written while the next one is received."""
    with ThreadPoolExecutor(1) as pool:
        writing = None
        for batch in batches:
            if writing is not None:
                writing.result()
            writing = pool.submit(writer.write, batch)
        if writing is not None:
            writing.result()


_STAGES = {"count": _count, "conform": _conform, "statistics": _statistics, "all": _all}


class _NoStatistics(StatsCollector):
    def update(self, batch) -> None:
        return


@contextlib.contextmanager
def _changed(variant: Variant, times: dict[str, float]) -> Iterator[None]:
    """Give the writer this variant's settings and time its parts. Workers are used again, so everything is put back."""
    places = ((pq, "ParquetWriter"), (writer, "ROW_GROUP_BYTES"), (writer, "StatsCollector"), (writer, "Conform"))
    kept = [(module, name, getattr(module, name)) for module, name in places]
    pq.ParquetWriter = _writer(dict(variant.writer), times)
    collector = StatsCollector if variant.keep_statistics else _NoStatistics
    writer.StatsCollector = _timed_class(collector, "update", "statistics", times)
    writer.Conform = _timed_class(Conform, "__call__", "conform", times)
    writer.ROW_GROUP_BYTES = variant.row_group_bytes or writer.ROW_GROUP_BYTES
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)


def _writer(changes: dict, times: dict[str, float]) -> type:
    base = _timed_class(pq.ParquetWriter, "write_table", "Parquet encoding and compression", times)

    class Writer(base):
        def __init__(self, *where, **settings):
            super().__init__(*where, **{**settings, **changes})

    return Writer


def _timed_class(base: type, method: str, part: str, times: dict[str, float]) -> type:
    plain = getattr(base, method)

    def timed(self, *given, **named):
        begun = time.process_time()
        try:
            return plain(self, *given, **named)
        finally:
            times[part] = times.get(part, 0.0) + time.process_time() - begun

    return type(base.__name__, (base,), {method: timed})
