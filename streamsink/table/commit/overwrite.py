"""Which files an overwrite replaces, computed in each try of a commit against the snapshot that the try builds on."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from streamsink.errors import Misuse
from streamsink.format.binary_row import decode_physical, encode_row
from streamsink.format.index_manifest import IndexManifestEntry
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.schema import TableSchema
from streamsink.format.simple_stats import decode_bytes, encode_bytes
from streamsink.format.types import AtomicType, DataField
from streamsink.format.values import described, expected, given_to_physical
from streamsink.table.commit.changes import Changes

# Says of a partition, given as BinaryRow bytes, whether it is overwritten.
PartitionTest = Callable[[bytes], bool]
_OPTION = "overwrite_partition"


@dataclass(frozen=True)
class Overwrite:
    """The partitions that an overwrite replaces.

    columns: the partition columns that must have a given value; () means the whole table.
    row: the BinaryRow of these values.
    dynamic: if True, exactly the partitions that the new files are in are replaced instead.
    """

    columns: tuple[str, ...] = ()
    row: bytes = b""
    dynamic: bool = False

    @classmethod
    def of(
        cls, table: str, schema: TableSchema, partition: Mapping[str, Any] | None, option: str = _OPTION
    ) -> "Overwrite":
        """From what a user gives in this option.

        partition: values of partition columns; {} means the whole table. None means the partitions of the new rows, or
        the whole table if it is not partitioned or sets dynamic-partition-overwrite=false.
        Raises Misuse, naming the column.
        """
        if partition is None:
            setting = schema.options.get("dynamic-partition-overwrite", "true").strip().lower()
            return cls(dynamic=bool(schema.partition_keys) and setting == "true")
        fields = _fields(table, schema, partition, option)
        values = [_physical(f"{table}: {option}", field, partition[field.name]) for field in fields]
        return cls(tuple(f.name for f in fields), encode_row(values, [f.type for f in fields]))

    def to_json(self) -> dict[str, Any]:
        """JSON for the record. It holds only values of partition columns, which the paths of files contain anyway."""
        return {"columns": list(self.columns), "row": encode_bytes(self.row), "dynamic": self.dynamic}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Overwrite":
        """The inverse of ``to_json``."""
        return cls(tuple(value["columns"]), decode_bytes(value["row"]), value["dynamic"])

    @classmethod
    def in_payload(cls, payload: Mapping[str, Any]) -> "Overwrite | None":
        """What the record with this payload replaces; None when it appends.

        A record is published after every one before it, so it never replaces rows of a later one.
        """
        given = payload.get("overwrite")
        return cls.from_json(given) if given is not None else None

    def covers(self, schema: TableSchema, new: Iterable[bytes]) -> PartitionTest:
        """The test whether a partition is replaced. ``new``: partitions of the new files."""
        fields = schema.partition_fields
        if not self.dynamic and not self.columns:
            return lambda partition: True
        if self.dynamic:
            replaced = {_row(partition, fields, fields) for partition in new}
            return lambda partition: _row(partition, fields, fields) in replaced
        chosen = [f for f in fields if f.name in self.columns]
        return lambda partition: _row(partition, fields, chosen) == self.row

    def scope(self, schema: TableSchema, new: Changes) -> Collection[bytes] | None:
        """The partitions whose live files matter to this overwrite; None for all of them.

        Another writer may encode a partition with a null in other bytes, so with a null all of them are looked at.
        """
        types = [field.type for field in schema.partition_fields]
        if not self.dynamic or any(None in decode_physical(partition, types) for partition in new.partitions):
            return None
        return new.partitions

    def replaces(
        self, schema: TableSchema, new: Changes, live: Iterable[ManifestEntry], index: Iterable[IndexManifestEntry]
    ) -> Changes:
        """The entries that delete what is live in the replaced partitions: data files, and their index files.

        One that brings files of the past back (``table/branching/rollback.py``) has their entries here, too.
        """
        covered = self.covers(schema, {entry.partition for entry in new.entries})
        return Changes(
            tuple(e.deleting for e in live if covered(e.partition)),
            tuple(e.deleting for e in index if covered(e.partition)),
        )

    def check_inside(self, table: str, schema: TableSchema, new: Iterable[ManifestEntry]) -> None:
        """Raises Misuse when a new file lies outside the replaced partitions: its rows would be added, not replaced."""
        partitions = {entry.partition for entry in new if entry.kind is FileKind.ADD}
        covered = self.covers(schema, partitions)
        outside = [partition for partition in partitions if not covered(partition)]
        if outside:
            raise Misuse(
                f"{table}: overwrite_partition gives {', '.join(self.columns)}, but the batch has rows of "
                f"{len(outside)} other partition(s), which would be added instead of replaced. Nothing was written. "
                "Filter the rows, or leave overwrite_partition out to replace the partitions that the rows are in",
                kind="overwrite.outside",
            )


def _row(partition: bytes, fields: Sequence[DataField], chosen: Sequence[DataField]) -> bytes:
    """The chosen columns of a partition in our own encoding, because other writers encode some nulls differently."""
    values = dict(zip([f.name for f in fields], decode_physical(partition, [f.type for f in fields])))
    return encode_row([values[f.name] for f in chosen], [f.type for f in chosen])


def _fields(table: str, schema: TableSchema, partition: Mapping[str, Any], option: str) -> list[DataField]:
    unknown = [name for name in partition if name not in schema.partition_keys]
    if unknown:
        raise Misuse(
            f"{table}: {option} names {', '.join(map(str, unknown))}; the table's partition columns are "
            f"{', '.join(schema.partition_keys) or 'none'}",
            kind="option.overwrite-partition",
        )
    return [field for field in schema.partition_fields if field.name in partition]


def _physical(what: str, field: DataField, value: Any) -> Any:
    kind = cast(AtomicType, field.type)  # TableSchema refuses partition columns of other types
    try:
        return None if value is None else given_to_physical(value, kind)
    except (Misuse, TypeError, ValueError, ArithmeticError) as wrong:
        raise Misuse(
            f"{what} gives {described(value)} for column '{field.name}', expected {expected(kind)}, or None. Nothing "
            "was written",
            kind="option.overwrite-partition",
        ) from wrong
