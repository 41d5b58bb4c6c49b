"""MariaDB and MySQL, by PyMySQL."""

import decimal
import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from streamsink.errors import Misuse
from streamsink.sinks.databases.address import Address
from streamsink.sinks.databases.bulk import load_local
from streamsink.sinks.databases.bulk.prepared import MySqlPrepared
from streamsink.sinks.databases.bulk.staging_tables import MySqlStaging
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

# A statement has at most so many rows, and so many bytes of Arrow data, which as text are a few times as many.
_ROWS_AT_ONCE = 1_000
_BYTES_AT_ONCE = 1 << 20
_BYTES_OF_VALUE = 16  # of a number or a time, and of what stands around any value
_SMALLEST_PACKET = 8 << 20
# Fewer rows than that are inserted by statements: it takes a round trip less, and they are a part of a batch.
_FEW_ROWS = 1_000
_SAVEPOINT = "streamsink_load"
_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXTS = ("varchar", "tinytext", "text", "mediumtext", "longtext", "char", "json")
_BINARIES = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")
# Settings under which values that do not fit are errors, and 0 is a number as others are.
_SQL_MODE = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO"
# Error codes. Gone or full: the server, its connections, its disk. In the way: a lock, a deadlock, a read-only server.
_GONE = (
    1040,
    1053,
    1158,
    1159,
    1160,
    1161,
    1203,
    1205,
    1213,
    1290,
    1792,
    1836,
    1927,
    2002,
    2003,
    2006,
    2013,
    2014,
    2055,
    4031,
)
_QUICK = (1053, 1158, 1159, 1160, 1161, 1213, 1927, 2006, 2013, 2014, 2055, 4031)
_FULL = (1021, 1114)
_READ_ONLY = (1290, 1792, 1836)
_FORBIDDEN = (1044, 1142, 1143, 1227, 1370)
_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA, CHARACTER_MAXIMUM_LENGTH,
    CHARACTER_OCTET_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_INDEXES = """
SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX
"""


