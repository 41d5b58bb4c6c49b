"""What tests of the Kafka sink share."""

import pytest


@pytest.fixture
def world(kafka_broker, tmp_path):
    """A query that writes into a topic of its own."""
    from tests.sinks.kafka_world import KafkaWorld

    return KafkaWorld(kafka_broker.bootstrap, str(tmp_path))


@pytest.fixture
def clients(monkeypatch):
    """Puts a function in the place of the one that makes producers; None for the real one."""
    from streamsink.sinks.kafka import client
    from tests.sinks.kafka_world import REAL

    def put(make):
        monkeypatch.setattr(client, "new_producer", make or REAL)

    yield put
