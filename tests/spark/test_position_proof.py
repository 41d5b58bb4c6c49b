"""A writer that checks its rows first: what it counts, on its way from a task to the driver; without Spark."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsink.errors import Misuse
from streamsink.format.schema import TableSchema
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import SourceRange
from streamsink.sinks.paimon.row_positions import judge, ranges_of
from streamsink.sinks.paimon.writing import TableWriting
from streamsink.spark.rows.position_proof import OUTSIDE, ProvenWriting
from streamsink.storage.file_io import local_file_io
from streamsink.table.write.spec import WriteSpec

COLUMNS = ("topic", "partition", "offset")
BATCH = Batch(3, "query", "run", (SourceRange({"t": {"0": 10}}, {"t": {"0": 20}}),))
OPTIONS = SinkOptions(position_columns=COLUMNS)


def rows(offsets, **more) -> pa.RecordBatch:
    count = len(offsets)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(count), pa.int64()),
            "topic": ["t"] * count,
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            **more,
        }
    )


def proven(folder, pieces, told: bool):
    """What comes out of a task, as the driver reads it."""
    schema = TableSchema.create(parse_ddl("id BIGINT"), [], {}, None, 1)
    inner = TableWriting(WriteSpec(str(folder), schema.to_json(), 2**30, 10, 2**20))
    ranges = None if told else ranges_of("table", BATCH, OPTIONS)
    writing = ProvenWriting(inner, ranges, (*COLUMNS, OUTSIDE))
    io = local_file_io(flush=False)
    writer = writing.open(io)
    for piece in pieces:
        writer.write(piece)
    with io.flush_group() as group:
        texts = [writing.encode(each) for each in writer.close(group)]
        group.flush()
    return [writing.decode(text) for text in texts]


@pytest.mark.parametrize("told", [False, True])
def test_rows_are_counted_and_written_without_the_columns(tmp_path, told):
    """The counts are the same from the columns themselves and from what the JVM says of each row,
    in all batches together."""
    flags = [{OUTSIDE: pa.array(flags)} if told else {} for flags in ([False, True, True], [False, False], [])]
    pieces = [rows([10, 9, 20], **flags[0]), rows([19, 12], **flags[1])]
    (found,) = proven(tmp_path, pieces, told)
    assert (found.rows, found.outside) == (5, 2)
    (file,) = found.written
    assert pq.read_table(file.staged).to_pydict() == {"id": [0, 1, 2, 0, 1]}
    with pytest.raises(Misuse, match="2 of 5 rows"):
        judge("table", BATCH, OPTIONS, dict.fromkeys(COLUMNS, "a type"), (found.rows, found.outside))


@pytest.mark.parametrize("told", [False, True])
def test_rows_that_lie_in_their_batch_are_handed_on(tmp_path, told):
    """A writer without rows hands back nothing."""
    (found,) = proven(tmp_path, [rows([10, 19], **({OUTSIDE: pa.array([False, False])} if told else {}))], told)
    assert (found.rows, found.outside, len(found.written)) == (2, 0, 1)
    judge("table", BATCH, OPTIONS, {}, (found.rows, found.outside))
    assert proven(tmp_path, [], told)[0].written == ()
