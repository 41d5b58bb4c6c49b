"""Several writers write to one table, in turn:
nobody loses a row, and what we record of our applications is carried on."""

import pytest

import streamsink
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.compat.arrow_writer import ArrowSink
from tests.compat.rows import assert_same, columns, from_arrow, matching, random_rows, to_arrow

pytestmark = [pytest.mark.compat, pytest.mark.spark]

DDL = "id BIGINT, p STRING, v DOUBLE, d DECIMAL(20, 3), ts TIMESTAMP(6), a ARRAY<INT>, r ROW<x INT, y STRING>"
ROUNDS = 5


def make(who, java, pypaimon, path, partition_by):
    fields = columns(DDL)
    if who == "us":
        streamsink.create_table(path, fields, partition_by)
    elif who == "java":
        java.create(path, fields, partition_by)
    else:
        pypaimon.create(path, to_arrow([], fields).schema, partition_by)
    return fields


def all_read(java, pypaimon, path, rows):
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(java.read(path), rows)
    assert_same(from_arrow(pypaimon.read(path)), rows)


def states_of(path):
    table = open_table(local_file_io(), path, for_writing=False)
    newest = table.snapshots.latest()
    return newest, table.states.read(newest).by_application


@pytest.mark.in_turn("three writers in turn", 2)
@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["plain", "partitioned"])
@pytest.mark.parametrize("owner", ["us", "java", "pypaimon"])
def test_three_writers_in_turn_lose_no_row(java, pypaimon, path, rng, owner, partition_by):
    """Whoever made the table, every writer's commits stay: after each round all readers see all rows once."""
    fields = make(owner, java, pypaimon, path, partition_by)
    rows = []
    with ArrowSink(path) as sink:
        for _ in range(ROUNDS):
            for who in rng.sample(["us", "java", "pypaimon"], 3):
                new = random_rows(rng, fields, 4)
                rows += new
                if who == "us":
                    sink.write(to_arrow(new, fields), fields)
                elif who == "java":
                    java.append(path, new)
                else:
                    pypaimon.append(path, to_arrow(new, fields))
            assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    all_read(java, pypaimon, path, rows)
    newest, _ = states_of(path)
    assert newest.id == 3 * ROUNDS
    assert newest.total_record_count == len(rows)
    where = [("greater_than", "id", 0)]
    assert_same(java.read(path, where), matching(rows, fields, where))
    assert_same(from_arrow(pypaimon.read(path, where)), matching(rows, fields, where))


def test_our_states_go_on_over_foreign_snapshots(java, pypaimon, path, rng):
    """Foreign snapshots record nothing of us;
    the next commit of one application carries all applications' states on."""
    fields = make("us", java, pypaimon, path, [])
    rows = []
    for application in ("orders", "returns"):
        with ArrowSink(path, application=application) as sink:
            rows += (new := random_rows(rng, fields, 3))
            sink.write(to_arrow(new, fields), fields)
    _, before = states_of(path)
    for _ in range(3):
        rows += (new := random_rows(rng, fields, 3))
        java.append(path, new)
        rows += (new := random_rows(rng, fields, 3))
        pypaimon.append(path, to_arrow(new, fields))
    newest, found = states_of(path)
    assert not newest.properties
    assert found == before
    with ArrowSink(path, application="orders") as sink:
        rows += (new := random_rows(rng, fields, 3))
        sink.write(to_arrow(new, fields), fields)
    newest, after = states_of(path)
    assert newest.commit_user.startswith("orders")
    assert after["returns"] == before["returns"]
    assert after["orders"]["sequence"] == before["orders"]["sequence"] + 1
    assert set(newest.properties) == {"streamsink.app.orders", "streamsink.app.returns", "streamsink.history"}
    all_read(java, pypaimon, path, rows)


@pytest.mark.in_turn("merges of manifests beside others", 1)
@pytest.mark.parametrize("commits", [35, 65])
def test_rows_stay_when_manifests_are_merged(java, pypaimon, path, rng, commits):
    """After more than 30 commits manifests are merged:
    there are fewer files and the same rows, and filters on partition and value are right."""
    fields = make("us", java, pypaimon, path, ["p"])
    rows = []
    with ArrowSink(path) as sink:
        for number in range(commits):
            new = [(number * 10 + i, f"p{number % 4}", i / 2, None, None, [i], (i, None)) for i in range(3)]
            rows += new
            sink.write(to_arrow(new, fields), fields)
    newest, _ = states_of(path)
    table = open_table(local_file_io(), path, for_writing=False)
    assert len(table.manifests.all_of(newest)) < 32
    all_read(java, pypaimon, path, rows)
    for where in (
        [("equal", "p", "p1")],
        [("greater_or_equal", "id", commits * 5)],
        [("equal", "p", "p2"), ("less_than", "id", 100)],
        [("is_null", "d", None)],
        [("equal", "p", "none")],
    ):
        assert_same(java.read(path, where), matching(rows, fields, where))
        assert_same(from_arrow(pypaimon.read(path, where)), matching(rows, fields, where))
    java.append(path, rows[:2])
    pypaimon.append(path, to_arrow(rows[:2], fields))
    with ArrowSink(path) as sink:
        sink.write(to_arrow(rows[:1], fields), fields)
    all_read(java, pypaimon, path, rows + rows[:2] + rows[:2] + rows[:1])


@pytest.mark.in_turn("merges of manifests beside others", 1)
@pytest.mark.parametrize("full", [False, True])
def test_deletes_stay_deletes_when_manifests_are_merged(java, pypaimon, path, full):
    """Java compacts and drops a partition between our commits. After our merges its deletes still hide what they hid.

    full: full merging happens again and again, by us and by Java.
    """
    fields = columns(DDL)
    sizes = {"manifest.target-file-size": "10 kb", "manifest.full-compaction-threshold-size": "40 kb"} if full else {}
    streamsink.create_table(path, fields, ["p"], options={"compaction.min.file-num": "2", **sizes})
    rows = []
    with ArrowSink(path) as sink:
        for number in range(70):
            new = [(number, f"p{number % 3}", 1.0, None, None, None, None)]
            rows += new
            sink.write(to_arrow(new, fields), fields)
            if number % 20 == 10:
                assert java.compact(path) > 0
            if number == 25:
                java.drop_partition(path, {"p": "p1"})
                rows = [row for row in rows if row[1] != "p1"]
            if number == 45:
                gone = [(1000, "p2", None, None, None, None, None)]
                java.overwrite(path, gone, {"p": "p2"})
                rows = [row for row in rows if row[1] != "p2"] + gone
    all_read(java, pypaimon, path, rows)
    newest, _ = states_of(path)
    assert newest.total_record_count == len(rows)
    assert len(open_table(local_file_io(), path, for_writing=False).manifests.all_of(newest)) < (14 if full else 40)
