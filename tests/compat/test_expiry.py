"""Snapshots expire as Paimon's Java code lets them expire: of two copies of one table the same files are left."""

import os
import shutil
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

from streamsink import maintenance
from streamsink.clock import IdSource
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.history.retained import tag_path
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint

pytestmark = [pytest.mark.compat, pytest.mark.spark]

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
FIELDS = parse_ddl("id BIGINT, part STRING")
OPTIONS = {"compaction.min.file-num": "2", "manifest.merge-min-count": "3"}
CLEANS = {"snapshot.clean-empty-directories": "true"}


def _rows(start, end):
    numbers = list(range(start, end))
    return pa.RecordBatch.from_pydict({"id": numbers, "part": ["ab"[n % 2] for n in numbers]}, schema=SCHEMA)


def _made(java, path) -> None:
    """A table of snapshots of many kinds: batches of ours, appends, compactions, an overwrite and drops of Java's, and
    three tags, of which two are of one snapshot.
    """
    java.create(path, FIELDS, ["part"], OPTIONS | CLEANS)
    driver = MicroBatchDriver(path, SCHEMA, _rows, SinkOptions.of(path, {"flush": False}))
    checkpoint = SparkCheckpoint(IdSource().new_id())
    for n in range(1, 5):
        driver.run(local_file_io(False), checkpoint, [4 * k for k in range(1, n + 1)])
        java.append(path, [(100 + n, "a")])
        if n == 2:
            java.compact(path)
            java.append(path, [(300, "c")])  # of a partition of which nothing is left in the end
        if n == 3:
            java.overwrite(path, [(200, "b")])
            java.drop_partition(path, {"part": "a"})
            java.drop_partition(path, {"part": "c"})
    java.compact(path)
    driver.run(local_file_io(False), checkpoint, [4 * k for k in range(1, 6)])
    os.makedirs(f"{path}/tag")
    for name, number in (("one", 2), ("two", 5), ("again", 5)):
        shutil.copy(f"{path}/snapshot/snapshot-{number}", tag_path(path, name))


def _java_expires(java, path, keep: int, limit: int) -> None:
    table, _ = java._open(path)
    config = java._paimon.options.ExpireConfig.builder()
    config = config.snapshotRetainMax(keep).snapshotRetainMin(1).snapshotMaxDeletes(limit).build()
    expire = java._call("table.Table", table, "newExpireSnapshots")
    java._call("table.ExpireSnapshots", expire, "config", ("options.ExpireConfig", config))
    java._call("table.ExpireSnapshots", expire, "expire")


def _files(path) -> dict[str, str]:
    """All files, and folders of partitions, by path relative to the table; of hints also what they say."""
    found = {}
    for folder, _, names in os.walk(path):
        if "part=" in folder:
            found[os.path.relpath(folder, path)] = "folder"
        for name in names:
            whole = os.path.join(folder, name)
            hint = open(whole).read() if name in ("EARLIEST", "LATEST") else ""
            found[os.path.relpath(whole, path)] = hint
    return {name: hint for name, hint in found.items() if not name.endswith(".crc")}


@pytest.mark.in_turn("expiry as by Java", 1)
def test_the_same_files_are_left_as_by_java(java, path, tmp_path):
    """In steps of several sizes, with tags, and once with a consumer; and Java reads what is left."""
    _made(java, path)
    for case, steps in enumerate([((9, 100), (4, 100), (1, 100)), ((1, 3), (1, 2), (1, 100)), ((2, 1),)]):
        ours, theirs = (str(tmp_path / f"{who}{case}" / "orders") for who in ("ours", "theirs"))
        for copied in (ours, theirs):
            shutil.copytree(path, copied)
            if case == 1:
                os.makedirs(f"{copied}/consumer")
                with open(f"{copied}/consumer/consumer-c", "w") as stream:
                    stream.write('{"nextSnapshot": 7}')
        for keep, limit in steps:
            _java_expires(java, theirs, keep, limit)
            maintenance.expire_snapshots(ours, retain_max=keep, retain_min=1, max_deletes=limit, flush=False)
            assert _files(ours) == _files(theirs), f"case {case}, {keep} kept, at most {limit} go"
        assert sorted(java.read(ours)) == sorted(java.read(path)) == sorted(java.read(theirs))
    assert not os.path.exists(f"{ours}/snapshot/snapshot-1")
    for name in ("two", "one", "again"):  # of copies from which nearly all snapshots have expired
        table, _ = java._open(tmp_path / "theirs0" / "orders")
        java._call("table.Table", table, "deleteTag", ("java.lang.String", name))
        maintenance.delete_tag(tmp_path / "ours0" / "orders", name, flush=False)
        assert _files(tmp_path / "ours0" / "orders") == _files(tmp_path / "theirs0" / "orders"), name
    assert not (tmp_path / "ours0" / "orders" / "part=c").exists()


def test_java_reads_the_time_of_a_tag_of_ours(java, path):
    """When it was made, and for how long it is kept; and Java lets it expire by that."""
    _made(java, path)
    number = maintenance.create_tag(path, "short", 3, timedelta(milliseconds=1500))
    maintenance.create_tag(path, "always")
    table, _ = java._open(path)
    tag = table.tagManager().getOrThrow("short")
    assert (tag.id(), tag.getTagTimeRetained().toMillis()) == (number, 1500) == (3, 1500)
    made = tag.getTagCreateTime()
    assert abs(datetime.fromisoformat(made.toString()[:19]) - datetime.now()) < timedelta(minutes=1)
    assert table.tagManager().getOrThrow("always").getTagCreateTime() is None
    assert sorted(maintenance.expire_tags(path, datetime.now(timezone.utc) + timedelta(days=1)).names) == ["short"]


@pytest.mark.in_turn("expiry as by Java", 1)
def test_the_same_partitions_are_dropped_as_by_java(java, path, tmp_path):
    """By values, a pattern and a formatter; Java's and our streams go on behind it."""
    for case, options in enumerate(
        [
            {},
            {"partition.timestamp-formatter": "yyyyMMdd"},
            {"partition.timestamp-pattern": "$part 00:00:00"},
            {"partition.expiration-max-num": "1"},
        ]
    ):
        both = [str(tmp_path / f"{who}{case}" / "orders") for who in ("ours", "theirs")]
        for copied in both:
            needed = {"partition.expiration-time": "2 d", "partition.expiration-check-interval": "0 s"}
            java.create(copied, FIELDS, ["part"], OPTIONS | needed | options | {"write-only": "true"})
            today = datetime.now().strftime("%Y-%m-%d")
            parts = ("2024-01-01", "2024-1-2", today, "20240103", "2024-01-04 10:00:00", "x", None)
            for number, value in enumerate(parts):
                java.append(copied, [(number, value)])
        ours, theirs = both
        table, _ = java._open(theirs)
        table.store().newPartitionExpire("them", table).expire(1)
        done = maintenance.expire_partitions(ours, flush=False)
        assert sorted(java.read(ours)) == sorted(java.read(theirs)), case
        assert done.partitions and len(java.read(ours)) == len(parts) - len(done.partitions)
