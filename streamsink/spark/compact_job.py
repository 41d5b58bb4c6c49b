"""Files of a compaction that tasks of Spark write, several at once. The driver plans and commits.

A task that fails is tried again by Spark, under other names of files, and one that was taken for dead may write later.
So the announcement of what may be there stays behind the commit, and a compaction an hour later deletes what nothing
names.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from streamsink.compaction.compactor import Limits, Rewriter
from streamsink.compaction.plan import Task
from streamsink.compaction.rewrite import Rewriting, rewrite
from streamsink.format.manifest import ManifestEntry
from streamsink.storage.stores import Store
from streamsink.table.table import Table, open_table

# What is committed together, as one job.
_LIMITS = Limits(bytes=16 * 2**30, tasks=1024, forgets=False)


def by_tasks(spark: SparkSession, store: Store) -> tuple[Rewriter, Limits]:
    """Who writes, and how much is committed together. store: of the table."""
    return functools.partial(_in_tasks, spark, store), _LIMITS


def _in_tasks(
    spark: SparkSession, store: Store, table: Table, tasks: Sequence[Task], how: Rewriting
) -> Iterator[Sequence[ManifestEntry]]:
    """As ``Rewriter``. The driver's own pace is not that of the tasks."""
    plain = replace(how, pace=_at_full_speed)
    job = functools.partial(_write, store, plain)
    yield from spark.sparkContext.parallelize(tasks, len(tasks)).map(job).collect()


def _write(store: Store, how: Rewriting, task: Task) -> list[ManifestEntry]:
    """Executor."""
    return rewrite(open_table(store.open(), store.root, for_writing=False), task, how)


def _at_full_speed() -> None:
    """Tasks of Spark do not sleep."""
