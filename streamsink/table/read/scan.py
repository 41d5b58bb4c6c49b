"""Plans which files make up a snapshot, and reads them as Arrow.

Reading is for small tables, tests and tools; Spark reads the files by itself.
"""

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamsink import shell
from streamsink.errors import Corrupt, Misuse
from streamsink.format.arrow_types import leaf_arrays, needs_int96, to_arrow_schema
from streamsink.format.binary_row import decode_row
from streamsink.format.manifest import ManifestEntry
from streamsink.format.paths import bucket_dir, partition_path
from streamsink.format.schema import TableSchema
from streamsink.format.snapshot import Snapshot
from streamsink.format.types import DataField
from streamsink.table.read.condition import Condition, bind
from streamsink.table.read.evolved import check_casts, evolve_table
from streamsink.table.read.predicate import Predicate
from streamsink.table.read.pruning import Pruner
from streamsink.table.table import Table

# By so many microseconds a time is off that 64 bits of nanoseconds do not hold, or by a multiple of that.
_WRAPPED_MICROS = 2**64 / 1000


class ScanFile(NamedTuple):
    """One live file: its absolute path, size in bytes, number of rows, and the schema with which it was written."""

    path: str
    size: int
    rows: int
    schema_id: int


def plan(
    table: Table, snapshot_id: int | None = None, where: Predicate | None = None
) -> tuple[Snapshot | None, list[ScanFile]]:
    """The snapshot (the newest one unless given) and its live files; with ``where`` those that may have a matching row.

    Raises Misuse when the snapshot does not exist or the condition does not fit the table, and Corrupt for damaged
    metadata.
    """
    return _plan(table, snapshot_id, bind(where, table.latest_schema(), table.root) if where is not None else None)


def _plan(table: Table, snapshot_id: int | None, condition: Condition | None) -> tuple[Snapshot | None, list[ScanFile]]:
    snapshot = table.snapshots.latest() if snapshot_id is None else table.snapshots.load(snapshot_id)
    if snapshot is None:
        if snapshot_id is None:
            return None, []
        ids = table.snapshots.ids()
        raise Misuse(
            f"{table.root}: there is no snapshot {snapshot_id}; there are "
            f"{f'{ids[0]} to {ids[-1]}' if ids else 'none'}",
            kind="snapshot.missing",
        )
    schema = table.latest_schema()
    pruner = Pruner(condition, schema, table.schemas) if condition is not None else None
    folders: dict[tuple[bytes, int], str] = {}
    files = []
    for partition, bucket, name, size, rows, schema_id in table.manifests.files_of(snapshot, pruner):
        folder = folders.get((partition, bucket))
        if folder is None:
            folder = folders[partition, bucket] = _folder(table, schema, partition, bucket)
        files.append(ScanFile(folder + name, size, rows, schema_id))
    return snapshot, files


def by_schema(files: list[ScanFile]) -> dict[int, list[ScanFile]]:
    """The files grouped by the schema with which they were written; all files of a group are read in the same way."""
    groups: dict[int, list[ScanFile]] = defaultdict(list)
    for file in files:
        groups[file.schema_id].append(file)
    return dict(sorted(groups.items()))


