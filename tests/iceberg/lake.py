"""An Iceberg table, with its catalog and all its files in memory, and one query that writes it."""

import io
import uuid
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

from streamsink.clock import IdSource
from streamsink.iceberg import IcebergSink
from streamsink.options import SinkOptions
from streamsink.storage.calls import PosixLikeCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.conformance import ROOT, SCHEMA
from streamsink.testing.crashing import dies_at
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.memory import MemoryCalls
from tests.iceberg.store_files import StoreFileIO
from tests.iceberg.tables_catalog import KNOWN, Tables

TABLE = "shop.orders"
# By the name of a world, the store in which its files are.
_STORES: dict[str, FileIO] = {}


class MemoryFileIO(StoreFileIO):
    """pyiceberg's files in a store in memory."""

    def _io(self) -> FileIO:
        return _STORES[self.properties["world"]]


class CountedSink(IcebergSink):
    """What pyiceberg does for a driver goes through the driver's own store, so that it is counted and dies with it."""

    def open(self, file_io, *args):
        _STORES[self.catalog_properties["world"]] = file_io
        return super().open(file_io, *args)


def rows(first: int, end: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(range(first, end)), "version": [0] * (end - first)}, schema=SCHEMA)


class Lake:
    """One table and one query."""

    def __init__(self, **of_sink):
        self.name = uuid.uuid4().hex
        self.of_sink = of_sink
        self.meanwhile: Callable[[], None] = lambda: None  # called once, when the rows of a batch are asked for
        self.drop()
        self.calls, self.checkpoint = MemoryCalls(), SparkCheckpoint("query")
        self.io()

    def drop(self) -> None:
        """Forget what the catalog knows."""
        KNOWN[self.name] = Tables()

    @property
    def tables(self) -> Tables:
        return KNOWN[self.name]

    def io(self, calls: PosixLikeCalls | None = None) -> FileIO:
        """The store, in which pyiceberg writes from now on."""
        _STORES[self.name] = FileIO(calls or self.calls, IdSource().new_id)
        return _STORES[self.name]

    @property
    def properties(self) -> dict[str, str]:
        own = {"py-catalog-impl": "tests.iceberg.tables_catalog.TablesCatalog", "world": self.name}
        return own | {"py-io-impl": f"{__name__}.MemoryFileIO", "warehouse": ROOT}

    def sink(self, **changes) -> IcebergSink:
        return CountedSink(TABLE, "lake", self.properties, **{"journal": ROOT, **self.of_sink, **changes})

    def catalog(self):
        return load_catalog("lake", **self.properties)

    def table(self):
        return self.catalog().load_table(TABLE)

    def run(self, ends, over=None, **options) -> None:
        def given(first: int, end: int) -> pa.RecordBatch:
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
            return rows(first, end)

        driver = MicroBatchDriver(
            "lake.shop.orders", SCHEMA, given, SinkOptions.of(TABLE, {"restore": "restore-and-continue", **options})
        )
        driver.destination = self.sink
        driver.run(self.io(over), self.checkpoint, ends)

    def begin_anew(self) -> None:
        """A new checkpoint."""
        self.checkpoint = SparkCheckpoint("query")

    def record(self, ends, **options) -> None:
        """The driver dies when its batch is recorded."""
        assert dies_at("precommit.saved", 1, self.calls, lambda calls: self.run(ends, calls, **options))
        self.calls.process_death()
        self.io()

    def ids(self) -> list[int]:
        """What a reader sees."""
        return ids_of(self.io(), self.catalog())

    def append(self, first: int, end: int) -> None:
        """pyiceberg itself writes rows."""
        self.table().append(pa.Table.from_batches([rows(first, end)]))

    def left(self) -> list[str]:
        """Data files that no snapshot names."""
        named = set(self.table().inspect.all_files().column("file_path").to_pylist())
        return [path for path in self.io().files_below(f"{ROOT}/shop/orders/data") if path not in named]


def ids_of(file_io: FileIO, catalog) -> list[int]:
    """The ids of all rows that a reader of the table sees; none where it is not there yet."""
    if not catalog.table_exists(TABLE):
        return []
    paths = catalog.load_table(TABLE).inspect.files().column("file_path").to_pylist()
    found = [pq.read_table(io.BytesIO(file_io.read(path)), columns=["id"]).column("id").to_pylist() for path in paths]
    return sorted(number for numbers in found for number in numbers)
