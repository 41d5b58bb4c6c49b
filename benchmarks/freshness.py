"""How old a record of Kafka is when a reader can see it: from its arrival at the broker to the commit that has it."""

import bisect
import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import uuid
from collections import defaultdict
from pathlib import Path

from benchmarks import floor, peers
from benchmarks.data import Sizes
from benchmarks.machine import in_turns, load, slug, spread
from benchmarks.report import Table, at_most
from benchmarks.stores import NO_SERVER
from benchmarks.ways import ASYNC, OURS, Ways
from tests.conftest import checkpoints_without_processes
from tests.services.kafka import KafkaBroker

RATE = 1_000
_WAYS = (floor.NAMED, floor.FLOOR, peers.ICEBERG_EQUAL, peers.DELTA_EQUAL, OURS, ASYNC)
_PEERS = (peers.ICEBERG_EQUAL, peers.DELTA_EQUAL)
# Of a query's start these seconds are not counted: it compiles, and reads what has come meanwhile.
_WARM_UP_S = 8
_WAIT_S = 60
_MOST = 0.5
_PROGRESS = "spark.sql.streaming.numRecentProgressUpdates"

# In a process of its own, so that no sink shares an interpreter with it: argv is broker, topic, rate, seconds.
_PRODUCER = """
import sys, time
from confluent_kafka import Producer
bootstrap, topic, rate, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
producer, begun, sent = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1}), time.monotonic(), 0
while (now := time.monotonic() - begun) < seconds:
    while sent < now * rate:
        producer.produce(topic, b"record-%d" % sent, partition=0)
        sent += 1
    producer.poll(0)
    time.sleep(0.001)
producer.flush()
"""


def freshness(spark, folder: Path, sizes: Sizes) -> list:
    """Records at a steady rate into one partition, the fastest trigger, one sink after another in turns."""
    ages: dict[str, list[float]] = defaultdict(list)
    late: dict[str, list[float]] = defaultdict(list)
    triggers: dict[str, list[float]] = defaultdict(list)
    added: dict[str, list[float]] = defaultdict(list)
    sinks = Ways(spark)
    # On a local disk, without Hadoop's native library, Spark's default starts eight processes (readlink) for each file
    # of a checkpoint. On the stores of a cluster it starts none.
    for name, value in {_PROGRESS: "100000", **checkpoints_without_processes()}.items():
        spark.conf.set(name, value)
    try:
        with contextlib.closing(_Broker(folder / "broker")) as broker:

            def measure(way: str, number: int) -> None:
                at = folder / "freshness" / f"{slug(way)}-{number}"
                found, durations = _measure(sinks.all[way], spark, broker, at, sizes.freshness_s)
                ages[way].append(statistics.median(found))
                late[way].append(statistics.quantiles(found, n=100)[98])
                triggers[way] += [took["triggerExecution"] for took in durations]
                added[way] += [took["addBatch"] for took in durations]

            in_turns(sizes.rounds, sinks.among(*_WAYS), measure)
    except NO_SERVER as why:
        return [Table("Freshness", ("not measured",), [[str(why)]])]
    finally:
        for name in checkpoints_without_processes():
            spark.conf.unset(name)
    rows = [[way, *map(spread, (ages[way], late[way], triggers[way], added[way]))] for way in ages]
    head = ("sink", "median ms, by round", "99th percentile ms, by round", "trigger ms", "addBatch ms")
    note = (
        f"{RATE:,} records/s into one partition, the fastest trigger, {sizes.freshness_s} s a round without the first "
        f"{_WARM_UP_S} s. From the broker's time of the record to the time of the file that makes the commit visible. "
        "Spark's checkpoints are written without starting processes for it. Broker, producer and sink share this "
        f"machine. {_least(ages)}Load {load()}."
    )
    return [
        Table("Freshness: from a record's arrival in Kafka to a reader's snapshot", head, rows, note),
        *_goals(ages, "median"),
        *_goals(late, "99th percentile"),
    ]


def _goals(ages: dict[str, list[float]], which: str) -> list:
    what = f"freshness, {which}: against the best of Iceberg and Delta"
    return [
        at_most(f"{what}{way.removeprefix(OURS)}", ratio, _MOST)
        for way in (OURS, ASYNC)
        if (ratio := _against_best(ages, way)) is not None
    ]


def _against_best(ages: dict[str, list[float]], way: str) -> float | None:
    rivals = [statistics.median(ages[rival]) for rival in _PEERS if rival in ages]
    return statistics.median(ages[way]) / min(rivals) if rivals and way in ages else None


