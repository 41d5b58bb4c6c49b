"""Java's accounts of a failed job, as py4j hands them over, become one sentence that says why it failed."""

from streamsink.errors import Retryable
from streamsink.spark.explain import explain, reason_of

AWAITED = """An error occurred while calling o210.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:\u0020
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file \
file:///in/a.json.
File does not exist. SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.fileNotExistError(QueryExecutionErrors.scala:832)
Caused by: java.io.FileNotFoundException: File file:/in/a.json does not exist
\t... 31 more
"""
OF_A_STAGE = """An error occurred while calling o448.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 6.0 failed 1 times, \
most recent failure: Lost task 0.0 in stage 6.0 (TID 6) (192.0.2.2 executor driver): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:780)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2844)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:398)
"""


def test_the_first_account_that_says_more_than_that_something_failed_is_the_reason():
    assert reason_of(AWAITED) == (
        "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///in/a.json. File does not "
        "exist. SQLSTATE: KD001"
    )
    assert reason_of(OF_A_STAGE) == "Python worker exited unexpectedly (crashed)"


def test_an_account_in_other_words_is_cut_short():
    assert reason_of("o5 does not exist in the JVM\nand more") == "o5 does not exist in the JVM"
    assert len(reason_of(": a.B: " + "x" * 10_000 + "\n\tat c.d")) == 600


def test_an_error_of_ours_names_the_table_once():
    for text in ("lake/t: no room", "no room"):
        told = explain("lake/t", explain("lake/t", Retryable(text, kind="a.b")))
        assert (type(told), str(told), told.kind) == (Retryable, "lake/t: no room", "a.b")
