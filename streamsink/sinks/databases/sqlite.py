"""SQLite: a file on the driver's own disk."""

import datetime
import decimal
import functools
import weakref
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from streamsink.sinks.databases.address import Address
from streamsink.sinks.databases.dialect import CHECKPOINTS, IDENTITY, LOCK_TIMEOUT_S, Dialect, Run
from streamsink.sinks.databases.table_info import Column, TableInfo

# A number with so many digits is the same when SQLite has made a float of it and back.
_SAFE_DIGITS = 15
# What columns of a STRICT table take, instead of an affinity.
_ONLY_TEXT, _ONLY_BLOB = "only texts", "only binaries"
# A constraint may say itself what becomes of a row that violates it: the row is left out, or takes another one's place,
# and nobody hears of it. This statement does not let it.
_INSERT = "INSERT OR ABORT INTO"


class Sqlite(Dialect):
    """SQLite. A column takes values of any type, but changes those that look like numbers, by its affinity."""

    module = "sqlite3"
    remedy = "take a Python that was built with it"
    mark = "?"
    begin = "BEGIN IMMEDIATE"  # a second writer waits here, before it has read anything
    for_update = ""
    longest_name = 1000

    def connect(self, address: Address) -> Any:
        connection = self.driver().connect(
            address.database,
            timeout=LOCK_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            factory=_closing_cursors(self.driver()),
        )
        connection.execute("PRAGMA synchronous=EXTRA")  # a commit is durable in every journal mode
        return connection

    def close(self, connection: Any) -> None:
        try:
            connection.rollback()
        finally:
            connection.close()

    def is_passing(self, error: Exception) -> bool:
        said = str(error)
        return any(words in said for words in ("locked", "busy", "disk I/O error", "database or disk is full"))

    def is_quick(self, error: Exception) -> bool:
        return False  # it has waited already

    def told(self, error: Exception) -> str:
        # Its texts name tables and columns, never values.
        return str(error)

    def quoted(self, *names: str) -> str:
        return ".".join('"' + name.replace('"', '""') + '"' for name in names)

    def our_tables(self, schema: str) -> dict[str, str]:
        return {
            CHECKPOINTS: f"CREATE TABLE IF NOT EXISTS {self.quoted(schema, CHECKPOINTS)} ("
            "target TEXT NOT NULL, application TEXT NOT NULL, sequence INTEGER NOT NULL, record_id TEXT NOT NULL, "
            "epoch INTEGER NOT NULL, state TEXT NOT NULL, PRIMARY KEY (target, application))",
            IDENTITY: f"CREATE TABLE IF NOT EXISTS {self.quoted(schema, IDENTITY)} ("
            "one INTEGER NOT NULL PRIMARY KEY, id TEXT NOT NULL)",
        }

    def schema(self, run: Run, wanted: str) -> str:
        return wanted or "main"

    def exists(self, run: Run, schema: str, table: str) -> bool:
        found = run(f"SELECT name FROM {self.quoted(schema, 'sqlite_master')} WHERE name = ?", table)
        return found.fetchone() is not None

    def other_spelling(self, run: Run, schema: str, table: str) -> str:
        there = f"SELECT name FROM {self.quoted(schema, 'sqlite_master')} WHERE type IN ('table', 'view')"
        found = run(f"{there} AND name = ? COLLATE NOCASE AND name <> ?", table, table).fetchone()
        return "" if found is None else str(found[0])

    def describe(self, run: Run, schema: str, table: str) -> TableInfo:
        master = self.quoted(schema, "sqlite_master")
        kind, made = run(f"SELECT type, sql FROM {master} WHERE name = ?", table).fetchone()
        triggers = run(f"SELECT count(*) FROM {master} WHERE type = 'trigger' AND tbl_name = ?", table).fetchone()[0]
        rows = run("SELECT name, type, [notnull], dflt_value, pk, hidden FROM pragma_table_xinfo(?, ?)", table, schema)
        unique, other, collated, computes = self._indexes(run, schema, table)
        is_strict = "STRICT" in made.rpartition(")")[2].upper()
        columns, keys = [], []
        for name, declared, not_null, default, key, hidden in rows.fetchall():
            is_id = bool(key) and declared.upper() == "INTEGER"  # another name of the row's id
            keys += [name] if key else []
            optional = not not_null or default is not None or is_id
            columns.append(
                Column(
                    name,
                    declared or "no type",
                    _of_strict(declared) if is_strict else _affinity(declared),
                    not not_null,
                    exact=name not in collated,
                    optional=optional,
                    computed=hidden > 1,
                )
            )
        if keys:
            unique.append(frozenset(keys))  # a key that is the row's id has no index
        ruled = bool(unique or other or triggers) or any(word in made.upper() for word in ("CHECK", "REFERENCES"))
        ruled = ruled or computes or any(column.computed for column in columns)  # an expression may fail
        wrong = ""
        if kind != "table" or made.upper().startswith("CREATE VIRTUAL"):
            wrong = "it is no ordinary table, and what is written to another one may be lost or kept by itself"
        return TableInfo(table, tuple(columns), tuple(unique), other, ruled, wrong)

    def _indexes(self, run: Run, schema: str, table: str) -> tuple[list[frozenset[str]], bool, set[str], bool]:
        """(columns of each whole unique index, whether there are others, columns whose equality is not exact, whether
        some index has an expression or a condition)."""
        unique, other, collated, computes = [], False, set(), False
        indexes = run("SELECT name, [unique], partial FROM pragma_index_list(?, ?)", table, schema).fetchall()
        for index, is_unique, partial in indexes:
            parts = run("SELECT name, coll, key FROM pragma_index_xinfo(?, ?)", index, schema).fetchall()
            of_key = [(name, collation) for name, collation, key in parts if key]
            computes |= bool(partial) or any(name is None for name, _ in of_key)
            if is_unique:
                collated |= {name for name, collation in of_key if collation != "BINARY"}
                whole = not partial and all(name is not None for name, _ in of_key)
                unique += [frozenset(name for name, _ in of_key)] if whole else []
                other |= not whole
        return unique, other, collated, computes

    def expected(self, column: Column, of: pa.DataType) -> str:
        affinity = column.base
        if pt.is_boolean(of) or pt.is_integer(of):
            return "" if affinity in ("INTEGER", "NUMERIC", "BLOB") else "INTEGER"
        if pt.is_floating(of):
            return "" if affinity in ("REAL", "BLOB") else "REAL"
        if pt.is_decimal(of):
            fits = affinity in ("TEXT", "BLOB", _ONLY_TEXT)
            fits = fits or (affinity == "NUMERIC" and of.precision <= _SAFE_DIGITS)
            return "" if fits else f"TEXT, or NUMERIC with at most {_SAFE_DIGITS} digits"
        if pt.is_string(of):
            return "" if affinity in ("TEXT", "BLOB", _ONLY_TEXT) else "TEXT"
        if pt.is_binary(of) or pt.is_fixed_size_binary(of):
            return "" if affinity in ("TEXT", "BLOB", "NUMERIC", _ONLY_BLOB) else "BLOB"
        if pt.is_date(of) or pt.is_timestamp(of) or pt.is_time(of):
            fits = affinity in ("TEXT", "BLOB", "NUMERIC", _ONLY_TEXT)
            return "" if fits else "TEXT, which gets the time as ISO 8601 writes it"
        return "none: cast it to a text, for instance with to_json"

    def type_for(self, of: pa.DataType, is_key: bool) -> str:
        if pt.is_boolean(of) or pt.is_integer(of):
            return "INTEGER"
        if pt.is_floating(of):
            return "REAL"
        if pt.is_binary(of) or pt.is_fixed_size_binary(of):
            return "BLOB"
        return "" if pt.is_nested(of) else "TEXT"

    def insert(self, run: Run, into: str, rows: pa.Table) -> None:
        run.many(f"{_INSERT} {into} {self._values(rows)}", _parameters(rows))

    def upsert(self, run: Run, into: str, rows: pa.Table, keys: Sequence[str]) -> None:
        others = [self.quoted(name) for name in rows.column_names if name not in keys]
        change = "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others) if others else "NOTHING"
        on = ", ".join(self.quoted(key) for key in keys)
        run.many(f"{_INSERT} {into} {self._values(rows)} ON CONFLICT ({on}) DO {change}", _parameters(rows))

    def delete(self, run: Run, into: str, keys: pa.Table) -> None:
        same = " AND ".join(f"{self.quoted(key)} = ?" for key in keys.column_names)
        run.many(f"DELETE FROM {into} WHERE {same}", _parameters(keys))

    def _values(self, rows: pa.Table) -> str:
        names = ", ".join(self.quoted(name) for name in rows.column_names)
        return f"({names}) VALUES ({', '.join('?' * rows.num_columns)})"


