"""A Spark with Delta's own reader and writer, in a process of its own: ``python -m tests.delta.spark_side``.

It takes a SQL statement a line, and answers with a line of JSON: {"rows": [[text of each value, ...], ...]}, or
{"error": first line of the message}. So tests ask another implementation of Delta's protocol. An object starts a stream
into a table, by Delta's own streaming sink, or stops all streams.
"""

import json
import os
import subprocess
import sys

from benchmarks.peers import _CONF
from tools.jars import jars


class SparkSide:
    """The other end. Use it as a context manager."""

    def __enter__(self) -> "SparkSide":
        command = [sys.executable, "-m", "tests.delta.spark_side"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *failed) -> None:
        self._process.stdin.close()
        self._process.wait(200)

    def sql(self, text: str | dict) -> list[list[str]]:
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "rows" in answer, answer["error"]
        return answer["rows"]


def _stream(spark, asked: dict) -> list:
    """{"into": path of a table, "checkpoint": path, "first": number} starts a stream of rows with the ids from first
    on, three in each micro-batch; {} stops all."""
    if asked:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).option("numPartitions", 1).load()
        rows = source.selectExpr(f"value + {asked['first']} AS id", "CAST(0 AS BIGINT) AS version")
        writing = rows.writeStream.format("delta").option("checkpointLocation", asked["checkpoint"])
        writing.trigger(processingTime="0 seconds").start(asked["into"])
        return []
    for query in spark.streams.active:
        while not query.lastProgress and query.isActive:
            query.awaitTermination(1)
        query.stop()
        if query.exception() is not None:
            raise query.exception()
    return []


def main() -> None:
    from pyspark.sql import SparkSession

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark prints where it likes
    builder = SparkSession.builder.master("local[1]").config("spark.jars", ",".join(jars("delta")))
    settings = _CONF["delta"] | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        try:
            asked = json.loads(line)
            rows = _stream(spark, asked) if isinstance(asked, dict) else spark.sql(asked).collect()
            answer = {"rows": [[None if value is None else str(value) for value in row] for row in rows]}
        except Exception as failed:
            answer = {"error": str(failed).partition("\n")[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    os._exit(0)
