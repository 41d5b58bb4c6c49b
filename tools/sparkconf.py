"""One Spark configuration for everything that the tests start, in the test process and beside it."""

import os
import sys

from tools.cds import fast_options
from tools.jars import jars


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
    return local_conf(fast_options(python, found), []) | both


def test_jars(python: str = sys.executable) -> list[str]:
    """The jars that the tests' sessions have on their class path."""
    return [path for kind in ("kafka", "paimon", "jdbc") for path in jars(kind, python)]
