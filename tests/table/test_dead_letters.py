"""Rows that do not fit: each kind is found alone, with its reason, and kept whole as text;
the other rows are written."""

import datetime
import decimal
import json

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.format.arrow_types import from_arrow_schema
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.calls import NameLimits
from streamsink.storage.file_io import FileIO
from streamsink.table.routed.dead_letters import DeadLetters, Screen, dead_letter_fields, fit_by_value
from streamsink.table.routed.row_json import rows_to_json
from streamsink.table.routed.rules import ROUTE
from streamsink.table.table import create_table, new_schema
from streamsink.table.write.folders import Folders
from streamsink.testing.memory import MemoryCalls

D = decimal.Decimal


def _table(ddl: str):
    return create_table(FileIO(MemoryCalls(), IdSource().new_id), "/lake/t", new_schema(parse_ddl(ddl), (), {}))


@pytest.mark.parametrize(
    "ddl, arrow, good, bad, kind",
    [
        ("v BIGINT NOT NULL", pa.int64(), [1, 2], [None], "data.null"),
        ("v INT", pa.int64(), [2**31 - 1, -(2**31), None], [2**31, -(2**31) - 1], "data.cast"),
        ("v TINYINT", pa.int32(), [127, -128], [128], "data.cast"),
        ("v DECIMAL(5, 2)", pa.decimal128(20, 4), [D("999.99"), D("-1.5"), None], [D("1000"), D("0.001")], "data.cast"),
        ("v BIGINT", pa.string(), ["12", "-7", None], ["", " 12", "1.5", "x", "9223372036854775808"], "data.cast"),
        ("v DECIMAL(5, 2)", pa.string(), ["1.25", "7"], ["1.255", "1000", "one"], "data.cast"),
        # Arrow takes hexadecimal digits for the bits of a number, and turns a decimal with too many digits into another
        # one.
        (
            "v INT",
            pa.string(),
            ["007", "-0", "-2147483648"],
            ["0x1A", "0XFF", "0xFFFFFFFF", "-0x1", "+1", "1e3", "1_0", "\u0661"],
            "data.cast",
        ),
        ("v TINYINT", pa.string(), ["127"], ["0xFF", "0x7f", "128"], "data.cast"),
        (
            "v DECIMAL(38, 0)",
            pa.string(),
            ["9" * 38, "1e37", "-5"],
            ["9" * 39, str(2**128), str(10 * 2**128 + 1), "1e38"],
            "data.cast",
        ),
        (
            "v DECIMAL(5, 2)",
            pa.string(),
            ["1e2", "+1", ".5", "-5.", "1.2300", "1." + "0" * 38, "100e-2", "0" * 50 + "1"],
            [
                str(2**128 + 1),
                f"{2**128 // 100}.57",
                "3.40282366920938463463374607431768211456e38",
                "1e400",
                "1e-3",
                "1e99999999999",
                "NaN",
                "inf",
                "0x1A",
                "1_0",
                ".",
                "e1",
                "\u0661",
            ],
            "data.cast",
        ),
        (
            "v DECIMAL(38, 10)",
            pa.string(),
            ["12345678901234567890.5", "9" * 28],
            ["27621463317203992968248357978924977191", "9" * 29],
            "data.cast",
        ),
        ("v DECIMAL(38, 38)", pa.string(), ["0." + "9" * 38, "-.5", "0"], ["4", "-4.0", "1"], "data.cast"),
        ("v DECIMAL(2, 2)", pa.string(), ["0.25", ".25", "-0.5", "0"], ["1", "1.25", "0.255"], "data.cast"),
        (
            "v DECIMAL(38, 10)",
            pa.decimal128(38, 0),
            [D("9" * 28), D("-7"), None],
            [D("31000966890758224749965820778458860188"), D("-81189514202081154897552441748128413098"), D("9" * 38)],
            "data.cast",
        ),
        ("v DATE", pa.string(), ["2026-11-21"], ["2026-02-30", "21.11.2026"], "data.cast"),
        ("v BOOLEAN", pa.string(), ["true", "false", "TRUE", "1", "0"], ["yes", "T", "01", "2", ""], "data.cast"),
        ("v TIMESTAMP(6)", pa.string(), ["2026-11-21 12:00:00.123456"], ["noon", "2026-11-21T12:00:00Z"], "data.cast"),
        # Without a zone an instant would be a guess.
        (
            "v TIMESTAMP(6) WITH LOCAL TIME ZONE",
            pa.string(),
            ["2026-11-21T12:00:00Z"],
            ["2026-11-21 12:00:00"],
            "data.cast",
        ),
        (
            "v TIMESTAMP(3)",
            pa.timestamp("us"),
            [datetime.datetime(2026, 1, 1, 0, 0, 0, 1000)],
            [datetime.datetime(2026, 1, 1, 0, 0, 0, 1)],
            "data.cast",
        ),
        ("v VARCHAR(3)", pa.string(), ["äöü", "", None], ["four"], "data.too-long"),
        ("v VARBINARY(3)", pa.binary(), [b"abc"], [b"abcd"], "data.too-long"),
    ],
)
def test_only_the_bad_rows_are_set_aside(ddl, arrow, good, bad, kind, rng):
    """Whatever their order, each is set aside once and with its reason. The good rows keep their order."""
    values = [(value, True) for value in good * 20] + [(value, False) for value in bad]
    rng.shuffle(values)
    table = _table(ddl)
    batch = pa.RecordBatch.from_pydict({"v": pa.array([value for value, _ in values], arrow)})
    schema = fit_by_value(table, from_arrow_schema(batch.schema), SinkOptions())
    fitting, refused = Screen(schema)(batch)
    assert [b.index for b in refused] == [i for i, (_, fits) in enumerate(values) if not fits]
    assert {b.reason.partition(":")[0] for b in refused} == {kind} and {b.column for b in refused} == {"v"}
    wanted = pa.array([value for value, fits in values if fits], arrow).cast(fitting.column(0).type)
    assert fitting.column(0).equals(wanted)


