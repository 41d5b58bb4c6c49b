"""Which files make up a snapshot, and reading them as Arrow (small tables, tests, tools; Spark reads by itself)."""

from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink.errors import Corrupt, Misuse
from streamsink.format.arrow_types import needs_int96, to_arrow_schema
from streamsink.format.binary_row import decode_row
from streamsink.format.manifest import ManifestEntry
from streamsink.format.paths import bucket_dir, partition_path
from streamsink.format.schema import TableSchema
from streamsink.format.snapshot import Snapshot
from streamsink.table.evolved import check_casts, evolve_table
from streamsink.table.table import Table


@dataclass(frozen=True)
class ScanFile:
    """One live file: absolute path, size in bytes, rows, and the schema it was written with."""

    path: str
    size: int
    rows: int
    schema_id: int


def plan(table: Table, snapshot_id: int | None = None) -> tuple[Snapshot | None, list[ScanFile]]:
    """The snapshot (the newest one unless given) and its live files. Raises Misuse when it does not exist."""
    snapshot = table.snapshots.latest() if snapshot_id is None else table.snapshots.load(snapshot_id)
    if snapshot is None:
        if snapshot_id is None:
            return None, []
        ids = table.snapshots.ids()
        raise Misuse(
            f"{table.root}: there is no snapshot {snapshot_id}; there are {f'{ids[0]} to {ids[-1]}' if ids else 'none'}",
            kind="snapshot.missing",
        )
    schema = table.schema
    return snapshot, [_scan_file(table, schema, entry) for entry in table.manifests.entries_of(snapshot)]


def by_schema(files: list[ScanFile]) -> dict[int, list[ScanFile]]:
    """Files by the schema they were written with: each group is read alike."""
    groups: dict[int, list[ScanFile]] = defaultdict(list)
    for file in files:
        groups[file.schema_id].append(file)
    return dict(sorted(groups.items()))


def read_arrow(table: Table, snapshot_id: int | None = None) -> pa.Table:
    """All rows of a snapshot, in the newest schema. Everything is held in memory."""
    _, files = plan(table, snapshot_id)
    target = to_arrow_schema(table.schema.fields)
    parts = []
    for schema_id, group in by_schema(files).items():
        written = table.schemas.load(schema_id)
        check_casts(written, table.schema, table.root)
        for file in group:
            found = _read_file(table.file_io.read(file.path), written)
            if found.num_rows != file.rows:
                raise Corrupt(
                    f"{file.path}: it has {found.num_rows} rows, the manifest says {file.rows}", kind="data.rows"
                )
            parts.append(evolve_table(found, written, table.schema))
    return pa.concat_tables(parts) if parts else target.empty_table()


def _read_file(data: bytes, written: TableSchema) -> pa.Table:
    """A data file's columns. INT96 timestamps are read in their own unit: as nanoseconds, years after 2262 would wrap."""
    coarse = [field.name for field in written.fields if not needs_int96([field])]
    if len(coarse) == len(written.fields):
        return pq.read_table(pa.BufferReader(data), coerce_int96_timestamp_unit="us")
    found = pq.read_table(pa.BufferReader(data))
    if coarse:
        exact = pq.read_table(pa.BufferReader(data), columns=coarse, coerce_int96_timestamp_unit="us")
        for name in exact.column_names:
            found = found.set_column(found.column_names.index(name), name, exact.column(name))
    return found


def _scan_file(table: Table, schema: TableSchema, entry: ManifestEntry) -> ScanFile:
    fields = schema.partition_fields
    values = decode_row(entry.partition, [f.type for f in fields]) if fields else ()
    options = schema.options
    folder = partition_path(
        values, fields,
        default_name=options.get("partition.default-name", "__DEFAULT_PARTITION__"),
        legacy=options.get("partition.legacy-name", "true").strip().lower() == "true",
    )
    path = table.layout.within(f"{bucket_dir(folder, entry.bucket)}/{entry.file.file_name}")
    return ScanFile(path, entry.file.file_size, entry.file.row_count, entry.file.schema_id)
