"""Compaction beside a query of Spark: its thread compacts while batches are written, and ends with the query."""

import threading
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import streamsink
from streamsink import maintenance
from streamsink.clock import Clock
from streamsink.compaction import attempts
from streamsink.compaction.compactor import Compactor
from streamsink.compaction.plan import pack_all
from streamsink.compaction.rewrite import Stopped
from streamsink.errors import Corrupt, Misuse
from streamsink.events import Compacted, Maintained
from streamsink.options import SinkOptions
from streamsink.sink import FileSink, to_sink
from streamsink.spark import runs
from streamsink.spark.gateway import side_jobs
from streamsink.spark.query import compact_job
from streamsink.storage.file_io import local_file_io
from streamsink.storage.stores import Store
from streamsink.table.table import open_table
from tests.advice.following import follows, told
from tests.e2e.harness import Ground, content, run_here, until
from tests.e2e.job import ROWS_PER_FILE, start
from tests.e2e.test_many_tables import RANDOM, all_ids

pytestmark = pytest.mark.spark

AT_ONCE = {"compaction": True, "compaction_interval_ms": 1, "compaction_idle_ms": 0, "compaction_core_percent": 100}
BY_TASKS = {"compaction_by": "tasks"}
_FEW = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
CARE = {"maintenance": True, "maintenance_interval_ms": 0, "table_options": _FEW}
THREADS = {"streamsink-compaction", "streamsink-maintenance"}


class Job(NamedTuple):
    """A job of Spark, as the session knows it."""

    status: str
    tasks: int
    said: str


def jobs_of(spark, path: str) -> list[Job]:
    """The jobs that compact the table at this path."""
    found = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    every = [found.apply(place) for place in range(found.size())]
    mine = [job for job in every if job.jobGroup().isDefined() and job.jobGroup().get() == compact_job.group_of(path)]
    return [Job(job.status().toString(), job.numTasks(), job.description().get()) for job in mine]


@pytest.mark.in_turn("compactions under Spark", 2)
def test_small_files_become_few_while_batches_are_written(spark, tmp_path):
    """Each row is there once, and no thread is left."""
    ground = Ground(tmp_path)
    ids, compacted = set(), []
    for n in range(5):  # the thread may be late
        ids |= ground.add_files(6 * n, 6)
        outcome = run_here(spark, ground.job(options={"flush": False, **AT_ONCE}))
        assert outcome.code == 0, outcome.message
        compacted += outcome.of("Compacted")
        if compacted:
            break
    assert compacted and compacted[0]["path"] == ground.table and compacted[0]["files_before"] > 1
    found = streamsink.read_arrow(ground.table).column("id").to_pylist()
    assert sorted(found) == sorted(ids) and streamsink.verify(ground.table, contents=True).ok
    assert {t.name for t in threading.enumerate()}.isdisjoint(THREADS)


