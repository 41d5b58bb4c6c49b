"""Order events: one for each event number, the same one every time,
so that a table can be checked without a copy of its input."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

FIRST_EVENT_MS = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC
EVENT_EVERY_MS = 250  # a million events fill three days, so three partitions
CUSTOMERS = 10_000
MAX_QUANTITY = 5
ITEMS = ("coffee", "tea", "bread", "butter", "apples", "rice", "soap")
PAYLOAD = "order_id BIGINT, customer STRING, item STRING, quantity INT, price DECIMAL(10, 2), event_time TIMESTAMP"


def orders(numbers: DataFrame, column: str) -> DataFrame:
    """The orders of these event numbers (a BIGINT column counted from 0)."""
    number = F.col(column)
    # These are primes, so that neighbours differ in every column.
    cents = (number * F.lit(7919) % F.lit(99_00) + F.lit(1_00)).cast("decimal(12, 2)")
    return numbers.select(
        number.alias("order_id"),
        F.format_string("c%05d", number * F.lit(104_729) % F.lit(CUSTOMERS)).alias("customer"),
        F.element_at(F.array(*map(F.lit, ITEMS)), (number % F.lit(len(ITEMS)) + F.lit(1)).cast("int")).alias("item"),
        (number % F.lit(MAX_QUANTITY) + F.lit(1)).cast("int").alias("quantity"),
        (cents / F.lit(100)).cast("decimal(10, 2)").alias("price"),
        F.timestamp_millis(F.lit(FIRST_EVENT_MS) + number * F.lit(EVENT_EVERY_MS)).alias("event_time"),
    )


def with_day(events: DataFrame) -> DataFrame:
    """Add ``dt``, the day of the event, by which the table is partitioned."""
    return events.withColumn("dt", day(F.col("event_time")))


def day(event_time: Column) -> Column:
    return F.date_format(event_time, "yyyy-MM-dd")
