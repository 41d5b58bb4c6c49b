"""PostgreSQL, by psycopg."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.types as pt

from streamsink.locks.libpq_login import is_login, sqlstate_of
from streamsink.sinks.databases.address import Address
from streamsink.sinks.databases.bulk import copy_binary
from streamsink.sinks.databases.bulk.postgresql_session import (
    BASES,
    COLUMNS,
    INDEXES,
    PARTITIONS,
    RULES,
    TABLE,
    settings,
)
from streamsink.sinks.databases.bulk.prepared import PostgreSqlPrepared
from streamsink.sinks.databases.bulk.staging_tables import PostgreSqlStaging, conflict
from streamsink.sinks.databases.dialect import (
    BRANCHES,
    CHECKPOINTS,
    CONNECT_TIMEOUT_S,
    IDENTITY,
    IDLE_TIMEOUT_S,
    LOCK_TIMEOUT_S,
    NO_WRITES,
    Dialect,
    Run,
)
from streamsink.sinks.databases.table_info import Column, TableInfo, digits_of

_BEFORE = "streamsink_rows"  # a table of the transaction, which holds rows that replace others, or keys to delete
# Fewer rows than that are replaced or deleted one by one, without such a table, which would fill the catalog. They are
# inserted as a text, for which the types of the columns need not be asked.
_FEW_ROWS = 1_000
_INTEGERS = {"int2": 16, "int4": 32, "int8": 64}
_TEXTS = ("text", "varchar", "bpchar", "json", "jsonb", "uuid", "citext")
_COUNTED = ("varchar", "bpchar")
_NOT_IN_ENCODING = "22P05"
_LACKS = "a letter that the encoding of the database does not have"
# Texts that the server reads, and may refuse: how they look as a rule, and what of them may be wrong all the same. In
# jsonb an escape is the letter itself, so there is none of a zero, of half a pair, or of one that the encoding lacks.
_OBJECT = r"(?s)^[ \t\r\n]*(\{.*\}|\[.*\])[ \t\r\n]*$"
_READ = {"json": _OBJECT, "jsonb": _OBJECT, "uuid": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"}
_ODD, _ODD_ELSEWHERE = r"\\u(0000|[dD][89a-fA-F])", r"\\u"
# Classes of what is said of a text: of its value, or of its depth.
_OF_TEXTS = ("22", "54")
_WRONG_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}


class PostgreSql(Dialect):
    """PostgreSQL."""

    module = "psycopg"
    remedy = "pip install 'streamsink[postgresql]'"
    longest_name = 63  # the server cuts a longer one off, and takes what is left for the name
    counts_bytes = True
    has_nan = True
    has_zero_byte = False
    repeats = False
    prepared = PostgreSqlPrepared()
    staging = PostgreSqlStaging()

    def connect(self, address: Address) -> Any:
        connection = self._connected(
            {
                "application_name": "streamsink",
                "connect_timeout": CONNECT_TIMEOUT_S,
                "tcp_user_timeout": 1000 * IDLE_TIMEOUT_S,
                **address.parameters,
                "host": address.host or None,
                "port": address.port,
                "dbname": address.database,
                "user": address.user or None,
                "password": address.password(),
            }
        )
        of_server = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()[0]
        if of_server == connection.info.backend_pid:
            connection.execute(settings(connection, (LOCK_TIMEOUT_S, IDLE_TIMEOUT_S), is_local=False))
        else:
            # Somebody stands between (PgBouncer), and may give the next transaction another session of the server, and
            # this one to another client.
            connection.commit()
            connection.isolation_level = self.driver().IsolationLevel.READ_COMMITTED
            self.begin = settings(connection, (LOCK_TIMEOUT_S, IDLE_TIMEOUT_S), is_local=True)
        connection.commit()
        return connection

    def _connected(self, parameters: dict[str, Any]) -> Any:
        """A connection. An error has the code with which the server refused it, of which psycopg knows none."""
        psycopg = self.driver()
        try:
            # A pooler (PgBouncer) may give each transaction any connection to the server, where another client may have
            # prepared its own statement under the same name: rows would go into that.
            return psycopg.connect(**parameters, prepare_threshold=None)
        except psycopg.OperationalError as failed:
            if not failed.sqlstate:
                failed.sqlstate = sqlstate_of(parameters, CONNECT_TIMEOUT_S) or None
            raise

    def is_passing(self, error: Exception) -> bool:
        psycopg = self.driver()
        state = str(getattr(error, "sqlstate", None) or "")
        if not state:  # not from the server: the connection is gone, or was never made
            return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and not is_login(str(error))
        # Connections, transactions that were in the way, resources, an operator, locks that were not given.
        return state[:2] in ("08", "40", "53", "57", "58", "25") or state == "55P03"

    def is_quick(self, error: Exception) -> bool:
        state = str(getattr(error, "sqlstate", None) or "")
        # Two that create our tables at the same time: one of them finds a name taken.
        both_make = state in ("42P07", "42710") or str(_diagnosed(error, "constraint_name")).startswith("pg_")
        return both_make or (self.is_passing(error) and state[:2] in ("", "08", "40", "25", "57"))

    def is_forbidden(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) == "42501"

    def told(self, error: Exception) -> str:
        state = getattr(error, "sqlstate", None)
        if not state and is_login(str(error)):
            return "no login"
        if not state:
            return "the connection was lost, or could not be made" if self.is_passing(error) else "psycopg refuses it"
        kinds = ("table_name", "column_name", "constraint_name", "datatype_name")
        names = [f"{what} '{name}'" for what in kinds if (name := _diagnosed(error, what))]
        read_only = [NO_WRITES] if state == "25006" else [_LACKS] if state == _NOT_IN_ENCODING else []
        return ", ".join([f"SQLSTATE {state}", *names, *read_only])

    def quoted(self, *names: str) -> str:
        # With '%' doubled, because statements are executed with parameters.
        return str(self.driver().sql.Identifier(*names).as_string(None)).replace("%", "%%")

    # -- tables ----------------------------------------------------------------------------------------------------

    def our_tables(self, schema: str) -> dict[str, str]:
        return {
            CHECKPOINTS: f"CREATE TABLE IF NOT EXISTS {self.quoted(schema, CHECKPOINTS)} ("
            "target text NOT NULL, application text NOT NULL, sequence bigint NOT NULL, record_id text NOT NULL, "
            "epoch bigint NOT NULL, state text NOT NULL, PRIMARY KEY (target, application))",
            IDENTITY: f"CREATE TABLE IF NOT EXISTS {self.quoted(schema, IDENTITY)} ("
            "one int NOT NULL PRIMARY KEY, id text NOT NULL)",
            BRANCHES: f"CREATE TABLE IF NOT EXISTS {self.quoted(schema, BRANCHES)} ("
            "name text NOT NULL, kind text NOT NULL, target text NOT NULL, application text NOT NULL, "
            "PRIMARY KEY (name, kind))",
        }

    def schema(self, run: Run, wanted: str) -> str:
        return wanted or str(run("SELECT current_schema()").fetchone()[0])

    def _oid(self, run: Run, schema: str, table: str) -> tuple[int, str, str, bool, bool] | None:
        found: tuple[int, str, str, bool, bool] | None = run(TABLE, schema, table).fetchone()
        return found

    def exists(self, run: Run, schema: str, table: str) -> bool:
        return self._oid(run, schema, table) is not None

    def describe(self, run: Run, schema: str, table: str) -> TableInfo:
        found = self._oid(run, schema, table)
        oid, kind, persistence, has_rules, hides = found if found is not None else (0, "v", "p", False, False)
        wrong = ""
        if kind not in ("r", "p"):
            wrong = f"it is {_WRONG_KINDS.get(kind, 'no table')}, not a table of this database"
        elif persistence != "p":
            wrong = "it is unlogged or temporary, so a crash of the server empties it, and not what is remembered of it"
        elif has_rules:
            wrong = "rules of the table may turn what is written into something else"
        elif kind == "p" and (part := run(PARTITIONS, oid).fetchone()) is not None:
            wrong = (
                f"its partition '{part[0]}' is unlogged or foreign, and may lose rows of which it is remembered here"
            )
        columns = [
            _column(name, told, base, modifier, (not_null, default, computed, deterministic))
            for name, told, base, modifier, not_null, default, computed, deterministic in run(COLUMNS, oid)
        ]
        indexes = run(INDEXES, oid).fetchall()
        unique = tuple(frozenset(names) for whole, names in indexes if whole)
        ruled = bool(indexes) or bool(run(RULES, *[oid] * 5).fetchone()[0])
        # A row may have no partition, and a partition has constraints and triggers of its own.
        ruled = ruled or kind == "p" or any(column.base in _READ for column in columns)
        encoding = run("SHOW server_encoding").fetchone()[0]
        if encoding == "SQL_ASCII":  # it takes all bytes, and counts them
            columns = [replace(each, bytes=each.size) if each.base in _COUNTED else each for each in columns]
        odd = _ODD if encoding == "UTF8" else _ODD_ELSEWHERE
        columns = [replace(each, odd=odd) if each.base == "jsonb" else each for each in columns]
        lacking = "" if encoding in ("UTF8", "SQL_ASCII") else encoding
        others = len(unique) < len(indexes)
        return TableInfo(table, tuple(columns), unique, others, ruled, wrong, hides_rows=hides, encoding=lacking)

    def has_letters(self, run: Run, letters: str) -> bool:
        return _takes(run, self.driver().Error, (_NOT_IN_ENCODING,), "SELECT pg_catalog.length(%s)", letters)

    def reads(self, run: Run, column: Column, texts: Sequence[str]) -> bool:
        read = f"SELECT pg_catalog.count(each::pg_catalog.{column.base}) FROM pg_catalog.unnest(%s::text[]) each"
        return _takes(run, self.driver().Error, _OF_TEXTS, read, list(texts))

    def expected(self, column: Column, of: pa.DataType) -> str:
        base = column.base
        if pt.is_boolean(of):
            return "" if base == "bool" else "boolean"
        if pt.is_integer(of):
            whole = column.scale >= 0 and (column.size is None or column.size - column.scale >= digits_of(of))
            wide = base == "numeric" and whole  # with a negative scale it rounds to tens, hundreds, ...
            return "" if wide or _INTEGERS.get(base, 0) >= of.bit_width else _integer(of)
        if pt.is_floating(of):
            wide = base == "float8" or (base == "float4" and of.bit_width <= 32)
            return "" if wide else ("real or double precision" if of.bit_width <= 32 else "double precision")
        if pt.is_decimal(of):
            fits = column.size is None or (
                column.scale >= of.scale and column.size - column.scale >= of.precision - of.scale
            )
            return "" if base == "numeric" and fits else f"numeric({of.precision},{of.scale})"
        if pt.is_string(of):
            return "" if base in _TEXTS else "text"
        if pt.is_binary(of) or pt.is_fixed_size_binary(of):
            return "" if base == "bytea" else "bytea"
        if pt.is_date(of):
            return "" if base == "date" else "date"
        if pt.is_time(of):
            return "" if base == "time" and (column.size is None or column.size >= 3) else "time"
        if pt.is_timestamp(of):
            wanted = "timestamp" if of.tz is None else "timestamptz"
            return "" if base == wanted and column.size in (None, 6) and of.unit != "ns" else f"{wanted} (microseconds)"
        return "none: cast it to a text, for instance with to_json"

    def type_for(self, of: pa.DataType, is_key: bool) -> str:
        if pt.is_boolean(of):
            return "boolean"
        if pt.is_integer(of):
            return _integer(of)
        if pt.is_floating(of):
            return "real" if of.bit_width <= 32 else "double precision"
        if pt.is_decimal(of):
            return f"numeric({of.precision},{of.scale})"
        if pt.is_timestamp(of):
            return "timestamp" if of.tz is None else "timestamptz"
        plain = ((pt.is_string, "text"), (pt.is_binary, "bytea"), (pt.is_fixed_size_binary, "bytea"))
        times = ((pt.is_date, "date"), (pt.is_time, "time"))
        return next((name for of_kind, name in (*plain, *times) if of_kind(of)), "")

    # -- rows ------------------------------------------------------------------------------------------------------

    def insert(self, run: Run, into: str, rows: pa.Table) -> None:
        names = ", ".join(self.quoted(name) for name in rows.column_names)
        start = f"COPY {into} ({names}) FROM STDIN".replace("%%", "%")  # a COPY has no parameters
        bases = self._bases(run, into, rows.column_names) if rows.num_rows >= _FEW_ROWS else []
        if copy_binary.fits(rows.schema, bases):
            with run.connection.cursor().copy(f"{start} (FORMAT binary)") as copy:
                for part in copy_binary.encoded(rows, bases):
                    copy.write(part)
            return
        copied = [_copied(column) for column in rows.columns]
        if any(pt.is_binary(column.type) for column in copied):
            with run.connection.cursor().copy(start) as copy:
                for row in zip(*(column.to_pylist() for column in rows.columns)):
                    copy.write_row(row)
            return
        # In what Arrow writes, a null is empty and a text that is empty is quoted: so does PostgreSQL read it.
        options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
        with run.connection.cursor().copy(f"{start} (FORMAT csv)") as copy:
            csv.write_csv(pa.table(copied, rows.column_names), _Copied(copy), options)

    def _bases(self, run: Run, into: str, names: Sequence[str]) -> list[str]:
        """The types of these columns, by their names in pg_type; '' for what is no type of the server's own."""
        found = dict(run(BASES, into.replace("%%", "%")).fetchall())
        return [found.get(name, "") for name in names]

    def upsert(self, run: Run, into: str, rows: pa.Table, keys: Sequence[str]) -> None:
        names, by = [self.quoted(name) for name in rows.column_names], [self.quoted(key) for key in keys]
        if rows.num_rows < _FEW_ROWS or not self._may_keep(run, into):
            marks = ", ".join(["%s"] * rows.num_columns)
            made = f"INSERT INTO {into} ({', '.join(names)}) VALUES ({marks}) {conflict(names, by)}"
            run.many(made, _tuples(rows))
            return
        with _Before(self, run, into, rows) as before:
            run(self.staging.upsert(into, before, names, by))

    def delete(self, run: Run, into: str, keys: pa.Table) -> None:
        names = [self.quoted(name) for name in keys.column_names]
        if keys.num_rows < _FEW_ROWS or not self._may_keep(run, into):
            run.many(f"DELETE FROM {into} WHERE {' AND '.join(f'{name} = %s' for name in names)}", _tuples(keys))
            return
        with _Before(self, run, into, keys) as before:
            run(self.staging.delete(into, before, names))

    def _may_keep(self, run: Run, into: str) -> bool:
        """Whether the user may make a ``_Before``. Who may not writes row by row."""
        ask = "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY') AND "
        return bool(run(f"{ask}pg_catalog.has_table_privilege(%s, 'SELECT')", into.replace("%%", "%")).fetchone()[0])

    def check_at_once(self, run: Run) -> None:
        run("SET CONSTRAINTS ALL IMMEDIATE")


