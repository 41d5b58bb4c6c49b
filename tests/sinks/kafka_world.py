"""A query that writes numbered messages into a real Kafka, driven without Spark, and the clients of it that die."""

import itertools
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamsink.clock import Clock
from streamsink.options import SinkOptions
from streamsink.sinks.kafka import client
from streamsink.sinks.kafka.sink import KafkaSink
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from tests.e2e.kafka_data import new_topic

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string())])
KEYS = 5
_READ_S = 120
# The real function, whatever a test has put in its place.
REAL = client.new_producer


def rows(start: int, end: int) -> pa.RecordBatch:
    """The messages of these numbers. Each key has every fifth of them."""
    numbers = range(start, end)
    return pa.RecordBatch.from_pydict(
        {"key": [f"k{n % KEYS}" for n in numbers], "value": [str(n) for n in numbers]}, schema=SCHEMA
    )


class Driver(MicroBatchDriver):
    """A driver over a Kafka sink."""

    sink: KafkaSink

    def destination(self):
        return self.sink


@dataclass
class KafkaWorld:
    """One topic, one journal, one query. options: of the sink, and ``settings`` those of the query."""

    bootstrap: str
    folder: str
    partitions: int = 2
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        self.application = f"a{uuid.uuid4().hex[:12]}"
        self.markers = f"markers-{self.application}"
        self.topic = new_topic(self.bootstrap, self.partitions)
        self.checkpoint = SparkCheckpoint(str(uuid.uuid4()))

    def sink(self, **changes: Any) -> KafkaSink:
        of = {"topic": self.topic, "journal": f"{self.folder}/{self.application}", "marker_topic": self.markers}
        return KafkaSink(self.bootstrap, **{**of, **self.options, **changes})

    def driver(self, **changes: Any) -> Driver:
        settings = {"application": self.application, "restore": "restore-and-continue", **self.settings}
        driver = Driver("kafka", SCHEMA, rows, SinkOptions.of("kafka", settings))
        driver.sink = self.sink(**changes)
        return driver

    def run(self, *ends: int, checkpoint: SparkCheckpoint | None = None, **changes: Any) -> None:
        """Run the query up to the end of the last batch. changes: of the sink."""
        self.driver(**changes).run(local_file_io(), checkpoint or self.checkpoint, ends)

    def seen(self, settled: bool = True) -> list[list[int]]:
        """The numbers that a reader sees, of each partition in its order. settled: no transaction may be open."""
        return read(self.bootstrap, self.topic, settled)


def read(bootstrap: str, topic: str, settled: bool = True, patience_s: float = _READ_S) -> list[list[int]]:
    """The numbers that are committed in a topic, of each partition in its order."""
    partitions = messages(bootstrap, topic, settled, patience_s)
    return [[int(message.value()) for message in partition] for partition in partitions]


def _end(consumer: Any, place: Any) -> int:
    """The offset behind the last message. A new topic may have no leader for a moment, which is an error."""
    from confluent_kafka import KafkaError, KafkaException

    clock, begun = Clock(), Clock().monotonic_ms()
    while True:
        try:
            return consumer.get_watermark_offsets(place, _READ_S)[1]
        except KafkaException as failed:
            passes = failed.args[0].code() in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
            if not passes or clock.monotonic_ms() - begun > _READ_S * 1000:
                raise
        clock.sleep_ms(100)