@functools.cache
def _closing_cursors(driver: Any) -> type:
    """A connection that closes its cursors with itself.

    One that is alive somewhere, as in the traceback of an error that somebody keeps, would keep the file locked behind
    a connection that is only closed: since Python 3.11 a rollback does not reset it.
    """

    class Connection(driver.Connection):  # type: ignore[misc]
        def __init__(self, *args: Any, **settings: Any):
            super().__init__(*args, **settings)
            self._alive: weakref.WeakSet[Any] = weakref.WeakSet()

        def cursor(self, *args: Any) -> Any:
            made = super().cursor(*args)
            self._alive.add(made)
            return made

        def close(self) -> None:
            for each in list(self._alive):
                each.close()
            self._alive.clear()
            super().close()

    return Connection


def _affinity(declared: str) -> str:
    """The affinity of a column, by the rules of SQLite, in their order."""
    upper = declared.upper()
    if "INT" in upper:
        return "INTEGER"
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in upper or not upper:
        return "BLOB"
    return "REAL" if any(word in upper for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _of_strict(declared: str) -> str:
    """What a column of a STRICT table takes. One of the type ANY keeps values as they are, as elsewhere a BLOB does."""
    return {"TEXT": _ONLY_TEXT, "BLOB": _ONLY_BLOB, "ANY": "BLOB"}.get(declared.upper()) or _affinity(declared)


def _parameters(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(_values(column) for column in rows.columns)))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as SQLite keeps them."""
    values: list[Any] = column.to_pylist()
    is_text = pt.is_decimal(column.type) or pt.is_temporal(column.type)
    return [_text(value) for value in values] if is_text else values


def _text(value: Any) -> Any:
    """A decimal or a time as a text; None for none."""
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ", "microseconds")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return format(value, "f") if isinstance(value, decimal.Decimal) else value
