"""Whether rows with certain columns fit into a table, which is made where it is missing and that is wanted."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.types as pt

from streamsink.errors import Misuse
from streamsink.sinks.databases.changes import Change
from streamsink.sinks.databases.dialect import Dialect, Run
from streamsink.sinks.databases.table_info import TableInfo, check_keys, check_names, misfit, said


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
