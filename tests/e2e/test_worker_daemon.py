"""Python workers under our daemon start quickly, and everything that runs under Spark's own daemon runs under ours."""

import json
import logging
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

import streamsink
from streamsink.spark import worker_daemon
from streamsink.spark.rows import write_ways
from streamsink.spark.worker_daemon import without_shipped_archives
from tests.advice.following import Advice, Told, follows
from tests.conftest import spark_conf
from tests.e2e.harness import ROOT

ZIP, PY4J, JAR = (
    "/v/pyspark/python/lib/pyspark.zip",
    "/v/pyspark/python/lib/py4j-0.10.9.9-src.zip",
    "/v/pyspark/jars/spark-core_2.13-4.1.3.jar",
)
PATH = ["/work", "/files/user.zip", ZIP, PY4J, JAR, "/v"]


def installed(package: str, path: list[str]) -> str | None:
    return f"/v/{package}" if "/v" in path else None


def test_archives_of_an_installed_pyspark_leave_the_path():
    """The user's own archive stays, and so does the order."""
    assert without_shipped_archives(PATH, installed) == ["/work", "/files/user.zip", "/v"]


def test_a_pyspark_that_is_only_in_the_archive_stays_importable():
    """This is an executor without a pip-installed PySpark, or without py4j."""
    assert without_shipped_archives(PATH, lambda package, path: None) == PATH
    assert (
        without_shipped_archives(PATH, lambda package, path: None if package == "py4j" else installed(package, path))
        == PATH
    )


def test_the_archive_of_another_spark_wins_over_the_installed_pyspark():
    """A worker must speak the protocol of the Spark that started it."""
    path = ["/opt/spark/python/lib/pyspark.zip", "/v"]
    assert without_shipped_archives(path, installed) == path


DRIVER = """
import json, sys
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
import streamsink

folder, conf = sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

def importers(batches):
    import sys, zipimport
    from zipped_before import VALUE  # --py-files
    found = [path for path, importer in sys.path_importer_cache.items() if isinstance(importer, zipimport.zipimporter)]
    yield pa.RecordBatch.from_pydict({"text": [json.dumps([VALUE, found, sys.argv])]})

@udf("long")
def later(number):
    from zipped_later import VALUE  # addPyFile
    return number + VALUE

rows = spark.range(1000)
for _ in range(3):  # what one task leaves in a worker, the next one finds
    looked = json.loads(rows.coalesce(1).mapInArrow(importers, "text string").collect()[0].text)
spark.sparkContext.addPyFile(f"{folder}/zipped_later.zip")
sums = [rows.select(later("id").alias("id")).agg({"id": "sum"}).collect()[0][0] for _ in range(2)]
plain = spark.sparkContext.parallelize(range(10), 2).map(lambda n: n * n).sum()
by_tasks = {"driver_max_rows": 0, "large_batches": "tasks"}
written = streamsink.write(rows.selectExpr("nullif(id, -1) AS id"), f"{folder}/table", "run", **by_tasks)
sink = streamsink.to_table(f"{folder}/table", application="stream", **by_tasks)
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().selectExpr("value AS id")
writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", f"{folder}/checkpoint")
query = writer.trigger(processingTime="0 seconds").start()
while not query.lastProgress or query.lastProgress["batchId"] < 2:
    query.awaitTermination(0.2)
query.stop()
ids = streamsink.read_arrow(f"{folder}/table").num_rows
print("FOUND=" + json.dumps({"looked": looked, "sums": sums, "plain": plain, "written": written, "rows": ids}))
"""


@pytest.mark.spark
@pytest.mark.in_turn("workers", 1)
def test_udfs_arrow_functions_zip_files_and_the_sink_run_under_it(tmp_path, spark_settings):
    """In a real session of its own no archive of PySpark is left in a worker,
    and the user's archives can be imported."""
    for name in ("zipped_before", "zipped_later"):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr(f"{name}.py", "VALUE = 7\n")
    conf = spark_conf() | {
        "spark.python.daemon.module": worker_daemon.MODULE,
        "spark.submit.pyFiles": str(tmp_path / "zipped_before.zip"),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", DRIVER, str(tmp_path), json.dumps(conf)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND=")), None)
    assert line, done.stdout + done.stderr
    found = json.loads(line.removeprefix("FOUND="))
    value, zips, started_as = found["looked"]
    assert value == 7
    assert [path for path in zips if "zipped_before" not in path] == []
    assert started_as[0].endswith("worker_daemon.py")
    assert (found["sums"], found["plain"]) == ([499_500 + 7_000] * 2, 285)
    assert found["written"] == 1000 and found["rows"] >= 1015 and found["rows"] % 5 == 0
    assert "spark.python.daemon.module" not in done.stderr  # There is no advice.


