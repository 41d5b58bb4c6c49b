"""One record's staged rows in one transaction, by several clients of Kafka.

``python -m benchmarks.sinks.kafka_clients`` prints two tables. The loop of the Java client runs in the JVM without Java
code of our own: a method handle sends row after row of an Arrow file. kafka-python is measured where it is installed.
"""

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.machine import in_turns, load, measured, spread
from benchmarks.sinks.kafka import committed
from streamsink.sinks.kafka import client
from streamsink.sinks.kafka.messages import alike, normal
from tests.conftest import spark_conf
from tests.e2e.kafka_data import new_topic
from tests.services.kafka import KafkaBroker

_PARTITIONS, _WAIT_S = 4, 60
_MARKER = b"m" * 600
OURS, JAVA, ROW_BY_ROW, PURE = "confluent-kafka", "Java, a loop in the JVM", "Java, py4j for each row", "kafka-python"
_CLASSES = {
    "R": "Lorg/apache/kafka/clients/producer/ProducerRecord;",
    "O": "Ljava/lang/Object;",
    "S": "Ljava/lang/String;",
    "F": "Ljava/util/concurrent/Future;",
}
# One transaction of the rows in an Arrow file into a topic, and a marker.
Way = Callable[[str, str], None]


def _rows(count: int) -> pa.RecordBatch:
    ids = range(count)
    value = [json.dumps({"id": n, "name": f"customer {n}", "note": "x" * 120, "amount": n / 7}) for n in ids]
    return normal(pa.RecordBatch.from_pydict({"key": [str(n) for n in ids], "value": value}), None)


