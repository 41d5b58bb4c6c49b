"""Iceberg metadata on S3, as pyiceberg reads it there, and behind deaths at its requests."""

import uuid

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.storage.s3 import S3FileIO
from streamsink.storage.stores import store_of
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from tests.crash.world import World, ends_right
from tests.iceberg_metadata.mirrored import AT_TABLE, SCHEMA, STORAGE, check_named, rows_of
from tests.iceberg_metadata.test_crash import OPTIONS
from tests.storage.memory_s3 import MemoryS3Calls

MOST_REQUESTS = 25


def _rows(start, end):
    numbers = list(range(start, end))
    return pa.RecordBatch.from_pydict({"id": numbers, "part": ["ab"[n % 2] for n in numbers]}, schema=SCHEMA)


@pytest.mark.in_turn("Iceberg metadata on S3", 1)
@pytest.mark.parametrize("storage", ["table-location", "hadoop-catalog"])
def test_a_table_on_s3(s3_server, storage):
    """The next number is created only if nobody has it, as each snapshot; readers see each batch."""
    from pyiceberg.table import StaticTable

    given = s3_server.options
    warehouse = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    root = f"{warehouse}/shop.db/orders"
    folder = f"{root}/metadata" if storage == "table-location" else f"{warehouse}/iceberg/shop/orders/metadata"
    options = {"partition_by": ("part",), "store_options": given, "table_options": {STORAGE: storage}}
    driver = MicroBatchDriver(root, SCHEMA, _rows, SinkOptions.of(root, options))
    checkpoint, io = SparkCheckpoint(IdSource().new_id()), store_of(root, given).open()
    for ends in ((5,), (5, 9, 9), (5, 9, 9, 20)):
        driver.run(io, checkpoint, ends)
        table = open_table(io, root, for_writing=False)
        number = check_named(table, folder)
        found = StaticTable.from_metadata(
            f"{folder}/v{number}.metadata.json",
            properties={
                "s3.endpoint": given["s3.endpoint"],
                "s3.access-key-id": given["s3.access-key"],
                "s3.secret-access-key": given["s3.secret-key"],
                "s3.region": "us-east-1",
            },
        )
        assert rows_of(found.scan().to_arrow()) == rows_of(read_arrow(table))
        assert len(rows_of(read_arrow(table))) == ends[-1]


_ROOT = "s3://bucket/shop.db/orders"


def _world(options) -> World:
    def make_io(over):
        return S3FileIO(over, IdSource().new_id, _ROOT)

    return World(MemoryS3Calls(), _ROOT, make_io=make_io, table_options=options)


def _died_at(number) -> bool:
    world = _world(OPTIONS)
    try:
        world.run(CrashingCalls(world.calls, number, Mode.BEFORE))
    except InjectedCrash:
        ends_right(world, f"request {number}")
        check_named(open_table(world.file_io(world.calls), _ROOT, for_writing=False), f"{_ROOT}/metadata")
        return True
    return False


@pytest.mark.parametrize("stride", [90, pytest.param(5, marks=pytest.mark.soak)])
def test_deaths_at_requests_of_s3(stride, rng):
    """Each row once, and the metadata up to date behind the start."""
    first, number = rng.randrange(1, stride), 0
    for number in range(first, 2000, stride):
        if not _died_at(number):
            break
    assert number > 200


def test_a_store_is_asked_little():
    """So many requests a commit costs for its metadata; as docs/ICEBERG_METADATA.md says."""
    counted = []
    for options in ({}, AT_TABLE):
        world = _world(options)
        world.run(boundaries=(3, 6, 9))
        calls = CrashingCalls(world.calls)
        world.run(calls, boundaries=(3, 6, 9, 12, 15, 18, 21))
        counted.append(calls.count)
    assert counted[1] - counted[0] <= 4 * MOST_REQUESTS, counted
