"""The services that other tests rely on are real and keep their promises:
the broker its messages, Spark its connector."""

import os
import subprocess
import uuid

import pytest

from tests.services.kafka import KafkaBroker
from tools import truststore

MESSAGES = 1000


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    from confluent_kafka import Producer

    refused = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 60000})
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=lambda error, _: refused.append(error) if error else None)
    assert producer.flush(60) == 0
    assert refused == []


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, timeout=200)
        assert [message.error() for message in messages if message.error()] == []
        return [message.value().decode() for message in messages]
    finally:
        consumer.close()


@pytest.mark.soak
@pytest.mark.kafka
def test_a_broker_keeps_acknowledged_messages_when_it_is_killed(tmp_path):
    values = [f"m{number}" for number in range(MESSAGES)]
    with KafkaBroker(tmp_path) as broker:
        address, first = broker.bootstrap, broker.pid
        produce(broker.bootstrap, "kept", values)
        broker.kill()
        broker.restart()
        assert broker.bootstrap == address
        assert broker.pid != first
        assert consume(broker.bootstrap, "kept", MESSAGES) == values
        produce(broker.bootstrap, "kept", ["after"])
        last = broker.pid
    with pytest.raises(ProcessLookupError):
        os.kill(last, 0)


@pytest.mark.kafka
@pytest.mark.spark
def test_spark_reads_every_message_of_a_topic_with_the_resolved_connector(spark, kafka_broker, tmp_path):
    values = [f"m{number}" for number in range(MESSAGES)]
    topic = f"t-{uuid.uuid4().hex}"
    produce(kafka_broker.bootstrap, topic, values)
    seen = []
    options = {"kafka.bootstrap.servers": kafka_broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    source = spark.readStream.format("kafka").options(**options).load().selectExpr("cast(value as string) v")
    query = (
        source.writeStream.foreachBatch(lambda frame, _: seen.extend(row.v for row in frame.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert seen == values


@pytest.mark.spark
def test_the_session_has_paimons_library(spark):
    """The jar is on the session's class path, so a test may ask Paimon itself whether it can read what we wrote."""
    loader = spark.sparkContext._jvm.Thread.currentThread().getContextClassLoader()
    assert loader.loadClass("org.apache.paimon.catalog.CatalogFactory") is not None


@pytest.mark.compat
def test_pypaimon_can_be_imported(pypaimon_python):
    done = subprocess.run(
        [pypaimon_python, "-c", "import pypaimon, pyarrow; print(pyarrow.__version__)"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split(".")[0]) < 20


@pytest.mark.spark
def test_java_reads_the_trust_store_that_is_made_of_pythons_certificates(spark, tmp_path):
    """A Java from a wheel gets it: behind a proxy with a certificate of its own nothing could be resolved otherwise."""
    certificates = truststore.trusted_certificates()
    file = tmp_path / "trust.jks"
    file.write_bytes(truststore.jks(certificates))
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
    password = gateway.new_array(jvm.char, len(truststore.PASSWORD))
    for place, letter in enumerate(truststore.PASSWORD):
        password[place] = letter
    # With the password Java checks the checksum too.
    store = jvm.java.security.KeyStore.getInstance(jvm.java.io.File(str(file)), password)
    assert store.size() == len(certificates)
