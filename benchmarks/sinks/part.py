"""The part ``sinks`` of the benchmarks: Kafka and databases beside what Spark writes them with."""

from pathlib import Path

from benchmarks.data import Sizes
from benchmarks.sinks import databases, kafka


def sinks(spark, folder: Path, sizes: Sizes) -> list:
    """Both, one after the other."""
    at = folder / "sinks"
    return [*kafka.kafka(spark, at / "kafka", sizes), *databases.databases(spark, at, sizes)]
