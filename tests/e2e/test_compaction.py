"""Compaction beside a query of Spark: its thread compacts while batches are written, and ends with the query."""

import threading
from pathlib import Path

import pytest

import streamsink
from streamsink import maintenance
from streamsink.compaction import attempts
from streamsink.errors import Misuse
from streamsink.sink import FileSink, to_sink
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.e2e.harness import Ground, run_here
from tests.e2e.test_many_tables import RANDOM, all_ids

pytestmark = pytest.mark.spark

AT_ONCE = {"compaction": True, "compaction_interval_ms": 1, "compaction_idle_ms": 0, "compaction_core_percent": 100}


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
    assert [t for t in threading.enumerate() if t.name == "streamsink-compaction"] == []


def test_all_tables_of_a_query_are_compacted(spark, tmp_path):
    """Also the one for dead letters."""
    ground = Ground(tmp_path)
    lake, ids, compacted = str(tmp_path / "lake"), set(), []
    for n in range(5):
        ids |= ground.add_files(6 * n, 6)
        outcome = run_here(spark, ground.job(table=lake, many=RANDOM, options={"flush": False, **AT_ONCE}))
        assert outcome.code == 0, outcome.message
        compacted += outcome.of("Compacted")
        if len({event["path"] for event in compacted}) > 1:
            break
    assert len({event["path"] for event in compacted}) > 1 and sorted(all_ids(lake)) == sorted(ids)


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


def test_other_destinations_refuse_the_option(tmp_path):
    with pytest.raises(Misuse, match="compaction") as refused:
        to_sink(FileSink(str(tmp_path / "out")), compaction=True)
    assert refused.value.kind == "option.of-tables"
