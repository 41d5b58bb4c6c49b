"""Columns whose names Spark takes for one, and names that are there twice:
exactly what is named is meant, or it is an error."""

import pytest

import streamsink
from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.sinks.paimon.opening import PaimonTable
from streamsink.spark.query.foreach_batch import BatchFunction
from streamsink.spark.query.routed_sink import tables_sink
from streamsink.spark.query.spark_sink import SparkSink
from streamsink.table.routed.rules import Routing
from tests.advice.following import follows, told
from tests.e2e.harness import files_under
from tests.e2e.test_position_columns import FITTING, POSITIONS, WAYS, batch

pytestmark = pytest.mark.spark
SILENT = {"flush": False}


@pytest.fixture
def exact(spark):
    """A session that distinguishes names by case."""
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")
    return session


def one_of(table: str, **options) -> BatchFunction:
    return BatchFunction(
        SparkSink(PaimonTable(table), SinkOptions.of(table, {**SILENT, **options})), lambda event: None
    )


def many_of(lake: str, route: str, dead_letters: str | None = None, columns=None, **options) -> BatchFunction:
    given = SinkOptions.of(lake, {**SILENT, **options})
    rules = {"t": {"columns": columns} if columns else {}}
    return BatchFunction(
        tables_sink(route, Routing.of(lake, rules, given, dead_letters=dead_letters, unrouted="fail"), given),
        lambda event: None,
    )


def refused(ground, sink, rows, kind: str, *words: str):
    """The refusal comes before there is any file; the error has the path and these words."""
    said = told(kind, lambda: sink._micro_batch(rows, batch()))
    said.says(ground.table, "Nothing was written", *words)
    assert files_under(ground.root / "lake") == {}
    sink.close()
    return said


def read(table: str) -> list[dict]:
    return sorted(streamsink.read_arrow(table).to_pylist(), key=lambda row: row["id"])


@follows("option.position-columns")
@pytest.mark.parametrize("way", WAYS)
def test_a_column_that_spark_takes_for_a_position_column_is_not_dropped(spark, ground, way):
    """Formerly it was, in silence. Under another name, as the error says, both are what they are."""
    rows = spark.range(0, 40, 1, 2).selectExpr("id", *FITTING, "id + 1000 AS Offset")
    sink = one_of(ground.table, position_columns=POSITIONS, **WAYS[way])
    refused(
        ground,
        sink,
        rows,
        "option.position-columns",
        "position_columns",
        "'offset'",
        "'Offset'",
        "another name",
        "spark.sql.caseSensitive",
    )
    rows = spark.range(0, 40, 1, 2).selectExpr("id", *FITTING[:2], "id * 10 AS kafka_offset", "id + 1000 AS Offset")
    sink = one_of(ground.table, position_columns=(*POSITIONS[:2], "kafka_offset"), **WAYS[way])
    sink._micro_batch(rows, batch())
    sink.close()
    assert read(ground.table) == [{"id": n, "Offset": n + 1000} for n in range(40)]


@pytest.mark.parametrize("way", WAYS)
def test_a_session_that_tells_them_apart_drops_exactly_the_one_that_is_named(exact, ground, way):
    """This is the other way on."""
    rows = exact.range(0, 40, 1, 2).selectExpr("id", *FITTING, "id + 1000 AS Offset")
    sink = one_of(ground.table, position_columns=POSITIONS, **WAYS[way])
    sink._micro_batch(rows, batch())
    sink.close()
    assert read(ground.table) == [{"id": n, "Offset": n + 1000} for n in range(40)]


@follows("option.route")
@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_a_column_that_spark_takes_for_the_route_is_not_dropped(spark, exact, ground, way):
    """It is refused, or exactly the column that is named is in no table."""
    columns = ("id", "'t' AS kind", "id + 1000 AS Kind")
    sink = many_of(ground.table, "kind", **WAYS[way])
    refused(
        ground,
        sink,
        spark.range(0, 40, 1, 2).selectExpr(*columns),
        "option.route",
        "'route'",
        "'kind'",
        "'Kind'",
        "another name",
    )
    sink = many_of(ground.table, "kind", **WAYS[way])
    sink._micro_batch(exact.range(0, 40, 1, 2).selectExpr(*columns), batch())
    sink.close()
    assert read(f"{ground.table}/t") == [{"id": n, "Kind": n + 1000} for n in range(40)]


@follows("option.file-column")
@pytest.mark.parametrize("way", WAYS)
def test_a_column_that_spark_takes_for_the_file_column_is_not_dropped(spark, exact, ground, way):
    """It is refused, or exactly the column that is named is left out."""
    columns = ("id", "'file:///a' AS file_path", "id + 1000 AS File_Path")
    sink = one_of(ground.table, file_column="file_path", **WAYS[way])
    rows = spark.range(0, 40, 1, 2).selectExpr(*columns)
    refused(ground, sink, rows, "option.file-column", "'file_column'", "'file_path'", "'File_Path'", "another name")
    sink = one_of(ground.table, file_column="file_path", **WAYS[way])
    sink._micro_batch(exact.range(0, 40, 1, 2).selectExpr(*columns), batch())
    sink.close()
    assert read(ground.table) == [{"id": n, "File_Path": n + 1000} for n in range(40)]


