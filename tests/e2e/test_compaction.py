"""Compaction beside a query of Spark: its thread compacts while batches are written, and ends with the query."""

import threading

import pytest

import streamsink
from tests.e2e.harness import Ground, run_here

pytestmark = pytest.mark.spark

AT_ONCE = {"compaction": True, "compaction_interval_ms": 1, "compaction_idle_ms": 0, "compaction_core_percent": 100}


def test_small_files_become_few_while_batches_are_written(spark, tmp_path):
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
