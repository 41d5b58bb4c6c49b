"""What happens in walks into Kafka: to drivers and their clients, to journals and checkpoints, and at the brokers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from streamsink.errors import StreamsinkError
from tests.e2e.kafka_data import add_partitions, delete_before, recreate
from tests.sinks.kafka_world import REAL, set_config
from tests.walks.kafka.world import TRANSACTION_MS

# Kinds that take many seconds.
SLOW = ("few_copies", "broker", "shorter")
# So many calls of the client the publishing of two records makes, about.
MOST_CALLS = 30
_WAIT_S = 30


class Kind(NamedTuple):
    """size: of its numbers."""

    weight: float
    size: int
    does: Callable


KINDS: dict[str, Kind] = {}


def _kind(weight: float, size: int = 1):
    def register(does):
        KINDS[does.__name__] = Kind(weight, size, does)
        return does

    return register


# -- drivers -----------------------------------------------------------------------------------------------------------


@_kind(20)
def batch(walk, most):
    walk.world.batch(1 + most % 12)


@_kind(8, 3)
def die(walk, most, at, after):
    """The driver dies at a call of the client."""
    walk.world.batch(1 + most % 12, (1 + at % MOST_CALLS, after % 2 == 0))


@_kind(5, 3)
def error(walk, most, at, after):
    """A call of the client reports an error, and is done or not."""

    def fails():
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    walk.world.batch(1 + most % 12, (1 + at % MOST_CALLS, after % 2 == 0, fails))


@_kind(5, 3)
def sleep(walk, most, at, after):
    """The driver stands still at a call of the client, and the walk goes on without it until ``wake``."""
    world = walk.world

    def asleep():
        world.live = None
        world.causes.add("asleep")
        walk.meanwhile()

    if walk.depth < 2:
        world.batch(1 + most % 12, (1 + at % MOST_CALLS, after % 2 == 0, asleep))


@_kind(5, 0)
def wake(walk):
    """See ``sleep``."""


@_kind(4)
def two(walk, most):
    """A second driver is started beside the first one, which writes a batch after it."""
    world, first = walk.world, walk.world.live
    if first is None:
        return
    world.live, checkpoint = None, world.checkpoint
    number = checkpoint.committed
    world.batch(1 + most % 12)
    world.causes.add("asleep")
    try:
        if len(checkpoint.ends) > number:
            first[1].batch(world.described(first, checkpoint, number))
    except (StreamsinkError, KafkaException):
        pass  # it is superseded
    finally:
        world.stop(first)


@_kind(3, 0)
def stop(walk):
    walk.world.stop(walk.world.live)


@_kind(4, 0)
def kill(walk):
    """The driver dies between two batches."""
    walk.world.stop(walk.world.live, dies=True)


@_kind(6, 0)
def heal(walk):
    walk.operator.heal()


# -- journals, checkpoints, names --------------------------------------------------------------------------------------


@_kind(2, 0)
def replay(walk):
    """Spark has not written its commit log."""
    world = walk.world
    world.stop(world.live, dies=True)
    world.checkpoint.committed = max(world.checkpoint.committed - 1, 0)


@_kind(2, 0)
def lose_journal(walk):
    walk.world.lose_journal()
    walk.world.causes.add("journal")


@_kind(2, 0)
def copy_journal(walk):
    walk.world.stop(walk.world.live)
    walk.world.copy_journal(walk.backup)


@_kind(3, 0)
def older_journal(walk):
    """An earlier copy of the journal takes its place."""
    world = walk.world
    if Path(walk.backup).exists():
        world.lose_journal()
        shutil.copytree(walk.backup, world.journal)
        world.causes.add("journal")


@_kind(2, 0)
def lose_checkpoint(walk):
    walk.world.new_checkpoint()
    walk.world.causes.add("checkpoint")


@_kind(2)
def older_checkpoint(walk, back):
    """It is as it was some batches before."""
    world = walk.world
    world.stop(world.live)
    kept = max(world.checkpoint.committed - 1 - back % 3, 0)
    del world.checkpoint.ends[kept:]
    world.checkpoint.committed = kept
    world.causes.add("checkpoint")


@_kind(2, 0)
def rename(walk):
    """The query gets another name, or its first one back."""
    world = walk.world
    world.stop(world.live)
    name = world.application
    world.application = name[:-2] if name.endswith("-2") else f"{name}-2"
    world.causes.add("renamed")


@_kind(3)
def publishers(walk, number):
    """The query comes back with another number of publishers."""
    walk.world.stop(walk.world.live)
    walk.world.options["publishers"] = 1 + number % 4


@_kind(2)
def parts(walk, size):
    """The query comes back with larger or smaller transactions."""
    walk.world.stop(walk.world.live)
    walk.world.options["max_transaction_bytes"] = (400, 256 << 20)[size % 2]


# -- the brokers -------------------------------------------------------------------------------------------------------


@_kind(2)
def topic_again(walk, partitions):
    """The topic is deleted and created again."""
    world = walk.world
    recreate(world.bootstrap, world.topic, 1 + partitions % 3)
    world.causes.add("topic")


@_kind(2, 0)
def markers_again(walk):
    """The topic of the markers is deleted, and streamsink or somebody creates it again."""
    world = walk.world
    if walk.has_markers():
        recreate(world.bootstrap, world.markers, 1)
        set_config(world.bootstrap, world.markers, "cleanup.policy", "compact")
        world.causes.add("markers")


@_kind(1, 0)
def markers_gone(walk):
    """The topic of the markers is deleted."""
    if walk.has_markers():
        walk.delete(walk.world.markers)
        walk.world.causes.add("markers")


@_kind(2)
def retention(walk, deletes):
    """The markers are kept for a time only, which may be over already."""
    world = walk.world
    if walk.has_markers():
        set_config(world.bootstrap, world.markers, "cleanup.policy", "delete")
        world.causes.add("retention")
        if deletes % 2:
            count = walk.partitions(world.markers)
            delete_before(world.bootstrap, world.markers, dict.fromkeys(range(count), -1))
            world.causes.add("markers")


@_kind(2)
def more_partitions(walk, of_markers):
    world = walk.world
    topic = world.markers if of_markers % 2 and walk.has_markers() else world.topic
    add_partitions(world.bootstrap, topic, walk.partitions(topic) + 1)


@_kind(1, 0)
def no_marker(walk):
    """Something else writes to the topic of the markers."""
    world = walk.world
    if walk.has_markers():
        producer = REAL({"bootstrap.servers": world.bootstrap})
        producer.produce(world.markers, b"7", b"somebody", 0)
        assert producer.flush(_WAIT_S) == 0
        world.causes.add("markers")


@_kind(4, 2)
def same_id(walk, publisher, ends):
    """Another program takes a transactional id of the query, and leaves a transaction open or ends it."""
    world = walk.world
    name = f"streamsink-{world.application}-{publisher % 2}"
    producer = REAL({"bootstrap.servers": world.bootstrap, "transactional.id": name, "transaction.timeout.ms": 2000})
    producer.init_transactions(_WAIT_S)
    producer.begin_transaction()
    producer.produce(walk.elsewhere, b"?")
    producer.flush(_WAIT_S)
    if ends % 3 == 0:
        producer.abort_transaction(_WAIT_S)
    elif ends % 3 == 1:
        producer.commit_transaction(_WAIT_S)


@_kind(3)
def left_open(walk, where):
    """Another application leaves a transaction open, in the topic or in that of the markers."""
    world = walk.world
    topic = world.markers if where % 2 and walk.has_markers() else world.topic
    of = {"transactional.id": f"other-{len(walk.done)}-{world.topic}", "transaction.timeout.ms": 3_000}
    producer = REAL({"bootstrap.servers": world.bootstrap, **of})
    producer.init_transactions(_WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"?", b"another", 0)
    producer.flush(_WAIT_S)
    world.foreign.append(producer)


@_kind(3, 2)
def lowered(walk, most, at):
    """The topic takes smaller messages when a record waits to be published."""
    world = walk.world

    def lower():
        # What the broker writes to end a transaction has 78 bytes.
        set_config(world.bootstrap, world.topic, "max.message.bytes", "79")
        world.causes.add("limit")

    world.batch(1 + most % 12, (1 + at % 4, False, lower))


@_kind(1, 0)
def few_copies(walk):
    """The topic has fewer copies than it must have, until an error says so."""
    world = walk.world
    set_config(world.bootstrap, world.topic, "min.insync.replicas", "2")
    world.mends = lambda: set_config(world.bootstrap, world.topic, "min.insync.replicas", "1")


@_kind(2, 3)
def broker(walk, most, at, after):
    """The broker is killed with SIGKILL at a call of the client, and started again."""
    if walk.broker is not None:
        walk.world.batch(1 + most % 12, (1 + at % MOST_CALLS, after % 2 == 0, walk.restart))


@_kind(0.2, 0)
def shorter(walk):
    """The broker comes back with a lower limit for the time of transactions."""
    if walk.broker is not None:
        walk.restart(longest_ms=TRANSACTION_MS - 1000)
        walk.world.causes.add("shorter")
