"""Data files at their final place: what is in them, and what is found of attempts that got no record."""

import contextlib
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsink.errors import Corrupt, Misuse, Retryable
from streamsink.format.arrow_types import from_arrow_schema, to_arrow_schema
from streamsink.protocol.committable import AppState, Batch, Committable
from streamsink.protocol.decision import Checkpoint, Decision, Verdict
from streamsink.sinks.lake_tables.attempts import Places
from streamsink.sinks.lake_tables.writing import LakeWriting
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.storage.stores import Store
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
    ]
)
FIELDS = tuple(from_arrow_schema(COLUMNS))
STAGING, DATA = "/journal/streamsink/a/staging/3-7", "/table/data"


def rows(first: int, end: int, days: int = 1) -> pa.RecordBatch:
    numbers = range(first, end)
    return pa.RecordBatch.from_pydict(
        {
            "name": [f"name {n}" for n in numbers],
            "id": pa.array(numbers, pa.int32()),
            "day": pa.array([n % days or None for n in numbers], pa.int32()).cast(pa.date32()),
            "price": pa.array([f"{n}.50" for n in numbers]).cast(pa.decimal128(9, 2)),
            "tags": pa.array([[str(n)] if n % 2 else None for n in numbers], pa.list_(pa.string())),
        }
    )


class World:
    """One attempt to write a checkpoint, in memory."""

    def __init__(self, attempt: str = "attempt-1", calls: MemoryCalls | None = None):
        self.calls = calls or MemoryCalls()
        self.io = FileIO(self.calls, lambda: "an id")
        self.io.make_dir(STAGING)
        self.places = Places("db.t", self.io, "/journal", self.io, DATA)
        self.checkpoint = Checkpoint(Batch(4, "query", ""), Decision(Verdict.NEW, "new"), 7, STAGING, 0, attempt)

    def writing(self, **changes) -> LakeWriting:
        said = {
            "table": "db.t",
            "staging": STAGING,
            "folder": self.places.folder(self.checkpoint.attempt),
            "attempt": self.checkpoint.attempt,
            "fields": FIELDS,
            "schema": to_arrow_schema(FIELDS),
            "partition_by": (),
            "most_bytes": 1 << 30,
            "max_open": 2,
            "memory_bytes": 1 << 30,
        }
        return LakeWriting(**said | changes)

    def write(self, *batches: pa.RecordBatch, **changes):
        writer = self.writing(**changes).open(self.io)
        with self.io.flush_group() as group:
            for batch in batches:
                writer.write(batch)
            files = writer.close(group)
            group.flush()
        return files

    def read(self, file) -> pa.Table:
        path = f"{self.places.folder(self.checkpoint.attempt)}/{file.name}"
        return pq.read_table(io.BytesIO(self.io.read(path)))

    def record(self, files, attempt: str = "") -> Committable:
        with self.io.flush_group() as group:
            named, payload = self.places.stage(self.checkpoint, files, group, schema=3)
            group.flush()
        state = AppState("query", 1, 3, 4, 7, attempt or self.checkpoint.attempt, "table", ())
        return Committable(state, "a", None, named, payload)

    def left(self) -> list[str]:
        return self.io.files_below("/table")


def test_rows_come_back_as_the_table_has_them():
    """Columns are matched by name and brought to the table's type; the footer that is handed on tells their bounds."""
    world = World()
    [file] = world.write(rows(0, 5), rows(5, 9))
    found = world.read(file)
    assert found.schema.equals(COLUMNS) and found.column("id").to_pylist() == list(range(9))
    assert found.column("tags").to_pylist()[:2] == [None, ["1"]]
    assert (file.rows, file.size) == (9, world.io.size(f"{world.places.folder('attempt-1')}/{file.name}"))
    statistics = file.metadata.row_group(0).column(0).statistics
    assert (statistics.min, statistics.max, file.metadata.num_rows) == (0, 8, 9)


def test_each_file_has_one_partition():
    """Also where more partitions come than files may be open, and one of them is null."""
    world = World()
    files = world.write(rows(0, 20, days=4), rows(20, 40, days=4), partition_by=("day",))
    found = {}
    for file in files:
        [value] = file.partition_values.values()
        assert set(world.read(file).column("day").to_pylist()) == {value.as_py()}
        found.setdefault(value.as_py(), []).extend(world.read(file).column("id").to_pylist())
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(40))
    assert len(found) == 4 and None in found


def test_ids_of_fields_are_in_the_files_and_partition_columns_may_be_left_out():
    """The ids are what a reader of Iceberg looks for; a reader of Delta takes partition columns from its log."""
    world = World()
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "17"}), COLUMNS.field("name")])
    [file] = world.write(rows(0, 3), schema=schema, partition_by=("day",))
    found = world.read(file)
    assert found.column_names == ["id", "name"] and found.schema.field("id").metadata[b"PARQUET:field_id"] == b"17"
    assert list(file.partition_values) == ["day"]


def test_a_file_ends_when_it_is_large_enough():
    """``target_file_bytes`` of the option."""
    world = World()
    files = world.write(*[rows(n, n + 100) for n in range(0, 500, 100)], most_bytes=1, memory_bytes=1)
    assert len(files) == 5 and sum(file.rows for file in files) == 500


