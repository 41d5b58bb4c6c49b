"""The markers that say which records are in Kafka: one message in the transaction of each publisher. Driver only.

They lie in a compacted topic. Partition k has those of publisher k, of all applications; the key is the application. A
marker is committed with the rows or not at all, and what compaction keeps is the newest one of each key.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from streamsink.clock import Clock
from streamsink.errors import Corrupt, Misuse, Retryable
from streamsink.sinks.kafka import client

# A compacted topic keeps what is newer than its last closed segment, and all of that is read at a start.
_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "max.message.bytes": str(8 << 20)}
_CONFIG |= {"min.cleanable.dirty.ratio": "0.1", "compression.type": "producer"}
# As many as Kafka keeps of its own transactions: a lost marker is worth no less.
_COPIES = 3
# A state that is longer is compressed; its first byte is no '{' then.
_COMPRESSED_FROM = 64 << 10
_POLL_S, _READ_TIMEOUT_MS = 0.2, 60_000
_MOST_POLLS = 10_000_000
# The way on when nobody knows what is published.
ANEW = (
    "Look in the destination which batch of the query is the last one there; then give the sink a new marker_topic "
    "and a new journal, and start the query with adopt_from_batch set to the batch behind it; or, where its checkpoint "
    "is not the one of that batch any more, start a new checkpoint behind those of its rows that are there"
)


@dataclass(frozen=True)
class Marker:
    """What one publisher of an application has published.

    number, record_id: of the last record of which it has published all its rows. state: of that record; only publisher
    0, which is the last one to publish, keeps it. destination: path of the sink.
    part_of: id of the next record, when some of its rows are published already, which are too many for one transaction.
    part_rows: how many of this publisher's rows these are.
    """

    destination: str
    number: int = 0
    record_id: str = ""
    state: str | None = None
    part_of: str = ""
    part_rows: int = 0

    def encode(self) -> bytes:
        """The value of the message."""
        data = json.dumps({"version": 1, **asdict(self)}).encode()
        return data if len(data) < _COMPRESSED_FROM else zlib.compress(data)

    @classmethod
    def decode(cls, data: bytes) -> "Marker":
        """The inverse of ``encode``. Raises ValueError, KeyError or TypeError for anything else."""
        value = json.loads(data if data.startswith(b"{") else zlib.decompress(data))
        if value.pop("version") != 1:
            raise ValueError("a newer streamsink has written it")
        return cls(**value)

    def after_part(self, record_id: str, rows: int) -> "Marker":
        """The marker when so many rows of the next record are published."""
        return replace(self, part_of=record_id, part_rows=rows)


@dataclass
class _Partition:
    """What is known of one partition. next: offset of the first message that was not read yet."""

    next: int = 0
    low: int = 0
    markers: dict[str, Marker] = field(default_factory=dict)


# By publisher and application: the marker that this driver has committed last, and its offset.
Own = dict[tuple[int, str], tuple[int, Marker]]


class Markers:
    """Reads the topic of the markers, each message once. Used by one thread at a time."""

    def __init__(self, path: str, servers: str, options: client.Settings, topic: str, own: Own):
        """path: of the sink, for messages. own: filled by whoever publishes, perhaps another thread."""
        self.own = own
        self._path, self._topic = path, topic
        self._consumer = client.new_consumer(servers, options, committed=True)
        # Sees what is not committed, and the ends of partitions.
        self._unread = client.new_consumer(servers, options, committed=False)
        self._partitions: dict[int, _Partition] = {}
        self._clock = Clock()

    def newest(self, publisher: int, application: str, settle: Callable[[], None]) -> Marker:
        """The committed marker of this publisher, of all that have been written until now.

        It may be hidden behind the transaction of somebody else that is still open: then it is waited for. settle: ends
        the publisher's own transaction, if one is open; called when that may be what hides a marker.

        Raises Retryable when it stays hidden, or when what was read is not there any more; Corrupt when it is damaged;
        Misuse when markers were deleted.
        """
        own = self.own.get((publisher, application))
        # Behind our marker is the end of our transaction, now or soon, and before that no other marker of ours can be.
        # So where there is no more than that, ours is the newest one, and nothing has to be read.
        if own is not None:
            end = self._offsets(publisher)[1]
            if end <= own[0]:
                raise self._gone(publisher, own[0], end)
            if end <= own[0] + 2:
                return own[1]
        known = self._read(publisher, application, settle)
        found = known.markers.get(application)
        if found is not None:
            return found
        if known.low:
            raise Misuse(
                f"{self._path}: the topic '{self._topic}' has no marker of application '{application}' in partition "
                f"{publisher}, and what was below offset {known.low} was deleted there (by retention, or by hand), so "
                f"nobody knows what was published. Nothing was written. {ANEW}",
                kind="kafka.markers-deleted",
            )
        return Marker(self._path)

    def _gone(self, number: int, offset: int, end: int) -> Retryable:
        return Retryable(
            f"{self._path}: partition {number} of the topic '{self._topic}' ends at offset {end}, and this start of "
            f"the query has read or written a message at offset {offset}: the topic was deleted and created again, or "
            "has lost what was written last. Nothing of the next record was published. The restart of the query says "
            "what can be done",
            kind="destination.history-changed",
        )

    def applications(self) -> list[str]:
        """The applications that have published anything."""
        return [name for name, marker in self._read(0, "", lambda: None).markers.items() if marker.state is not None]

    def _read(self, number: int, application: str, settle: Callable[[], None]) -> _Partition:
        known = self._partitions.setdefault(number, _Partition())
        low, end = self._offsets(number)
        if end < known.next:
            raise self._gone(number, known.next - 1, end)
        known.low = low
        if known.next >= end:
            return known
        deadline_ms = self._clock.monotonic_ms() + _READ_TIMEOUT_MS
        hidden: int | None = None
        for offset in self._polls(number, known, deadline_ms):
            if offset >= (end if hidden is None else hidden):
                break
            if hidden is None:
                # All that is committed before the first open transaction is read. Is anything of ours behind that?
                hidden = self._last_own(number, application, offset, end)
                if hidden <= offset:
                    break
                settle()
        else:
            raise Retryable(
                f"{self._path}: a marker of application '{application}' in partition {number} of the topic "
                f"'{self._topic}' is hidden behind a transaction that somebody else has left open there, at offset "
                f"{known.next} or before {hidden}. Nothing of the next record was published. The broker ends such a "
                "transaction when it times out; start the query again",
                kind="kafka.marker-hidden",
            )
        return known

    def _polls(self, number: int, known: _Partition, deadline_ms: float) -> Iterator[int]:
        """Reads what is committed, and yields the offset of the first message that cannot be read yet, until the time
        is over.
        """
        library = client.kafka()
        consumer = self._consumer
        consumer.assign([library.TopicPartition(self._topic, number, max(known.next, known.low))])
        try:
            for _ in range(_MOST_POLLS):
                if self._clock.monotonic_ms() > deadline_ms:
                    break
                message = consumer.poll(_POLL_S)
                if message is None:
                    continue
                if message.error() is None:
                    self._take(known, message)
                    known.next = message.offset() + 1
                elif message.error().code() == library.KafkaError._PARTITION_EOF:
                    known.next = message.offset()
                    yield known.next
                else:
                    raise library.KafkaException(message.error())
        finally:
            consumer.unassign()

    def _last_own(self, number: int, application: str, start: int, end: int) -> int:
        """The offset behind the application's last marker from ``start`` on, committed or not; 0 for none."""
        library = client.kafka()
        consumer, last = self._unread, 0
        consumer.assign([library.TopicPartition(self._topic, number, start)])
        deadline_ms = self._clock.monotonic_ms() + _READ_TIMEOUT_MS
        try:
            for _ in range(_MOST_POLLS):
                if self._clock.monotonic_ms() > deadline_ms:
                    break
                message = consumer.poll(_POLL_S)
                if message is None:
                    continue
                if message.error() is None:
                    last = message.offset() + 1 if message.key() == application.encode() else last
                elif message.error().code() != library.KafkaError._PARTITION_EOF:
                    raise library.KafkaException(message.error())
                if message.offset() + (message.error() is None) >= end:
                    return last
        finally:
            consumer.unassign()
        raise Retryable(
            f"{self._path}: the topic '{self._topic}' could not be read up to offset {end} of partition {number} "
            f"within {_READ_TIMEOUT_MS} ms. Nothing was published. Look whether the brokers answer, and start the "
            "query again",
            kind="kafka.markers-unread",
        )

    def _take(self, known: _Partition, message: Any) -> None:
        name = (message.key() or b"").decode(errors="replace")
        if message.value() is None:  # somebody wants the application to be forgotten
            known.markers.pop(name, None)
            return
        try:
            known.markers[name] = Marker.decode(message.value())
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as broken:
            raise Corrupt(
                f"{self._path}: the message at offset {message.offset()} of partition {message.partition()} of the "
                f"topic '{self._topic}' is no marker that this streamsink reads: something else has written it, or a "
                "newer streamsink. Nothing was published. Use that version. Or keep others from writing to such a "
                f"topic. {ANEW}",
                kind="kafka.marker-corrupt",
            ) from broken

    def _offsets(self, number: int) -> tuple[int, int]:
        """The first offset of a partition and the end behind its last message, committed or not."""
        # A consumer that leaves out what is not committed would be told the end of what is.
        place = client.kafka().TopicPartition(self._topic, number)
        low, end = self._unread.get_watermark_offsets(place, client.REQUEST_TIMEOUT_S)
        return low, end


