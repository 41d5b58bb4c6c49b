"""HDFS, through the Rust client ``hdfs-native``. See docs/design/0003-stores.md.

The client needs no JVM, so the Python workers of executors use it as well. A closed file is whole on every DataNode of
its pipeline, and after an ``hsync`` on their disks; a name is durable at once. Something is published by rename2
without OVERWRITE, which is one transaction of the NameNode. Unlike ``FileSystem.rename`` it never moves a file into a
folder that has the target's name.
"""

import errno
import io
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from streamsink.clock import Clock
from streamsink.errors import Misuse
from streamsink.storage.calls import CALLS_AT_ONCE, Calls, NameLimits, PosixLikeCalls
from streamsink.storage.file_io import DistantFileIO
from streamsink.storage.flush_group import FlushGroup, in_threads
from streamsink.storage.hold import BeatingHold, Hold

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# So often, and so far apart, a file is read again whose last block no node has reported yet. Sizes of blocks are
# multiples of _OF_BLOCKS bytes.
_MOST_READS, _READ_WAIT_MS, _OF_BLOCKS = 100, 50, 512
_COPY_BYTES = 8 * 1024 * 1024
# The NameNode's limits: of a name in bytes, unless the client's settings say what the limit was set to (0: none); of a
# path in characters.
_NAME_LIMIT, _MOST_NAME_BYTES, _MOST_PATH_CHARACTERS = "dfs.namenode.fs-limits.max-component-length", "255", 8000

# The errno of each refusal of the NameNode, by a word in its message.
_MEANING = {
    "AccessControlException": errno.EACCES,
    "PathComponentTooLongException": errno.ENAMETOOLONG,
    "Pathname too long": errno.ENAMETOOLONG,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "FileAlreadyExistsException": errno.EEXIST,
    "QuotaExceededException": errno.EDQUOT,
    "SafeModeException": errno.EROFS,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
}
# What the client says when no NameNode has answered. It gives no errno of its own.
_NO_ANSWER = re.compile(
    r"\(os error (?:32|101|103|104|110|111|112|113)\)|failed to lookup address|timed out|deadline has elapsed"
    r"|RPC listener disconnected|early eof|unexpected end of file"
)
# A first call does not wait for three minutes, as later ones do: the address may be wrong. Of so many tries, at one
# NameNode or at those of a name service, it takes ten seconds. The query's own settings come before these.
_MOST_ATTEMPTS, _TRIES_AT_FIRST = "dfs.client.failover.max.attempts", ("4", "8")
_WAITS_AT_FIRST = {"dfs.client.failover.sleep.base.millis": "500", "dfs.client.failover.sleep.max.millis": "5000"}
_CONNECT_S = 10.0
# The clusters, with their settings, of which a NameNode has answered this process.
_ANSWERED: set[tuple[str, frozenset[tuple[str, str]]]] = set()
_Result = TypeVar("_Result")


