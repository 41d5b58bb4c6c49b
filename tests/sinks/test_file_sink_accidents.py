"""What operators and users do to directories of plain files, and rows that such files cannot hold."""

import contextlib
import copy
import json
import math
import re
from pathlib import Path

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.decision import Checkpoint, Decision, Verdict
from streamsink.sink import FileSink, to_sink
from streamsink.storage.file_io import FileIO
from streamsink.storage.s3 import S3FileIO
from streamsink.testing.conformance import SCHEMA
from streamsink.testing.crashing import CrashingCalls, dies_at
from streamsink.testing.driver import columns
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.sinks.shown import DOCS, plain_files
from tests.sinks.test_file_sink import READ, World, named, rows_of
from tests.storage.memory_s3 import MemoryS3Calls


def test_a_directory_is_one_however_it_is_spelled(tmp_path, monkeypatch):
    """Else 'file:///out' would be a folder of the working directory, and a start elsewhere would find nothing."""
    monkeypatch.chdir(tmp_path)
    out = str(tmp_path / "out")
    for spelled in (Path(out), f"{out}/", f"file://{out}", "out", f"{out}/../out"):
        assert FileSink(spelled) == FileSink(out)
        assert to_sink(FileSink(spelled)).path == out
    assert FileSink("s3://bucket/out/") == FileSink("s3://bucket/out")


@follows("sink.path")
@pytest.mark.parametrize("wrong", ["file://{}", "{}/", "out", "{}/../out"])
def test_a_sink_of_somebody_else_is_given_the_path_that_its_store_takes(tmp_path, monkeypatch, wrong):
    """It would write into a folder 'file:' of the working directory, or beside what it wrote before."""
    monkeypatch.chdir(tmp_path)
    out = str(tmp_path / "out")
    said = told("sink.path", lambda: to_sink(plain_files(wrong.format(out)))).says("Nothing was written")
    assert to_sink(plain_files(said.find(r"the path '(.*)'"))).path == out and list(tmp_path.iterdir()) == []


class S3World(World):
    """The same on S3."""

    def __init__(self):
        super().__init__()
        self.store, self.sink = MemoryS3Calls(), FileSink("s3://bucket/out")

    def io(self, calls=None):
        return S3FileIO(calls or self.store, IdSource().new_id, self.sink.path)


def test_what_a_death_has_left_of_trying_out_a_store_is_taken_off_by_the_next_start():
    """At each call of the first start in turn. Formerly it stayed, and the next start took it for a file of others."""
    at = 0
    while True:
        at += 1
        world = S3World()
        try:
            world.run(3, calls=CrashingCalls(world.store, at))
            break
        except InjectedCrash:
            world.run(3)
        left = [path for path in world.io().files_below("s3://bucket/out") if "probe" in path]
        assert left == [] and sorted(rows_of(world.io(), "s3://bucket/out")) == [0, 1, 2], at
    assert at > 10


@follows("destination.no-id")
@pytest.mark.parametrize("make", [World, S3World])
@pytest.mark.parametrize("gone", ["_streamsink", "_streamsink/id"])
def test_a_directory_whose_identity_is_lost_is_not_taken_for_a_new_one(make, gone):
    """To begin anew, as a dropped destination does, would write all rows once more. The way on needs no backup."""
    world = make()
    world.run(3, 5)
    out = world.sink.path
    world.io().delete_tree(f"{out}/{gone}") if gone == "_streamsink" else world.io().delete(f"{out}/{gone}")
    told("destination.no-id", lambda: world.run(3, 5, 6)).says(
        "'id'", "Nothing was written", "any manifest", "table_id"
    )
    state = json.loads(world.io().read(f"{out}/_commits/streamsink/0000000002.json"))["state"]
    world.io().create_if_absent(f"{out}/_streamsink/id", state["table_id"].encode() + b"\n")  # as an editor ends it
    world.run(3, 5, 6)
    assert sorted(rows_of(world.io(), out)) == list(range(6))


def test_no_file_is_so_large_that_it_could_not_get_its_final_name():
    """That would be found behind the record, and again by each start."""
    file_io = S3FileIO(MemoryS3Calls(), IdSource().new_id, "s3://bucket/out")
    settings = SinkOptions.of("s3://bucket/out", {"target_file_bytes": 2**50})
    fields = columns(SCHEMA)
    batch = Batch(0, "query", "run")
    opened = FileSink("s3://bucket/out").open(file_io, settings, batch, lambda: fields, lambda event: None)
    writing = opened.writing(Checkpoint(batch, Decision(Verdict.NEW, ""), 1, "s3://bucket/staging", 0.0), fields, ())
    assert writing.most_bytes < file_io.largest_file


