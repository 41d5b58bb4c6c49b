"""Paimon's Java and our committer write to one table of a real HDFS, whose rename never replaces:
there is no lock, and no row is lost."""

import collections
import threading

import pytest

import streamsink
from streamsink.options import SinkOptions
from streamsink.storage.stores import store_of
from streamsink.table.table import open_table
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.compat.java import JavaPaimon
from tests.storage import writer

pytestmark = [pytest.mark.spark, pytest.mark.compat]
ROWS, TURNS = 2, 2
JAVA_WRITERS, JAVA_COMMITS, OUR_BATCHES = 2, 4, 8
PATIENT = {"commit.max-retries": "1000", "commit.max-retry-wait": "50 ms"}


class Ours:
    """Our query on the table, as one application."""

    def __init__(self, table):
        options = {"application": "ours", "commit_max_retries": 1000, "commit_min_wait_ms": 1, "commit_max_wait_ms": 50}
        self.store = store_of(table)
        self._driver = MicroBatchDriver(table, writer.SCHEMA, self._rows, SinkOptions.of(table, options))
        self._checkpoint = SparkCheckpoint("query-of-ours")
        self._boundaries = []

    def append(self, batches):
        """Write so many micro-batches more."""
        for _ in range(batches):
            self._boundaries.append(ROWS * (len(self._boundaries) + 1))
        self._driver.run(self.store.open(), self._checkpoint, self._boundaries)

    def tries(self):
        return [event.attempts for event in self._driver.events if type(event).__name__ == "CheckpointPublished"]

    @staticmethod
    def _rows(start, end):
        names = {"application": ["ours"] * (end - start), "id": list(range(start, end))}
        return writer.pa.RecordBatch.from_pydict(names, schema=writer.SCHEMA)


def _rows_of(name, commit):
    return [(name, commit * ROWS + n) for n in range(ROWS)]


def _at_once(java, table, ours):
    """Java's writers run in threads and ours in this one, until all are done."""
    failed = []

    def append(name):
        try:
            for commit in range(JAVA_COMMITS):
                java.append(table, _rows_of(name, commit))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=append, args=(f"java{number}",)) for number in range(JAVA_WRITERS)]
    for thread in threads:
        thread.start()
    ours.append(OUR_BATCHES)
    for thread in threads:
        thread.join(120)
    assert failed == [] and not any(thread.is_alive() for thread in threads)


@pytest.mark.in_turn("Java beside us", 1)
def test_java_reads_and_writes_beside_us(spark, hdfs_cluster, tmp_path):
    """Java reads our rows; then both append in turns; then both append at once.
    Both readers see every row once, and ids have no hole."""
    table = f"{hdfs_cluster.uri}/{tmp_path.name}/shop.db/orders"
    streamsink.create_table(table, writer.SCHEMA, options=PATIENT)
    java, ours, rows = JavaPaimon(spark, on=table), Ours(table), []
    for turn in range(TURNS):
        ours.append(1)
        rows += _rows_of("ours", turn)
        assert sorted(java.read(table)) == sorted(rows)
        java.append(table, _rows_of("java", turn))
        rows += _rows_of("java", turn)
    assert java.read(table, [("equal", "application", "ours"), ("greater_or_equal", "id", 2)]) == _rows_of("ours", 1)
    _at_once(java, table, ours)
    rows += [row for number in range(TURNS, TURNS + OUR_BATCHES) for row in _rows_of("ours", number)]
    rows += [row for n in range(JAVA_WRITERS) for commit in range(JAVA_COMMITS) for row in _rows_of(f"java{n}", commit)]
    expected = collections.Counter(rows)
    assert max(expected.values()) == 1
    assert collections.Counter(java.read(table)) == expected
    found = streamsink.read_arrow(table).to_pylist()
    assert collections.Counter((row["application"], row["id"]) for row in found) == expected
    ids = open_table(ours.store.open(), table, for_writing=False).snapshots.ids()
    assert ids == list(range(1, 2 * TURNS + OUR_BATCHES + JAVA_WRITERS * JAVA_COMMITS + 1))
    print(f"RESULT java beside us on HDFS: snapshots={len(ids)} most tries of ours={max(ours.tries())}")
