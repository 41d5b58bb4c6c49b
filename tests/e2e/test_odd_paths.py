"""Folders whose names would mean something in a URL: to Hadoop, and so to Spark, they are plain names."""

import pytest

from tests.e2e.harness import Ground, assert_each_once, forget_commit, run_here

pytestmark = pytest.mark.spark
ODD = "50%20 #1 a+b?x=%2F"


def test_a_checkpoint_and_a_table_in_a_folder_with_percent_hash_and_question_mark(spark, tmp_path):
    """There are several batches, a replay of the last one, and a restart: each row is there once."""
    odd = Ground(tmp_path / ODD)
    plain = Ground(tmp_path)  # Spark takes a file source's path for a pattern, in which '?' is any character.
    expected = plain.add_files(0, 3)
    job = odd.job(source={"kind": "files", "dir": str(plain.source)})
    assert run_here(spark, job).kind is None
    assert_each_once(odd.table, expected)
    forget_commit(odd.checkpoint, 2)
    expected |= plain.add_files(3, 2)
    assert run_here(spark, job).kind is None
    assert_each_once(odd.table, expected)