@pytest.mark.in_turn("columns that are there twice", 2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("which", ["session", "exact"])
def test_a_position_column_that_is_there_twice(spark, exact, ground, way, which):
    """It comes, for example, of a join that kept both."""
    session = exact if which == "exact" else spark
    rows = session.range(0, 40, 1, 2).selectExpr("id", *FITTING, "id * 10 AS offset")
    sink = one_of(ground.table, position_columns=POSITIONS, **WAYS[way])
    refused(ground, sink, rows, "option.position-columns", "position_columns", "'offset'", "twice")


@follows("option.route")
def test_a_route_that_is_there_twice(spark, ground):
    rows = spark.range(0, 40, 1, 2).selectExpr("id", "'t' AS kind", "'t' AS kind")
    refused(ground, many_of(ground.table, "kind"), rows, "option.route", "'route'", "'kind'", "twice")


@pytest.mark.in_turn("columns that are there twice", 2)
@follows("schema.bad-name")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("exists", [False, True], ids=["new", "there"])
def test_a_column_that_is_there_twice(spark, ground, way, exists):
    """The error names the table and the column. Dropped in the query, as it says, the rows are written."""
    rows = spark.range(0, 40, 1, 2).selectExpr("id", "id AS n", "id AS n")
    if exists:
        streamsink.create_table(ground.table, "id BIGINT, n BIGINT")
    before = files_under(ground.root / "lake")
    said = told("schema.bad-name", lambda: streamsink.write(rows, ground.table, "r1", **SILENT, **WAYS[way]))
    said.says(ground.table, "column 'n' is there twice", "Nothing was written", "Drop or rename one of them")
    assert exists or files_under(ground.root / "lake") == before
    streamsink.write(rows.toDF("id", "n", "o").drop("o"), ground.table, "r1", **SILENT, **WAYS[way])
    assert read(ground.table) == [{"id": n, "n": n} for n in range(40)]


@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_a_column_of_one_of_several_tables_that_is_there_twice(spark, ground, way):
    """It is refused where a table, or a dead letter, would take both. A query of which no table takes them goes on."""
    rows = spark.range(0, 40, 1, 2).selectExpr("id", "id AS n", "id AS n")
    sink = many_of(ground.table, "'t'", **WAYS[way])
    told("schema.bad-name", lambda: sink._micro_batch(rows, batch())).says(
        "table 't'", "column 'n' is there twice", "Nothing was written", ground.table
    )
    sink.close()
    assert not (ground.root / "lake" / "orders" / "t").exists()
    letters = many_of(f"{ground.table}_2", "'t'", "rejected", ["id"], **WAYS[way])
    told("schema.bad-name", lambda: letters._micro_batch(rows, batch())).says(
        f"{ground.table}_2", "column 'n' is there twice", "Nothing was written"
    )
    assert not (ground.root / "lake" / "orders_2").exists()
    sink = many_of(ground.table, "'t'", None, ["id"], **WAYS[way])
    sink._micro_batch(rows, batch())
    sink.close()
    assert read(f"{ground.table}/t") == [{"id": n} for n in range(40)]


@pytest.mark.in_turn("columns that differ in case only", 3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("names", [("a", "A"), ("straße", "STRASSE", "İd", "ıd"), ("a", "A", "x.y")], ids="-".join)
def test_columns_that_differ_in_case_only_are_written_in_every_way(spark, exact, ground, way, names):
    """Paimon's names differ by case.
    Formerly a small batch created such a table, and the first large one failed for ever."""
    rows = spark.range(0, 40, 1, 2).selectExpr("id", *(f"id + {place} AS `{name}`" for place, name in enumerate(names)))
    for run in ("r1", "r2"):
        streamsink.write(rows, ground.table, run, **SILENT, **(WAYS[way] if run == "r2" else {}))
    wanted = sorted(
        [{"id": n, **{name: n + place for place, name in enumerate(names)}} for n in range(40)] * 2,
        key=lambda row: row["id"],
    )
    assert read(ground.table) == wanted
    assert streamsink.read(exact, ground.table).count() == 80


def test_a_large_batch_for_several_tables_with_such_columns(spark, ground):
    """It goes through tasks, with a route."""
    sink = many_of(ground.table, "kind", "rejected", **WAYS["tasks"])
    sink._micro_batch(spark.range(0, 40, 1, 2).selectExpr("id", "'t' AS kind", "id AS a", "id + 1 AS A"), batch())
    sink.close()
    assert read(f"{ground.table}/t") == [{"id": n, "a": n, "A": n + 1} for n in range(40)]


@follows("read.names")
def test_a_table_with_such_columns_is_read_by_a_session_that_tells_them_apart(spark, exact, ground):
    """Formerly any other session said only that a column is there already, without naming a table."""
    streamsink.create_table(ground.table, "id BIGINT, a BIGINT, A BIGINT")
    streamsink.write(spark.range(3).selectExpr("id", "id AS a", "id + 1 AS A"), ground.table, "r1", **SILENT)
    said = told("read.names", lambda: streamsink.read(spark, ground.table)).says(ground.table, "'a'", "'A'")
    assert said.find(r"set ([\w.]+) to true") == "spark.sql.caseSensitive"
    assert sorted(streamsink.read(exact, ground.table).collect()) == [(n, n, n + 1) for n in range(3)]
    said.says("streamsink.read_arrow")
    assert read(ground.table) == [{"id": n, "a": n, "A": n + 1} for n in range(3)]


def test_an_error_of_names_is_told_by_a_running_query(spark, ground):
    """It is raised like any other, with the table's path."""
    ground.add_files(0, 1)
    stream = (
        spark.readStream.schema("id BIGINT, name STRING")
        .json(str(ground.source))
        .selectExpr("id", "name", "id AS name")
    )
    sink = streamsink.to_table(ground.table, flush=False)
    start = (
        stream.writeStream.foreachBatch(sink)
        .option("checkpointLocation", ground.checkpoint)
        .trigger(availableNow=True)
        .start
    )
    with pytest.raises(Misuse, match="column 'name' is there twice.*Nothing was written") as refused:
        streamsink.run(start, max_restarts=0)
    assert refused.value.kind == "schema.bad-name" and ground.table in str(refused.value)
