"""Whether options go together, and whether rows fit into a table: their columns, and their values.

The table is made where it is missing and that is wanted. What would be refused after the record is found before: each
check of values is one pass of Arrow over a column. No message has a value.
"""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from streamsink.errors import Misuse
from streamsink.sinks.databases.address import Address
from streamsink.sinks.databases.branches import EITHER, PREPARED, STAGED
from streamsink.sinks.databases.changes import Change
from streamsink.sinks.databases.dialect import BRANCHES, CHECKPOINTS, IDENTITY, Dialect, Run
from streamsink.sinks.databases.table_info import Column, TableInfo, check_keys, check_names, misfit, said

INSERT, UPSERT = "insert", "upsert"
_MOST_WRITERS = 16
# Files that SQLite makes, and opens, beside a database have its name with these behind.
_OF_SQLITE = ("-journal", "-wal", "-shm")
# So many texts are sent at once.
_ASKED_AT_ONCE = 1_000
# Asks the database something, in a transaction that is rolled back.
_Ask = Callable[[Callable[[Run], bool]], bool]
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_SECONDS_OF_DAY = 86_400
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Fitting:
    """One look at a table, in an open transaction.

    name: schema and table. change: what rows mean. path: of the sink, for messages. create: make the table.
    """

    def __init__(self, run: Run, dialect: Dialect, name: tuple[str, str], change: Change, path: str, *, create: bool):
        self._run, self._dialect, self._change, self._path = run, dialect, change, path
        self._schema, self._table = name
        self._creates = create

    def table_for(self, columns: pa.Schema) -> TableInfo:
        """The table, into which rows with these columns fit. Raises Misuse."""
        of_rows = self._columns_of_table(columns)
        if not self._dialect.exists(self._run, self._schema, self._table):
            self._create(of_rows)
        info = self._dialect.describe(self._run, self._schema, self._table)
        if info.wrong:
            raise Misuse(
                f"{self._path}: rows cannot be written exactly once into the table: {info.wrong}. Nothing was written. "
                "Write into another table",
                kind="database.table",
            )
        if info.hides_rows and self._change.delete_column:
            raise Misuse(
                f"{self._path}: row security is on for the table, so rows that its policies hide from the sink's user "
                "would not be deleted, without an error. Nothing was written. Let a superuser execute ALTER ROLE ... "
                "BYPASSRLS for that user, or leave out delete_column",
                kind="database.table",
            )
        check_names(info, list(of_rows), self._path)
        for column in info.columns:
            expected = self._dialect.expected(column, of_rows[column.name]) if column.name in of_rows else ""
            if expected:
                raise misfit(
                    self._path,
                    f"column '{column.name}' is {column.type}, and the rows have {of_rows[column.name]}; expected "
                    f"{expected}",
                    "Change the column, or cast it in the query",
                )
        if self._change.keys:
            self._check_keys(info)
        return info

    def _columns_of_table(self, columns: pa.Schema) -> dict[str, pa.DataType]:
        """Those of the rows that the table has. Raises Misuse when one is not there that the sink names."""
        change, of_rows = self._change, {column.name: column.type for column in columns}
        named = (*change.keys, change.delete_column, change.order_by)
        absent = [name for name in named if name and name not in of_rows]
        if absent:
            raise misfit(self._path, f"the rows have no columns {said(absent)}, which the sink names", "Correct it")
        if change.delete_column and not pt.is_boolean(of_rows.pop(change.delete_column)):
            raise misfit(self._path, f"the column '{change.delete_column}' is not boolean", "Compute a boolean from it")
        return of_rows

    def _check_keys(self, info: TableInfo) -> None:
        keys = self._change.keys
        check_keys(info, keys, others_matter=self._dialect.others_matter, path=self._path)
        vague = [column.name for column in info.columns if column.name in keys and not column.exact]
        if vague and not self._dialect.repeats:
            raise misfit(
                self._path,
                f"the key {said(vague)} is of a type or collation in which different values are equal",
                "Take a key of another type, such as text in its default collation",
            )

    def _create(self, columns: Mapping[str, pa.DataType]) -> None:
        dialect, keys = self._dialect, self._change.keys
        if not self._creates:
            raise Misuse(
                f"{self._path}: the schema '{self._schema}' has no table '{self._table}' (names are compared letter "
                "by letter). Nothing was written. Create it, or set create_table=True",
                kind="database.table",
            )
        parts = []
        for name, of in columns.items():
            dialect.check_name(name, f"{self._path}: a column")
            made = dialect.type_for(of, name in keys)
            if not made:
                raise misfit(self._path, f"column '{name}' is {of}, for which there is no type", "Cast it to a text")
            parts.append(f"{dialect.quoted(name)} {made}{' NOT NULL' if name in keys else ''}")
        if keys:
            parts.append(f"PRIMARY KEY ({', '.join(dialect.quoted(key) for key in keys)})")
        self._run(f"CREATE TABLE {dialect.quoted(self._schema, self._table)} ({', '.join(parts)})")


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


