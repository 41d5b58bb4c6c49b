"""Which manifests and files a scan can skip, decided from raw manifest records before any richer object is built.

Partition values and column statistics decide.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from streamsink.errors import Corrupt
from streamsink.format.binary_row import decode_physical, mark_of
from streamsink.format.file_stats import ColumnStats, StatsReader, covered_columns, stats_reader
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.schema import TableSchema
from streamsink.format.type_model import INTEGER_ROOTS
from streamsink.format.types import CHARACTER_ROOTS, AtomicType, DataField, DataType
from streamsink.table.read.condition import Condition
from streamsink.table.read.literals import FLOATS
from streamsink.table.schemas import Schemas


class Pruner:
    """Applies one condition. What it skips has no matching row; what it keeps need not have one."""

    def __init__(self, condition: Condition, schema: TableSchema, schemas: Schemas):
        self._condition = condition
        self._schema = schema
        self._schemas = schemas
        self._keys = schema.partition_keys
        self._types = [field.type for field in schema.partition_fields]
        self._file_columns = [f for f in schema.fields if f.name in condition.columns and f.name not in self._keys]
        self._of_partition: dict[bytes, tuple[bool, dict[str, ColumnStats]]] = {}
        self._readers: dict[tuple[Any, ...], dict[str, StatsReader | None]] = {}

    @functools.cached_property
    def marks(self) -> Collection[bytes] | None:
        """As ``FileFilter``: the entry of a file contains the values of its partition."""
        for field in self._schema.partition_fields:
            values = self._condition.only(field.name)
            marks = [mark_of(value, field.type) for value in values] if values is not None else [None]
            found = [mark for mark in marks if mark]
            if len(found) == len(marks):
                return found
        return None

    def may_hold(self, meta: ManifestFileMeta) -> bool:
        """Whether a manifest may have an entry in a partition that matches."""
        stats = meta.partition_stats
        try:
            low, high = decode_physical(stats.min_values, self._types), decode_physical(stats.max_values, self._types)
        except Corrupt:
            return True
        nulls: Sequence[int | None] = stats.null_counts
        if len(nulls) != len(self._keys):
            nulls = [None] * len(self._keys)
        entries = meta.num_added_files + meta.num_deleted_files
        found = {
            key: ColumnStats(*_bounds(a, b), nulls=count, rows=entries)
            for key, a, b, count in zip(self._keys, low, high, nulls)
        }
        return self._condition.may_match(found.get)

    def keep(self, partition: bytes, file: Mapping[str, Any]) -> bool:
        """Whether a file may have a matching row. partition: its BinaryRow bytes. file: the Avro record ``_FILE``."""
        known = self._of_partition.get(partition)
        if known is None:
            known = self._of_partition[partition] = self._look_at(partition)
        may_match, exact = known
        if not may_match or not self._file_columns:
            return may_match
        readers = self._readers_of(file)

        def stats(name: str) -> ColumnStats | None:
            if name in exact:
                return exact[name]
            read = readers[name]
            return None if read is None else read(file)

        return self._condition.may_match(stats)

    def _look_at(self, partition: bytes) -> tuple[bool, dict[str, ColumnStats]]:
        """Whether files of the partition may match, and its values as statistics, which hold for every row."""
        values = decode_physical(partition, self._types)
        exact = {key: ColumnStats(value, value, int(value is None), 1) for key, value in zip(self._keys, values)}
        return self._condition.may_match(exact.get), exact

    def _readers_of(self, file: Mapping[str, Any]) -> dict[str, StatsReader | None]:
        covered = covered_columns(file)
        key = (file["_SCHEMA_ID"], covered)
        if key not in self._readers:
            written = self._schemas.load(file["_SCHEMA_ID"])
            self._readers[key] = {field.name: _reader(field, written.fields, covered) for field in self._file_columns}
        return self._readers[key]


def _reader(field: DataField, written: Sequence[DataField], covered: tuple[str, ...] | None) -> StatsReader | None:
    """Reads a file's statistics of one column; columns are matched by id.

    A column that was added after the file was written is null in all rows of the file.
    """
    old = next((f for f in written if f.id == field.id), None)
    if old is None:
        return lambda file: ColumnStats(None, None, file["_ROW_COUNT"], file["_ROW_COUNT"])
    return stats_reader(written, covered, old.name, _same_order(old.type, field.type))


def _bounds(low: Any, high: Any) -> tuple[Any, Any]:
    """Both bounds, or two times None if one of them is NaN, which bounds nothing."""
    return (None, None) if low != low or high != high else (low, high)


def _same_order(old: DataType, new: DataType) -> bool:
    """Whether a bound of the old type also bounds the values when they are read as the new type."""
    if not isinstance(old, AtomicType) or not isinstance(new, AtomicType):
        return False
    return any(
        old.root in roots and new.root in roots for roots in (INTEGER_ROOTS, FLOATS, CHARACTER_ROOTS, (old.root,))
    )
