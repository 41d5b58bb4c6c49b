"""Synthetic files and tables for tests of the commit layer."""

from dataclasses import replace

from streamsink.clock import IdSource
from streamsink.format.binary_row import encode_row
from streamsink.format.data_file import DataFileMeta
from streamsink.format.index_manifest import IndexFileMeta
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.simple_stats import EMPTY_ROW
from streamsink.format.types import parse_ddl, parse_type
from streamsink.options import SinkOptions
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.table import Table, create_table, new_schema

ROOT = "/lake/shop.db/orders"
TEXT = [parse_type("STRING")]
OPTIONS = SinkOptions.of(ROOT, {"commit_min_wait_ms": 0, "commit_max_wait_ms": 0, "commit_max_retries": 3})


def part(name: str | None) -> bytes:
    """Partition bytes with this value of the column ``part``."""
    return encode_row((name,), TEXT)


def data_file(
    name: str, level: int = 0, keys: tuple[bytes, bytes] = (EMPTY_ROW, EMPTY_ROW), rows: int = 1
) -> DataFileMeta:
    """Metadata of a file that nobody reads."""
    plain = DataFileMeta.for_append(file_name=name, file_size=10, row_count=rows, schema_id=0)
    return replace(plain, level=level, min_key=keys[0], max_key=keys[1])


def add(name: str, partition: bytes = EMPTY_ROW, buckets: int = -1, bucket: int = 0, **file) -> ManifestEntry:
    """An ADD entry for a synthetic file."""
    return ManifestEntry(FileKind.ADD, partition, bucket, buckets, data_file(name, **file))


def index_file(name: str, kind: str, **more) -> IndexFileMeta:
    """Metadata of an index file."""
    return IndexFileMeta(kind, name, 5, 1, **more)


def new_table(calls, partition_by=("part",), options=None) -> Table:
    """An empty table in this store."""
    io = FileIO(calls, IdSource().new_id)
    fields = parse_ddl("id BIGINT, part STRING, version BIGINT")
    return create_table(io, ROOT, new_schema(fields, partition_by, options or {}))


class Says(Guard):
    """A guard that takes a request for published when this says so."""

    def __init__(self, is_published):
        self._is_published = is_published

    def is_published(self, states):
        return self._is_published()


def commit(table: Table, changes: Changes, user: str = "someone", kind: str = "APPEND", **more):
    """One commit of these changes."""
    request = CommitRequest(user, more.pop("identifier", 1), changes, IdSource().new_id(), kind, **more)
    return TableCommit(table, OPTIONS).commit(request, Guard())


def live(table: Table) -> list[str]:
    """Names of the live files of the newest snapshot."""
    return sorted(entry.file.file_name for entry in table.manifests.entries_of(table.snapshots.latest()))