def test_no_reason_repeats_a_value():
    """The reason has the type; the value is in the row."""
    schema = _table("v BIGINT, w VARCHAR(2)").latest_schema()
    _, refused = Screen(schema)(pa.RecordBatch.from_pydict({"v": ["secret-1"], "w": ["secret-2"]}))
    [row] = refused
    assert row.column == "v" and "secret" not in row.reason


@pytest.mark.parametrize(
    "ddl, arrow",
    [
        ("v DOUBLE", pa.string()),
        ("v FLOAT", pa.float64()),
        ("v STRING", pa.int64()),
        ("v INT", pa.float64()),
        ("v BIGINT, w BIGINT NOT NULL", pa.int64()),
        ("w BIGINT", pa.int64()),
    ],
)
def test_what_every_row_would_break_stays_an_error(ddl, arrow):
    """This is a missing or additional column, or a type that never converts without loss.
    The error comes before anything is written."""
    with pytest.raises(Misuse):
        fit_by_value(_table(ddl), from_arrow_schema(pa.schema([("v", arrow)])), SinkOptions())


def test_a_table_that_may_widen_makes_room_instead():
    """With widen_types the wider value is written, not set aside."""
    table = _table("v INT NOT NULL")
    schema = fit_by_value(table, from_arrow_schema(pa.schema([("v", pa.int64())])), SinkOptions(widen_types=True))
    fitting, refused = Screen(schema)(pa.RecordBatch.from_pydict({"v": pa.array([2**40, None])}))
    assert refused == [] and fitting.column(0).to_pylist() == [2**40, None]


def test_a_dead_letter_keeps_the_whole_row_and_its_position():
    """It has all columns of the query except the routing column as text, and position columns as columns too. Bytes are
    told from texts, because the row is read again.
    """
    rows = pa.RecordBatch.from_pydict(
        {
            "id": [1, 2],
            "v": ["ok", "bad"],
            "b": [b"a", b"b"],
            "topic": ["t", "t"],
            "offset": pa.array([7, 8], pa.int64()),
            ROUTE: ["a", "a"],
        }
    )
    positions = from_arrow_schema(pa.schema([("topic", pa.string()), ("offset", pa.int64())]))
    schema = new_schema(dead_letter_fields(positions), (), {})
    dead = DeadLetters("rejected", schema.to_json(), "app", 5, ("topic", "offset"), "id-of-a")
    _, bad = Screen(_table("v BIGINT").latest_schema())(rows.select(["v"]).slice(1))
    letter = dead.batch(rows.slice(1), "a", bad).to_pylist()
    assert letter == [
        {
            "application": "app",
            "checkpoint_id": 5,
            "target": "a",
            "column": "v",
            "reason": "data.cast: column 'v': a value of type string does not fit the table's int64 without loss",
            "row": '{"id":2,"v":"bad","b":{"base64":"Yg=="},"topic":"t","offset":8}',
            "table_id": "id-of-a",
            "topic": "t",
            "offset": 8,
        }
    ]