@pytest.mark.in_turn("compactions under Spark", 2)
def test_all_tables_of_a_query_are_looked_after(spark, tmp_path):
    """Also the one for dead letters: tasks of Spark compact them, and snapshots expire, while batches are written.

    The jobs have a group of their own, and no more tasks than may run at one time: one of the session's two.
    """
    ground = Ground(tmp_path)
    lake, events = str(tmp_path / "lake"), []
    ids = ground.add_files(0, 2)
    given = {"flush": False, **AT_ONCE, **BY_TASKS, **CARE}
    job = ground.job(table=lake, many=RANDOM, options=given, processing_time="0 seconds")
    query = start(spark, job, events.append)
    try:
        while len(paths := {event.path for event in events if isinstance(event, Compacted)}) < 2:
            ids |= ground.add_files(len(ids) // ROWS_PER_FILE, 2)
            query.processAllAvailable()
    finally:
        query.stop()
    assert runs.release(query.id) is None
    assert sorted(all_ids(lake)) == sorted(ids)
    jobs = [job for path in paths for job in jobs_of(spark, path)]
    assert len(jobs) >= len(paths) and {job.tasks for job in jobs} == {1}
    assert all(job.said.startswith("streamsink: compaction of ") for job in jobs)
    expired = {event.table for event in events if isinstance(event, Maintained) and event.snapshots}
    assert expired >= paths  # the last run comes behind the last batch
    assert {t.name.partition(" ")[0] for t in threading.enumerate()}.isdisjoint(THREADS)


@pytest.mark.in_turn("compactions under Spark", 2)
def test_what_goes_wrong_with_the_care_of_a_table_ends_its_query(spark, tmp_path):
    """Nothing was lost, and it goes on when that is mended."""
    ground = Ground(tmp_path)
    ids = ground.add_files(0, 2)
    assert run_here(spark, ground.job(options={"flush": False, **CARE})).code == 0
    damaged = Path(ground.table, "tag", "tag-old")
    damaged.parent.mkdir()
    damaged.write_text("{")
    ids |= ground.add_files(2, 2)
    outcome = run_here(spark, ground.job(options={"flush": False, **CARE}, max_restarts=0))
    assert (outcome.code, outcome.error) == (1, "Corrupt") and str(damaged) in outcome.message
    damaged.unlink()
    assert run_here(spark, ground.job(options={"flush": False, **CARE})).code == 0
    file = next(Path(ground.table, "bucket-0").glob("data-*.parquet"))
    whole = file.read_bytes()
    file.write_bytes(bytes(len(whole)))  # which nobody notices before it is read
    for n in range(5):  # the thread may be late
        ids |= ground.add_files(4 + 4 * n, 4)
        outcome = run_here(spark, ground.job(options={"flush": False, **AT_ONCE}, max_restarts=0))
        if outcome.code:
            break
    assert (outcome.code, outcome.kind) == (1, "data.unreadable") and str(file) in outcome.message
    file.write_bytes(whole)
    assert run_here(spark, ground.job(options={"flush": False, **AT_ONCE})).code == 0
    assert sorted(streamsink.read_arrow(ground.table).column("id").to_pylist()) == sorted(ids)


@pytest.mark.in_turn("compactions under Spark", 2)
def test_tasks_of_spark_write_when_they_are_told_to(spark, tmp_path):
    """The driver commits; what tasks may have left beside stays announced until it is swept."""
    ground = Ground(tmp_path)
    ids = ground.add_files(0, 6)
    assert run_here(spark, ground.job(options={"flush": False})).code == 0
    done = maintenance.compact(ground.table, full=True, spark=spark)
    assert (done.files_before, done.files_after, len(done.snapshots)) == (6, 1, 1)
    found = streamsink.read_arrow(ground.table).column("id").to_pylist()
    assert sorted(found) == sorted(ids) and streamsink.verify(ground.table, contents=True).ok
    table = open_table(local_file_io(), ground.table, for_writing=True)
    [attempt] = attempts.announced(table)
    late = f"{ground.table}/{attempt.folders[0]}/data-compact-{attempt.id}-late-0.parquet"
    Path(late).write_bytes(b"of a task that was taken for dead")
    table.snapshots.latest()
    assert attempts.sweep(table, abandoned_ms=0) == 1 and not Path(late).exists()
    assert sorted(streamsink.read_arrow(ground.table).column("id").to_pylist()) == sorted(ids)


def test_no_more_tasks_than_the_share_run_at_one_time(spark, tmp_path):
    """Of three partitions: one after another where the session can run two tasks."""
    ground = Ground(tmp_path)
    ids = ground.add_files(0, 3)
    given = {"flush": False, "partition_by": ["extra"]}
    assert run_here(spark, ground.job(options=given, column="id % 3")).code == 0
    table = open_table(local_file_io(), ground.table, for_writing=True)
    compactor = Compactor(table, SinkOptions())
    compactor.settle()
    compactor.do(compactor.plan(pack_all), compact_job.beside(spark, Store(ground.table), 100, Clock().sleep_ms))
    assert (compactor.totals.files_before, compactor.totals.files_after, len(compactor.totals.snapshots)) == (9, 3, 1)
    assert [job.tasks for job in jobs_of(spark, ground.table)] == [1]
    assert sorted(streamsink.read_arrow(ground.table).column("id").to_pylist()) == sorted(ids)


def test_a_job_that_is_given_up_is_cancelled(spark, tmp_path):
    """Who stops the query waits for none of its tasks; these have no properties of the thread that another has."""
    ground = Ground(tmp_path)
    ids = ground.add_files(0, 6)
    assert run_here(spark, ground.job(options={"flush": False})).code == 0
    context, waits = spark.sparkContext, []

    def pause(wait_ms):
        waits.append(wait_ms)
        raise Stopped

    table = open_table(local_file_io(), ground.table, for_writing=True)
    compactor = Compactor(table, SinkOptions())
    compactor.settle()
    context.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        with pytest.raises(Stopped):
            compactor.do(compactor.plan(pack_all), compact_job.beside(spark, Store(ground.table), 100, pause))
        kept = {name: context.getLocalProperty(name) for name in (side_jobs.POOL, side_jobs.GROUP)}
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)
    assert kept == {side_jobs.POOL: "mine", side_jobs.GROUP: None} and len(waits) == 1
    until(lambda: "RUNNING" not in {job.status for job in jobs_of(spark, ground.table)})
    assert [job.status for job in jobs_of(spark, ground.table)] == ["FAILED"]
    assert len(attempts.announced(table)) == 1
    assert sorted(streamsink.read_arrow(ground.table).column("id").to_pylist()) == sorted(ids)


