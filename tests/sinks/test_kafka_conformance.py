"""The suite for any sink, with the journal in memory and the messages in a real Kafka; and what a message has."""

import itertools
import uuid
from dataclasses import dataclass

import pyarrow as pa
import pytest

from streamsink.sinks.kafka.sink import KafkaSink
from streamsink.storage.file_io import local_file_io
from streamsink.testing.conformance import check_sink
from tests.e2e.kafka_data import new_topic
from tests.sinks.kafka_world import messages, read

pytestmark = pytest.mark.kafka


@dataclass(frozen=True)
class Numbers(KafkaSink):
    """Takes the rows of the suite: the id is the message."""

    def check_columns(self, columns, session):
        """Those of the suite."""

    def checked(self, rows):
        return super().checked(pa.RecordBatch.from_pydict({"value": rows.column("id").cast(pa.string())}))


class Topics:
    """The topics of one try of the suite, and new ones for the next."""

    def __init__(self, bootstrap: str):
        self.bootstrap = bootstrap
        self.drop()

    def drop(self) -> None:
        self.topic = new_topic(self.bootstrap, 1)
        self.markers = f"markers-{uuid.uuid4().hex}"

    def sink(self, root: str) -> KafkaSink:
        # The suite's path stands for all topics that it drops and makes again.
        sink = Numbers(self.bootstrap, self.topic, journal=root, marker_topic=self.markers)
        object.__setattr__(sink, "path", root)
        return sink

    def rows_of(self, file_io, root: str) -> list[int]:
        [numbers] = read(self.bootstrap, self.topic, patience_s=3)
        return numbers


SHORT = pytest.mark.in_turn("deaths around a publishing into Kafka", 1)


@pytest.mark.parametrize("every", [pytest.param(9, marks=pytest.mark.soak), pytest.param(120, marks=SHORT)])
def test_the_kafka_sink_passes(kafka_broker, every):
    """Accidents happen at every n-th call of the journal."""
    topics = Topics(kafka_broker.bootstrap)
    print(check_sink(topics.sink, topics.rows_of, every=every, drop=topics.drop))


def test_every_column_of_a_message_arrives(world):
    """Keys choose partitions as with Java's clients: the hashes are those of Kafka's own tests."""
    topic = new_topic(world.bootstrap, 7)
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    table = pa.table(
        {
            "other": [1.5] * 7,
            "key": pa.array([*hashes, b"", None, b"k", b"k"], pa.binary()),
            "value": pa.array(["0", "1", "2", "3", "4", None, "6"], pa.large_string()),
            "headers": pa.array(
                [None, [], [("a", b"1"), ("a", None)], None, None, [("\u00e9", b"\xff")], None],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "topic": [topic] * 6 + [world.topic],
            "partition": pa.array([None, None, None, 3, 4, 5, 1], pa.int32()),
        }
    )
    sink = world.sink(topic=None)
    sink.check_columns(table.schema, {})
    driver = world.driver(topic=None)
    driver.schema = pa.schema([("value", pa.string()), ("topic", pa.string())])
    driver.rows = lambda start, end: table.combine_chunks().to_batches()[0]
    driver.run(local_file_io(), world.checkpoint, (7,))
    found = {}
    for of in (topic, world.topic):
        for message in itertools.chain(*messages(world.bootstrap, of)):
            found[message.value()] = (of, message.partition(), message.key(), message.headers())
    for number, (key, murmur2) in enumerate(hashes.items()):
        assert found[b"%d" % number][:3] == (topic, (murmur2 & 0x7FFFFFFF) % 7, key)
    assert found[b"2"][3] == [("a", b"1"), ("a", None)]
    assert (found[b"3"], found[b"4"]) == ((topic, 3, b"", None), (topic, 4, None, None))
    assert (found[None], found[b"6"]) == ((topic, 5, b"k", [("\u00e9", b"\xff")]), (world.topic, 1, b"k", None))
    assert len(found) == 7