@pytest.mark.spark
def test_a_session_without_it_gets_one_line_of_advice(spark, ground, caplog):
    """It comes once, and only where a CPython before 3.13 makes it worth it."""
    write_ways._advise_daemon.cache_clear()
    write_ways._start_slowly.cache_clear()
    with caplog.at_level(logging.WARNING, "streamsink"):
        for number in range(2):
            streamsink.write(spark.range(3), ground.table, f"run-{number}", lambda event: None, large_batches="tasks")
    assert len(caplog.messages) == (sys.version_info < (3, 13))
    assert all(worker_daemon.MODULE in message for message in caplog.messages)


ELSEWHERE = """
import json, sys
from pyspark.sql import SparkSession
import streamsink

folder, conf = sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
try:
    streamsink.write(spark.range(3), f"{folder}/table", "run", large_batches="tasks")
except streamsink.errors.Misuse as refused:
    print("FOUND=" + json.dumps([refused.kind, str(refused)]))
"""


@follows("worker.no-streamsink")
@pytest.mark.spark
@pytest.mark.parametrize(
    "daemon",
    [
        pytest.param(worker_daemon.MODULE, marks=pytest.mark.in_turn("workers", 1)),
        pytest.param("pyspark.daemon", marks=pytest.mark.soak),
    ],
)
def test_tasks_of_a_python_without_streamsink_are_told_what_to_set(tmp_path, spark_settings, daemon):
    """Spark starts 'python3' of the path unless it is told otherwise.
    That one has PySpark by Spark's own archive, and no streamsink."""
    conf = spark_conf() | {"spark.python.daemon.module": daemon, "spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    environment = os.environ | {"PYSPARK_PYTHON": os.path.realpath(sys.executable)}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path), json.dumps(conf)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND=")), None)
    assert line, done.stdout + done.stderr
    kind, message = json.loads(line.removeprefix("FOUND="))
    assert kind == "worker.no-streamsink"
    said = Advice(Told(kind, message)).says(f"{tmp_path}/table", "Set spark.pyspark.python")
    environment["PYSPARK_PYTHON"] = said.find(r"on this machine (\S+), and")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert "FOUND=" not in done.stdout and done.returncode == 0, done.stdout + done.stderr
    assert sorted(streamsink.read_arrow(f"{tmp_path}/table").column("id").to_pylist()) == [0, 1, 2]


@follows("worker.other-version")
@pytest.mark.spark
@pytest.mark.in_turn("workers", 1)
def test_tasks_of_another_version_are_told_which_one_the_driver_has(tmp_path, spark_settings):
    """An executor finds an older one first. Nothing is written until the advice is followed."""
    other = tmp_path / "older"
    shutil.copytree(ROOT / "streamsink", other / "streamsink", ignore=shutil.ignore_patterns("__pycache__"))
    said_in = other / "streamsink" / "protocol" / "sink.py"
    said_in.write_text(said_in.read_text().replace(f'VERSION = "{streamsink.__version__}"', 'VERSION = "0.0.9"'))
    setting = "spark.executorEnv.PYTHONPATH"
    conf = spark_conf() | {setting: str(other), "spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def run() -> str:
        command = [sys.executable, "-c", ELSEWHERE, str(tmp_path), json.dumps(conf)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    kind, message = json.loads(run().partition("FOUND=")[2])
    assert kind == "worker.other-version"
    said = Advice(Told(kind, message)).says(f"{tmp_path}/table", streamsink.__version__, "0.0.9", str(other))
    assert streamsink.verify(f"{tmp_path}/table").files == 0
    del conf[said.find(r"take the other one off (\S+);")]
    assert "FOUND=" not in run()
    assert sorted(streamsink.read_arrow(f"{tmp_path}/table").column("id").to_pylist()) == [0, 1, 2]
