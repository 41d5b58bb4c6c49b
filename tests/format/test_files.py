"""Manifests, manifest lists, snapshots and wire records: round trips, and torn bytes."""

import contextlib
import datetime
import io
import json
import pickle
import uuid
from dataclasses import replace

import fastavro
import pytest

from streamsink.errors import Corrupt
from streamsink.format.binary_row import EMPTY_ROW, encode_row
from streamsink.format.data_file import DataFileMeta
from streamsink.format.manifest import FileKind, ManifestEntry, NameSearch, read_manifest, write_manifest
from streamsink.format.manifest_list import ManifestFileMeta, read_manifest_list, write_manifest_list
from streamsink.format.simple_stats import SimpleStats
from streamsink.format.snapshot import Snapshot
from streamsink.format.stats import partition_stats
from streamsink.format.types import parse_type

STRING, INT = parse_type("STRING"), parse_type("INT")


def data_file(i=0, **more):
    base = DataFileMeta.for_append(
        file_name=f"data-{i}.parquet", file_size=10 + i, row_count=5, schema_id=0, creation_time=1_700_000_000_123
    )
    return replace(base, **more)


def entry(i=0, kind=FileKind.ADD, partition=EMPTY_ROW, **more):
    return ManifestEntry(kind, partition, 0, -1, data_file(i, **more))


FULL = {
    "extra_files": ("x.index",),
    "embedded_file_index": b"\0\1",
    "external_path": "s3://b/x",
    "first_row_id": 3,
    "write_cols": ("a",),
    "value_stats": SimpleStats(EMPTY_ROW, EMPTY_ROW, (1, None)),
    "value_stats_cols": None,
}


@pytest.mark.parametrize("codec", ["zstandard", "null", "deflate"])
def test_manifests_come_back(codec):
    """Every field survives, in every codec Java reads, and equal entries give equal bytes."""
    entries = [entry(i) for i in range(300)] + [
        entry(1, FileKind.DELETE, **FULL),
        entry(2, write_cols_sequences=(1, 2)),
    ]
    data = write_manifest(entries, codec=codec)
    assert read_manifest(data, "m") == entries
    assert data == write_manifest(entries, codec=codec)
    assert read_manifest(write_manifest([]), "m") == []


def test_the_file_record_has_java_s_fields():
    """It has 20 fields as Java 1.4 writes them; the 21st is there only where it is used."""

    def fields(data):
        schema = fastavro.reader(io.BytesIO(data)).writer_schema
        assert [f["name"] for f in schema["fields"]] == [
            "_VERSION",
            "_KIND",
            "_PARTITION",
            "_BUCKET",
            "_TOTAL_BUCKETS",
            "_FILE",
        ]
        return [f["name"] for f in schema["fields"][5]["type"]["fields"]]

    assert len(fields(write_manifest([entry()]))) == 20
    assert fields(write_manifest([entry(write_cols_sequences=(1,))]))[-1] == "_WRITE_COLS_SEQUENCES"


def test_wire_records_are_json_and_come_back():
    for meta in (data_file(), data_file(**FULL), data_file(write_cols_sequences=(4,))):
        assert DataFileMeta.from_wire(json.loads(json.dumps(meta.to_wire()))) == meta
        assert pickle.loads(pickle.dumps(meta)) == meta
    for bad in ({}, {"v": 2}, {**data_file().to_wire(), "min_key": "***"}, {**data_file().to_wire(), "extra_files": 3}):
        with pytest.raises(Corrupt):
            DataFileMeta.from_wire(bad)


def test_manifest_lists_come_back_and_say_what_is_inside():
    """Counts, pruning bounds and partition stats are those of the entries; extras of newer writers are carried."""
    rows = [encode_row([day, n], [STRING, INT]) for day, n in (("b", 3), ("a", None), (None, 7))]
    entries = [entry(i, partition=row, schema_id=i) for i, row in enumerate(rows)] + [
        entry(9, FileKind.DELETE, partition=rows[0])
    ]
    meta = ManifestFileMeta.of("m", 77, entries, [STRING, INT])
    assert (meta.num_added_files, meta.num_deleted_files, meta.schema_id, meta.min_row_id) == (3, 1, 2, None)
    assert meta.partition_stats == SimpleStats(
        encode_row(["a", 3], [STRING, INT]), encode_row(["b", 7], [STRING, INT]), (1, 1)
    )
    metas = [meta, replace(meta, file_name="n", total_buckets=4, extra_files=("s",))]
    assert read_manifest_list(write_manifest_list(metas), "l") == metas
    assert read_manifest_list(write_manifest_list([]), "l") == []
    with_ids = ManifestFileMeta.of("m", 1, [entry(0, first_row_id=10), entry(1, first_row_id=2)], [])
    assert (with_ids.min_row_id, with_ids.max_row_id) == (2, 14)
    assert with_ids.partition_stats == SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


def test_long_partition_values_are_not_truncated():
    row = encode_row(["x" * 100], [STRING])
    assert partition_stats({row: 1}, [STRING]) == SimpleStats(row, row, (0,))


