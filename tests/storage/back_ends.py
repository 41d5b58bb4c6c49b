"""The stores on which the same tests run: the local disk, models in memory, a real HDFS, two real S3 servers."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamsink.clock import IdSource
from streamsink.locks.locked_file_io import under_lock
from streamsink.options import SinkOptions
from streamsink.storage.calls import Calls, PosixCalls
from streamsink.storage.database import DatabaseCalls, DatabaseFileIO
from streamsink.storage.file_io import FileIO
from streamsink.storage.hdfs import HdfsCalls, HdfsFileIO
from streamsink.storage.s3 import S3FileIO
from streamsink.storage.s3_calls import S3Calls
from streamsink.testing.memory import MemoryCalls
from tests.services import postgres
from tests.storage.memory_s3 import IgnoringS3Calls, MemoryS3Calls

REMOTE = ("hdfs", "s3")
ALL = ("local", "memory", "memory-s3", *REMOTE)
DATABASES = ("sqlite", "postgresql")
LOCKED = "memory-s3-locked"
SECOND_S3 = "s3-files"
_S3 = {"s3": "s3_server", SECOND_S3: "second_s3_server"}


@dataclass
class BackEnd:
    """A store with a folder of the test's own. place: of a database that is the store."""

    kind: str
    root: str
    calls: Calls
    options: Mapping[str, str] = field(default_factory=dict)
    place: str = ""

    def io(self, calls: Calls | None = None) -> FileIO:
        """A FileIO over these calls, such as ones that crash, or over the store's own."""
        calls, new_id = calls or self.calls, IdSource().new_id
        if self.kind == "hdfs":
            return HdfsFileIO(calls, new_id)
        if self.kind in DATABASES:
            return DatabaseFileIO(calls, new_id)
        if self.kind in (*_S3, "memory-s3"):
            return S3FileIO(calls, new_id, self.root)
        if self.kind == LOCKED:
            return under_lock(S3FileIO(calls, new_id, self.root), self.root, SinkOptions.of(self.root, self.options))
        return FileIO(calls, new_id)


def back_end(kind: str, request) -> BackEnd:
    """One of ``ALL``, ``LOCKED`` or ``SECOND_S3``. Its server is started when this is the first test that needs it."""
    name = uuid.uuid4().hex
    if kind == "hdfs":
        uri = request.getfixturevalue("hdfs_cluster").uri
        return BackEnd(kind, f"{uri}/{name}", HdfsCalls(uri, {}))
    if kind in DATABASES:
        place, options = database(kind, request)
        return BackEnd(kind, f"{place}/{name}", DatabaseCalls(place, options), options, place)
    if kind in _S3:
        server = request.getfixturevalue(_S3[kind])
        return BackEnd(kind, f"s3://{server.bucket}/{name}", S3Calls(server.options), server.options)
    if kind == "memory-s3":
        return BackEnd(kind, f"s3://bucket/{name}", MemoryS3Calls())
    if kind == LOCKED:
        folder = request.getfixturevalue("tmp_path")
        lock = {"lock": f"file:{folder}", "lock_id": "jdbc.shop.orders"}
        return BackEnd(kind, f"s3://bucket/{name}", IgnoringS3Calls(), lock)
    if kind == "memory":
        made = BackEnd(kind, f"/{name}", MemoryCalls())
        made.io().make_dir(made.root)
        return made
    return BackEnd(kind, str(request.getfixturevalue("tmp_path")), PosixCalls())


def database(kind: str, request) -> tuple[str, dict[str, str]]:
    """The place of a journal in a database, and how to connect to it."""
    if kind == "sqlite":
        return f"sqlite:{request.getfixturevalue('tmp_path')}/journal.db", {}
    server = request.getfixturevalue("postgres")
    place = f"postgresql://{postgres.USER}@{postgres.LOOPBACK}:{server.port}/{postgres.DATABASE}"
    return place, {"password": postgres.PASSWORD}
