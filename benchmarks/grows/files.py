"""A batch of very many data files, written by ten tasks: what the driver does with what they hand over.

The files are real. One task writes them; what the other nine would write are links to these, under names of their own.
"""

import contextlib
import os
import shutil
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.data import Sizes
from benchmarks.grows.grown import Grown, report
from benchmarks.machine import load
from benchmarks.operations import QUERY
from benchmarks.stores import NO_SERVER
from streamsink.options import SinkOptions
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.storage.s3_calls import S3Calls
from streamsink.table.write.spec import WrittenFile
from streamsink.testing.driver import MicroBatchDriver, NumberedRows, SparkCheckpoint, columns
from tests.services.s3 import S3Server
from tests.storage.back_ends import BackEnd

TASKS = 10
_TYPES = {"part": pa.string(), "id": pa.int64(), "price": pa.float64(), "at": pa.timestamp("us"), "city": pa.string()}
SCHEMA = pa.schema(list(_TYPES.items()))
MOST_MS, MOST_BYTES, MOST_MEMORY = 1.0, 1_500, 10_000


class Seen:
    """What was seen of one batch. sent: bytes that tasks hand over. ms: of processor time, from there to its end.

    memory: the most bytes of Python's that the driver held for it; 0 where that was not asked for.
    """

    def __init__(self, traced: bool):
        self._traced = traced
        self.files = self.sent = self.memory = 0
        self.ms = 0.0

    def begin(self, texts: list[str]) -> None:
        """The tasks have handed over these texts."""
        self.files, self.sent = len(texts), sum(len(text.encode()) for text in texts)
        if self._traced:
            tracemalloc.start()
        self._begun = time.process_time()

    def end(self) -> None:
        """The batch has returned."""
        self.ms = (time.process_time() - self._begun) * 1000
        if self._traced:
            self.memory = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()


class HandedOver(NumberedRows):
    """Rows that ten tasks have written."""

    seen: Seen

    def write(self, checkpoint: Checkpoint, group: Group) -> list[WrittenFile]:
        writing = self._opened.writing(checkpoint, columns(SCHEMA), ("part",))
        writer = writing.open(self._io)
        writer.write(self._driver.rows(0, 0))
        with self._io.flush_group() as flushed:
            first = writer.close(flushed)
            flushed.flush()
        texts = [writing.encode(file) for file in first]
        for task in range(1, TASKS):
            texts += [writing.encode(self._copied(file, task)) for file in first]
        self.seen.begin(texts)
        return [writing.decode(text) for text in texts]

    def _copied(self, file: WrittenFile, task: int) -> WrittenFile:
        """The same file under the name that another task would give it."""
        name = file.meta.file_name.replace(".parquet", f"{task:03}.parquet")
        staged, final = (os.path.join(os.path.dirname(path), name) for path in (file.staged, file.final))
        if self._io.names_at_once:
            self._io.write(staged, self._io.read(file.staged))
        else:
            os.link(file.staged, staged)
        return replace(file, staged=staged, final=final, meta=replace(file.meta, file_name=name))


def batch_of(root: str, files: int, file_io: FileIO, *, traced: bool = False, batches: int = 2, **options) -> Seen:
    """Write batches of so many files each into a new table, and return what was seen of the last one.

    The first one makes the folders of all partitions as well.
    """
    partitions = files // TASKS
    values: dict[str, Any] = {
        "part": [f"part-{number:06}" for number in range(partitions)],
        "id": list(range(partitions)),
        "price": [number / 7 for number in range(partitions)],
        "at": [1_700_000_000_000_000 + number for number in range(partitions)],
        "city": [f"city-{number % 1000:03}" for number in range(partitions)],
    }
    rows = pa.RecordBatch.from_pydict(values, schema=SCHEMA)
    driver = MicroBatchDriver(
        root, SCHEMA, lambda start, end: rows, SinkOptions.of(root, {"partition_by": ("part",), **options})
    )
    checkpoint = SparkCheckpoint(QUERY, list(range(1, batches + 1)))
    sink = driver.start(file_io, checkpoint)
    for number in range(batches):
        handed_over = HandedOver(driver, file_io, sink.opened)
        handed_over.seen = seen = Seen(traced and number == batches - 1)
        sink.run.micro_batch(driver.describe(checkpoint, number), handed_over)
        seen.end()
    sink.close()
    return seen


def files(folder: Path, sizes: Sizes) -> list:
    """The driver's time and memory, and what tasks send back; on a disk, and on S3, where each file is a request."""
    return [*_on_disk(folder, sizes), *_on_s3(folder, sizes)]


def _on_s3(folder: Path, sizes: Sizes) -> list:
    ms = {}
    with contextlib.ExitStack() as servers:
        try:
            server = S3Server(folder / "s3")
            servers.callback(server.kill)
            server.start().client().create_bucket(Bucket=server.bucket)
        except NO_SERVER as why:
            print(f"  not measured on S3: {str(why).splitlines()[0]}")
            return []
        made = BackEnd("s3", f"s3://{server.bucket}/bench", S3Calls(server.options))
        for count in sizes.grown_s3_files:
            ms[count] = batch_of(f"{made.root}/{count}/shop.db/orders", count, made.io()).ms
            print(f"  {count:,} files on S3 (load {load()})", flush=True)
    grown = [Grown("driver's processor ms, partitions known", ms, MOST_MS, "slope")]
    return report("A batch of many data files on S3 (SeaweedFS)", "data files", grown, f"Load {load()}.")


def _on_disk(folder: Path, sizes: Sizes) -> list:
    new, ms, sent, memory = {}, {}, {}, {}
    for count in sizes.grown_files:
        for number, (batches, traced) in enumerate(((1, False), (2, False), (2, True))):
            root = folder / f"files-{count}-{number}"
            seen = batch_of(
                str(root / "shop.db" / "orders"), count, local_file_io(flush=False), batches=batches, traced=traced
            )
            shutil.rmtree(root)
            (new if batches == 1 else memory if traced else ms)[count] = seen.memory if traced else seen.ms
            sent[count] = seen.sent
        print(f"  {count:,} files (load {load()})", flush=True)
    grown = [
        Grown("driver's processor ms, all partitions new", new, MOST_MS, "slope"),
        Grown("driver's processor ms, partitions known", ms, MOST_MS, "slope"),
        Grown("bytes that tasks send back", sent, MOST_BYTES, "slope", "{:,.0f}"),
        Grown("bytes of Python's memory, at most", memory, MOST_MEMORY, "slope", "{:,.0f}"),
    ]
    note = f"{TASKS} tasks, 5 columns, on a local disk without flushing. The rows are not written here. Load {load()}."
    return report("A batch of many data files", "data files", grown, note)
