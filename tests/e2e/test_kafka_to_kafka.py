"""Real drivers from Kafka to Kafka, which are killed at steps and at random times: the exact set, in order within each
key, also for a reader beside them."""

import itertools
import random
import signal
import threading
import time

import pytest

from tests.e2e import task_faults
from tests.e2e.cluster import Cluster
from tests.e2e.harness import Driver, run_driver, run_here, until
from tests.e2e.kafka_data import new_topic, send
from tests.services.kafka import KafkaBroker
from tests.sinks.kafka_world import read

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 3
REACHED = ("precommit.saved", "group.before_publish", "commit.marked", "batch.end")
LATEST_MS = 3000


class Reader(threading.Thread):
    """Reads what is committed while it is written, and says what was wrong with it."""

    def __init__(self, bootstrap: str, topic: str):
        super().__init__(daemon=True)
        self.bootstrap, self.topic = bootstrap, topic
        self.found: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.ended = threading.Event()

    def run(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self.bootstrap, "group.id": "beside", "isolation.level": "read_committed"}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.topic, number, 0) for number in range(PARTITIONS)])
        while not self.ended.is_set():
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                self.found[message.partition()].append(int(message.value()))
        consumer.close()


def check(seen: list[list[int]], end: int) -> None:
    """Each number once, and those of a key (its partition in the source) in order."""
    found = sorted(itertools.chain(*seen))
    assert (len(found), len(set(found))) == (end, end), "messages are lost or doubled"
    assert found == list(range(end))
    for key in range(PARTITIONS):
        for partition in seen:
            own = [number for number in partition if number % PARTITIONS == key]
            assert own == sorted(own), f"key {key} is out of order"


def _kill(ground, job, rng: random.Random, number: int) -> str:
    if number % 2:
        where = f"{rng.choice(REACHED)}@{rng.randint(1, 2)}"
        outcome = run_driver(ground, job, fault=f"{where}:kill")
        assert outcome.code in (-signal.SIGKILL, 0), (where, outcome)
        return where
    after_ms = rng.randint(0, LATEST_MS)
    with Driver(ground, job) as driver:
        driver.wait_for("Claimed")
        time.sleep(after_ms / 1000)
        driver.kill()
    return f"after {after_ms} ms"


def _lose(ground, job, cluster: Cluster, rng: random.Random) -> str:
    """A driver whose tasks write, and which loses an executor in each batch, dies as well: at the latest a moment after
    the first executor, or at the end of the source."""
    marks = ground.root / "marks"
    env = task_faults.environment("task.end:lose-executor:1:0", marks)
    lost, after_ms = len(list(marks.iterdir())), rng.randint(0, LATEST_MS)
    job = job.but(options={"driver_max_rows": 0}, conf=cluster.conf(env) | task_faults.CONF)
    with Driver(ground, job) as driver:
        until(lambda: len(list(marks.iterdir())) > lost or driver.process.poll() is not None)
        time.sleep(after_ms / 1000)
        driver.kill()
    return f"{len(list(marks.iterdir())) - lost} executors lost, {after_ms} ms after the first"


def _job(ground, bootstrap: str, source: str, target: str, per_batch: int):
    to = {"bootstrap_servers": bootstrap, "topic": target, "journal": str(ground.root / "journal")}
    of = {"kind": "kafka", "bootstrap": bootstrap, "topic": source}
    options = {"application": target, "restore": "restore-and-continue"}
    return ground.job(source=of, per_batch=per_batch, to_kafka={**to, "publishers": 2}, options=options)


@pytest.mark.in_turn("destinations whose drivers are killed", 1)
def test_drivers_that_are_killed_publish_each_message_once(spark, ground, kafka_broker, rng):
    """One dies at a step or at a random time, and the next one goes on. Tasks write the rows."""
    messages = 20_000
    source, target = (new_topic(kafka_broker.bootstrap, PARTITIONS) for _ in range(2))
    send(kafka_broker.bootstrap, source, range(messages), PARTITIONS)
    job = _job(ground, kafka_broker.bootstrap, source, target, messages // 4).but(options={"driver_max_rows": 0})
    print(_kill(ground, job, rng, rng.randint(0, 1)))
    outcome = run_here(spark, job)
    assert outcome.code == 0, outcome
    check(read(kafka_broker.bootstrap, target), messages)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("messages", "kills"), [(300_000, 20)])
def test_a_long_way_from_kafka_to_kafka(ground, tmp_path, spark_settings, rng, messages, kills):
    """Many kills of drivers, every third of them on a cluster that loses executors, a broker that is killed twice, and
    1, 4 and 2 publishers."""
    with KafkaBroker(tmp_path / "broker") as broker, Cluster(tmp_path / "cluster") as cluster:
        source, target = (new_topic(broker.bootstrap, PARTITIONS) for _ in range(2))
        send(broker.bootstrap, source, range(messages), PARTITIONS)
        reader = Reader(broker.bootstrap, target)
        reader.start()
        job = _job(ground, broker.bootstrap, source, target, messages // 60)
        for number in range(kills):
            publishers = (1, 4, 2)[number * 3 // kills]
            job = job.but(to_kafka={**job.to_kafka, "publishers": publishers})
            if number in (kills // 3, 2 * kills // 3):
                again = threading.Timer(rng.random() * 10, lambda: (broker.kill(), broker.start()))
                again.start()
            how = _lose(ground, job, cluster, rng) if number % 3 == 2 else _kill(ground, job, rng, number)
            there = sum(map(len, reader.found))
            print(f"kill {number + 1}: {how}, {publishers} publishers; a reader has {there:,}", flush=True)
            if number in (kills // 3, 2 * kills // 3):
                again.join()
        outcome = run_driver(ground, job.but(per_batch=30_000))
        assert outcome.code == 0, outcome
        seen = read(broker.bootstrap, target)
        check(seen, messages)
        while sum(map(len, reader.found)) < messages and reader.is_alive():
            time.sleep(0.1)
        reader.ended.set()
        reader.join()
        assert reader.found == seen
        print(f"RESULT kafka-to-kafka: messages={messages} kills={kills} lost=0 doubled=0")
