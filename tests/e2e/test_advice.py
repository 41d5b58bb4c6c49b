"""Advice of errors that only a real Spark query meets: what the message says is done, and each row is there once."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions

import streamsink
from streamsink.errors import StreamsinkError
from streamsink.events import BatchWritten
from streamsink.spark.gateway.running import encoding_of_locale
from tests.advice.following import Advice, advice, follows
from tests.e2e.harness import assert_each_once, ids_of

pytestmark = pytest.mark.spark
EVEN, ODD = "id % 2 = 0", "id % 2 = 1"


def silent(event) -> None:
    """A session without logging."""


def run(spark, ground, function, checkpoint=True, columns=("id", "name"), files=1):
    """Start the query once over all files of the source, with so many in each batch.
    Returns the error that ended it, or None."""
    stream = spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", files)
    rows = stream.json(str(ground.source)).selectExpr(*columns)
    errors = []

    def each(batch, number):
        try:
            function(batch, number)
        except StreamsinkError as failed:
            errors.append(failed)
            raise

    writer = rows.writeStream.foreachBatch(each).trigger(availableNow=True)
    if checkpoint:
        writer = writer.option("checkpointLocation", ground.checkpoint)
    with contextlib.suppress(StreamingQueryException):
        writer.start().awaitTermination()
    return errors[0] if errors else None


def told(error, kind: str, table: str) -> Advice:
    said = advice(error, kind)
    assert table in said.message
    return said


@follows("batch.wrong-id")
def test_an_id_that_is_not_spark_s(spark, ground):
    sink = streamsink.to_table(ground.table, silent, flush=False)
    ground.add_files(0, 2)
    said = told(run(spark, ground, lambda df, batch_id: sink(df, 0)), "batch.wrong-id", ground.table)
    function = eval(said.find(r"foreachBatch\((lambda df, batch_id: sink\(df, batch_id\))\)"), {"sink": sink})
    assert run(spark, ground, function) is None
    assert_each_once(ground.table, ids_of(0, 2))


@follows("batch.not-streaming")
def test_a_call_from_another_thread(spark, ground):
    sink = streamsink.to_table(ground.table, silent, flush=False)
    ground.add_files(0, 2)

    def elsewhere(batch, number):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(sink, batch, number).result()

    said = told(run(spark, ground, elsewhere), "batch.not-streaming", ground.table)
    said.says("or call it there in the batch function's own thread", "for a batch DataFrame use streamsink.write(...)")
    assert run(spark, ground, sink) is None
    assert streamsink.write(spark.range(100, 103).selectExpr("id", "'x' AS name"), ground.table, "once") == 3
    assert_each_once(ground.table, ids_of(0, 2) | {100, 101, 102})


@follows("application.two-sinks")
def test_two_sinks_of_one_name_with_other_options(spark, ground):
    """The first sink's part is published: it keeps its name, and the other one gets a name of its own. One sink for all
    rows takes the batches after that."""
    ground.add_files(0, 2)

    def both(*names):
        def each(df, batch_id):
            for name, part, rows in zip(names, (EVEN, ODD), (100, 200)):
                streamsink.to_table(ground.table, silent, flush=False, application=name, driver_max_rows=rows)(
                    df.where(part), batch_id
                )

        return each

    streamsink.create_table(ground.table, "id BIGINT, name STRING")
    said = told(run(spark, ground, both("same", "same")), "application.two-sinks", ground.table)
    said.says("Leave the first sink as it is, and give each other one a name of its own (application='...')")
    assert run(spark, ground, both("same", "other")) is None
    ground.add_files(2, 1)
    said.says("one sink object for all rows")
    assert run(spark, ground, streamsink.to_table(ground.table, silent, flush=False, application="same")) is None
    assert_each_once(ground.table, ids_of(0, 3))


@pytest.mark.in_turn("new columns that are never null", 1)
@follows("schema.evolution")
@pytest.mark.parametrize(
    "way",
    [{}, {"driver_max_rows": 0, "large_batches": "tasks"}, {"driver_max_rows": 0, "large_batches": "spark"}],
    ids=["driver", "tasks", "spark"],
)
def test_a_new_column_that_is_never_null(spark, ground, way):
    """For a constant, a count or an offset Spark says NOT NULL.
    What the error says makes it nullable for every way of writing."""
    ground.add_files(0, 2)
    streamsink.create_table(ground.table, "id BIGINT, name STRING, deep ROW<one BIGINT>")
    columns, made = ("id", "name", "'x' AS more", "map('k', id) AS pairs", "struct(id AS one, 2 AS two) AS deep"), {}

    def error(**options):
        sink = streamsink.to_table(ground.table, silent, flush=False, **options)
        return run(spark, ground, lambda df, batch_id: sink(df.withColumns(made), batch_id), columns=columns)

    said = told(error(), "schema.evolution", ground.table).says("column 'deep.two'", "CAST(`deep` AS ...)")
    made["deep"] = functions.expr("CAST(`deep` AS STRUCT<one: BIGINT, two: INT>)")
    said = told(error(add_columns=said.option("add_columns")), "schema.evolution", ground.table).says("'more', 'pairs'")
    like = said.find(r"such as (if\(`more` IS NULL, NULL, `more`\))")
    made.update({name: functions.expr(like.replace("more", name)) for name in ("more", "pairs")})
    assert error(add_columns=said.option("add_columns"), **way) is None
    assert_each_once(ground.table, ids_of(0, 2))
    rows = streamsink.read_arrow(ground.table)
    assert set(rows.column("more").to_pylist()) == {"x"} and {
        row["two"] for row in rows.column("deep").to_pylist()
    } == {2}


@pytest.mark.in_turn("files of a planned batch", 2)
@follows("files.not-as-planned")
@pytest.mark.parametrize(
    "accident", ["the folder is not mounted", "a file is away", "a file is gone", "a file was written again"]
)
def test_files_that_are_gone_when_a_planned_batch_is_read(spark, ground, accident):
    """Spark leaves them out without a word.
    Formerly they were recorded as read, and their rows were lost, under a new checkpoint too."""
    sink, planned, away = (
        streamsink.to_table(ground.table, silent, flush=False, file_column="file"),
        ground.source / "00001.json",
        ground.root / "away",
    )
    read = ("id", "name", "_metadata.file_path AS file")

    def dies(df, batch_id):
        if batch_id == 1:
            raise StreamsinkError("the driver dies", kind="test")
        sink(df, batch_id)

    ground.add_files(0, 3)
    assert run(spark, ground, dies, columns=read) is not None
    is_mount = accident == "the folder is not mounted"
    (ground.source if is_mount else planned).rename(away)
    if is_mount:
        ground.source.mkdir()
    if accident == "a file was written again":
        planned.write_text(away.read_text().replace('"n', '"again'))
    sink = streamsink.to_table(ground.table, silent, flush=False, file_column="file")
    said = told(run(spark, ground, sink, columns=read), "files.not-as-planned", ground.table)
    assert "1 were written again" in said.message or "1 are gone" in said.message
    if accident in ("the folder is not mounted", "a file is away"):
        said.says("Bring the files back as they were, with their times")
        if is_mount:
            ground.source.rmdir()
        away.rename(ground.source if is_mount else planned)
        assert run(spark, ground, sink, columns=read) is None
    else:
        said.says("start a new checkpoint")
        Path(ground.checkpoint).rename(ground.root / "first-checkpoint")
        assert run(spark, ground, sink, columns=read) is None
    assert_each_once(ground.table, ids_of(0, 3) - (ids_of(1, 1) if accident == "a file is gone" else set()))


@pytest.mark.in_turn("names that are patterns", 1)
@follows("files.read-twice")
@pytest.mark.parametrize("way_on", ["name", "one file at a time"])
def test_files_whose_names_spark_takes_for_patterns(spark, ground, way_on):
    """With one such name in a batch Spark's file source reads the batch's other files twice."""
    ground.add_files(0, 4)
    odd = ground.source / "{00003}.json"
    (ground.source / "00003.json").rename(odd)
    sink = streamsink.to_table(ground.table, silent, flush=False)
    said = told(run(spark, ground, sink, files=10), "files.read-twice", ground.table)
    Path(ground.checkpoint).rename(ground.root / "first-checkpoint")
    files = 10
    if way_on == "name":
        said.says("Rename it, and start a new checkpoint")
        odd.rename(ground.source / "3.json")
    else:
        files = int(said.find(r"a new checkpoint with \.option\('maxFilesPerTrigger', (\d+)\)"))
    assert run(spark, ground, sink, files=files) is None
    assert_each_once(ground.table, ids_of(0, 4))


@follows("checkpoint.missing")
def test_a_query_without_a_checkpoint(spark, ground):
    sink = streamsink.to_table(ground.table, silent, flush=False)
    ground.add_files(0, 1)
    said = told(run(spark, ground, sink, checkpoint=False), "checkpoint.missing", ground.table)
    assert said.find(r"Set \.option\('(\w+)', \.\.\.\)") == "checkpointLocation"
    assert run(spark, ground, sink) is None
    assert_each_once(ground.table, ids_of(0, 1))


@follows("option.route")
def test_a_route_that_is_no_column(spark, ground):
    ground.add_files(0, 1)
    lake = ground.table.rpartition("/")[0]

    def routed(route):
        return streamsink.to_tables(lake, route, {"*": {}}, silent, flush=False)

    said = told(run(spark, ground, routed("kind_of")), "option.route", lake)
    assert "name" in said.find(r"no column of the data \(([\w, ]+)\)").split(", ")
    assert run(spark, ground, routed("concat('t', id % 2)")) is None
    assert streamsink.read_arrow(f"{lake}/t0").num_rows + streamsink.read_arrow(f"{lake}/t1").num_rows == 10


@follows("option.file-column")
def test_a_file_column_that_the_data_does_not_have(spark, ground):
    sink = streamsink.to_table(ground.table, silent, flush=False, file_column="file")
    ground.add_files(0, 1)
    said = told(run(spark, ground, sink), "option.file-column", ground.table).says("give the name that it has there")
    column = said.find(r"Select (_metadata\.file_path) among the columns")
    assert run(spark, ground, sink, columns=("id", "name", f"{column} AS file")) is None
    assert_each_once(ground.table, ids_of(0, 1))


@follows("option.position-columns")
@pytest.mark.parametrize(
    "given, columns",
    [
        (("offset", "partition", "topic"), ("id", "name AS topic", "cast(id AS int) AS partition", "id AS offset")),
        (("topic", "partition", "offset"), ("id", "name AS topic", "id AS offset")),
    ],
    ids=["order", "missing"],
)
def test_position_columns_that_are_not_those(spark, ground, given, columns):
    ground.add_files(0, 1)
    sink = streamsink.to_table(ground.table, silent, flush=False, position_columns=given)
    said = told(run(spark, ground, sink, columns=columns), "option.position-columns", ground.table)
    named = (
        tuple(said.find(r"the columns of (topic, partition, offset)").split(", ")) if given[0] == "offset" else given
    )
    assert given[0] == "offset" or "partition" in said.find(
        r"position_columns names ([\w, ]+), which the data does not have"
    )
    right = ("id", "name AS topic", "cast(id AS int) AS partition", "id AS offset")
    sink = streamsink.to_table(ground.table, silent, flush=False, position_columns=named)
    assert run(spark, ground, sink, columns=right) is None
    assert_each_once(ground.table, ids_of(0, 1))


@follows("read.unsupported-type")
def test_a_type_that_spark_cannot_read(spark, ground):
    streamsink.create_table(ground.table, "id INT, at TIME(3)")
    with pytest.raises(StreamsinkError) as refused:
        streamsink.read(spark, ground.table)
    assert told(refused.value, "read.unsupported-type", ground.table).find(r"streamsink\.(read_arrow)") == "read_arrow"
    assert streamsink.read_arrow(ground.table).num_rows == 0


@follows("read.no-file-system")
def test_a_session_without_a_file_system_for_s3(spark, s3_server):
    """Its tables are read without Spark."""
    path = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    streamsink.create_table(path, "id BIGINT", store_options=s3_server.options)
    with pytest.raises(StreamsinkError) as refused:
        streamsink.read(spark, path, store_options=s3_server.options)
    name = told(refused.value, "read.no-file-system", path).find(r"or read the table with streamsink\.(\w+)")
    assert getattr(streamsink, name)(path, store_options=s3_server.options).num_rows == 0


@contextlib.contextmanager
def without_locale(spark) -> Iterator[None]:
    """Spark's JVM as it is without a locale, in containers and under cron."""
    properties = spark._jvm.java.lang.System
    before = properties.getProperty("sun.jnu.encoding")
    properties.setProperty("sun.jnu.encoding", "ANSI_X3.4-1968")
    encoding_of_locale.cache_clear()
    try:
        yield
    finally:
        properties.setProperty("sun.jnu.encoding", before)
        encoding_of_locale.cache_clear()