@pytest.mark.in_turn("compactions under Spark", 2)
@follows("spark.stopped", "compact.job-failed")
def test_what_a_session_cannot_do_is_told(spark, tmp_path):
    """One that is stopped is refused before anything is written. A job that fails changes no row."""
    ground = Ground(tmp_path)
    ids = ground.add_files(0, 4)
    assert run_here(spark, ground.job(options={"flush": False})).code == 0
    before, stopped = content(ground.table), SparkSession(_stopped(spark.sparkContext), spark._jsparkSession)
    advice = told("spark.stopped", lambda: maintenance.compact(ground.table, full=True, spark=stopped))
    advice.says("Give one that runs")
    assert content(ground.table) == before
    file = next(Path(ground.table, "bucket-0").glob("data-*.parquet"))
    aside = file.rename(tmp_path / "aside")
    file.write_bytes(b"damaged")
    with pytest.raises(Corrupt) as damaged:  # by a task, and told as it is
        maintenance.compact(ground.table, full=True, spark=spark)
    assert damaged.value.kind == "data.unreadable" and str(file) in str(damaged.value)
    file.unlink()
    file.mkdir()  # what the store answers then is no error that this library knows
    advice = told("compact.job-failed", lambda: maintenance.compact(ground.table, full=True, spark=spark))
    advice.says("Mend what Spark names, and compact again")
    file.rmdir()
    aside.rename(file)
    assert maintenance.compact(ground.table, full=True, spark=spark).files_after == 1
    assert sorted(streamsink.read_arrow(ground.table).column("id").to_pylist()) == sorted(ids)


def _stopped(context: SparkContext) -> SparkContext:
    """As ``stop`` leaves it, while the session of the tests goes on."""
    stopped = object.__new__(SparkContext)
    stopped.__dict__.update(context.__dict__, _jsc=None)
    return stopped


def test_other_destinations_refuse_the_option(tmp_path):
    with pytest.raises(Misuse, match="compaction") as refused:
        to_sink(FileSink(str(tmp_path / "out")), compaction=True)
    assert refused.value.kind == "option.of-tables"