class HdfsCalls(Calls):
    """Remote calls to one file system. Paths are URIs that begin with ``root``, such as ``hdfs://namenode:8020``."""

    def __init__(self, root: str, config: Mapping[str, str]):
        """config: settings of a Hadoop client, which override those of the files in $HADOOP_CONF_DIR.

        Raises: Misuse.
        """
        try:
            import hdfs_native
        except ImportError as missing:
            raise Misuse(
                f"{root}: tables on HDFS need the package hdfs-native: pip install 'streamsink[hdfs]', on "
                "executors too",
                kind="store.extra-missing",
            ) from missing
        self._root = root
        self._clock = Clock()
        most = str(config.get(_NAME_LIMIT, _MOST_NAME_BYTES)).strip()
        self._most_name_bytes = int(most) if most.isdigit() else int(_MOST_NAME_BYTES)
        self._options = hdfs_native.WriteOptions
        # A root without an authority means the cluster's own default file system.
        url = None if root == "hdfs://" else root
        one, several = _TRIES_AT_FIRST
        at_first = {_MOST_ATTEMPTS: one if _port_of(root) else several, **_WAITS_AT_FIRST}
        try:
            self._patient, self._at_first = (
                _translated(root, partial(hdfs_native.Client, url, settings))
                for settings in (dict(config), {**at_first, **config})
            )
        except OSError as refused:
            if not any(word in str(refused) for word in ("InvalidArgument", "UrlParseError", "UnsupportedFeature")):
                raise
            raise _without_settings(root, refused) from refused
        self._place = root, frozenset(config.items())

    def read(self, path: str) -> bytes:
        """All bytes of a file.

        With ``dfs.namenode.file.close.num-committed-allowed`` a file may be closed before a node has reported its last
        block. Until then the client reads the file without that block, and its size is the whole one. Raises OSError
        when no node reports the block in time.
        """
        for left in reversed(range(_MOST_READS)):
            data = bytes(self._call(path, lambda client, at: client.read(at).read()))
            # Blocks are multiples of this size, so hardly any other file is asked for its size.
            if len(data) % _OF_BLOCKS or len(data) >= (size := self.size(path) or 0):
                return data
            if left:
                self._clock.sleep_ms(_READ_WAIT_MS)
        raise OSError(errno.EIO, f"its last block was not reported in time: {len(data)} of {size} bytes", path)

    def size(self, path: str) -> int | None:
        try:
            status = self._call(path, lambda client, at: client.get_file_info(at))
        except FileNotFoundError:
            return None
        return 0 if status.isdir else status.length

    def modified_ms(self, path: str) -> int | None:
        try:
            return int(self._call(path, lambda client, at: client.get_file_info(at)).modification_time)
        except FileNotFoundError:
            return None

    def entries(self, path: str) -> list[tuple[str, int, bool]]:
        try:
            found = self._call(path, lambda client, at: list(client.list_status(at)))
        except FileNotFoundError:
            return []
        return [(os.path.basename(s.path), 0 if s.isdir else s.length, s.isdir) for s in found]

    def mkdir(self, path: str) -> None:
        """Create a folder with its parents."""
        self._call(path, lambda client, at: client.mkdirs(at, create_parent=True))

    def open_new(self, path: str) -> BinaryIO:
        writer = self._call(path, lambda client, at: client.create(at, self._options()))
        return cast(BinaryIO, _Stream(path, writer))

    def close(self, stream: BinaryIO, flush: bool) -> None:
        cast(_Stream, stream).finish(flush)

    def unlink(self, path: str) -> bool | None:
        return self._call(path, lambda client, at: client.delete(at, False))

    def rmdir(self, path: str) -> None:
        """Remove a folder if it is empty, which the NameNode decides in one transaction."""
        try:
            self._call(path, lambda client, at: client.delete(at, False))
        except OSError as refused:
            if refused.errno != errno.ENOTEMPTY:
                raise

    def name_limits(self, path: str) -> NameLimits:
        return NameLimits(self._most_name_bytes or None, _MOST_PATH_CHARACTERS, self._root)

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it, in one call."""
        self._call(path, lambda client, at: client.delete(at, True))

    def at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        """Make calls concurrently: each waits for a network."""
        in_threads(actions, CALLS_AT_ONCE)

    def move(self, source: str, target: str) -> bool:
        """Rename a file; False if ``target`` is taken. Atomic.

        Raises: FileNotFoundError if there is no source, or no folder for the target. The client repeats a call whose
        connection broke; then the source may be missing because the first call has moved it.
        """
        try:
            self._call(source, lambda client, at: client.rename(at, self._below(target), False))
        except FileExistsError:
            return False
        return True

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing ``target``. Atomic."""
        self._call(source, lambda client, at: client.rename(at, self._below(target), True))

    def _call(self, path: str, action: Callable[..., Any]) -> Any:
        if self._place in _ANSWERED:
            return self._told(path, self._patient, action)
        self._knock(path)
        try:
            done = self._told(path, self._at_first, action)
        except TimeoutError:
            raise
        except OSError:
            _ANSWERED.add(self._place)  # it refuses what was asked, or has not what was looked for
            raise
        _ANSWERED.add(self._place)
        return done

    def _told(self, path: str, client: Any, action: Callable[..., Any]) -> Any:
        try:
            return _translated(path, lambda: action(client, self._below(path)))
        except TimeoutError as unanswered:
            if _port_of(self._root):
                raise
            where = os.environ.get("HADOOP_CONF_DIR") or "not set"
            named = f"by the NameNodes that store_options or the files in HADOOP_CONF_DIR ({where}) name"
            raise TimeoutError(errno.ETIMEDOUT, f"{unanswered.strerror}, {named}", path) from unanswered

    def _knock(self, path: str) -> None:
        """Raises TimeoutError where nobody takes a connection: the client alone would wait for minutes, several times.

        Whatever else is wrong there, the client finds out.
        """
        host, port = self._root[len("hdfs://") :].rpartition(":")[0].strip("[]"), _port_of(self._root)
        if port is None:
            return
        try:
            socket.create_connection((host, port), timeout=_CONNECT_S).close()
        except TimeoutError as unanswered:
            raise TimeoutError(errno.ETIMEDOUT, f"no connection within {_CONNECT_S:g} s", path) from unanswered
        except OSError:
            return

    def _below(self, path: str) -> str:
        return path[len(self._root) :] or "/"


