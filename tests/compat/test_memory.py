"""What a writer holds is bounded, whatever it is given:
open files, buffered bytes, sizes of files; and every row is there once."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsink.clock import IdSource
from streamsink.format.schema import TableSchema
from streamsink.format.types import parse_ddl
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.table.write.buffers import COLUMN_OVERHEAD_BYTES
from streamsink.table.write.spec import WriteSpec
from streamsink.table.write.writer import TableWriter

pytestmark = pytest.mark.compat

KILO = 1024
DDL = "id BIGINT, p INT, q STRING, text STRING"


class CountingIO(FileIO):
    """Counts how many files are open now, and how many were open at most."""

    def __init__(self):
        super().__init__(PosixCalls(), IdSource().new_id, flush=False)
        self.open = self.most = self.opened = 0

    def open_output(self, path):
        stream = super().open_output(path)
        self.open, self.opened = self.open + 1, self.opened + 1
        self.most = max(self.most, self.open)
        return stream

    def unflushed(self, stream):
        begun = super().unflushed(stream)

        def finish():
            begun.finish()
            self.open -= 1

        return replace(begun, finish=finish)


def spec(folder, partition_by, **caps):
    schema = TableSchema.create(parse_ddl(DDL), partition_by, {}, None, 1)
    given = {"target_file_bytes": 2**40, "max_open": 10, "memory_bytes": 256 * KILO, **caps}
    return WriteSpec(str(folder), schema.to_json(), **given)


def batch(rng, start, rows, partitions, text_bytes=20):
    chosen = [rng.randrange(partitions) for _ in range(rows)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(start, start + rows), pa.int64()),
            pa.array(chosen, pa.int32()),
            pa.array([None if p % 7 == 0 else f"q{p % 5}" for p in chosen], pa.string()),
            pa.array([rng.randbytes(text_bytes // 2).hex() for _ in range(rows)], pa.string()),
        ],
        names=["id", "p", "q", "text"],
    )


def closed(writer):
    with writer._io.flush_group() as group:
        written = writer.close(group)
        group.flush()
    return written


def held(writer):
    """The bytes of all Arrow data to which the writer refers, in its buffers or before they are split."""
    buffered = [part for buffer in writer._buffers.values() for part in buffer.batches]
    return sum(part.nbytes for part in (*writer._waiting, *buffered))


def rows_of(written):
    return pa.concat_tables([pq.read_table(file.staged) for file in written])


def check_every_row_once(written, batches):
    given = pa.Table.from_batches(batches)
    found = rows_of(written)
    assert sum(file.meta.row_count for file in written) == found.num_rows == given.num_rows
    assert found.sort_by("id").equals(given.sort_by("id").cast(found.schema))


@pytest.mark.in_turn("memory", 1)
@pytest.mark.parametrize("round_number", range(4))
def test_a_thousand_partitions_within_every_cap(tmp_path, rng, round_number):
    """With random caps and batch sizes and 1,000 partitions there are never more open files or buffered bytes than
    allowed, and every row is there once."""
    caps = {
        "max_open": rng.choice([1, 2, 17]),
        "memory_bytes": rng.choice([1, 50 * KILO, 2000 * KILO]),
        "target_file_bytes": rng.choice([1, 20 * KILO, 2**40]),
    }
    sizes = [rng.choice([1, 10, 1500]) for _ in range(6)]
    print(caps, sizes)
    io = CountingIO()
    writer = TableWriter(io, spec(tmp_path, ["p", "q"], **caps))
    batches, start = [], 0
    for rows in sizes:
        batches.append(batch(rng, start, rows, 1000))
        start += rows
        writer.write(batches[-1])
        assert io.open <= io.most <= caps["max_open"]
        assert held(writer) <= caps["memory_bytes"]
        assert sum(part.nbytes for part in writer._waiting) <= caps["memory_bytes"] / 8, (
            "they are copied together once more"
        )
    written = closed(writer)
    assert io.open == 0 and io.most <= caps["max_open"]
    assert io.opened == len(written) == len({file.staged for file in written})
    check_every_row_once(written, batches)
    for file in written:
        assert len(set(pq.read_table(file.staged, columns=["p"]).column("p").to_pylist())) == 1


def test_rows_of_small_batches_are_split_together(tmp_path, rng):
    """Of 500 batches of 20 rows over 100 partitions none is split before the end,
    and each partition's rows keep their order."""
    writer = TableWriter(CountingIO(), spec(tmp_path, ["p"], memory_bytes=64_000 * KILO, max_open=100))
    batches = [batch(rng, at, 20, 100) for at in range(0, 10_000, 20)]
    for part in batches:
        writer.write(part)
    assert writer._buffers == {} and writer.buffered >= held(writer) == sum(part.nbytes for part in batches)
    written = closed(writer)
    assert writer.buffered == 0 and len(written) == 100
    check_every_row_once(written, batches)
    for file in written:
        ids = pq.read_table(file.staged).column("id").to_pylist()
        assert ids == sorted(ids)


