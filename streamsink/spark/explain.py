"""Turns failures of the store, of Spark's jobs and of its tasks into errors that say what to do. Runs on the driver."""

import errno
import os
import re
import sys

from py4j.protocol import Py4JJavaError

from streamsink import errors
from streamsink.errors import Misuse, StreamsinkError
from streamsink.storage.store_failures import KEPT, in_words

# What Java's own file classes, and Hadoop's on top of them, fail with. A denied permission is left out below, because
# it may be one of the source.
_JAVA = re.compile(r"java\.io\.\w*Exception|java\.nio\.file\.\w*Exception|FSError")
_OF_JAVA = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
# Python's last line of an OSError: the errno, what was said, and the path if there is one.
_OF_PYTHON = re.compile(r"(?:OS|Permission|Timeout)Error: \[Errno (\d+)\] ([^\n]*?)(?:: '([^'\n]*)')?$", re.MULTILINE)
# A function of the user's own in the query may meet these as well, at some other server: the path tells.
_OF_ANYBODY = (errno.EBUSY, errno.EMFILE, errno.ETIMEDOUT)
# One of this library's errors as the last line of a task's traceback, as ``said_by_task`` writes it.
_OF_A_TASK = re.compile(r"streamsink\.errors\.(\w+): (.*?) \[kind ([a-z.-]+)\]", re.DOTALL)
# Modules that a task needs. A Python interpreter that Spark has found by itself may lack them.
_MISSING = re.compile(r"No module named '(streamsink|pyarrow|fastavro)[\w.]*'")
# The lines in which Java says what failed: first the call that was made, then its causes. The first line that says more
# than that something failed is taken as the reason.
_HEAD = re.compile(
    r"^(?:: |Caused by: )[\w.$]+: (.*?)(?=^\s+at |^Caused by: |^Driver stacktrace:|\Z)", re.DOTALL | re.MULTILINE
)
_SAYS_NOTHING = re.compile(r"Exception thrown in awaitResult|Job aborted\.|Writing job aborted")
_OF_A_STAGE = re.compile(r"Job aborted due to stage failure: .*?Lost task [^)]*\) \([^)]*\): (?:[\w.$]+: )?", re.DOTALL)
_LONGEST_REASON = 600
# What a batch fails with when its query is stopped: its job is cancelled, or its thread is interrupted while it waits
# for Spark.
_STOPPED = re.compile(
    r"\[SPARK_JOB_CANCELLED\].* was stopped"
    r"|java\.(?:lang\.Interrupted|io\.InterruptedIO|nio\.channels\.ClosedByInterrupt)Exception",
    re.DOTALL,
)


def explain(table: str, failed: Exception) -> Exception:
    """Return the failure as an error that names the table and the way out; itself when it says enough already.

    table: the table's path. A failure of a task reaches the driver as text only: Python's with the errno, and Java's
    with the operating system's words for it.
    """
    if isinstance(failed, StreamsinkError):
        return _naming(table, failed)
    text = str(failed)
    ours = _of_a_task(text)
    if ours is not None:
        return _naming(table, ours)
    of_store = (
        in_words(table, failed.errno, failed.filename, said=failed.strerror or "")
        if isinstance(failed, OSError)
        else _of_store(table, text)
    )
    if of_store is not None:
        return of_store
    missing = _MISSING.search(text)
    if missing is not None:
        return Misuse(
            f"{table}: the Python that Spark runs its tasks with has no module '{missing[1]}'. {KEPT} Set "
            "spark.pyspark.python (or PYSPARK_PYTHON) to a Python that has streamsink, on this machine "
            f"{sys.executable}, and on a cluster one that every executor has; or give spark-submit the library "
            "(--py-files streamsink.zip), and spark.executorEnv.PYTHONPATH=streamsink.zip where "
            "spark.python.daemon.module is set. Then start it again",
            kind="worker.no-streamsink",
        )
    if isinstance(failed, Py4JJavaError):
        return Misuse(
            f"{table}: Spark could not run the batch: {reason_of(text)}. {KEPT} Mend what Spark names, then start it "
            "again; the whole of Java's account is in the error before this one",
            kind="spark.job-failed",
        )
    return failed


def is_of_a_stop(failed: Exception) -> bool:
    """Whether a batch failed because its query was stopped.

    failed: what ``explain`` made of Java's account of the failure, raised from that account.
    """
    return _STOPPED.search(str(failed.__cause__ or failed)) is not None


def reason_of(account: str) -> str:
    """Why a job failed, in at most 600 characters.

    account: Java's account of the failure, which is many thousand characters long.
    """
    heads = [" ".join(_OF_A_STAGE.sub("", head).split()) for head in _HEAD.findall(account)]
    found = (
        next((head for head in heads if head and not _SAYS_NOTHING.match(head)), None) or account.strip().split("\n")[0]
    )
    return found[:_LONGEST_REASON].rstrip(".")


def _naming(table: str, failed: StreamsinkError) -> StreamsinkError:
    if table in str(failed):
        return failed
    return type(failed)(f"{table}: {failed}", kind=failed.kind)


def _of_a_task(text: str) -> StreamsinkError | None:
    found = _OF_A_TASK.search(text)
    if found is None:
        return None
    kind = getattr(errors, found[1], None)
    return kind(found[2], kind=found[3]) if isinstance(kind, type) and issubclass(kind, StreamsinkError) else None


def _of_store(table: str, text: str) -> StreamsinkError | None:
    """The error for what a task has said of a store, or None if it says nothing of one."""
    for found in _OF_PYTHON.finditer(text):
        code, said, path = int(found[1]), found[2], found[3] or ""
        if code in _OF_ANYBODY and not path.startswith(f"{table}/"):
            continue
        words = in_words(table, code, path, said=said)
        if words is not None:
            return words
    if _JAVA.search(text):
        return next((in_words(table, code) for code in _OF_JAVA if os.strerror(code) in text), None)
    return None