class _Before:
    """A table of this transaction with these rows, with the columns of the table that they are for."""

    def __init__(self, dialect: PostgreSql, run: Run, into: str, rows: pa.Table):
        self._dialect, self._run, self._into, self._rows = dialect, run, into, rows
        self._name = dialect.quoted("pg_temp", _BEFORE)

    def __enter__(self) -> str:
        names = ", ".join(self._dialect.quoted(name) for name in self._rows.column_names)
        made = f"CREATE TEMP TABLE {_BEFORE} ON COMMIT DROP AS SELECT {names} FROM {self._into} WITH NO DATA"
        self._run(made)
        self._dialect.insert(self._run, self._name, self._rows)
        return self._name

    def __exit__(self, kind: Any, *raised: object) -> None:
        if kind is None:
            self._run(f"DROP TABLE {self._name}")


class _Copied:
    """A file for what Arrow writes, which goes into a COPY."""

    closed = False

    def __init__(self, copy: Any):
        self._copy = copy

    def write(self, data: Any) -> int:
        self._copy.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """The COPY ends by itself."""


def _copied(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as COPY takes it from Arrow's writer of CSV."""
    of = column.type
    if pt.is_timestamp(of) and of.tz is not None:  # in UTC, as the session is; Arrow takes long to write a zone
        return pc.cast(column, pa.timestamp(of.unit))
    if pt.is_float32(of):  # its own digits are fewer than a wider column takes
        return pc.cast(column, pa.float64())
    return pc.cast(column, pa.string()) if pt.is_decimal(of) else column


def _takes(run: Run, error: type[Exception], refusals: tuple[str, ...], text: str, value: Any) -> bool:
    """Whether the server executes a statement with this value. refusals: what its codes begin with where it does not.

    error: of the driver.
    """
    try:
        run(text, value)
    except error as refused:
        if not str(getattr(refused, "sqlstate", None)).startswith(refusals):
            raise
        return False
    return True


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns)))


def _integer(of: pa.DataType) -> str:
    return "smallint" if of.bit_width <= 16 else "integer" if of.bit_width == 32 else "bigint"


def _diagnosed(error: Exception, what: str) -> str:
    return getattr(getattr(error, "diag", None), what, None) or ""


def _column(name: str, told: str, base: str, modifier: int, flags: tuple[bool, bool, bool, bool]) -> Column:
    """A column from what the catalog says. flags: NOT NULL, has a default, is computed, compares letter by letter."""
    not_null, default, computed, deterministic = flags
    size: int | None = None
    scale = 0
    if modifier >= 0 and base in ("varchar", "bpchar"):
        size = modifier - 4
    elif modifier >= 0 and base == "numeric":
        size, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        scale = (scale ^ 1024) - 1024  # it has a sign
    elif modifier >= 0 and base in ("timestamp", "timestamptz", "time"):
        size = modifier
    exact = deterministic and base not in ("bpchar", "citext", "float4", "float8", "json", "jsonb")
    found = Column(name, told, base, not not_null, size, scale, exact, not not_null or default, computed)
    return replace(found, regular=_READ.get(base, ""))
