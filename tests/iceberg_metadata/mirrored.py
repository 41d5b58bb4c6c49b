"""Iceberg metadata as readers see it: by pyiceberg, and of stores that pyiceberg does not know, by what it names."""

import json
import os

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.format.iceberg_manifest import is_live, read_entries, read_list
from streamsink.format.iceberg_values import partition_columns
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.read.scan import data_file_path, read_arrow
from streamsink.table.table import Table, open_table
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint

STORAGE = "metadata.iceberg.storage"
AT_TABLE = {STORAGE: "table-location"}
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


class Query:
    """A query into a table with Iceberg metadata, in batches of ten rows; its columns may change between two runs."""

    def __init__(self, path, schema=SCHEMA, row=lambda n: (n, ("a", "b", None)[n % 3]), **options):
        self.path = path
        tables = {**AT_TABLE, **options.pop("table_options", {})}
        options = {"partition_by": ("part",), "add_columns": True, "widen_types": True, "flush": False, **options}
        settings = SinkOptions.of(path, {**options, "table_options": tables})
        self.driver = MicroBatchDriver(path, schema, self._rows, settings)
        self.checkpoint = SparkCheckpoint(IdSource().new_id())
        self.row = row
        self.ends = []

    def _rows(self, start, end):
        columns = list(zip(*(self.row(n) for n in range(start, end)))) or [()] * len(self.driver.schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.driver.schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.driver.schema)

    def write(self, batches=1, rows=10):
        for _ in range(batches):
            self.ends.append((self.ends[-1] if self.ends else 0) + rows)
        self.driver.run(local_file_io(False), self.checkpoint, self.ends)

    def table(self, for_writing=False) -> Table:
        return open_table(local_file_io(False), self.path, for_writing=for_writing)


def folder_of(path) -> str:
    return os.path.join(path, "metadata")


def hinted(folder) -> int:
    with open(os.path.join(folder, "version-hint.text")) as file:
        return int(file.read())


def metadata_of(folder) -> dict:
    """The metadata that the hint names, as JSON."""
    with open(os.path.join(folder, f"v{hinted(folder)}.metadata.json")) as file:
        return json.load(file)


def iceberg(folder):
    """The table as pyiceberg opens it, by the hint."""
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(os.path.join(folder, f"v{hinted(folder)}.metadata.json"))


def rows_of(arrow) -> list:
    """All rows, in an order of their own, so that two readers can be compared. A NaN is a text, equal to itself."""
    rows = (tuple("NaN" if value != value else value for value in row.values()) for row in arrow.to_pylist())
    return sorted(rows, key=repr)


def check(path, folder=None) -> None:
    """Readers of Iceberg and of Paimon see the same rows, in the newest snapshot and in each earlier one that Iceberg
    has, and Iceberg's are no others than Paimon's.
    """
    table = open_table(local_file_io(False), path, for_writing=False)
    found = iceberg(folder or folder_of(path))
    newest = table.snapshots.latest()
    assert found.current_snapshot().snapshot_id == newest.id
    names = list(table.known_schema.field_names)
    assert found.scan().to_arrow().column_names == names
    assert rows_of(found.scan().to_arrow()) == rows_of(read_arrow(table))
    for snapshot in found.snapshots():
        assert table.snapshots.load(snapshot.snapshot_id) is not None, "a snapshot that is gone"
        live = {
            entry.file.file_name for entry in table.manifests.entries_of(table.snapshots.load(snapshot.snapshot_id))
        }
        tasks = found.scan(snapshot_id=snapshot.snapshot_id).plan_files()
        assert sorted(os.path.basename(task.file.file_path) for task in tasks) == sorted(live)


def check_named(table: Table, folder: str, *, at_newest=True) -> int:
    """By our own reader, in any store: what the hint leads to is whole, and is what the table has at that snapshot.

    Returns the number of that snapshot.
    """
    io = table.file_io
    hint = io.read(f"{folder}/version-hint.text")
    # A power failure may have torn the hint, as each hint of Paimon: readers of Hadoop tables list the folder then.
    versions = [int(name[1:].split(".")[0]) for name in io.names(folder) if name.endswith(".metadata.json")]
    number = int(hint) if hint else max(versions)
    while io.exists(f"{folder}/v{number + 1}.metadata.json"):  # as readers of Hadoop tables go on
        number += 1
    said = json.loads(io.read(f"{folder}/v{number}.metadata.json"))
    assert said["current-snapshot-id"] == number
    for snapshot in said["snapshots"]:
        live = _live(table, snapshot)
        paimon = table.snapshots.load(snapshot["snapshot-id"])
        if paimon is not None:
            expected = [data_file_path(table, table.known_schema, e) for e in table.manifests.entries_of(paimon)]
            assert live == sorted(expected), snapshot["snapshot-id"]
        assert paimon is not None or snapshot["snapshot-id"] != number
    if at_newest:
        assert number == table.snapshots.latest().id
    return number


def _live(table, snapshot) -> list[str]:
    io, live = table.file_io, []
    for manifest in read_list(io.read(snapshot["manifest-list"]), ""):
        data = io.read(manifest.path)
        assert len(data) == manifest.size
        entries = list(read_entries(data, "", partition_columns(table.known_schema)))
        named = [e for e in entries if is_live(e)]
        assert (len(named), sum(e["data_file"]["record_count"] for e in named)) == (
            manifest.live_files,
            manifest.live_rows,
        )
        live += [entry["data_file"]["file_path"] for entry in named]
    return sorted(live)


def named_files(folder) -> set[str]:
    """Names of all files of the metadata that readers of the hint can come to, and the hint."""
    io = local_file_io(False)
    said = metadata_of(folder)
    found = {"version-hint.text", f"v{said['current-snapshot-id']}.metadata.json"}
    for snapshot in said["snapshots"]:
        found.add(os.path.basename(snapshot["manifest-list"]))
        found |= {os.path.basename(m.path) for m in read_list(io.read(snapshot["manifest-list"]), "")}
    return found
