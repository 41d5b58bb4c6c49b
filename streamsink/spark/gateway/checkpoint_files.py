"""The files of a query's checkpoint, as text, on whatever file system. Runs on the driver.

They hold what Spark and the sources have logged for a batch.
"""

import functools
import json
import os
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from streamsink.errors import Misuse
from streamsink.protocol.positions import SourceRange
from streamsink.spark.gateway import file_log
from streamsink.spark.gateway.offset_log import Logged, UnknownFormat, parse


def logged(spark: SparkSession, root: str, batch_id: int, table: str) -> Logged:
    """Return the entry of the offset log for a batch.

    root: the checkpoint's folder. table: the table's path, for messages. Raises Misuse when there is no entry, or it is
    in an unknown format.
    """
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
        raise Misuse(
            f"{table}: {path} is in an unknown format: {unknown}. Nothing was written", kind="checkpoint.format"
        ) from None


def find_logged(spark: SparkSession, root: str, batch_id: int) -> Logged | None:
    """Return the entry of the offset log for an earlier batch.

    None when Spark has deleted it, or it is in an unknown format.
    """
    text = read_text(spark, f"{root}/offsets/{batch_id}")
    try:
        return None if text is None else parse(text)
    except UnknownFormat:
        return None


def told_by_source(spark: SparkSession, root: str, number: int, given: SourceRange) -> SourceRange:
    """Return ``given`` with what the source itself has logged.

    This is where the source began, if Spark does not say it; a digest of what the batch holds; and the batch's files.
    number: the number under which Spark keeps this log for a source without a name.
    """
    folder = f"{root}/sources/{given.name or number}"
    start = given.start if given.start is not None else _initial(spark, folder)
    digest, files = file_log.of_batch(functools.partial(read_bytes, spark), folder, start, given.end)
    return replace(given, start=start, fingerprint=digest, files=files)


def _initial(spark: SparkSession, folder: str) -> dict[str, Any] | None:
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


def read_text(spark: SparkSession, path: str) -> str | None:
    """Return the text of a file, or None when there is no such file.

    path: as Hadoop spells paths, in which no character is encoded.
    """
    data = read_bytes(spark, path)
    return None if data is None else data.decode("utf-8")


def read_bytes(spark: SparkSession, path: str, most: int | None = None) -> bytes | None:
    """Return the bytes of a file, or only the last ``most`` of them; None when there is no such file."""
    local = _local(path)
    if local is not None:
        try:
            with open(local, "rb") as stream:
                if most is not None:
                    stream.seek(max(0, stream.seek(0, os.SEEK_END) - most))
                return stream.read()
        except FileNotFoundError:
            return None
    jvm: Any = spark._jvm
    remote = jvm.org.apache.hadoop.fs.Path(path)
    files = remote.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(remote):
        return None
    stream = files.open(remote)
    try:
        if most is not None:
            stream.seek(max(0, files.getFileStatus(remote).getLen() - most))
        return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
    finally:
        stream.close()


def _local(path: str) -> str | None:
    """The path on this machine's disk, which may follow ``file:``, with or without an empty authority; None for other
    paths.

    '%', '#' and '?' have no special meaning in it.
    """
    if path.startswith("file://"):
        return path[len("file://") :] if path.startswith("file:///") else None
    if path.startswith("file:"):
        return path[len("file:") :]
    return path if path.startswith("/") else None
