"""Position columns are proven in every batch, in all ways of writing;
and what they filter costs the same for any number of partitions."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import streamsink
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.events import BatchWritten
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import SourceRange
from streamsink.sinks.paimon.opening import PaimonTable
from streamsink.spark.query.foreach_batch import BatchFunction
from streamsink.spark.query.routed_sink import tables_sink
from streamsink.spark.query.spark_sink import SparkSink
from streamsink.spark.rows import position_columns
from streamsink.table.routed.rules import Routing
from streamsink.table.write.position_ranges import PositionRanges
from tests.advice.following import advice, follows
from tests.e2e.harness import assert_each_once, ids_in
from tests.e2e.kafka_data import AT_ONCE, new_topic, send

pytestmark = pytest.mark.spark
POSITIONS = ("topic", "partition", "offset")
WAYS = {
    "driver": {},
    "tasks": {"driver_max_rows": 0, "large_batches": "tasks"},
    "spark": {"driver_max_rows": 0, "large_batches": "spark"},
}
# For rows whose id is a number from 0 to 39: their offset is ten times that, in partitions 0 and 1 of two topics.
FITTING = ("concat('t', id % 2) AS topic", "CAST(id % 4 DIV 2 AS INT) AS partition", "id * 10 AS offset")
# What a query may do to them: the expressions, and how many of 40 rows no longer lie in the batch.
SHAPES = {
    "an outer join": ("IF(id % 5 = 0, NULL, concat('t', id % 2)) AS topic", *FITTING[1:], 8),
    "no partition": (FITTING[0], "CAST(NULL AS INT) AS partition", FITTING[2], 40),
    "no offset on one row": (*FITTING[:2], "IF(id = 17, NULL, id * 10) AS offset", 1),
    "upper case": ("upper(concat('t', id % 2)) AS topic", *FITTING[1:], 40),
    "another topic": ("IF(id = 39, 't2', concat('t', id % 2)) AS topic", *FITTING[1:], 1),
    "another partition": (FITTING[0], "CAST(id % 4 AS INT) AS partition", FITTING[2], 20),
    "a partition below 0": (FITTING[0], "CAST(id % 4 - 2 AS INT) AS partition", FITTING[2], 21),
    "a partition of no topic": (FITTING[0], "2147483647 AS partition", FITTING[2], 40),
    "offset + 1": (*FITTING[:2], "id * 10 + 1 AS offset", 4),
    "a constant": (*FITTING[:2], "400L AS offset", 40),
    "the largest number": (*FITTING[:2], "9223372036854775807L AS offset", 40),
    "partition and offset exchanged": (FITTING[0], "id * 10 AS partition", "id % 4 DIV 2 AS offset", 39),
}
# Those that tasks and Spark's writer try. test_spark_finds_... compares what they are told of any row with Arrow.
FEW = ("an outer join", "offset + 1", "the largest number")
BEGIN = {"t0": {"0": 0, "1": 0}, "t1": {"0": 0, "1": 0}}
END = {"t0": {"0": 361, "1": 381}, "t1": {"0": 371, "1": 391}}


def frame(spark, *columns):
    """Forty rows with these position columns, in two tasks."""
    return spark.range(0, 40, 1, 2).selectExpr("id", "CAST(id AS STRING) AS name", *columns)


def batch(batch_id: int = 0, start: dict | None = None, end: dict | None = None) -> Batch:
    """What Spark says of a batch of Kafka's, each time in a new start of the query."""
    return Batch(
        batch_id, "a query", IdSource().new_id(), (SourceRange(BEGIN if start is None else start, end or END),)
    )


def sink_of(table: str, way: str, **options) -> BatchFunction:
    given = {"position_columns": POSITIONS, "flush": False, **WAYS[way], **options}
    return BatchFunction(SparkSink(PaimonTable(table), SinkOptions.of(table, given)), assert_way(way))


OTHERWISE: list[BatchWritten] = []


@pytest.fixture(autouse=True)
def each_batch_is_written_in_its_way():
    """A listener cannot end a batch, so what it finds is looked at behind the test."""
    OTHERWISE.clear()
    yield
    assert OTHERWISE == []


