"""Paimon's rules for whether changes contradict what the table holds by now.

Pure functions; a conflict is not retried.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from streamsink.errors import Conflict
from streamsink.format.binary_row import decode_physical
from streamsink.format.index_manifest import DELETION_VECTORS_INDEX, IndexManifestEntry
from streamsink.format.manifest import FileKind, Identity, ManifestEntry
from streamsink.format.schema import TableSchema
from streamsink.format.snapshot import OVERWRITE

# Maps the BinaryRow bytes of a key to a value that sorts as the key does.
KeyOrder = Callable[[bytes], Any]


def check(
    base: Sequence[ManifestEntry], delta: Sequence[ManifestEntry], kind: str, key_order: KeyOrder | None = None
) -> list[ManifestEntry]:
    """The live files after ``delta`` is committed on top of ``base``. Raises Conflict when it cannot be.

    base: the live files of the partitions that ``delta`` changes. kind: APPEND, OVERWRITE or COMPACT.
    key_order: for a primary-key table, whose sorted files of one bucket may not overlap; None for an append table.
    """
    if kind != OVERWRITE:
        _check_bucket_count([*base, *delta])
    _check_once(delta)
    live = {e.identity: e for e in base}
    for entry in delta:
        if entry.kind is FileKind.ADD:
            if entry.identity in live:
                raise _already_there(entry)
            live[entry.identity] = entry
        elif live.pop(entry.identity, None) is None:
            raise Conflict(
                f"file {entry.file.file_name}, which is to be deleted, was not previously added, or is deleted "
                "already: another commit removed it first",
                kind="commit.not-previously-added",
            )
    if key_order is not None:
        _check_key_ranges(live.values(), key_order)
    return list(live.values())


def check_added(delta: Sequence[ManifestEntry], present: Collection[Identity]) -> None:
    """``check`` for a delta that only adds files, of no bucket and no key.

    Only the presence of these same files in the table can contradict such a delta. present: those of its files that are
    in the table already. Raises Conflict.
    """
    _check_once(delta)
    for entry in delta:
        if entry.identity in present:
            raise _already_there(entry)


def check_deletion_vectors(live: Iterable[str], index: Iterable[IndexManifestEntry]) -> None:
    """Raises Conflict when a deletion vector belongs to none of the live data files: its deleted rows would come back.

    live: names of the data files of the changed partitions. index: the new index state of these partitions.
    """
    names = set(live)
    for entry in index:
        if entry.file.index_type != DELETION_VECTORS_INDEX:
            continue
        for dv in entry.file.dv_ranges or ():
            if dv.data_file not in names:
                raise Conflict(
                    f"data file {dv.data_file} is deleted, but its deletion vector in {entry.file.file_name} stays: "
                    "another commit deleted rows of it meanwhile, which would come back",
                    kind="commit.deletion-vector-left",
                )


def _check_bucket_count(entries: Iterable[ManifestEntry]) -> None:
    counts: dict[bytes, int] = {}
    for entry in entries:
        if entry.total_buckets <= 0:
            continue
        first = counts.setdefault(entry.partition, entry.total_buckets)
        if first != entry.total_buckets:
            raise Conflict(
                f"file {entry.file.file_name} is of {entry.total_buckets} buckets, but its partition has {first}: the "
                "bucket count was changed without overwriting the partition",
                kind="commit.bucket-count",
            )


def _check_once(delta: Iterable[ManifestEntry]) -> None:
    """Raises Conflict when ``delta`` has two entries for one file.

    A file that one commit adds and deletes would be lost, because readers drop every file that any entry deletes.
    """
    seen: dict[tuple[Any, ...], ManifestEntry] = {}
    for entry in delta:
        other = seen.setdefault(entry.identity, entry)
        if other is entry:
            continue
        if other.kind is FileKind.ADD and entry.kind is FileKind.ADD:
            raise _already_there(entry)
        raise Conflict(
            f"file {entry.file.file_name} is deleted twice by one commit, or added and deleted",
            kind="commit.contradiction",
        )


def _already_there(entry: ManifestEntry) -> Conflict:
    return Conflict(
        f"file {entry.file.file_name}, which is to be added, is already in the map: it is in the table, or is added "
        "twice",
        kind="commit.already-in-the-map",
    )


def _check_key_ranges(live: Iterable[ManifestEntry], key_order: KeyOrder) -> None:
    """Raises Conflict unless the files of each level above 0 are one sorted run, without overlapping keys."""

    def run(entry: ManifestEntry) -> tuple[bytes, int, int]:
        return entry.partition, entry.bucket, entry.file.level

    leveled = sorted((e for e in live if e.file.level >= 1), key=run)
    for _, files in itertools.groupby(leveled, key=run):
        ordered = sorted(files, key=lambda e: key_order(e.file.min_key))
        for left, right in itertools.pairwise(ordered):
            if key_order(left.file.max_key) >= key_order(right.file.min_key):
                raise Conflict(
                    f"files {left.file.file_name} and {right.file.file_name} of level {left.file.level} in bucket "
                    f"{left.bucket} hold overlapping keys: two compactions wrote the same level",
                    kind="commit.key-ranges",
                )


def key_order(schema: TableSchema) -> KeyOrder | None:
    """The order in which Paimon sorts keys: column by column, nulls first, text by its UTF-8 bytes.

    None for an append table, which has no keys.
    """
    names = [name for name in schema.primary_keys if name not in schema.partition_keys]
    if not names:
        return None
    types = [schema.field(name).type for name in names]
    return lambda key: tuple(_order(value) for value in decode_physical(key, types))


def _order(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, str):
        return 1, value.encode("utf-8")
    if isinstance(value, float):
        # This is Java's order: -0.0 comes before 0.0, and NaN after everything.
        return 1, (1, 0.0, 0) if math.isnan(value) else (0, value, math.copysign(1, value))
    return 1, value
