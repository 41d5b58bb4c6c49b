"""Many tables in one pass: the rules, the bounds, the counts."""

import json

import pyarrow as pa
import pytest

import streamsink
from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.format.arrow_types import from_arrow_schema
from streamsink.options import SinkOptions
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.storage.s3 import S3FileIO
from streamsink.table.routed.dead_letters import DeadLetters, dead_letter_fields
from streamsink.table.routed.routed_writer import RoutedSpec, RoutedWriter, Target
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.table.table import create_table, new_schema
from streamsink.table.write.folders import TOKEN
from streamsink.table.write.spec import AtOnce, WriteSpec
from streamsink.table.write.writer import TableWriter
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.many_driver import ManyTablesDriver
from streamsink.testing.memory import MemoryCalls
from tests.crash.many_world import ManyWorld
from tests.storage.memory_s3 import MemoryS3Calls

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


class _OpenFiles(MemoryCalls):
    """Counts the files that are being written."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0

    def open_new(self, path):
        self.now += 1
        self.most = max(self.most, self.now)
        return super().open_new(path)

    def close(self, stream, flush):
        self.now -= 1
        super().close(stream, flush)


def _spec(routing: Routing, max_open: int, memory: int) -> RoutedSpec:
    schema = new_schema(from_arrow_schema(SCHEMA), (), {}).to_json()
    limits = WriteSpec("/staging", b"", 10**9, max_open, memory)
    return RoutedSpec(limits, routing, {}, {key: Target(("id", "text"), schema) for key in routing.rules}, None)


def test_fifty_tables_share_one_bound_of_files_and_memory(rng, monkeypatch):
    """Every batch has rows of 50 tables, and there are never more files or bytes than one table would hold."""
    calls, held = _OpenFiles(), []
    calls.mkdir("/staging")
    routing = Routing.of("/lake", {"t_*": {}}, SinkOptions(), dead_letters=None, unrouted="fail")
    writer = RoutedWriter(FileIO(calls, IdSource().new_id), _spec(routing, 7, 50_000))
    writers = []
    joined = TableWriter.__init__
    monkeypatch.setattr(TableWriter, "__init__", lambda self, *a, **k: (joined(self, *a, **k), writers.append(self))[0])
    rows = {}
    for _ in range(40):
        names = [f"t_{rng.randint(0, 49)}" for _ in range(500)]
        ids = [rng.randint(0, 10**9) for _ in names]
        for name, number in zip(names, ids):
            rows.setdefault(name, []).append(number)
        writer.write(pa.RecordBatch.from_pydict({"id": ids, "text": ["x" * 40] * 500, ROUTE: names}))
        held.append(sum(w.buffered for w in writers))
    with writer._io.flush_group() as group:
        [written] = writer.close(group)
        group.flush()
    assert len(writers) == 50 and calls.most == 7 and calls.now == 0
    assert max(held) <= 50_000
    counts = {}
    for name, file in written.files:
        counts[name] = counts.get(name, 0) + file.meta.row_count
    assert counts == {name: len(ids) for name, ids in rows.items()}
    assert written.rows_in == 20_000 == sum(counts.values())


def test_without_dead_letters_the_first_bad_row_fails_without_its_value():
    """The error names the table and the column, or how many rows have no table."""
    routing = Routing.of("/lake", {"a": {}}, SinkOptions(), dead_letters=None, unrouted="fail")
    writer = RoutedWriter(FileIO(MemoryCalls(), IdSource().new_id), _spec(routing, 7, 10**6))
    with pytest.raises(Misuse, match="table 'a': column 'id'") as refused:
        writer.write(pa.RecordBatch.from_pydict({"id": ["secret"], "text": ["x"], ROUTE: ["a"]}))
    assert "secret" not in str(refused.value)
    with pytest.raises(Misuse, match="2 rows") as refused:
        writer.write(pa.RecordBatch.from_pydict({"id": [1, 2], "text": ["x", "y"], ROUTE: ["secret"] * 2}))
    assert refused.value.kind == "route.unknown" and "secret" not in str(refused.value)


def test_rows_that_get_lost_on_the_way_are_an_error(monkeypatch):
    """The count of incoming rows is not taken from the files."""
    written = RoutedWriter._routed
    monkeypatch.setattr(
        RoutedWriter, "_routed", lambda self, name, rows, target: written(self, name, rows.slice(1), target)
    )
    world = ManyWorld()
    with pytest.raises(Corrupt, match="do not add up"):
        world.run()
    assert world.rows() == []


@pytest.mark.parametrize(
    "tables, more, word",
    [
        ({}, {}, "tables"),
        ({"a/b": {}}, {}, "names of tables"),
        ({"streamsink": {}}, {}, "names of tables"),
        ({"a": {"bucket": 1}}, {}, "'bucket'"),
        ({"a": {"path": "../a"}}, {}, "below"),
        ({"a": {"path": "/elsewhere/a"}}, {}, "below"),
        ({"a_*": {"path": "x"}}, {}, "pattern"),
        ({"a": {}, "b": {"path": "a"}}, {}, "same path"),
        ({"a": {}, "b": {"path": "a/b"}}, {}, "inside"),
        ({"a": {}}, {"dead_letters": "a"}, "dead_letters"),
        ({"a": {}}, {"unrouted": "skip"}, "unrouted"),
        ({"a": {}}, {"unrouted": "dead-letter"}, "dead_letters"),
        ({"a": {"columns": "id"}}, {}, "columns"),
        ({"a": {"create": "yes"}}, {}, "create"),
        ({"a": {"path": "rejected"}}, {"dead_letters": "rejected"}, "same path"),
    ],
)
def test_wrong_rules_are_refused_by_name(tables, more, word):
    """The refusal comes before anything is opened."""
    with pytest.raises(Misuse, match=word):
        Routing.of("/lake", tables, SinkOptions(), **{"dead_letters": None, "unrouted": "fail", **more})


def test_a_name_has_one_rule_and_one_place():
    """Its own rule comes first, then patterns in their order. The place is never one where another table lies."""
    rules = {"x_*": {}, "x_1": {"path": "deep/er/x"}, "*": {}, "moved": {"path": "taken"}}
    routing = Routing.of("/lake", rules, SinkOptions(), dead_letters="rejected", unrouted="dead-letter")
    found = {
        name: routing.rule_of(name)
        for name in ("x_1", "x_2", "other", "taken", "deep", "rejected", "streamsink", "../x", "", None, "a b", "x_*")
    }
    assert found == {
        "x_1": "x_1",
        "x_2": "x_*",
        "other": "*",
        "taken": None,
        "deep": None,
        "rejected": None,
        "streamsink": None,
        "../x": None,
        "": None,
        None: None,
        "a b": None,
        "x_*": None,
    }
    assert routing.path_of("x_1") == "deep/er/x" and routing.path_of("x_2") == "x_2"


def test_each_table_takes_its_own_columns():
    """It takes all, a list, or those that the table has.
    A column that a table lacks is an error unless it may be added."""
    world = ManyWorld()
    world.driver.routing = Routing.of(
        world.driver.root,
        {
            "a": {"columns": ["id", "version"]},
            "strict": {"columns": "existing"},
            "more_x": {"columns": ("id", "part", "version")},
            "more_y": {},
        },
        world.driver.options,
        dead_letters="rejected",
        unrouted="dead-letter",
    )
    world.run()
    assert world.table("a").latest_schema().field_names == ("id", "version")
    assert world.table("more_x").latest_schema().field_names == ("id", "part", "version")
    assert world.table("more_y").latest_schema().field_names == ("id", "part", "n", "version")
    assert len(world.rows()) == 18
    world.driver.routing = Routing.of(
        world.driver.root, {"a": {}, "*": {}}, world.driver.options, dead_letters="rejected", unrouted="dead-letter"
    )
    with pytest.raises(Misuse, match="shop.db/a"):
        world.run(boundaries=(6, 9, 9, 14, 18, 20))


def test_rows_published_and_dead_letters_are_counted_in_events():
    """For each checkpoint the rows of the tables and the dead letters add up to what came in."""
    world = ManyWorld()
    world.run()
    said = [event for event in world.driver.events if type(event).__name__ in ("TablePublished", "RowsDeadLettered")]
    by_checkpoint: dict[int, list[int]] = {}
    for event in said:
        tables, dead = by_checkpoint.setdefault(event.checkpoint_id, [0, 0])
        if type(event).__name__ == "RowsDeadLettered":
            dead += event.rows
        elif not event.table.endswith("/rejected"):
            tables += event.rows
        by_checkpoint[event.checkpoint_id] = [tables, dead]
    assert {number: sum(counts) for number, counts in by_checkpoint.items()} == {0: 6, 1: 3, 3: 5, 4: 4}
    assert sum(dead for _, dead in by_checkpoint.values()) == sum(name == "rejected" for name, _, _ in world.rows())


def _calls_of_a_batch_after(tables: int) -> int:
    """The I/O calls of a batch for one table, after the query has written so many tables."""
    calls = MemoryCalls()
    options = SinkOptions.of("/lake", {"commit_min_wait_ms": 0})
    routing = Routing.of("/lake", {"t_*": {}}, options, dead_letters=None, unrouted="fail")
    schema = pa.schema([("id", pa.int64()), (ROUTE, pa.string())])

    def rows(start, end):
        names = [f"t_{n if n < tables else 0}" for n in range(start, end)]
        return pa.RecordBatch.from_pydict({"id": list(range(start, end)), ROUTE: names}, schema=schema)

    driver = ManyTablesDriver("/lake", schema, rows, routing, options)
    checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000001", [tables, tables + 1, tables + 2, tables + 3])
    counting = CrashingCalls(calls)
    sink = driver.start(FileIO(counting, IdSource().new_id), checkpoint)
    for batch_id in range(3):
        sink.batch(driver.describe(checkpoint, batch_id))
    before = counting.count
    sink.batch(driver.describe(checkpoint, 3))
    return counting.count - before


def test_a_batch_costs_what_its_own_tables_cost():
    """Tables without rows in it get no snapshot and are not even looked at."""
    assert _calls_of_a_batch_after(30) == _calls_of_a_batch_after(2)


def test_what_a_query_looks_after_are_the_tables_that_it_has_opened():
    """A table of another program may have a name that a rule takes: it is not touched, whatever kind of table it is."""
    world = ManyWorld()
    checkpoint = SparkCheckpoint(world.checkpoint.query, [6, 9])
    sink = world.driver.start(world.file_io(), checkpoint)
    sink.batch(world.driver.describe(checkpoint, 0))
    table = new_schema(from_arrow_schema(pa.schema([("id", pa.int64())])), (), {})
    create_table(world.file_io(), f"{world.root}/more_z", table)
    assert sorted(sink.opened.tables.roots()) == [f"{world.root}/{name}" for name in sorted(world.tables)]
    assert world.table("more_z") is not None


def test_starting_offsets_of_the_warehouse_are_its_journals(tmp_path):
    """They say where a new checkpoint reads nothing twice. No single table knows that."""
    world = ManyWorld(PosixCalls(), str(tmp_path))
    world.run()
    assert json.loads(streamsink.starting_offsets(str(tmp_path), partitions={"t": 2})) == {"t": {"0": 18, "1": -2}}
    with pytest.raises(Misuse):
        streamsink.starting_offsets(str(tmp_path), application="other")


def test_a_row_whose_file_would_have_too_long_a_key_under_its_final_name_is_a_dead_letter():
    """Such a name is longer than that of a file that is staged, and the key is counted with it."""
    warehouse, attempt = "s3://bucket/lake", "6d2f5c0e-3f0e-4f68-9d51-000000000000"
    fields = from_arrow_schema(pa.schema([("id", pa.int64()), ("part", pa.string())]))
    schema = new_schema(fields, ("part",), {}).to_json()
    routing = Routing.of(warehouse, {"a": {}}, SinkOptions(), dead_letters="rejected", unrouted="fail")
    dead = DeadLetters("rejected", new_schema(dead_letter_fields([]), (), {}).to_json(), "app", 1, (), "id")
    limits = WriteSpec(f"{warehouse}/staging", b"", 10**9, 7, 10**6)
    io = S3FileIO(MemoryS3Calls(), IdSource().new_id, warehouse)
    for at_once, most in ((None, 0), (AtOnce(attempt, "", (0, "")), TOKEN + 1)):
        spec = RoutedSpec(limits, routing, {}, {"a": Target(("id", "part"), schema)}, dead, new=at_once)
        longest = 1024 - len("lake/a/part=/bucket-0/data--0123456789.parquet") - 36 - most
        rows = [(number, "x" * (longest + number), "a") for number in range(2)]
        writer = RoutedWriter(io, spec)
        writer.write(pa.RecordBatch.from_pylist([dict(zip(("id", "part", ROUTE), row)) for row in rows]))
        with io.flush_group() as group:
            [written] = writer.close(group)
            group.flush()
        assert written.dead == {"a": 1} and [name for name, _ in written.files] == ["a", "rejected"]
