"""Which columns of a DataFrame a table gets, and whether the position columns can be what they are said to be.

Runs on the driver.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.spark.names import check_one, without
from streamsink.spark.rows import file_rows
from streamsink.spark.types import to_fields
from streamsink.table.write.fit import check_once

_WIDTHS = {"byte": 1, "short": 2, "integer": 4, "long": 8}


def check_positions(df: DataFrame, path: str, options: SinkOptions) -> None:
    """Check by their types that the position columns can be a source's topic, partition and offset, in this order.

    Integers of any width are accepted, except for a partition that is wider than the offset: then the two stand in each
    other's place. Raises Misuse, also when the data lacks one of the columns.
    """
    if not options.position_columns:
        return
    _check_given(df, path, options)
    types = {field.name: field.dataType for field in df.schema.fields}
    topic, partition, offset = (types[name] for name in options.position_columns)
    narrow, wide = (_WIDTHS.get(kind.typeName()) for kind in (partition, offset))
    if isinstance(topic, StringType) and narrow is not None and wide is not None and narrow <= wide:
        return
    found = ", ".join(f"'{name}' of type {types[name].simpleString()}" for name in options.position_columns)
    raise Misuse(
        f"{path}: position_columns are to name the columns of topic, partition, offset, in this order, of types "
        f"string, int, bigint; found {found}. Nothing was written. Give their names in that order, and cast a column "
        "that has another type",
        kind="option.position-columns",
    )


def stored(df: DataFrame, path: str, options: SinkOptions) -> DataFrame:
    """The DataFrame without the position columns and the file column, unless the table is to keep them.

    path: the table's path, for messages. Raises Misuse when the data lacks one of these columns.
    """
    _check_given(df, path, options)
    file_rows.check_column(df, path, options)
    columns = (*options.position_columns, *([options.file_column] if options.file_column else ()))
    return df if options.store_position_columns else without(df, columns)


def _check_given(df: DataFrame, path: str, options: SinkOptions) -> None:
    missing = [name for name in options.position_columns if name not in df.columns]
    if missing:
        raise Misuse(
            f"{path}: position_columns names {', '.join(missing)}, which the data does not have; it has "
            f"{', '.join(df.columns)}",
            kind="option.position-columns",
        )
    for name in options.position_columns:
        check_one(df, name, path, "position_columns", "option.position-columns")


def fields_of(df: DataFrame, path: str, options: SinkOptions) -> Callable[[], Sequence[Any]]:
    """A function that returns the columns that a new table gets, as fields. It does its work when it is called."""

    def found() -> Sequence[Any]:
        kept = stored(df, path, options)
        check_once(kept.columns, path)
        return to_fields(kept.schema)

    return found
