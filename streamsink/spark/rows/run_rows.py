"""Counts the rows of a bounded run, and compares them with those that are published under its id. On the driver."""

import os
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructField, StructType

from streamsink.errors import Retryable
from streamsink.protocol.committable import Committable
from streamsink.protocol.same_query import QueryComparison
from streamsink.spark.gateway import job_inputs, running
from streamsink.spark.read import parquet_files
from streamsink.spark.types import quoted

_COUNT = "rows"
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# Formats for values that may be sums. Their last digits depend on the order in which the numbers were added.
_DIGITS: dict[type[DataType], str] = {DoubleType: "%.9e", FloatType: "%.4e"}


def read(df: DataFrame) -> None:
    """Compute the rows and drop them."""
    df.write.format("noop").mode("overwrite").save()


def count(df: DataFrame, table: str) -> int:
    """Read all columns, as a write does, and count the rows. table: its path, for messages.

    A count that read fewer columns could differ: a source may leave out a row because of a column that the count does
    not need. Raises Retryable when Spark does not say how many they are.
    """
    counted = Observation()
    read(df.observe(counted, F.expr("count(1)").alias(_COUNT)))
    found = running.observed(counted, _COUNT)
    if found is None:
        raise Retryable(
            f"{table}: Spark has read the run's rows and does not say how many they are: its listeners are behind, or "
            "lost events. Nothing was written: repeat the call. Raise "
            "spark.scheduler.listenerbus.eventqueue.capacity",
            kind="spark.not-counted",
        )
    return found


def compared(rows: DataFrame, published: Committable | None, table: str) -> QueryComparison:
    """Compare these rows with the published ones, except for values that each try computes anew.

    rows: as they are to be stored. published: the record of the run; None when the journal does not remember it. table:
    the table's path. Raises what reading ``rows`` raises.
    """
    if published is None:
        return _unknown("the journal does not remember the run's record any more (journal_retain)")
    if published.state.rows != sum(file.rows for file in published.files) or any(
        not f.final.endswith(".parquet") for f in published.files
    ):
        return _unknown("its record does not name them")
    left_out, is_all_shown = job_inputs.made_anew(rows)
    names = [name for at, name in enumerate(rows.columns) if at not in left_out]
    if not names or not is_all_shown:
        return _unknown("values that each try computes anew depend on what was read")
    sums = job_inputs.combines(rows)
    given = rows.select([F.col(quoted(name)) for name in names])
    try:
        if published.files:
            files = [os.path.join(table, file.final) for file in published.files]
            there = parquet_files(rows.sparkSession, files).select([F.col(quoted(name)) for name in names])
        else:
            there = given.where("false")
        hashes, found = _hashes(given, there.schema.fields, sums), _sum_of(_hashes(there, there.schema.fields, sums))
    except (PySparkException, Py4JError) as failed:
        return _unknown(f"the files in which they were published cannot be read as such rows: {type(failed).__name__}")
    return QueryComparison(() if found == _sum_of(hashes) else ("the rows in them",), ())


def _unknown(why: str) -> QueryComparison:
    return QueryComparison((), (why,))


def _sum_of(hashes: DataFrame) -> tuple[Any, ...]:
    """The number of rows, and the sum of their hashes, which does not depend on their order."""
    return tuple(hashes.agg(F.count("hash"), F.sum("hash")).first() or ())


def _hashes(rows: DataFrame, wanted: Sequence[StructField], sums: bool) -> DataFrame:
    """A hash of each row.

    wanted: the columns as they are in the table. sums: whether a value may be a sum, so that the last digits of
    floating-point numbers do not count.
    """
    parts = []
    for field, there in zip(rows.schema.fields, wanted):
        value = _value(F.col(quoted(field.name)), field.dataType, there.dataType)
        if isinstance(there.dataType, (StructType, ArrayType, MapType)):
            # Spark's hash skips nulls, and does not see where an array ends.
            parts.append(F.to_json(F.struct(value.alias("v")), _JSON))
        else:
            digits = _DIGITS.get(type(there.dataType)) if sums else None
            parts += [F.format_string(digits, value) if digits else value, value.isNull()]
    return rows.select(F.xxhash64(*parts).cast("decimal(38,0)").alias("hash"))


def _value(column: Column, given: DataType, wanted: DataType) -> Column:
    """The value as it is in the table, where fields are matched by name; a map as its entries, in the order of their
    keys.
    """
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        by_name = {field.name.lower(): field for field in given.fields}
        return F.when(
            column.isNotNull(),
            F.struct(
                *(_field(column, by_name.get(field.name.lower()), field).alias(field.name) for field in wanted.fields)
            ),
        )
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return F.transform(column, lambda item: _value(item, given.elementType, wanted.elementType))
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return F.array_sort(
            F.transform(
                F.map_entries(column),
                lambda entry: F.struct(
                    _value(entry.getField("key"), given.keyType, wanted.keyType).alias("key"),
                    _value(entry.getField("value"), given.valueType, wanted.valueType).alias("value"),
                ),
            )
        )
    return column.cast(wanted)


def _field(column: Column, given: StructField | None, wanted: StructField) -> Column:
    if given is None:
        return _value(F.lit(None).cast(wanted.dataType), wanted.dataType, wanted.dataType)
    return _value(column.getField(given.name), given.dataType, wanted.dataType)
