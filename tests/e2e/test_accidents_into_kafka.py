"""The accidents of ``test_accidents_elsewhere.py`` on Kafka topics, with real queries and a reader of what is
committed.

What is known of a topic lies in another one, that of the markers.
"""

from collections.abc import Callable

import pytest

from streamsink.kafka import KafkaSink
from streamsink.sink import to_sink
from tests.e2e.kafka_data import new_topic, recreate
from tests.e2e.test_accidents_elsewhere import ACCIDENTS, Destination, World, cases
from tests.sinks.kafka_world import REAL, messages, read, set_config

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

_PARTITIONS, _WAIT_S = 2, 120
_TOPIC = Destination(
    read=lambda root: [], known=(), rows=(), job=lambda root: {}, dropped="table.recreated", unknown="table.recreated"
)


class KafkaWorld(World):
    """One query into a topic with two partitions."""

    def __init__(self, spark, ground, bootstrap: str):
        super().__init__(spark, ground, _TOPIC)
        self.bootstrap, self.markers = bootstrap, f"markers-{ground.root.name}"
        self.topic = new_topic(bootstrap, _PARTITIONS)
        to = {"bootstrap_servers": bootstrap, "topic": self.topic, "marker_topic": self.markers}
        self.job = self.job.but(to_kafka={**to, "journal": str(ground.root / "journal"), "publishers": 2})

    def seen(self):
        return sorted(number for partition in read(self.bootstrap, self.topic) for number in partition)

    def sees(self, files):
        assert self.seen() == list(range(files * 10))

    def copied(self) -> Callable[[], None]:
        """The newest marker of each publisher. A topic never goes back by itself: somebody writes them once more, as a
        tool does that restores a topic message by message."""
        markers = [partition[-1] for partition in messages(self.bootstrap, self.markers) if partition]

        def put_back() -> None:
            producer = REAL({"bootstrap.servers": self.bootstrap})
            for newest in markers:
                producer.produce(self.markers, newest.value(), newest.key(), newest.partition())
            assert producer.flush(_WAIT_S) == 0

        return put_back

    def drop(self):
        recreate(self.bootstrap, self.topic, _PARTITIONS)

    def lose_known(self):
        recreate(self.bootstrap, self.markers, 2)
        set_config(self.bootstrap, self.markers, "cleanup.policy", "compact")

    @property
    def republishes(self):
        return False

    def sink(self):
        return to_sink(KafkaSink(**self.job.to_kafka), listener=lambda event: None, **self.job.options)


@pytest.mark.parametrize("kind, accident", list(cases(["kafka"])))
def test_an_accident_of_a_topic(spark, ground, kafka_broker, kind, accident):
    """Each row is there once, or the query stops with the error that docs/ACCIDENTS.md states."""
    ACCIDENTS[accident](KafkaWorld(spark, ground, kafka_broker.bootstrap))
