"""Iceberg's manifests and manifest lists, with the fields and ids that Paimon's Java writer gives them.

An entry of a manifest is the Avro record itself, since most entries are only copied from one manifest into another.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsink.format.avro_file import DECODING_ERRORS, unreadable
from streamsink.format.data_file import DataFileMeta
from streamsink.format.iceberg_avro import Container, read_container
from streamsink.format.iceberg_types import SPEC_ID, iceberg_schema, partition_spec
from streamsink.format.iceberg_values import PartitionColumn, column_stats, partition_columns
from streamsink.format.schema import TableSchema

EXISTING, ADDED, DELETED = 0, 1, 2
_DATA = 0
Entry = dict[str, Any]


@dataclass(frozen=True)
class IcebergManifest:
    """What a manifest list says of a manifest.

    path: absolute. size: in bytes. sequence: of the snapshot that it was written for, whose id is the same number.
    partitions: for each partition column whether there are nulls, whether there are NaNs, and both bounds.
    """

    path: str
    size: int
    sequence: int
    least_sequence: int
    added_files: int
    existing_files: int
    deleted_files: int
    added_rows: int
    existing_rows: int
    deleted_rows: int
    partitions: tuple[tuple[bool, bool, bytes | None, bytes | None], ...] = ()

    @property
    def live_rows(self) -> int:
        """Rows of the files that readers read."""
        return self.added_rows + self.existing_rows

    @property
    def live_files(self) -> int:
        """How many files readers read."""
        return self.added_files + self.existing_files


def is_live(entry: Entry) -> bool:
    """Whether readers read the entry's file."""
    return bool(entry["status"] != DELETED)


def added(path: str, partition: Sequence[Any], file: DataFileMeta, schema: TableSchema, snapshot_id: int) -> Entry:
    """The entry of a file that a snapshot adds. partition: physical values. schema: with which it was written."""
    stats = column_stats(file, schema)
    columns = partition_columns(schema)
    return {
        "status": ADDED,
        "snapshot_id": snapshot_id,
        "sequence_number": snapshot_id,
        "file_sequence_number": snapshot_id,
        "data_file": {
            "content": _DATA,
            "file_path": path,
            "file_format": file.file_name.rpartition(".")[2],
            "partition": {column.name: column.stored(value) for column, value in zip(columns, partition)},
            "record_count": file.row_count,
            "file_size_in_bytes": file.file_size,
            "null_value_counts": _pairs(stats.nulls),
            "lower_bounds": _pairs(stats.lower),
            "upper_bounds": _pairs(stats.upper),
            "referenced_data_file": None,
            "content_offset": None,
            "content_size_in_bytes": None,
        },
    }


