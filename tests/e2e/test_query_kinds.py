"""What a running query is: for each kind of query, whether it keeps state, as Spark's physical plan says;
and what tells queries apart."""

import datetime
import json
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from streamsink.protocol.committable import Batch
from streamsink.spark.gateway import running
from streamsink.spark.gateway.plan import QueryOfRun, what_is_read

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark):
    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", 1)
    return other


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "0.json").write_text(json.dumps({"id": 1, "name": "n", "at": "2026-01-01T00:00:00"}) + "\n")
    return folder


def read(session, source, **options):
    return session.readStream.schema("id BIGINT, name STRING, at TIMESTAMP").options(**options).json(str(source))


def described(queries: dict, folder, function=lambda df: df) -> dict:
    """name -> (the batch as described, whether the physical plan has an operator with state) of (df, output mode);
    all at once."""
    found = {}

    def look(name):
        def publish(df, batch_id: int) -> None:
            asked = running.describe(df, batch_id, "lake/t", running.run_id(df), lambda run: True)
            execution = running.execution(asked.run)
            batch = QueryOfRun().described(Batch(batch_id, asked.query, asked.run), function(df), execution)
            if name not in found:
                found[name] = batch, "state info [" in str(execution.lastExecution().executedPlan().toString())
            df.write.format("noop").mode("overwrite").save()

        return publish

    started = [
        df.writeStream.foreachBatch(look(name))
        .option("checkpointLocation", str(folder / f"checkpoint-{name}"))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
        for name, (df, mode) in queries.items()
    ]
    for query in started:
        query.awaitTermination()
    return found


def pass_on(key, frames, state):
    for frame in frames:
        yield frame[["id"]]


def test_state_and_changing_results_are_recognised_for_each_kind_of_query(session, source, tmp_path):
    """They are recognised as the physical plan says. A false alarm is a defect too."""

    def stream():
        return read(session, source)

    def timed():
        return stream().withWatermark("at", "1 second")

    table = session.createDataFrame([(1, "a"), (2, "b")], "id BIGINT, d STRING")
    table.createOrReplaceTempView("static")
    stream().createOrReplaceTempView("stream")
    late = timed().selectExpr("id AS id2", "at AS at2")
    queries = {
        "window": (timed().groupBy(F.window("at", "1 minute")).count(), "append"),
        "aggregate": (stream().groupBy("id").count(), "update"),
        "complete": (stream().groupBy("id").agg(F.sum("id")), "complete"),
        "distinct": (stream().distinct(), "update"),
        "sql-distinct": (session.sql("SELECT DISTINCT id FROM stream"), "update"),
        "deduplicate": (stream().dropDuplicates(["id"]), "append"),
        "deduplicate-watermark": (timed().dropDuplicatesWithinWatermark(["id"]), "append"),
        "join": (
            timed().join(late, F.expr("id = id2 AND at2 >= at AND at2 <= at + INTERVAL 1 MINUTE"), "left"),
            "append",
        ),
        "limit": (stream().limit(5), "append"),
        "except": (stream().select("id").exceptAll(table.select("id")), "update"),
        "function": (
            stream().groupBy("id").applyInPandasWithState(pass_on, "id long", "x long", "append", "NoTimeout"),
            "append",
        ),
        "plain": (stream().where("id > 0").select("id", F.explode(F.array(F.lit(1), F.lit(2)))), "update"),
        "watermark": (timed(), "append"),
        "static-join": (stream().join(table.groupBy("id").count(), "id", "left"), "append"),
        "subquery": (stream().where("id IN (SELECT max(id) FROM static GROUP BY d)"), "append"),
        "cte": (
            session.sql("WITH c AS (SELECT id FROM stream) SELECT id, (SELECT max(id) FROM static) m FROM c"),
            "append",
        ),
        "union": (stream().union(stream()), "append"),
        "groups": (
            stream().groupBy("id").applyInPandas(lambda rows: rows, "id long, name string, at timestamp"),
            "append",
        ),
    }
    found = described(queries, tmp_path)
    assert found.keys() == queries.keys()
    assert {name: batch.stateful for name, (batch, _) in found.items()} == {
        name: stateful for name, (_, stateful) in found.items()
    }
    changing = {name: batch.output_mode for name, (batch, _) in found.items() if batch.output_mode != "append"}
    assert changing == {"aggregate": "update", "complete": "complete", "sql-distinct": "update", "except": "update"}
    assert {name for name, (batch, _) in found.items() if not batch.fingerprint.comparable} == {"function", "groups"}


