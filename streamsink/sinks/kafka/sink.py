"""Kafka topics as a sink: what a user names, and what of it runs where. EXECUTOR and driver."""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from streamsink.errors import Misuse, Retryable
from streamsink.sinks.kafka import client, messages
from streamsink.sinks.kafka.markers import prepare
from streamsink.sinks.kafka.publishing import Publishing, Share, Target, produce
from streamsink.sinks.transactions.function import ONLY_ASKED, PendingCheckpoint, TransactionContext
from streamsink.sinks.transactions.staged_rows import StagedRows, StagedRowsSink

EXACTLY_ONCE, AT_LEAST_ONCE, NONE = "exactly-once", "at-least-once", "none"
# A broker takes no more partitions for the markers than its operator can bear.
_MOST_PUBLISHERS = 1_000


@dataclass(frozen=True)
class KafkaSink(StagedRowsSink):
    """Messages in Kafka topics. The columns are those of Spark's own Kafka sink: key, value, headers, topic, partition.

    bootstrap_servers: as Kafka's clients take them. topic: of all messages; None where each row names its own.
    journal: folder for the journal, which all drivers of the query share and nobody cleans.
    semantic: 'exactly-once', for readers that set isolation.level=read_committed; 'at-least-once'; or 'none', which may
    lose messages as well.
    publishers: how many producers publish a record. Messages of one key have one producer.
    kafka_options: settings of librdkafka, such as {'security.protocol': 'SSL'}; producers, consumers and the questions
    to the brokers get those that they know.
    marker_topic: a compacted topic that streamsink creates and keeps, one for all queries of a cluster.
    max_transaction_bytes: messages of one publisher for a record go into several transactions when they have more bytes
    than that; readers then see them part by part.

    Raises Misuse for a value that is wrong.
    """

    bootstrap_servers: str
    topic: str | None = None
    journal: str = ""
    semantic: str = EXACTLY_ONCE
    publishers: int = 1
    kafka_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    marker_topic: str = "streamsink-markers"
    max_transaction_bytes: int = 256 << 20
    path: str = field(init=False)
    remembers: bool = field(init=False)

    def __post_init__(self) -> None:
        # Not the servers: their names may change, and the cluster's id is asked.
        object.__setattr__(self, "path", f"kafka:{self.topic if self.topic is not None else '(column topic)'}")
        object.__setattr__(self, "remembers", self.semantic == EXACTLY_ONCE)
        self._check("semantic", self.semantic, self.semantic in (EXACTLY_ONCE, AT_LEAST_ONCE, NONE), _SEMANTICS)
        self._check("topic", self.topic, self.topic != self.marker_topic, "another one than that of the markers")
        fits = isinstance(self.publishers, int) and 1 <= self.publishers <= _MOST_PUBLISHERS
        self._check("publishers", self.publishers, fits, f"a number from 1 to {_MOST_PUBLISHERS}")
        fits = isinstance(self.max_transaction_bytes, int) and self.max_transaction_bytes > 0
        self._check("max_transaction_bytes", self.max_transaction_bytes, fits, "a number of bytes greater than 0")
        client.check_options(self.path, self.kafka_options, self.remembers, self.semantic != NONE)

    def _check(self, name: str, found: object, fits: bool, expected: str) -> None:
        if not fits:
            raise Misuse(
                f"{self.path}: {name} is {found!r}, expected {expected}. Nothing was written. Correct it",
                kind="kafka.option",
            )

    # -- the destination -------------------------------------------------------------------------------------------

    def identity(self, session: dict[str, Any]) -> str:
        """The ids of the cluster and of its topics. Raises Misuse for what could make publishing impossible."""
        admin = client.new_admin(self.bootstrap_servers, self.kafka_options)
        ids = [client.cluster_id(admin)]
        if self.topic is not None:
            found = client.describe_new(admin, self.topic)
            if found is None:
                raise messages.no_topic(self.path, self.topic)
            ids.append(found.topic_id)
        if self.remembers:
            self._check_timeout(admin)
            only_asked = ONLY_ASKED in session
            ready = prepare(self.path, admin, self.marker_topic, self.publishers, only_asked=only_asked)
            ids.append(ready.topic_id)
        return "/".join(ids)

    def _check_timeout(self, admin: Any) -> None:
        timeout, longest = client.transaction_timeout_ms(self.kafka_options), client.longest_transaction_ms(admin)
        if longest is not None and timeout > longest:
            raise Misuse(
                f"{self.path}: transaction.timeout.ms is {timeout}, and the brokers allow {longest} "
                "(transaction.max.timeout.ms). Nothing was written. Set it lower in kafka_options, or have the "
                "brokers' limit raised",
                kind="kafka.transaction-timeout",
            )

    def check_columns(self, columns: pa.Schema, session: dict[str, Any]) -> None:
        """Raises Misuse unless rows with these columns are messages."""
        messages.check_columns(self.path, columns, self.topic)

    # -- one writer ------------------------------------------------------------------------------------------------

    def begin_transaction(self, context: TransactionContext) -> StagedRows:
        return StagedMessages(sink=self) if self.remembers else SentMessages(sink=self)

    def encode(self, transaction: StagedRows) -> str:
        share = transaction.share if isinstance(transaction, StagedMessages) else Share()
        return json.dumps({"size": transaction.size, **asdict(share)})

    def decode(self, text: str) -> StagedRows:
        said = json.loads(text)
        return StagedMessages(said.pop("size"), share=Share(**said))

    def facts(self, topic: str, fresh: bool = False) -> client.TopicFacts | None:
        """What the brokers say of a topic, or have said a moment ago; None where there is none."""
        return client.facts_of(self.bootstrap_servers, self.kafka_options, topic, fresh)

    def checked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as messages. Raises Misuse for one that its topic cannot take."""
        normal = messages.normal(rows, self.topic)
        try:
            messages.check(self.path, normal, self.facts, self.marker_topic)
        except Misuse:
            # The topic may have been mended since the brokers were asked.
            messages.check(self.path, normal, functools.partial(self.facts, fresh=True), self.marker_topic)
        return normal

    # -- one checkpoint --------------------------------------------------------------------------------------------

    def commit_checkpoint(self, checkpoint: PendingCheckpoint[StagedRows]) -> None:
        """Publish the messages of a record; see ``Publishing``. What is not exactly once is there already."""
        if not self.remembers:
            return
        writers = [p.transaction.share for p in checkpoint.transactions if isinstance(p.transaction, StagedMessages)]
        self._publishing(checkpoint.session).commit(checkpoint, Share.of(writers), lambda: self._read(checkpoint))

    def _read(self, checkpoint: PendingCheckpoint[StagedRows]) -> Iterator[pa.RecordBatch]:
        return (rows for pending in checkpoint.transactions for rows in self.read_rows(pending))

    def last_committed(self, application: str, session: dict[str, Any]) -> str | None:
        return self._publishing(session).last_committed(application)

    def applications(self, session: dict[str, Any]) -> Sequence[str]:
        return self._publishing(session).markers.applications()

    def forget(self, application: str, session: dict[str, Any]) -> None:
        facts = self.facts(self.marker_topic, fresh=True)
        self._publishing(session).forget(application, facts.partitions if facts is not None else 0)

    def _publishing(self, session: dict[str, Any]) -> Publishing:
        servers, part = self.bootstrap_servers, self.max_transaction_bytes
        return Publishing.of(session, Target(self.path, servers, self.kafka_options, self.marker_topic, part))


_SEMANTICS = f"'{EXACTLY_ONCE}', '{AT_LEAST_ONCE}' or '{NONE}'"


@dataclass
class StagedMessages(StagedRows):
    """The messages of one writer, which wait for their record. sink: of a writer."""

    sink: KafkaSink | None = None
    share: Share = Share()

    def write(self, rows: pa.RecordBatch, context: TransactionContext) -> None:
        if self.sink is not None:
            rows, publishers = self.sink.checked(rows), self.sink.publishers
            topics = [self.sink.facts(topic) for topic in rows.column("topic").unique().to_pylist()]
            limits = [Share(publishers, topic.message_bytes, topic.message_bytes) for topic in topics if topic]
            self.share = Share.of([*([self.share] if self.size or self._writer else []), *limits])
        super().write(rows, context)


@dataclass
class SentMessages(StagedRows):
    """The messages of one writer, sent as they come: a semantic that is less than exactly once."""

    sink: KafkaSink | None = None
    _producer: Any = field(default=None, repr=False)
    _failed: list[str] = field(default_factory=list)

    def write(self, rows: pa.RecordBatch, context: TransactionContext) -> None:
        if self.sink is None:
            return
        if self._producer is None:
            own = client.producer_settings(self.sink.bootstrap_servers, self.sink.kafka_options)
            promised = {"acks": "all", "enable.idempotence": True} if self.sink.semantic == AT_LEAST_ONCE else {}
            self._producer = client.new_producer({**own, **promised, "on_delivery": self._delivered})
        for message in messages.messages(self.sink.checked(rows)):
            produce(self._producer, message)
            self._producer.poll(0)

    def _delivered(self, failed: Any, message: object) -> None:
        if failed is not None:
            self._failed.append(failed.name())

    def finish(self, context: TransactionContext) -> None:
        left = self._producer.flush(client.REQUEST_TIMEOUT_S)
        if self.sink is None or self.sink.semantic == NONE or not (left or self._failed):
            return
        raise Retryable(
            f"{self.sink.path}: of the messages of one writer {len(self._failed)} were not delivered (first: "
            f"{self._failed[0] if self._failed else 'none'}), and {left} were not answered for within "
            f"{client.REQUEST_TIMEOUT_S:.0f} s. Some may be in the topic, and the batch comes again. Look whether the "
            "brokers answer, and start the query again",
            kind="kafka.not-delivered",
        )

    def drop(self, context: TransactionContext) -> None:
        """What is sent is sent."""
        self._producer = None
