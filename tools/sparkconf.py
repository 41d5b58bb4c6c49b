"""One Spark configuration for everything that the tests start, in the test process and beside it."""

import hashlib
import os
import shutil
import sys
from pathlib import Path

from tools.cds import fast_options
from tools.common import checkout_cache, locked
from tools.jars import jars, pyspark_of

# Every session of Spark 4.1 asks MLlib for functions of its own, which it then describes by reflection: a seventh of
# all that a driver of the tests computes. No test uses them.
LEFT_OUT = "spark-mllib_"


def local_conf(java_options: str, jar_paths: list[str]) -> dict[str, str]:
    """A local session that listens on the loopback interface only and prints nothing but results."""
    conf = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    if java_options:
        conf["spark.driver.extraJavaOptions"] = java_options
    if jar_paths:
        conf["spark.jars"] = ",".join(jar_paths)
    return conf


def test_conf(python: str = sys.executable) -> dict[str, str]:
    """The configuration of the tests: one session serves Kafka, Paimon and its locks in databases, with a fast start.

    The jars are on the class path, where the class-data archive has their classes too, and where no start copies them.
    """
    found = test_jars(python)
    both = dict.fromkeys(("spark.driver.extraClassPath", "spark.executor.extraClassPath"), os.pathsep.join(found))
    return local_conf(fast_options(python, found, home=test_home(python)), []) | both


def test_home(python: str = sys.executable) -> Path:
    """The Spark home that belongs to ``test_conf``, for $SPARK_HOME: PySpark's own, in links, without MLlib.

    Idempotent; made once for an environment.
    """
    version, shipped = pyspark_of(python)
    kept = [jar for jar in sorted(shipped.iterdir()) if not jar.name.startswith(LEFT_OUT)]
    key = hashlib.sha256("\n".join(map(str, kept)).encode()).hexdigest()[:12]
    home = checkout_cache() / f"pyspark-{version}-without-mllib-{key}"
    with locked(home.with_name(f"{home.name}.lock")):
        if not home.exists():
            scratch = home.with_name(f"{home.name}.tmp")
            shutil.rmtree(scratch, ignore_errors=True)
            (scratch / "jars").mkdir(parents=True)
            beside = [entry for entry in shipped.parent.iterdir() if entry != shipped]
            for folder, entries in ((scratch, beside), (scratch / "jars", kept)):
                for entry in entries:
                    (folder / entry.name).symlink_to(entry)
            scratch.rename(home)
    return home


def test_jars(python: str = sys.executable) -> list[str]:
    """The jars that the tests' sessions have on their class path."""
    return [path for kind in ("kafka", "paimon", "jdbc") for path in jars(kind, python)]
