"""Where one sink meets one accident, and what that leaves:
lost, doubled or changed rows, an error, or each row once."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import streamsink
from benchmarks.accidents.sinks import Put, Sink
from streamsink.errors import StreamsinkError

ROWS, STARTS = 10, 2
MOST_SAID = 200
RIGHT = "each row once"


@dataclass
class Ground:
    """A sink, its table in ``root/out``, its checkpoint and its source of JSON files.

    errors: why starts failed. stopped: whether the last start failed as well. folder: name of the checkpoint's folder.
    """

    spark: SparkSession
    sink: Sink
    root: Path
    schema: str = "id BIGINT"
    columns: tuple[str, ...] = ("id",)
    keys: tuple[str, ...] = ()
    errors: list[str] = field(default_factory=list)
    stopped: bool = False
    folder: str = "checkpoint"

    @property
    def checkpoint(self) -> Path:
        return self.root / self.folder

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def add(self, number: int, rows: Iterable[dict]) -> None:
        """Add a file to the source, which reads files in the order of their times."""
        folder = self.root / "in"
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{number:05}.json"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        hidden.rename(folder / f"{number:05}.json")

    def add_ids(self, first: int, count: int) -> list[int]:
        """Add files of ten ids each. Returns their ids."""
        for number in range(first, first + count):
            self.add(number, ({"id": i} for i in ids_of(number, 1)))
        return ids_of(first, count)

    def forget_files(self) -> None:
        """Delete files that were read, as retention or an archive does."""
        shutil.rmtree(self.root / "in")

    def files(self, per_batch: int = 1) -> DataFrame:
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", per_batch)
        return reader.json(str(self.root / "in"))

    def begin(self, df: DataFrame, **trigger) -> StreamingQuery:
        writer = self.sink.start(df, self.root, self.keys).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, df: DataFrame) -> None:
        """Run the query until nothing is left to read, or until its error."""
        self._to_end(lambda: self.begin(df))

    def run_function(self, function: Put, per_batch: int = 1) -> None:
        """Run a query with a batch function of the user's own in the same way."""
        writer = (
            self.files(per_batch).writeStream.foreachBatch(function).option("checkpointLocation", str(self.checkpoint))
        )
        self._to_end(lambda: writer.trigger(availableNow=True).start())

    def once(self, job: Callable[[], None]) -> None:
        """Run a bounded job, which is not repeated."""
        try:
            job()
        except (StreamsinkError, PySparkException) as failed:
            self._failed(failed)

    def _to_end(self, start) -> None:
        """A start that fails is repeated once, as any supervisor would do. Ours is repeated by streamsink's own
        supervisor, which knows what a restart mends."""
        for _ in range(STARTS):
            try:
                if self.sink.ours:
                    streamsink.run(start, max_restarts=3, min_wait_ms=1, max_wait_ms=10)
                else:
                    start().awaitTermination()
                self.stopped = False
                return
            except (StreamsinkError, PySparkException) as failed:
                self._failed(failed)

    def _failed(self, failed: Exception) -> None:
        self.stopped = True
        self.errors.append(reason(failed).replace(str(self.root), "..."))

    def rows(self) -> Counter:
        return self.sink.rows(self.spark, self.root, self.columns)

    def outcome(self, expected: Iterable, found: Counter | None = None) -> str:
        """What happened, in words. expected: ids, or rows, each as often as it should be there."""
        wanted = Counter(row if isinstance(row, tuple) else (row,) for row in expected)
        try:
            found = self.rows() if found is None else found
        except PySparkException as unreadable:
            return f"**unreadable**: {reason(unreadable)[:80]}"
        lost, more = (wanted - found).total(), (found - wanted).total()
        if self.stopped:  # What the stopped query would have written is not lost.
            return "ERROR" + f", {more} doubled" * bool(more)
        said = [f"**{lost} lost**"] * bool(lost) + [f"**{more} doubled**"] * bool(more)
        result = " and ".join(said) + f" of {wanted.total()}" if said else RIGHT
        return f"an ERROR, then {result}" if self.errors else result


def ids_of(first: int, count: int) -> list[int]:
    """The ids of so many files from number ``first`` on."""
    return list(range(first * ROWS, (first + count) * ROWS))


def reason(failed: Exception) -> str:
    """The kind of an error of ours; for other errors the last cause that Spark names."""
    if isinstance(failed, StreamsinkError):
        return failed.kind
    lines = str(failed).splitlines() or [type(failed).__name__]
    caused = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    said = " ".join((caused[-1] if caused else lines[0]).split())
    return said.replace("|", "/").replace("\0", "\\0")[:MOST_SAID]