def _write(path: str, rows: pa.RecordBatch, compression: str | None) -> None:
    with pa.OSFile(path, "wb") as file:
        with pa.ipc.new_file(file, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_batch(rows)


def _batch(path: str, topic: str | None) -> pa.RecordBatch:
    with pa.OSFile(path) as file:
        return normal(pa.ipc.open_file(file).get_batch(0), topic)


def confluent(servers: str, marker_topic: str) -> Way:
    """As ``sinks/kafka/publishing.py`` does it, from the file as the journal has it."""
    producer = client.new_producer(client.transactional_settings(servers, {"batch.size": 1_000_000}, "of-librdkafka"))
    producer.init_transactions(_WAIT_S)

    def publish(path: str, topic: str) -> None:
        found = alike(_batch(f"{path}.lz4", topic))
        producer.begin_transaction()
        for row in found[0] if found else ():
            producer.produce(*row)
        producer.flush(_WAIT_S)
        producer.produce(marker_topic, _MARKER, b"a", 0)
        producer.commit_transaction(_WAIT_S)

    return publish


def java(gateway: Any, servers: str, marker_topic: str, *, row_by_row: bool) -> Way:
    jvm = gateway.jvm
    kafka, settings = jvm.org.apache.kafka.clients.producer, jvm.java.util.HashMap()
    own = {"bootstrap.servers": servers, "transactional.id": f"of-java-{row_by_row}", "linger.ms": "5"}
    for key, value in {**own, "batch.size": "500000", "buffer.memory": str(256 << 20)}.items():
        settings.put(key, value)
    serializer = jvm.org.apache.kafka.common.serialization.ByteArraySerializer
    producer = kafka.KafkaProducer(settings, serializer(), serializer())
    producer.initTransactions()

    def loop(path: str, topic: str) -> None:
        channel = jvm.java.io.FileInputStream(path).getChannel()
        reader = jvm.org.apache.arrow.vector.ipc.ArrowFileReader(channel, jvm.org.apache.arrow.memory.RootAllocator())
        reader.loadNextBatch()
        root = reader.getVectorSchemaRoot()
        send = _sender(gateway, producer, topic, [root.getVector("key"), root.getVector("value")])
        jvm.java.util.stream.IntStream.range(0, root.getRowCount()).forEach(send)
        reader.close()

    def one_by_one(path: str, topic: str) -> None:
        found = alike(_batch(path, topic))
        for _, value, key, _ in found[0] if found else ():
            producer.send(kafka.ProducerRecord(topic, key, value))

    def publish(path: str, topic: str) -> None:
        producer.beginTransaction()
        (one_by_one if row_by_row else loop)(path, topic)
        producer.send(kafka.ProducerRecord(marker_topic, b"a", _MARKER))
        producer.commitTransaction()

    return publish


def _sender(gateway: Any, producer: Any, topic: str, vectors: list[Any]) -> Any:
    """A function of Java's that sends the row of a number."""
    jvm = gateway.jvm
    of, handles = jvm.java.lang.Class.forName, jvm.java.lang.invoke.MethodHandles
    lookup, loader = handles.publicLookup(), jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def typed(text: str) -> Any:
        """text: a descriptor of Java's in which some classes have one letter."""
        text = "".join(_CLASSES.get(letter, letter) for letter in text)
        return jvm.java.lang.invoke.MethodType.fromMethodDescriptorString(text, loader)

    record = of("org.apache.kafka.clients.producer.ProducerRecord")
    make = lookup.findConstructor(record, typed("(SOO)V")).bindTo(topic).asType(typed("([B[B)R"))
    get = lookup.findVirtual(of("org.apache.arrow.vector.VarBinaryVector"), "get", typed("(I)[B"))
    parts, both = gateway.new_array(jvm.java.lang.invoke.MethodHandle, 2), gateway.new_array(jvm.int, 2)
    parts[0], parts[1] = (get.bindTo(vector) for vector in vectors)
    make = handles.permuteArguments(handles.filterArguments(make, 0, parts), typed("(I)R"), both)
    send = lookup.findVirtual(of("org.apache.kafka.clients.producer.KafkaProducer"), "send", typed("(R)F"))
    sends = handles.filterReturnValue(make, send.bindTo(producer))
    return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(of("java.util.function.IntConsumer"), sends)


def pure(servers: str, marker_topic: str) -> Way | None:
    """None where it is not installed."""
    try:
        from kafka import KafkaProducer
    except ImportError:
        return None
    options = {"linger_ms": 5, "batch_size": 500_000}
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id="of-python", **options)
    producer.init_transactions()

    def publish(path: str, topic: str) -> None:
        found = alike(_batch(f"{path}.lz4", topic))
        producer.begin_transaction()
        for _, value, key, _ in found[0] if found else ():
            producer.send(topic, value, key)
        producer.send(marker_topic, _MARKER, b"a")
        producer.commit_transaction()

    return publish


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in {**spark_conf(), "spark.driver.extraJavaOptions": ""}.items():  # with Java's best compiler
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    gateway = spark.sparkContext._gateway
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder) / "broker") as broker:
        servers, marker_topic = broker.bootstrap, new_topic(broker.bootstrap, 1)
        made = {
            OURS: confluent(servers, marker_topic),
            JAVA: java(gateway, servers, marker_topic, row_by_row=False),
            ROW_BY_ROW: java(gateway, servers, marker_topic, row_by_row=True),
            PURE: pure(servers, marker_topic),
        }
        for count, rounds in ((1_000, 20), (200_000, 5)):
            ways = {name: way for name, way in made.items() if way and (count == 1_000 or name != ROW_BY_ROW)}
            path = f"{folder}/{count}.arrow"
            for name, compression in ((path, None), (f"{path}.lz4", "lz4")):
                _write(name, _rows(count), compression)
            _compare(servers, path, count, ways, rounds)
    spark.stop()


def _compare(servers: str, path: str, count: int, ways: dict[str, Way], rounds: int) -> None:
    wall, cpu, topics = defaultdict(list), defaultdict(list), {name: new_topic(servers, _PARTITIONS) for name in ways}

    def measure(name: str, number: int) -> None:
        with measured() as cost:
            ways[name](path, topics[name])
        if number > 1:
            wall[name].append(cost.wall_s * 1000)
            cpu[name].append(cost.cpu_s * 1000)

    in_turns(rounds + 2, tuple(ways), measure)
    print(f"\n{count:,} rows in one transaction (load {load()})")
    print("| client | ms | rows/s | CPU ms, the broker's too |\n|---|---|---|---|")
    for name in ways:
        if (found := committed(servers, topics[name])) != count * (rounds + 2):
            raise SystemExit(f"{name}: {found} rows")
        speed = spread([count / ms * 1000 for ms in wall[name]])
        print(f"| {name} | {spread(wall[name], 1)} | {speed} | {spread(cpu[name])} |", flush=True)


if __name__ == "__main__":
    main()
