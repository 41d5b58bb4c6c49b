"""Rows of dead letters come back from their JSON exactly as the query would have written them, or not at all."""

import datetime
import decimal

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.types import parse_ddl
from streamsink.operations.letters.from_json import decoded
from streamsink.operations.letters.selection import _letter
from streamsink.storage.file_io import FileIO
from streamsink.table.routed.dead_letters import Screen
from streamsink.table.routed.row_json import rows_to_json
from streamsink.table.table import create_table, new_schema
from streamsink.testing.memory import MemoryCalls

D = decimal.Decimal
_VALUES = [
    ("TINYINT", [1, -128]),
    ("BIGINT", [2**63 - 1, -(2**63)]),
    ("BOOLEAN", [True, False]),
    ("DOUBLE", [0.1, float("inf"), -0.0]),
    ("FLOAT", [0.5, 3.4028234663852886e38]),
    ("DECIMAL(20, 2)", [D("12.50"), D("-999999999999999999.99")]),
    ("STRING", ["", "zwölf", "12"]),
    ("CHAR(3)", ["abc"]),
    ("BYTES", [b"", b"\x00\xff"]),
    ("DATE", [datetime.date(2026, 11, 27), datetime.date(1, 1, 1)]),
    ("TIME(3)", [datetime.time(12, 30, 1, 500_000)]),
    ("TIMESTAMP(6)", [datetime.datetime(2026, 11, 27, 1, 2, 3, 456_789)]),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", [datetime.datetime(2026, 11, 27, 1, 2, tzinfo=datetime.timezone.utc)]),
    ("ARRAY<INT>", [[1, None], []]),
    ("ARRAY<DECIMAL(5, 1)>", [[D("1.5")]]),
    ("MAP<STRING, DATE>", [[("a", datetime.date(2026, 1, 1)), ("b", None)]]),
    ("ROW<a INT, b ARRAY<BYTES>>", [{"a": 1, "b": [b"\x01"]}, {"a": None, "b": None}]),
]


@pytest.mark.parametrize(("ddl", "values"), _VALUES, ids=[ddl for ddl, _ in _VALUES])
def test_a_row_comes_back_from_its_text_as_it_was(ddl, values):
    """Through the form in which letters keep rows, in the table's own type."""
    schema = _schema(f"v {ddl}")
    arrow = pa.schema(to_arrow_schema(schema.fields))
    rows = pa.record_batch([pa.array([*values, None], arrow.field(0).type)], schema=arrow)
    parts = list(decoded([(text, ()) for text in rows_to_json(rows, marked=True)], schema, Screen(schema)))
    assert all(not refused for _, _, refused in parts), parts
    found = {place: value for places, part, _ in parts for place, value in zip(places, part.column(0).to_pylist())}
    assert [found[place] for place in range(len(values) + 1)] == rows.column(0).to_pylist()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"v":0.5}', "letter.value: column 'v' is TINYINT"),
        ('{"v":true}', "letter.value: column 'v' is TINYINT"),
        ('{"v":300}', "data.cast"),
        ('{"v":"x"}', "data.cast"),
        ('{"v":1,"w":2}', "letter.column: the table has no column 'w'"),
        ('{"v":{"base64":"AA=="}}', "letter.value"),
        ('{"v":99999999999999999999}', "data.cast"),
        ("[1]", "letter.text"),
        ("{", "letter.text"),
    ],
)
def test_a_row_that_still_does_not_fit_is_told_with_its_reason(text, why):
    schema = _schema("v TINYINT")
    [(places, rows, refused)] = decoded([(text, ())], schema, Screen(schema))
    assert not places and list(refused) == [0] and refused[0].startswith(why)


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("FLOAT", "0.1"),
        ("ARRAY<FLOAT>", "[0.1]"),
        ("ARRAY<FLOAT>", "[1e40]"),
        ("ARRAY<FLOAT>", "[16777217]"),
        ("ARRAY<DOUBLE>", "[9007199254740993]"),
        ("ARRAY<DOUBLE>", "[true]"),
        ("ARRAY<INT>", "[1.5]"),
        ("MAP<STRING, INT>", '[["a",1.5]]'),
        ("ROW<a TINYINT>", '{"a":1.5}'),
        ("ARRAY<TINYINT>", '["0xFF"]'),
        ("ARRAY<DECIMAL(5, 1)>", '["1.55"]'),
        ("ARRAY<DECIMAL(5, 1)>", "[true]"),
        ("ARRAY<TIMESTAMP(3)>", '["2026-01-01 00:00:00.123456"]'),
        ("ARRAY<TIMESTAMP(3)>", '["2026-01-01 00:00:00+02:00"]'),
        ("ARRAY<TIME(3)>", '["12:00:00.000001"]'),
        ("TIME(3)", '"12:00:00+01:00"'),
        ("DATE", '"99999999999999999999 days since 1970-01-01"'),
        ("TIMESTAMP(6)", '"99999999999999999999 us since 1970-01-01"'),
        ("STRING", r'"\ud800"'),
        ("STRING", '{"base64":"/w=="}'),
        ("ARRAY<STRING>", '[{"base64":"/w=="}]'),
        ("BYTES", '{"base64":"x"}'),
    ],
)
def test_a_value_that_would_change_does_not_fit(ddl, text):
    """Python's and Arrow's own conversions would round it, cut it, or end with an error of theirs."""
    schema = _schema(f"v {ddl}")
    [(places, _, refused)] = decoded([(f'{{"v":{text}}}', ())], schema, Screen(schema))
    assert not places and list(refused) == [0]


@pytest.mark.parametrize(
    ("kind", "ddl"), [("string", "BYTES"), ("binary", "STRING"), ("binary", "BYTES"), ("string", "STRING")]
)
def test_bytes_and_texts_come_back_as_the_query_would_have_written_them(kind, ddl):
    """A column of texts may become one of bytes, and bytes texts. Without a mark a text would be taken for base64, or
    base64 for the text.
    """
    schema = _schema(f"v {ddl}")
    rows = pa.record_batch({"v": pa.array(["abcd"]).cast(kind), "l": pa.array(["x"])}).select(["v"])
    written, _ = Screen(schema)(rows)
    [(_, read, refused)] = decoded([(text, ()) for text in rows_to_json(rows, marked=True)], schema, Screen(schema))
    assert not refused and read is not None and read.column(0).equals(written.column(0))


def _schema(ddl: str):
    file_io = FileIO(MemoryCalls(), IdSource().new_id)
    return create_table(file_io, "/lake/t", new_schema(parse_ddl(ddl), (), {})).known_schema


def test_position_columns_need_not_be_in_the_table():
    """A letter has them beside its row and in it; a table has them with store_position_columns only."""
    schema = _schema("v TINYINT")
    letter = _letter("id", {**_LETTER, "row": '{"v":1,"part":3}', "part": 3, "offset": None})
    assert letter.position_names == {"part"}
    [(places, rows, refused)] = decoded([(letter.row, letter.position_names)], schema, Screen(schema))
    assert (places, rows.to_pylist(), refused) == ([0], [{"v": 1}], {})


_LETTER = {"application": "a", "checkpoint_id": 1, "target": "t", "reason": "r: x", "column": None}
