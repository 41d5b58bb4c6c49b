"""Publishes recorded checkpoints into Kafka: rows and a marker in one transaction of each publisher. Driver only.

The order, for each publisher: a new producer; ``init_transactions``, after which no earlier producer of its id can
commit anything; the marker; then the rows are left out that the marker tells of, and the others are published with the
next marker. A producer that has failed in any way is thrown away, and the order begins again: whether its transaction
was committed is what the next marker says.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamsink.clock import Clock
from streamsink.errors import Misuse, Retryable, StreamsinkError
from streamsink.sinks.kafka import client
from streamsink.sinks.kafka.markers import ANEW, Marker, Markers
from streamsink.sinks.kafka.messages import Message, alike, messages
from streamsink.sinks.transactions.committer import SHARED
from streamsink.sinks.transactions.function import PendingCheckpoint

_TRIES, _PAUSE_MS, _ABORT_S = 4, 500, 5.0
_MARKER_BYTES = 8 << 20
_BATCH_BYTES = 1_000_000  # of the client
# So many messages on their way are waited for before the marker, which holds back readers of other markers.
_MANY = 1_000
_FULL_S, _MOST_WAITS = 0.1, 10_000
# The messages of a record, as ``normal`` makes them, in an order that is always the same.
Rows = Callable[[], Iterable[pa.RecordBatch]]
# What a further try does not change, by the names of the codes.
_FINAL = frozenset(
    {
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_RECORD",
        "INVALID_TRANSACTION_TIMEOUT",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
        "_INVALID_ARG",
    }
)


# Of these what brokers say for a moment after their start.
_LATE = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})


@dataclass(frozen=True)
class Target:
    """Where records are published. path: of the sink. part_bytes: of one transaction, about.

    options: of the client.
    """

    path: str
    servers: str
    options: client.Settings
    marker_topic: str
    part_bytes: int


@dataclass(frozen=True)
class Share:
    """What a record says of its publishing.

    publishers: how many. least, most: the smallest and the largest ``max.message.bytes`` of its topics.
    """

    publishers: int = 1
    least: int = _BATCH_BYTES
    most: int = _BATCH_BYTES

    @classmethod
    def of(cls, writers: Sequence["Share"]) -> "Share":
        """Of a record with these writers, or without rows."""
        if not writers:
            return cls()
        least, most = min(each.least for each in writers), max(each.most for each in writers)
        return cls(writers[0].publishers, least, most)


@dataclass
class _Publisher:
    """A publisher with a producer that is not fenced, as far as is known.

    marker: the last one that is committed. rows: how many of the record's messages it has been given. bytes: of those
    in its open transaction. skip: how many of the first ones are published already.
    """

    producer: Any
    marker: Marker
    is_open: bool = False
    rows: int = 0
    bytes: int = 0
    skip: int = 0


@dataclass
class Publishing:
    """What one committer keeps from one record to the next: producers, and what is read of the markers.

    Used by one thread at a time.
    """

    target: Target
    markers: Markers
    _publishers: dict[int, _Publisher] = field(default_factory=dict)
    _limits: tuple[int, int] = (_BATCH_BYTES, _MARKER_BYTES)
    _application: str = ""

    @classmethod
    def of(cls, session: dict[str, Any], target: Target) -> "Publishing":
        """The one of this session."""
        if "publishing" not in session:
            own = session.get(SHARED, session).setdefault("markers of ours", {})
            markers = Markers(target.path, target.servers, target.options, target.marker_topic, own)
            session["publishing"] = cls(target, markers)
        found: Publishing = session["publishing"]
        return found

    def last_committed(self, application: str) -> str | None:
        """The state of the last record that all publishers have published; None for none."""
        # At a start a driver that died may have left a transaction open. Later on it would be our own one, of another
        # thread, or one of another application: both end by themselves.
        settle = self._settle if not self._application else _wait
        # A start asks for its own application first, and later perhaps for others.
        self._application = self._application or application
        found = self.markers.newest(0, application, lambda: settle(application))
        if found.destination == self.target.path:
            return found.state
        if application == self._application:
            raise self._of_another(application, found)
        return None

    def _of_another(self, application: str, found: Marker) -> Misuse:
        return Misuse(
            f"{self.target.path}: the application '{application}' writes to another destination of this cluster, "
            f"{found.destination}, so its transactional ids and markers are taken. Nothing was written. Give this "
            "query a name of its own: application='...'",
            kind="kafka.name-taken",
        )

    def _settle(self, application: str) -> None:
        self._new_producer(application, 0)

    def commit(self, checkpoint: PendingCheckpoint[Any], share: Share, rows: Rows) -> None:
        """Publish a record. Idempotent.

        Raises Fenced when this driver is superseded; Misuse for what the brokers refuse; Retryable for other failures.
        """
        kafka_exception = client.kafka().KafkaException
        self._heed(share)
        failed: Any = None
        for attempt in range(_TRIES):
            if attempt:
                Clock().sleep_ms(_PAUSE_MS * attempt)
                checkpoint.fence()
            try:
                return self._commit(checkpoint, share.publishers, rows)
            except kafka_exception as said:
                failed = said
                if said.args[0].name() in _FINAL - _LATE:
                    break
        raise self._failed(checkpoint, failed) from failed

    def _failed(self, checkpoint: PendingCheckpoint[Any], failed: Any) -> StreamsinkError:
        name = failed.args[0].name()
        final = name in _FINAL
        found = (
            f"{self.target.path}: record {checkpoint.number} (checkpoint {checkpoint.checkpoint_id}) could not be "
            f"published: the client says {name}. No reader that leaves out what is not committed sees a part of a "
            "transaction. The record is safe in the journal, and every start of the query publishes it again until "
            "that succeeds; nothing after it is published before. "
        )
        if final:
            return Misuse(
                found + "Give the brokers what they miss (the topic, its max.message.bytes, the rights of this user), "
                "or correct kafka_options, and start the query again",
                kind="kafka.refused",
            )
        return Retryable(
            found + "Look whether the brokers answer, and start it again; where a transaction takes longer than "
            "transaction.timeout.ms, raise that in kafka_options, or lower max_transaction_bytes",
            kind="kafka.not-published",
        )

    def _heed(self, share: Share) -> None:
        """Let producers go that would make too large batches for the topics of a record, or refuse their messages."""
        least, most = self._limits
        limits = min(least, share.least), max(most, share.most)
        if limits != self._limits:
            self._limits = limits
            self._publishers.clear()

    def forget(self, application: str, partitions: int) -> None:
        """A marker without a value for each publisher that there may have been: the name begins anew. Idempotent.

        partitions: of the topic of the markers. A driver that is still alive is fenced. Raises KafkaException.
        """
        for number in reversed(range(partitions)):  # the marker of publisher 0 counts until the end
            producer = self._new_producer(application, number)
            producer.begin_transaction()
            producer.produce(self.target.marker_topic, None, application.encode(), number)
            producer.commit_transaction(client.transaction_timeout_ms(self.target.options) / 1000)
            self.markers.own.pop((number, application), None)
            self._publishers.pop(number, None)

    # -- one try ---------------------------------------------------------------------------------------------------

    def _commit(self, checkpoint: PendingCheckpoint[Any], count: int, rows: Rows) -> None:
        lacking = self._lacking(checkpoint, count)
        if 0 not in lacking:
            return
        try:
            if checkpoint.transactions:
                self._send(checkpoint, count, lacking, rows)
            # The last one is publisher 0, whose marker says that the record is published.
            for number, publisher in sorted(lacking.items(), reverse=True):
                if publisher.rows or not number:
                    state = None if number else checkpoint.state
                    marker = Marker(self.target.path, checkpoint.number, checkpoint.record_id, state)
                    self._end(checkpoint.application, number, publisher, marker)
        except BaseException:
            for number, publisher in lacking.items():
                self._throw_away(number, publisher)
            raise

    def _lacking(self, checkpoint: PendingCheckpoint[Any], count: int) -> dict[int, _Publisher]:
        """The publishers that have not published all their rows of the record."""
        lacking = {}
        for number in range(count):
            publisher = self._publisher(checkpoint.application, number)
            marker = publisher.marker
            if marker.record_id == checkpoint.record_id:
                continue
            if number and marker.number == checkpoint.number:
                raise self._partly(checkpoint, number)
            if marker.number >= checkpoint.number or (not number and marker.number != checkpoint.expect):
                raise checkpoint.superseded(marker.number)
            publisher.rows = publisher.bytes = 0
            publisher.skip = marker.part_rows if marker.part_of == checkpoint.record_id else 0
            lacking[number] = publisher
        return lacking

    def _partly(self, checkpoint: PendingCheckpoint[Any], number: int) -> Misuse:
        return Misuse(
            f"{self.target.path}: publisher {number} has published its messages of another record with the number "
            f"{checkpoint.number}, and publisher 0 has not: its journal was lost, or put back from an older copy, "
            "while that record was being published. Its batch may be this one, so nothing of this one was published. "
            f"Write the messages that are missing there by a program of your own. {ANEW}",
            kind="kafka.partly-published",
        )

    def _publisher(self, application: str, number: int) -> _Publisher:
        if number not in self._publishers:
            producer = self._new_producer(application, number)
            # Only now: what an earlier producer has committed before it was fenced is there.
            marker = self.markers.newest(number, application, lambda: None)
            self._publishers[number] = _Publisher(producer, marker)
        return self._publishers[number]

    def _new_producer(self, application: str, number: int) -> Any:
        target, (least, most) = self.target, self._limits
        own = client.transactional_settings(target.servers, target.options, f"streamsink-{application}-{number}")
        batch = min(int(own.get("batch.size", _BATCH_BYTES)), least)
        producer = client.new_producer({**own, "message.max.bytes": most, "batch.size": batch})
        producer.init_transactions(client.REQUEST_TIMEOUT_S)
        return producer

    def _send(self, checkpoint: PendingCheckpoint[Any], count: int, lacking: dict[int, _Publisher], rows: Rows) -> None:
        before = 0
        for batch in rows():
            if count > 1 or not self._sent_at_once(lacking[0], batch):
                self._send_one_by_one(checkpoint, count, lacking, enumerate(messages(batch), before))
            before += batch.num_rows

    def _sent_at_once(self, publisher: _Publisher, batch: pa.RecordBatch) -> bool:
        """Give the one publisher all of these messages; nothing, and False, unless they fit into its transaction."""
        found = alike(batch) if publisher.rows >= publisher.skip else None
        if found is None or publisher.bytes + found[1] > self.target.part_bytes:
            return False
        self._begin(publisher)
        give = publisher.producer.produce
        for topic, value, key, partition in found[0]:
            try:
                give(topic, value, key, partition)
            except BufferError:
                produce(publisher.producer, Message(topic, key, value, None, partition))
        publisher.rows += batch.num_rows
        publisher.bytes += found[1]
        return True

    def _send_one_by_one(
        self,
        checkpoint: PendingCheckpoint[Any],
        count: int,
        lacking: dict[int, _Publisher],
        given: Iterable[tuple[int, Message]],
    ) -> None:
        """given: messages, each with its number in the record."""
        for number, message in given:
            by = message.publisher(count, number)
            publisher = lacking.get(by)
            if publisher is None:
                continue
            publisher.rows += 1
            if publisher.rows <= publisher.skip:
                continue
            if publisher.bytes >= self.target.part_bytes:
                part = publisher.marker.after_part(checkpoint.record_id, publisher.rows - 1)
                self._end(checkpoint.application, by, publisher, part)
            self._begin(publisher)
            produce(publisher.producer, message)
            publisher.bytes += message.bytes

    def _begin(self, publisher: _Publisher) -> None:
        if not publisher.is_open:
            publisher.producer.begin_transaction()
            publisher.is_open = True

    def _end(self, application: str, number: int, publisher: _Publisher, marker: Marker) -> None:
        """Commit what was sent together with the marker. When it returns, all of it is visible."""
        self._begin(publisher)
        producer = publisher.producer
        if len(producer) > _MANY:
            producer.flush(client.transaction_timeout_ms(self.target.options) / 1000)
        where: list[int] = []
        producer.produce(
            self.target.marker_topic,
            marker.encode(),
            application.encode(),
            number,
            on_delivery=lambda failed, message: None if failed else where.append(message.offset()),
        )
        producer.commit_transaction(client.transaction_timeout_ms(self.target.options) / 1000)
        if not where:
            producer.poll(0)
        if where:  # else the marker is read
            self.markers.own[number, application] = where[0], marker
        publisher.is_open, publisher.marker, publisher.bytes = False, marker, 0

    def _throw_away(self, number: int, publisher: _Publisher) -> None:
        """What has become of its transaction is not known: the next producer of its id finds out."""
        self._publishers.pop(number, None)
        if publisher.is_open:
            with contextlib.suppress(client.kafka().KafkaException):
                publisher.producer.abort_transaction(_ABORT_S)


def _wait(application: str) -> None:
    """Nothing is done but waiting."""


def produce(producer: Any, message: Message) -> None:
    """Give the client a message. When it has too many already, wait for some to be sent."""
    for _ in range(_MOST_WAITS):
        try:
            if message.headers:
                producer.produce(message.topic, message.value, message.key, message.partition, headers=message.headers)
            else:
                producer.produce(message.topic, message.value, message.key, message.partition)
            return
        except BufferError:
            producer.poll(_FULL_S)
    library = client.kafka()
    raise library.KafkaException(library.KafkaError(library.KafkaError._QUEUE_FULL))
