"""The files of a query's checkpoint, as text, on whatever file system: what Spark and the sources logged for a batch. DRIVER."""

import hashlib
import json
from dataclasses import replace

from pyspark.sql import SparkSession

from streamsink.errors import Misuse
from streamsink.protocol.positions import SourceRange
from streamsink.spark.offset_log import Logged, UnknownFormat, parse


def logged(spark: SparkSession, root: str, batch_id: int, table: str) -> Logged:
    """The entry of the offset log for a batch. Raises Misuse when there is none, or it is in a format that is not known here."""
    path = f"{root}/offsets/{batch_id}"
    text = read_text(spark, path)
    if text is None:
        raise Misuse(
            f"{table}: {path} does not exist: the positions of batch {batch_id} are not durable (asynchronous progress "
            "tracking leaves them out). Nothing was written. Turn asyncProgressTrackingEnabled off",
            kind="checkpoint.no-offsets",
        )
    try:
        return parse(text)
    except UnknownFormat as unknown:
        raise Misuse(f"{table}: {path} is in an unknown format: {unknown}. Nothing was written", kind="checkpoint.format") from None


def told_by_source(spark: SparkSession, root: str, number: int, given: SourceRange) -> SourceRange:
    """With what the source itself logged: where it began, if Spark does not say it, and a digest of what the batch holds.

    number: under which Spark keeps that, for a source without a name.
    """
    folder = f"{root}/sources/{given.name or number}"
    start = given.start if given.start is not None else _initial(spark, folder)
    return replace(given, start=start, fingerprint=_digest(spark, folder, given.end))


def _initial(spark: SparkSession, folder: str):
    """Where a Kafka source began, which it records by itself; None for other sources."""
    text = read_text(spark, f"{folder}/0")
    first = (text or "").lstrip("\0").split("\n", 1)
    if len(first) == 2 and first[0] == "v1" and first[1].startswith("{"):
        try:
            value = json.loads(first[1])
        except ValueError:
            return None
        if isinstance(value, dict) and all(isinstance(parts, dict) for parts in value.values()):
            return value
    return None


def _digest(spark: SparkSession, folder: str, end) -> str:
    """Digest of what the source logged for the batch: a file source's file names, which its position does not tell."""
    if not isinstance(end, dict) or set(end) != {"logOffset"}:
        return ""
    text = read_text(spark, f"{folder}/{end['logOffset']}")
    if text is None:
        text = read_text(spark, f"{folder}/{end['logOffset']}.compact")
    entries = [line for line in (text or "").split("\n")[1:] if f'"batchId":{end["logOffset"]}' in line]
    return hashlib.sha256("\n".join(entries).encode()).hexdigest()[:32]


def read_text(spark: SparkSession, path: str) -> str | None:
    """Text of a file, or None when there is none. path: as Hadoop spells paths, in which no character is encoded."""
    local = _local(path)
    if local is not None:
        try:
            with open(local, encoding="utf-8") as stream:
                return stream.read()
        except FileNotFoundError:
            return None
    jvm = spark._jvm
    remote = jvm.org.apache.hadoop.fs.Path(path)
    files = remote.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(remote):
        return None
    stream = files.open(remote)
    try:
        return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode("utf-8")
    finally:
        stream.close()


def _local(path: str) -> str | None:
    """The path on this machine's disk: after ``file:``, with or without an empty authority. '%', '#' and '?' are plain letters."""
    if path.startswith("file://"):
        return path[len("file://"):] if path.startswith("file:///") else None
    if path.startswith("file:"):
        return path[len("file:"):]
    return path if path.startswith("/") else None