class HdfsFileIO(DistantFileIO):
    """FileIO over HDFS, where publishing is a rename that does not replace, and folders need no sync."""

    takes_files_of_others = False
    lists_sizes = True

    def __init__(self, calls: HdfsCalls, new_id: Callable[[], str], flush: bool = True):
        # The methods that need other POSIX calls than ``mkdir`` and ``rename`` are overridden here, or are not called
        # on this store: ``open_input``, ``flush_file``, ``try_hold``.
        super().__init__(cast(PosixLikeCalls, calls), new_id, flush)

    @property
    def _hdfs(self) -> HdfsCalls:
        return cast(HdfsCalls, self._calls)  # what the constructor got, or a wrapper of a test around it

    def make_dir(self, path: str) -> None:
        self._hdfs.mkdir(path)

    begin_dir = make_dir

    def _begin_names(self, folder: str, staging: str, group: FlushGroup) -> None:
        self._hdfs.mkdir(folder)

    def place(self, source: str, target: str, keep_source: bool) -> None:
        try:
            if keep_source:
                self._in_dir(target, lambda: self._copy(source, target))
            else:
                # The result is False if an earlier attempt has already moved the file.
                self._in_dir(target, lambda: self._hdfs.move(source, target))
        except FileNotFoundError:
            if self._hdfs.size(target) is None:
                raise

    def sync_dir(self, path: str) -> None:
        """Does nothing: names are durable at once, because the NameNode logs them before it answers."""

    def delete_all(self, paths: Sequence[str]) -> None:
        self._hdfs.at_once([partial(self.delete, path) for path in paths])

    def delete_tree(self, path: str) -> None:
        self._hdfs.remove_tree(path)

    def hold(self, folder: str) -> Hold:
        return BeatingHold(self, folder)

    def _give_name(self, temporary: str, path: str) -> bool:
        won = self._hdfs.move(temporary, path)
        if not won:
            self._hdfs.unlink(temporary)
        return won

    def _copy(self, source: str, target: str) -> None:
        """Copy a file through this process, because HDFS has no links.

        A crash leaves a temporary file in staging, which is deleted with it.
        """
        if self._hdfs.size(target) is not None:
            return
        folder, name = os.path.split(source)
        temporary = os.path.join(folder, f".{name}.{self._new_id()}.tmp")
        data = self._hdfs.read(source)
        stream = self._hdfs.open_new(temporary)
        for at in range(0, len(data), _COPY_BYTES):
            stream.write(data[at : at + _COPY_BYTES])
        self._hdfs.close(stream, self._flush)
        self._give_name(temporary, target)


class _Stream(io.RawIOBase):
    """A file that is being written.

    ``close`` without ``finish`` gives it up, and its owner deletes what was written.
    """

    def __init__(self, path: str, writer: Any):
        super().__init__()
        self._path = path
        self._writer = writer
        self._written = 0

    def write(self, data: "ReadableBuffer") -> int:
        size = memoryview(data).nbytes
        _translated(self._path, lambda: self._writer.write(data))
        self._written += size
        return size

    def tell(self) -> int:
        return self._written

    def writable(self) -> bool:
        return True

    def finish(self, flush: bool) -> None:
        """Close the file whole; its bytes are then on the DataNodes' disks, or without ``flush`` in their memory."""
        if flush and self._written:
            _translated(self._path, self._writer.hsync)
        _translated(self._path, self._writer.close)
        self.close()


def _port_of(root: str) -> int | None:
    """The port in ``hdfs://host:port``; None for a name service, and for the cluster's own default file system."""
    port = root.rpartition("]")[2].rpartition(":")[2]
    return int(port) if port.isdecimal() else None


def _translated(path: str, action: Callable[[], _Result]) -> _Result:
    """Run ``action``; the client's errors, also its RuntimeErrors for refusals of the NameNode, become OSErrors."""
    try:
        return action()
    except FileNotFoundError as missing:
        raise FileNotFoundError(errno.ENOENT, "no such file", path) from missing
    except FileExistsError as exists:
        raise FileExistsError(errno.EEXIST, "file exists", path) from exists
    except OSError as failed:
        said = _first_line(failed)
        if _NO_ANSWER.search(said):
            raise TimeoutError(errno.ETIMEDOUT, said, path) from failed
        raise OSError(failed.errno or errno.EIO, said, path) from failed
    except RuntimeError as failed:
        text = str(failed)
        code = next((code for word, code in _MEANING.items() if word in text), errno.EIO)
        raise OSError(code, _first_line(failed), path) from failed


def _without_settings(root: str, refused: OSError) -> Misuse:
    """The client asks nobody before the first call: it has found no NameNode for this name in its settings."""
    where = os.environ.get("HADOOP_CONF_DIR") or "not set"
    return Misuse(
        f"{root}: the client of HDFS refuses its settings: {refused.strerror}. Nothing was written. HADOOP_CONF_DIR is "
        f"{where}, expected the folder of the cluster's core-site.xml and hdfs-site.xml, on executors too "
        "(spark.executorEnv.HADOOP_CONF_DIR). Or give what these say of the name service in store_options, or a path "
        "with the NameNode's host and port",
        kind="store.options",
    )


def _first_line(failed: Exception) -> str:
    """The message without the NameNode's stack trace."""
    return str(failed).replace("\\n", "\n").split("\n", 1)[0]
