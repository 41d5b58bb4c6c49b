"""What pages take for granted before their first line: a stream of orders, a table of them, a server's address.

Each function is called with a ``World`` and adds to its names, which are those of the reader's program.
"""

import json
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streamsink
from streamsink.operations.words import meanings
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import SparkCheckpoint
from tests.cli.lakes import (
    PENDING,
    PUBLISHED,
    allow_nulls,
    die_in_the_last_batch,
    dying,
    letters_driver,
    table_of_numbers,
)

ORDER = "id BIGINT, dt DATE, amount DOUBLE"
FILES = 2
ROWS_OF_A_FILE = 10
LETTERS_AND_ORDERS = 18


@dataclass
class World:
    """folder: where the reader's program runs. servers: by the name of its fixture, a server that is started. export:
    sets a variable of the environment for as long as the page is told.
    """

    folder: Path
    spark: Any
    servers: dict[str, Any] = field(default_factory=dict)
    export: Callable[[str, str], None] = os.environ.__setitem__
    names: dict[str, Any] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)

    def ids(self, table: str = "lake/shop.db/orders") -> list[int]:
        return sorted(streamsink.read_arrow(self.folder / table, columns=["id"])["id"].to_pylist())


def _file(folder: Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    first = number * ROWS_OF_A_FILE
    orders = [{"id": i, "dt": f"2026-11-0{1 + i % 2}", "amount": i / 4} for i in range(first, first + ROWS_OF_A_FILE)]
    (folder / f"{number}.json").write_text("".join(json.dumps(order) + "\n" for order in orders))


def _stream(world: World, *columns: str) -> Any:
    stream = world.spark.readStream.schema(ORDER).option("maxFilesPerTrigger", 1).json(str(world.folder / "in"))
    return stream.select("id", "dt", "amount", *columns)


def orders_from_files(world: World) -> None:
    """``orders`` and ``df``: a stream of two files with ten orders each."""
    for number in range(FILES):
        _file(world.folder / "in", number)
    orders = _stream(world)
    world.names |= {"streamsink": streamsink, "spark": world.spark, "orders": orders, "df": orders, "schema": ORDER}


def a_table_of_orders(world: World) -> None:
    """The table ``lake/shop.db/orders`` has ten orders, in two partitions by text."""
    orders_from_files(world)
    rows = world.spark.range(ROWS_OF_A_FILE).selectExpr("id", "IF(id < 5, '2026-11-21', '2026-11-22') AS dt")
    streamsink.write(rows, world.folder / "lake/shop.db/orders", "given", partition_by=["dt"])


def a_stream_of_orders(world: World) -> None:
    """A query has written one file of orders into ``lake/shop.db/orders``, with ``ckpt/orders``."""
    _file(world.folder / "in", 0)
    orders = _stream(world, "_metadata.file_path")
    world.names |= {"streamsink": streamsink, "spark": world.spark, "orders": orders}
    _run(world)


def _run(world: World) -> None:
    sink = streamsink.to_table(world.folder / "lake/shop.db/orders", partition_by=["dt"], file_column="file_path")
    run_into(world, sink, world.names["orders"], "ckpt/orders")


def run_into(world: World, sink: Any, orders: Any, checkpoint: str) -> None:
    """Let a query write what there is of the orders."""
    query = (
        orders.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(world.folder / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def ten_more(world: World) -> None:
    """One more file comes."""
    _file(world.folder / "in", len(list((world.folder / "in").glob("*.json"))))


def a_backup_and_more_orders(world: World) -> None:
    """After the backup of the table the query has written one file more, and the next one is there."""
    a_stream_of_orders(world)
    shutil.copytree(world.folder / "lake", world.folder / "backup")
    ten_more(world)
    _run(world)
    ten_more(world)


def an_archive(world: World) -> None:
    """Parquet files of two days, ten orders each."""
    rows = world.spark.range(2 * ROWS_OF_A_FILE)
    days = rows.selectExpr("id", "IF(id < 10, DATE '2026-11-01', DATE '2026-11-02') AS dt", "id / 4 AS amount")
    days.write.parquet(str(world.folder / "archive/orders"))
    world.names |= {"spark": world.spark}


def a_day_of_orders(world: World) -> None:
    _file(world.folder / "landing" / "2026-11-21", 0)


def orders_for_iceberg(world: World) -> None:
    orders_from_files(world)
    (world.folder / "warehouse").mkdir()


def orders_for_postgres(world: World) -> None:
    """The table ``orders`` with a key."""
    from tests.services.ports import LOOPBACK
    from tests.services.postgres import DATABASE, PASSWORD, USER

    orders_from_files(world)
    server = world.servers["postgres"]
    with server.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS public.orders")
        connection.execute("CREATE TABLE public.orders (id BIGINT PRIMARY KEY, dt DATE, amount DOUBLE PRECISION)")
    world.export("SHOP_PASSWORD", PASSWORD)
    world.words |= {"postgres": f"{LOOPBACK}:{server.port}/{DATABASE}", "postgres_user": USER}


def orders_for_kafka(world: World) -> None:
    from tests.e2e.kafka_data import new_topic

    orders_from_files(world)
    bootstrap = world.servers["kafka_broker"].bootstrap
    world.words |= {"kafka_broker": bootstrap, "topic": new_topic(bootstrap, 1)}


def a_topic_of_orders(world: World) -> None:
    """A topic with ten orders."""
    from confluent_kafka import Producer

    orders_for_kafka(world)
    producer = Producer({"bootstrap.servers": world.words["kafka_broker"]})
    for i in range(ROWS_OF_A_FILE):
        producer.produce(world.words["topic"], json.dumps({"id": i, "dt": "2026-11-21", "amount": 1.5}))
    producer.flush()


def a_lake_that_is_empty(world: World) -> None:
    """What follows on the page has nothing to do with what stands before it."""
    for folder in ("lake", "ckpt"):
        shutil.rmtree(world.folder / folder, ignore_errors=True)


def a_topic_whose_checkpoint_is_lost(world: World) -> None:
    """Of twenty messages the query has written ten, with another checkpoint than the one that it begins now."""
    from tests.e2e.kafka_data import send

    a_lake_that_is_empty(world)
    orders_for_kafka(world)
    broker, topic = world.words["kafka_broker"], world.words["topic"]
    send(broker, topic, range(ROWS_OF_A_FILE), 1)
    source = world.spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker)
    messages = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    orders = messages.selectExpr("CAST(value AS STRING) AS order", "topic", "partition", "offset")
    positions = ["topic", "partition", "offset"]
    run_into(world, streamsink.to_table("lake/shop.db/orders", position_columns=positions), orders, "ckpt/lost")
    send(broker, topic, range(ROWS_OF_A_FILE, 2 * ROWS_OF_A_FILE), 1)


def stores_with_keys(world: World) -> None:
    """Places of their own on HDFS, where that is there, and on S3, whose keys are in the environment."""
    from tests.services.s3 import ACCESS_KEY, REGION, SECRET_KEY

    place, s3 = uuid.uuid4().hex, world.servers["s3_server"]
    world.words |= {"s3": f"s3://{s3.bucket}/{place}", "s3_endpoint": s3.endpoint}
    if "hdfs_cluster" in world.servers:
        world.words["hdfs"] = f"{world.servers['hdfs_cluster'].uri}/{place}"
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_DEFAULT_REGION": REGION}
    for name, value in keys.items():
        world.export(name, value)


def a_table_on_s3(world: World) -> None:
    """With ten orders."""
    stores_with_keys(world)
    path = f"{world.words['s3']}/lake/shop.db/orders"
    rows = world.spark.range(ROWS_OF_A_FILE)
    streamsink.write(rows, path, "given", store_options=world.servers["s3_server"].options)


def orders_for_a_metastore(world: World) -> None:
    from tests.services.ports import LOOPBACK

    orders_from_files(world)
    port = world.servers["hive_metastore"].port
    world.words |= {"metastore": f"{LOOPBACK}:{port}", "database": f"d{uuid.uuid4().hex[:12]}"}


def a_dead_driver(world: World) -> None:
    """Forty orders, of which the last ten are recorded and in no snapshot, because their driver died."""
    dying(world.folder / "lake/shop.db/orders", SparkCheckpoint("q1"), [*PUBLISHED, PENDING])
    world.names["streamsink"] = streamsink


def a_dead_driver_and_letters(world: World) -> None:
    """Each third of 18 orders is a dead letter, which the table takes now. The last six are recorded, and in no
    snapshot.
    """
    a_lake_that_is_empty(world)
    table = world.folder / "lake/shop.db/orders"
    table_of_numbers(table)
    die_in_the_last_batch(
        letters_driver(table.parent, "orders"), SparkCheckpoint("q1"), [6, 12, LETTERS_AND_ORDERS], "precommit.saved"
    )
    allow_nulls(str(table))
    known = meanings(local_file_io(False), str(table))
    world.words["word"] = next(each.word for each in known if "new_application" in each.options)


def as_seen_by_readers(page: str, world: World) -> None:
    """After a page: what it has written is there, each order once. Pages that write nothing are not in the list."""
    both = list(range(FILES * ROWS_OF_A_FILE))
    expected = {
        "docs/how-to/BACKFILL.md": both,
        "docs/how-to/CHANGE_SCHEMA.md": both,
        "docs/how-to/DEAD_LETTERS.md": both,
        "docs/how-to/KAFKA_TO_LAKE.md": list(range(ROWS_OF_A_FILE)),
        "docs/how-to/AIRFLOW.md": list(range(ROWS_OF_A_FILE)),
        "docs/how-to/RESTORE_BACKUP.md": list(range(3 * ROWS_OF_A_FILE)),
        "docs/FAN_OUT.md": both,
    }
    if page in expected:
        assert world.ids() == expected[page]
    if page == "docs/how-to/MOVE_OR_COPY.md":
        assert world.ids("new/shop.db/orders") == both and len(world.ids()) == ROWS_OF_A_FILE
