"""What a collector is told of real queries: each message is checked with the schemas of OpenLineage's specification."""

import pytest

import streamsink
from streamsink.databases import DatabaseSink
from streamsink.errors import Misuse, Retryable
from streamsink.lineage import OpenLineage
from streamsink.sink import FanOut, FileSink, PaimonTable, to_sink
from streamsink.spark.query import ended
from tests.e2e.harness import assert_each_once
from tests.lineage.collector import transport
from tests.lineage.test_sending import until

pytestmark = pytest.mark.spark
IN_TURN = pytest.mark.in_turn("queries whose lineage is told", 2)
SCHEMA = "id BIGINT, name STRING"


def files(spark, ground, per_batch: int = 1):
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", per_batch).json(str(ground.source))


def run(df, sink, ground) -> None:
    """Run the query to its end, under the supervisor."""

    def start():
        writer = df.writeStream.queryName("orders").foreachBatch(sink)
        return writer.option("checkpointLocation", ground.checkpoint).trigger(availableNow=True).start()

    streamsink.run(start, max_restarts=0)


def listener(collector, **options) -> OpenLineage:
    return OpenLineage(config=transport(collector.url), **{"interval_ms": 0, **options})


def test_files_to_a_table(spark, ground, collector):
    """From the first batch to the end: the folder, the table with columns, snapshot and rows, one run of one job."""
    expected = ground.add_files(0, 3)
    lineage = listener(collector, namespace="shop", parent="airflow/dag.task/018f1c2e-1c2e-7c2e-8c2e-1c2e018f1c2e")
    run(files(spark, ground), streamsink.to_table(ground.table, listener=lineage, flush=False), ground)
    assert lineage.close(30_000)
    assert_each_once(ground.table, expected)
    assert collector.refused == [] and lineage.dropped == 0 and lineage.sent == len(collector.events)
    assert collector.states[0] == "START" and collector.states[-1] == "COMPLETE"
    assert set(collector.states[1:-1]) <= {"RUNNING"}
    assert len({event["run"]["runId"] for event in collector.events}) == 1
    jobs = {(event["job"]["namespace"], event["job"]["name"]) for event in collector.events}
    assert jobs == {("shop", "streamsink-tests.streamsink.orders")}
    rows = [
        out["outputFacets"]["outputStatistics"]
        for event in collector.events
        for out in event["outputs"]
        if out["outputFacets"]
    ]
    assert sum(each["rowCount"] for each in rows) == len(expected)
    assert sum(each["fileCount"] for each in rows) == 3 and all(each["size"] > 0 for each in rows)
    read = [into["inputFacets"] for event in collector.events for into in event["inputs"] if into["inputFacets"]]
    named = [path for each in read for path in each["subset"]["inputCondition"]["locations"]]
    assert sorted(path.rpartition("/")[2] for path in named) == ["00000.json", "00001.json", "00002.json"]
    assert sum(each["inputStatistics"]["fileCount"] for each in read) == 3
    last = collector.events[-1]
    [source], [table] = last["inputs"], last["outputs"]
    assert (source["namespace"], source["name"]) == ("file", str(ground.source))
    assert (table["namespace"], table["name"]) == ("file", ground.table)
    assert table["facets"]["version"]["datasetVersion"] == "3"
    columns = [(each["name"], each["type"]) for each in table["facets"]["schema"]["fields"]]
    assert columns == [("id", "BIGINT"), ("name", "STRING")]
    assert table["facets"]["storage"]["storageLayer"] == "paimon"
    facets = last["run"]["facets"]
    assert facets["processing_engine"]["name"] == "spark" and facets["streamsink"]["queryName"] == "orders"
    assert facets["parent"]["job"] == {"namespace": "airflow", "name": "dag.task", "facets": {}}
    checkpoints = [event["run"]["facets"]["streamsink"].get("checkpoints", 0) for event in collector.events]
    assert sum(checkpoints) == 3