@pytest.mark.parametrize("codec", ["zstandard", "null", "deflate"])
def test_manifests_that_name_a_file_are_found_without_decoding(codec):
    """A name is found in any block and any codec, whatever surrounds it,
    and never when no name is there that our writers would give."""
    names = [f"data-{uuid.uuid4()}-{i}.parquet" for i in range(2000)]
    entries = [entry(i, file_name=name, external_path=f"data-x/data-{name}") for i, name in enumerate(names)]
    data, others = write_manifest(entries, codec=codec), [f"data-{uuid.uuid4()}-0.parquet" for _ in names]
    for wanted in (names[:1], names[1000:1001], names[-1:] + others):
        assert NameSearch(wanted).may_find(data, "m", (2000, 0))
    assert not NameSearch(others).may_find(data, "m", (2000, 0))
    assert NameSearch(["part-0.parquet", *others]).may_find(data, "m", (2000, 0)), (
        "not a name of ours: not looked for in bytes"
    )


def test_torn_manifests_are_corrupt_and_named(rng):
    """A manifest that is cut anywhere, even between two blocks,
    or altered raises Corrupt with the file's name, and never gives a shorter list."""
    entries = [entry(i) for i in range(2000)]
    for codec in ("zstandard", "null"):
        data = write_manifest(entries, codec=codec)
        blocks = [i + 16 for i in range(len(data)) if data.startswith(b"streamsink-sync.", i)]
        assert len(blocks) > 3
        for cut in blocks[:-1] + [rng.randrange(len(data)) for _ in range(60)]:
            for read in (read_manifest, lambda torn, name: NameSearch([]).may_find(torn, name, (2000, 0))):
                with pytest.raises(Corrupt) as caught:
                    read(data[:cut], "manifest-x")
                assert "manifest-x" in str(caught.value)
        with pytest.raises(Corrupt, match="2000 entries, its manifest list says 2001"):
            NameSearch([]).may_find(data, "manifest-x", (2000, 1))
    small = write_manifest([entry(i) for i in range(3)])
    for _ in range(4000):
        altered = bytearray(small)
        altered[rng.randrange(len(altered))] = rng.randrange(256)
        for read in (read_manifest, lambda data, name: NameSearch([]).may_find(data, name, (3, 0))):
            with contextlib.suppress(Corrupt):
                read(bytes(altered), "manifest-x")
    for garbage in (b"", b"Obj\x01", b"{}"):
        with pytest.raises(Corrupt):
            read_manifest_list(garbage, "l")


def test_a_container_of_other_things_is_corrupt():
    """It is Avro, and nothing is wrong with it, but it has no records."""
    out = io.BytesIO()
    fastavro.writer(out, "int", [1, 2, 3])
    for read in (read_manifest, lambda data, name: NameSearch([]).may_find(data, name, (3, 0))):
        with pytest.raises(Corrupt, match="not an Avro record"):
            read(out.getvalue(), "m")


def test_other_versions_are_corrupt():
    """_VERSION 2 is the only known layout."""
    found = list(fastavro.reader(io.BytesIO(write_manifest([entry()]))))
    schema = fastavro.reader(io.BytesIO(write_manifest([entry()]))).writer_schema
    found[0]["_VERSION"] = 3
    out = io.BytesIO()
    fastavro.writer(out, schema, found)
    for read in (read_manifest, lambda data, name: NameSearch([]).may_find(data, name, (1, 0))):
        with pytest.raises(Corrupt) as caught:
            read(out.getvalue(), "m")
        assert caught.value.kind == "manifest.version"


SNAPSHOT = Snapshot(1, 0, "base", "delta", "me", 5, "APPEND", 1_700_000_000_000, 10, 10)


def test_snapshots_come_back():
    """All keys survive, those without a value are left out, and unknown ones are ignored."""
    full = replace(
        SNAPSHOT,
        uuid="u",
        base_manifest_list_size=3,
        delta_manifest_list_size=4,
        index_manifest="i",
        writer_version="w",
        watermark=-(2**63),
        statistics="s",
        properties={"a": "\u00e9"},
        next_row_id=0,
        operation="WRITE",
        changelog_manifest_list="c",
        changelog_manifest_list_size=1,
        changelog_record_count=0,
    )
    for snapshot in (SNAPSHOT, full):
        assert Snapshot.from_json(snapshot.to_json(), "s") == snapshot
    assert list(json.loads(SNAPSHOT.to_json())) == [
        "version",
        "id",
        "schemaId",
        "baseManifestList",
        "deltaManifestList",
        "commitUser",
        "commitIdentifier",
        "commitKind",
        "timeMillis",
        "totalRecordCount",
        "deltaRecordCount",
    ]
    more = json.dumps({**json.loads(SNAPSHOT.to_json()), "future": [1]}).encode()
    assert Snapshot.from_json(more, "s") == SNAPSHOT


def test_broken_snapshots_are_corrupt_and_named():
    data = SNAPSHOT.to_json()
    whole = json.loads(data)
    bad = [data[:i] for i in range(len(data))] + [b"[]", b"\xff", b"null", b"[" * 100000]
    for key in whole:
        if key != "version":
            bad.append(json.dumps({k: v for k, v in whole.items() if k != key}).encode())
            bad.append(json.dumps({**whole, key: {}}).encode())
    bad.append(json.dumps({**whole, "commitKind": "OTHER"}).encode())
    bad.append(json.dumps({**whole, "id": True}).encode())
    for broken in bad:
        with pytest.raises(Corrupt) as caught:
            Snapshot.from_json(broken, "snapshot-7")
        assert "snapshot-7" in str(caught.value) and caught.value.kind == "snapshot.corrupt"


def test_creation_times_keep_their_millisecond():
    for millis in (1_700_000_000_123, 1_700_000_000_999, 0):
        (found,) = read_manifest(write_manifest([entry(0, creation_time=millis)]), "m")
        assert found.file.creation_time == millis
    assert datetime.datetime.fromtimestamp(0, datetime.timezone.utc).year == 1970