def messages(bootstrap: str, topic: str, settled: bool = True, patience_s: float = _READ_S) -> list[list[Any]]:
    """The messages that are committed in a topic, of each partition in its order.

    settled: wait for transactions that are open, because a commit is answered before readers see it. patience_s: for at
    most so long; with the default it is a failure when one stays open.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    settings |= {"enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    all_of_it = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "isolation.level": "read_uncommitted"})
    partitions = len(consumer.list_topics(topic, _READ_S).topics[topic].partitions)
    places = [TopicPartition(topic, number) for number in range(partitions)]
    ends = [_end(all_of_it, place) if settled else 0 for place in places]
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: dict[int, list[Any]] = defaultdict(list)
    ended: set[int] = set()
    ended_once: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(patience_s)
        if message is None and patience_s < _READ_S and ended_once >= set(range(partitions)):
            break
        assert message is not None, f"{topic} cannot be read"
        if message.error() is None:
            found[message.partition()].append(message)
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended_once.add(message.partition())
            if message.offset() >= ends[message.partition()]:
                ended.add(message.partition())
    consumer.close()
    return [found[number] for number in range(partitions)]


def set_config(bootstrap: str, topic: str, name: str, value: str) -> None:
    """Give the topic this setting, and wait until the broker tells of it: it answers before."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    of = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.incremental_alter_configs([of]).values():
        done.result(_READ_S)
    clock, asked = Clock(), ConfigResource(ConfigResource.Type.TOPIC, topic)
    end = clock.monotonic_ms() + _READ_S * 1000
    while any(told.result(_READ_S)[name].value != value for told in admin.describe_configs([asked]).values()):
        assert clock.monotonic_ms() < end, f"{topic}: the broker does not tell of {name}={value}"
        clock.sleep_ms(20)


def forget_facts() -> None:
    """What this process knows of topics is asked again, as if a minute had passed."""
    client._known.cache_clear()


@contextmanager
def open_transaction(world: KafkaWorld, topic: str, partition: int = 0) -> Iterator[None]:
    """Within it another application has a transaction open there; it is aborted in the end."""
    producer = REAL({"bootstrap.servers": world.bootstrap, "transactional.id": f"other-{uuid.uuid4().hex}"})
    producer.init_transactions(_READ_S)
    producer.begin_transaction()
    producer.produce(topic, b"?", b"another", partition)
    producer.flush(_READ_S)
    try:
        yield
    finally:
        producer.abort_transaction(_READ_S)


def check(seen: list[list[int]], end: int) -> None:
    """Each number below ``end`` is there once, and those of a key are in order."""
    found = sorted(itertools.chain(*seen))
    missing, doubled = sorted(set(range(end)) - set(found)), sorted({n for n in found if found.count(n) > 1})
    assert found == list(range(end)), f"missing: {missing}, doubled: {doubled}"
    for partition in seen:
        for key in range(KEYS):
            own = [number for number in partition if number % KEYS == key]
            assert own == sorted(own), f"key {key}: {own}"


class Dying:
    """Counts the calls of all producers, and dies before or after one of them; every later call dies, too.

    at: the number of that call, from 1. only: count the calls of this name. act: called instead of dying.
    """

    CALLS = ("init_transactions", "begin_transaction", "produce", "flush", "commit_transaction", "abort_transaction")

    def __init__(self, at: int = 0, after: bool = False, act: Callable[[], None] | None = None, only: str = ""):
        self.at, self.after, self.act, self.only = at, after, act, only
        self.count = 0
        self.log: list[str] = []
        self.is_dead = False

    def __call__(self, settings: dict[str, Any]) -> "DyingProducer":
        return DyingProducer(self, REAL(settings))

    def made(self, name: str, call: Callable[[], Any]) -> Any:
        if self.is_dead:
            raise InjectedCrash(f"dead before {name}")
        self.log.append(name)
        counts = self.only in ("", name)
        self.count += counts
        number = self.count if counts else 0
        if number == self.at and number and not self.after:
            self._now(name)
        done = call()
        if number == self.at and number and self.after:
            self._now(name)
        return done

    def _now(self, name: str) -> None:
        if self.act is not None:
            self.act()
            return
        self.is_dead = True
        raise InjectedCrash(f"dies at {name}")


class DyingProducer:
    """A real producer whose calls are counted."""

    def __init__(self, dying: Dying, inner: Any):
        self._dying, self._inner = dying, inner

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in Dying.CALLS:
            return call
        return lambda *args, **named: self._dying.made(name, lambda: call(*args, **named))
