"""A Spark driver that does one order after another: ``python -m tests.e2e.walk_driver``.

It reads one JSON line for each order and answers with one: {"said": null} or the error. An order whose fault comes about ends the
process instead of an answer.
"""
import contextlib
import json
import os
import sys
import threading

from pyspark.errors import PySparkException

import streamsink
from streamsink import faults
from streamsink.errors import StreamsinkError
from streamsink.testing.faults import arm, kill
from tests.e2e.driver import end_with_the_test, say, session

LOOK_S = 0.02
MOST_RESTARTS = 5


class Enough(Exception):
    """The user's function fails, after as many batches as were ordered."""


def frame(spark, order: dict):
    """The rows: their id, their partition, and what the options name."""
    source, options = order["source"], order["options"]
    if source["kind"] == "kafka":
        reader = spark.readStream.format("kafka").options(**source["options"]).option("maxOffsetsPerTrigger", order["per_batch"])
        columns = ["CAST(CAST(value AS STRING) AS BIGINT) AS id", *options.get("position_columns", ())]
    else:
        reader = spark.readStream.format("json").schema("id BIGINT").option("maxFilesPerTrigger", order["per_batch"])
        columns = ["id", *(["_metadata.file_path AS file"] if options.get("file_column") else [])]
    return reader.load(*([source["dir"]] if source["kind"] == "files" else [])).selectExpr(*columns).selectExpr("*", f"{order['part']} AS part")


class Stream:
    """One start of a query under the supervisor. batches: after so many it ends. how: "error", or "stop" in order."""

    def __init__(self, spark, order: dict):
        self._spark, self._order = spark, order
        self._sink = streamsink.to_table(order["table"], listener=lambda event: None, **order["options"])
        self._done = 0
        self.ended = False
        self.query = None

    def __call__(self) -> None:
        stopping = threading.Thread(target=self._stop_in_time)
        if self._order["how"] == "stop":
            stopping.start()
        try:
            streamsink.run(self._start, max_restarts=MOST_RESTARTS, min_wait_ms=1, max_wait_ms=10)
        except PySparkException:
            if not self.ended:
                raise
        finally:
            self._sink.close()
            if stopping.ident:
                self.ended = True
                stopping.join()

    def _start(self):
        writer = frame(self._spark, self._order).writeStream.foreachBatch(self._publish)
        writer = writer.option("checkpointLocation", self._order["checkpoint"])
        trigger = {"processingTime": "0 seconds"} if self._order["how"] == "stop" else {"availableNow": True}
        self.query = writer.trigger(**trigger).start()
        return self.query

    def _publish(self, df, batch_id: int) -> None:
        if self._order["how"] == "error" and self._done >= self._order["batches"]:
            self.ended = True
            raise Enough
        self._sink(df, batch_id)
        self._done += 1

    def _stop_in_time(self) -> None:
        """Stops the query after the batches, or when nothing is left to read."""
        wait = threading.Event()
        while not self.ended:
            query = self.query
            if query is not None and query.isActive and (self._done >= self._order["batches"] or self._is_idle(query)):
                with contextlib.suppress(PySparkException):
                    query.stop()
                return
            wait.wait(LOOK_S)

    @staticmethod
    def _is_idle(query) -> bool:
        with contextlib.suppress(PySparkException):
            return query.status["message"].startswith("Waiting for data")
        return False


def write(spark, order: dict) -> None:
    """A bounded run."""
    df = spark.createDataFrame([(row,) for row in order["rows"]], "id BIGINT").selectExpr("*", f"{order['part']} AS part")
    streamsink.write(df, order["table"], order["run_id"], lambda event: None, **order["options"])


def obey(spark, order: dict) -> dict:
    """Its answer. Whatever is raised is part of it."""
    if order["fault"]:
        arm(*order["fault"], kill)
    try:
        write(spark, order) if order["do"] == "write" else Stream(spark, order)()
    except Exception as failed:
        ours = isinstance(failed, StreamsinkError)
        return {"said": str(failed), "kind": failed.kind if ours else None, "error": type(failed).__name__}
    finally:
        faults.arm(None)
    return {"said": None}


def main() -> None:
    end_with_the_test()
    spark = session({"spark.sql.files.ignoreMissingFiles": "true"})  # an operator moves files of batches away
    say(ready=True)
    for line in sys.stdin:
        say(**obey(spark, json.loads(line)))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
