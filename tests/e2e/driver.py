"""A Spark driver of its own process: ``python -m tests.e2e.driver job.json``.

Prints one JSON line for each event, and one last line: {"done": rows read} or {"error": class, "kind": ..., "message":
...}. Exit code 0 or 1; what $STREAMSINK_FAULT arms ends or stops it before that.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

from streamsink.events import Event
from streamsink.testing.faults import arm_from_env
from tests.e2e.job import Job, supervised

DRIVER = "STREAMSINK_DRIVER_PID"
PR_SET_PDEATHSIG = 1


def say(**line) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def to_line(event: Event) -> None:
    say(event=type(event).__name__, table=event.table, application=event.application, **event.said())


def session(conf: dict):
    from pyspark.sql import SparkSession

    settings = json.loads(Path(os.environ["STREAMSINK_TEST_SPARK_CONF"]).read_text()) | conf
    builder = SparkSession.builder.appName("streamsink-e2e")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def end_with_the_test() -> None:
    """However the test process ends, even killed by a time limit, no driver is left running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(path: str) -> int:
    end_with_the_test()
    job = Job.load(path)
    os.environ[DRIVER] = str(os.getpid())  # For the workers of its tasks.
    spark = session(job.conf)
    arm_from_env()
    say(event="SessionReady", application_id=spark.sparkContext.applicationId)
    try:
        rows = supervised(spark, job, to_line)
    except Exception as failed:
        say(error=type(failed).__name__, kind=getattr(failed, "kind", None), message=str(failed))
        return 1
    say(done=rows)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    # An orderly end of the JVM costs a second and proves nothing.
    sys.stdout.flush()
    os._exit(code)