@pytest.mark.parametrize("eighths", [0.9, 0.96, 0.99, 1.5, 3])
def test_rows_that_wait_may_be_the_ones_too_many(tmp_path, rng, eighths):
    """There is one partition:
    splitting what waits fills its buffer, which is written then, and nothing is left to flush."""
    parts = [batch(rng, at, 100, 1) for at in range(0, 6_000, 100)]
    size = parts[0].nbytes + parts[0].num_columns * COLUMN_OVERHEAD_BYTES
    writer = TableWriter(CountingIO(), spec(tmp_path, ["p"], memory_bytes=int(8 * size / eighths)))
    for part in parts:
        writer.write(part)
    check_every_row_once(closed(writer), parts)


def test_all_thousand_partitions_of_one_batch(tmp_path, rng):
    """One batch of 20,000 rows over 1,000 partitions needs few open files,
    and each partition's rows are in its own files."""
    io = CountingIO()
    writer = TableWriter(io, spec(tmp_path, ["p"], max_open=8, memory_bytes=100 * KILO))
    batches = [batch(rng, 0, 20_000, 1000)]
    writer.write(batches[0])
    written = closed(writer)
    assert io.most == 8
    check_every_row_once(written, batches)
    assert len({file.partition for file in written}) == len(set(batches[0].column("p").to_pylist()))


def test_a_rare_partition_does_not_keep_whole_batches_alive(tmp_path, rng):
    """One row of each batch waits in its buffer while the others are written:
    memory stays at the cap, and does not hold all batches."""
    big = batch(rng, 0, 2000, 1, text_bytes=1000)
    cap = 4 * big.nbytes
    writer = TableWriter(CountingIO(), spec(tmp_path, ["p"], memory_bytes=cap))
    before, most, parts = pa.total_allocated_bytes(), 0, []
    for number in range(60):
        chosen = pa.array([0] * 1999 + [1], pa.int32())
        ids = pa.array(range(number * 2000, number * 2000 + 2000), pa.int64())
        parts.append(ids)
        writer.write(pa.RecordBatch.from_arrays([ids, chosen, big.column(2), big.column(3)], names=big.schema.names))
        most = max(most, pa.total_allocated_bytes() - before - sum(part.nbytes for part in parts))
    assert most < cap + 4 * big.nbytes
    assert sorted(rows_of(closed(writer)).column("id").to_pylist()) == list(range(120_000))


@pytest.mark.parametrize("partition_by", [[], ["q"]], ids=["plain", "partitioned"])
def test_files_roll_at_the_target_size(tmp_path, rng, partition_by):
    """No file is larger than the target plus one flush.
    All files of a partition except the last have reached the target."""
    target, memory = 100 * KILO, 30 * KILO
    writer = TableWriter(CountingIO(), spec(tmp_path, partition_by, target_file_bytes=target, memory_bytes=memory))
    batches = [batch(rng, at, 500, 12, text_bytes=200) for at in range(0, 10_000, 500)]
    for part in batches:
        writer.write(part)
    written = closed(writer)
    check_every_row_once(written, batches)
    assert max(file.meta.file_size for file in written) < target + 3 * memory
    by_partition: dict[bytes, list[int]] = {}
    for file in written:
        by_partition.setdefault(file.partition, []).append(file.meta.file_size)
    for sizes in by_partition.values():
        assert sum(size < target for size in sizes) <= 1
    assert len(written) > len(by_partition)


def test_an_aborted_writer_leaves_no_file(tmp_path, rng):
    """Whatever was open, closed or buffered is gone, and aborting twice is as good as once."""
    writer = TableWriter(
        CountingIO(), spec(tmp_path, ["p"], max_open=3, memory_bytes=10 * KILO, target_file_bytes=4 * KILO)
    )
    writer.write(batch(rng, 0, 5000, 50))
    assert any(tmp_path.iterdir())
    writer.abort()
    writer.abort()
    assert not any(tmp_path.iterdir())
