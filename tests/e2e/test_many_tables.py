"""One query into several tables, with dead letters, under Spark:
kills of real drivers, tasks that fail, rows that do not fit."""

import datetime
import decimal
import json
import signal

import pytest
from pyspark.sql import functions

import streamsink
from streamsink.errors import Misuse
from tests.e2e import task_faults
from tests.e2e.harness import ids_of, lost_and_doubled, run_driver, run_here

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_settings")]

# There is another route at each evaluation, and every seventh row has none.
RANDOM_ROUTE = "CASE WHEN id % 7 = 0 THEN 'nowhere' ELSE concat('t_', abs(hash(uuid())) % 3) END"
RANDOM = {"route": RANDOM_ROUTE, "tables": {"t_*": {}}, "dead_letters": "rejected", "unrouted": "dead-letter"}
# Where drivers die, one after another: after the one record, and between two tables. Without Spark,
# tests/crash/test_many_tables.py dies at every step. In MORE_KILLS the record is left to a start that is killed before
# it publishes it.
KILLS = ["precommit.saved@2", "tables.table_published@3"]
MORE_KILLS = ["table.created@2", KILLS[0], "restore.before_publish@1", "tables.before_table@2", KILLS[1]]


def ids_by_table(warehouse: str) -> dict[str, list[int]]:
    """The ids in each table; a dead letter's id is read from its text."""
    found = {}
    for name in ("t_0", "t_1", "t_2"):
        try:
            found[name] = streamsink.read_arrow(f"{warehouse}/{name}").column("id").to_pylist()
        except Misuse:
            found[name] = []  # It is not created yet.
    try:
        rows = streamsink.read_arrow(f"{warehouse}/rejected").column("row").to_pylist()
    except Misuse:
        rows = []
    return found | {"rejected": [json.loads(row)["id"] for row in rows]}


def all_ids(warehouse: str) -> list[int]:
    return [number for ids in ids_by_table(warehouse).values() for number in ids]


