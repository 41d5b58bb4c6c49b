"""Paimon's Java writer and ours, beside each other and in turn: the same metadata, from which each goes on."""

import os
import shutil

import pytest

import streamsink
from streamsink import maintenance
from streamsink.format.iceberg_manifest import DELETED, read_entries, read_list
from streamsink.format.iceberg_values import partition_columns
from streamsink.storage.file_io import local_file_io
from streamsink.table.iceberg_metadata.mirror import Mirror
from streamsink.table.table import new_schema, open_table
from tests.compat.arrow_writer import ArrowSink
from tests.compat.java import JavaPaimon
from tests.compat.rows import columns, random_rows, to_arrow
from tests.iceberg_metadata.mirrored import AT_TABLE, check, folder_of, metadata_of

pytestmark = [pytest.mark.compat, pytest.mark.spark]

# Partition columns without nulls: released Java fails behind its commit where all of a manifest are null.
DDL = (
    "id BIGINT, p STRING NOT NULL, d DATE NOT NULL, n INT NOT NULL, t TINYINT, f FLOAT, x DECIMAL(9, 2), "
    "y DECIMAL(25, 3), at TIMESTAMP(3), zone TIMESTAMP(6) WITH LOCAL TIME ZONE, b BYTES, a ARRAY<INT>, "
    "m MAP<STRING, ARRAY<BIGINT>>, r ROW<x INT, y STRING>"
)


@pytest.fixture(scope="session")
def java(spark):
    return JavaPaimon(spark)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "shop.db" / "orders")


def _history(java, path, rng, partition_by, options) -> None:
    """A table of Java's with appends, an overwrite, a column more and a compaction."""
    fields = columns(DDL)
    java.create(path, fields, partition_by, {**AT_TABLE, "compaction.min.file-num": "2", **options})
    for _ in range(4):
        java.append(path, random_rows(rng, fields, 5))
    java.overwrite(path, random_rows(rng, fields, 3))
    java.append(path, random_rows(rng, fields, 5))
    java.compact(path)
    java.append(path, random_rows(rng, fields, 2))


def _followed(path, copy) -> None:
    """The same table without its metadata, which is made by us, snapshot by snapshot."""
    shutil.copytree(path, copy)
    shutil.rmtree(folder_of(copy))
    table = open_table(local_file_io(False), copy, for_writing=True)
    hidden = f"{copy}.snapshots"
    shutil.move(table.layout.snapshot_dir, hidden)
    os.mkdir(table.layout.snapshot_dir)
    for number in range(1, len([name for name in os.listdir(hidden) if name.startswith("snapshot-")]) + 1):
        shutil.copy(f"{hidden}/snapshot-{number}", table.layout.snapshot_dir)
        Mirror(table).follow()


# What ours says beside Java's, or in another way, with the reason in docs/design/0029.
_OURS = {"properties", "snapshot-log", "last-updated-ms", "table-uuid", "location"}


@pytest.mark.soak
@pytest.mark.parametrize("partition_by", [[], ["p", "d"]], ids=["plain", "partitioned"])
def test_what_we_write_is_what_java_writes(java, path, rng, partition_by):
    """Each field of the metadata, of the lists and of the manifests, after appends, an overwrite and a compaction."""
    _history(java, path, rng, partition_by, {})
    copy = f"{path}_copy"
    _followed(path, copy)
    theirs, ours = metadata_of(folder_of(path)), metadata_of(folder_of(copy))
    assert ours.keys() - {"snapshot-log"} == theirs.keys()
    for key in theirs.keys() - _OURS - {"snapshots"}:
        assert ours[key] == theirs[key], key
    assert len(ours["snapshots"]) == len(theirs["snapshots"])
    for mine, their in zip(ours["snapshots"], theirs["snapshots"]):
        assert {key: _said(mine)[key] for key in _said(their)} == _said(their)
        # Released Java says the operation alone, and calls a compaction so as well.
        assert their["summary"] == {"operation": mine["summary"]["operation"].replace("replace", "overwrite")}
        assert _entries(copy, mine) == _entries(path, their)


def _said(snapshot) -> dict:
    apart = ("summary", "manifest-list", "timestamp-ms")  # released Java takes the time at which it writes
    return {key: value for key, value in snapshot.items() if key not in apart}


def _entries(path, snapshot) -> list:
    io, table = local_file_io(False), open_table(local_file_io(False), path, for_writing=False)
    found = []
    for manifest in read_list(io.read(snapshot["manifest-list"]), ""):
        entries = list(read_entries(io.read(manifest.path), "", partition_columns(table.known_schema)))
        for entry in entries:
            file = entry["data_file"]
            if entry["status"] == DELETED:
                entry["snapshot_id"] = None  # released Java leaves that of the snapshot that added the file
            file["file_path"] = os.path.relpath(file["file_path"], path)
            for key in ("null_value_counts", "lower_bounds", "upper_bounds"):
                file[key] = sorted((pair["key"], pair["value"]) for pair in file[key] or ())
        said = (manifest.sequence, manifest.least_sequence, manifest.added_files, manifest.existing_files)
        rows = (manifest.deleted_files, manifest.added_rows, manifest.existing_rows, manifest.deleted_rows)
        found.append((said, rows, manifest.partitions, sorted(entries, key=repr)))
    return found


@pytest.mark.soak
@pytest.mark.parametrize("partition_by", [[], ["p", "d"]], ids=["plain", "partitioned"])
def test_both_write_in_turn(java, path, rng, partition_by):
    """Each goes on from what the other one has left, also where files go."""
    fields = columns(DDL)
    streamsink.create_table(path, fields, partition_by, {**AT_TABLE, "compaction.min.file-num": "2"})
    with ArrowSink(path) as sink:
        for _ in range(2):
            sink.write(to_arrow(random_rows(rng, fields, 4), fields), fields)
            check(path)
            java.append(path, random_rows(rng, fields, 3))
            check(path)
            sink.write(to_arrow(random_rows(rng, fields, 4), fields), fields)
            check(path)
            maintenance.compact(path, full=True)
            check(path)
            java.append(path, random_rows(rng, fields, 3))
            java.compact(path)
            check(path)
            sink.write(to_arrow(random_rows(rng, fields, 1), fields), fields)
            check(path)
    assert len(metadata_of(folder_of(path))["snapshots"]) >= 10  # none was made anew


def test_files_of_sparks_own_writer_are_for_other_tables(path):
    """They say no ids of nested fields."""
    from streamsink.spark.rows.parquet_job import can_write

    fields = columns("id BIGINT, p STRING")
    for options in ({}, AT_TABLE):
        assert can_write(fields, new_schema(fields, (), options), local_file_io(False)) is (not options)