def assert_way(way: str):
    """A listener that keeps each batch which is written in another way."""

    def listen(event) -> None:
        if isinstance(event, BatchWritten) and event.way != way:
            OTHERWISE.append(event)

    return listen


def tables_of(warehouse: str, way: str) -> BatchFunction:
    """The rules of two tables, and dead letters."""
    options = SinkOptions.of(warehouse, {"position_columns": POSITIONS, "flush": False, **WAYS[way]})
    routing = Routing.of(
        warehouse, {"even": {"columns": ["id"]}}, options, dead_letters="rejected", unrouted="dead-letter"
    )
    return BatchFunction(tables_sink("IF(id % 2 = 0, 'even', 'odd')", routing, options), assert_way(way))


def staged(folder: str) -> list[Path]:
    """The files that a batch has left."""
    return [
        path
        for path in Path(folder).rglob("*")
        if path.is_file() and ("staging" in path.parts or "record-" in path.name)
    ]


def assert_refused(sink, rows, given: Batch, outside: int, of: int = 40) -> None:
    before = staged(sink.path)
    with pytest.raises(Misuse) as refused:
        sink._micro_batch(rows, given)
    message = str(refused.value)
    advice(refused.value, "positions.columns").says(
        (
            "Carry the three columns unchanged from the source to the sink, and name them in the order topic, "
            "partition, offset"
        ),
        "or leave position_columns out",
    )
    for word in (
        sink.path,
        f"batch {given.batch_id}",
        f"{outside} of {of} rows",
        *POSITIONS,
        "position_columns",
        "Nothing of the batch",
    ):
        assert word in message, message
    assert staged(sink.path) == before


@pytest.mark.in_turn("rows outside their batch", 1)
@follows("positions.columns")
@pytest.mark.parametrize("way", WAYS)
def test_rows_outside_their_batch_are_refused_and_the_right_columns_go_on(spark, ground, way):
    """They are counted before a record.
    The advice is to name the columns as they came, and then each row is there once."""
    sink = sink_of(ground.table, way)
    for name in SHAPES if way == "driver" else FEW:
        *columns, outside = SHAPES[name]
        assert_refused(sink, frame(spark, *columns), batch(), outside)
    sink._micro_batch(frame(spark, *FITTING), batch())
    assert_each_once(ground.table, set(range(40)))
    sink.close()


@pytest.mark.in_turn("left out position columns", 1)
@follows("positions.columns")
@pytest.mark.parametrize("way", WAYS)
def test_leaving_position_columns_out_goes_on(spark, ground, way):
    """This is the second advice, to the letter: without the option, and without the columns in the query."""
    sink = sink_of(ground.table, way)
    assert_refused(sink, frame(spark, *SHAPES["upper case"][:3]), batch(), 40)
    sink.close()
    without = sink_of(ground.table, way, position_columns=())
    without._micro_batch(frame(spark, *FITTING).drop(*POSITIONS), batch())
    assert_each_once(ground.table, set(range(40)))
    without.close()


@pytest.mark.in_turn("ranges of a later batch", 1)
@pytest.mark.parametrize("way", WAYS)
def test_a_later_batch_is_proven_against_its_own_range(spark, ground, way):
    """Rows of the batch before lie outside, as with a constant.
    What the source says of a second source counts as well."""
    sink = sink_of(ground.table, way, store_position_columns=True)
    sink._micro_batch(frame(spark, *FITTING), batch())
    again = {topic: {part: end + 400 for part, end in parts.items()} for topic, parts in END.items()}
    assert_refused(sink, frame(spark, *FITTING), batch(1, start=END, end=again), 40)
    moved = spark.range(40, 80, 1, 2).selectExpr("id", "CAST(id AS STRING) AS name", *FITTING)
    sink._micro_batch(moved, batch(1, start=END, end=again))
    assert_each_once(ground.table, set(range(80)))
    assert streamsink.read_arrow(ground.table).column("offset").to_pylist() != []
    sink.close()


