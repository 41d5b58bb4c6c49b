"""Real drivers that write one query into a table, a directory, PostgreSQL and Kafka, and are killed between them."""

import itertools
import signal
from dataclasses import asdict

import pytest

from streamsink.storage.file_io import local_file_io
from tests.databases.places import place_of
from tests.e2e.harness import assert_each_once, ids_of, run_driver, run_here
from tests.e2e.kafka_data import new_topic
from tests.sinks.kafka_world import read
from tests.sinks.test_file_sink import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("passwords")]

# The record has no part yet; one destination has the second batch and three have not; three have it and the last has
# not.
WHERE = ("fan-out.recorded@2", "fan-out.before_destination@6", "fan-out.before_destination@8")


def _kill_and_go_on(ground, spark, kafka_broker, request, faults, way) -> None:
    """Kill a driver at each of these, on the same destinations; the session of the tests comes to its end."""
    place, topic = place_of("postgresql", request, ground.root), new_topic(kafka_broker.bootstrap, 2)
    database = asdict(place.sink(""))
    del database["path"]
    out = str(ground.root / "out")
    job = ground.job(
        database=database,
        to_kafka={"bootstrap_servers": kafka_broker.bootstrap, "topic": topic, "marker_topic": f"markers-{topic}"},
        fan_out={"journal": str(ground.root / "journal"), "files": out},
        options={"application": topic, "restore": "restore-and-continue", **way},
        max_restarts=3,
    )
    files = 0
    for fault in faults:
        ground.add_files(files, 2)
        files += 2
        outcome = run_driver(ground, job, fault=f"{fault}:kill")
        assert outcome.code == -signal.SIGKILL, f"a driver does not reach {fault}: {outcome}"
    ground.add_files(files, 1)
    outcome = run_here(spark, job)
    assert outcome.code == 0, outcome
    expected = ids_of(0, files + 1)
    assert_each_once(ground.table, expected)
    messages = sorted(itertools.chain(*read(kafka_broker.bootstrap, topic)))
    written = {"postgresql": place.ids(), "files": sorted(rows_of(local_file_io(), out)), "kafka": messages}
    assert written == dict.fromkeys(written, sorted(expected))


@pytest.mark.in_turn("destinations whose drivers are killed", 1)
@pytest.mark.parametrize("way", [{}, {"driver_max_rows": 0}], ids=["driver", "tasks"])
@pytest.mark.parametrize("where", WHERE)
def test_a_driver_that_is_killed_between_destinations(ground, spark, kafka_broker, request, where, way):
    """Each destination has each row once."""
    _kill_and_go_on(ground, spark, kafka_broker, request, [where], way)


@pytest.mark.soak
@pytest.mark.parametrize("way", [{}, {"driver_max_rows": 0}, {"publish": "async"}], ids=["driver", "tasks", "async"])
def test_drivers_that_are_killed_one_after_another(ground, spark, kafka_broker, request, way):
    _kill_and_go_on(ground, spark, kafka_broker, request, WHERE, way)
