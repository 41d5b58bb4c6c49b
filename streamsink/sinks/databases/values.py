"""Whether the values of rows fit into the columns of a table: what would be refused after the record is found before.

Each check is one pass of Arrow over a column. No message has a value.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from streamsink.errors import Misuse
from streamsink.sinks.databases.dialect import Dialect
from streamsink.sinks.databases.table_info import Column, TableInfo


def check_values(rows: pa.Table, info: TableInfo, dialect: Dialect, path: str) -> None:
    """Raises Misuse, which names the column and what is wrong, when a value of these rows does not fit.

    rows: with columns that the table has, of types that fit. path: of the sink, for messages.
    """
    longest = 0
    for name, values in zip(rows.column_names, rows.columns):
        column = info.column(name)
        if column is None:
            continue
        found = _wrong(values, column, dialect)
        if found:
            raise Misuse(
                f"{path}: column '{name}' ({column.type}) is given {found}. Nothing of this batch was recorded or "
                "written. Mend the rows in the query, or change the column, and start the query again",
                kind="database.values",
            )
        longest += _longest(values)
    if info.largest_row is not None and longest > info.largest_row:
        raise Misuse(
            f"{path}: a row may have {longest} bytes of text and binaries, and the server takes {info.largest_row} at "
            "once. Nothing of this batch was recorded or written. Raise max_allowed_packet of the server, or keep such "
            "values elsewhere",
            kind="database.values",
        )


def _wrong(values: pa.ChunkedArray, column: Column, dialect: Dialect) -> str:
    """What does not fit; '' when all do."""
    of = values.type
    if values.null_count and not column.nullable:
        return f"{values.null_count} nulls, and is NOT NULL"
    if pt.is_floating(of) and not dialect.has_nan and not pc.all(pc.is_finite(values), min_count=0).as_py():
        return "NaN or an infinite number, which this database does not have"
    if pt.is_string(of):
        return _wrong_text(values, column, dialect)
    if pt.is_binary(of) and column.size is not None and _longest(values) > column.size:
        return f"a value of {_longest(values)} bytes, and takes {column.size}"
    if pt.is_date(of) or pt.is_timestamp(of):
        return _wrong_time(values, column)
    return ""


def _wrong_text(values: pa.ChunkedArray, column: Column, dialect: Dialect) -> str:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return "text that is not UTF-8"
    if not dialect.has_zero_byte and pc.any(pc.match_substring(values, "\0"), min_count=0).as_py():
        return "text with a zero byte, which this database does not have"
    letters = pc.max(pc.utf8_length(values)).as_py() or 0 if column.size is not None else 0
    if column.size is not None and letters > column.size:
        return f"a text of {letters} letters, and takes {column.size}"
    if column.bytes is not None and _longest(values) > column.bytes:
        return f"a text of {_longest(values)} bytes, and takes {column.bytes}"
    return ""


def _wrong_time(values: pa.ChunkedArray, column: Column) -> str:
    years = pc.min_max(pc.year(values)).as_py()
    if years["min"] is not None and not column.first_year <= years["min"] <= years["max"] <= column.last_year:
        return f"a time outside of the years {column.first_year} to {column.last_year}"
    return ""


def _longest(values: pa.ChunkedArray) -> int:
    """The most bytes of a text or a binary; 0 for other types."""
    if pt.is_string(values.type) or pt.is_binary(values.type):
        return pc.max(pc.binary_length(values)).as_py() or 0
    return 0
