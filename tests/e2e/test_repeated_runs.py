"""A bounded run that comes again over files that are others by then:
the same rows are skipped, and other ones are asked about."""

import datetime
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import streamsink
from streamsink.errors import Misuse
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.spark.gateway.plan import described_job
from tests.advice.following import advice, follows
from tests.e2e.harness import content, ids_in

pytestmark = pytest.mark.spark


def _rates(spark, ground, first: int, *, folder: str = "rates", files: int = 2) -> None:
    """Ten rates, as their publisher writes them anew each night: always as many, in files with new names."""
    rates = spark.range(first, first + 10, 1, files).selectExpr(
        "id",
        "id * 1.5D AS rate",
        "map('a', id, 'b', null) AS more",
        "array(struct(id AS n)) AS parts",
        "date '2026-11-21' AS day",
    )
    rates.write.mode("overwrite").parquet(str(ground.source / folder))


def _load(spark, ground, run: str = "nightly", folder: str = "rates", **options) -> int:
    """Load them as a nightly job does: what it adds to each row is another value whenever it is repeated."""
    read = spark.read.parquet(str(ground.source / folder)).where("id >= 0")
    rows = read.selectExpr(
        "id",
        "CAST(rate AS FLOAT) AS rate",
        "more",
        "parts",
        "day",
        "current_timestamp() AS loaded_at",
        "uuid() AS load_id",
        "concat(uuid(), '/', id) AS row_id",
        f"'{datetime.datetime.now()}' AS at",
    )
    return streamsink.write(rows, ground.table, run, **options)


@pytest.mark.in_turn("runs whose files were replaced", 1)
@follows("run.other")
@pytest.mark.parametrize("way", ["run_id", "accept_as_seen"])
def test_files_that_were_replaced_by_as_many_other_rows_are_no_repeated_run(spark, ground, way):
    """The job's run id has no day in it. Formerly each night after the first one was skipped in silence."""
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


@pytest.mark.in_turn("runs whose files were replaced", 1)
@pytest.mark.parametrize("large_batches", ["spark", "tasks"])
def test_a_run_whose_files_were_made_anew_of_the_same_rows_is_a_repeated_one(spark, ground, large_batches):
    """This happens when all of a day's jobs are repeated after the last one was killed.
    The number of files, and their order, make no difference."""
    options = {"large_batches": large_batches, "partition_by": ("day",), "target_file_bytes": 1_000_000}
    _rates(spark, ground, 0)
    assert _load(spark, ground, **options) == 10
    before = content(ground.table)
    _rates(spark, ground, 0, files=5)
    assert _load(spark, ground, **options) == 0
    assert content(ground.table) == before


@pytest.mark.in_turn("what of a run is compared", 2)
def test_a_run_of_one_day_is_repeated_when_its_folder_has_grown(spark, ground):
    """The same files are there, among others;
    this holds even when the journal does not remember the run's record any more."""
    options = {"journal_retain": 2}
    _rates(spark, ground, 0, folder="in/day=1")
    assert _load(spark, ground, "one", folder="in", **options) == 10
    _rates(spark, ground, -100, folder="in/day=2")  # The run's condition leaves these out.
    for run in ("one", "two", "three", "four", "one"):
        assert _load(spark, ground, run, folder="in", **options) == (0 if run == "one" else 10)


@pytest.mark.in_turn("runs whose files were replaced", 1)
@pytest.mark.parametrize("is_gone", ["record", "files"])
def test_what_cannot_be_compared_any_more_is_asked_for_when_all_files_are_others(spark, ground, is_gone):
    """The record was pruned from the journal; or others compacted its files, and snapshots have expired."""
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


@pytest.mark.in_turn("what of a run is compared", 2)
def test_values_that_a_python_function_makes_are_compared(spark, ground):
    """Equal values prove that the rows are the same; other ones are asked about."""

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


# -- what is compared --------------------------------------------------------------------------------------------------

_A, _B = "id, id * 1.5D AS price, CAST(id % 3 AS INT) AS k", "id, id * 2.5D AS price, CAST(id % 3 AS INT) AS k"


def _plain(rows):
    return rows


# By what: (the input, as many other rows, what the job does with it).
SHAPES = {
    "a constant in an expression": (
        _A,
        _B,
        lambda rows: rows.withColumn("rate", F.lit(1.1)).selectExpr("id", "price * rate AS eur", "rate"),
    ),
    "a constant that is added up": (
        _A,
        "id, 0D AS price, CAST(greatest(id - 2, 0) AS INT) AS k",
        lambda rows: rows.withColumn("one", F.lit(1)).groupBy("k").agg(F.sum("one").alias("n")),
    ),
    "a constant in one part of a union": (
        _A,
        _B,
        lambda rows: rows.selectExpr("id", "0D AS price").where("id < 0").union(rows.select("id", "price")),
    ),
    "a lookup that is no file": (
        _A,
        _B,
        lambda rows: rows.join(
            rows.sparkSession.createDataFrame([(0, "x"), (1, "y"), (2, "z")], "k INT, name STRING"), "k"
        ),
    ),
    "sums": (
        _A.replace("id * 1.5D", "1D / (id + 1)"),
        _B,
        lambda rows: rows.groupBy("k").agg(F.sum("price"), F.avg("price").alias("mean")),
    ),
    "the path of a file": (
        _A,
        _B,
        lambda rows: rows.selectExpr("*", "_metadata.file_path AS path", "_metadata.file_modification_time AS at"),
    ),
    "a null that moves to another column": (
        "id, id AS debit, CAST(NULL AS BIGINT) AS credit",
        "id, CAST(NULL AS BIGINT) AS debit, id AS credit",
        _plain,
    ),
    "a null that moves to another field": (
        "id, named_struct('a', id, 'b', CAST(NULL AS BIGINT)) AS s",
        "id, named_struct('a', CAST(NULL AS BIGINT), 'b', id) AS s",
        _plain,
    ),
    "limits of arrays": ("id, array(array(1), array(2, 3)) AS a", "id, array(array(1, 2), array(3)) AS a", _plain),
    "maps": (
        (
            "id, map(named_struct('x', id), timestamp'2020-01-01 00:00:00.000001', named_struct('x', -id - 1), NULL) "
            "AS m, map(CAST('a' AS BINARY), 1) AS b"
        ),
        (
            "id, map(named_struct('x', id), timestamp'2020-01-01 00:00:00.000002', named_struct('x', -id - 1), NULL) "
            "AS m, map(CAST('a' AS BINARY), 1) AS b"
        ),
        _plain,
    ),
    "a function that leaves all out": (
        _A,
        _B,
        lambda rows: rows.where(F.udf(lambda price: price * 1.0 > 6.0, "boolean")("price")),
    ),
}


