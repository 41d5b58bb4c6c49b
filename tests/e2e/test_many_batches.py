"""What the driver of a Kafka query holds after very many batches; ``tests/test_grows.py`` has the other sources."""

import pytest

from benchmarks.grows import batches
from tests.e2e.kafka_data import new_topic, send

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
PARTITIONS, EARLY, LATE = 3, 10, 60


@pytest.mark.soak
def test_what_the_driver_of_a_kafka_query_holds_does_not_grow(spark, tmp_path, kafka_broker):
    """The broker is asked in each batch, through objects of the JVM: none of them is kept."""
    topic = new_topic(kafka_broker.bootstrap, PARTITIONS)
    send(kafka_broker.bootstrap, topic, range((LATE + batches.WARM_UP) * PARTITIONS), PARTITIONS)
    options = {"kafka.bootstrap.servers": kafka_broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=PARTITIONS).load()
    rows = rows.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) id", "topic", "partition", "offset")
    positions = ("topic", "partition", "offset")
    early, late = batches.of_a_query(spark, tmp_path, (EARLY, LATE), rows, position_columns=positions).values()
    batches.check_flat(early, late, (EARLY, LATE))
