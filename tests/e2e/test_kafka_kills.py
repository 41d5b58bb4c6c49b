"""A real broker, many messages, and a driver that is killed again and again, at random steps and at random times."""

import random
import signal
import time

import pytest

from streamsink.faults import STEPS
from tests.e2e.harness import Driver, ids_in, lost_and_doubled, run_driver, run_here
from tests.e2e.kafka_data import new_topic, send

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 3
# So many batches have all messages: none of the drivers comes to the end of them.
BATCHES = 40
# Every driver reaches these in its batches.
IN_BATCHES = [step for step in STEPS if step.startswith(("write.", "precommit.", "commit.", "forget.", "batch."))]
MOST_BATCHES_BEFORE_A_KILL = 2
LATEST_MS = 1500


def killed_at_a_step(ground, job, rng: random.Random) -> str:
    where = f"{rng.choice(IN_BATCHES)}@{rng.randint(1, MOST_BATCHES_BEFORE_A_KILL)}"
    outcome = run_driver(ground, job, fault=f"{where}:kill")
    assert outcome.code == -signal.SIGKILL, (where, outcome)
    return where


def killed_at_a_time(ground, job, rng: random.Random) -> str:
    """Kill Python and the JVM at once, so long after the driver has claimed the table, whatever it does then."""
    after_ms = rng.randint(0, LATEST_MS)
    with Driver(ground, job) as driver:
        driver.wait_for("Claimed")
        time.sleep(after_ms / 1000)
        driver.kill()
        assert driver.process.returncode == -signal.SIGKILL, "the driver ended before it was killed"
    return f"after {after_ms} ms"


@pytest.mark.in_turn("pending beyond a batch", 1)
@pytest.mark.parametrize(("messages", "times"), [(40_000, 2), pytest.param(200_000, 12, marks=pytest.mark.soak)])
def test_no_message_is_lost_or_doubled_over_many_kills(spark, ground, kafka_broker, rng, messages, times):
    """The exact set of ids is there at the end,
    although every other driver dies at a random step and the others at a random time."""
    topic = new_topic(kafka_broker.bootstrap, PARTITIONS)
    ids = send(kafka_broker.bootstrap, topic, range(messages), PARTITIONS)
    source = {"kind": "kafka", "bootstrap": kafka_broker.bootstrap, "topic": topic}
    job = ground.job(source=source, per_batch=messages // BATCHES)
    kills = []
    for number in range(times):
        kill = killed_at_a_time if number % 2 else killed_at_a_step
        kills.append(kill(ground, job, rng))
        print(f"kill {number + 1}: {kills[-1]}")
    outcome = run_here(spark, job.but(per_batch=messages // 4))
    assert outcome.code == 0, outcome
    found = ids_in(ground.table)
    lost, doubled = lost_and_doubled(found, ids)
    print(f"RESULT kafka-kills: messages={messages} kills={len(kills)} lost={lost} doubled={doubled}")
    assert (lost, doubled) == (0, 0)
    assert (len(found), sum(found), set(found)) == (len(ids), sum(ids), ids)
