"""How a data file is written: its size, and that one which is given up is left alone, even by finalisers."""

import gc
import hashlib
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
