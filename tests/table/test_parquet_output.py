"""A file that is given up is left alone, even by the finalisers of the library that wrote it."""

import gc
import io

import pyarrow as pa
import pytest

from streamsink.format.types import parse_ddl
from streamsink.table.write.parquet_output import ParquetOutput


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
    output = ParquetOutput(stream, parse_ddl(ddl), rows, ("zstd", 1))
    output.write(rows)
    written = stream.writes
    assert written
    output.discard()
    del output
    gc.collect()
    assert stream.writes == written