@pytest.mark.in_turn("ranges of several sources", 1)
@pytest.mark.parametrize("way", WAYS)
def test_a_row_lies_in_the_range_of_one_of_several_sources(spark, ground, way):
    """One source is behind the other on the same partitions, and numbers may be wider than Kafka's."""
    sink = sink_of(ground.table, way)
    behind = {topic: {part: end // 2 for part, end in parts.items()} for topic, parts in END.items()}
    rows = frame(spark, FITTING[0], "id % 4 DIV 2 AS partition", FITTING[2])
    sink._micro_batch(rows, replace(batch(), sources=(SourceRange(BEGIN, behind), SourceRange(behind, END))))
    assert_each_once(ground.table, set(range(40)))
    sink.close()


@pytest.mark.in_turn("rows of all tables that are proven", 1)
@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_rows_of_all_tables_and_dead_letters_are_proven(spark, ground, way):
    """Rows that no table takes are dead letters, and they too lie in the batch."""
    sink = tables_of(ground.table, way)
    assert_refused(sink, frame(spark, *SHAPES["upper case"][:3]), batch(), 40)
    odd = ("IF(id = 17, NULL, concat('t', id % 2)) AS topic", *FITTING[1:])
    assert_refused(sink, frame(spark, *odd), batch(), 1)
    sink._micro_batch(frame(spark, *FITTING), batch())
    assert sorted(ids_in(f"{ground.table}/even")) == list(range(0, 40, 2))
    assert streamsink.read_arrow(f"{ground.table}/rejected").num_rows == 20
    sink.close()


@pytest.mark.in_turn("overlaps that are proven", 1)
@pytest.mark.parametrize("way", WAYS)
def test_an_overlap_is_proven_before_it_is_filtered(spark, ground, way):
    """A row that claims a recorded position of no message in the batch would be taken for an old one, and be lost."""
    sink = sink_of(ground.table, way)
    half = {topic: dict.fromkeys(parts, 200) for topic, parts in END.items()}
    sink._micro_batch(frame(spark, *FITTING).where("id < 20"), batch(end=half))
    sink.close()
    first = {topic: dict.fromkeys(parts, 100) for topic, parts in END.items()}
    sink = sink_of(ground.table, way)
    assert_refused(
        sink,
        frame(spark, *FITTING[:2], "IF(id = 30, 50, id * 10) AS offset").where("id >= 10"),
        batch(start=first),
        1,
        of=20,
    )
    sink._micro_batch(frame(spark, *FITTING).where("id >= 10"), batch(start=first))
    assert_each_once(ground.table, set(range(40)))
    sink.close()


@pytest.mark.parametrize("way", ["tasks", "spark"])
def test_sources_without_numeric_positions_are_left_alone(spark, ground, way):
    """Nothing is filtered by the columns there, so nothing is asked of them."""
    sink = sink_of(ground.table, way)
    opaque = Batch(0, "a query", IdSource().new_id(), (SourceRange(None, {"logOffset": 0}),))
    sink._micro_batch(frame(spark, *SHAPES["upper case"][:3]), opaque)
    assert_each_once(ground.table, set(range(40)))
    sink.close()


@pytest.mark.in_turn("thousands of partitions", 1)
@pytest.mark.parametrize("topics, partitions", [(1, 3000), (3000, 1)])
def test_an_overlap_over_3000_recorded_partitions_is_filtered(spark, ground, topics, partitions):
    """Each partition has its own first new offset; of three rows in each, the one before it is old."""
    numbers = [
        (f"topic-{topic}", str(part), 10 * (topic + part)) for topic in range(topics) for part in range(partitions)
    ]
    below, end = ({name: {} for name, _, _ in numbers} for _ in range(2))
    for name, part, first in numbers:
        below[name][part], end[name][part] = first, first + 10
    sink = sink_of(ground.table, "tasks", store_position_columns=True)
    rows = spark.range(0, 9000, 1, 2).selectExpr(
        "id",
        f"concat('topic-', id DIV 3 % {topics}) AS topic",
        f"CAST(id DIV 3 % {partitions} AS INT) AS partition",
        "id DIV 3 * 10 + id % 3 - 1 AS offset",
    )
    old, new = rows.where("id % 3 = 0 AND offset >= 0"), rows.where("id % 3 > 0")
    sink._micro_batch(old, batch(start={}, end=below))
    sink.close()
    sink = sink_of(ground.table, "tasks", store_position_columns=True)
    sink._micro_batch(rows.where("offset >= 0"), batch(start={}, end=end))
    assert_each_once(ground.table, {row.id for row in old.union(new).collect()})
    sink.close()


def test_the_plan_has_the_same_size_for_three_partitions_and_three_thousand():
    """Only constants grow: the text is the same except for what stands between quotes and for sizes."""

    def without_constants(sql: str) -> str:
        return re.sub(r"[0-9]+", "0", re.sub(r"X'[0-9a-f]*'", "X''", sql))

    def both(topics: int, partitions: int) -> tuple[str, str]:
        names = [f"topic-{number}" for number in range(topics)]
        ranges = PositionRanges(POSITIONS, ({name: dict.fromkeys(range(partitions), (5, 50)) for name in names},))
        below = {name: {str(part): 20 for part in range(partitions)} for name in names}
        return without_constants(position_columns.outside(ranges)), without_constants(
            position_columns.recorded("table", POSITIONS, below)
        )

    assert both(1, 3) == both(1, 3000)
    assert both(3, 1) == both(30, 100)
    # A name of thousands may share its place with another one, and takes arrays of its own then.
    assert all(len(many) <= 2 * len(few) for few, many in zip(both(3, 1), both(3000, 1)))


def test_spark_finds_the_rows_outside_that_arrow_finds(spark, rng):
    """There are any rows and any ranges, one topic or many, and several sources;
    in every row, whatever it holds, Spark raises no error."""
    names = [f"t{number}" for number in range(40)] + ["", "T1", None]
    values = [
        (
            rng.choice(names),
            rng.choice([0, 1, 2, 3, -1, 2**31 - 1, None]),
            rng.choice([*range(20), 2**63 - 1, -(2**63), None]),
        )
        for _ in range(2000)
    ]
    rows = spark.createDataFrame(values, "topic STRING, partition INT, `off``set` BIGINT").coalesce(1).cache()
    held = rows.toArrow().to_batches()
    for topics in (1, 2, 40):
        sources = tuple(
            {
                f"t{number}": {part: (low, low + 8) for part in range(3) for low in [rng.randrange(15)]}
                for number in range(topics)
            }
            for _ in range(rng.randrange(1, 3))
        )
        ranges = PositionRanges(("topic", "partition", "off`set"), sources)
        counted = sum(ranges.outside(piece) for piece in held)
        each = sum(ranges.outside(piece.slice(i, 1)) for piece in held for i in range(piece.num_rows))
        assert rows.where(position_columns.outside(ranges)).count() == counted == each and 0 < counted < len(values)
        below = {topic: {str(part): high for part, (_, high) in parts.items()} for topic, parts in sources[0].items()}
        old = sum((b := below.get(t, {}).get(str(p))) is not None and o is not None and o < b for t, p, o in values)
        assert rows.where(position_columns.recorded("table", ranges.columns, below)).count() == old > 0


@pytest.mark.kafka
def test_a_query_that_does_not_carry_kafka_s_positions_is_stopped_at_its_first_batch(spark, ground, kafka_broker):
    """It is not stopped only at the lost checkpoint, when it is too late.
    With the columns as they came the same checkpoint goes on."""
    topic = new_topic(kafka_broker.bootstrap, 2)
    ids = send(kafka_broker.bootstrap, topic, range(40), 2)

    def run(*columns):
        source = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", kafka_broker.bootstrap)
            .option("subscribe", topic)
            .options(**AT_ONCE)
        )
        rows = (
            source.option("startingOffsets", "earliest")
            .load()
            .selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id", *columns)
        )
        sink = streamsink.to_table(ground.table, position_columns=POSITIONS, flush=False)
        writer = (
            rows.writeStream.foreachBatch(sink)
            .option("checkpointLocation", ground.checkpoint)
            .trigger(availableNow=True)
        )
        streamsink.run(writer.start)

    with pytest.raises(Misuse) as refused:
        run("upper(topic) AS topic", "partition", "offset")
    assert refused.value.kind == "positions.columns" and "40 of 40 rows" in str(refused.value)
    assert topic in str(refused.value) and staged(ground.table) == []
    run(*POSITIONS)
    assert_each_once(ground.table, ids)
