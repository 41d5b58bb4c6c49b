"""Directories of plain files: each row once, readable by whoever reads such files."""

import contextlib
import datetime
import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.options import SinkOptions
from streamsink.sink import FileSink, to_sink
from streamsink.storage.file_io import FileIO
from streamsink.testing.conformance import SCHEMA, check_sink
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.sinks.lake import rows

READ = {
    "parquet": lambda data: pq.ParquetFile(io.BytesIO(data)).read(use_threads=False),
    "csv": lambda data: pyarrow.csv.read_csv(io.BytesIO(data)),
    "json": lambda data: pa.Table.from_pylist([json.loads(line) for line in data.decode().splitlines()]),
}


def named(file_io, root: str) -> list[str]:
    """The files that manifests name."""
    found = []
    for application in file_io.entries(f"{root}/_commits"):
        folder = f"{root}/_commits/{application.name}"
        for name in (name for name in file_io.names(folder) if name.endswith(".json")):
            found += json.loads(file_io.read(f"{folder}/{name}"))["files"]
    return found


def rows_of(file_io, root: str) -> list[int]:
    return [
        row
        for name in named(file_io, root)
        for row in READ[name.rpartition(".")[2]](file_io.read(f"{root}/{name}")).column("id").to_pylist()
    ]


@pytest.mark.in_turn("directories in the suite of all sinks", 1)
@pytest.mark.parametrize("form", list(READ))
def test_a_directory_of_files_passes(form):
    """Some of the calls are tried, in every way; the soak tries all."""
    assert check_sink(lambda root: FileSink(root, form), rows_of, every=29) > 60


@pytest.mark.soak
@pytest.mark.parametrize("form", list(READ))
def test_a_directory_of_files_passes_at_every_call(form):
    assert check_sink(lambda root: FileSink(root, form), rows_of) > 1_500


class World:
    """One query into a directory, in memory."""

    def __init__(self, schema=SCHEMA, make=rows, **sink):
        self.store, self.checkpoint = MemoryCalls(), SparkCheckpoint("query")
        self.sink, self._schema, self._make = FileSink("/out", **sink), schema, make

    def io(self, calls=None) -> FileIO:
        return FileIO(calls or self.store, IdSource().new_id)

    def run(self, *ends, calls=None, **options):
        settings = SinkOptions.of("/out", {"restore": "restore-and-continue", **options})
        driver = MicroBatchDriver("/out", self._schema, self._make, settings)
        driver.destination = lambda: self.sink
        driver.run(self.io(calls), self.checkpoint, ends)

    def tables(self) -> list[pa.Table]:
        return [READ[self.sink.format](self.io().read(f"/out/{name}")) for name in named(self.io(), "/out")]


def test_each_checkpoint_is_marked_when_all_of_it_is_there():
    """Also one whose driver died between the manifest and the marker, and one without rows."""
    counting = CrashingCalls(MemoryCalls())
    World().run(3, 5, 5, calls=counting)
    for number in range(1, counting.count + 1, 2):
        world = World()
        with contextlib.suppress(InjectedCrash, OSError, StreamsinkError):
            world.run(3, 5, 5, calls=CrashingCalls(world.store, number))
        world.store.process_death()
        published = {name.partition(".")[0] for name in world.io().names("/out/_commits/streamsink")}
        for each in world.io().entries("/out"):
            if "_SUCCESS" in world.io().names(f"/out/{each.name}"):
                assert each.name.rpartition("-")[2] in published, "marked before it was visible"
        world.run(3, 5, 5)
        for checkpoint in (1, 2, 3):
            assert "_SUCCESS" in world.io().names(f"/out/checkpoint=streamsink-{checkpoint:010}"), f"call {number}"


def test_without_a_marker_there_is_none():
    world = World(marker="")
    world.run(3)
    assert "_SUCCESS" not in world.io().names("/out/checkpoint=streamsink-0000000001")


def test_a_file_ends_when_it_is_large(monkeypatch):
    """Its rows are kept a few at a time."""
    monkeypatch.setattr("streamsink.sinks.directory.file_formats._TOGETHER", 1)
    for form in READ:
        world = World(format=form)
        world.run(5_000, target_file_bytes=1)
        world.run(5_000, 5_001, target_file_bytes=1)
        assert len(named(world.io(), "/out")) == 2 and sorted(rows_of(world.io(), "/out")) == list(range(5_001))


