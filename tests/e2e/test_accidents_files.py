"""S2, S3, S4 over a file source whose rows carry their file:
old files are filtered and new ones are written, whatever the batches are."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

import streamsink
from streamsink.spark.gateway import file_log
from tests.advice.following import Advice, follows
from tests.e2e.harness import accept_token, assert_each_once, assert_refused, content, forget_commit, ids_of, run_here
from tests.e2e.job import ROWS_PER_FILE

pytestmark = [pytest.mark.spark, pytest.mark.in_turn("accidents of files", 4)]
ALL_IN_ONE = 1000
# Each is spelled in another way in a URL than in a path.
ODD = ("a b", "50%", "p%20q", "h#x", "ümlaut", "plus+", "日本")


def with_file(ground, **changes):
    """The job, whose column ``extra`` is the file."""
    return ground.job(column="_metadata.file_path", options={"file_column": "extra", "flush": False}, **changes)


def add_odd_files(ground, first: int) -> set[int]:
    """Add one file of ten rows for each odd name, in a folder with an odd name."""
    for number, name in enumerate(ODD, first):
        lines = (json.dumps({"id": i, "name": "x"}) for i in ids_of(number, 1))
        path = ground.source / f"{name} {number}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return ids_of(first, len(ODD))


def test_s2_old_and_new_files_in_one_batch_whatever_their_names(spark, ground):
    """The checkpoint is deleted, and names have spaces, %, # and letters beyond ASCII: each row is there once, and the
    file is no column of the table."""
    ground.source.mkdir()
    expected = add_odd_files(ground, 0)
    job = with_file(ground, per_batch=3)
    assert run_here(spark, job).code == 0
    shutil.rmtree(job.checkpoint)
    expected |= add_odd_files(ground, len(ODD))
    outcome = run_here(spark, job.but(per_batch=2 * len(ODD) - 2))
    assert outcome.code == 0, outcome
    assert (
        len(outcome.of("BatchFiltered")) == 1
        and outcome.of("BatchWritten")[0]["rows"] == (len(ODD) - 2) * ROWS_PER_FILE
    )
    assert_each_once(ground.table, expected)
    assert streamsink.read_arrow(ground.table).column_names == ["id", "name"]


def test_s4_an_older_checkpoint_with_other_batches_goes_on_by_itself(spark, ground):
    """It was restored from an older copy and has two files a batch:
    one batch has old files, one an old and a new one, and one new ones."""
    ground.add_files(0, 1)
    job = with_file(ground)
    assert run_here(spark, job).code == 0
    shutil.copytree(job.checkpoint, job.checkpoint + "-copy")
    ground.add_files(1, 3)
    assert run_here(spark, job).code == 0
    shutil.rmtree(job.checkpoint)
    shutil.move(job.checkpoint + "-copy", job.checkpoint)
    ground.add_files(4, 3)
    outcome = run_here(spark, job.but(per_batch=2))
    assert (outcome.code, [written["rows"] for written in outcome.of("BatchWritten")]) == (0, [0, 10, 20]), outcome
    assert_each_once(ground.table, ids_of(0, 7))


@follows("checkpoint.other-past")
def test_a_checkpoint_that_read_other_files_in_the_batch_before(spark, ground):
    """Table and checkpoint were restored and went on; then the checkpoint from before that came back.
    Found by a walk: a file was read twice."""
    ground.add_files(0, 1)
    job = with_file(ground)
    assert run_here(spark, job).code == 0
    for folder in (job.checkpoint, job.table):
        shutil.copytree(folder, folder + "-copy")
    ground.add_files(1, 1)
    assert run_here(spark, job).code == 0
    shutil.move(job.checkpoint, job.checkpoint + "-later")
    for folder in (job.checkpoint, job.table):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(folder + "-copy", folder)
    ground.add_files(2, 1)
    assert run_here(spark, job.but(per_batch=2)).code == 0
    shutil.rmtree(job.checkpoint)
    shutil.move(job.checkpoint + "-later", job.checkpoint)
    ground.add_files(3, 1)
    outcome = run_here(spark, job.but(per_batch=2))
    assert_refused(outcome, "checkpoint.other-past", ground.table)
    assert_each_once(ground.table, ids_of(0, 3))
    said = Advice(outcome)
    said.says("start a new checkpoint: files whose rows are here are known, and the others are written")
    shutil.rmtree(job.checkpoint)
    assert run_here(spark, job.but(per_batch=ALL_IN_ONE)).code == 0
    assert_each_once(ground.table, ids_of(0, 4))


def test_a_checkpoint_whose_log_no_one_understands_is_known_by_when_its_batches_were_planned(
    spark, ground, monkeypatch
):
    """Positions of the source are those that are expected in all of these.

    First the batch is repeated, and the checkpoint goes on, which is no accident. Then the checkpoint comes back from
    before the last batch, which Spark plans once more, with more files: formerly these were skipped. Then it goes on
    behind that batch of its own: formerly the rows of the first file after the copy would have come a second time.
    """
    monkeypatch.setattr(file_log, "of_batch", lambda read, folder, start, end: ("", None))
    ground.add_files(0, 1)
    job = ground.job(per_batch=ALL_IN_ONE)
    assert run_here(spark, job).code == 0
    forget_commit(job.checkpoint, 0)
    ground.add_files(1, 1)
    outcome = run_here(spark, job)
    assert (outcome.code, len(outcome.of("BatchWritten"))) == (0, 1), outcome
    shutil.copytree(job.checkpoint, job.checkpoint + "-copy")
    ground.add_files(2, 1)
    assert run_here(spark, job).code == 0
    shutil.rmtree(job.checkpoint)
    shutil.move(job.checkpoint + "-copy", job.checkpoint)
    ground.add_files(3, 1)
    assert_refused(run_here(spark, job), "batch.backwards", ground.table, "planned at another time")
    assert_each_once(ground.table, ids_of(0, 3))
    shutil.copy(f"{job.checkpoint}/commits/1", f"{job.checkpoint}/commits/2")
    ground.add_files(4, 1)
    assert_refused(run_here(spark, job), "checkpoint.other-past", ground.table, "planned at another time")
    assert_each_once(ground.table, ids_of(0, 3))


def test_files_that_were_restored_without_their_times_are_asked_for(spark, ground):
    """This is ``cp -r`` and a lost checkpoint. Formerly 20 rows became 40 without a word."""
    ground.add_files(0, 2)
    job = with_file(ground, per_batch=ALL_IN_ONE)
    assert run_here(spark, job).code == 0
    shutil.rmtree(job.checkpoint)
    restored = shutil.copytree(ground.source, ground.root / "restored", copy_function=shutil.copyfile)
    shutil.rmtree(ground.source)
    shutil.move(restored, ground.source)
    ground.add_files(2, 1)
    outcome = run_here(spark, job)
    assert_refused(outcome, "files.other-times", ground.table, "2 of 3 files", "cp -p", "Nothing was written")
    assert run_here(spark, job.but(options={"accept_as_seen": accept_token(outcome)})).code == 0
    assert_each_once(ground.table, ids_of(0, 3))


def test_files_of_which_a_part_was_moved_are_asked_for(spark, ground):
    """One of two files went to another folder that the query reads, and the checkpoint is lost.
    Formerly its rows came a second time without a word."""
    ground.add_files(0, 2)
    moved = ground.root / "in-moved"
    moved.mkdir()
    job = with_file(ground, per_batch=ALL_IN_ONE, source={"kind": "files", "dir": str(ground.root / "in*")})
    assert run_here(spark, job).code == 0
    shutil.rmtree(job.checkpoint)
    (ground.source / "00001.json").rename(moved / "00001.json")
    ground.add_files(2, 1)
    before = content(ground.table)
    outcome = run_here(spark, job)
    assert_refused(outcome, "files.moved", ground.table, "1 of 3 files", "in-moved/00001.json", "Nothing was written")
    assert content(ground.table) == before
    assert run_here(spark, job.but(options={"accept_as_seen": accept_token(outcome)})).code == 0
    assert_each_once(ground.table, ids_of(0, 3))


def _through_spark_s_file_sink(spark, ground, number: int) -> None:
    """Add one more file to the folder by a query of its own, which keeps a log of its files and their times there."""
    raw = ground.root / "raw"
    raw.mkdir(exist_ok=True)
    (raw / f"{number}.json").write_text("".join(json.dumps({"id": i, "name": "x"}) + "\n" for i in ids_of(number, 1)))
    rows = spark.readStream.schema("id BIGINT, name STRING").json(str(raw)).coalesce(1)
    writer = rows.writeStream.format("json").option("checkpointLocation", str(ground.root / "raw-checkpoint"))
    writer.trigger(availableNow=True).start(str(ground.source)).awaitTermination()


@pytest.mark.in_turn("folders without times", 1)
@follows("files.not-as-planned", "files.overlap")
@pytest.mark.parametrize("way", ["times", "accept_as_same", "gone"])
def test_a_folder_of_spark_s_file_sink_whose_files_have_lost_their_times(spark, ground, way):
    """Spark plans them with the times of the folder's log, even for a new checkpoint. Formerly one error led to
    ``files.overlap``, and that led back to it."""
    _through_spark_s_file_sink(spark, ground, 0)
    job = ground.job(per_batch=ALL_IN_ONE)
    assert run_here(spark, job).code == 0
    _through_spark_s_file_sink(spark, ground, 1)
    shutil.rmtree(job.checkpoint)
    logged = json.loads((ground.source / "_spark_metadata" / "1").read_text().splitlines()[1])
    for path in ground.source.glob("*.json"):
        os.utime(path)
    new = ground.source / Path(logged["path"]).name
    if way == "gone":
        new.unlink()
    said = Advice(run_here(spark, job))
    job = with_file(ground, per_batch=ALL_IN_ONE).but(options={"accept_as_same": said.option("accept_as_same")})
    outcome = run_here(spark, job)
    said = Advice(outcome).says("_spark_metadata", new.name)
    assert_refused(outcome, "files.not-as-planned", ground.table, "Nothing was written")
    if way == "times":
        said.says("Bring the files back as they were, with their times")
        os.utime(new, ns=(logged["modificationTime"] * 1_000_000,) * 2)
    elif way == "accept_as_same":
        os.utime(new, (1_700_000_000, 1_700_000_000))
        outcome = run_here(spark, job.but(options={"accept_as_same": said.option("accept_as_same")}))
        assert outcome.kind == "files.not-as-planned", "it was said of the file as it was"
        said = Advice(outcome)
    if way != "times":
        job = job.but(options={"accept_as_same": said.option("accept_as_same")})
    assert run_here(spark, job).code == 0
    _through_spark_s_file_sink(spark, ground, 2)
    assert run_here(spark, job).code == 0
    assert_each_once(ground.table, ids_of(0, 3) - (ids_of(1, 1) if way == "gone" else set()))


def test_without_the_column_the_error_says_how_to_get_it(spark, ground):
    """One batch holds old and new files, and nothing is written.
    Followed to the letter, the advice leads to each row once."""
    ground.add_files(0, 3)
    job = ground.job()
    assert run_here(spark, job).code == 0
    shutil.rmtree(job.checkpoint)
    ground.add_files(3, 2)
    whole = job.but(per_batch=ALL_IN_ONE)
    before = content(ground.table)
    outcome = run_here(spark, whole)
    assert_refused(outcome, "files.overlap", ground.table, "_metadata.file_path", "file_column", "Nothing was written")
    assert content(ground.table) == before
    word = re.search(r"accept_as_same='([0-9a-f]{12})'", outcome.message)[1]
    assert word == accept_token(outcome)
    mended = with_file(ground, per_batch=ALL_IN_ONE)
    assert run_here(spark, mended).kind == "query.other", "the column makes another query of it"
    assert run_here(spark, mended.but(options={"accept_as_same": word})).code == 0
    assert_each_once(ground.table, ids_of(0, 5))
    ground.add_files(5, 1)
    assert run_here(spark, mended).code == 0
    assert_each_once(ground.table, ids_of(0, 6))


@pytest.mark.in_turn("columns that are not the file", 1)
@follows("files.column")
@pytest.mark.parametrize(
    "way",
    [{}, {"driver_max_rows": 0, "large_batches": "tasks"}, {"driver_max_rows": 0, "large_batches": "spark"}],
    ids=["driver", "tasks", "spark"],
)
def test_a_column_that_is_not_the_file_loses_nothing_in_any_way_of_writing(spark, ground, way):
    """It is trusted only where it names files of the batch, row by row. Once it is mended each row is there once."""
    ground.add_files(0, 2)
    job = with_file(ground, per_batch=ALL_IN_ONE).but(options=way)
    wrong = job.but(column="if(id = 23, name, _metadata.file_path)")
    assert run_here(spark, wrong).code == 0
    shutil.rmtree(job.checkpoint)
    ground.add_files(2, 2)
    before = content(ground.table)
    outcome = run_here(spark, wrong)
    assert_refused(outcome, "files.column", ground.table, "extra", "_metadata.file_path", "Nothing was written")
    assert content(ground.table) == before
    said = Advice(outcome).says("name that column", "then restart the query")
    assert run_here(spark, job.but(options={"accept_as_same": said.option("accept_as_same")})).code == 0
    assert_each_once(ground.table, ids_of(0, 4))


def test_a_column_that_is_not_there_is_refused_at_the_first_batch(spark, ground):
    """It is not refused only after the accident."""
    ground.add_files(0, 1)
    for job in (
        ground.job(options={"file_column": "extra"}),
        ground.job(column="id", options={"file_column": "extra"}),
    ):
        outcome = run_here(spark, job)
        assert_refused(outcome, "option.file-column", ground.table, "extra", "_metadata.file_path")
    assert not Path(ground.table, "snapshot").exists()


def test_a_batch_over_numbers_that_were_left_behind_and_over_compaction(spark, ground):
    """There are more than ten batches, so that Spark compacts its log; and the driver is killed between its two logs,
    so that one batch has two numbers."""
    ground.add_files(0, 11)
    job = with_file(ground)
    assert run_here(spark, job).code == 0
    for folder in ("offsets", "commits"):
        for name in ("10", ".10.crc"):
            Path(job.checkpoint, folder, name).unlink()
    shutil.copytree(job.checkpoint, job.checkpoint + "-copy")
    assert Path(job.checkpoint, "sources/0/9.compact").exists() and Path(job.checkpoint, "sources/0/10").exists()
    ground.add_files(11, 1)
    assert run_here(spark, job).code == 0
    assert_each_once(ground.table, ids_of(0, 12))
    shutil.rmtree(job.checkpoint)
    assert run_here(spark, job.but(per_batch=5)).code == 0
    assert_each_once(ground.table, ids_of(0, 12))
