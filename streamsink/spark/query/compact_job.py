"""Files of a compaction that tasks of Spark write. The driver plans, starts one job after another, and commits.

A task that fails is tried again by Spark, under other names of files, and one that was taken for dead may write later.
So the announcement of what may be there stays behind the commit, and a compaction an hour later deletes what nothing
names.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from streamsink.clock import Clock
from streamsink.compaction.budget import Slots
from streamsink.compaction.compactor import By, Limits
from streamsink.compaction.plan import Task
from streamsink.compaction.rewrite import Rewriting
from streamsink.errors import Retryable, StreamsinkError
from streamsink.format.manifest import ManifestEntry
from streamsink.protocol.sink import VERSION
from streamsink.spark.explain import explain, reason_of
from streamsink.spark.gateway import side_jobs
from streamsink.spark.rows.compact_tasks import rewrite_part
from streamsink.storage.stores import Store
from streamsink.table.table import Table

# The pool of such jobs, where the session's scheduler is FAIR, and the beginning of the name of their group.
POOL = "streamsink-compaction"
# What is committed together. By hand nobody waits for what is committed, and the tasks are one job.
_BY_HAND = Limits(bytes=16 * 2**30, tasks=1024, forgets=False)
_BESIDE = Limits(bytes=2 * 2**30, tasks=256, forgets=False)
# A task of Spark does several small tasks of a compaction: so many times the size of a file together, at most.
_FILES = 2


def by_tasks(spark: SparkSession, store: Store) -> By:
    """By hand, at full speed. store: of the table. Raises Misuse for a session that cannot do it."""
    side_jobs.check_session(spark, store.root)
    return By(_Jobs(spark, store), _BY_HAND)


def beside(spark: SparkSession, store: Store, percent: int, pause: Callable[[float], None]) -> By | None:
    """Beside a query, within its budget; None while the session can run one task only, which would be in the way.

    percent: the share of the session's slots for tasks. pause: as of ``run_job``.
    """
    slots = side_jobs.slots(spark)
    return By(_Jobs(spark, store, Slots(percent, slots), pause), _BESIDE) if slots > 1 else None


@dataclass
class _Jobs:
    """A ``Rewriter``. store: of the table. budget: None for none. pause: as of ``run_job``."""

    spark: SparkSession
    store: Store
    budget: Slots | None = None
    pause: Callable[[float], None] = Clock().sleep_ms

    def __call__(self, table: Table, tasks: Sequence[Task], how: Rewriting) -> Iterator[Sequence[ManifestEntry]]:
        """As ``Rewriter``. Raises Retryable when a job has failed, and as ``explain`` says."""
        # The driver's own pace is not that of the tasks.
        do = functools.partial(rewrite_part, self.store, replace(how, pace=_at_full_speed), VERSION)
        clock = Clock()
        for parts in self._jobs(tasks, how.target_bytes):
            begun_ms = clock.monotonic_ms()
            for found in self._run(table.root, parts, do):
                for each in found:
                    if isinstance(each, StreamsinkError):
                        raise each
                    yield each
            if self.budget is not None:
                self.pause(self.budget.rest_ms(clock.monotonic_ms() - begun_ms))

    def _jobs(self, tasks: Sequence[Task], target_bytes: int) -> Iterator[list[list[Task]]]:
        """For each job, what each of its tasks does. A job has as many tasks as may run at one time."""
        at_once = len(tasks) if self.budget is None else self.budget.at_once
        parts = list(_parts(tasks, _FILES * target_bytes, most=-(-len(tasks) // at_once)))
        for first in range(0, len(parts), at_once):
            yield parts[first : first + at_once]

    def _run(self, root: str, parts: list[list[Task]], do: Callable[[list[Task]], list]) -> list:  # type: ignore[type-arg]
        files = sum(len(task.files) for part in parts for task in part)
        size = sum(task.bytes for part in parts for task in part)
        named = {
            side_jobs.GROUP: group_of(root),
            side_jobs.POOL: POOL,
            side_jobs.DESCRIPTION: f"streamsink: compaction of {root} ({files} files, {size} bytes)",
        }
        try:
            return side_jobs.run_job(self.spark, parts, do, named=named, pause=self.pause)
        except (Py4JError, OSError, AttributeError) as failed:
            if isinstance(failed, AttributeError) and not side_jobs.is_stopped(self.spark):
                raise
            _refuse(root, failed)


def group_of(root: str) -> str:
    """Name of the group of the jobs that compact the table at this path."""
    return f"{POOL} {root}"


def _refuse(root: str, failed: Exception) -> NoReturn:
    explained = explain(root, failed)
    if isinstance(explained, StreamsinkError) and explained.kind != "spark.job-failed":
        raise explained from failed
    reason = reason_of(str(failed)) if isinstance(failed, Py4JJavaError) else str(failed)
    raise Retryable(
        f"{root}: the Spark job that was to write small files again has failed: {reason}. Nothing was changed, and "
        "what it has written is deleted by a later compaction. Mend what Spark names, and compact again; beside a "
        "query that is tried again by itself, and compaction_by='driver' lets the driver write",
        kind="compact.job-failed",
    ) from failed


def _parts(tasks: Sequence[Task], most_bytes: int, most: int) -> Iterator[list[Task]]:
    """The tasks in their order, together as far as they are small. most: so many tasks are together."""
    part = list[Task]()
    for task in tasks:
        if part and (len(part) >= most or sum(each.bytes for each in part) + task.bytes > most_bytes):
            yield part
            part = []
        part.append(task)
    if part:
        yield part


def _at_full_speed() -> None:
    """Tasks of Spark do not sleep."""