@follows("files.locale")
@pytest.mark.parametrize("way_on", ["locale", "name"])
def test_source_files_that_the_jvm_cannot_spell(spark, ground, way_on):
    """Spark leaves them out without a word."""
    ground.add_files(0, 2)
    odd = ground.source / "b\u00fccher.json"
    (ground.source / "00001.json").rename(odd)
    sink = streamsink.to_table(ground.table, silent, flush=False)
    with without_locale(spark):
        said = told(run(spark, ground, sink), "files.locale", ground.table)
        said.says(odd.name, "Rename these files; or", "set LC_ALL=C.UTF-8")
        if way_on == "name":
            odd.rename(ground.source / "books.json")
            assert run(spark, ground, sink) is None
    assert run(spark, ground, sink) is None
    assert_each_once(ground.table, ids_of(0, 2))


@follows("files.locale")
def test_a_source_file_whose_name_is_no_utf_8(spark, ground):
    """No locale helps."""
    ground.add_files(0, 2)
    odd = os.fsencode(ground.source / "b\udcfccher.json")
    os.rename(ground.source / "00001.json", odd)
    sink = streamsink.to_table(ground.table, silent, flush=False)
    said = told(run(spark, ground, sink), "files.locale", ground.table)
    said.says(r"b\xfccher.json", "cannot be spelled in UTF-8", "Rename these files")
    os.rename(odd, ground.source / "books.json")
    assert run(spark, ground, sink) is None
    assert_each_once(ground.table, ids_of(0, 2))


