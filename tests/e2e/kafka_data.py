"""Messages of a topic: each value is an id."""
import uuid


def new_topic(bootstrap: str, partitions: int) -> str:
    """A topic of its own."""
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"t-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        created.result(30)
    return topic


def send(bootstrap: str, topic: str, ids, partitions: int) -> set[int]:
    """One message for each id, spread evenly; returns when all are acknowledged."""
    from confluent_kafka import Producer

    refused = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for i in ids:
        producer.produce(topic, str(i).encode(), partition=i % partitions, on_delivery=lambda e, _: refused.append(e) if e else None)
        if i % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert refused == []
    return set(ids)
