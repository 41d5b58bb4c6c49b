"""Tells a consumer group up to where topics are read. Runs on the driver.

It is done with a client of its own, in Spark's JVM: Spark closes the one of its source when the query ends, and what is
published last is published after that. The client has the settings and the credentials of the source, which stay in the
JVM.
"""

from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from streamsink.protocol.positions import Offsets

# The longest time that the broker has for an answer, and that is waited for it.
_ANSWER_MS = 5_000
_WAIT_S = 6
# What a broker says of a group that has members, of which the sender is none.
_IN_USE = {"UnknownMemberIdException", "StaleMemberEpochException", "FencedMemberEpochException"}
_MOST_MEMBERS = 5


class ConsumerGroup:
    """One group in the cluster of one reader of Spark's. Used by one thread.

    reader: Spark's reader of offsets, whose settings the client has.
    """

    def __init__(self, spark: SparkSession, reader: JavaObject, group: str):
        """Raises Py4JError where this version of Spark does not show its settings, or the client cannot be made."""
        self.group = group
        jvm: Any = spark._jvm
        self._jvm, self._kafka = jvm, jvm.org.apache.kafka
        gateway: Any = spark.sparkContext._gateway
        nothing = gateway.new_array(self._kafka.common.TopicPartition, 0)
        # Any strategy makes the client in the way in which Spark's source does, with tokens where it has some.
        strategy = jvm.org.apache.spark.sql.kafka010.AssignStrategy(nothing)
        self._admin = strategy.createAdmin(reader.driverKafkaParams())
        self._seconds = jvm.java.util.concurrent.TimeUnit.SECONDS

    def tell(self, ends: Offsets) -> str:
        """Commit the next offset of each of these partitions, and wait for the answer.

        Idempotent. Returns '' when they are committed, else why not.
        """
        try:
            offsets = self._jvm.java.util.HashMap()
            for topic, part, at in _each(ends):
                place = self._kafka.common.TopicPartition(topic, int(part))
                offsets.put(place, self._kafka.clients.consumer.OffsetAndMetadata(at))
            options = self._in_time("AlterConsumerGroupOffsetsOptions")
            self._admin.alterConsumerGroupOffsets(self.group, offsets, options).all().get(_WAIT_S, self._seconds)
            return ""
        except (Py4JError, TypeError) as failed:
            why = error_name(failed)
            return f"{why}: {self._members()}" if why in _IN_USE else why

    def close(self) -> None:
        """End the client, without waiting for answers."""
        try:
            self._admin.close(self._jvm.java.time.Duration.ZERO)
        except (Py4JError, TypeError):
            return  # the JVM is gone, and the client with it

    def _members(self) -> str:
        """Who is in the group, by the ids that they have as clients."""
        try:
            names = self._jvm.java.util.Collections.singletonList(self.group)
            described = self._admin.describeConsumerGroups(names, self._in_time("DescribeConsumerGroupsOptions"))
            members = described.all().get(_WAIT_S, self._seconds).get(self.group).members().toArray()
            clients = sorted({f"'{member.clientId()}'" for member in members})
        except (Py4JError, TypeError):
            clients = []
        said = ", ".join(clients[:_MOST_MEMBERS]) + (", ..." if len(clients) > _MOST_MEMBERS else "")
        return f"consumers are in the group ({said})" if clients else "consumers are in the group"

    def _in_time(self, options: str) -> JavaObject:
        made = getattr(self._kafka.clients.admin, options)()
        return made.timeoutMs(_ANSWER_MS)


def error_name(failed: Exception) -> str:
    """The name of the error. Its text may say more than a log may contain."""
    if not isinstance(failed, Py4JJavaError):
        return type(failed).__name__
    error = failed.java_exception
    cause = error.getCause()
    return str((error if cause is None else cause).getClass().getSimpleName())


def _each(ends: Offsets) -> Iterator[tuple[str, str, int]]:
    return ((topic, part, at) for topic, parts in ends.items() for part, at in parts.items())
