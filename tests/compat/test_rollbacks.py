"""Rollbacks and branches of ours, as Paimon's Java and Python see them, read them, expire them and go on from them."""

import pyarrow as pa
import pytest

import streamsink
from streamsink import faults, maintenance
from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.format.types import parse_type
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.storage.stores import table_path
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.compat import java_branches
from tests.compat.rows import assert_same, from_arrow
from tests.compat.test_commit_kinds import SCHEMA, _rows, _write

pytestmark = [pytest.mark.compat, pytest.mark.spark]


def _all_read(java, pypaimon, path, ids):
    rows = [(n, "ab"[n % 2]) for n in ids]
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(java.read(path), rows)
    assert_same(from_arrow(pypaimon.read(path)), rows)


def test_java_reads_expires_and_goes_on_from_a_rollback(java, pypaimon, path):
    """Files that an overwrite had deleted are live again, and outlive the snapshots that deleted them."""
    _write(path, (4,), mode="overwrite", overwrite_partition={}, partition_by=("part",), application="one")
    _write(path, (6,), mode="overwrite", overwrite_partition={}, application="two")
    done = maintenance.rollback_to(path, 1)
    _all_read(java, pypaimon, path, range(4))
    maintenance.rollback_to(path, 2)
    maintenance.rollback_to(path, 1)
    java.append(path, [(10, "a")])
    java_branches.expire(java, path, 1)
    assert done.snapshot_id == 3 and sorted(java.read(path))[-1] == (10, "a")
    _all_read(java, pypaimon, path, [*range(4), 10])
    report = streamsink.verify(path, contents=True)
    assert report.ok, str(report)
    java.overwrite(path, [(20, "a")])
    _all_read(java, pypaimon, path, [1, 3, 20])


def test_java_reads_and_writes_a_branch_of_ours_and_we_one_of_javas(java, pypaimon, path):
    """Main takes over what Java wrote to the branch as well; Java's expiry on main leaves the branch whole."""
    _write(path, (4,), partition_by=("part",), application="one")
    made = maintenance.create_branch(path, "audit", snapshot_id="latest")
    assert java_branches.branch_names(java, path) == ["audit"]
    assert sorted(java_branches.read(java, path, "audit")) == [(n, "ab"[n % 2]) for n in range(4)]
    _write(made.path, (2,), application="two")
    java_branches.append(java, path, "audit", [(100, "a")])
    _write(made.path, (3,), application="three")
    ids = sorted([*range(4), *range(2), 100, *range(3)])
    assert sorted(row[0] for row in java_branches.read(java, path, "audit")) == ids
    assert sorted(streamsink.read_arrow(made.path)["id"].to_pylist()) == ids
    _all_read(java, pypaimon, path, range(4))
    maintenance.fast_forward(path, "audit")
    assert sorted(row[0] for row in java.read(path)) == ids == sorted(pypaimon.read(path)["id"].to_pylist())
    java.overwrite(path, [(20, "a"), (21, "b")])
    java_branches.create_tag(java, path, "now")
    java_branches.create_branch(java, path, "theirs", "now")
    _write(table_path(f"{path}$branch_theirs"), (1,), application="four")
    assert maintenance.fast_forward(path, "theirs").plan.arriving.rows == 1
    assert sorted(row[0] for row in java.read(path)) == [0, 20, 21]
    java.overwrite(path, [(30, "a"), (31, "b")])
    java_branches.expire(java, path, 1)
    assert sorted(row[0] for row in java_branches.read(java, path, "audit")) == ids
    assert sorted(row[0] for row in java_branches.read(java, path, "theirs")) == [0, 20, 21]
    assert streamsink.verify(made.path, contents=True).ok
    maintenance.delete_branch(path, "audit")
    assert java_branches.branch_names(java, path) == ["theirs"]
    java_branches.delete_branch(java, path, "theirs")
    assert maintenance.branches(path) == [] and streamsink.verify(path, contents=True).ok


@pytest.mark.parametrize("order", ["branch-first", "main-first"])
def test_paimons_own_fast_forward_is_noticed_by_a_stream(order, java, path):
    """It puts other snapshots in the place of main's. A stream on main whose rows that takes away stops with an error;
    where these snapshots are older than its own, it publishes its rows again, as after any rename that replaces.
    """
    checkpoint = SparkCheckpoint(IdSource().new_id())
    driver = MicroBatchDriver(path, SCHEMA, _rows, SinkOptions.of(path, {"partition_by": ("part",)}))
    driver.run(local_file_io(), checkpoint, (4,))
    maintenance.create_branch(path, "audit", snapshot_id="latest")
    steps = [
        lambda: _write(table_path(f"{path}$branch_audit"), (2,), application="two"),
        lambda: driver.run(local_file_io(), checkpoint, (4, 6)),
    ]
    for step in steps if order == "branch-first" else reversed(steps):
        step()
    java_branches.fast_forward(java, path, "audit")
    if order == "branch-first":
        driver.run(local_file_io(), checkpoint, (4, 6, 8))
        assert sorted(row[0] for row in java.read(path)) == sorted([*range(8), 0, 1])
        return
    with pytest.raises(Misuse) as stopped:
        driver.run(local_file_io(), checkpoint, (4, 6, 8))
    assert stopped.value.kind == "table.rolled-back"
    assert sorted(row[0] for row in java.read(path)) == [0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize("way", ["schema-rolled-back", "fast-forward"])
def test_paimon_puts_another_schema_under_a_pending_record(way, java, path):
    """Formerly the record was published, Java read nulls in the column ``more``, and we could not read the table."""
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    checkpoint = SparkCheckpoint(IdSource().new_id())
    options = SinkOptions.of(path, {"partition_by": ("part",), "add_columns": True})
    MicroBatchDriver(path, SCHEMA, _rows, options).run(local_file_io(), checkpoint, (4,))
    maintenance.create_branch(path, "audit", snapshot_id="latest")
    driver = MicroBatchDriver(path, wider, _wider, options)
    arm("precommit.saved", 1, crash)
    with pytest.raises(InjectedCrash):
        driver.run(local_file_io(), checkpoint, (4, 6))
    faults.arm(None)
    if way == "fast-forward":
        java_branches.add_column(java, path, "audit", "other", parse_type("STRING"))
        java_branches.fast_forward(java, path, "audit")
    else:
        java_branches.roll_back_schema(java, path, 0)
        java.change(path, ("addColumn", "other", parse_type("STRING")))
    with pytest.raises(Corrupt) as refused:
        driver.run(local_file_io(), checkpoint, (4, 6))
    assert refused.value.kind == "schema.replaced"
    assert sorted(row[0] for row in java.read(path)) == [0, 1, 2, 3]
    if way == "fast-forward":
        assert streamsink.give_up(path).records == (2,)
    else:
        java_branches.roll_back_schema(java, path, 0)
        java.change(path, ("addColumn", "more", parse_type("BIGINT")))
    driver.run(local_file_io(), checkpoint, (4, 6, 8))
    found = java.read(path, columns=["id", "more"])
    assert sorted(found) == [(n, None if n < 4 else -n) for n in range(8)]
    assert sorted(streamsink.read_arrow(path)["id"].to_pylist()) == list(range(8))


def _wider(start: int, end: int) -> pa.RecordBatch:
    rows = _rows(start, end)
    return rows.add_column(rows.num_columns, "more", pa.array([-n for n in range(start, end)], pa.int64()))
