"""A Spark driver that does one order after another, ``python -m tests.e2e.walk_driver``, and the side that gives the
orders.

It reads one JSON line for each order and answers with one: {"said": null} or the error. An order whose fault comes
about ends the process instead of an answer.
"""

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from pyspark.errors import PySparkException

import streamsink
from streamsink import faults
from streamsink.errors import StreamsinkError
from streamsink.testing.faults import arm, kill
from tests.e2e.driver import end_with_the_test, say, session
from tests.e2e.harness import ROOT, WAIT_S
from tests.e2e.kafka_data import AT_ONCE
from tests.services.forking import Forked

LOOK_S = 0.02
MOST_RESTARTS = 5


# -- who gives orders ----------------------------------------------------------------------------------------------


class Died(Exception):
    """The driver was killed before it answered."""


class Driver:
    """A process with a Spark session that takes orders, in a process group of its own with its JVM."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        self._log = folder / "log"
        environment = dict(os.environ) | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_DIRS": str(folder)}
        with open(self._log, "wb") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._process = Forked("tests.e2e.walk_driver", env=environment, session=True, stderr=log, **pipes)
        self._said = b""
        self._is_ready = False

    def order(self, order: dict, kill_after_ms: int | None) -> dict:
        """Give an order. Returns its answer. Raises Died."""
        if not self._is_ready:
            self._line(WAIT_S)
            self._is_ready = True
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        if kill_after_ms is None:
            return self._line(WAIT_S)
        answer = self._line(kill_after_ms / 1000, or_none=True)
        if answer is None:
            self.kill()
            raise Died
        return answer

    def kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(WAIT_S)
        self._process.stdin.close()
        self._process.stdout.close()

    def _line(self, wait_s: float, or_none: bool = False) -> dict | None:
        """The next line that it prints. Its JVM holds the pipe as well, so an end of the process is looked for."""
        end = time.monotonic() + wait_s
        while b"\n" not in self._said:
            if select.select([self._process.stdout], [], [], LOOK_S)[0]:
                self._said += os.read(self._process.stdout.fileno(), 65536)
            elif self._process.poll() is not None:
                code = self._process.returncode
                self.kill()
                if code != -signal.SIGKILL:
                    raise AssertionError(f"the driver ended ({code}): {self._log.read_text()[-3000:]}")
                raise Died
            elif time.monotonic() > end:
                if or_none:
                    return None
                self.kill()
                raise AssertionError(f"no answer in {wait_s} s: {self._log.read_text()[-3000:]}")
        line, _, self._said = self._said.partition(b"\n")
        return json.loads(line) if line.startswith(b"{") else self._line(max(0.0, end - time.monotonic()), or_none)


class Drivers:
    """One driver for orders, and one that starts meanwhile, for after a kill. As a context manager it leaves none."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._number = itertools.count()
        self._ready: list[Driver] = []
        self.kills = 0
        self.orders = 0

    def __enter__(self) -> "Drivers":
        return self

    def __exit__(self, *_) -> None:
        for driver in self._ready:
            driver.kill()

    def order(self, order: dict, kill_after_ms: int | None = None) -> dict:
        """Give an order. Returns the answer. Raises Died."""
        while len(self._ready) < 2:
            self._ready.append(Driver(self._folder / f"driver-{next(self._number)}"))
        self.orders += 1
        try:
            return self._ready[0].order(order, kill_after_ms)
        except (Died, AssertionError):
            del self._ready[0]
            self.kills += 1
            raise


# -- the driver ----------------------------------------------------------------------------------------------------


class Enough(Exception):
    """The user's function fails, after as many batches as were ordered."""


def frame(spark, order: dict):
    """The rows: their id, their partition, and what the options name."""
    source, options = order["source"], order["options"]
    if source["kind"] == "kafka":
        reader = (
            spark.readStream.format("kafka")
            .options(**AT_ONCE, **source["options"])
            .option("maxOffsetsPerTrigger", order["per_batch"])
        )
        columns = ["CAST(CAST(value AS STRING) AS BIGINT) AS id", *options.get("position_columns", ())]
    else:
        reader = spark.readStream.format("json").schema("id BIGINT").option("maxFilesPerTrigger", order["per_batch"])
        columns = ["id", *(["_metadata.file_path AS file"] if options.get("file_column") else [])]
    rows = reader.load(*([source["dir"]] if source["kind"] == "files" else [])).selectExpr(*columns)
    named = [f"{order[name]} AS {name}" for name in ("part", "route") if name in order]
    return made_by(order["version"], rows).selectExpr("*", *named)


def sink_of(order: dict):
    """The sink into one table, or into several by their routes."""
    if "tables" in order:
        return streamsink.to_tables(order["table"], "route", order["tables"], lambda event: None, **order["options"])
    return streamsink.to_table(order["table"], listener=lambda event: None, **order["options"])


def made_by(version: int, df):
    """All rows, as a program of this version makes them."""
    return df.where(f"id >= {-version}") if version else df


class Stream:
    """One start of a query under the supervisor. batches: after so many it ends. how: "error", or "stop" in order."""

    def __init__(self, spark, order: dict):
        self._spark, self._order = spark, order
        self._sink = sink_of(order)
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
        """Stop the query after the batches, or when nothing is left to read."""
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
    """Do a bounded run."""
    df = spark.read.schema("id BIGINT").json(order["dir"])
    df = made_by(order["version"], df).selectExpr("*", f"{order['part']} AS part")
    streamsink.write(df, order["table"], order["run_id"], lambda event: None, **order["options"])


def obey(spark, order: dict) -> dict:
    """Obey an order. Returns its answer; whatever is raised is part of it."""
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
    spark = session({"spark.sql.files.ignoreMissingFiles": "true"})  # An operator moves files of batches away.
    say(ready=True)
    for line in sys.stdin:
        say(**obey(spark, json.loads(line)))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
