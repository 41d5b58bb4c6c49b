"""A query without Spark whose table a real Hive Metastore knows, what that metastore says, and a door before it."""

import socket
import threading
import uuid

import pyarrow as pa

from streamsink.locks.hive_client import HiveClient
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import open_table
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.services.ports import LOOPBACK

NARROW = pa.schema([("id", pa.int64()), ("part", pa.string())])
WIDE = NARROW.append(pa.field("Note", pa.string()))


class Query:
    """A query over a numbered source into ``<folder>/<database>.db/orders``, with a database of its own."""

    def __init__(self, folder, uri, schema=NARROW, *, name="orders", catalog=None, **options):
        self.database = f"d{uuid.uuid4().hex[:12]}"
        self.name, self.uri = name, uri
        self.root = f"{folder}/{self.database}.db/{name}"
        self.catalog = {"metastore": "hive", "uri": uri, **(catalog or {})}
        self.checkpoint = SparkCheckpoint(str(uuid.uuid4()))
        self.options = {"partition_by": ("part",), "add_columns": True, "catalog": self.catalog, **options}
        self.driver = self.writing(schema)

    def writing(self, schema) -> MicroBatchDriver:
        """The driver for rows of these columns."""

        def rows(start, end):
            values = {"id": list(range(start, end)), "part": ["a"] * (end - start), "Note": ["n"] * (end - start)}
            return pa.record_batch([pa.array(values[f.name], f.type) for f in schema], schema=schema)

        self.driver = MicroBatchDriver(self.root, schema, rows, SinkOptions.of(self.root, self.options))
        return self.driver

    def run(self, *boundaries) -> None:
        """A start of the query, and all batches up to the last boundary."""
        self.driver.run(local_file_io(False), self.checkpoint, boundaries)

    def start(self):
        """A start of the query, whose batches the test gives by hand."""
        return self.driver.start(local_file_io(False), self.checkpoint)

    def batch(self, driven, end) -> None:
        """One batch up to this number."""
        self.checkpoint.ends.append(end)
        driven.batch(self.driver.describe(self.checkpoint, len(self.checkpoint.ends) - 1))
        self.checkpoint.committed = len(self.checkpoint.ends)

    def rows(self) -> list[int]:
        """The numbers that a reader sees."""
        table = open_table(local_file_io(False), self.root, for_writing=False)
        return sorted(read_arrow(table).column("id").to_pylist())

    def told(self, kind) -> list:
        """The events of this kind."""
        return [event for event in self.driver.events if isinstance(event, kind)]

    def in_metastore(self):
        """What the metastore has under the table's name; None when there is nothing."""
        return found(self.uri, self.database, self.name)


def asking(uri, action):
    """What ``action`` returns for the generated client of a metastore."""
    host, port = uri.removeprefix("thrift://").split(":")
    client = HiveClient(host, int(port))
    try:
        return action(client)
    finally:
        client.close()


def found(uri, database, table):
    """A metastore's table; None when there is none."""

    def ask(client):
        try:
            return client.call(lambda c: c.get_table(database, table))
        except client.types.NoSuchObjectException:
            return None

    return asking(uri, ask)


def columns(table) -> list[tuple[str, str]]:
    """(name, type) of the columns of a metastore's table."""
    return [(each.name, each.type) for each in table.sd.cols]


class Door:
    """A port before a server's, which a test closes and opens. Connections that are through end with it."""

    def __init__(self, port: int):
        self._to = port
        self._listener: socket.socket | None = None
        self._through: list[socket.socket] = []
        self.port = 0
        self.calls = 0  # connections that came to an open door

    @property
    def uri(self) -> str:
        return f"thrift://{LOOPBACK}:{self.port}"

    def open(self) -> "Door":
        self._listener = socket.create_server((LOOPBACK, self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()
        return self

    def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for each in self._through:
            each.close()
        self._through.clear()

    def _serve(self, listener) -> None:
        try:
            while True:
                inner, _ = listener.accept()
                outer = socket.create_connection((LOOPBACK, self._to))
                self.calls += 1
                self._through += [inner, outer]
                for here, there in ((inner, outer), (outer, inner)):
                    threading.Thread(target=_pass_on, args=(here, there), daemon=True).start()
        except OSError:
            return  # the door was closed


def _pass_on(here, there) -> None:
    try:
        while data := here.recv(65536):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)
    except OSError:
        return
