"""The topic that a job writes into: in a given cluster or on a broker of its own; and what is committed there."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.report import Outcome

PARTITIONS, WAIT_S = 3, 60


@contextlib.contextmanager
def cluster(brokers: str | None, folder: Path) -> Iterator[str]:
    """The given cluster; or a broker whose data are in ``folder``, which ends with the job."""
    if brokers:
        yield brokers
        return
    from tests.services.kafka import KafkaBroker  # from the checkout; Kafka's jars come from the registry

    with KafkaBroker(folder) as own:
        yield own.bootstrap


def create(brokers: str, topic: str) -> None:
    """Create the topic unless it is there."""
    # As it ends the client has no other place to tell of what it has not read than the job's own output.
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 5})
    try:
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(WAIT_S)
    except KafkaException as refused:
        if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def outcome(given_as: str, expected: int, brokers: str, topic: str) -> Outcome:
    """Compare what is committed in the topic with orders 0 to ``expected`` - 1, each of which must be there once."""
    settings = {"bootstrap.servers": brokers, "group.id": "closing-table", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    partitions = consumer.list_topics(topic, WAIT_S).topics[topic].partitions
    # A commit is answered before all readers of committed messages see it: they are waited for up to these ends.
    uncommitted = Consumer({**settings, "isolation.level": "read_uncommitted"})
    places = [TopicPartition(topic, number, 0) for number in partitions]
    ends = {place.partition: uncommitted.get_watermark_offsets(place, WAIT_S)[1] for place in places}
    uncommitted.close()
    consumer.assign(places)
    rows, orders, ended = 0, set(), set()
    while ended < ends.keys():
        message = consumer.poll(WAIT_S)
        if message is None:
            raise TimeoutError(
                f"topic {topic} at {brokers} cannot be read to its end: the broker does not answer, or another "
                "producer has left a transaction open there"
            )
        if message.error() is None:
            rows += 1
            orders.add(int(message.key()))
        elif message.error().code() == KafkaError._PARTITION_EOF and message.offset() >= ends[message.partition()]:
            ended.add(message.partition())
    consumer.close()
    mine = sum(0 <= order < expected for order in orders)
    return Outcome(given_as, expected, rows=rows, duplicates=rows - len(orders), lost=expected - mine)
