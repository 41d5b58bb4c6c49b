"""Topics with their offsets, on both sides of a query."""

import pytest

import streamsink
from streamsink.kafka import KafkaSink
from streamsink.sink import FanOut, PaimonTable, to_sink
from tests.e2e.kafka_data import AT_ONCE, new_topic, send
from tests.lineage.test_queries import IN_TURN, listener, rows_of, run

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
PARTITIONS = 2


@IN_TURN
def test_a_topic_to_a_table_and_a_topic(spark, ground, collector, kafka_broker):
    """The offsets of all messages add up to those of the topic, by partition, with the ids of cluster and topic."""
    bootstrap = kafka_broker.bootstrap
    source, target = new_topic(bootstrap, PARTITIONS), new_topic(bootstrap, 1)
    send(bootstrap, source, range(30), PARTITIONS)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10)
    df = reader.options(**AT_ONCE).load().selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
    topic = KafkaSink(bootstrap, target, marker_topic=f"markers-{target}")
    to = FanOut({"table": PaimonTable(ground.table), "topic": topic}, journal=str(ground.root / "journal"))
    lineage = listener(collector, job="orders")
    run(df, to_sink(to, listener=lineage, application=target), ground)
    assert lineage.close(30_000) and collector.refused == [] and lineage.dropped == 0
    read = []
    for event in collector.events:
        [topic_read] = event["inputs"]
        assert (topic_read["namespace"], topic_read["name"]) == (f"kafka://{bootstrap}", source)
        read += [topic_read["inputFacets"]["streamsink_offsets"]] if topic_read["inputFacets"] else []
    assert {facet["topicId"] for facet in read} != {""} and len({facet["clusterId"] for facet in read}) == 1
    for part in range(PARTITIONS):
        spans = [
            (each["start"], each["end"]) for facet in read for each in facet["partitions"] if each["partition"] == part
        ]
        assert [end for _, end in spans[:-1]] == [start for start, _ in spans[1:]], "one follows the other"
        assert (spans[0][0] or 0, spans[-1][1]) == (0, 15)
    written = {(out["namespace"], out["name"]): 0 for out in collector.events[-1]["outputs"]}
    assert written.keys() == {(f"kafka://{bootstrap}", target), ("file", ground.table)}
    for event in collector.events:
        for out in event["outputs"]:
            written[(out["namespace"], out["name"])] += rows_of(out)
    assert set(written.values()) == {30}
    assert {event["job"]["name"] for event in collector.events} == {"orders"}
    assert streamsink.read_arrow(ground.table).num_rows == 30
