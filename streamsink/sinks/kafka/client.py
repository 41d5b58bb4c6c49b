"""What is asked of confluent-kafka: its clients, their settings, and what a broker says of its topics.

The only module that imports the library, and it does so when it is first called. EXECUTOR and driver.
"""

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamsink.clock import Clock
from streamsink.errors import Misuse

Settings = Mapping[str, Any]

REQUEST_TIMEOUT_S = 60.0
# What the brokers say of a topic is asked again after so long.
_FACTS_AGE_MS = 60_000
_LOOKS, _LOOK_MS = 20, 100
# Settings on which what is promised rests, and those that streamsink sets for itself.
_OWN = ("bootstrap.servers", "transactional.id", "isolation.level", "group.id", "enable.auto.commit")
_PROMISED = ("acks", "request.required.acks", "enable.idempotence", "enable.gapless.guarantee")
_TRANSACTION_TIMEOUT = "transaction.timeout.ms"
_DELIVERY_TIMEOUTS = ("delivery.timeout.ms", "message.timeout.ms")
# Settings that only producers have: their beginnings.
_OF_PRODUCERS = (
    "acks",
    "request.",
    "enable.",
    "transaction",
    "delivery.",
    "message.",
    "linger.",
    "batch.",
    "compression.",
    "queue.",
    "retries",
    "max.in.flight",
    "partitioner",
    "sticky.",
    "retry.",
)
_OF_ALL = ("enable.ssl.certificate.verification", "enable.metrics.push", "message.copy.max.bytes")
_log = logging.getLogger("streamsink.kafka")


@dataclass(frozen=True)
class TopicFacts:
    """What a broker says of a topic.

    topic_id: no other topic ever has it; the name where the broker tells no ids. message_bytes: ``max.message.bytes``,
    the largest batch of messages that the topic takes. cleanup: ``cleanup.policy``. is_internal: the brokers write it.
    """

    name: str
    topic_id: str
    partitions: int
    message_bytes: int
    cleanup: str
    is_internal: bool = False