@pytest.mark.parametrize("keeps", [False, True])
def test_files_are_copied_only_for_a_rollback(keeps, monkeypatch):
    """A store without links, HDFS, would copy each of them through the driver."""
    seen, place = [], FileIO.place
    monkeypatch.setattr(FileIO, "place", lambda *given: (seen.append(given[-1]), place(*given)))
    world = World()
    world.run(3, 5, **({"on_rollback": "republish"} if keeps else {}))
    assert seen == [keeps, keeps] and sorted(rows_of(world.io(), "/out")) == list(range(5))


ONE = pa.schema([("text", pa.string())])


@follows("files.empty-line")
@pytest.mark.parametrize("way", ["format", "column", "rows"])
def test_a_row_that_would_be_an_empty_line_is_refused(way):
    """Readers of CSV leave empty lines out, and the row would be lost."""
    values = ["a", None, ""]
    world = World(ONE, lambda first, end: pa.RecordBatch.from_pydict({"text": values[first:end]}, ONE), format="csv")
    world.run(1)
    said = told("files.empty-line", lambda: world.run(1, 3)).says(
        "/out: ", "'text'", "add a column", "Leave such rows out"
    )
    assert world.io().names("/out/_streamsink/streamsink/streamsink/staging") == []
    if way == "format":
        world.sink = FileSink("/out", said.find(r"format='(\w+)'"))
    elif way == "column":
        two = pa.schema([*ONE, ("more", pa.int64())])
        world._schema = two
        world._make = lambda first, end: pa.RecordBatch.from_pylist([{"text": v} for v in values[first:end]], two)
    else:
        values[1] = "b"
    world.run(1, 3)
    rows = [world.io().read(f"/out/{name}").decode().splitlines() for name in named(world.io(), "/out")]
    assert {len(lines) for lines in rows} == ({2} if way == "format" else {2, 3}) and all(map(all, rows))


