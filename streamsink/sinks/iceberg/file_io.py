"""How pyiceberg writes metadata on a local disk and on HDFS: durable, before a catalog names it. Driver only.

pyiceberg's own files are closed, and not flushed: after a power failure a catalog would name metadata that is empty.
And its files on HDFS need a library of Hadoop's (libhdfs) that few machines have.
"""

import functools
import io
import os
from collections.abc import Callable
from typing import Any, BinaryIO

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from streamsink.sinks.iceberg.exchange import disk
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.stores import Store


class DurableFileIO(PyArrowFileIO):  # type: ignore[misc]
    """pyiceberg's own stores, with durable files on a local disk. A catalog finds it by its property ``py-io-impl``.

    waiting: what becomes durable together (``exchange.one_flush``); None where each file is so when it is closed.
    """

    waiting: FlushGroup | None = None

    def new_input(self, location: str) -> Any:
        return HdfsInput(location, _hdfs(location)) if _is_on_hdfs(location) else super().new_input(location)

    def new_output(self, location: str) -> Any:
        scheme, _, path = self.parse_location(location, self.properties)
        as_input = functools.partial(self.new_input, location)
        if scheme == "file":
            return DurableOutput(location, path, disk(), as_input, self.waiting)
        if scheme == _HDFS:
            return DurableOutput(location, location, _hdfs(location), as_input)
        return super().new_output(location)

    def delete(self, location: Any) -> None:
        name = location if isinstance(location, str) else location.location
        _hdfs(name).delete(name) if _is_on_hdfs(name) else super().delete(location)


_HDFS = "hdfs"


def _is_on_hdfs(location: str) -> bool:
    return location.startswith(f"{_HDFS}://")


def _hdfs(location: str) -> FileIO:
    """The cluster that has the file."""
    return _cluster(location[: location.index("/", len(_HDFS) + 3)])


@functools.cache
def _cluster(root: str) -> FileIO:
    return Store(root).open()


class HdfsInput(InputFile):  # type: ignore[misc]
    """A file of metadata on HDFS, which is read at once."""

    def __init__(self, location: str, file_io: FileIO):
        super().__init__(location)
        self._io = file_io

    def __len__(self) -> int:
        size = self._io.size(self.location)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._io.exists(self.location)

    def open(self, seekable: bool = True) -> io.BytesIO:
        return io.BytesIO(self._io.read(self.location))


class DurableOutput(OutputFile):  # type: ignore[misc]
    """A file in a store of this library. path: as the store has it. as_input: opens it for reading.

    waiting: what becomes durable together with it.
    """

    def __init__(
        self, location: str, path: str, file_io: FileIO, as_input: Callable[[], Any], waiting: FlushGroup | None = None
    ):
        super().__init__(location)
        self._path = path
        self._io = file_io
        self._as_input = as_input
        self._waiting = waiting

    def __len__(self) -> int:
        size = self._io.size(self._path)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._io.exists(self._path)

    def to_input_file(self) -> Any:
        return self._as_input()

    def create(self, overwrite: bool = False) -> "DurableStream":
        if overwrite:
            self._io.delete(self._path)
        self._io.make_dir(os.path.dirname(self._path))
        return DurableStream(self._io, self._path, self._waiting)


# How names of the files end that catalogs name. Each is written behind all that it names, into the same folder.
_LAST = ".metadata.json"


class DurableStream:
    """A file that is durable when it is closed; its name is so with the metadata file that is written last.

    waiting: where it is given, file and name are durable when that is flushed. They can be read before.
    """

    def __init__(self, file_io: FileIO, path: str, waiting: FlushGroup | None = None):
        self._io = file_io
        self._waiting = waiting
        self._path = path
        self._stream: BinaryIO | None = file_io.open_output(path)
        self._size = 0

    def write(self, data: bytes) -> int:
        if self._stream is None:
            raise ValueError(f"{self._path} is closed")
        self._size += len(data)
        return self._stream.write(data)

    @property
    def closed(self) -> bool:
        return self._stream is None

    def flush(self) -> None:
        """It is flushed when it is closed."""

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None and self._waiting is not None:
            stream.flush()
            # pyiceberg writes manifests in threads of its own, for which the one thread of the group waits.
            self._waiting.close_on_flush(stream)
            self._waiting.sync_dir(os.path.dirname(self._path))
        elif stream is not None:
            self._io.close_output(stream)
            if self._path.endswith(_LAST):
                self._io.sync_dir(os.path.dirname(self._path))

    def __enter__(self) -> "DurableStream":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
