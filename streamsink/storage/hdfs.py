"""HDFS, through the Rust client ``hdfs-native``: no JVM, so executors' Python workers use it as well. See docs/design/0003-stores.md.

A closed file is whole on every DataNode of its pipeline, and after an ``hsync`` on their disks; a name is durable at once. What publishes is rename2 without
OVERWRITE, one transaction of the NameNode: unlike ``FileSystem.rename`` it never moves a file into a folder of that name.
"""

import errno
import io
import os
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from streamsink.errors import Misuse
from streamsink.storage.calls import Calls, NameLimits
from streamsink.storage.file_io import FileIO
from streamsink.storage.hold import BeatingHold, Hold

_COPY_BYTES = 8 * 1024 * 1024
# The NameNode's own: of a name in bytes, unless the client's settings say what it was set to (0: none); of a path in characters.
_NAME_LIMIT, _MOST_NAME_BYTES, _MOST_PATH_CHARACTERS = "dfs.namenode.fs-limits.max-component-length", "255", 8000


# What the NameNode refuses with, by a word of its message.
_MEANING = {
    "AccessControlException": errno.EACCES,
    "PathComponentTooLongException": errno.ENAMETOOLONG,
    "Pathname too long": errno.ENAMETOOLONG,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "FileAlreadyExistsException": errno.EEXIST,
    "QuotaExceededException": errno.EDQUOT,
    "SafeModeException": errno.EROFS,
}


class HdfsCalls(Calls):
    """RPCs of one file system. Paths are URIs that begin with ``root``, such as ``hdfs://namenode:8020``."""

    def __init__(self, root: str, config: Mapping[str, str]):
        """config: Hadoop's client settings, over those of the files in $HADOOP_CONF_DIR. Raises Misuse."""
        try:
            import hdfs_native
        except ImportError as missing:
            raise Misuse(
                f"{root}: tables on HDFS need the package hdfs-native: pip install 'streamsink[hdfs]', on executors too",
                kind="store.extra-missing",
            ) from missing
        self._root = root
        most = str(config.get(_NAME_LIMIT, _MOST_NAME_BYTES)).strip()
        self._most_name_bytes = int(most) if most.isdigit() else int(_MOST_NAME_BYTES)
        self._options = hdfs_native.WriteOptions
        # Without an authority it is the cluster's own default file system.
        self._client = _translated(root, lambda: hdfs_native.Client(None if root == "hdfs://" else root, dict(config)))

    def read(self, path: str) -> bytes:
        return bytes(self._call(path, lambda client, at: client.read(at).read()))

    def size(self, path: str) -> int | None:
        try:
            status = self._call(path, lambda client, at: client.get_file_info(at))
        except FileNotFoundError:
            return None
        return 0 if status.isdir else status.length

    def entries(self, path: str) -> list[tuple[str, int, bool]]:
        try:
            found = self._call(path, lambda client, at: list(client.list_status(at)))
        except FileNotFoundError:
            return []
        return [(os.path.basename(s.path), 0 if s.isdir else s.length, s.isdir) for s in found]

    def mkdir(self, path):
        """One folder with its parents."""
        self._call(path, lambda client, at: client.mkdirs(at, create_parent=True))

    def open_new(self, path: str) -> BinaryIO:
        return _Stream(path, self._call(path, lambda client, at: client.create(at, self._options())))

    def close(self, stream: BinaryIO, flush: bool) -> None:
        stream.finish(flush)

    def unlink(self, path: str) -> bool | None:
        return self._call(path, lambda client, at: client.delete(at, False))

    def name_limits(self, path: str) -> NameLimits:
        return NameLimits(self._most_name_bytes or None, _MOST_PATH_CHARACTERS, self._root)

    def remove_tree(self, path: str) -> None:
        """A folder with all in it, at once."""
        self._call(path, lambda client, at: client.delete(at, True))

    def move(self, source: str, target: str) -> bool:
        """Rename; False when ``target`` is taken. Atomic. Raises FileNotFoundError: no source, or no folder for the target.

        The client repeats a call whose connection broke: then the source may be gone because the first one was done.
        """
        try:
            self._call(source, lambda client, at: client.rename(at, self._below(target), False))
        except FileExistsError:
            return False
        return True

    def rename(self, source, target):
        """Rename, replacing ``target``. Atomic."""
        self._call(source, lambda client, at: client.rename(at, self._below(target), True))

    def _call(self, path: str, action: Callable[..., Any]):
        return _translated(path, lambda: action(self._client, self._below(path)))

    def _below(self, path: str) -> str:
        return path[len(self._root) :] or "/"