def kafka() -> Any:
    """The library. Raises Misuse where it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as missing:
        raise Misuse(
            "confluent-kafka, the client of the Kafka sink, is not installed in this Python. Nothing was written. "
            "Install it with: pip install 'streamsink[kafka]', on the driver and in the Python of the executors",
            kind="kafka.no-client",
        ) from missing
    return confluent_kafka


def check_options(path: str, options: Settings, exactly_once: bool, promised: bool) -> None:
    """Raises Misuse for a setting of the client on which what the sink promises rests.

    promised: whether it promises anything.
    """
    wrong = sorted(set(options).intersection(_OWN + (_PROMISED if promised else ())))
    if wrong:
        raise Misuse(
            f"{path}: kafka_options has {', '.join(wrong)}, which streamsink sets by itself because what it promises "
            "rests on it. Nothing was written. Leave it out",
            kind="kafka.option",
        )
    limit = options.get(_TRANSACTION_TIMEOUT)
    delivery = next((options[name] for name in _DELIVERY_TIMEOUTS if name in options), None)
    if exactly_once and delivery is not None and int(delivery) >= int(limit or _TIMEOUT_MS):
        raise Misuse(
            f"{path}: kafka_options has a delivery timeout of {delivery} ms, expected less than the "
            f"{limit or _TIMEOUT_MS} ms of transaction.timeout.ms, in which all messages of a transaction must be "
            "delivered. Nothing was written. Set delivery.timeout.ms lower, or transaction.timeout.ms higher",
            kind="kafka.option",
        )


# Of a transaction, unless the option says so. A dead driver's transaction holds back readers for at most so long.
_TIMEOUT_MS = 300_000


def transaction_timeout_ms(options: Settings) -> int:
    """After so long without an end the broker aborts a transaction."""
    return int(options.get(_TRANSACTION_TIMEOUT, _TIMEOUT_MS))


def new_producer(settings: Settings) -> Any:
    """A producer of the library. Tests put another function here, whose producers die."""
    return kafka().Producer(dict(settings), logger=_log)


# Warnings and worse. What a client only tells as it ends has no log any more, and would stand in the job's own output.
_TOLD = {"log_level": 5}

# What may wait in a producer. With the client's own number of messages (100,000) a large batch waits for the broker
# again and again, and cannot be read meanwhile; with its own bytes (1 GiB) it takes more memory than a driver may have.
_QUEUE = {"queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 256 << 10}


def producer_settings(servers: str, options: Settings) -> dict[str, Any]:
    """The settings of any producer. It partitions by key as Spark's sink and Java's clients do."""
    return {"bootstrap.servers": servers, "partitioner": "murmur2_random", "linger.ms": 5, **_QUEUE, **_TOLD, **options}


def transactional_settings(servers: str, options: Settings, transactional_id: str) -> dict[str, Any]:
    """The settings of a producer with transactions."""
    return {
        **producer_settings(servers, options),
        "transactional.id": transactional_id,
        "enable.idempotence": True,
        "acks": "all",
        _TRANSACTION_TIMEOUT: transaction_timeout_ms(options),
    }


def new_consumer(servers: str, options: Settings, *, committed: bool) -> Any:
    """A consumer that is told what to read. committed: whether it leaves out what is not committed."""
    own = {
        "group.id": "streamsink-markers",  # the library wants one; no group is joined, and nothing is kept of it
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 10,  # an answer that waits for messages holds up all questions behind it
    }
    return kafka().Consumer(_of_clients(servers, options) | own, logger=_log)


def new_admin(servers: str, options: Settings) -> Any:
    """A client for questions about topics; it ends when it is let go."""
    return kafka().admin.AdminClient(_of_clients(servers, options), logger=_log)


def _of_clients(servers: str, options: Settings) -> dict[str, Any]:
    kept = {name: value for name, value in options.items() if name in _OF_ALL or not name.startswith(_OF_PRODUCERS)}
    return {"bootstrap.servers": servers, **_TOLD, **kept}


def describe(admin: Any, topic: str) -> TopicFacts | None:
    """What the brokers say of the topic; None where there is none. It creates no topic."""
    library = kafka()
    try:
        said = admin.describe_topics(library.TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)
        described = said[topic].result()
    except library.KafkaException as failed:
        if failed.args[0].code() in (
            library.KafkaError.UNKNOWN_TOPIC_OR_PART,
            library.KafkaError.TOPIC_EXCEPTION,  # a name that no topic can have
        ):
            return None
        raise
    configs = _configs(admin, library.admin.ConfigResource.Type.TOPIC, topic)
    return TopicFacts(
        topic,
        str(described.topic_id or topic),
        len(described.partitions),
        int(configs["max.message.bytes"]),
        configs["cleanup.policy"],
        bool(described.is_internal),
    )


def describe_new(admin: Any, topic: str, partitions: int = 1) -> TopicFacts | None:
    """As ``describe``, of a topic that may have been made a moment ago, perhaps with so many partitions.

    Brokers hear of it one after another.
    """
    found = describe(admin, topic)
    for _ in range(_LOOKS):
        if found is not None and found.partitions >= partitions:
            break
        Clock().sleep_ms(_LOOK_MS)
        found = describe(admin, topic)
    return found


def cluster_id(admin: Any) -> str:
    """The id of the cluster."""
    return str(admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result().cluster_id)


def brokers(admin: Any) -> int:
    """How many brokers the cluster has."""
    return len(admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result().nodes)


def longest_transaction_ms(admin: Any) -> int | None:
    """``transaction.max.timeout.ms`` of the brokers; None where this user may not ask for it."""
    library = kafka()
    nodes = admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result().nodes
    try:
        configs = _configs(admin, library.admin.ConfigResource.Type.BROKER, str(nodes[0].id))
    except library.KafkaException as refused:
        if refused.args[0].code() == library.KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return None
        raise
    return int(configs["transaction.max.timeout.ms"])


def _configs(admin: Any, kind: Any, name: str) -> dict[str, str]:
    resource = kafka().admin.ConfigResource(kind, name)
    said = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource].result()
    return {key: entry.value for key, entry in said.items()}


@functools.lru_cache(maxsize=16)
def _known(servers: str, options: tuple[tuple[str, Any], ...]) -> dict[str, tuple[float, TopicFacts | None]]:
    """What this process knows of topics, with the time at which it asked."""
    return {}


def facts_of(servers: str, options: Settings, topic: str, fresh: bool = False) -> TopicFacts | None:
    """As ``describe``, from what this process has asked within the last minute where it knows the topic.

    fresh: ask anyhow.
    """
    known, now = _known(servers, tuple(sorted(options.items()))), Clock().monotonic_ms()
    asked_ms, found = known.get(topic, (0.0, None))
    if found is None or fresh or now - asked_ms > _FACTS_AGE_MS:
        found = describe(new_admin(servers, options), topic)
        known[topic] = now, found
    return found