def _make(spark, folder, columns: str, parts: int) -> None:
    spark.range(0, 5, 1, parts).selectExpr(*_split(columns)).write.mode("overwrite").parquet(str(folder))


def _split(columns: str) -> list[str]:
    """Split at commas outside of brackets."""
    depth, found = 0, [""]
    for letter in columns:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


@pytest.mark.in_turn("rows in other files", 2)
@pytest.mark.parametrize("by", SHAPES)
def test_the_same_rows_in_other_files_are_skipped_and_other_rows_are_not(spark, ground, by):
    """When what a run reads was first compared,
    each of these was skipped in silence, or stopped although nothing had changed."""
    same, other, job = SHAPES[by]

    def load() -> int:
        return streamsink.write(job(spark.read.parquet(str(ground.source / "in"))), ground.table, "nightly")

    _make(spark, ground.source / "in", same, 2)
    first = load()
    assert bool(first) == (by != "a function that leaves all out") and load() == 0
    _make(spark, ground.source / "in", same, 3)
    assert load() == 0
    _make(spark, ground.source / "in", other, 2)
    with pytest.raises(Misuse) as refused:
        load()
    assert refused.value.kind == "run.other"


@pytest.mark.in_turn("what of a run is compared", 2)
def test_what_only_a_column_with_the_time_shows_is_asked_for(spark, ground):
    """It is another value in each attempt, so it is left out.
    It does not matter where other columns show what was read."""
    for number, columns in enumerate((["id", "price"], ["id"])):
        for prices, expected in ((_A, 5), (_A, 0 if len(columns) == 2 else None), (_B, None)):
            _make(spark, ground.source / "in", prices, 2)
            rows = spark.read.parquet(str(ground.source / "in"))
            rows = rows.selectExpr(*columns, "to_json(struct(price, current_timestamp() AS at)) AS payload")
            if expected is None:
                with pytest.raises(Misuse, match="the files that it reads"):
                    streamsink.write(rows, f"{ground.table}{number}", "nightly")
            else:
                assert streamsink.write(rows, f"{ground.table}{number}", "nightly") == expected


@pytest.mark.in_turn("what of a run is compared", 2)
def test_fields_are_compared_by_their_names(spark, ground):
    """They are compared as they are written: the table has them in another order, and has more of them."""
    _make(spark, ground.source / "first", "id, array(named_struct('a', id, 'b', 'x', 'c', 1)) AS parts", 1)
    streamsink.write(spark.read.parquet(str(ground.source / "first")), ground.table, "first")
    for prefix, expected in (("x", 5), ("x", 0), ("y", None)):
        _make(spark, ground.source / "in", f"id, array(named_struct('b', concat('{prefix}', id), 'a', id)) AS parts", 2)
        rows = spark.read.parquet(str(ground.source / "in"))
        if expected is None:
            with pytest.raises(Misuse, match="the rows in them"):
                streamsink.write(rows, ground.table, "nightly")
        else:
            assert streamsink.write(rows, ground.table, "nightly") == expected


@pytest.mark.in_turn("what of a run is compared", 2)
def test_a_table_of_a_catalog_is_files_as_well(spark, ground):
    """Spark lists the files of its partitions when it is read."""
    _make(spark, ground.source / "in", _A, 2)
    name = f"rates_{ground.root.name}".replace("-", "_")
    location = str(ground.root / "catalog")
    for columns, expected in ((_A, 5), (_A, 0), (_B, None)):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.range(5).selectExpr(*_split(columns)).write.mode("overwrite").partitionBy("k").option(
            "path", location
        ).saveAsTable(name)
        if expected is None:
            with pytest.raises(Misuse, match="the rows in them"):
                streamsink.write(spark.table(name), ground.table, "nightly")
        else:
            assert streamsink.write(spark.table(name), ground.table, "nightly") == expected
    spark.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize("condition, files", [("true", 3), ("k = 1", 1), ("k IN (0, 2) AND id > 0", 2)])
def test_of_a_table_of_a_catalog_only_partitions_that_are_read_are_listed(spark, ground, condition, files):
    """A table has thousands of them."""
    name = f"parts_{files}"
    rows = spark.range(0, 5, 1, 1).selectExpr(*_split(_A))
    rows.write.mode("overwrite").partitionBy("k").option("path", str(ground.root / "catalog")).saveAsTable(name)
    batch = described_job(Batch(END_OF_INPUT, "nightly", "nightly"), spark.table(name).where(condition))
    spark.sql(f"DROP TABLE {name}")
    assert len(batch.inputs) == files
