"""Many rows for MariaDB and MySQL by LOAD DATA LOCAL, made of whole Arrow columns.

A statement with its values in it is read letter by letter by both sides; this takes a fifth of the driver's time.

With LOCAL the server skips rows that it does not take, and changes values that do not fit, and says so in nothing but
warnings. So who calls ``load`` looks at what it returns.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

# Of one packet; a larger one is no faster.
_BYTES_AT_ONCE = 1 << 16
# Backslashes first. A zero byte ends nothing there, but is written as the server writes it.
_ESCAPED = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\0", "\\0"))


def fits(columns: pa.Schema) -> bool:
    """Whether rows with these columns can be written as a text that is read as the same values."""
    return all(_fits(field.type) for field in columns)


def _fits(of: pa.DataType) -> bool:
    numbers = pt.is_boolean(of) or pt.is_signed_integer(of) or pt.is_float32(of) or pt.is_float64(of)
    times = pt.is_date32(of) or pt.is_time(of) or pt.is_timestamp(of)
    return numbers or times or pt.is_decimal128(of) or pt.is_string(of) or pt.is_binary(of)


def statement(into: str, names: str, columns: pa.Schema) -> str:
    """The statement for rows with these columns. into, names: the table and its columns, quoted."""
    # Bytes are no text. Where the file is taken for bytes, texts are stored as they are, which is utf8mb4.
    charset = "binary" if any(pt.is_binary(field.type) for field in columns) else "utf8mb4"
    # The name of the file is never looked at: who asks for it gets the rows.
    return (
        f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {into} CHARACTER SET {charset} "
        rf"FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n' ({names})"
    )


def load(connection: Any, text: str, rows: pa.Table) -> tuple[int, int]:
    """Run a statement of ``statement`` with these rows. Returns how many the server has taken, and its warnings.

    connection: of PyMySQL, with the flag LOCAL_FILES, and without its own ``local_infile``: with that a server that is
    not what it seems might ask for any file of this machine, in answer to any statement. Raises the driver's errors.
    """
    from pymysql import err
    from pymysql.constants import COMMAND, CR

    data = lines(rows)  # before the statement: an error between would leave the connection in the middle of it
    connection._execute_command(COMMAND.COM_QUERY, text)
    asked = connection._read_packet()
    if not asked.is_load_local_packet():
        raise err.OperationalError(CR.CR_COMMANDS_OUT_OF_SYNC, "the server did not ask for the rows")
    for first in range(0, len(data), _BYTES_AT_ONCE):
        connection.write_packet(bytes(data[first : first + _BYTES_AT_ONCE]))
    connection.write_packet(b"")
    taken = connection._read_query_result()
    return int(taken), int(connection._result.warning_count)


def lines(rows: pa.Table) -> memoryview:
    """The rows as a text, one in a line."""
    if not rows.num_rows:
        return memoryview(b"")
    texts = [_texts(column.combine_chunks()) for column in rows.columns]
    nothing = pa.scalar(b"\\N", pa.large_binary())
    # The end of the line belongs to the last column, so that all lines are one buffer.
    ended = pc.binary_join_element_wise(pc.coalesce(texts[-1], nothing), _bytes(b"\n"), _bytes(b""))
    whole = pc.binary_join_element_wise(
        *texts[:-1], ended, _bytes(b"\t"), null_handling="replace", null_replacement=b"\\N"
    )
    offsets = memoryview(whole.buffers()[1]).cast("q")
    return memoryview(whole.buffers()[2])[offsets[whole.offset] : offsets[whole.offset + len(whole)]]


def _bytes(text: bytes) -> pa.Scalar:
    return pa.scalar(text, pa.large_binary())


def _texts(values: pa.Array) -> pa.Array:
    of = values.type
    if pt.is_string(of) or pt.is_binary(of):
        return _escaped(values.cast(pa.large_binary()))
    if pt.is_boolean(of):
        values = values.cast(pa.int8())
    if pt.is_float32(of):  # its own digits are fewer than a wider column takes
        values = values.cast(pa.float64())
    if pt.is_timestamp(of) and of.tz is not None:  # in UTC, as the session is
        values = values.cast(pa.timestamp(of.unit))
    return values.cast(pa.string()).cast(pa.large_binary())


def _escaped(values: pa.Array) -> pa.Array:
    for letter, escaped in _ESCAPED:
        if pc.any(pc.match_substring(values, letter), min_count=0).as_py():
            values = pc.replace_substring(values, letter, escaped)
    return values