def test_one_program_is_one_query_and_another_program_is_not(session, source, tmp_path):
    """Started again it has other ids, seeds, times, connection options and row groups.
    Each change of it changes its own part."""
    table = session.createDataFrame([(1, "a"), (2, "b")], "id BIGINT, d STRING")

    def program(least=0, at=source, day=datetime.date(2020, 1, 1), name="x", **options):
        joined = (
            read(session, at, **options)
            .join(table, "id", "left")
            .where((F.col("id") > least) & (F.to_date("at") > F.lit(day)))
        )
        wide = joined.select("*", *(F.lit(number).alias(f"c{number}") for number in range(40)))
        return (
            wide.withColumn(name, F.rand())
            .withColumn("now", F.current_timestamp())
            .withColumn("loaded", F.lit(datetime.datetime.now()))
        )

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "0.json").write_text((source / "0.json").read_text())
    queries = {
        "first": program(),
        "again": program(maxFilesPerTrigger=1, **{"fs.s3a.secret.key": "secret"}),
        "least": program(least=-1),
        "place": program(at=tmp_path / "other"),
        "name": program(name="y"),
        "day": program(day=datetime.date(2020, 1, 2)),
        "parsing": program(mode="DROPMALFORMED"),
    }
    found = {
        name: batch.fingerprint
        for name, (batch, _) in described({n: (df, "append") for n, df in queries.items()}, tmp_path).items()
    }
    first = found["first"]
    assert first.comparable and first.spark == ".".join(session.version.split(".")[:2])
    parts = {
        name: {part for part in ("sources", "plan", "dates", "schema") if getattr(each, part) != getattr(first, part)}
        for name, each in found.items()
    }
    assert parts == {
        "first": set(),
        "again": set(),
        "least": {"plan"},
        "place": {"sources"},
        "name": {"plan", "schema"},
        "day": {"dates"},
        "parsing": {"sources"},
    }


def test_the_function_belongs_to_the_query(session, source, tmp_path):
    """What it does with the batch counts.
    Where rows go through an RDD or a Python function the plan does not show it."""
    query = {"q": (read(session, source), "append")}
    odd = F.udf(lambda i: i % 2 == 1, "boolean")
    functions = {
        "none": lambda df: df,
        "cached": lambda df: df.cache().repartition(2).alias("b"),
        "filter": lambda df: df.where("id > 0"),
        "udf": lambda df: df.where(odd("id")),
        "rdd": lambda df: session.createDataFrame(df.rdd.map(tuple), "id BIGINT, name STRING, at TIMESTAMP"),
    }
    found = {
        name: described(query, tmp_path / name, function)["q"][0].fingerprint for name, function in functions.items()
    }
    assert found["none"] == found["cached"]
    assert replace(found["filter"], plan=found["none"].plan) == found["none"] != found["filter"]
    assert [found[name].comparable for name in functions] == [True, True, True, False, False]


@pytest.mark.parametrize(
    "name, options, read",
    [
        (
            "kafka",
            {"subscribe": "b, a", "kafka.bootstrap.servers": "h:1", "kafka.sasl.jaas.config": "secret"},
            {"subscribe": "a,b"},
        ),
        (
            "kafka",
            {"assign": '{"b": [1, 0], "a": [0]}', "startingOffsets": "latest"},
            {"assign": '{"a": [0], "b": [0, 1]}'},
        ),
        (
            "csv",
            {"path": "file:/in/", "header": "true", "maxFilesPerTrigger": "3", "password": "secret"},
            {"path": "/in", "header": "true"},
        ),
        ("json", {"path": "s3a://key:secret@bucket/in"}, {"path": "s3a://bucket/in"}),
        ("jdbc-stream", {"dbtable": "t", "user": "u", "password": "secret"}, {"dbtable": "t"}),
    ],
)
def test_options_that_say_what_is_read_count_and_no_others(name, options, read):
    """They count in one spelling; a password never does, nor where to connect to."""
    assert what_is_read(name, options) == read
