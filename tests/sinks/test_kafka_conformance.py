"""The suite for any sink, with the journal in memory and the messages in a real Kafka."""

import uuid
from dataclasses import dataclass

import pyarrow as pa
import pytest

from streamsink.sinks.kafka.sink import KafkaSink
from streamsink.testing.conformance import check_sink
from tests.e2e.kafka_data import new_topic
from tests.sinks.kafka_world import read

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
        [numbers] = read(self.bootstrap, self.topic, patience_s=0.5)
        return numbers


@pytest.mark.parametrize("every", [pytest.param(9, marks=pytest.mark.soak), 120])
def test_the_kafka_sink_passes(kafka_broker, every):
    """Accidents happen at every n-th call of the journal."""
    topics = Topics(kafka_broker.bootstrap)
    print(check_sink(topics.sink, topics.rows_of, every=every, drop=topics.drop))
