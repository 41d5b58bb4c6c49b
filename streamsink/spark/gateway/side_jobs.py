"""Jobs of Spark that are started, looked after and cancelled beside what the session does else. Runs on the driver.

Nobody is blocked by such a job: its caller looks whether it is done, and may give it up at any time.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.serializers import write_with_length
from pyspark.sql import SparkSession

from streamsink.errors import Misuse
from streamsink.spark.gateway.running import check_not_connect

GROUP, POOL, DESCRIPTION = "spark.jobGroup.id", "spark.scheduler.pool", "spark.job.description"
# How long the caller waits between two looks at a job: longer and longer.
_FIRST_LOOK_MS, _LAST_LOOK_MS = 5.0, 250.0

P = TypeVar("P")
R = TypeVar("R")


def check_session(spark: SparkSession, table: str) -> None:
    """Raises Misuse for a session that cannot run jobs: one of Spark Connect, or one that is stopped."""
    check_not_connect(spark, table)
    if is_stopped(spark):
        raise Misuse(
            f"{table}: the Spark session that is to compact it is stopped. Nothing was written. Give one that runs "
            "(SparkSession.builder.getOrCreate()), or none: then this process compacts",
            kind="spark.stopped",
        )


def is_stopped(spark: SparkSession) -> bool:
    """Whether the session can run no job any more. From any thread."""
    try:
        java: Any = spark.sparkContext._jsc
        return java is None or bool(java.sc().isStopped())
    except (Py4JError, OSError, AttributeError):  # as of ``running.has_ended``
        return True


def slots(spark: SparkSession) -> int:
    """How many tasks the session can run at one time, as its executors are now; 0 when it has none, or is stopped.

    What Spark is asked is not of its public interface; where it is not there, what the session takes for parallel is.
    """
    java: Any = spark.sparkContext._jsc
    try:
        context = java.sc()
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
    except (Py4JError, OSError, AttributeError):
        return 0 if is_stopped(spark) else spark.sparkContext.defaultParallelism


def run_job(
    spark: SparkSession,
    parts: Sequence[P],
    do: Callable[[P], R],
    *,
    named: Mapping[str, str],
    pause: Callable[[float], None],
) -> list[R]:
    """What ``do`` returns for each part, in the order of the parts. One task of Spark does one part.

    do: is sent to executors, and may be called several times for one part. named: local properties of the job, by
    ``GROUP``, ``POOL`` and ``DESCRIPTION``; a group and a pool that the caller's thread has set stay. pause: waits for
    so many ms. What it raises cancels the job, whose tasks end by themselves then. Raises Py4JError when the job has
    failed.
    """
    context = spark.sparkContext
    rows: Any = context.parallelize(parts, len(parts)).map(do)
    with _named(context, named):
        job = rows._jrdd.collectAsync()
    try:
        look_ms = _FIRST_LOOK_MS
        while not job.isDone():
            pause(look_ms)
            look_ms = min(2 * look_ms, _LAST_LOOK_MS)
    except BaseException:
        _cancel(job)
        raise
    found = io.BytesIO()
    for each in job.get():
        write_with_length(bytes(each), found)  # type: ignore[no-untyped-call]
    found.seek(0)
    return list(rows._jrdd_deserializer.load_stream(found))


@contextlib.contextmanager
def _named(context: SparkContext, named: Mapping[str, str]) -> Iterator[None]:
    """While this is open, jobs that this thread starts have these properties."""
    before = {name: context.getLocalProperty(name) for name in named}
    kept = {name for name, value in before.items() if value is not None and name in (GROUP, POOL)}
    try:
        for name in named.keys() - kept:
            context.setLocalProperty(name, named[name])
        yield
    finally:
        for name in named.keys() - kept:
            context.setLocalProperty(name, before[name])  # type: ignore[arg-type]  # None takes it off


def _cancel(job: JavaObject) -> None:
    with contextlib.suppress(Py4JError, OSError, AttributeError):  # it is over when the session is
        job.cancel(True)
