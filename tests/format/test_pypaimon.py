"""Our bytes and pypaimon's are each read by the other.
Needs STREAMSINK_PYPAIMON_PYTHON, an interpreter with pypaimon."""

import json
import os
import subprocess

import pytest

from streamsink.format.binary_row import encode_row
from streamsink.format.data_file import DataFileMeta
from streamsink.format.manifest import FileKind, ManifestEntry, read_manifest, write_manifest
from streamsink.format.manifest_list import ManifestFileMeta, read_manifest_list, write_manifest_list
from streamsink.format.paths import bucket_dir, partition_path
from streamsink.format.schema import TableSchema
from streamsink.format.snapshot import Snapshot
from streamsink.format.stats import StatsCollector
from streamsink.format.types import parse_ddl

PYTHON = os.environ.get("STREAMSINK_PYPAIMON_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="STREAMSINK_PYPAIMON_PYTHON is not set")

READ = """
import json, sys
from pypaimon import CatalogFactory
table = CatalogFactory.create({"warehouse": sys.argv[1]}).get_table("d.t")
builder = table.new_read_builder()
if len(sys.argv) > 2:
    builder = builder.with_filter(builder.new_predicate_builder().greater_than("id", int(sys.argv[2])))
rows = builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
print("ROWS " + json.dumps(sorted([r["id"], r["p"]] for r in rows)))
"""
WRITE = """
import sys, pyarrow as pa
from pypaimon import CatalogFactory, Schema
catalog = CatalogFactory.create({"warehouse": sys.argv[1]})
catalog.create_database("d", True)
kinds = pa.schema([("id", pa.int64()), ("p", pa.string())])
catalog.create_table("d.t", Schema.from_pyarrow_schema(kinds, partition_keys=["p"]), False)
builder = catalog.get_table("d.t").new_batch_write_builder()
write, commit = builder.new_write(), builder.new_commit()
write.write_arrow(pa.table({"id": [1, 2], "p": ["a/b", "c"]}, schema=kinds))
commit.commit(write.prepare_commit())
write.close(); commit.close()
"""


def run(script, *arguments):
    done = subprocess.run([PYTHON, "-c", script, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("ROWS ")]


def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(data)
    return len(data)


def test_pypaimon_reads_what_we_write(tmp_path):
    """A table made of our bytes only, partitioned and with stats, is read with and without a filter."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = TableSchema.create(parse_ddl("id BIGINT NOT NULL, p STRING"), ("p",), {}, None, 1)
    root, entries = str(tmp_path / "d.db" / "t"), []
    put(root + "/schema/schema-0", schema.to_json())
    types = [f.type for f in schema.partition_fields]
    for number, part in enumerate(["a/b", None]):
        batch = pa.record_batch({"id": [number * 10 + 1, number * 10 + 2], "p": pa.array([part] * 2, pa.string())})
        collector = StatsCollector(schema.fields, schema.options)
        collector.update(batch)
        stats, cols = collector.finish()
        path = f"{root}/{bucket_dir(partition_path([part], schema.partition_fields), 0)}/data-{number}.parquet"
        os.makedirs(os.path.dirname(path))
        pq.write_table(pa.Table.from_batches([batch]), path, compression="zstd")
        meta = DataFileMeta.for_append(
            file_name=f"data-{number}.parquet",
            file_size=os.path.getsize(path),
            row_count=2,
            schema_id=0,
            value_stats=stats,
            value_stats_cols=cols,
            creation_time=1,
        )
        entries.append(ManifestEntry(FileKind.ADD, encode_row([part], types), 0, -1, meta))
    size = put(root + "/manifest/m", write_manifest(entries))
    base = put(root + "/manifest/base", write_manifest_list([]))
    delta = put(root + "/manifest/delta", write_manifest_list([ManifestFileMeta.of("m", size, entries, types)]))
    put(
        root + "/snapshot/snapshot-1",
        Snapshot(1, 0, "base", "delta", "me", 0, "APPEND", 1, 4, 4, base, delta).to_json(),
    )
    put(root + "/snapshot/LATEST", b"1")
    assert run(READ, tmp_path) == [[[1, "a/b"], [2, "a/b"], [11, None], [12, None]]]
    assert run(READ, tmp_path, 10) == [[[11, None], [12, None]]]


def test_we_read_what_pypaimon_writes(tmp_path):
    """Schema, snapshot, lists and manifests of pypaimon are read, and our rows and paths agree with its."""
    run(WRITE, tmp_path)
    root = str(tmp_path / "d.db" / "t")

    def get(name):
        with open(f"{root}/{name}", "rb") as found:
            return found.read()

    schema = TableSchema.from_json(get("schema/schema-0"), "schema-0")
    assert schema.partition_keys == ("p",) and schema.field_names == ("id", "p")
    snapshot = Snapshot.from_json(get("snapshot/snapshot-1"), "snapshot-1")
    assert read_manifest_list(get("manifest/" + snapshot.base_manifest_list), "base") == []
    metas = read_manifest_list(get("manifest/" + snapshot.delta_manifest_list), "delta")
    types = [f.type for f in schema.partition_fields]
    live = [e for m in metas for e in read_manifest(get("manifest/" + m.file_name), m.file_name)]
    assert {e.partition for e in live} == {encode_row([p], types) for p in ("a/b", "c")}
    for part in ("a/b", "c"):
        assert os.path.isdir(f"{root}/{bucket_dir(partition_path([part], schema.partition_fields), 0)}")
    assert sum(e.file.row_count for e in live) == 2
    assert read_manifest(write_manifest(live), "again") == live
    assert read_manifest_list(write_manifest_list(metas), "again") == metas
