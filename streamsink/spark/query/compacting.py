"""``compaction``: small files become few beside the batches of a run. Runs on the driver.

The thread of ``compaction/beside.py`` does it; this says on which tables, by whom, and until when. For the run it is
one care of its destination more, as maintenance is: the next batch raises its error, or the end of the run does.
"""

import functools
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from streamsink import events
from streamsink.compaction.beside import Beside
from streamsink.compaction.compactor import By, Totals
from streamsink.locks.locked_file_io import under_lock
from streamsink.options import refuse
from streamsink.protocol.upkeep import Care, CareOfAll
from streamsink.sinks.paimon.opened import OpenTable, OpenTables
from streamsink.spark.query import compact_job
from streamsink.spark.runs import Run
from streamsink.storage.stores import Store
from streamsink.table.table import Table, open_table


def compact_beside(run: Run, spark: SparkSession) -> None:
    """Begin to compact the tables of the run, if the query's options say so. Called once in a run, by its first batch.

    spark: a session whose tasks may write.
    Raises Misuse for a destination that is no Paimon table.
    """
    options = run.sink.options
    if not options.compaction:
        return
    beside = Beside(
        _roots(run),
        functools.partial(_open, run),
        options,
        is_over=run.is_over,
        tell=functools.partial(_tell, run),
        look=functools.partial(_tell_small, run),
        others=functools.partial(_by_tasks, run, spark),
    )
    run.to.care = CareOfAll([_Compaction(beside), run.to.care])
    run.at_end = functools.partial(_end, beside.stop, run.at_end)  # also when the interpreter exits
    beside.start()


class _Compaction(Care):
    """Compaction as a run sees it."""

    def __init__(self, beside: Beside):
        self._beside = beside

    def check(self) -> None:
        self._beside.check()

    def stop(self) -> None:
        self._beside.stop()
        if not self._beside.is_told:
            self._beside.check()


def _roots(run: Run) -> Callable[[], Sequence[str]]:
    opened = run.to
    if isinstance(opened, OpenTable):
        return lambda: [opened.table.root]
    if isinstance(opened, OpenTables):
        return opened.tables.roots
    refuse(run.sink.path, "compaction", True, "False: only Paimon tables are compacted beside a query")


def _open(run: Run, root: str) -> Table:
    """The table once more, over a store of its own: nothing is shared with the threads of the query."""
    return open_table(under_lock(_store(run, root).open(), root, run.sink.options), root, for_writing=True)


def _by_tasks(run: Run, spark: SparkSession, root: str, pause: Callable[[float], None]) -> By | None:
    return compact_job.beside(spark, _store(run, root), run.sink.options.compaction_core_percent, pause)


def _store(run: Run, root: str) -> Store:
    return Store(root, run.sink.options.store_options, run.sink.options.flush)


def _tell(run: Run, root: str, done: Totals, elapsed_ms: float) -> None:
    run.started.protocol.emit(
        events.Compacted,
        path=root,
        files_before=done.files_before,
        files_after=done.files_after,
        bytes_before=done.bytes_before,
        bytes_after=done.bytes_after,
        snapshots=len(done.snapshots),
        conflicts=done.conflicts,
        bytes_lost=done.bytes_lost,
        elapsed_ms=elapsed_ms,
    )


def _tell_small(run: Run, root: str, partitions: int, files: int, size: int) -> None:
    run.started.protocol.emit(events.SmallFiles, path=root, partitions=partitions, files=files, bytes=size)


def _end(stop: Callable[[], None], others: Callable[[], None]) -> None:
    stop()
    others()
