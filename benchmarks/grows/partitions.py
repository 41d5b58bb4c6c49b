"""A Kafka source of very many partitions: what a micro-batch of few rows costs the driver, and the snapshot's size."""

import base64
import json
import random
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks.data import Sizes
from benchmarks.grows.grown import Grown, report
from benchmarks.machine import load
from benchmarks.operations import QUERY
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.same_query import QueryFingerprint
from streamsink.spark.gateway.offset_log import parse, ranges
from streamsink.storage.file_io import local_file_io
from streamsink.table.write.spec import WrittenFile
from streamsink.testing.driver import MicroBatchDriver, NumberedRows, SparkCheckpoint, columns, written

_SCHEMA = pa.schema([("id", pa.int64())])
_ROWS = pa.RecordBatch.from_pydict({"id": [1]}, schema=_SCHEMA)
_BATCHES = 20
_FINGERPRINT = QueryFingerprint(
    sources="a Kafka source", plan="all rows", dates="", schema="", spark="", comparable=True
)
MOST_MS, MOST_BYTES = 20.0, 100_000
# So many partitions each, in this many topics; 0 for a topic each.
_SHAPES = {"one topic": 1, "100 topics": 100, "a topic each": 0}


@dataclass(frozen=True)
class Source:
    """Topics with so many partitions, at offsets of a trillion messages."""

    topics: int
    partitions: int

    def logged(self) -> Iterator[str]:
        """Spark's offset log, entry by entry; every partition moves on in every batch."""
        chance = random.Random(self.partitions)
        each = [str(part) for part in range(max(1, self.partitions // self.topics))]
        at = {topic: {part: chance.randint(10**11, 10**12) for part in each} for topic in self.names}
        while True:
            yield 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n' + json.dumps(at, separators=(",", ":"))
            at = {
                topic: {part: end + chance.randint(1, 10**6) for part, end in ends.items()}
                for topic, ends in at.items()
            }

    @property
    def names(self) -> list[str]:
        """The topics' names."""
        return [f"shop.orders.{number:04}" for number in range(self.topics)]

    def ids(self) -> Mapping[str, str]:
        """Their ids, as Kafka makes them."""
        chance = random.Random(self.topics)
        return {name: base64.urlsafe_b64encode(chance.randbytes(16)).decode().rstrip("=") for name in self.names}


class _OneRow(NumberedRows):
    def write(self, checkpoint: Checkpoint, group: Group) -> list[WrittenFile]:
        return written(self._opened.writing(checkpoint, columns(_SCHEMA), ()), self._io, _ROWS, group)

    def looked_at_again(self, batch: Batch) -> Batch:
        return batch


def batches_of(root: str, source: Source, batches: int = _BATCHES) -> tuple[list[float], int]:
    """Processor ms of each batch, from reading Spark's log to the batch's end, and the bytes of the last snapshot."""
    driver = MicroBatchDriver(root, _SCHEMA, lambda start, end: _ROWS, SinkOptions.of(root, {}))
    file_io, took, ids = local_file_io(flush=False), [], source.ids()
    sink = driver.start(file_io, SparkCheckpoint(QUERY))
    log = source.logged()
    before, texts = parse(next(log)), [next(log) for _ in range(batches)]
    for number, text in enumerate(texts):
        begun = time.process_time()
        after = parse(text)
        found = (read.told(cluster="cluster", topic_ids=ids) for read in ranges(before, after, list, [0]))
        sources: tuple[SourceRange, ...] = tuple(found)
        batch = Batch(number, QUERY, "run", sources, fingerprint=_FINGERPRINT, place="folder")
        sink.run.micro_batch(batch, _OneRow(driver, file_io, sink.opened))
        took.append((time.process_time() - begun) * 1000)
        before = after
    sink.close()
    return took[1:], (Path(root) / "snapshot" / f"snapshot-{batches}").stat().st_size


def partitions(folder: Path, sizes: Sizes) -> list:
    """What thousands of partitions add to a batch of one row."""
    base: list[float] = []
    took: dict[str, dict[int, float]] = {name: {} for name in _SHAPES}
    size: dict[str, dict[int, float]] = {name: {} for name in _SHAPES}
    for count in sizes.grown_partitions:
        for name, topics in {"": 1, **_SHAPES}.items():
            root = folder / "partitions"
            source = Source(min(topics or count, count), count if name else 1)
            ms, snapshot = batches_of(str(root / "shop.db" / "orders"), source)
            shutil.rmtree(root)
            if name:
                took[name][count], size[name][count] = min(ms), snapshot
            else:
                base += ms
        print(f"  {count:,} partitions (load {load()})", flush=True)
    grown = [
        Grown(
            f"processor ms over a batch of one partition, {name}",
            {count: ms - min(base) for count, ms in found.items()},
            MOST_MS,
        )
        for name, found in took.items()
    ]
    grown += [Grown(f"bytes of a snapshot, {name}", found, MOST_BYTES, how="{:,.0f}") for name, found in size.items()]
    note = (
        f"Least of {_BATCHES} batches of one row; one partition: {min(base):.1f} ms. Spark's log is read, the batch "
        f"admitted, recorded and published. Without Spark. Load {load()}."
    )
    return report("A Kafka source of many partitions", "partitions", grown, note)
