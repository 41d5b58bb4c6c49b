"""S15 on a real broker:
a topic is deleted and created again, between two runs or within one, or another cluster has a topic of that name."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from benchmarks.accidents.ground import Ground, reason
from streamsink.errors import StreamsinkError
from tests.e2e.kafka_data import new_topic, recreate, send
from tests.services.kafka import OTHER_CLUSTER_ID, KafkaBroker

PARTITIONS = 2
OLD, FEW, MANY = range(40), range(100, 110), range(100, 200)
TICK_S, WAIT_S, LOOK_S = 4, 40, 0.2


class Clusters:
    """Two clusters: brokers that live as long as the context, or those whose addresses are given."""

    def __init__(self, folder: Path, addresses: Sequence[str] = ()):
        own = [] if addresses else [KafkaBroker(folder / "first"), KafkaBroker(folder / "second", OTHER_CLUSTER_ID)]
        self._own, self._addresses = own, list(addresses)

    def __enter__(self) -> "Clusters":
        for broker in self._own:
            broker.start()
            self._addresses.append(broker.bootstrap)
        self.first, self.second = self._addresses
        return self

    def __exit__(self, *_) -> None:
        for broker in self._own:
            broker.stop()

    def situations(self) -> dict[str, Callable[[Ground], str]]:
        return {
            "S15 recreated between runs, fewer messages": lambda ground: self.between(ground, FEW),
            "S15 the same, then failOnDataLoss=false": lambda ground: self.between(ground, FEW, failOnDataLoss="false"),
            "S15 recreated between runs, more messages": lambda ground: self.between(ground, MANY),
            "S15 recreated and checkpoint deleted": lambda ground: self.between(ground, MANY, lose_checkpoint=True),
            "S15 recreated within a run": self.within,
            "S15 another cluster": self.elsewhere,
        }

    def between(self, ground: Ground, new: range, lose_checkpoint: bool = False, **options) -> str:
        topic = new_topic(self.first, PARTITIONS)
        expected = send(self.first, topic, OLD, PARTITIONS)
        ground.run(messages(ground, self.first, topic))
        if lose_checkpoint:
            ground.lose_checkpoint()
        recreate(self.first, topic, PARTITIONS)
        expected |= send(self.first, topic, new, PARTITIONS)
        ground.run(messages(ground, self.first, topic, **options))
        return ground.outcome(expected)

    def elsewhere(self, ground: Ground) -> str:
        topic = new_topic(self.first, PARTITIONS)
        expected = send(self.first, topic, OLD, PARTITIONS)
        ground.run(messages(ground, self.first, topic))
        new_topic(self.second, PARTITIONS, topic)
        expected |= send(self.second, topic, MANY, PARTITIONS)
        ground.run(messages(ground, self.second, topic))
        return ground.outcome(expected)

    def within(self, ground: Ground) -> str:
        """From one batch to the next the topic is another one."""
        topic = new_topic(self.first, PARTITIONS)
        expected = send(self.first, topic, OLD, PARTITIONS)
        query = ground.begin(messages(ground, self.first, topic), processingTime=f"{TICK_S} seconds")
        try:
            _until(lambda: not query.isActive or query.lastProgress and _count(ground) == len(OLD))
            recreate(self.first, topic, PARTITIONS)
            expected |= send(self.first, topic, MANY, PARTITIONS)
            _until(lambda: not query.isActive or _count(ground) > len(OLD))
            time.sleep(2 * TICK_S)  # for whatever else comes
        finally:
            query.stop()
        failed = query.exception()
        if failed:
            ground.stopped = True
            ground.errors.append(reason(_cause(ground, query, failed)))
        return ground.outcome(expected)


def messages(ground: Ground, bootstrap: str, topic: str, **options) -> DataFrame:
    reader = (
        ground.spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    )
    rows = reader.option("startingOffsets", "earliest").options(**options).load()
    return rows.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id", "topic", "partition", "offset")


def _cause(ground: Ground, query, failed: PySparkException) -> PySparkException | StreamsinkError:
    if not ground.sink.ours:
        return failed
    from streamsink.spark import runs

    return runs.failure(str(query.runId)) or failed


def _count(ground: Ground) -> int:
    try:
        return ground.rows().total()
    except (PySparkException, StreamsinkError):
        return 0  # There is no table yet.


def _until(true: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not true() and time.monotonic() < end:
        time.sleep(LOOK_S)