@follows("read.locale")
def test_a_path_that_the_jvm_cannot_spell(spark, tmp_path):
    """Tasks in Python write such a table and read_arrow reads it."""
    path, ways = f"{tmp_path}/b\u00fccher", []
    with without_locale(spark):
        options = {"large_batches": "spark", "driver_max_rows": 0, "flush": False}
        streamsink.write(spark.range(3), path, "run", ways.append, **options)
        assert [event.way for event in ways if isinstance(event, BatchWritten)] == ["tasks"]
        with pytest.raises(StreamsinkError) as refused:
            streamsink.read(spark, path)
    name = told(refused.value, "read.locale", path).find(r"or read the table with streamsink\.(\w+)")
    assert getattr(streamsink, name)(path).num_rows == 3


@follows("checkpoint.no-offsets")
def test_positions_that_are_not_durable(spark, ground):
    """This is asynchronous progress tracking; it is left out by turning it off."""
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 5)
        .load()
        .selectExpr("value AS id", "'x' AS name")
    )
    sink = streamsink.to_table(ground.table, silent, flush=False)

    def start(**options):
        errors = []

        def each(df, batch_id):
            try:
                sink(df, batch_id)
            except StreamsinkError as failed:
                errors.append(failed)
                raise
            if batch_id == 2:
                raise InterruptedError("enough")

        writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", ground.checkpoint).options(**options)
        with contextlib.suppress(StreamingQueryException):
            writer.start().awaitTermination()
        return errors[0] if errors else None

    error = start(
        asyncProgressTrackingEnabled="true",
        asyncProgressTrackingCheckpointIntervalMs="60000",
        _asyncProgressTrackingOverrideSinkSupportCheck="true",
    )
    said = told(error, "checkpoint.no-offsets", ground.table)
    assert start(**{said.find(r"Turn (\w+) off"): "false"}) is None
    assert_each_once(ground.table, set(range(15)))
