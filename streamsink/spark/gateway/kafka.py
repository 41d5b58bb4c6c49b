"""What the Kafka broker says of the topics that a query reads: their ids, and their first and next offsets.

Runs on the driver.

The broker is asked with the client that Spark's own Kafka source has made, so with the settings and the credentials of
the source. They stay in the JVM: nothing here reads them. Spark closes that client when the query ends.

What the broker does not tell counts as unknown. This is written to the log once in a run, and is never an error.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from streamsink.events import log
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import Offsets, SourceRange, same_id
from streamsink.spark.gateway.consumer_group import error_name

_STREAM = "KafkaMicroBatchStream"
_ZERO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_NO_TOPICS_ID = "gone"
# The longest time that a batch waits for an answer. Spark has just planned the batch with the same client.
_WAIT_S = 10


class KafkaSources:
    """The Kafka sources among the sources of one start of a query.

    numbers: for each line of the offset log, the number under which Spark keeps what the source itself logs. A
    DataFrame that is used twice in a query is one source with two lines.
    """

    def __init__(self, spark: SparkSession, execution: JavaObject, table: str):
        self.spark, self._table = spark, table
        self._said = False
        self._names: list[str] = []  # of the sources of the last batch
        self._streams: list[int] = []  # by line: the index of the first line with the same stream
        self._kafka: dict[int, _Topics] = {}
        try:
            sources = execution.sources()
            for line in range(sources.size()):
                stream = sources.apply(line)
                first = sources.indexOf(stream)
                self._streams.append(first)
                if first == line and stream.getClass().getName().endswith(_STREAM):
                    self._kafka[line] = _Topics(spark, stream, self._not_known)
        except Py4JError:
            self._not_known("this version of Spark does not show its sources")
        numbered = sorted(set(self._streams))
        self.numbers = [numbered.index(first) for first in self._streams]

    def number(self, line: int) -> int:
        """The number under which Spark keeps what the source of this line itself logs."""
        return self.numbers[line] if line < len(self.numbers) else line

    def identified(self, sources: tuple[SourceRange, ...], batch_id: int, first: bool) -> tuple[SourceRange, ...]:
        """Return the sources of a batch with their ids, and begin to ask whether the ids are still true.

        The answer is for ``looked_at_again``. first: whether the sink that asks has not had a batch of this run before.
        The broker's offsets are then added to the sources. They are also added in a batch with partitions that the run
        had not seen: in each call for that batch, because each sink and each new attempt judges them.
        """
        found, asked = list(sources), self._of(sources)
        self._names = [source.name for source in sources]
        if any(source.numeric and place not in asked for place, source in enumerate(sources)):
            self._not_known("Spark reads a source in a way that does not show its client")
        for place, (source, topics) in asked.items():
            ends = _offsets(source)
            topics.learn(ends)
            counts = {topic: len(parts) for topic, parts in ends.items()}
            if counts != topics.counts:
                topics.counts, topics.counted_in = counts, batch_id
            if first or topics.counted_in == batch_id:
                topics.learn_bounds()
                source = source.told(earliest=topics.earliest, newest=topics.newest)
            found[place] = source.told(cluster=topics.cluster, topic_ids=topics.ids_of(ends))
        for topics in self._kafka.values():
            topics.ask()
        return tuple(found)

    def looked_at_again(self, batch: Batch) -> Batch:
        """Return the batch with the ids that its topics had when they were asked for, while its rows were written."""
        for topics in self._kafka.values():
            topics.hear()
        found = list(batch.sources)
        for place, (source, topics) in self._of(batch.sources).items():
            found[place] = source.told(cluster=topics.cluster, topic_ids=topics.ids_of(_offsets(source)))
        return replace(batch, sources=tuple(found))

    def ends(self, sources: tuple[SourceRange, ...], look_again: bool = False) -> list[tuple[JavaObject, Offsets]]:
        """Where these ranges end: of each topic that is still the one which the range was read from, with one of
        Spark's readers of its cluster.

        sources: of a published checkpoint, perhaps of an earlier start of the query. A topic that several of them have
        read ends where the first of them does. look_again: ask the brokers for the ids now, and do not go by what the
        last batch has heard of them.
        """
        found: dict[str | int, tuple[JavaObject, dict[str, dict[str, int]]]] = {}
        for place, (source, topics) in self._of(sources).items():
            if self._names[place : place + 1] != [source.name] or not same_id(source.cluster, topics.cluster):
                continue
            _, mine = found.setdefault(topics.cluster or self._streams[place], (topics.reader, {}))
            known = (topics.ids_now if look_again else topics.ids_of)(_offsets(source))
            for topic, ended in _offsets(source).items():
                if same_id(source.topic_id(topic), known.get(topic, "")):
                    other = mine.get(topic, {})
                    mine[topic] = {**other, **{part: min(at, other.get(part, at)) for part, at in ended.items()}}
        return list(found.values())

    @property
    def has_any(self) -> bool:
        """Whether the query has a Kafka source that shows its client."""
        return bool(self._kafka)

    def _of(self, sources: tuple[SourceRange, ...]) -> "dict[int, tuple[SourceRange, _Topics]]":
        return {
            place: (source, self._kafka[self._streams[place]])
            for place, source in enumerate(sources)
            if place < len(self._streams) and self._streams[place] in self._kafka and source.numeric
        }

    def _not_known(self, why: str) -> None:
        if not self._said:
            log.warning(
                "%s: Kafka does not tell the ids of all clusters and topics of this query (%s), so that a topic that "
                "was deleted and created again is only known by its offsets",
                self._table,
                why,
            )
        self._said = True


@dataclass
class _Topics:
    """The topics of one Kafka source.

    cluster, ids, earliest, newest: '', missing or None when they are not known. counts: the number of partitions by
    topic. counted_in: the first batch that had these counts.
    """

    spark: SparkSession
    stream: JavaObject
    not_known: Callable[[str], None]
    cluster: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    counted_in: int | None = None
    earliest: Offsets | None = None
    newest: Offsets | None = None
    _ids: dict[str, str] = field(default_factory=dict)
    _collection: JavaObject | None = None
    _answer: JavaObject | None = None

    def __post_init__(self) -> None:
        jvm: Any = self.spark._jvm
        self._jvm, self.reader = jvm, self.stream.kafkaOffsetReader()
        self._seconds = self._jvm.java.util.concurrent.TimeUnit.SECONDS

    def ids_of(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of these topics, without those that are not known."""
        return {topic: self._ids[topic] for topic in topics if self._ids.get(topic)}

    def ids_now(self, topics: Iterable[str]) -> dict[str, str]:
        """The same as the brokers tell them now, which changes nothing of what is known here: threads beside the batch
        ask for them. A topic that has lost its id has one that no topic has.
        """
        known = self.ids_of(topics)
        now = self._topic_ids(list(known)) if known else {}
        return {topic: found or _NO_TOPICS_ID for topic, found in now.items()}

    def learn(self, topics: Iterable[str]) -> None:
        """Ask for the ids of topics that are new to the run, and wait for the answer."""
        new = [topic for topic in topics if topic not in self._ids]
        if not new:
            return
        if not self._ids:
            self.cluster = self._cluster_id() or ""
        self._ids |= self._topic_ids(new)
        self._collect()

    def learn_bounds(self) -> None:
        """Ask for the first and the next offset of every partition, and wait for the answer."""
        self.earliest, self.newest = None, None
        try:
            offsets = self._jvm.org.apache.spark.sql.kafka010.JsonUtils.partitionOffsets
            planned = self._planned()
            if planned is not None:
                newest = planned.json()
            else:
                newest = offsets(self.reader.fetchLatestOffsets(self._jvm.scala.Option.empty()))
            self.newest = json.loads(newest)
            self.earliest = json.loads(offsets(self.reader.fetchEarliestOffsets()))
        except (Py4JError, TypeError) as failed:
            self.not_known(error_name(failed))

    def _planned(self) -> JavaObject | None:
        """The offsets up to which Spark has looked; None when it has not looked.

        A start that begins with a batch which was planned before has no such offsets, and Spark throws a
        NullPointerException then.
        """
        try:
            return self.stream.reportLatestOffset()
        except Py4JJavaError:
            return None

    def ask(self) -> None:
        """Begin to ask whether topics with these ids exist. This is one request, however many topics there are.

        Of a cluster that tells no topic's id, its own is asked for.
        """
        self._answer = None
        try:
            if self._collection is not None:
                self._answer = self._admin().describeTopics(self._collection).allTopicIds()
            elif self.cluster:
                self._answer = self._admin().describeCluster().clusterId()
        except (Py4JError, TypeError) as failed:
            self.not_known(error_name(failed))

    def hear(self) -> None:
        """Wait for the answer. Unless it says that all of them exist, ask for the ids by the topics' names."""
        if self._answer is None:
            return
        try:
            found = self._answer.get(_WAIT_S, self._seconds)
            self.cluster = self.cluster if self._collection is not None else found or self.cluster
        except Py4JError:
            self.cluster = self._cluster_id() or self.cluster
            now = self._topic_ids([topic for topic, known in self._ids.items() if known])
            self._ids |= {topic: found for topic, found in now.items() if found}
            self._collect()
        self._answer = None

    def _cluster_id(self) -> str | None:
        try:
            found = self._admin().describeCluster().clusterId().get(_WAIT_S, self._seconds)
        except (Py4JError, TypeError) as failed:
            self.not_known(error_name(failed))
            return None
        if not found:
            self.not_known("the broker has no cluster id")
        return found or None

    def _topic_ids(self, topics: list[str]) -> dict[str, str]:
        """The ids by topic; '' for a topic whose id the broker does not tell."""
        try:
            names = self._jvm.java.util.ArrayList()
            for topic in topics:
                names.add(topic)
            described = self._admin().describeTopics(names)
            try:
                answers = described.allTopicNames().get(_WAIT_S, self._seconds)
                found = {topic: answers.get(topic).topicId().toString() for topic in topics}
            except Py4JJavaError as failed:
                self.not_known(error_name(failed))
                found = self._one_by_one(described.topicNameValues(), topics)
        except (Py4JError, TypeError) as failed:
            self.not_known(error_name(failed))
            return dict.fromkeys(topics, "")
        if _ZERO_ID in found.values():
            self.not_known("the broker gives topics no ids")
        return {topic: "" if known == _ZERO_ID else known for topic, known in found.items()}

    def _one_by_one(self, answers: JavaObject, topics: list[str]) -> dict[str, str]:
        """The ids that the broker tells, where it does not tell all of them."""
        found = dict.fromkeys(topics, "")
        for topic in topics:
            answer = answers.get(topic)
            try:
                if answer.isDone():
                    found[topic] = answer.get().topicId().toString()
            except Py4JJavaError:
                continue  # the log has been told for all of them
        return found

    def _collect(self) -> None:
        """Put the ids into the collection that Kafka's client takes."""
        self._collection = None
        known = [known for known in self._ids.values() if known]
        try:
            kafka, ids = self._jvm.org.apache.kafka.common, self._jvm.java.util.ArrayList()
            for each in known:
                ids.add(kafka.Uuid.fromString(each))
            self._collection = kafka.TopicCollection.ofTopicIds(ids) if known else None
        except (Py4JError, TypeError) as failed:
            self.not_known(error_name(failed))

    def _admin(self) -> JavaObject:
        """Kafka's client, as Spark's source has it now."""
        return self.reader.admin()


def _offsets(source: SourceRange) -> Offsets:
    """Where a batch ends in a numeric source."""
    return cast(Offsets, source.end)  # ``SourceRange.numeric`` has checked its form