@follows("files.time")
@pytest.mark.parametrize("of", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()])
def test_a_time_that_has_no_text_is_refused(of):
    """Arrow writes 'value out of range' or fails with words of its own, and readers take the first for null."""
    schema = pa.schema([("at", of), ("n", pa.int64())])
    days = [0, -40_000_000, 2_932_896]
    numbers = days if of == pa.date32() else [day * 86_400_000_000 for day in days]
    column = pa.array(numbers, pa.int32() if of == pa.date32() else pa.int64()).cast(of)

    def rows(first: int, end: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([column[first:end], pa.array(range(first, end))], schema=schema)

    world = World(schema, rows, format="csv")
    world.run(1)
    said = told("files.time", lambda: world.run(1, 3)).says("/out: ", "'at'", "Mend or filter such rows")
    world.sink = FileSink("/out", said.find(r"format='(\w+)'"))
    world.run(1, 3)
    assert len(named(world.io(), "/out")) == 2


@follows("table.rolled-back")
def test_manifests_that_were_deleted_are_published_again():
    """The error says so in words for a directory, and names no command with the path of a table."""
    world = World()
    world.run(3, 5)
    world.io().delete_tree("/out/_commits")
    said = told("table.rolled-back", lambda: world.run(3, 5, 6)).says("Restore /out/_commits", "Nothing was written")
    assert "give_up('" not in said.message  # not with a path
    world.run(3, 5, 6, on_rollback=said.option("on_rollback"))
    assert sorted(rows_of(world.io(), "/out")) == list(range(6))


@follows("table.rolled-back-too-far")
def test_manifests_that_nobody_remembers_are_restored():
    world = World()
    world.run(*range(1, 6), journal_retain=2)
    kept = {name: world.io().read(f"/out/_commits/streamsink/{name}") for name in _manifests(world)}
    world.io().delete_tree("/out/_commits")
    again = {"on_rollback": "republish", "journal_retain": 2}
    said = told("table.rolled-back-too-far", lambda: world.run(*range(1, 7), **again)).says("Restore /out/_commits")
    assert "give_up('" not in said.message  # not with a path
    for name, data in kept.items():
        world.io().create_if_absent(f"/out/_commits/streamsink/{name}", data)
    world.run(*range(1, 7), **again)
    assert sorted(rows_of(world.io(), "/out")) == list(range(6))


def test_other_files_beside_manifests_are_no_manifests():
    """Such as a copy that an operator has made, or what another system leaves."""
    world = World()
    world.run(3)
    for name in ("backup.json", "._0000000001.json"):
        world.io().create_if_absent(f"/out/_commits/streamsink/{name}", b"{}")
    world.run(3, 5)
    assert _manifests(world)[:2] == ["0000000001.json", "0000000002.json"]


@pytest.mark.in_turn("a directory whose journal is lost", 1)
def test_a_journal_that_is_lost_while_a_driver_dies_leaves_nothing_twice():
    """A reader lists the folders that are marked. The batch comes again; its files had their names, but no manifest."""
    counting = CrashingCalls(MemoryCalls())
    World().run(3, 5, calls=counting)
    for number in range(1, counting.count + 1, 2):
        world = World()
        with contextlib.suppress(InjectedCrash, OSError, StreamsinkError):
            world.run(3, 5, calls=CrashingCalls(world.store, number))
        world.store.process_death()
        world.io().delete_tree("/out/_streamsink/streamsink")
        world.run(3, 5, 6)
        assert _marked_rows(world) == list(range(6)), f"call {number}"


@pytest.mark.in_turn("a directory whose journal is lost", 1)
def test_a_journal_that_is_lost_while_a_driver_sleeps_costs_no_file():
    """Its successor publishes a record of the same number. What the other one placed goes, and what it finds stays."""
    counting = CrashingCalls(MemoryCalls())
    World().run(3, 5, calls=counting)
    for number in range(1, counting.count + 1):
        world = World()
        checkpoint, asleep = copy.deepcopy(world.checkpoint), CrashingCalls(world.store)

        def others(world=world, checkpoint=checkpoint, asleep=asleep, number=number):
            if asleep.count == number - 1 and world.checkpoint is not checkpoint:
                checkpoint.__dict__.update(copy.deepcopy(world.checkpoint.__dict__))
                world.checkpoint = checkpoint
                world.io().delete_tree("/out/_streamsink/streamsink")
                world.run(3, 5, 6)

        asleep.before_call = others
        with contextlib.suppress(OSError, StreamsinkError):
            world.run(3, 5, calls=asleep)
        world.run(3, 5, 6)
        assert sorted(rows_of(world.io(), "/out")) == _marked_rows(world) == list(range(6)), f"call {number}"


def _marked_rows(world) -> list[int]:
    """As a reader finds them that waits for markers, and then lists the folder."""
    seen = []
    for folder in (entry.name for entry in world.io().entries("/out") if entry.name.startswith("checkpoint=")):
        files = world.io().names(f"/out/{folder}")
        for name in files if "_SUCCESS" in files else ():
            data = world.io().read(f"/out/{folder}/{name}")
            seen += READ["parquet"](data).column("id").to_pylist() if name.startswith("part-") else []
    return sorted(seen)


@pytest.mark.parametrize("what", ["damaged", "missing"])
def test_instead_of_giving_up_the_journal_is_removed(what):
    """A record that cannot be read goes with its journal, and its batch comes again."""
    world = World()
    world.run(3)
    assert dies_at("precommit.saved", 1, world.store, lambda calls: world.run(3, 5, calls=calls))
    world.store.process_death()
    record = "/out/_streamsink/streamsink/streamsink/record-2.json"
    world.io().delete(record)
    if what == "damaged":
        world.io().create_if_absent(record, b"damaged")
        with pytest.raises(StreamsinkError, match="give_up"):
            world.run(3, 5)
        world.io().delete_tree("/out/_streamsink/streamsink/streamsink")
    world.run(3, 5, 6)
    assert sorted(rows_of(world.io(), "/out")) == list(range(6))


def _manifests(world) -> list[str]:
    return [name for name in world.io().names("/out/_commits/streamsink") if not name.startswith(".")]


HOSTILE = [
    {"id": 1, "text": "ends with \\", "real": math.nan},
    {"id": 2, "text": '"quoted", \n line', "real": math.inf},
    {"id": 3, "text": '\\"', "real": -math.inf},
    {"id": 4, "text": "", "real": 0.5},
    {"id": 5, "text": None, "real": None},
]


@pytest.mark.spark
def test_spark_reads_every_text_as_the_page_says(spark, tmp_path):
    """By default it takes a backslash for an escape, and a line's end in a text for the end of the row."""
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("real", pa.float64())])
    world = World(schema, lambda first, end: pa.RecordBatch.from_pylist(HOSTILE[first:end], schema), format="csv")
    world.run(5)
    (name,) = named(world.io(), "/out")
    (tmp_path / "part.csv").write_bytes(world.io().read(f"/out/{name}"))
    (shown,) = re.findall(r"```python\n(numbers = .*?)```", (DOCS / "FILES.md").read_text(encoding="utf-8"), re.DOTALL)
    names = {"spark": spark}
    code = shown.replace("/lake/events", str(tmp_path)).replace("spark.read", "found = spark.read")
    exec(code, names)  # noqa: S102  our own page
    found = [row.asDict() for row in names["found"].orderBy("id").collect()]
    assert str(found) == str(HOSTILE)
