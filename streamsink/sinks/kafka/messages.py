"""The columns of rows that become messages, as Spark's own Kafka sink takes them. EXECUTOR and driver."""

import functools
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streamsink.errors import Misuse
from streamsink.sinks.kafka.client import TopicFacts

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TYPES = {"key": pa.binary(), "value": pa.binary(), "headers": _HEADERS, "topic": pa.string(), "partition": pa.int32()}
# What a batch of one message has besides its key and value, at most, and what each header has.
_OVERHEAD, _OVERHEAD_OF_HEADER = 61 + 40, 10
# A message without a partition of its own gets one by its key.
_ANY_PARTITION = -1


class Message(NamedTuple):
    """One message. partition: -1 where the key decides."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    partition: int

    @property
    def bytes(self) -> int:
        """What a topic counts of the message, or a few bytes more."""
        size = len(self.key or b"") + len(self.value or b"") + _OVERHEAD
        for key, value in self.headers or ():
            size += len(key.encode()) + len(value or b"") + _OVERHEAD_OF_HEADER
        return size

    def publisher(self, publishers: int, number: int) -> int:
        """Which publisher has the message: the same for all messages of a key. number: of the message in its record."""
        return (number if self.key is None else zlib.crc32(self.key)) % publishers if publishers > 1 else 0


def check_columns(path: str, columns: pa.Schema, topic: str | None) -> None:
    """Raises Misuse unless rows with these columns are messages. topic: of all messages, if there is one."""
    if "value" not in columns.names:
        raise _wrong(
            path, f"there is no column 'value', which each message needs; there are {', '.join(columns.names)}"
        )
    if topic is None and "topic" not in columns.names:
        raise _wrong(
            path, "there is no column 'topic', and the sink has no topic. Give it topic='...', or the rows that column"
        )
    expected: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
        "key": (_is_bytes, "string or binary"),
        "value": (_is_bytes, "string or binary"),
        "headers": (_is_headers, "array<struct<key:string,value:binary>>"),
        "topic": (_is_text, "string"),
        "partition": (pa.types.is_int32, "int"),
    }
    for name, (fits, words) in expected.items():
        if name in columns.names and not fits(columns.field(name).type):
            raise _wrong(path, f"the column '{name}' has the type {columns.field(name).type}, expected {words}")


def _wrong(path: str, what: str) -> Misuse:
    return Misuse(f"{path}: {what}. Nothing was written", kind="kafka.columns")


def _is_text(of: pa.DataType) -> bool:
    return bool(pa.types.is_string(of) or pa.types.is_large_string(of))


def _is_bytes(of: pa.DataType) -> bool:
    return _is_text(of) or bool(pa.types.is_binary(of) or pa.types.is_large_binary(of))


def _is_headers(of: pa.DataType) -> bool:
    if not pa.types.is_list(of) or not pa.types.is_struct(of.value_type):
        return False
    parts = list(of.value_type)
    return [part.name for part in parts] == ["key", "value"] and _is_text(parts[0].type) and _is_bytes(parts[1].type)


def normal(rows: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """The columns that make messages, with one type each; also the topic of each message."""
    there = {name: rows.column(name).cast(of) for name, of in _TYPES.items() if name in rows.schema.names}
    if topic is not None:
        there["topic"] = pa.repeat(pa.scalar(topic), rows.num_rows)
    return pa.RecordBatch.from_arrays(list(there.values()), names=list(there))


def messages(rows: pa.RecordBatch) -> Iterator[Message]:
    """The messages of rows that ``normal`` has made, in order."""

    def column(name: str, default: Any = None) -> list[Any]:
        return rows.column(name).to_pylist() if name in rows.schema.names else [default] * rows.num_rows

    given = (column(name) for name in ("topic", "key", "value", "headers", "partition"))
    for topic, key, value, headers, partition in zip(*given, strict=True):
        pairs = None if headers is None else [(each["key"], each["value"]) for each in headers]
        yield Message(topic, key, value, pairs, _ANY_PARTITION if partition is None else partition)


def alike(rows: pa.RecordBatch) -> tuple[Iterator[tuple[str, Any, Any, int]], int] | None:
    """(topic, value, key, partition) of each row that ``normal`` has made, in order, and the bytes of all, as a topic
    counts them or a few more; None where rows have headers.

    A client takes ten times as many of these in a second as of ``messages``, which need an object each.
    """
    if _has_headers(rows):
        return None
    topics = rows.column("topic")
    one = pc.unique(topics).to_pylist()
    keys = rows.column("key").to_pylist() if "key" in rows.schema.names else itertools.repeat(None)
    numbers: Iterable[int] = itertools.repeat(_ANY_PARTITION)
    if "partition" in rows.schema.names:
        numbers = pc.fill_null(rows.column("partition"), _ANY_PARTITION).to_pylist()
    names = itertools.repeat(one[0]) if len(one) == 1 else topics.to_pylist()
    total = pc.sum(_sizes(rows)).as_py() or 0
    return zip(names, rows.column("value").to_pylist(), keys, numbers), total


def _has_headers(rows: pa.RecordBatch) -> bool:
    return "headers" in rows.schema.names and rows.column("headers").null_count < rows.num_rows


def _sizes(rows: pa.RecordBatch) -> pa.Array:
    """The bytes of each message, without its headers."""
    lengths = [pc.fill_null(pc.binary_length(rows.column(n)), 0) for n in ("key", "value") if n in rows.schema.names]
    return pc.add(functools.reduce(pc.add, lengths).cast(pa.int64()), _OVERHEAD)


def check(path: str, rows: pa.RecordBatch, facts: Callable[[str], TopicFacts | None], markers: str) -> None:
    """Raises Misuse for a message that its topic cannot take. rows: as ``normal`` has made them.

    facts: what the brokers say of a topic. markers: the topic of the markers.
    """
    _check_headers(path, rows)
    if rows.column("topic").null_count:
        raise Misuse(
            f"{path}: {rows.column('topic').null_count} of {rows.num_rows} rows have no topic: their column 'topic' is "
            "null, and the sink has no topic of its own. Nothing was written. Give it topic='...', or these rows one",
            kind="kafka.no-topic",
        )
    topics = pc.unique(rows.column("topic")).to_pylist()
    for topic in topics:
        found = facts(topic)
        if found is None:
            raise no_topic(path, topic)
        if found.is_internal or topic == markers:
            raise _own_topic(path, topic, "of streamsink, which has its markers" if topic == markers else "of Kafka")
        of_topic = rows.filter(pc.equal(rows.column("topic"), topic)) if len(topics) > 1 else rows
        _check_partitions(path, of_topic, found)
        _check_keys(path, of_topic, found)
        _check_sizes(path, of_topic, found)


def no_topic(path: str, topic: str) -> Misuse:
    """The error for a topic that is not there."""
    return Misuse(
        f"{path}: the cluster has no topic '{topic}', expected one: streamsink creates no topics. Nothing was written. "
        "Create the topic, and start the query again",
        kind="kafka.no-topic",
    )


def _own_topic(path: str, topic: str, whose: str) -> Misuse:
    return Misuse(
        f"{path}: a row has the topic '{topic}', which is {whose}, and takes no messages of others. Nothing was "
        "written. Leave such rows out of the stream, or give them another topic",
        kind="kafka.own-topic",
    )


def _check_headers(path: str, rows: pa.RecordBatch) -> None:
    """Raises Misuse for a header that is null or has no key. The brokers know no such header."""
    if not _has_headers(rows):
        return
    headers = pc.list_flatten(rows.column("headers"))  # those of rows without headers are none
    if headers.null_count or pc.struct_field(headers, "key").null_count:
        raise _wrong(path, "a row has a header that is null, or whose key is null. Leave such headers out of the array")


def _check_keys(path: str, rows: pa.RecordBatch, of: TopicFacts) -> None:
    """Raises Misuse for a message without a key in a topic that keeps the last one of each key."""
    keys = rows.column("key").null_count if "key" in rows.schema.names else rows.num_rows
    if keys and "compact" in of.cleanup.replace(" ", "").split(","):
        raise Misuse(
            f"{path}: {keys} of {rows.num_rows} rows have no key, and the topic '{of.name}' is compacted "
            f"(cleanup.policy={of.cleanup}), so the brokers take no message without one. Nothing was written. Give the "
            "rows a column 'key' without nulls, or the topic cleanup.policy=delete",
            kind="kafka.no-key",
        )


def _check_partitions(path: str, rows: pa.RecordBatch, of: TopicFacts) -> None:
    if "partition" not in rows.schema.names or rows.column("partition").null_count == rows.num_rows:
        return
    least, most = (pc.min_max(rows.column("partition"))[end].as_py() for end in ("min", "max"))
    wrong = least if least < 0 else most
    if least < 0 or most >= of.partitions:
        raise Misuse(
            f"{path}: a row has the partition {wrong}, and the topic '{of.name}' has {of.partitions} partitions, which "
            "count from 0. Nothing was written. Correct the column 'partition', or give the topic more partitions",
            kind="kafka.no-partition",
        )


def _check_sizes(path: str, rows: pa.RecordBatch, of: TopicFacts) -> None:
    if _has_headers(rows):
        largest = max(message.bytes for message in messages(rows))
    else:
        largest = pc.max(_sizes(rows)).as_py()
    if largest > of.message_bytes:
        raise Misuse(
            f"{path}: a message has {largest} bytes with its key and headers, and the topic '{of.name}' takes "
            f"{of.message_bytes} (max.message.bytes). Nothing was written. Raise max.message.bytes of the topic, or "
            "leave the row out of the stream",
            kind="kafka.message-too-large",
        )