def test_rows_that_do_not_fit_are_refused_and_leave_no_file():
    """As of any table: no value is changed."""
    world, narrow = World(), tuple(from_arrow_schema(pa.schema([("id", pa.int8())])))
    writer = world.writing(fields=narrow, schema=to_arrow_schema(narrow)).open(world.io)
    with pytest.raises(Misuse) as refused:
        writer.write(rows(500, 501))
    writer.abort()
    assert refused.value.kind == "data.cast" and world.left() == []
    assert str(refused.value).startswith("db.t: column 'id'") and "dead_letters" not in str(refused.value)


def test_a_text_that_is_not_utf8_names_no_partition():
    world = World()
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    writer = world.writing(partition_by=("name",)).open(world.io)
    writer.write(rows(0, 1).set_column(0, "name", text))
    with world.io.flush_group() as group, pytest.raises(Misuse) as refused:
        writer.close(group)
    writer.abort()
    assert refused.value.kind == "partition.encoding" and world.left() == []


def test_a_task_hands_over_what_the_driver_reads(tmp_path):
    """A table in another store than its journal; what travels is text."""
    world = World()
    writing = world.writing(folder=str(tmp_path / "data" / "streamsink-attempt-1"), store=Store(str(tmp_path)))
    writer = writing.open(world.io)
    writer.write(rows(0, 3, days=2))
    with world.io.flush_group() as group:
        [file] = [writing.decode(writing.encode(each)) for each in writer.close(group)]
        group.flush()
    assert file.handed_over and pq.read_table(f"{writing.folder}/{file.name}").num_rows == 3
    world.places = Places("db.t", world.io, "/journal", local_file_io(), str(tmp_path / "data"))
    record = world.record([file])
    assert world.places.described(record) == ([not_handed_over(file)], {"schema": 3})
    (tmp_path / "data" / "streamsink-attempt-1" / file.name).write_bytes(b"short")
    with pytest.raises(Corrupt, match="missing|bytes"):
        world.record([file])


def not_handed_over(file):
    """As the description has it, which says nothing of tasks."""
    return type(file)(file.name, file.size, file.rows, file.partition, file.footer, nans=file.nans)


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_description_that_is_gone_or_changed_is_noticed(damage):
    world = World()
    record = world.record(world.write(rows(0, 3)))
    [path] = [f"{STAGING}/{name}" for name in world.io.names(STAGING) if name.startswith("manifest-")]
    data = world.io.read(path)
    world.io.delete(path)
    if damage == "changed":
        world.io.write(path, data.replace(b'"rows": 3', b'"rows": 4'))
    with pytest.raises(Corrupt, match="Restore that file") as refused:
        world.places.described(record)
    assert refused.value.kind == "pending.files-gone"


def never(number: int, attempt: str) -> bool:
    return False


def test_what_an_attempt_leaves_is_found_by_its_name():
    """Another attempt's files stay, and nothing but the attempt's own folder is listed."""
    world, other = World(), World("attempt-2")
    world.write(rows(0, 3))
    other = World("attempt-2", world.calls)
    other.write(rows(0, 3))
    world.io.delete(f"{STAGING}/lake-attempt-2")  # it is announced elsewhere
    assert world.places.sweep(STAGING, None, never)
    assert {path.split("/")[3] for path in world.left()} == {"streamsink-attempt-2"}
    assert world.places.sweep(STAGING, None, never)


def test_what_a_record_names_stays():
    """Of two attempts at one number the record is of one."""
    world = World()
    files = world.write(rows(0, 3))
    World("attempt-2", world.calls).write(rows(0, 3))
    record = world.record(files)
    assert world.places.sweep(STAGING, record, never)
    assert {path.split("/")[3] for path in world.left()} == {"streamsink-attempt-1"}
    assert world.places.in_place(record) == (1, 0, ())
    world.io.delete(world.places.path(record, files[0].name))
    assert world.places.in_place(record)[2] == (world.places.path(record, files[0].name),)


def test_what_the_table_may_name_stays():
    """The journal is an older copy: a record of the number was published, and the copy does not have it."""
    world = World()
    world.write(rows(0, 3))
    assert world.places.sweep(STAGING, None, lambda number, attempt: (number, attempt) == (7, "attempt-1"))
    assert len(world.left()) == 1


def test_a_writer_whose_attempt_was_swept_leaves_nothing():
    """Whoever swept it does not come again."""
    world = World()
    writer = world.writing(memory_bytes=1).open(world.io)
    writer.write(rows(0, 3))
    world.places.sweep(STAGING, None, never)
    world.io.delete_tree(STAGING)
    writer.write(rows(3, 6))
    with world.io.flush_group() as group, pytest.raises(Retryable) as refused:
        writer.close(group)
    writer.abort()
    assert refused.value.kind == "attempt.given-up" and world.left() == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of Arrow, in a driver that is dead
def test_the_attempt_is_announced_before_its_first_file():
    """Whatever call a writer dies at, alone or with its machine: what it leaves is found."""
    counting = CrashingCalls(MemoryCalls())
    World(calls=counting).write(rows(0, 3))
    assert counting.count > 10
    for number in range(1, counting.count + 1):
        for power in (False, True):
            calls = MemoryCalls()
            FileIO(calls, lambda: "an id").make_dir(STAGING)
            with contextlib.suppress(InjectedCrash):
                World(calls=CrashingCalls(calls, number)).write(rows(0, 3))
            calls.power_failure() if power else calls.process_death()
            after = World(calls=calls)
            after.places.sweep(STAGING, None, never)
            assert after.left() == [], number
