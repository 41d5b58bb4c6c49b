"""Spark Connect has no gateway to Spark's JVM:
what needs one is refused by name before anything is written, and what does not need it works."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import streamsink
from tests.advice.following import Advice, Told, follows
from tests.e2e.harness import ROOT, files_under

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
import streamsink
import streamsink.maintenance
import streamsink.spark.gateway.running

root = sys.argv[1]
spark = SparkSession.builder.remote("local[2]").config("spark.connect.grpc.binding.address", "127.0.0.1").getOrCreate()
found = {}

def note(name, function):
    try:
        found[name] = ["no error", None, str(function())]
    except Exception as refused:
        found[name] = [type(refused).__name__, getattr(refused, "kind", None), str(refused)]

note("write", lambda: streamsink.write(spark.range(3), f"{root}/lake/write", "r1"))
note("to_table", lambda: streamsink.to_table(f"{root}/lake/one")(spark.range(3), 0))
note("to_tables", lambda: streamsink.to_tables(f"{root}/lake/many", "'t'", {"t": {}})(spark.range(3), 0))
note("compact", lambda: streamsink.maintenance.compact(f"{root}/ready", full=True, spark=spark))
note("read on S3", lambda: streamsink.spark.gateway.running.check_file_system(spark, "s3a", "s3a://b/t"))
note("read", lambda: sorted(row.id for row in streamsink.read(spark, f"{root}/ready").collect()))
print("FOUND=" + json.dumps(found))
spark.stop()
"""


@pytest.mark.in_turn("workers", 1)
@follows("spark.connect")
@pytest.mark.spark
def test_each_function_says_what_it_needs(tmp_path, spark, spark_settings):
    """A real Connect server and its client are in a process of their own.
    The sinks get what their batch function would get."""
    streamsink.write(spark.range(3), str(tmp_path / "ready"), "r1")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    # A JVM as all of the tests have it; what it is told of a session, Connect would not take from here.
    options = ("spark.driver.extraJavaOptions", "spark.driver.extraClassPath")
    given = [
        part for name in options if name in spark_settings for part in ("--conf", f"{name}={spark_settings[name]}")
    ]
    environment["PYSPARK_SUBMIT_ARGS"] = shlex.join([*given, "pyspark-shell"])
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=540, cwd=tmp_path)
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND=")), None)
    assert line, done.stdout + done.stderr
    found = json.loads(line.removeprefix("FOUND="))
    for name, place in (
        ("write", "lake/write"),
        ("to_table", "lake/one"),
        ("to_tables", "lake/many"),
        ("compact", "ready"),
        ("read on S3", "s3a://b/t"),
    ):
        _, _, text = found[name]
        assert (
            place in text and "Spark Connect" in text and "Nothing was written" in text and "without .remote(" in text
        ), found[name]
        assert found[name][:2] == ["Misuse", "spark.connect"]
        Advice(Told(*found[name][1:])).says("Use a session of Spark's own: built without .remote(...)")
    assert found["read"][2] == "[0, 1, 2]"
    assert not Path(tmp_path, "lake").exists() or files_under(str(tmp_path / "lake")) == {}
    # This is in a session of Spark's own.
    assert streamsink.write(spark.range(3), str(tmp_path / "lake/write"), "r1") == 3
