"""Faults of writer tasks: Spark starts this module in the place of ``pyspark.daemon``, so that its workers are armed.

$STREAMSINK_TASK_FAULT is ``step:action:attempts[:partition]``. Attempts below that number (counted from 0) of each
task, or of the task of one partition, do the action at that step: ``raise`` an error, raise the error of a full disk
(``no-room``), end their worker (``exit``), ``sleep``, kill -9 their executor (``lose-executor``) or kill the whole
driver (``kill-driver``). Only the first attempt that comes sleeps, whichever it is: on a busy machine a speculative
copy may overtake the original. Each fault leaves an empty file in the folder $STREAMSINK_TASK_MARKS.
"""

import errno
import importlib
import os
import signal
import time
from pathlib import Path

from pyspark import TaskContext, daemon

from streamsink import faults
from tests.e2e.driver import DRIVER

VARIABLE = "STREAMSINK_TASK_FAULT"
SLEEP_S = 250
MARKS = "STREAMSINK_TASK_MARKS"
CONF = {"spark.python.daemon.module": "tests.e2e.task_faults"}


def environment(fault: str, marks: Path) -> dict[str, str]:
    """What a driver (or its executors) must have in its environment."""
    marks.mkdir(exist_ok=True)
    return {VARIABLE: fault, MARKS: str(marks)}


def _arm(text: str) -> None:
    step, action, attempts, *partition = text.split(":")

    def hook(reached: str) -> None:
        task = TaskContext.get()
        if reached != step or task is None or task.attemptNumber() >= int(attempts):
            return
        if partition and task.partitionId() != int(partition[0]):
            return
        # The file lets a test see that its fault has happened.
        mark = Path(os.environ[MARKS], "sleep" if action == "sleep" else f"{action}-{task.taskAttemptId()}")
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return  # Another attempt of the task sleeps.
        _act(action)

    faults.arm(hook)


def _act(action: str) -> None:
    if action == "raise":
        raise OSError("a fault to order")
    if action == "no-room":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if action == "exit":
        os._exit(1)
    if action == "kill-driver":
        os.kill(int(os.environ[DRIVER]), signal.SIGKILL)
    if action == "lose-executor":
        # This worker is a child of the daemon, which is a child of the executor's JVM.
        stat = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    # A killed driver takes a moment to reach its tasks.
    time.sleep(SLEEP_S)


if __name__ == "__main__":
    # It is imported once for all workers that are forked from here, because attempts that fail are many.
    importlib.import_module("streamsink.spark.rows.tasks")
    if VARIABLE in os.environ:
        _arm(os.environ[VARIABLE])
    daemon.manager()
