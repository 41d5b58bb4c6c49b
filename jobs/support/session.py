"""A Spark session that says nothing: what Spark logs goes into a file, and the terminal shows progress only."""

import contextlib
import logging
import os
from pathlib import Path

from pyspark.sql import SparkSession

SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
# What spark-submit says of these things is not overruled.
ALONE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "streamsink.spark.worker_daemon",  # Python tasks start sooner with it.
}
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # Spark starts a program so that was given to spark-submit.


def quiet(name: str, log: Path) -> SparkSession:
    """A session with local[*], unless $PYSPARK_SUBMIT_ARGS has brought a master, jars and more; under spark-submit the
    session of its arguments. The log file is appended to; what the JVM of spark-submit logs goes to its stderr."""
    log.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    builder = SparkSession.builder.appName(name)
    is_alone = SUBMITTED not in os.environ
    if is_alone:
        builder = builder.master("local[*]")
    for key, value in (SETTINGS | ALONE if is_alone else SETTINGS).items():
        builder = builder.config(key, value)
    with _stderr_to(log):
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextlib.contextmanager
def _stderr_to(log: Path):
    """A process that is started meanwhile keeps the file as its stderr,
    because Java's start-up warnings come before any log level counts."""
    kept = os.dup(2)
    with open(log, "ab") as stream:
        os.dup2(stream.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
