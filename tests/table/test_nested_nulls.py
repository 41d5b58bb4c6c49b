"""NOT NULL inside of nested columns:
a null there is refused with its path, and a null above it is a value like any other."""

import decimal

import pyarrow as pa
import pytest

import streamsink
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.format.arrow_types import from_arrow_schema, to_arrow_type
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.file_io import FileIO
from streamsink.table.routed.dead_letters import Screen, fit_by_value
from streamsink.table.table import create_table, new_schema
from streamsink.testing.memory import MemoryCalls
from tests.compat.arrow_writer import ArrowSink

D = decimal.Decimal


def _row(nullable: bool = True) -> pa.DataType:
    return pa.struct([pa.field("x", pa.int32(), nullable), ("y", pa.string())])


def _one(name: str, kind: pa.DataType) -> pa.DataType:
    return pa.struct([(name, kind)])


# Columns of the table; what a source says of them that knows no NOT NULL inside; values that fit; values that do not;
# and the path where they do not.
COLUMNS = {
    "rows in a list": (
        "ARRAY<ROW<x INT, y STRING> NOT NULL>",
        pa.list_(_row()),
        [[{"x": 1, "y": "a"}], None, [], [{"x": None, "y": None}]],
        [[{"x": 1, "y": "b"}, None]],
        "v.element",
    ),
    "lists in a list": (
        "ARRAY<ARRAY<INT> NOT NULL>",
        pa.list_(pa.list_(pa.int32())),
        [[[1], []], None, [], [[None]]],
        [[[1], None]],
        "v.element",
    ),
    "numbers in a list": (
        "ARRAY<INT NOT NULL>",
        pa.list_(pa.int32()),
        [[1, 2], None, []],
        [[3, None], [None]],
        "v.element",
    ),
    "rows in a map": (
        "MAP<STRING, ROW<x INT, y STRING> NOT NULL>",
        pa.map_(pa.string(), _row()),
        [[("a", {"x": 1, "y": None})], None, []],
        [[("a", {"x": 1, "y": "b"}), ("b", None)]],
        "v.value",
    ),
    "texts in a map": (
        "MAP<INT, STRING NOT NULL>",
        pa.map_(pa.int32(), pa.string()),
        [[(1, "a"), (2, "")], None, []],
        [[(1, None)]],
        "v.value",
    ),
    "a field": ("ROW<x INT NOT NULL, y STRING>", _row(), [{"x": 1, "y": None}, None], [{"x": None, "y": "a"}], "v.x"),
    "a field of rows in a list": (
        "ARRAY<ROW<x INT NOT NULL, y STRING>>",
        pa.list_(_row()),
        [[{"x": 1, "y": "a"}, None], [None], None, []],
        [[None, {"x": None, "y": "a"}]],
        "v.element.x",
    ),
    "a row in a row": (
        "ROW<s ROW<x INT NOT NULL, y STRING NOT NULL> NOT NULL>",
        _one("s", _row()),
        [{"s": {"x": 1, "y": "a"}}, None],
        [{"s": None}],
        "v.s",
    ),
    "a field in a row in a row": (
        "ROW<s ROW<x INT NOT NULL, y STRING>>",
        _one("s", _row()),
        [{"s": {"x": 1, "y": "a"}}, {"s": None}, None],
        [{"s": {"x": None, "y": "a"}}],
        "v.s.x",
    ),
    "a list in a row": (
        "ROW<l ARRAY<STRING NOT NULL> NOT NULL>",
        _one("l", pa.list_(pa.string())),
        [{"l": ["a", "b"]}, {"l": []}, None],
        [{"l": None}],
        "v.l",
    ),
    "a map in a row": (
        "ROW<m MAP<STRING, BIGINT NOT NULL> NOT NULL>",
        _one("m", pa.map_(pa.string(), pa.int32())),
        [{"m": [("a", 1)]}, None],
        [{"m": [("a", None)]}],
        "v.m.value",
    ),
    "a flag and a decimal": (
        "ROW<b BOOLEAN NOT NULL, d DECIMAL(30, 2) NOT NULL>",
        pa.struct([("b", pa.bool_()), ("d", pa.decimal128(30, 2))]),
        [{"b": True, "d": D("1.50")}, None],
        [{"b": True, "d": None}],
        "v.d",
    ),
}


