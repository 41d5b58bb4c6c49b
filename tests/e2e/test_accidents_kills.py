"""S1, S10, S11, S12: drivers killed or paused in the middle of things. S13 is in test_kill_every_step.py."""

import hashlib
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

import streamsink
from tests.advice.following import advice, follows
from tests.e2e.harness import Driver, assert_each_once, content, files_under, ids_of, run_driver, run_here

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.in_turn("accidents of killed drivers", 1)
@pytest.mark.parametrize("step", ["commit.published", pytest.param("batch.end", marks=pytest.mark.soak)])
def test_s1_killed_between_publishing_and_sparks_commit_log(spark, ground, step):
    """The batch is visible and Spark does not know it:
    its replay is skipped, the rest follows, and each row is there once."""
    ground.add_files(0, 4)
    job = ground.job()
    assert run_driver(ground, job, fault=f"{step}@2:kill").code == -signal.SIGKILL
    assert_each_once(ground.table, ids_of(0, 2))
    assert not Path(job.checkpoint, "commits", "1").exists()
    outcome = run_here(spark, job)
    assert outcome.code == 0, outcome
    assert [skip["checkpoint_id"] for skip in outcome.of("BatchSkipped")] == [1]
    assert_each_once(ground.table, ids_of(0, 4))


PAUSES = [
    ("commit.before_publish", "writer.fenced"),
    pytest.param("commit.placing", "writer.fenced", marks=pytest.mark.soak),
    ("precommit.before_record", "journal.record-taken"),
]


@follows("writer.fenced", "journal.record-taken")
@pytest.mark.in_turn("accidents of killed drivers", 1)
@pytest.mark.parametrize("step, kind", PAUSES)
def test_s10_a_zombie_driver_is_fenced(spark, ground, step, kind):
    """It is paused in its commit, and its successor replays and goes on.
    When it wakes up it gets a clear error, and each row is there once."""
    ground.add_files(0, 5)
    job = ground.job()
    with Driver(ground, job, fault=f"{step}@2:stop") as zombie:
        zombie.wait_stopped()
        successor = run_here(spark, job)
        assert successor.code == 0, successor
        assert_each_once(ground.table, ids_of(0, 5))
        before = content(ground.table)
        zombie.signal(signal.SIGCONT)
        outcome = zombie.wait()
    assert outcome.error == "Fenced", outcome
    advice(outcome, kind).says(
        ground.table, "restart this one or stop it" if kind == "journal.record-taken" else "othing more"
    )
    assert_each_once(ground.table, ids_of(0, 5))
    assert content(ground.table).items() <= before.items()  # It may remove what it had prepared, and no more.
    assert run_here(spark, job).code == 0
    assert_each_once(ground.table, ids_of(0, 5))


def digests(table: str, files) -> dict:
    status = files_under(table)
    return {f: (status[f], hashlib.sha256(Path(table, f).read_bytes()).hexdigest()) for f in files}


@pytest.mark.in_turn("accidents of killed drivers", 1)
def test_s11_restarted_with_other_cores_and_shuffle_partitions(ground):
    """The driver is killed after publishing the first batch of its run:
    the replay, which is laid out otherwise, touches no committed file."""
    ground.add_files(0, 6)
    job = ground.job(shuffle=True, per_batch=3, options={"driver_max_rows": 0})
    first = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    second = {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "3"}
    no_merging = {"spark.sql.adaptive.enabled": "false"}
    assert run_driver(ground, job.but(conf=first | no_merging), fault="commit.published@1:kill").code == -signal.SIGKILL
    committed = [
        f for f in content(ground.table) if f.startswith(("bucket-0/", "manifest/", "snapshot/snapshot-", "schema/"))
    ]
    assert sum(f.startswith("bucket-0/") for f in committed) == 2
    before = digests(ground.table, committed)
    outcome = run_driver(ground, job.but(conf=second | no_merging))
    assert outcome.code == 0, outcome
    assert digests(ground.table, committed) == before
    # Spark 4.0 goes on with the number of shuffle partitions that the checkpoint recorded, whatever the setting says.
    partitions = 2 if pyspark.__version__.startswith("4.0.") else 3
    assert [written["files"] for written in outcome.of("BatchWritten")] == [partitions]
    assert_each_once(ground.table, ids_of(0, 6))


@pytest.mark.in_turn("accidents of killed drivers", 1)
def test_s12_a_query_that_is_not_deterministic_has_one_version_of_each_row(spark, ground):
    """The driver is killed between pre-commit and publishing:
    the files of the pre-commit are published, and nothing is computed again."""
    ground.add_files(0, 4)
    job = ground.job(column="concat(rand(), ' ', current_timestamp())")
    assert run_driver(ground, job, fault="precommit.saved@2:kill").code == -signal.SIGKILL
    assert_each_once(ground.table, ids_of(0, 1))
    staged = list(Path(ground.table, "streamsink").glob("*/staging/*/data-*.parquet"))
    assert len(staged) == 1
    promised = pq.read_table(staged[0]).to_pylist()
    before = streamsink.read_arrow(ground.table).to_pylist()
    outcome = run_here(spark, job)
    assert outcome.code == 0, outcome
    assert outcome.of("Restored")[0]["published_checkpoints"] == (1,)
    assert_each_once(ground.table, ids_of(0, 4))
    versions = {row["id"]: row["extra"] for row in streamsink.read_arrow(ground.table).to_pylist()}
    for row in before + promised:
        assert versions[row["id"]] == row["extra"]
