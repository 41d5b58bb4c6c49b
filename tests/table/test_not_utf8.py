"""Text that is not UTF-8, which a cast of bytes to a string lets through:
its bytes are kept, and where it has to name something it is refused."""

import pyarrow as pa
import pytest

import streamsink
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.format.arrow_types import from_arrow_schema, to_arrow_schema
from streamsink.format.binary_row import decode_row
from streamsink.format.stats import StatsCollector
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.calls import NameLimits
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.table.read.scan import plan
from streamsink.table.routed.dead_letters import DeadLetters, Screen, dead_letter_fields
from streamsink.table.routed.routed_writer import RoutedSpec, RoutedWriter, Target
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.table.table import new_schema, open_table
from streamsink.table.write.folders import Folders
from streamsink.table.write.spec import WriteSpec
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.compat.arrow_writer import ArrowSink

BAD = b"\xff\xfe"


def texts(*values: bytes | None) -> pa.Array:
    """Texts as Spark hands them over: nobody has checked the bytes."""
    return pa.array(values, pa.binary()).view(pa.string())


def rows(*values: bytes | None) -> pa.Table:
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "s": texts(*values)})


def held(table: pa.Table, column: str = "s") -> list[bytes | None]:
    """The bytes of a column of texts."""
    return table.column(column).combine_chunks().cast(pa.binary()).to_pylist()


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "shop.db" / "orders")


@pytest.mark.parametrize(
    "values",
    [(BAD, b"a", None), (b"a", b"\x80", b"c"), (b"a", BAD), (BAD,)],
    ids=["greatest", "middle", "second", "alone"],
)
def test_a_column_keeps_its_bytes(path, values):
    """Whether the value is the least, the greatest, or neither, is left to chance."""
    streamsink.create_table(path, "id BIGINT, s STRING")
    with ArrowSink(path) as sink:
        sink.write(rows(*values))
        sink.write(rows(b"x"))
    found = streamsink.read_arrow(path)
    assert sorted(map(repr, held(found))) == sorted(map(repr, [*values, b"x"]))
    matching = streamsink.read_arrow(path, where=streamsink.col("s") == "a")
    assert held(matching) == [value for value in values if value == b"a"]
    assert len(plan(open_table(local_file_io(), path, for_writing=False))[1]) == 2


@pytest.mark.parametrize("options", [{}, {"metadata.stats-mode": "full"}])
@pytest.mark.parametrize("first, then", [((BAD,), (b"a",)), ((b"a",), (b"b", BAD)), ((b"\x80", b"b"), (b"\xc3\xa4",))])
def test_such_a_bound_is_none(options, first, then):
    """The whole file has no bound for this column, and its nulls are counted. The other columns have their bounds."""
    fields = parse_ddl("id BIGINT, s STRING")
    collector = StatsCollector(fields, options)
    for values in (first, then, (None,)):
        columns = [pa.array(range(len(values)), pa.int64()), texts(*values)]
        collector.update(pa.RecordBatch.from_arrays(columns, schema=to_arrow_schema(fields)))
    stats, _ = collector.finish()
    types = [field.type for field in fields]
    assert decode_row(stats.min_values, types) == (0, None) and decode_row(stats.max_values, types)[1] is None
    assert stats.null_counts == (0, 1)


@follows("partition.encoding")
@pytest.mark.parametrize("more", [(), (b"a", None, b"b")], ids=["alone", "among-others"])
def test_a_partition_value_is_refused(path, more):
    """The error names the table and the column, not the value. Decoded as it says, every row is written."""
    streamsink.create_table(path, "id BIGINT, s STRING", ["s"])
    with ArrowSink(path) as sink:
        said = told("partition.encoding", lambda: sink.write(rows(*more, BAD)))
        said.says("column 's'", "not UTF-8", "Nothing was recorded", "dead_letters", "decode(value, 'ISO-8859-1')")
        assert "\\x" not in said.message and "\udcff" not in said.message
        assert streamsink.read_arrow(path).num_rows == 0
        sink.write(rows(*more, BAD.decode("iso-8859-1").encode()))
    assert streamsink.read_arrow(path).num_rows == len(more) + 1


def test_with_dead_letters_such_rows_are_set_aside():
    """Only these are set aside, each once, together with rows whose folder's name is too long."""
    schema = new_schema(parse_ddl("id BIGINT, s STRING, t STRING"), ("s", "t"), {})
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(range(6), pa.int64()),
            texts(b"a", BAD, b"x" * 300, b"b", b"\x80", b"a"),
            texts(b"a", BAD, b"b", None, b"c", b"\xff"),
        ],
        ["id", "s", "t"],
    )
    fitting, refused = Screen(schema, Folders(schema, "/lake/t", NameLimits(name=255)))(batch)
    assert [(b.index, b.column, b.reason.partition(":")[0]) for b in refused] == [
        (1, "s", "partition.encoding"),
        (2, "s", "partition.name-too-long"),
        (4, "s", "partition.encoding"),
        (5, "t", "partition.encoding"),
    ]
    assert fitting.column("id").to_pylist() == [0, 3]


def _routed(unrouted: str, rules: dict) -> RoutedWriter:
    schema = new_schema(from_arrow_schema(pa.schema([("id", pa.int64())])), (), {}).to_json()
    letters = "rejected" if unrouted != "fail" else None
    routing = Routing.of("/lake", rules, SinkOptions(), dead_letters=letters, unrouted=unrouted)
    fields = new_schema(dead_letter_fields([]), (), {}).to_json()
    dead = DeadLetters("rejected", fields, "app", 1, (), "id") if letters else None
    calls = MemoryCalls()
    calls.mkdir("/staging")
    targets = {key: Target(("id",), schema) for key in routing.rules}
    return RoutedWriter(
        FileIO(calls, IdSource().new_id),
        RoutedSpec(WriteSpec("/staging", b"", 10**9, 7, 10**6), routing, {}, targets, dead),
    )


def _named(*names: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(len(names)), pa.int64()), texts(*names)], ["id", ROUTE])


@follows("route.encoding")
def test_a_name_of_a_table_is_refused():
    """Or the row is a dead letter, as the error says. No rule covers such a name, not even a rule for all names."""
    with pytest.raises(Misuse) as refused:
        _routed("fail", {"*": {}}).write(_named(b"a", BAD, b"b", BAD))
    said = told("route.encoding", lambda: _routed("fail", {"*": {}}).write(_named(BAD)))
    said.says("/lake", "route", "not UTF-8", "decode(value, 'ISO-8859-1')")
    assert "2 rows" in str(refused.value)
    writer = _routed(said.option("unrouted"), {"*": {}})
    writer.write(_named(b"a", BAD, None, b"b", BAD))
    with writer._io.flush_group() as group:
        [written] = writer.close(group)
        group.flush()
    counts = {name: file.meta.row_count for name, file in written.files}
    assert counts == {"a": 1, "b": 1, "rejected": 3} and written.rows_in == 5 and written.dead == {"": 3}