class HdfsFileIO(FileIO):
    """FileIO where a rename does not replace and folders need no sync."""

    takes_files_of_others = False
    lists_sizes = True

    def make_dir(self, path: str) -> None:
        self._calls.mkdir(path)

    begin_dir = make_dir

    def _begin_names(self, folder, staging, group):
        self._calls.mkdir(folder)

    def place(self, source: str, target: str, keep_source: bool) -> None:
        try:
            # False: an earlier try was done already.
            self._in_dir(
                target, lambda: self._copy(source, target) if keep_source else self._calls.move(source, target)
            )
        except FileNotFoundError:
            if self._calls.size(target) is None:
                raise

    def sync_dir(self, path: str) -> None:
        """Names are durable at once: the NameNode logs them before it answers."""

    def delete_tree(self, path: str) -> None:
        self._calls.remove_tree(path)

    def hold(self, folder: str) -> Hold:
        return BeatingHold(self, folder)

    def _give_name(self, temporary: str, path: str) -> bool:
        won = self._calls.move(temporary, path)
        if not won:
            self._calls.unlink(temporary)
        return won

    def _copy(self, source: str, target: str) -> None:
        """Through this process: HDFS has no links. A death leaves a temporary file in staging, which goes with it."""
        if self._calls.size(target) is not None:
            return
        folder, name = os.path.split(source)
        temporary = os.path.join(folder, f".{name}.{self._new_id()}.tmp")
        data = self._calls.read(source)
        stream = self._calls.open_new(temporary)
        for at in range(0, len(data), _COPY_BYTES):
            stream.write(data[at : at + _COPY_BYTES])
        self._calls.close(stream, self._flush)
        self._give_name(temporary, target)


class _Stream(io.RawIOBase):
    """A file being written. Closed by itself it is given up: what was written so far is for its owner to delete."""

    def __init__(self, path: str, writer):
        super().__init__()
        self._path = path
        self._writer = writer
        self._written = 0

    def write(self, data) -> int:
        size = memoryview(data).nbytes
        _translated(self._path, lambda: self._writer.write(data))
        self._written += size
        return size

    def tell(self) -> int:
        return self._written

    def writable(self) -> bool:
        return True

    def finish(self, flush: bool) -> None:
        """The file is whole; with ``flush`` its bytes are on the DataNodes' disks, without it in their memory."""
        if flush and self._written:
            _translated(self._path, self._writer.hsync)
        _translated(self._path, self._writer.close)
        self.close()


def _translated(path: str, action: Callable[..., Any]):
    """Run; what the client raises for other failures of the NameNode becomes an OSError too."""
    try:
        return action()
    except FileNotFoundError as missing:
        raise FileNotFoundError(errno.ENOENT, "no such file", path) from missing
    except FileExistsError as exists:
        raise FileExistsError(errno.EEXIST, "file exists", path) from exists
    except OSError as failed:
        raise OSError(failed.errno or errno.EIO, _first_line(failed), path) from failed
    except RuntimeError as failed:
        text = str(failed)
        code = next((code for word, code in _MEANING.items() if word in text), errno.EIO)
        raise OSError(code, _first_line(failed), path) from failed


def _first_line(failed: Exception) -> str:
    """Without the NameNode's stack trace."""
    return str(failed).replace("\\n", "\n").split("\n", 1)[0]
