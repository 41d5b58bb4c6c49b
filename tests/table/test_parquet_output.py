"""How a data file is written: its size, and that one which is given up is left alone, even by finalisers."""

import gc
import hashlib
import io
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.types import parse_ddl
from streamsink.table.write.parquet_output import Encoding, ParquetOutput


class _Counting(io.BytesIO):
    """Counts the writes that reach it."""

    writes = 0

    def write(self, data):
        self.writes += 1
        return super().write(data)


@pytest.mark.parametrize(
    "ddl, kind", [("id BIGINT", pa.int64()), ("id BIGINT, at TIMESTAMP(9)", pa.timestamp("ns"))], ids=["", "int96"]
)
def test_a_discarded_file_is_never_written_to_again(ddl, kind):
    """This holds at once and when the garbage is collected,
    which could otherwise call a closed stream at any time, anywhere."""
    rows = pa.table(
        {field.name: pa.array([1], pa.int64()).cast(t) for field, t in zip(parse_ddl(ddl), (pa.int64(), kind))}
    )
    stream = _Counting()
    output = ParquetOutput(stream, parse_ddl(ddl), rows, Encoding("zstd", 1))
    output.write(rows)
    written = stream.writes
    assert written
    output.discard()
    del output
    gc.collect()
    assert stream.writes == written


def test_texts_take_less_room_than_in_pages_of_arrows_own_size():
    """Pages of up to 256 KiB are what zstd does best with, and bytes are what a store is paid for."""
    texts = [hashlib.md5(str(number).encode()).hexdigest() for number in range(100_000)]
    rows = pa.table({"note": pa.array(texts, pa.string())})
    ours, arrows = io.BytesIO(), io.BytesIO()
    output = ParquetOutput(ours, parse_ddl("note STRING"), rows, Encoding("zstd", 1))
    output.write(rows)
    output.close()
    pq.write_table(rows, arrows, compression="zstd", compression_level=1, use_dictionary=False)
    assert len(ours.getvalue()) < 0.99 * len(arrows.getvalue())
    assert pq.read_table(io.BytesIO(ours.getvalue())).equals(rows)


@pytest.mark.parametrize("more", ["", ", us TIMESTAMP(6), ns TIMESTAMP(9)"], ids=["", "int96"])
def test_a_column_with_a_nan_has_no_bounds_and_all_others_have_theirs(more):
    """Arrow's bounds leave NaN out, and Spark, to which it is the greatest number, would skip a row group by them. It
    may be in any row group, and at any depth."""
    fields = parse_ddl(f"id INT, d DOUBLE, e DOUBLE, s ROW<t STRING, f FLOAT, g FLOAT>, m MAP<INT, DOUBLE>{more}")
    rows = [
        {"id": 1, "d": 1.0, "e": 1.0, "s": {"t": "a", "f": 1.0, "g": 1.0}, "m": [(1, 1.0)]},
        {"id": 2, "d": None, "e": 2.0, "s": {"t": "b", "f": math.nan, "g": 2.0}, "m": [(2, math.nan)]},
        {"id": 3, "d": math.nan, "e": 3.0, "s": None, "m": None},
    ]
    stream = io.BytesIO()
    groups = [pa.Table.from_pylist([row], to_arrow_schema(fields)) for row in rows]
    output = ParquetOutput(stream, fields, groups[0], Encoding("zstd", 1))
    for group in groups:
        output.write(group)
    output.close()
    file = pq.ParquetFile(io.BytesIO(stream.getvalue()))
    assert str(file.read().select(["id", "d", "e", "s", "m"]).to_pylist()) == str(rows)
    first, last = (file.metadata.row_group(number) for number in (0, 2))
    named = {first.column(at).path_in_schema: first.column(at).statistics for at in range(first.num_columns)}
    without = {name for name, found in named.items() if found is not None and not found.has_min_max}
    assert without - {"us", "ns"} == {"d", "s.f", "m.key_value.value"}
    assert (named["e"].min, named["e"].max, named["s.g"].max, named["s.t"].max, named["id"].max) == (1, 1, 1, "a", 1)
    assert [group.column(1).statistics.null_count for group in (first, last)] == [0, 0]
    assert file.metadata.row_group(1).column(1).statistics.null_count == 1