def test_a_position_column_may_not_hide_a_column_of_the_dead_letters():
    """The position column's name is the query's choice."""
    with pytest.raises(Misuse, match="'row'"):
        dead_letter_fields(from_arrow_schema(pa.schema([("row", pa.int64())])))


@pytest.mark.parametrize(
    "arrow, value, text",
    [
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.bool_(), True, True),
        (pa.float64(), 0.1, 0.1),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float32(), float("-inf"), "-Infinity"),
        (pa.decimal128(38, 10), D("12345678901234567890.5"), "12345678901234567890.5000000000"),
        (pa.decimal128(20, 10), D("1E-10"), "0.0000000001"),
        (pa.binary(), b"\x00\xff", "AP8="),
        (pa.string(), 'ä"\n', 'ä"\n'),
        (pa.date32(), datetime.date(1, 1, 1), "0001-01-01"),
        (pa.time32("ms"), datetime.time(1, 2, 3), "01:02:03.000"),
        (pa.timestamp("us"), datetime.datetime(2026, 11, 21, 12), "2026-11-21 12:00:00.000000"),
        (
            pa.timestamp("us", "Europe/Berlin"),
            datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.timezone.utc),
            "2026-11-21 12:00:00.000000Z",
        ),
        (pa.timestamp("us"), 2**62, f"{2**62} us since 1970-01-01"),
        (pa.timestamp("us", "UTC"), 2**62, f"{2**62} us since 1970-01-01"),
        (pa.timestamp("us", "Europe/Berlin"), -(2**61), f"{-(2**61)} us since 1970-01-01"),
        (pa.list_(pa.int32()), [1, None], [1, None]),
        (pa.map_(pa.int32(), pa.string()), [(1, "x"), (2, None)], [[1, "x"], [2, None]]),
        (
            pa.struct([("a", pa.int32()), ("b", pa.list_(pa.date32()))]),
            {"a": None, "b": [datetime.date(2026, 1, 2)]},
            {"a": None, "b": ["2026-01-02"]},
        ),
        (pa.int64(), None, None),
    ],
    ids=str,
)
def test_the_text_form_of_each_type(arrow, value, text):
    """It is strict JSON that a reader can turn back."""
    [line] = rows_to_json(pa.RecordBatch.from_pydict({"v": pa.array([value], arrow)}))
    assert json.loads(line, parse_constant=lambda word: pytest.fail(word)) == {"v": text}


def test_text_that_is_not_utf_8_keeps_its_bytes():
    """Spark's strings may hold any bytes."""
    column = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00"), pa.py_buffer(b"\xff\xfe")]
    )
    assert rows_to_json(pa.RecordBatch.from_arrays([column], ["v"])) == ['{"v":{"base64":"//4="}}']


@pytest.mark.parametrize(
    "ddl, arrow, values",
    [
        ("day DATE, v INT", pa.date32(), [0, 4_000_000, 1]),
        ("day TIMESTAMP(6), v INT", pa.timestamp("us"), [0, 4 * 10**17, 10**6]),
    ],
)
def test_a_date_that_has_no_folder_is_set_aside(ddl, arrow, values):
    """The table's folders have dates as text, where years beyond four digits have none.
    The other rows of the batch are written."""
    schema = new_schema(parse_ddl(ddl), ("day",), {"partition.legacy-name": "false"})
    rows = pa.RecordBatch.from_pydict({"day": pa.array(values, arrow), "v": pa.array([1, 2, 3], pa.int32())})
    fitting, refused = Screen(schema, Folders(schema, "/lake/t", NameLimits()))(rows)
    assert [(b.index, b.column, b.reason.partition(":")[0]) for b in refused] == [(1, "day", "path.unsupported-value")]
    assert fitting.column("v").to_pylist() == [1, 3]
