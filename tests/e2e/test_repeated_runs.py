"""A bounded run that comes again over files that are others by then: the same rows are skipped, other ones are asked for."""

import datetime
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import streamsink
from streamsink.errors import Misuse
from tests.advice.following import advice, follows
from tests.e2e.harness import content, ids_in

pytestmark = pytest.mark.spark


def _rates(spark, ground, first: int, *, folder: str = "rates", files: int = 2) -> None:
    """Ten rates, as their publisher writes them anew each night: always as many, in files of new names."""
    rates = spark.range(first, first + 10, 1, files).selectExpr(
        "id", "id * 1.5D AS rate", "map('a', id, 'b', null) AS more", "array(struct(id AS n)) AS parts", "date '2026-11-21' AS day",
    )
    rates.write.mode("overwrite").parquet(str(ground.source / folder))


def _load(spark, ground, run: str = "nightly", folder: str = "rates", **options) -> int:
    """As a nightly job does: what it adds to each row is another value whenever it is repeated."""
    read = spark.read.parquet(str(ground.source / folder)).where("id >= 0")
    rows = read.selectExpr(
        "id", "CAST(rate AS FLOAT) AS rate", "more", "parts", "day", "current_timestamp() AS loaded_at", "uuid() AS load_id",
        "concat(uuid(), '/', id) AS row_id", f"'{datetime.datetime.now()}' AS at",
    )
    return streamsink.write(rows, ground.table, run, **options)


@follows("run.other")
@pytest.mark.parametrize("way", ["run_id", "accept_as_seen"])
def test_files_that_were_replaced_by_as_many_other_rows_are_no_repeated_run(spark, ground, way):
    """A job whose run id has no day in it: each night after the first one was skipped in silence."""
    _rates(spark, ground, 0)
    assert _load(spark, ground) == 10
    _rates(spark, ground, 100)
    with pytest.raises(Misuse) as refused:
        _load(spark, ground)
    said = advice(refused.value, "run.other").says("files", "rows", "Nothing was written")
    assert sorted(ids_in(ground.table)) == list(range(10))
    if way == "run_id":
        said.says("give them a run id of their own")
        assert _load(spark, ground, "2026-11-22") == 10
        assert sorted(ids_in(ground.table)) == [*range(10), *range(100, 110)]
        return
    word = said.option("accept_as_seen")
    assert _load(spark, ground, accept_as_seen=word) == 0
    _rates(spark, ground, 200)
    with pytest.raises(Misuse, match="run.other|made otherwise"):
        _load(spark, ground, accept_as_seen=word)
    assert sorted(ids_in(ground.table)) == list(range(10))


@pytest.mark.parametrize("large_batches", ["spark", "tasks"])
def test_a_run_whose_files_were_made_anew_of_the_same_rows_is_a_repeated_one(spark, ground, large_batches):
    """As when all of a day's jobs are repeated after the last one was killed. The number of files, and their order, are no difference."""
    options = {"large_batches": large_batches, "partition_by": ("day",), "target_file_bytes": 1_000_000}
    _rates(spark, ground, 0)
    assert _load(spark, ground, **options) == 10
    before = content(ground.table)
    _rates(spark, ground, 0, files=5)
    assert _load(spark, ground, **options) == 0
    assert content(ground.table) == before


def test_a_run_of_one_day_is_repeated_when_its_folder_has_grown(spark, ground):
    """The same files are there, among others; also when the journal does not remember the run's record any more."""
    options = {"journal_retain": 2}
    _rates(spark, ground, 0, folder="in/day=1")
    assert _load(spark, ground, "one", folder="in", **options) == 10
    _rates(spark, ground, -100, folder="in/day=2")  # the run's condition leaves these out
    for run in ("one", "two", "three", "four", "one"):
        assert _load(spark, ground, run, folder="in", **options) == (0 if run == "one" else 10)


@pytest.mark.parametrize("is_gone", ["record", "files"])
def test_what_cannot_be_compared_any_more_is_asked_for_when_all_files_are_others(spark, ground, is_gone):
    """Pruned from the journal; or compacted away by others, with snapshots that have expired."""
    _rates(spark, ground, 0)
    assert _load(spark, ground, journal_retain=2) == 10
    if is_gone == "record":
        for run in ("two", "three", "four"):
            assert _load(spark, ground, run, journal_retain=2) == 10
    else:
        written = list(Path(ground.table).glob("**/data-*"))
        assert _load(spark, ground, "repair", application="repair", mode="overwrite", overwrite_partition={}) == 10
        for file in written:
            file.unlink()
    _rates(spark, ground, 0)
    with pytest.raises(Misuse, match="cannot be told") as refused:
        _load(spark, ground, journal_retain=2)
    word = advice(refused.value, "run.other").option("accept_as_seen")
    assert _load(spark, ground, journal_retain=2, accept_as_seen=word) == 0


def test_values_that_a_python_function_makes_are_compared(spark, ground):
    """Equal ones prove that the rows are the same; other ones are asked for."""
    def load(factor: int) -> int:
        times = F.udf(lambda value: value * factor, "double")
        rows = spark.read.parquet(str(ground.source / "rates")).select("id", times("rate").alias("rate"))
        return streamsink.write(rows, ground.table, "nightly")

    _rates(spark, ground, 0)
    assert load(2) == 10
    _rates(spark, ground, 0)
    assert load(2) == 0
    with pytest.raises(Misuse, match="files"):
        load(3)
