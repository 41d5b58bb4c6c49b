"""An executor is lost after Spark has kept the rows of a batch there, and before they are written."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

import streamsink
from tests.conftest import spark_conf
from tests.e2e.cluster import Cluster
from tests.e2e.harness import ROOT, orphans

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("spark_settings")]

# Batch 2 is kept, and turns out to be large in the one query and small in the other.
DRIVER = """
import json, os, signal, sys, threading
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
import streamsink
from streamsink.events import BatchWritten
from streamsink.spark.gateway.kept_rows import KeptRows
folder, conf = sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
computed, now, lost = KeptRows.computed, [0], []

def lose(_):
    if TaskContext.get().attemptNumber() == 0:
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()  # a child of the executor's JVM
        os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)

def computed_and_lost(rows):
    kept = computed(rows)
    if now[0] == 2:
        lost.append(kept.rows)
        spark.sparkContext.parallelize([0], 1).foreach(lose)
    return kept

def run(name, rows):
    ways, done = [], threading.Event()
    sink = streamsink.to_table(
        f"{folder}/{name}",
        lambda event: ways.append(event.way) if isinstance(event, BatchWritten) else None,
        flush=False, driver_max_rows=50, large_batches="spark",
    )

    def publish(df, number):
        now[0] = number
        if number < 4:
            many = f"explode(sequence(1L, if(value DIV 10 = 2, {rows}, 1L))) AS n"
            sink(df.selectExpr(many, "value", "uuid() AS u"), number)
        else:
            done.set()

    stream = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10, numPartitions=4).load()
    query = stream.writeStream.foreachBatch(publish).option("checkpointLocation", f"{folder}/{name}-ck").start()
    while not done.wait(0.05) and query.isActive:
        pass
    if not done.is_set():
        raise query.exception()
    query.stop()
    return ways

KeptRows.computed = computed_and_lost
print("FOUND=" + json.dumps({"large": run("large", "50L"), "small": run("small", "2L"), "lost": lost}))
"""


@pytest.mark.in_turn("machines and stores", 1)
def test_rows_that_an_executor_kept_are_computed_again_when_it_is_lost(tmp_path, spark_settings):
    """Each row is there once, whichever way the driver chose for what had been kept."""
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster") as cluster:
        conf = spark_conf() | cluster.conf({}) | {"spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, str(tmp_path), json.dumps(conf)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=500,
            cwd=tmp_path,
        )
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND=")), None)
    assert line, done.stdout[-2_000:] + done.stderr[-4_000:]
    found = json.loads(line.removeprefix("FOUND="))
    assert found["lost"] == [500, 20]
    assert found["large"] == ["spark", "driver", "spark", "spark"]
    assert found["small"] == ["spark", "driver", "driver", "driver"]
    for name, times in (("large", 50), ("small", 2)):
        rows = streamsink.read_arrow(str(tmp_path / name)).to_pylist()
        expected = Counter({value: times if value // 10 == 2 else 1 for value in range(40)})
        assert Counter(row["value"] for row in rows) == expected
        assert len({row["u"] for row in rows}) == len(rows)
        assert orphans(str(tmp_path / name)) == set()