class MySql(Dialect):
    """MariaDB and MySQL."""

    module = "pymysql"
    remedy = "pip install 'streamsink[mysql]'"
    others_matter = True
    insert_absent = ("INSERT IGNORE INTO", "")
    prepared = MySqlPrepared()
    staging = MySqlStaging()

    def connect(self, address: Address) -> Any:
        pymysql = self.driver()
        tls = {
            f"ssl_{name}": address.parameters[f"ssl_{name}"]
            for name in ("ca", "cert", "key")
            if f"ssl_{name}" in address.parameters
        }
        connection = pymysql.connect(
            host=address.host,
            port=address.port or 3306,
            database=address.database,
            user=address.user,
            password=address.password() or "",
            connect_timeout=CONNECT_TIMEOUT_S,
            charset="utf8mb4",
            # A number with an exponent would be a float, which has fewer digits.
            conv={**pymysql.converters.conversions, decimal.Decimal: lambda value, _=None: format(value, "f")},
            autocommit=False,
            client_flag=pymysql.constants.CLIENT.LOCAL_FILES,  # see load_local.py
            **tls,
        )
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute(
                "SET SESSION sql_mode = %s, time_zone = '+00:00', innodb_lock_wait_timeout = %s, sql_notes = 1, "
                # For a table that somebody changes; else it is a day.
                "lock_wait_timeout = %s",
                (_SQL_MODE, LOCK_TIMEOUT_S, LOCK_TIMEOUT_S),
            )
            # MariaDB ends a transaction that stands still, and statements that take long, of which a large batch is
            # one each time; MySQL has no such settings.
            cursor.execute("SHOW VARIABLES LIKE 'idle_transaction_timeout'")
            if cursor.fetchone() is not None:
                cursor.execute("SET SESSION idle_transaction_timeout = %s, max_statement_time = 0", (IDLE_TIMEOUT_S,))
        connection.commit()
        return connection

    def is_passing(self, error: Exception) -> bool:
        return _code(error) in (*_GONE, *_FULL) or isinstance(error, self.driver().err.InterfaceError)

    def is_quick(self, error: Exception) -> bool:
        return _code(error) in _QUICK or isinstance(error, self.driver().err.InterfaceError)

    def is_forbidden(self, error: Exception) -> bool:
        return _code(error) in _FORBIDDEN

    def told(self, error: Exception) -> str:
        # The texts of the server have values in them; names of columns and keys are what helps.
        named = _NAMED.findall(str(error.args[-1:])) if _code(error) in _NAMING else []
        name = max(named[-1]) if named else ""  # the last one: a value may be before it
        said = f"error {_code(error)}" + (f" ('{name}')" if name else "")
        return f"{said}, {NO_WRITES}" if _code(error) in _READ_ONLY else said

    def quoted(self, *names: str) -> str:
        # With '%' doubled, because statements are executed with parameters.
        return ".".join("`" + name.replace("`", "``") + "`" for name in names).replace("%", "%%")

    def check_name(self, name: str, what: str) -> None:
        super().check_name(name, what)
        if name != name.rstrip(" ") or any(letter > "\uffff" for letter in name):
            raise Misuse(
                f"{what} is {name!r}: this database takes no name with a space at its end, or with a letter beyond "
                "U+FFFF. Nothing was written. Give it another name",
                kind="database.name",
            )

    # -- tables ----------------------------------------------------------------------------------------------------

    def our_tables(self, schema: str) -> dict[str, str]:
        text = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
        return {
            CHECKPOINTS: f"CREATE TABLE IF NOT EXISTS {self.quoted(schema, CHECKPOINTS)} ("
            f"target VARCHAR(64) {text}, application VARCHAR(64) {text}, sequence BIGINT NOT NULL, "
            f"record_id VARCHAR(255) {text}, epoch BIGINT NOT NULL, state LONGTEXT {text}, "
            "PRIMARY KEY (target, application)) ENGINE=InnoDB",
            IDENTITY: f"CREATE TABLE IF NOT EXISTS {self.quoted(schema, IDENTITY)} ("
            f"one INT NOT NULL PRIMARY KEY, id VARCHAR(255) {text}) ENGINE=InnoDB",
            BRANCHES: f"CREATE TABLE IF NOT EXISTS {self.quoted(schema, BRANCHES)} ("
            f"name VARCHAR(64) {text}, kind VARCHAR(16) {text}, target VARCHAR(64) {text}, "
            f"application VARCHAR(64) {text}, PRIMARY KEY (name, kind)) ENGINE=InnoDB",
        }

    def schema(self, run: Run, wanted: str) -> str:
        return wanted or str(run("SELECT DATABASE()").fetchone()[0])

    def _found(self, run: Run, schema: str, table: str) -> tuple[str, str, str] | None:
        # The catalog compares names without case.
        rows = run(
            "SELECT TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            schema,
            table,
        ).fetchall()
        return next((row for row in rows if row[0] == table), None)

    def exists(self, run: Run, schema: str, table: str) -> bool:
        return self._found(run, schema, table) is not None

    def other_spelling(self, run: Run, schema: str, table: str) -> str:
        if not int(run("SELECT @@lower_case_table_names").fetchone()[0]) or self.exists(run, schema, table):
            return ""
        names = run("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", schema).fetchall()
        return next((str(name) for (name,) in names if name.lower() == table.lower()), "")

    def describe(self, run: Run, schema: str, table: str) -> TableInfo:
        _, kind, engine = self._found(run, schema, table) or ("", "", None)
        transactional = {
            row[0] for row in run("SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS = 'YES'")
        }
        wrong = ""
        if kind != "BASE TABLE":
            wrong = f"it is a {kind.lower() or 'name of nothing'}, and not a table"
        elif engine not in transactional:
            wrong = f"its engine {engine} has no transactions (ALTER TABLE ... ENGINE=InnoDB gives it another one)"
        packet = int(run("SELECT @@max_allowed_packet").fetchone()[0])
        if packet < _SMALLEST_PACKET and not wrong:
            wrong = f"max_allowed_packet of the server is {packet}, and a statement may need {_SMALLEST_PACKET} bytes"
        indexes = [
            tuple((column, part) for _, column, part in rows)
            for _, rows in groupby(run(_INDEXES, schema, table).fetchall(), lambda row: row[0])
        ]
        whole = [index for index in indexes if all(column and part is None for column, part in index)]
        unique = tuple(frozenset(column for column, _ in index) for index in whole)
        told = run(_COLUMNS, schema, table).fetchall()
        columns = tuple(_column(row) for row in told)
        ruled = bool(indexes) or self._has_rules(run, schema, table) or any(each.base == "json" for each in columns)
        # An expression may fail: of a column that the server computes, or of a default that names another column.
        ruled = ruled or any(each.computed for each in columns) or any("`" in (row[4] or "") for row in told)
        return TableInfo(table, columns, unique, len(whole) < len(indexes), ruled, wrong, packet // 2 - _BYTES_AT_ONCE)

    def _has_rules(self, run: Run, schema: str, table: str) -> bool:
        found = run(
            "SELECT (SELECT count(*) FROM information_schema.TABLE_CONSTRAINTS WHERE TABLE_SCHEMA = %s AND "
            "TABLE_NAME = %s) + (SELECT count(*) FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = %s AND "
            "EVENT_OBJECT_TABLE = %s) + (SELECT count(PARTITION_NAME) FROM information_schema.PARTITIONS "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s)",
            *(schema, table) * 3,
        )
        return bool(found.fetchone()[0])

    def expected(self, column: Column, of: pa.DataType) -> str:
        base = column.base
        if pt.is_boolean(of):
            return "" if base in _INTEGERS else "BOOLEAN"
        if pt.is_integer(of):
            wide = base == "decimal" and (column.size or 0) - column.scale >= digits_of(of)
            wide = wide or _INTEGERS.get(base, 0) >= of.bit_width
            return "" if wide and not column.unsigned else f"{_integer(of)}, not UNSIGNED"
        if pt.is_floating(of):
            wide = base == "double" or (base == "float" and of.bit_width <= 32)
            wide = wide and column.size is None  # DOUBLE(7,2) rounds, and does not say so
            return "" if wide and not column.unsigned else ("FLOAT" if of.bit_width <= 32 else "DOUBLE")
        if pt.is_decimal(of):
            fits = column.scale >= of.scale and (column.size or 0) - column.scale >= of.precision - of.scale
            return "" if base == "decimal" and fits and not column.unsigned else f"DECIMAL({of.precision},{of.scale})"
        if pt.is_string(of):
            return "" if base in _TEXTS and column.whole else "a text with CHARACTER SET utf8mb4"
        if pt.is_binary(of) or pt.is_fixed_size_binary(of):
            return "" if base in _BINARIES else "LONGBLOB or VARBINARY"
        if pt.is_date(of):
            return "" if base == "date" else "DATE"
        if pt.is_time(of):
            return "" if base == "time" and (column.size or 0) >= 3 else "TIME(3)"
        if pt.is_timestamp(of):
            known = ("datetime",) if of.tz is None else ("datetime", "timestamp")
            fits = base in known and column.size == 6 and of.unit != "ns"
            return "" if fits else "DATETIME(6): one with fewer digits would round"
        return "none: cast it to a text, for instance with to_json"

    def type_for(self, of: pa.DataType, is_key: bool) -> str:
        if pt.is_boolean(of):
            return "BOOLEAN"
        if pt.is_integer(of):
            return _integer(of)
        if pt.is_floating(of):
            return "FLOAT" if of.bit_width <= 32 else "DOUBLE"
        if pt.is_decimal(of):
            return f"DECIMAL({of.precision},{of.scale})"
        if pt.is_string(of):
            return f"{'VARCHAR(255)' if is_key else 'LONGTEXT'} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        plain = ((pt.is_binary, "LONGBLOB"), (pt.is_fixed_size_binary, "LONGBLOB"), (pt.is_date, "DATE"))
        if is_key:
            plain = (
                (pt.is_binary, "VARBINARY(255)"),
                (pt.is_fixed_size_binary, "VARBINARY(255)"),
                (pt.is_date, "DATE"),
            )
        times = ((pt.is_time, "TIME(3)"), (pt.is_timestamp, "DATETIME(6)"))
        return next((name for of_kind, name in (*plain, *times) if of_kind(of)), "")

    # -- rows ------------------------------------------------------------------------------------------------------

    def insert(self, run: Run, into: str, rows: pa.Table) -> None:
        if rows.num_rows >= _FEW_ROWS and load_local.fits(rows.schema) and self._loaded(run, into, rows):
            return
        self._many(run, f"INSERT INTO {into} ({self._names(rows)}) VALUES ", rows, "")

    def upsert(self, run: Run, into: str, rows: pa.Table, keys: Sequence[str]) -> None:
        others = [self.quoted(name) for name in rows.column_names if name not in keys]
        same = self.quoted(keys[0])
        # VALUES(...) is what MariaDB and every MySQL know; a row with nothing but its keys stays as it is.
        change = ", ".join(f"{name} = VALUES({name})" for name in others) or f"{same} = {into}.{same}"
        start = f"INSERT INTO {into} ({self._names(rows)}) VALUES "
        self._many(run, start, rows, f" ON DUPLICATE KEY UPDATE {change}")

    def delete(self, run: Run, into: str, keys: pa.Table) -> None:
        self._many(run, f"DELETE FROM {into} WHERE ({self._names(keys)}) IN (", keys, ")")

    def _loaded(self, run: Run, into: str, rows: pa.Table) -> bool:
        """Load rows as a whole; False when nothing was done, because the server does not let us, or changes values.

        A statement with the rows then has its own error, or its own warning, of what is wrong with them.
        """
        if not run("SELECT @@local_infile").fetchone()[0]:
            return False
        text = load_local.statement(into, self._names(rows), rows.schema).replace("%%", "%")  # it has no parameters
        run(f"SAVEPOINT {_SAVEPOINT}")
        try:
            done = load_local.load(run.connection, text, rows) == (rows.num_rows, 0)
        except self.driver().err.MySQLError as refused:
            if self.is_passing(refused):
                raise
            done = False
        if not done:
            run(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        return done

    def _names(self, rows: pa.Table) -> str:
        return ", ".join(self.quoted(name) for name in rows.column_names)

    def _many(self, run: Run, start: str, rows: pa.Table, end: str) -> None:
        """Run a statement with some rows at once, again and again."""
        marks = f"({', '.join(['%s'] * rows.num_columns)})"
        for part in _parts(rows):
            values = zip(*(column.to_pylist() for column in part.columns))
            run(start + ", ".join([marks] * part.num_rows) + end, *chain.from_iterable(values))


_NAMED = re.compile(r"(?:for column|Column|Field|for key) ['`]?([^'` ]+)['`]?|CONSTRAINT `([^`]+)`")
# Errors whose text names a column, a key or a constraint: NULL, duplicate, too long, no such column, foreign keys, ...
_NAMING = (1048, 1062, 1264, 1364, 1366, 1406, 1292, 1451, 1452, 4025, 3819)


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in parts of at most so many rows, and of about so many bytes unless a single row has more.

    By the bytes of each row: a few long ones among many short ones would make a statement that the server refuses.
    """
    sizes = np.full(rows.num_rows, _BYTES_OF_VALUE * rows.num_columns, np.int64)
    for column in rows.columns:
        if pt.is_string(column.type) or pt.is_binary(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    ends, first = np.cumsum(sizes), 0
    while first < rows.num_rows:
        before = int(ends[first - 1]) if first else 0
        end = int(np.searchsorted(ends, before + _BYTES_AT_ONCE, side="right"))
        end = min(max(end, first + 1), first + _ROWS_AT_ONCE)
        yield rows.slice(first, end - first)
        first = end


def _code(error: Exception) -> int:
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def _integer(of: pa.DataType) -> str:
    return {8: "TINYINT", 16: "SMALLINT", 32: "INT"}.get(of.bit_width, "BIGINT")


def _column(row: Sequence[Any]) -> Column:
    """A column from what the catalog says."""
    name, base, told, nullable, default, extra, characters, octets, digits, scale, second, charset, collation = row
    computed = "GENERATED" in extra.upper() and "DEFAULT_GENERATED" not in extra.upper()
    is_fixed = base == "decimal" or (base in ("float", "double") and scale is not None)
    size = second if base in ("datetime", "timestamp", "time") else digits if is_fixed else None
    size = characters if charset is not None else octets if base in _BINARIES else size
    return Column(
        name,
        told,
        base,
        nullable == "YES",
        size,
        scale or 0,
        # All other collations take texts for equal that differ in case, or in spaces at the end.
        exact=collation in (None, "utf8mb4_0900_bin", "utf8mb4_nopad_bin") and base not in ("float", "double"),
        optional=nullable == "YES" or default is not None or "auto_increment" in extra.lower(),
        computed=computed,
        unsigned="unsigned" in told.lower(),
        whole=charset in (None, "utf8mb4"),
        bytes=octets,
        # Of a TIMESTAMP, without its first and its last year, of which it holds a part.
        first_year=1971 if base == "timestamp" else 1,
        last_year=2037 if base == "timestamp" else 9999,
    )
