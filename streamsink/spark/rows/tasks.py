"""What runs in Spark's tasks: one pass over Arrow batches into staged files. Runs on the executors.

A failed or killed attempt leaves no row behind: its files are in staging, which no reader sees, and it deletes them
itself when it can. The results of a retried or speculative attempt that lost never reach the driver.
"""

import sys
import zipimport
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from streamsink.errors import StreamsinkError
from streamsink.faults import fault_point
from streamsink.protocol.sink import Writing
from streamsink.storage.stores import Store

COMMITTABLE_SCHEMA = "committable string"


def write_task(
    writing: Writing, store: Store, names: Sequence[str] | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow``.

    It takes rows, and yields what the writer hands back when all files are closed and flushed.

    names: the names of the columns, when Spark gives them other names.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
