"""What runs in Spark's tasks: one pass over Arrow batches into staged files. Runs on the executors.

A failed or killed attempt leaves no row behind: its files are in staging, which no reader sees, and it deletes them
itself when it can. The results of a retried or speculative attempt that lost never reach the driver.
"""

import os
import sys
import zipimport
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from streamsink.errors import Misuse, StreamsinkError
from streamsink.faults import fault_point
from streamsink.format.arrow_types import check_arrow
from streamsink.protocol.sink import VERSION, Writing
from streamsink.storage.store_failures import KEPT
from streamsink.storage.stores import Store

COMMITTABLE_SCHEMA = "committable string"


def write_task(
    writing: Writing, store: Store, names: Sequence[str] | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow``.

    It takes rows, and yields what the writer hands back when all files are closed and flushed.

    names: the names of the columns, when Spark gives them other names.
    """
    of_driver = VERSION

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        check_version(of_driver, store.root)
        file_io = store.open()
        writer = writing.open(file_io)
        try:
            for batch in batches:
                writer.write(batch if names is None else pa.RecordBatch.from_arrays(batch.columns, names))
            with file_io.flush_group() as group:
                texts = [writing.encode(written) for written in writer.close(group)]
                group.flush()
            fault_point("task.end")
            yield pa.RecordBatch.from_pydict({"committable": pa.array(texts, pa.string())})
        except StreamsinkError as refused:
            writer.abort()
            raise said_by_task(refused) from None
        except BaseException:
            writer.abort()
            raise
        finally:
            forget_zip_importers()

    return run


def check_version(of_driver: str, table: str) -> None:
    """Raises Misuse when the Python of this task has another version of this library than the driver, or too old
    a pyarrow.

    What the driver sends are values for code that both have. Other code may leave out in silence what it does not know.
    of_driver: travels as a value, while this function is the executor's own.
    """
    try:
        check_arrow(table)
    except Misuse as refused:
        raise said_by_task(refused) from None
    if of_driver != VERSION:
        raise said_by_task(
            Misuse(
                f"{table}: the driver has streamsink {of_driver}, and the Python of a task on {os.uname().nodename} "
                f"has {VERSION} ({__file__}). {KEPT} Nothing of this batch was written. Install the driver's version "
                "on every machine, or give it to spark-submit (--py-files streamsink.zip) and take the other one off "
                "spark.executorEnv.PYTHONPATH; then start it again",
                kind="worker.other-version",
            )
        )


def said_by_task(refused: StreamsinkError) -> StreamsinkError:
    """The same error with its kind in its text.

    Only the text of a task's error reaches the driver, where ``explain`` reads the kind from it.
    """
    return type(refused)(f"{refused} [kind {refused.kind}]", kind=refused.kind)


def forget_zip_importers() -> None:
    """Drop the importers of zip files from the cache. They come back when something is imported.

    Before each task PySpark's worker lets all importers read their folders again. On CPython up to 3.12 those of zip
    files read whole archives, which takes longer than a small task.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            del sys.path_importer_cache[path]