def read_arrow(
    table: Table, snapshot_id: int | None = None, where: Predicate | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of a snapshot for which ``where`` holds, with all columns of the newest schema, or these ``columns``.

    All returned rows are held in memory. Raises Misuse, naming the column, for a condition or a column that does not
    fit the table; Corrupt for files that are damaged or gone.
    """
    schema = table.latest_schema()
    condition = bind(where, schema, table.root) if where is not None else None
    fields = schema.fields if columns is None else _chosen(table, schema, columns)
    names = [field.name for field in fields]
    extra = condition.columns.difference(names) if condition is not None else ()
    wanted = replace(schema, fields=(*fields, *(f for f in schema.fields if f.name in extra)))
    snapshot, files = _plan(table, snapshot_id, condition)
    if snapshot is None:
        return to_arrow_schema(fields).empty_table()
    parts = []
    for schema_id, group in by_schema(files).items():
        written = table.schemas.load(schema_id)
        check_casts(written, wanted, table.root)
        ids = {field.id for field in wanted.fields}
        needed = [field for field in written.fields if field.id in ids]
        for file in group:
            try:
                data = table.file_io.read(file.path)
            except FileNotFoundError as missing:
                raise data_missing(table, file.path, f"snapshot {snapshot.id}") from missing
            rows = evolve_table(read_file(file, data, needed), written, wanted)
            if condition is not None:
                rows = rows.filter(condition.mask(rows))
            parts.append(rows.select(names))
    return pa.concat_tables(parts) if parts else to_arrow_schema(fields).empty_table()


def _chosen(table: Table, schema: TableSchema, columns: Sequence[str]) -> tuple[DataField, ...]:
    by_name = {field.name: field for field in schema.fields}
    wrong = [name for name in columns if name not in by_name]
    if wrong or not columns or len(set(columns)) != len(columns) or isinstance(columns, str):
        raise Misuse(
            f"{table.root}: columns is {columns!r}, expected a list of at least one column, each once, of the table, "
            f"which has {', '.join(schema.field_names)}",
            kind="read.columns",
        )
    return tuple(by_name[name] for name in columns)


def read_file(file: ScanFile, data: bytes, fields: Sequence[DataField]) -> pa.Table:
    """These columns of a data file, whose content is ``data``.

    Raises Corrupt when the file is damaged, or does not have as many rows as it should, or not all of the columns;
    Misuse as ``check_times``. INT96 timestamps are read in the unit of their column, because years after 2262 would
    wrap around as nanoseconds.
    """
    with damage_told(file.path):
        exact = open_parquet(pa.BufferReader(data), "us")
        check_footer(file.path, exact, file.rows, fields)
        fine = [field.name for field in fields if needs_int96([field])]
        found = exact.read(columns=[field.name for field in fields if field.name not in fine])
        if fine:
            nanos = open_parquet(pa.BufferReader(data)).read(columns=fine)
            check_times(file.path, exact.read(columns=fine), nanos)
            for name in nanos.column_names:
                found = found.append_column(name, nanos.column(name))
        if fields:
            check_rows(file.path, found.num_rows, file.rows)  # a damaged page may have none
        return found


def data_missing(table: Table, path: str, snapshot: str) -> Corrupt:
    """The error of a data file that is not there. snapshot: which one has it."""
    return Corrupt(
        f"{path}: the data file is gone, although {snapshot} has it. Nothing was changed. Try again if that snapshot "
        f"was expired meanwhile; else restore it {shell.restore(path)}; or, if its rows may be lost, call "
        f"streamsink.drop_missing({table.root!r}) {shell.in_a_shell('drop-missing', table.root, '--yes')}",
        kind="data.missing",
    )


def open_parquet(stream: Any, int96: str | None = None) -> pq.ParquetFile:
    """Open a data file; its pages are checked against their sums, where its writer has left these. int96: the unit in
    which INT96 timestamps are read, nanoseconds without it.
    """
    return pq.ParquetFile(stream, coerce_int96_timestamp_unit=int96, page_checksum_verification=True)


@contextlib.contextmanager
def damage_told(path: str) -> Iterator[None]:
    """A context that raises Corrupt in place of Arrow's errors of a damaged data file."""
    try:
        yield
    except (pa.ArrowException, OSError) as broken:
        if isinstance(broken, MemoryError) or isinstance(broken, OSError) and broken.errno is not None:
            raise  # of the machine or the store; Arrow's errors of damaged pages are OSErrors without a number
        raise Corrupt(
            f"{path}: the data file cannot be read ({type(broken).__name__}). Nothing was changed. Restore it "
            f"{shell.restore(path)}",
            kind="data.unreadable",
        ) from broken


def check_footer(path: str, found: pq.ParquetFile, rows: int, fields: Sequence[DataField]) -> None:
    """Raises Corrupt unless a data file has as many rows as its manifest says, and these columns of its schema."""
    check_rows(path, found.metadata.num_rows, rows)
    there = set(found.schema_arrow.names)
    missing = [field.name for field in fields if field.name not in there]
    if missing:
        raise Corrupt(
            f"{path}: it has no column '{missing[0]}', which the schema that it was written with has: it was altered, "
            f"or a writer left values out. Restore it {shell.restore(path)}",
            kind="data.columns",
        )


def check_rows(path: str, found: int, rows: int) -> None:
    """Raises Corrupt unless so many rows were found as the manifest says."""
    if found != rows:
        raise Corrupt(
            f"{path}: it has {found} rows, the manifest says {rows}: it was altered. Restore it {shell.restore(path)}",
            kind="data.rows",
        )


def check_times(path: str, exact: pa.Table, nanos: pa.Table, most_turns: int = 1) -> None:
    """Raises Misuse for a time that nanoseconds certainly do not hold: it would be read as one of another century.

    Java and Spark have no such limit. exact, nanos: the same columns, with INT96 timestamps read as microseconds and as
    nanoseconds. most_turns: 1 where the microseconds of a time before 1970 may be one turn too late, because its writer
    has stored what is left of the day as a negative number, as Java does, which Arrow takes for a large one; else 0.
    """
    for name, coarse, fine in zip(exact.column_names, exact.columns, nanos.columns):
        for micros, times in zip(_times_of(coarse), _times_of(fine)):
            if times.type.unit != "ns" or micros.type.unit != "us":
                continue
            late = pc.subtract(micros.cast(pa.int64()), pc.divide(times.cast(pa.int64()), 1000))
            turns = pc.divide(late.cast(pa.float64(), safe=False), _WRAPPED_MICROS)
            bounds = pc.min_max(turns)
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            if low is not None and not (low > -0.5 and high < most_turns + 0.5):
                raise Misuse(
                    f"{path}: column '{name}' has a time before 1677-09-21 or after 2262-04-11. Its type has "
                    "nanoseconds, and Arrow, with which this library reads and writes, has no such time in them. Leave "
                    "the column out, or read the table with Spark or with Paimon",
                    kind="read.time-range",
                )


def _times_of(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    """Its timestamps, as one array of each place at any depth."""
    whole = column.combine_chunks()
    for chunk in whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]:
        yield from (values for values in leaf_arrays(chunk) if pa.types.is_timestamp(values.type))


def data_file_path(table: Table, schema: TableSchema, entry: ManifestEntry) -> str:
    """Absolute path of an entry's data file."""
    return entry.file.external_path or _folder(table, schema, entry.partition, entry.bucket) + entry.file.file_name


def _folder(table: Table, schema: TableSchema, partition: bytes, bucket: int) -> str:
    """Absolute path of a bucket's folder, with a slash at the end."""
    fields = schema.partition_fields
    values = decode_row(partition, [f.type for f in fields]) if fields else ()
    options = schema.options
    folder = partition_path(
        values,
        fields,
        default_name=options.get("partition.default-name", "__DEFAULT_PARTITION__"),
        legacy=options.get("partition.legacy-name", "true").strip().lower() == "true",
    )
    return table.layout.within(f"{bucket_dir(folder, bucket)}/")