def prepare(path: str, admin: Any, topic: str, publishers: int, *, only_asked: bool = False) -> client.TopicFacts:
    """The topic of the markers, with a partition for each publisher; made, or made larger, where it is not so.

    only_asked: it is taken as it is. Raises Misuse when it does not keep what it should, or is not there and would not
    be made.
    """
    library = client.kafka()
    found = client.describe(admin, topic)
    if only_asked:
        publishers = found.partitions if found is not None else 0
    if not publishers:
        raise Misuse(
            f"{path}: there is no topic '{topic}', which has the markers. Nothing was changed: only a query makes it. "
            "Give the sink as the query has it (bootstrap_servers, marker_topic). If the topic was deleted, start the "
            "query, whose error says what can be done",
            kind="sink.missing",
        )
    if found is None:
        new = library.admin.NewTopic(topic, publishers, min(_COPIES, client.brokers(admin)), config=_CONFIG)
        _settled(admin.create_topics([new])[topic], library.KafkaError.TOPIC_ALREADY_EXISTS)
    elif found.partitions < publishers:
        more = library.admin.NewPartitions(topic, publishers)
        _settled(admin.create_partitions([more])[topic], library.KafkaError.INVALID_PARTITIONS)
    ready = client.describe_new(admin, topic, publishers)
    if ready is None or ready.partitions < publishers:
        raise Retryable(
            f"{path}: the topic '{topic}' for markers was created, and the brokers do not show {publishers} partitions "
            "of it yet. Nothing was written. Start the query again",
            kind="kafka.marker-topic",
        )
    if ready.cleanup != "compact":
        raise Misuse(
            f"{path}: the topic '{topic}' for markers has cleanup.policy={ready.cleanup}, expected "
            "compact: what says which records are published would be deleted in time. Nothing was written. Set "
            "cleanup.policy=compact on the topic, or give the sink another marker_topic='...'",
            kind="kafka.marker-topic",
        )
    return ready


def _settled(future: Any, accepted: int) -> None:
    """Wait for an answer. accepted: the code of an error after which it is as well."""
    library = client.kafka()
    try:
        future.result(client.REQUEST_TIMEOUT_S)
    except library.KafkaException as refused:
        if refused.args[0].code() != accepted:
            raise
