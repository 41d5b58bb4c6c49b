"""Rollbacks and branches of ours, as Paimon's Java and Python see them, read them, expire them and go on from them."""

import pytest

import streamsink
from streamsink import maintenance
from tests.compat import java_branches
from tests.compat.rows import assert_same, from_arrow
from tests.compat.test_commit_kinds import _write

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
