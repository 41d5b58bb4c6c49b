"""Nested columns that are empty or null in a whole Arrow batch, as Spark sends them: what is inside comes without its
offsets.

pyarrow then reads through a null pointer, which ends the process. What could do that runs in a child process.
"""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsink.format.schema import TableSchema
from streamsink.format.types import parse_ddl
from streamsink.storage.file_io import local_file_io
from streamsink.table.write.conform import Conform
from streamsink.table.write.spec import WriteSpec
from streamsink.table.write.writer import TableWriter

ROOT = Path(__file__).resolve().parent.parent.parent
COLUMNS = {
    "list_of_map": "ARRAY<MAP<STRING NOT NULL, INT>>",
    "list_of_struct": "ARRAY<ROW<m MAP<STRING NOT NULL, INT>>>",
    "map_of_map": "MAP<STRING NOT NULL, MAP<STRING NOT NULL, INT>>",
    "list_of_list": "ARRAY<ARRAY<STRING>>",
    "struct_of_list": "ROW<x ARRAY<MAP<STRING NOT NULL, INT>>, y ARRAY<STRING>>",
    "deep": "ARRAY<ARRAY<MAP<STRING NOT NULL, ARRAY<BYTES>>>>",
}
DDL = "id BIGINT, p INT, " + ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
BATCHES, ROWS = 20, 7


def bare(kind: pa.DataType) -> pa.Array:
    """An array without values, and with nothing where offsets belong, as Spark sends it."""
    values = [] if pa.types.is_nested(kind) else [pa.py_buffer(b"")]
    return pa.Array.from_buffers(
        kind,
        0,
        [None] * (kind.num_buffers - len(values)) + values,
        children=[bare(kind.field(i).type) for i in range(kind.num_fields)],
    )


def column(kind: pa.DataType, rows: int, null: bool) -> pa.Array:
    """A column whose rows are all empty, or all null."""
    valid = pa.py_buffer(bytes(rows // 8 + 1)) if null else None
    if pa.types.is_struct(kind):
        inside = [column(kind.field(i).type, rows, null) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, rows, [valid], children=inside)
    return pa.Array.from_buffers(
        kind, rows, [valid, pa.py_buffer(bytes(4 * (rows + 1)))], children=[bare(kind.field(0).type)]
    )


def batch(schema: pa.Schema, number: int) -> pa.RecordBatch:
    """``ROWS`` rows in two partitions; every other batch has nulls."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    keys = [pa.array(ids, pa.int64()), pa.array([i % 2 for i in ids], pa.int32())]
    nested = [column(field.type, ROWS, null=number % 2 == 1) for field in list(schema)[2:]]
    return pa.RecordBatch.from_arrays(keys + nested, schema=schema)


def write(folder: str, partition_by: list[str]) -> None:
    """Runs in a process of its own: writes batches into files and reads them back."""
    schema = TableSchema.create(parse_ddl(DDL), partition_by, {}, None, 1)
    given = Conform(schema.fields)._target
    io = local_file_io(flush=False)
    writer = TableWriter(io, WriteSpec(folder, schema.to_json(), 2**40, 10, 2**20))
    for number in range(BATCHES):
        writer.write(batch(given, number))
    with io.flush_group() as group:
        written = writer.close(group)
        group.flush()
    rows = [row for file in written for row in pq.read_table(file.staged).to_pylist()]
    assert sorted(row["id"] for row in rows) == list(range(BATCHES * ROWS))
    for row in rows:
        null = row["id"] // ROWS % 2 == 1
        assert all(
            row[name] == (None if null else {"x": [], "y": []} if name == "struct_of_list" else []) for name in COLUMNS
        ), row


@pytest.mark.parametrize("partition_by", [[], ["p"]])
def test_rows_whose_nested_columns_are_all_empty_are_written(tmp_path, partition_by):
    """With partitions pieces are also copied together, which reads the same pointers."""
    code = f"from tests.table.test_missing_offsets import write; write({str(tmp_path)!r}, {partition_by!r})"
    ended = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-2000:])
