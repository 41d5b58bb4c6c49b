"""Another writer at our table: Paimon's own Java API, in the JVM of the test's Spark session."""

from collections.abc import Iterable

from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.compat.java import JavaPaimon


def append(spark, path: str, commits: list[Iterable[int]]) -> set[int]:
    """Publish one snapshot for each group of ids; other columns are null."""
    java = JavaPaimon(spark)
    more = (None,) * (len(open_table(local_file_io(), path, for_writing=False).latest_schema().fields) - 1)
    for ids in commits:
        java.append(path, [(i, *more) for i in ids])
    return {i for ids in commits for i in ids}


def compact(spark, path: str) -> int:
    """Rewrite the small files (five or more) into few. Returns the number of tasks that did so."""
    return JavaPaimon(spark).compact(path)


def expire(spark, path: str) -> None:
    """Keep the newest snapshot only, whatever its age."""
    jvm = spark._jvm
    config = jvm.org.apache.paimon.options.ExpireConfig.builder().snapshotRetainMin(1).snapshotRetainMax(1)
    config = config.snapshotTimeRetain(jvm.java.time.Duration.ofMillis(1)).build()
    java = JavaPaimon(spark)
    expiry = java._call("table.Table", java._open(path)[0], "newExpireSnapshots")
    java._call("table.ExpireSnapshots", expiry, "config", ("options.ExpireConfig", config))
    java._call("table.ExpireSnapshots", expiry, "expire")


def roll_back(spark, path: str, snapshot_id: int) -> None:
    """Roll back to an earlier snapshot. Newer ones are deleted, with the files that only they had."""
    JavaPaimon(spark)._open(path)[0].rollbackTo(snapshot_id)


def snapshots(path: str):
    """All snapshots, oldest first."""
    opened = open_table(local_file_io(), path, for_writing=False)
    return [opened.snapshots.load(i) for i in opened.snapshots.ids()]


def has_snapshot_of_ours(path: str) -> bool:
    return any(s.commit_user.startswith("streamsink") for s in snapshots(path))


def live_entries(path: str):
    """The entries of the files that a reader of the newest snapshot sees."""
    opened = open_table(local_file_io(), path, for_writing=False)
    return list(opened.manifests.entries_of(opened.snapshots.latest()))