@IN_TURN
def test_several_tables(spark, ground, collector):
    """One message has all tables that were written, each with its own snapshot and rows."""
    ground.add_files(0, 2)
    lineage = listener(collector)
    lake = str(ground.root / "lake")
    sink = streamsink.to_tables(
        lake, "concat('t_', id % 2)", {"t_*": {}}, dead_letters="rejected", listener=lineage, flush=False
    )
    run(files(spark, ground, 2), sink, ground)
    assert lineage.close(30_000) and collector.refused == [] and lineage.dropped == 0
    rows = {}
    for event in collector.events:
        for out in event["outputs"]:
            rows[out["name"]] = rows.get(out["name"], 0) + rows_of(out)
    assert rows == {f"{lake}/t_0": 10, f"{lake}/t_1": 10}
    versions = {out["name"]: out["facets"]["version"]["datasetVersion"] for out in collector.events[-1]["outputs"]}
    assert versions == {f"{lake}/t_0": "1", f"{lake}/t_1": "1"}


def rows_of(out) -> int:
    return out["outputFacets"].get("outputStatistics", {"rowCount": 0})["rowCount"]


@IN_TURN
def test_a_table_with_dead_letters(spark, ground, collector):
    """The table and that of the dead letters are two datasets."""
    ground.add_files(0, 1)
    streamsink.create_table(ground.table, "id TINYINT, name STRING")
    lineage = listener(collector)
    df = files(spark, ground).selectExpr("CASE WHEN id < 3 THEN 1000 ELSE id END AS id", "name")
    sink = streamsink.to_table(ground.table, listener=lineage, dead_letters="rejected", flush=False, widen_types=False)
    run(df, sink, ground)
    assert lineage.close(30_000) and collector.refused == [] and lineage.dropped == 0
    rows = {out["name"].rpartition("/")[2]: 0 for out in collector.events[-1]["outputs"]}
    for event in collector.events:
        for out in event["outputs"]:
            rows[out["name"].rpartition("/")[2]] += rows_of(out)
    assert rows == {"orders": 7, "rejected": 3}


@IN_TURN
def test_a_fan_out(spark, ground, collector):
    """One message for all destinations, by the rules of each."""
    expected = ground.add_files(0, 2)
    lineage = listener(collector)
    out, database = str(ground.root / "out"), ground.root / "db"
    to = {
        "table": PaimonTable(ground.table),
        "files": FileSink(out),
        "db": DatabaseSink(f"sqlite:{database}", "orders", create_table=True),
    }
    run(files(spark, ground, 2), to_sink(FanOut(to, journal=str(ground.root / "journal")), listener=lineage), ground)
    assert lineage.close(30_000) and collector.refused == [] and lineage.dropped == 0
    last = collector.events[-1]
    named = {(each["namespace"], each["name"]) for each in last["outputs"]}
    assert named == {("file", ground.table), ("file", out), (f"sqlite:{database}", "orders")}
    for each in named:
        told = [
            out for event in collector.events for out in event["outputs"] if (out["namespace"], out["name"]) == each
        ]
        assert sum(map(rows_of, told)) == len(expected), each
    assert {len(each["facets"]["schema"]["fields"]) for each in last["outputs"]} == {2}
    assert sum(event["run"]["facets"]["streamsink"].get("checkpoints", 0) for event in collector.events) == 1


@IN_TURN
def test_a_query_that_fails_elsewhere(spark, ground, collector):
    """Behind the sink, in the program's own code: Spark knows it. What the error says is not told: it may be a row."""
    ground.add_files(0, 1)
    lineage = listener(collector)
    sink = streamsink.to_table(ground.table, listener=lineage, flush=False)

    def publish(df, batch_id):
        sink(df, batch_id)
        raise ValueError("a value of a row")

    with pytest.raises(Exception, match="a value of a row"):
        run(files(spark, ground), publish, ground)
    assert lineage.close(30_000) and collector.refused == [] and lineage.dropped == 0
    assert [state for state in collector.states if state != "RUNNING"] == ["START", "FAIL"]
    message = collector.events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message and "a value of a row" not in str(collector.events)