def _pairs(values: Mapping[int, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in values.items()]


class ManifestWriter:
    """Writes one manifest. ``finish`` gives its bytes, and what a list says of it."""

    def __init__(self, schema: TableSchema, codec: str):
        """schema: the newest one of the table. codec: Avro's name of it."""
        self._columns = partition_columns(schema)
        header = {
            "schema": json.dumps(iceberg_schema(schema)),
            "schema-id": str(schema.id),
            "partition-spec": json.dumps(partition_spec(schema)),
            "partition-spec-id": str(SPEC_ID),
            "format-version": "2",
            "content": "data",
        }
        self._file = Container(_entry_schema(self._columns), codec, header)
        self._files, self._rows = [0, 0, 0], [0, 0, 0]
        self._least: int | None = None
        self._values: list[set[Any]] = [set() for _ in self._columns]
        self._has_nan = [False for _ in self._columns]

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._file.size

    def add(self, entry: Entry) -> None:
        """Append an entry."""
        self._file.add(entry)
        status, sequence, file = entry["status"], entry["sequence_number"], entry["data_file"]
        self._files[status] += 1
        self._rows[status] += file["record_count"]
        self._least = sequence if self._least is None else min(self._least, sequence)
        for number, column in enumerate(self._columns):
            value = file["partition"][column.name]
            if value != value:
                self._has_nan[number] = True
            else:
                self._values[number].add(value)

    def finish(self, path: str, sequence: int) -> tuple[bytes, IcebergManifest]:
        """The file's bytes, and what a list says of it. sequence: of the snapshot that it is written for."""
        data = self._file.finish()
        said = tuple(
            (None in values, has_nan, *column.bounds(list(values)))
            for column, values, has_nan in zip(self._columns, self._values, self._has_nan)
        )
        existing, new, deleted = self._files
        existing_rows, new_rows, deleted_rows = self._rows
        least = sequence if self._least is None else self._least
        files = (new, existing, deleted, new_rows, existing_rows, deleted_rows)
        return data, IcebergManifest(path, len(data), sequence, least, *files, said)


def read_entries(data: bytes, name: str, columns: Sequence[PartitionColumn]) -> Iterator[Entry]:
    """The entries of a manifest, as ours are. columns: the table's partition columns.

    Raises: Corrupt ``manifest.corrupt``.
    """
    try:
        for said, entry in read_container(data, name):
            file = entry["data_file"]
            fields = _record_of(_field_of(_record_of(_field_of(said, "data_file")), "partition"))["fields"]
            values = [
                None if found is None else column.as_ours(found, _plain(field["type"]))
                for column, field, found in zip(columns, fields, file["partition"].values(), strict=True)
            ]
            partition = {column.name: value for column, value in zip(columns, values)}
            yield {key: entry[key] for key in _ENTRY_KEYS} | {
                "data_file": {key: file.get(key) for key in _FILE_KEYS} | {"partition": partition}
            }
    except DECODING_ERRORS as bad:
        raise unreadable(name, bad) from bad


def write_list(
    manifests: Iterable[IcebergManifest], codec: str, *, legacy: bool, snapshot_id: int, parent: int | None
) -> bytes:
    """The bytes of a manifest list. legacy: with the names of fields that Iceberg 1.4 knew."""
    header = {"snapshot-id": str(snapshot_id), "sequence-number": str(snapshot_id), "format-version": "2"}
    header |= {} if parent is None else {"parent-snapshot-id": str(parent)}
    names = _LIST_KEYS if not legacy else tuple(name.replace("_files_", "_data_files_") for name in _LIST_KEYS)
    file = Container(_list_schema(names), codec, header)
    for each in manifests:
        partitions = [dict(zip(_SUMMARY_KEYS, said)) for said in each.partitions]
        values = (each.path, each.size, SPEC_ID, _DATA, each.sequence, each.least_sequence, each.sequence)
        counts = (each.added_files, each.existing_files, each.deleted_files)
        rows = (each.added_rows, each.existing_rows, each.deleted_rows)
        file.add(dict(zip(names, (*values, *counts, *rows, partitions))))
    return file.finish()


def read_list(data: bytes, name: str) -> list[IcebergManifest]:
    """The manifests of a list, also of a legacy one. Raises: Corrupt ``manifest.corrupt``."""
    made = []
    try:
        for _, found in read_container(data, name):
            path, size, _, content, sequence, least, _, *counts, partitions = list(found.values())[:14]
            if content != _DATA or len(counts) != 6:
                raise ValueError("a manifest of deletions, which is not written for tables of this kind")
            said: Any = tuple(tuple(each[key] for key in _SUMMARY_KEYS) for each in partitions or ())
            new, existing, deleted, new_rows, existing_rows, deleted_rows = counts
            files = (new, existing, deleted, new_rows, existing_rows, deleted_rows)
            made.append(IcebergManifest(path, size, sequence, least, *files, said))
    except DECODING_ERRORS as bad:
        raise unreadable(name, bad) from bad
    return made


def _field_of(record: Mapping[str, Any], name: str) -> Any:
    return next(field["type"] for field in record["fields"] if field["name"] == name)


def _plain(schema: Any) -> Any:
    """The type of a field that may be null."""
    return next(part for part in schema if part != "null") if isinstance(schema, list) else schema


_record_of = _plain
_ENTRY_KEYS = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
_OPTIONAL_KEYS = ("referenced_data_file", "content_offset", "content_size_in_bytes")
_FILE_KEYS = (
    "content",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "null_value_counts",
    "lower_bounds",
    "upper_bounds",
    *_OPTIONAL_KEYS,
)
_SUMMARY_KEYS = ("contains_null", "contains_nan", "lower_bound", "upper_bound")
_LIST_KEYS = (
    "manifest_path",
    "manifest_length",
    "partition_spec_id",
    "content",
    "sequence_number",
    "min_sequence_number",
    "added_snapshot_id",
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
    "deleted_rows_count",
    "partitions",
)
_LIST_IDS = (500, 501, 502, 517, 515, 516, 503, 504, 505, 506, 512, 513, 514)
_LIST_TYPES = ("string", "long", "int", "int", "long", "long", None, "int", "int", "int", "long", "long", "long")


def _required(name: str, number: int, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": number}


def _optional(name: str, number: int, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _map(name: str, number: int, key: int, value: Any) -> dict[str, Any]:
    """A map with whole numbers as keys, which Avro has as an array of pairs."""
    pair = {
        "type": "record",
        "name": f"k{key}_v{key + 1}",
        "fields": [_required("key", key, "int"), _required("value", key + 1, value)],
    }
    return _optional(name, number, {"type": "array", "logicalType": "map", "items": pair})


def _entry_schema(columns: Sequence[PartitionColumn]) -> dict[str, Any]:
    partition = {
        "type": "record",
        "name": "r102",
        "fields": [_optional(column.name, column.id, column.avro) for column in columns],
    }
    file = [
        _required("content", 134, "int"),
        _required("file_path", 100, "string"),
        _required("file_format", 101, "string"),
        _required("partition", 102, partition),
        _required("record_count", 103, "long"),
        _required("file_size_in_bytes", 104, "long"),
        _map("null_value_counts", 110, 121, "long"),
        _map("lower_bounds", 125, 126, "bytes"),
        _map("upper_bounds", 128, 129, "bytes"),
        _optional("referenced_data_file", 143, "string"),
        _optional("content_offset", 144, "long"),
        _optional("content_size_in_bytes", 145, "long"),
    ]
    fields = [
        _required("status", 0, "int"),
        _optional("snapshot_id", 1, "long"),
        _optional("sequence_number", 3, "long"),
        _optional("file_sequence_number", 4, "long"),
        _required("data_file", 2, {"type": "record", "name": "r2", "fields": file}),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


def _list_schema(names: Sequence[str]) -> dict[str, Any]:
    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            _required("contains_null", 509, "boolean"),
            _optional("contains_nan", 518, "boolean"),
            _optional("lower_bound", 510, "bytes"),
            _optional("upper_bound", 511, "bytes"),
        ],
    }
    fields = [
        _optional(name, number, "long") if kind is None else _required(name, number, kind)
        for name, number, kind in zip(names, _LIST_IDS, _LIST_TYPES)
    ]
    fields.append(_optional("partitions", 507, {"type": "array", "element-id": 508, "items": summary}))
    return {"type": "record", "name": "manifest_file", "fields": fields}
