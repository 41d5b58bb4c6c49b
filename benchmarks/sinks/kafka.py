"""Into Kafka: exactly once, beside Spark's own sink, which is at least once."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.data import Sizes
from benchmarks.report import Table, at_least, at_most
from benchmarks.sinks import turns
from benchmarks.stores import NO_SERVER
from streamsink.kafka import KafkaSink
from streamsink.sink import to_sink
from tests.e2e.kafka_data import new_topic
from tests.services.kafka import KafkaBroker

SPARK, SYNC, ASYNC = "Spark's Kafka sink (at least once)", "streamsink", 'streamsink, publish="async"'
_PARTITIONS = 4
_WAIT_S = 0.5


def kafka(spark, folder: Path, sizes: Sizes) -> list:
    """Messages with a key and a JSON value; each way has topics of its own."""
    folder /= "kafka"
    try:
        with KafkaBroker(folder / "broker") as broker:
            place = _place(broker.bootstrap)
            large, speed, *_ = turns.large(spark, folder, place, sizes)
            micro, took, *_ = turns.micro(spark, folder, place, sizes)
    except NO_SERVER as why:
        return [Table("Into Kafka", ("not measured",), [[str(why)]])]
    return [
        large,
        micro,
        at_least("Kafka: rows/s against Spark's own sink", turns.ratio(speed, SYNC, SPARK), 0.6),
        at_least("Kafka, async: rows/s against Spark's own sink", turns.ratio(speed, ASYNC, SPARK), 0.9),
        at_most("Kafka: ms of a micro-batch against Spark's own sink", turns.ratio(took, SYNC, SPARK), 1.5),
        at_most("Kafka, async: ms of a micro-batch against Spark's own sink", turns.ratio(took, ASYNC, SPARK), 1.5),
    ]


def _place(bootstrap: str) -> turns.Place:
    def spark_own(rows: DataFrame, at: Path, topic: str) -> DataStreamWriter:
        return rows.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)

    def ours(publish: str) -> turns.Way:
        begun = []

        def start(rows: DataFrame, at: Path, topic: str) -> DataStreamWriter:
            destination = KafkaSink(bootstrap, topic, journal=str(at / "journal"))
            begun[:] = [to_sink(destination, lambda event: None, application=topic, publish=publish)]
            return rows.writeStream.foreachBatch(begun[0])

        return turns.Way(start, lambda: begun[0].close())

    return turns.Place(
        "Into Kafka",
        {SPARK: turns.Way(spark_own), SYNC: ours("sync"), ASYNC: ours("async")},
        make=lambda topic: new_topic(bootstrap, _PARTITIONS, topic),
        count=lambda topic: committed(bootstrap, topic),
        shape=lambda rows: rows.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value"),
    )


def committed(bootstrap: str, topic: str) -> int:
    """How many messages a reader of committed ones sees."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "count", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    # A commit is answered before its messages can be read: they are waited for up to these ends.
    uncommitted = Consumer({**settings, "isolation.level": "read_uncommitted"})
    places = [TopicPartition(topic, number, 0) for number in range(_PARTITIONS)]
    ends = [uncommitted.get_watermark_offsets(place)[1] for place in places]
    uncommitted.close()
    consumer.assign(places)
    found, ended = 0, set()
    while len(ended) < _PARTITIONS:
        for message in consumer.consume(10_000, _WAIT_S):
            if message.error() is None:
                found += 1
            elif message.offset() >= ends[message.partition()]:
                ended.add(message.partition())
    consumer.close()
    return found