@IN_TURN
def test_a_batch_that_is_refused(spark, ground, collector):
    """The kind of the error is told."""
    ground.add_files(0, 1)
    streamsink.create_table(ground.table, "id STRING, name STRING")
    lineage = listener(collector)
    sink = streamsink.to_table(ground.table, listener=lineage, flush=False, widen_types=False)
    with pytest.raises(Misuse) as refused:
        run(files(spark, ground), sink, ground)
    assert lineage.close(30_000) and collector.refused == [] and lineage.dropped == 0
    assert collector.states == ["START", "FAIL"]
    assert collector.events[-1]["run"]["facets"]["errorMessage"]["message"] == f"Misuse ({refused.value.kind})"
    assert len(collector.events[-1]["inputs"]) == 1, "what it would have read"


@IN_TURN
def test_a_bounded_job(spark, ground, collector):
    """A job of its own, with a start and an end; a repeated call is another run, which writes nothing."""
    df = spark.range(5).selectExpr("id", "CAST(id AS STRING) AS name")
    for number in range(2):
        lineage = listener(collector, inputs=[("file", "/in/numbers")])
        streamsink.write(df, ground.table, "2026-11-21", listener=lineage, flush=False)
        assert lineage.close(30_000) and collector.refused == [] and lineage.dropped == 0
        told, collector.events = collector.events, []
        assert [told[0]["eventType"], told[-1]["eventType"]] == ["START", "COMPLETE"]
        assert sum(rows_of(out) for event in told for out in event["outputs"]) == (0 if number else 5)
        assert {event["job"]["facets"]["jobType"]["processingType"] for event in told} == {"BATCH"}
        assert [each["name"] for each in told[-1]["inputs"]] == ["/in/numbers"]


@IN_TURN
def test_a_restart(spark, ground, collector):
    """Each start is a run. What the first one has recorded and the second one publishes is told once."""
    expected = ground.add_files(0, 3)
    lineage = listener(collector)
    sink = streamsink.to_table(ground.table, listener=lineage, flush=False, publish_every_batches=2)
    failed = []

    def publish(df, batch_id):
        sink(df, batch_id)
        if batch_id == 0 and not failed:
            failed.append(batch_id)
            raise Retryable("once", kind="testing.once")

    def start():
        writer = files(spark, ground).writeStream.foreachBatch(publish).trigger(availableNow=True)
        return writer.option("checkpointLocation", ground.checkpoint).start()

    try:
        streamsink.run(start, max_restarts=0)
    except Exception:  # the program's own error, after which it starts the query again
        streamsink.run(start, max_restarts=0)
    assert failed and lineage.close(30_000) and collector.refused == [] and lineage.dropped == 0
    assert_each_once(ground.table, expected)
    assert [state for state in collector.states if state != "RUNNING"] == ["START", "FAIL", "START", "COMPLETE"]
    assert len({event["run"]["runId"] for event in collector.events}) == 2
    assert len({event["job"]["name"] for event in collector.events}) == 1
    assert sum(rows_of(out) for event in collector.events for out in event["outputs"]) == len(expected)
    read = [into["inputFacets"] for event in collector.events for into in event["inputs"] if into["inputFacets"]]
    assert sum(each["inputStatistics"]["fileCount"] for each in read) == 3


@IN_TURN
def test_a_query_that_nobody_waits_for(spark, ground, collector, monkeypatch):
    """Its end is noticed beside it: without the supervisor, and without a call of the sink's close."""
    monkeypatch.setattr(ended, "LOOK_MS", 50)
    ground.add_files(0, 1)
    lineage = listener(collector)
    sink = streamsink.to_table(ground.table, listener=lineage, flush=False)
    writer = files(spark, ground).writeStream.foreachBatch(sink).option("checkpointLocation", ground.checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    until(lambda: "COMPLETE" in collector.states)
    assert lineage.close(30_000) and collector.refused == [] and lineage.dropped == 0
    sink.close()
    assert collector.states.count("COMPLETE") == 1