def check_by_asking(rows: pa.Table, info: TableInfo, dialect: Dialect, asked: tuple[_Ask, set[str]], path: str) -> None:
    """Raises Misuse, which names the column, when the database would not take a text, which it alone knows.

    asked: what asks it in a transaction that is rolled back, and letters of which it has said that it has them; more
    are added. Each other argument is as of ``check_values``, which is called first.
    """
    ask, known = asked
    for name, values in zip(rows.column_names, rows.columns):
        column, found, way = info.column(name), "", ""
        if column is None or not pt.is_string(values.type):
            continue
        if info.encoding and not _has_letters(values, dialect, ask, known):
            found = f"letters that the encoding of the database, {info.encoding}, does not have"
            way = "write into a database with the encoding UTF8"
        elif column.regular and not _reads(values, column, dialect, ask):
            found = f"texts that the database cannot read as {column.base}"
            way = "change the column to one of texts"
        if found:
            raise Misuse(
                f"{path}: column '{name}' ({column.type}) is given {found}. Nothing of this batch was recorded or "
                f"written. Mend the rows in the query, or {way}, and start the query again",
                kind="database.values",
            )


def _has_letters(values: pa.ChunkedArray, dialect: Dialect, ask: _Ask, known: set[str]) -> bool:
    texts = pc.unique(values.filter(pc.invert(pc.string_is_ascii(values)))).to_pylist()
    letters = {letter for letter in set().union(*texts) if not letter.isascii()} - known
    if letters and not ask(lambda run: dialect.has_letters(run, "".join(sorted(letters)))):
        return False
    known |= letters
    return True


def _reads(values: pa.ChunkedArray, column: Column, dialect: Dialect, ask: _Ask) -> bool:
    """Whether the database reads all of these texts. Those that look right are not sent, which are nearly all."""
    doubtful = pc.invert(pc.match_substring_regex(values, column.regular))
    if column.odd:
        doubtful = pc.or_(doubtful, pc.match_substring_regex(values, column.odd))
    texts = pc.unique(values.filter(doubtful))
    parts = [texts.slice(start, _ASKED_AT_ONCE) for start in range(0, len(texts), _ASKED_AT_ONCE)]
    return not parts or ask(lambda run: all(dialect.reads(run, column, part.to_pylist()) for part in parts))


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
    # Not by what Arrow calls the year: that is cut off to 16 bits, so a time far outside may have one of these years.
    of, per_day = values.type, 1
    if pt.is_timestamp(of):
        per_day = _SECONDS_OF_DAY * _PER_SECOND[of.unit]
    elif of != pa.date32():
        values = values.cast(pa.date32())
    found = pc.min_max(values.cast(pa.int64() if per_day > 1 else pa.int32())).as_py()
    first, last = (day.toordinal() - _EPOCH_DAY for day in _ends(column))
    if found["min"] is not None and not first * per_day <= found["min"] <= found["max"] < (last + 1) * per_day:
        return f"a time outside of the years {column.first_year} to {column.last_year}"
    return ""


def _ends(column: Column) -> tuple[datetime.date, datetime.date]:
    """The first and the last day that the column holds."""
    return datetime.date(column.first_year, 1, 1), datetime.date(column.last_year, 12, 31)


def _longest(values: pa.ChunkedArray) -> int:
    """The most bytes of a text or a binary; 0 for other types."""
    if pt.is_string(values.type) or pt.is_binary(values.type):
        return pc.max(pc.binary_length(values)).as_py() or 0
    return 0


def wrong_options(sink: Any, address: Address) -> str:
    """What does not go together; '' when all does. sink: a ``DatabaseSink``."""
    if sink.mode not in (INSERT, UPSERT):
        return f"mode is {sink.mode!r}, expected 'insert' or 'upsert'"
    if isinstance(sink.keys, str) or (sink.mode == UPSERT) != bool(sink.keys):
        return f"mode is {sink.mode!r} and keys are {sink.keys!r}: 'upsert' needs keys, and 'insert' has none"
    if (sink.delete_column or sink.order_by) and sink.mode != UPSERT:
        return "delete_column and order_by are for mode='upsert' with keys"
    if not isinstance(sink.check_rows_up_to, int) or sink.check_rows_up_to < 0:
        return f"check_rows_up_to is {sink.check_rows_up_to!r}, expected a number of rows"
    if not isinstance(sink.writers, int) or not 1 <= sink.writers <= _MOST_WRITERS:
        return f"writers is {sink.writers!r}, expected 1 to {_MOST_WRITERS}"
    if sink.writers > 1 and address.system == "sqlite":
        return f"writers is {sink.writers!r}, which is for databases that have a server"
    if sink.writers_by not in (EITHER, PREPARED, STAGED):
        return f"writers_by is {sink.writers_by!r}, expected 'prepared', 'staged' or 'auto'"
    if sink.writers_by == PREPARED and sink.mode != INSERT:
        return "writers_by is 'prepared', which is for mode='insert': rows with keys have an order; 'staged' takes them"
    if sink.table in (CHECKPOINTS, IDENTITY, BRANCHES):
        return f"the table is {sink.table}, which is the sink's own"
    if address.system == "sqlite" and sink.journal in [f"{address.database}{end}" for end in _OF_SQLITE]:
        return f"the journal is {sink.journal}, which is SQLite's own file beside the database"
    if len({*sink.keys, sink.delete_column}) != len(sink.keys) + 1:
        return f"keys are {sink.keys!r} and delete_column {sink.delete_column!r}: a column is named twice"
    return ""