def _held(values: list, kind: pa.DataType) -> pa.Array:
    """The values as Spark hands them over: below a null row there are nulls, whatever the type says."""
    if not pa.types.is_struct(kind):
        return pa.array(values, kind)
    parts = [_held([None if value is None else value[field.name] for value in values], field.type) for field in kind]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array([value is None for value in values]))


def _rows(kind: pa.DataType, values: list) -> pa.Table:
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "v": _held(values, kind)})


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "shop.db" / "orders")


@pytest.mark.parametrize("partition_by", [(), ["id"]], ids=["whole", "partitioned"])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_null_that_the_table_does_not_take_is_refused_and_all_others_are_read_back(path, name, partition_by):
    """The error has the path of what is NOT NULL, as for a column, and nothing is written.
    A null above it, empty lists and slices are written."""
    kind, arrow, good, bad, where = COLUMNS[name]
    streamsink.create_table(path, f"id BIGINT, v {kind}", partition_by)
    with ArrowSink(path) as sink:
        for value in bad:
            with pytest.raises(
                Misuse, match=rf"column '{where}' is NOT NULL in the table, found \d nulls? in a batch"
            ) as refused:
                sink.write(_rows(arrow, [*good, value]))
            assert refused.value.kind == "data.null" and "dead_letters" in str(refused.value)
        assert streamsink.read_arrow(path).num_rows == 0
        sink.write(_rows(arrow, good))
        # Rows that do not fit are outside of the slice, and do not matter.
        sink.write(_rows(arrow, [*bad, *good, *bad]).slice(len(bad), len(good)))
    found = [(row["id"], row["v"]) for row in streamsink.read_arrow(path).to_pylist()]
    wanted = [*enumerate(good), *enumerate(good, len(bad))]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


@pytest.mark.parametrize("name", COLUMNS)
def test_with_dead_letters_only_such_rows_are_set_aside(name, rng):
    """Each is set aside once, with the path in its reason. The others keep their order."""
    kind, arrow, good, bad, where = COLUMNS[name]
    values = [(value, True) for value in good * 5] + [(value, False) for value in bad]
    rng.shuffle(values)
    table = create_table(
        FileIO(MemoryCalls(), IdSource().new_id), "/lake/t", new_schema(parse_ddl(f"v {kind}"), (), {})
    )
    batch = pa.RecordBatch.from_pydict({"v": _held([value for value, _ in values], arrow)})
    fitting, refused = Screen(fit_by_value(table, from_arrow_schema(batch.schema), SinkOptions()))(batch)
    assert [b.index for b in refused] == [i for i, (_, fits) in enumerate(values) if not fits]
    assert all(b.reason.startswith(f"data.null: column '{where}' is NOT NULL") and b.column == "v" for b in refused)
    assert fitting.column(0).to_pylist() == [value for value, fits in values if fits]


@pytest.mark.parametrize("name", ["a field", "a row in a row", "a map in a row", "a flag and a decimal"])
def test_a_source_that_says_not_null_inside_may_hold_null_rows(path, name):
    """Spark's do: its placeholders below a null row are nulls. The table is created from what the source says."""
    kind, _, good, _, _ = COLUMNS[name]
    streamsink.create_table(path, f"id BIGINT, v {kind}")
    [field] = parse_ddl(f"v {kind}")
    arrow = to_arrow_type(field.type, "v")
    with ArrowSink(path) as sink:
        sink.write(_rows(arrow, [*good, None, *good]))
    assert streamsink.read_arrow(path).column("v").to_pylist() == [*good, None, *good]


def test_a_column_that_is_left_out_is_null_in_every_row(path):
    """This holds even for a column that has NOT NULL inside."""
    streamsink.create_table(
        path, "id BIGINT, v ROW<x INT NOT NULL, l ARRAY<INT NOT NULL> NOT NULL>, w ARRAY<ROW<x INT NOT NULL> NOT NULL>"
    )
    with ArrowSink(path, add_columns=True) as sink:
        sink.write(pa.table({"id": pa.array([1, 2], pa.int64())}))
    assert streamsink.read_arrow(path).to_pylist() == [{"id": n, "v": None, "w": None} for n in (1, 2)]


def test_widen_types_drops_not_null_inside_as_well(path):
    """It does so as for a column."""
    streamsink.create_table(path, "id BIGINT, v ARRAY<ROW<x INT, y STRING> NOT NULL>")
    with ArrowSink(path, widen_types=True) as sink:
        sink.write(_rows(pa.list_(_row()), [[None], None]))
    assert streamsink.read_arrow(path).column("v").to_pylist() == [[None], None]
