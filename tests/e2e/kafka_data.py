"""Messages of a topic, whose values are ids."""

import time
import uuid

WAIT_S = 120
# For Spark's source, which asks where a topic ends behind a request for more messages on the same connection: that one
# waits for half a second if nobody says.
AT_ONCE = {"kafka.fetch.max.wait.ms": "50"}


def new_topic(bootstrap: str, partitions: int, topic: str | None = None, settings: dict | None = None) -> str:
    """Create a topic of its own. settings: how a client reaches the broker, besides its address."""
    from confluent_kafka.admin import NewTopic

    topic = topic or f"t-{uuid.uuid4().hex}"
    admin = _admin(bootstrap, settings)
    for created in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        created.result(WAIT_S)
    _wait_for(admin, topic, partitions)
    return topic


def _wait_for(admin, topic: str, partitions: int) -> None:
    """A broker answers that a topic is created before it tells clients of it: on a busy machine they see the gap."""
    end = time.monotonic() + WAIT_S
    while True:
        told = admin.list_topics(topic, WAIT_S).topics[topic]
        if told.error is None and sum(each.leader >= 0 for each in told.partitions.values()) == partitions:
            return
        assert time.monotonic() < end, f"{topic} was created, and the broker does not tell of it: {told.error}"
        time.sleep(0.02)


def recreate(bootstrap: str, topic: str, partitions: int, settings: dict | None = None) -> None:
    """Delete the topic and create one of the same name, without messages."""
    admin = _admin(bootstrap, settings)
    for deleted in admin.delete_topics([topic]).values():
        deleted.result(WAIT_S)
    new_topic(bootstrap, partitions, topic, settings)


def add_partitions(bootstrap: str, topic: str, partitions: int) -> None:
    """Give the topic so many partitions."""
    from confluent_kafka.admin import NewPartitions

    admin = _admin(bootstrap)
    for made in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        made.result(WAIT_S)


def delete_before(bootstrap: str, topic: str, offsets: dict[int, int]) -> None:
    """Delete the messages below these offsets, as retention does."""
    from confluent_kafka import TopicPartition

    admin = _admin(bootstrap)
    for deleted in admin.delete_records([TopicPartition(topic, at, offset) for at, offset in offsets.items()]).values():
        deleted.result(WAIT_S)


def send(bootstrap: str, topic: str, ids, partitions: int, settings: dict | None = None) -> set[int]:
    """Send one message for each id, spread evenly. Returns when all are acknowledged."""
    send_to(bootstrap, topic, ((i, i % partitions) for i in ids), settings)
    return set(ids)


def send_to(bootstrap: str, topic: str, messages, settings: dict | None = None, text=str) -> None:
    """Send messages (id, partition), in this order. text: makes the value of an id.

    The broker lives, so that no message is sent twice; an idempotent client would wait for half a second first.
    """
    from confluent_kafka import Producer

    refused = []
    own = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "max.in.flight.requests.per.connection": 1,
        "linger.ms": 5,
        "queue.buffering.max.messages": 1_000_000,
    }
    producer = Producer(own | (settings or {}))
    for i, partition in messages:
        producer.produce(
            topic, text(i).encode(), partition=partition, on_delivery=lambda e, _: refused.append(e) if e else None
        )
        if i % 1000 == 0:
            producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    assert refused == []


def _admin(bootstrap: str, settings: dict | None = None):
    """A client, which the caller holds until it has its answers: they end with it."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap} | (settings or {}))
