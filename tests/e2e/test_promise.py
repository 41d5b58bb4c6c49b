"""On real Spark:
what is known before the record is an error before it, and what can never be published is settled by one command."""

import json
import re
import signal
import threading
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

import streamsink
from streamsink import events
from streamsink.errors import StreamsinkError
from tests.e2e.harness import assert_each_once, ids_of, run_driver, run_here

pytestmark = pytest.mark.spark

WAYS = {"driver": {}, "tasks": {"driver_max_rows": 0, "large_batches": "tasks"}}


@pytest.mark.in_turn("partitions without a folder", 1)
@pytest.mark.parametrize("way", WAYS)
def test_a_partition_value_that_has_no_folder(spark, tmp_path, way):
    """It is refused by column, without the value, and nothing is recorded.
    With dead letters it is a dead letter; filtered, the rest is written."""
    path, long = str(tmp_path / "shop.db" / "orders"), "secret" * 60
    rows = spark.range(10).selectExpr("id", f"CASE WHEN id = 3 THEN '{long}' ELSE 'x' END AS part")
    options = {"partition_by": ["part"], **WAYS[way]}
    with pytest.raises(Exception, match="column 'part'.*255") as refused:
        streamsink.write(rows, path, "r1", **options)
    said = (
        str(refused.value)
        if isinstance(refused.value, StreamsinkError)
        else str(refused.value).partition("Misuse:")[2].split("\n")[0]
    )
    assert "secret" not in said
    assert not list(Path(path).glob("streamsink/*/record-*"))
    assert streamsink.write(rows.where("length(part) < 100"), path, "r1", **options) == 9
    assert sorted(streamsink.read_arrow(path).column("id").to_pylist()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.in_turn("accidents of killed drivers", 1)
def test_files_of_a_batch_that_spark_has_committed_are_gone(spark, ground):
    """The checkpoint of a file source goes back as the command says:
    Spark plans those files again, and each row is there once."""
    ground.add_files(0, 4)
    job = ground.job(options={"publish_every_batches": 9})
    killed = run_driver(ground, job, fault="precommit.saved@3:kill")
    assert killed.code == -signal.SIGKILL
    record = Path(ground.table, "streamsink", "streamsink", "record-2.json")
    for file in json.loads(record.read_text().split("\n")[1])["files"]:
        Path(ground.table, file["staged"]).unlink()
    refused = run_here(spark, job)
    assert (
        refused.kind == "pending.files-gone"
        and f"streamsink.give_up({ground.table!r}, application='streamsink')" in refused.message
    )
    assert not streamsink.verify(ground.table).ok
    done = streamsink.give_up(ground.table, application="streamsink")
    assert done.records == (2, 3)
    assert run_here(spark, job).kind == "batch.gap"
    assert_each_once(ground.table, ids_of(0, 1))
    first = int(re.search(r"numbered (\d+) and higher", str(done))[1])
    for log in ("offsets", "commits"):
        for file in Path(ground.checkpoint, log).iterdir():
            number = re.fullmatch(r"\.?(\d+)(\.crc)?", file.name)
            if number and int(number[1]) >= first:
                file.unlink()
    ground.add_files(4, 1)
    assert run_here(spark, job).code == 0
    assert_each_once(ground.table, ids_of(0, 5))


def test_a_query_of_this_process_that_has_failed_leaves_its_application_to_give_up_and_retire(spark, ground):
    """This happens in a notebook, without streamsink.run.
    Formerly the hold of the failed query refused the command that its error had named."""
    ground.add_files(0, 3)
    sink = streamsink.to_table(ground.table, lambda event: None, flush=False)

    def run(function) -> None:
        rows = (
            spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(str(ground.source))
        )
        query = (
            rows.writeStream.foreachBatch(function)
            .option("checkpointLocation", ground.checkpoint)
            .trigger(availableNow=True)
        )
        query.start().awaitTermination()

    def rolled_back(batch, number) -> None:
        if number == 2:
            Path(ground.table, "snapshot", "snapshot-2").unlink()
            Path(ground.table, "snapshot", "LATEST").unlink(missing_ok=True)
        sink(batch, number)

    with pytest.raises(StreamingQueryException, match="streamsink.give_up"):
        run(rolled_back)
    assert streamsink.give_up(ground.table, application="streamsink").records == (2,)
    assert_each_once(ground.table, ids_of(0, 1))
    for log in ("offsets", "commits"):
        for file in Path(ground.checkpoint, log).iterdir():
            if file.name.strip(".").partition(".")[0] in ("1", "2"):
                file.unlink()
    run(sink)
    assert_each_once(ground.table, ids_of(0, 3))
    assert streamsink.retire(ground.table, "streamsink")


@pytest.mark.parametrize("second_id", ["r2", "r1"])
def test_a_bounded_run_is_not_disturbed_by_another_one_of_this_process(spark, tmp_path, second_id):
    """Formerly the later call took the live one for ended:
    it swept its files, and each of the two could end the other."""
    path, caught = str(tmp_path / "shop.db" / "orders"), []
    streamsink.write(spark.range(3), path, "r0")

    class Second:
        """Called when the first run has written its files, before its record."""

        def __call__(self, event) -> None:
            if isinstance(event, events.BatchWritten):
                thread = threading.Thread(target=self._write)
                thread.start()
                thread.join()

        def _write(self) -> None:
            try:
                streamsink.write(spark.range(100, 103), path, second_id)
            except StreamsinkError as refused:
                caught.append(refused)

    assert streamsink.write(spark.range(10, 13), path, "r1", listener=Second()) == 3
    (refused,) = caught
    assert refused.kind == "application.in-use" and "of this process" in str(refused)
    assert streamsink.write(spark.range(100, 103), path, "r2") == 3
    assert sorted(streamsink.read_arrow(path).column("id").to_pylist()) == [0, 1, 2, 10, 11, 12, 100, 101, 102]
