"""The Kafka source: a topic of JSON orders, and what the broker itself says of the topic."""

import argparse
import json

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamsink
from support.ending import Ending
from support.generated import GeneratedOrders
from support.orders import PAYLOAD, day
from support.places import Places
from support.report import Outcome

TIMEOUT_MS = 15_000
# A hidden column would do for the sink. Stored columns let anyone audit the table against the topic.
POSITION = ("topic", "partition", "offset")


class TopicError(Exception):
    """The topic cannot be read; the message says why."""


class Topic:
    """One topic, asked through the client that Spark's connector brings. Close it."""

    def __init__(self, spark: SparkSession, brokers: str, name: str):
        self._kafka = spark._jvm.org.apache.kafka
        self.brokers = brokers
        self.name = name
        settings = {
            "bootstrap.servers": brokers,
            "default.api.timeout.ms": str(TIMEOUT_MS),
            "request.timeout.ms": str(TIMEOUT_MS),
        }
        self._admin = self._call(lambda: self._kafka.clients.admin.AdminClient.create(settings))

    def ends(self, earliest: bool = False) -> dict[int, int]:
        """The next offset of each partition, or the first one that is kept. Raises TopicError."""
        spec = self._kafka.clients.admin.OffsetSpec
        found = self._call(lambda: self._admin.describeTopics([self.name]).allTopicNames().get())
        wanted = {
            self._kafka.common.TopicPartition(self.name, part.partition()): spec.earliest()
            if earliest
            else spec.latest()
            for part in found[self.name].partitions()
        }
        offsets = self._call(lambda: self._admin.listOffsets(wanted).all().get())
        return {at.partition(): offsets[at].offset() for at in offsets}

    def _call(self, ask):
        try:
            return ask()
        except TypeError as missing:  # py4j sees a package where there is no class.
            raise TopicError(
                "Spark's Kafka connector is not there: start the job by `make run BROKERS=... TOPIC=...`"
            ) from missing
        except Py4JJavaError as failed:
            cause = failed.java_exception.getCause() or failed.java_exception
            kind = cause.getClass().getSimpleName()
            if kind == "UnknownTopicOrPartitionException":
                raise TopicError(
                    f"there is no topic '{self.name}' at {self.brokers}; create it, or write to it first"
                ) from None
            raise TopicError(f"no answer for topic '{self.name}' from {self.brokers}: {kind}") from None


class KafkaOrders:
    """The topic as a stream. Runs until it is stopped, or until what the topic holds now is published."""

    given_as = "messages read"
    table_options = {"position_columns": POSITION, "store_position_columns": True}

    def __init__(self, spark: SparkSession, topic: Topic, table: str, settings: argparse.Namespace):
        """settings: rows_per_batch, until_caught_up, store_options."""
        self._spark = spark
        self._topic = topic
        self._table = table
        self._settings = settings
        self._first = topic.ends(earliest=True)

    def stream(self) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": self._topic.brokers,
            "subscribe": self._topic.name,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": self._settings.rows_per_batch,
        }
        source = self._spark.readStream.format("kafka").options(**options).load()
        order = F.from_json(F.col("value").cast("string"), PAYLOAD)
        return (
            source.select(order.alias("order"), *POSITION)
            .select("order.*", *POSITION)
            .withColumn("dt", day(F.col("event_time")))
        )

    def trigger(self) -> dict:
        return {"availableNow": True} if self._settings.until_caught_up else {"processingTime": "1 second"}

    def until_done(self, sink, ending: Ending):
        """``sink`` itself: a topic has no end, and availableNow knows its own."""
        return sink

    def lag(self, published: int) -> int:
        """How many messages in the topic the table does not have yet."""
        done, ends = self._recorded(), self._topic.ends()
        return sum(end - done.get(part, self._first[part]) for part, end in ends.items())

    def outcome(self, table: DataFrame, _interrupted_after: int | None) -> Outcome:
        """Compare the table with the offsets that it records: each offset from the topic's first one must be there
        once.

        An offset stands for a message in a topic without transactions and without compaction, which is what this
        expects.
        """
        done = self._recorded()
        # What the topic has dropped by age since it was read is still expected in the table.
        oldest = {row[0]: row[1] for row in table.groupBy("partition").agg(F.min("offset")).collect()}
        first = {part: min(at, oldest.get(part, at)) for part, at in self._first.items()}
        expected = sum(end - first[part] for part, end in done.items())
        row = table.agg(F.count("*"), F.count_distinct(*POSITION)).first()
        return Outcome(self.given_as, expected, rows=row[0], duplicates=row[0] - row[1], lost=expected - row[1])

    def _recorded(self) -> dict[int, int]:
        try:
            text = streamsink.starting_offsets(self._table, store_options=self._settings.store_options)
        except streamsink.errors.Misuse as none:
            if none.kind != "positions.none":
                raise
            return {}
        return {int(part): offset for part, offset in json.loads(text).get(self._topic.name, {}).items()}


class TopicOrders(KafkaOrders):
    """The topic as a stream into a destination that is no Paimon table. Spark's checkpoint says how far it is read."""

    def __init__(self, spark: SparkSession, topic: Topic, places: Places, settings: argparse.Namespace):
        super().__init__(spark, topic, places.table, settings)
        self._places = places

    def stream(self) -> DataFrame:
        return super().stream().drop(*POSITION)

    def expected(self, interrupted_after: int | None) -> int:
        """How many messages must be there, of a topic that still has its first one.
        interrupted_after: as of ``GeneratedOrders.expected``."""
        done = self._recorded(interrupted_after)
        return sum(end - self._first[part] for part, end in done.items())

    def _recorded(self, last: int | None = None) -> dict[int, int]:
        ends = self._places.planned_end(self._places.newest_batch() if last is None else last)
        return {int(part): offset for part, offset in ends.get(self._topic.name, {}).items()}


def orders_of_job(spark: SparkSession, places: Places, args: argparse.Namespace) -> TopicOrders | GeneratedOrders:
    """The source of a job that writes into another destination than a Paimon table."""
    if args.brokers:
        return TopicOrders(spark, Topic(spark, args.brokers, args.topic), places, args)
    return GeneratedOrders(spark, places, args.rows_per_batch, args.up_to)