def _least(ages: dict[str, list[float]]) -> str:
    """What no batch function goes below: without any row, and with rows and no promise."""
    named, least = (_against_best(ages, way) for way in (floor.NAMED, floor.FLOOR))
    if named is None or least is None:
        return ""
    return (
        f"Against the best of Iceberg and Delta a batch function that computes no row has {named:.2f}x, and one that "
        f"flushes three files, and promises nothing, {least:.2f}x. "
    )


class _Broker(KafkaBroker):
    """A broker that gives each record the time of its arrival."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.start()

    def close(self) -> None:
        self.stop()

    def new_topic(self) -> str:
        from confluent_kafka.admin import AdminClient, NewTopic

        topic = f"t-{uuid.uuid4().hex}"
        settings = {"message.timestamp.type": "LogAppendTime"}
        client = AdminClient({"bootstrap.servers": self.bootstrap})  # its answers end with it
        client.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(_WAIT_S)
        return topic

    def arrivals_ms(self, topic: str) -> list[int]:
        """When each record arrived, by offset: milliseconds since 1970."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": topic, "enable.auto.commit": False})
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), _WAIT_S)
            consumer.assign([TopicPartition(topic, 0, 0)])
            found: list[int] = []
            while len(found) < end:
                found += [message.timestamp()[1] for message in consumer.consume(10_000, 1.0)]
            return found
        finally:
            consumer.close()


def _measure(start: peers.Start, spark, broker: _Broker, at: Path, seconds: int) -> tuple[list[float], list[dict]]:
    """Milliseconds from each record's arrival until it could be read, and durationMs of each batch."""
    topic = broker.new_topic()
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    stream = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    rows = stream.selectExpr("offset id", "CAST(value AS STRING) value", "timestamp at")
    at.mkdir(parents=True)
    query = start(rows, at).option("checkpointLocation", str(at / "checkpoint")).start()
    arguments = [broker.bootstrap, topic, str(RATE), str(_WARM_UP_S + seconds)]
    subprocess.run([sys.executable, "-c", _PRODUCER, *arguments], check=True, stdin=subprocess.DEVNULL)
    query.processAllAvailable()
    query.stop()
    arrivals = broker.arrivals_ms(topic)
    told = [json.loads(each.json) for each in query.recentProgress]
    progress = [each for each in told if _offset(each, "end", topic) > _offset(each, "start", topic)]
    ends = [_offset(each, "end", topic) for each in progress]
    seen = _seen_ms(at / "out")
    if len(seen) < len(ends) or ends[-1] != len(arrivals):
        raise SystemExit(
            f"{at.name}: {len(seen)} commits of {len(ends)} batches, {ends[-1]} of {len(arrivals)} records"
        )
    # Commits that began the table or had no rows come before those of the batches.
    seen = seen[len(seen) - len(ends) :]
    counted = range(_WARM_UP_S * RATE, len(arrivals))
    ages = [seen[bisect.bisect_right(ends, offset)] - arrivals[offset] for offset in counted]
    return ages, [each["durationMs"] for each in progress]


def _offset(progress: dict, which: str, topic: str) -> int:
    """Where a batch began or ended. Records that no sink has read are none in ``numInputRows``."""
    return ((progress["sources"][0][f"{which}Offset"] or {}).get(topic) or {}).get("0", 0)


def _seen_ms(table: Path) -> list[float]:
    """When each batch could be seen, in their order: milliseconds since 1970. One snapshot of ours may have several."""
    if found := sorted(table.glob("snapshot/snapshot-*"), key=lambda path: int(path.name.rpartition("-")[2])):
        numbers = [int(json.loads(path.read_text())["commitIdentifier"]) for path in found]
        counts = [1, *(number - before for before, number in itertools.pairwise(numbers))]
        return [seen for path, count in zip(found, counts) for seen in [_named_ms(path)] * count]
    if found := sorted(table.glob("snapshot-*"), key=lambda path: int(path.name[9:])):  # of floor.py
        return [_named_ms(path) for path in found]
    icebergs = sorted(table.glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:].partition(".")[0]))
    return [_named_ms(path) for path in icebergs or sorted(table.glob("_delta_log/*.json"))]


def _named_ms(path: Path) -> float:
    """A file that is complete before it gets its name has the time of that as its change, not as its content's."""
    return path.stat().st_ctime * 1000