VALUES = pa.schema(
    [
        ("text", pa.string()),
        ("money", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("yes", pa.bool_()),
        ("real", pa.float64()),
    ]
)
ROWS = [
    {
        "text": 'a "quoted", line\nand é',
        "money": Decimal("12.50"),
        "day": datetime.date(2026, 11, 27),
        "at": datetime.datetime(2026, 11, 27, 1, 2, 3, 4, tzinfo=datetime.timezone.utc),
        "yes": True,
        "real": 1.5,
    },
    {"text": "", "money": None, "day": None, "at": None, "yes": None, "real": None},
]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_values_come_back_as_they_were(form):
    world = World(VALUES, lambda first, end: pa.RecordBatch.from_pylist(ROWS[first:end], VALUES), format=form)
    world.run(2)
    (found,) = world.tables()
    if form == "csv":
        (name,) = named(world.io(), "/out")
        types = pyarrow.csv.ConvertOptions(
            column_types=VALUES, strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
        data = io.BytesIO(world.io().read(f"/out/{name}"))
        found = pyarrow.csv.read_csv(data, convert_options=types, parse_options=parse)
    assert found.cast(VALUES).to_pylist() == ROWS


def test_values_as_json_are_as_the_page_says():
    world = World(VALUES, lambda first, end: pa.RecordBatch.from_pylist(ROWS[first:end], VALUES), format="json")
    world.run(2)
    (name,) = named(world.io(), "/out")
    first = json.loads(world.io().read(f"/out/{name}").splitlines()[0])
    assert first == {
        "text": ROWS[0]["text"],
        "money": "12.50",
        "day": "2026-11-27",
        "at": "2026-11-27 01:02:03.000004Z",
        "yes": True,
        "real": 1.5,
    }


@follows("files.column")
@pytest.mark.parametrize(
    ("form", "column", "kind"),
    [("csv", "tags", pa.list_(pa.string())), ("csv", "raw", pa.binary()), ("parquet", "Checkpoint", pa.int64())],
)
def test_columns_that_a_file_cannot_have_are_refused(form, column, kind):
    schema = pa.schema([("id", pa.int64()), (column, kind)])
    world = World(schema, lambda first, end: pa.RecordBatch.from_pylist([{"id": 1}], schema), format=form)
    said = told("files.column", lambda: world.run(1)).says(f"'{column}'", "Nothing was written")
    assert world.io().entries("/out") == []
    if form == "csv":
        world.sink = FileSink("/out", said.find(r"Write format='(\w+)'"))
        world.run(1)
        assert len(named(world.io(), "/out")) == 1


@follows("files.format", "files.marker")
@pytest.mark.parametrize(("kind", "wrong"), [("files.format", {"format": "orc"}), ("files.marker", {"marker": "done"})])
def test_wrong_values_are_refused(kind, wrong):
    world = World(**wrong)
    told(kind, lambda: world.run(1)).says("expected", "Nothing was written")
    assert world.io().entries("/out") == []
    world.sink = FileSink("/out")
    world.run(1)
    assert rows_of(world.io(), "/out") == [0]


def test_what_was_lost_is_published_again_when_the_user_asks_for_it():
    """Files and manifest were deleted by hand."""
    world = World()
    world.run(3, 5, on_rollback="republish")
    world.io().delete_tree("/out/checkpoint=streamsink-0000000002")
    world.io().delete("/out/_commits/streamsink/0000000002.json")
    world.run(3, 5, 6, on_rollback="republish")
    assert sorted(rows_of(world.io(), "/out")) == list(range(6))


@pytest.mark.spark
@pytest.mark.parametrize("form", list(READ))
def test_spark_reads_what_was_written(spark, tmp_path, form):
    """By the directory alone; the folders are a column."""
    for day in range(2):
        (tmp_path / f"in{day}.json").write_text('{"id": 1, "name": "x"}\n{"id": 2, "name": null}\n')
    out = str(tmp_path / "out")
    frame = spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1)
    query = (
        frame.json(str(tmp_path / "in*.json"))
        .writeStream.foreachBatch(to_sink(FileSink(out, form)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.read.option("header", True).format(form).load(out)
    assert sorted((int(row["id"]), row["name"], row["checkpoint"]) for row in found.collect()) == sorted(
        (number, name, f"streamsink-{checkpoint:010}")
        for checkpoint in (1, 2)
        for number, name in ((1, "x"), (2, None))
    )
