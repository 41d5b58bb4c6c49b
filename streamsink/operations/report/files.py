"""The live files of a table for the report: their sizes, partitions, and what a compaction would do. Driver only."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsink.compaction.left_alone import LeftAlone
from streamsink.compaction.plan import Sizes, pack, plan
from streamsink.errors import Corrupt, Misuse
from streamsink.format.index_manifest import DELETION_VECTORS_INDEX
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.snapshot import Snapshot
from streamsink.operations.report import buckets
from streamsink.operations.report.history import Seen
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import Table

#: Of so many snapshots, the newest ones, the manifests are read that say which files each one added and deleted.
MOST_DELTAS = 500
# So many of the largest partitions, and of the smallest ones, are named.
_LARGEST, _SMALLEST = 10, 5


@dataclass
class _Sum:
    """Of one partition, or of the files of one snapshot."""

    files: int = 0
    rows: int = 0
    bytes: int = 0

    def add(self, entry: ManifestEntry) -> None:
        self.files += 1
        self.rows += entry.file.row_count
        self.bytes += entry.file.file_size

    def to_json(self) -> dict[str, int]:
        return {"files": self.files, "rows": self.rows, "bytes": self.bytes}


def live_files(table: Table, snapshot: Snapshot | None) -> dict[str, Any]:
    """Of the files of a snapshot the sum, sizes and partitions, and the plan of a compaction, as JSON.

    Each manifest is read once. Raises Corrupt, naming the file.
    """
    schema, found = table.latest_schema(), list[int]()
    partitions: dict[tuple[bytes, str], _Sum] = defaultdict(_Sum)
    folders: dict[tuple[bytes, int], str] = {}
    left_alone = _with_vectors(table, snapshot)

    def counted(entries: Iterator[ManifestEntry]) -> Iterator[ManifestEntry]:
        for entry in entries:
            place = (entry.partition, entry.bucket)
            if place not in folders:
                path = table.layout.relative(data_file_path(table, schema, entry))
                folders[place] = os.path.dirname(os.path.dirname(path)) if entry.file.external_path is None else ""
            partitions[entry.partition, folders[place]].add(entry)
            found.append(entry.file.file_size)
            if entry.file.file_name not in left_alone:
                yield entry

    live = counted(table.manifests.entries_of(snapshot)) if snapshot is not None else iter(())
    compaction = _compaction(table, live)
    for _ in live:  # what a plan did not look at any more counts all the same
        pass
    try:
        target = Sizes.of(table.root, schema.options).target_bytes
    except Misuse:
        target = None
    by_size = sorted(partitions.items(), key=lambda item: (-item[1].bytes, item[0][1]))
    return {
        "sum": {name: sum(getattr(each, name) for each in partitions.values()) for name in ("files", "rows", "bytes")},
        "sizes": buckets.sizes(found),
        "size": buckets.summary(found),
        "target_bytes": target,
        "partitions": _partitions([(name, each) for (_, name), each in by_size]),
        "compaction": compaction,
    }


def _partitions(by_size: Sequence[tuple[str, _Sum]]) -> dict[str, Any]:
    """by_size: the largest one first."""
    smallest = by_size[max(_LARGEST, len(by_size) - _SMALLEST) :]
    size, files = (buckets.summary([getattr(each, name) for _, each in by_size]) for name in ("bytes", "files"))
    return {
        "count": len(by_size),
        "bytes": size,
        "files": files,
        "skew": round(size["largest"] / size["median"], 2) if size and size["median"] else None,
        "largest": [{"partition": name, **each.to_json()} for name, each in by_size[:_LARGEST]],
        "smallest": [{"partition": name, **each.to_json()} for name, each in smallest],
    }


def _compaction(table: Table, live: Iterator[ManifestEntry]) -> dict[str, Any]:
    """What ``streamsink compact`` would do, as far as it does not depend on what others do at this moment."""
    try:
        sizes = Sizes.of(table.root, table.known_schema.options)
        tasks = plan(live, sizes, pack, is_readable=LeftAlone(table).is_readable)
    except Misuse as refused:
        return {"problem": str(refused)}
    return {
        "tasks": len(tasks),
        "files": sum(len(task.files) for task in tasks),
        "bytes": sum(task.bytes for task in tasks),
        "rows": sum(task.rows for task in tasks),
    }


def _with_vectors(table: Table, snapshot: Snapshot | None) -> set[str]:
    """Names of the data files of which another engine has deleted rows: a compaction leaves them alone."""
    index = table.manifests.index_of(snapshot) if snapshot is not None else []
    vectors = [each.file for each in index if each.file.index_type == DELETION_VECTORS_INDEX]
    return {found.data_file for file in vectors for found in file.dv_ranges or ()}


def changed_files(table: Table, seen: Sequence[Seen], most: int = MOST_DELTAS) -> Mapping[int, dict[str, int]]:
    """By number of the newest snapshots, the files that each one added and deleted, and the bytes of these.

    A snapshot whose manifests are gone or damaged is left out.
    """
    found: dict[int, dict[str, int]] = {}
    for each in seen[-most:] if most else ():
        added, deleted = _Sum(), _Sum()
        try:
            for meta in table.manifests.list_of(each.delta):
                for entry in table.manifests.entries_in(meta):
                    (added if entry.kind is FileKind.ADD else deleted).add(entry)
        except (Corrupt, FileNotFoundError):
            continue
        found[each.id] = {
            "added_files": added.files,
            "added_bytes": added.bytes,
            "deleted_files": deleted.files,
            "deleted_bytes": deleted.bytes,
        }
    return found