def test_two_sinks_of_one_name_with_other_rules_are_refused(spark, ground):
    """Formerly the second one's rows went by the first one's rules: to the dead letters, without a word."""
    ground.add_files(0, 2)
    lake = str(ground.root / "lake")
    more = {"dead_letters": "rejected", "unrouted": "dead-letter", "flush": False}
    sinks = [streamsink.to_tables(lake, "name", {name: {}}, **more) for name in ("a", "b")]
    refused = []

    def publish(df, batch_id):
        try:
            sinks[batch_id](df.withColumn("name", functions.lit("ab"[batch_id])), batch_id)
        except Misuse as error:
            refused.append(error.kind)

    df = spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(str(ground.source))
    query = (
        df.writeStream.foreachBatch(publish)
        .option("checkpointLocation", f"{ground.root}/ck")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert refused == ["application.two-sinks"]


@pytest.mark.slow
@pytest.mark.in_turn("pending beyond a batch", 1)
def test_drivers_killed_around_the_record_lose_and_double_nothing(spark, ground):
    """Each start is killed at another point; a row that is routed elsewhere at each evaluation is in one table only."""
    _killed_one_after_another(spark, ground, KILLS)


@pytest.mark.soak
def test_drivers_killed_at_all_new_steps_lose_and_double_nothing(spark, ground):
    """These are the other steps that several tables bring."""
    _killed_one_after_another(spark, ground, MORE_KILLS)


def _killed_one_after_another(spark, ground, kills):
    files = 2 * len(kills) + 3
    ground.add_files(0, files)
    job = ground.job(table=str(ground.root / "lake"), many=RANDOM, options={"journal_retain": 2}, max_restarts=3)
    for fault in kills:
        assert run_driver(ground, job, fault=f"{fault}:kill").code == -signal.SIGKILL, (
            f"a driver does not reach {fault}"
        )
        found = all_ids(job.table)
        assert len(found) == len(set(found)) and set(found) <= ids_of(0, files), fault
    outcome = run_here(spark, job)
    assert outcome.code == 0, outcome
    found = ids_by_table(job.table)
    lost, doubled = lost_and_doubled(all_ids(job.table), ids_of(0, files))
    print(f"RESULT many tables: kills={len(kills)} rows={files * 10} lost={lost} doubled={doubled} tables={len(found)}")
    assert (lost, doubled) == (0, 0)
    assert set(found["rejected"]) == {number for number in ids_of(0, files) if number % 7 == 0}
    assert all(found.values())


@pytest.mark.in_turn("tasks that fail", 1)
@pytest.mark.slow
def test_tasks_that_fail_twice_count_once(ground):
    """Rows and dead letters of lost attempts are in no table and in no count."""
    ground.add_files(0, 4)
    conf = task_faults.CONF | {"spark.master": "local[2,3]", "spark.sql.shuffle.partitions": "2"}
    job = ground.job(
        table=str(ground.root / "lake"),
        many=RANDOM,
        per_batch=2,
        shuffle=True,
        options={"driver_max_rows": 0},
        conf=conf,
    )
    outcome = run_driver(ground, job, env=task_faults.environment("task.end:exit:2", ground.root / "marks"))
    assert outcome.code == 0, outcome
    assert len(list((ground.root / "marks").iterdir())) >= 4
    assert lost_and_doubled(all_ids(job.table), ids_of(0, 4)) == (0, 0)
    dead = sum(event["rows"] for event in outcome.of("RowsDeadLettered"))
    assert dead == len(ids_by_table(job.table)["rejected"]) == 6
    assert sum(event["rows"] for event in outcome.of("TablePublished")) == 40


def _run(df, checkpoint, **arguments) -> list:
    events = []

    def start():
        sink = streamsink.to_tables(listener=events.append, flush=False, **arguments)
        return (
            df.writeStream.foreachBatch(sink)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )

    streamsink.run(start, max_restarts=2, min_wait_ms=1, max_wait_ms=10)
    return events


COLUMNS = "id BIGINT, n BIGINT, amount DECIMAL(20,4), day STRING, at TIMESTAMP, bytes BINARY, name STRING"
GOOD = (7, decimal.Decimal("12.5000"), "2026-11-21", datetime.datetime(2026, 11, 21, 12, 0, 0, 1000), b"\x01", "abc")
BAD = {
    "n": (2**31, "data.cast"),
    "amount": (decimal.Decimal("0.0001"), "data.cast"),
    "day": ("tomorrow", "data.cast"),
    "at": (datetime.datetime(2026, 11, 21, 12, 0, 0, 1), "data.cast"),
    "bytes": (b"12345", "data.too-long"),
    "name": (None, "data.null"),
}


@pytest.fixture
def rows_of_each_kind(spark, ground):
    """A streaming DataFrame of ten good rows and one bad row for each column."""
    names = list(BAD)
    rows = [(number, *GOOD) for number in range(10)]
    for number, (column, (value, _)) in enumerate(BAD.items()):
        rows.append((100 + number, *(value if name == column else good for name, good in zip(names, GOOD))))
    source = str(ground.root / "in")
    spark.createDataFrame(rows, COLUMNS).repartition(2).write.parquet(source)
    return spark.readStream.schema(COLUMNS).parquet(source)


STRICT = (
    "id BIGINT, n INT, amount DECIMAL(6, 2), day DATE, at TIMESTAMP(3) WITH LOCAL TIME ZONE, bytes VARBINARY(4), "
    "name VARCHAR(5) NOT NULL"
)


@pytest.mark.in_turn("bad rows", 1)
@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_bad_rows_of_each_kind_are_set_aside_alone(ground, rows_of_each_kind, way):
    """Ten rows fit, and six do not, each because of its own column. The text holds the whole row."""
    df = rows_of_each_kind
    lake = str(ground.root / "lake")
    streamsink.create_table(f"{lake}/strict", STRICT)
    _run(
        df,
        f"{ground.root}/ck-{way}",
        warehouse=lake,
        route="'strict'",
        tables={"strict": {}},
        dead_letters="rejected",
        driver_max_rows=20_000 if way == "driver" else 0,
    )
    assert sorted(streamsink.read_arrow(f"{lake}/strict").column("id").to_pylist()) == list(range(10))
    dead = streamsink.read_arrow(f"{lake}/rejected").to_pylist()
    found = {row["column"]: row["reason"].partition(":")[0] for row in dead}
    assert len(dead) == len(BAD) and found == {column: kind for column, (_, kind) in BAD.items()}
    texts = {row["column"]: json.loads(row["row"]) for row in dead}
    assert [list(text) for text in texts.values()] == [["id", *BAD]] * len(BAD)
    assert (
        texts["bytes"]["bytes"] == {"base64": "MTIzNDU="}
        and texts["amount"]["amount"] == "0.0001"
        and texts["name"]["name"] is None
    )
    assert all(row["target"] == "strict" and row["checkpoint_id"] == 0 for row in dead)


def test_one_table_with_dead_letters(spark, ground, rows_of_each_kind):
    """to_table(dead_letters=...) does the same with one table, and a replay after a lost commit log changes nothing."""
    df = rows_of_each_kind
    lake, checkpoint = str(ground.root / "lake"), str(ground.root / "ck")
    streamsink.create_table(f"{lake}/strict", STRICT)

    def start():
        sink = streamsink.to_table(f"{lake}/strict", dead_letters="rejected", flush=False)
        return (
            df.writeStream.foreachBatch(sink)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )

    for _ in range(2):
        streamsink.run(start, max_restarts=2, min_wait_ms=1, max_wait_ms=10)
        (ground.root / "ck" / "commits" / "0").unlink()
        (ground.root / "ck" / "commits" / ".0.crc").unlink(missing_ok=True)
    assert streamsink.read_arrow(f"{lake}/strict").num_rows == 10
    assert streamsink.read_arrow(f"{lake}/rejected").num_rows == len(BAD)


def test_without_dead_letters_a_bad_row_fails_the_query(ground, rows_of_each_kind):
    """As with one table, the error names the column and not the value, and nothing is written."""
    df = rows_of_each_kind
    lake = str(ground.root / "lake")
    streamsink.create_table(f"{lake}/strict", STRICT)
    with pytest.raises(Misuse, match="strict"):
        _run(df, f"{ground.root}/ck", warehouse=lake, route="'strict'", tables={"strict": {}})
    assert streamsink.read_arrow(f"{lake}/strict").num_rows == 0


def test_fifty_tables_in_one_batch_from_tasks(spark, ground):
    """Each row is in the table that its column names,
    the routing column is dropped, and few files are open at a time."""
    source, lake = str(ground.root / "in"), str(ground.root / "lake")
    rows = [(number, f"t_{number % 50}") for number in range(5_000)]
    spark.createDataFrame(rows, "id BIGINT, kind STRING").repartition(2).write.parquet(source)
    df = spark.readStream.schema("id BIGINT, kind STRING").parquet(source)
    events = _run(
        df,
        f"{ground.root}/ck",
        warehouse=lake,
        route="kind",
        tables={"t_*": {}},
        driver_max_rows=0,
        max_open_writers=5,
        writer_memory_bytes=20_000,
    )
    for number in range(50):
        table = streamsink.read_arrow(f"{lake}/t_{number}")
        assert table.column_names == ["id"]
        assert sorted(table.column("id").to_pylist()) == list(range(number, 5_000, 50))
    [written] = [event for event in events if type(event).__name__ == "BatchWritten"]
    assert (written.rows, written.way) == (5_000, "tasks")


def test_a_route_that_is_no_expression_is_refused(spark, ground):
    """The refusal comes before anything is written, and names the columns that there are."""
    ground.add_files(0, 1)
    df = spark.readStream.schema("id BIGINT, name STRING").json(str(ground.source))
    with pytest.raises(Misuse, match="id, name") as refused:
        _run(df, f"{ground.root}/ck", warehouse=str(ground.root / "lake"), route="kind_of", tables={"*": {}})
    assert refused.value.kind == "option.route"
    assert not (ground.root / "lake" / "kind_of").exists()
