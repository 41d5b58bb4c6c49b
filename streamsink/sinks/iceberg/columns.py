"""The columns of an Iceberg table in the words of this library, and what of such tables is refused. Driver only."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamsink.errors import Misuse, Retryable
from streamsink.format.arrow_types import from_arrow_schema, to_arrow_schema
from streamsink.format.evolution import evolve
from streamsink.format.schema import TableSchema
from streamsink.format.types import DataField
from streamsink.options import SinkOptions
from streamsink.sinks.iceberg.catalog import CatalogTable
from streamsink.sinks.lake_tables.parquet_file import LakeFile
from streamsink.storage.stores import table_path
from streamsink.table.write.fit import fit

_FORMAT_VERSION = 2
_ENCRYPTED, DATA_PATH = "encryption.key-id", "write.data.path"
_ID = b"PARQUET:field_id"
_ATOMIC = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def differ(table: Any, before: Any) -> bool:
    """Whether somebody has changed what files are written by: columns, partitions, format, encryption."""
    return _written_by(table.metadata) != _written_by(before.metadata)


def _written_by(metadata: Any) -> tuple[Any, ...]:
    key = metadata.properties.get(_ENCRYPTED)
    return metadata.current_schema_id, metadata.default_spec_id, metadata.format_version, key


def check_options(table_options: Mapping[str, str], path: str, place: str) -> None:
    """Raises Misuse for options by which a table would come to be that ``check`` refuses. place: of it, or ''."""
    found = ""
    version, data = table_options.get("format-version", str(_FORMAT_VERSION)), table_options.get(DATA_PATH, place)
    if str(version) != str(_FORMAT_VERSION):
        found = f"format-version={version}, expected {_FORMAT_VERSION}"
    if _ENCRYPTED in table_options:
        found = f"{_ENCRYPTED}, and files are not encrypted here"
    if place and not is_same_store(table_path(data), table_path(place)):
        found = f"{DATA_PATH}={data}, which is in another store than the table"
    if found:
        raise Misuse(
            f"{path}: table_options has {found}. Nothing was written. Leave that out of table_options",
            kind="iceberg.unsupported",
        )


def is_same_store(one: str, other: str) -> bool:
    """Whether two paths or URIs are in one store."""
    return _store_of(one) == _store_of(other)


def _store_of(path: str) -> str:
    scheme, found, rest = path.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if found else path.partition(":")[0] if ":" in path else ""


def check(table: Any, path: str, partition_by: Sequence[str] = ()) -> None:
    """Raises Misuse for a table with features that are not honoured here, or other partitions than the option says."""
    metadata = table.metadata
    found, way = "", ""
    if metadata.format_version != _FORMAT_VERSION:
        found = f"its format version is {metadata.format_version}, expected {_FORMAT_VERSION}"
        way = "Upgrade it, or write another table" if metadata.format_version < _FORMAT_VERSION else ""
    transforms = [field for field in table.spec().fields if str(field.transform) != "identity"]
    if transforms:
        found = f"it is partitioned by {transforms[0].transform} ({transforms[0].name}), expected columns as they are"
        way = "Partition the table by a column that the query computes"
    top = {field.field_id for field in table.schema().fields}
    inner = [field for field in table.spec().fields if field.source_id not in top]
    if inner:
        found = f"it is partitioned by a part of a column ({inner[0].name}), expected whole columns"
        way = "Partition the table by a column that the query computes"
    if _ENCRYPTED in metadata.properties:
        found = f"its files are to be encrypted ({_ENCRYPTED})"
    if found:
        raise Misuse(
            f"{path}: {found}. Nothing was written. {way or 'Write another table'}", kind="iceberg.unsupported"
        )
    file_schema(table.schema(), path)
    by = partition_columns(table)
    if partition_by and list(partition_by) != by:
        raise Misuse(
            f"{path}: partition_by is {list(partition_by)}, and the table is partitioned by {by}. Nothing was written. "
            "Leave the option out, or name the same columns",
            kind="table.created-differently",
        )


def file_schema(schema: Any, path: str) -> pa.Schema:
    """The columns of data files, with the ids of their fields, by which readers find them after a rename."""
    return pa.schema([_field(each, path, each.name) for each in schema.fields])


def _field(field: Any, path: str, where: str, name: str = "") -> pa.Field:
    kind = _type(field.field_type, path, where)
    return pa.field(name or field.name, kind, not field.required, {_ID: str(field.field_id).encode()})


def _type(kind: Any, path: str, where: str) -> pa.DataType:
    if kind.is_struct:
        return pa.struct([_field(each, path, f"{where}.{each.name}") for each in kind.fields])
    if hasattr(kind, "element_field"):
        return pa.list_(_field(kind.element_field, path, f"{where}.element", "element"))
    if hasattr(kind, "key_field"):
        key, value = kind.key_field, kind.value_field
        return pa.map_(_field(key, path, f"{where}.key", "key"), _field(value, path, f"{where}.value", "value"))
    if str(kind) in _ATOMIC:
        return _ATOMIC[str(kind)]
    if str(kind).startswith("decimal("):
        return pa.decimal128(kind.precision, kind.scale)
    raise Misuse(
        f"{path}: column '{where}' is {kind}, which is not written here. Nothing was written. Write a table without "
        "such a column",
        kind="iceberg.unsupported",
    )


def partition_columns(table: Any) -> list[str]:
    """The columns that the table is partitioned by; a partition has a name of its own, which stays after a rename."""
    schema = table.schema()
    return [str(schema.find_column_name(each.source_id)) for each in table.spec().fields]


def check_partitions(files: Sequence[LakeFile], path: str) -> None:
    """Raises Misuse for a time that a catalog cannot be told: the commit has the names of partitions as text."""
    for file in files:
        for name, value in file.partition_values.items():
            try:
                value.as_py()
            except (OverflowError, ValueError):
                raise Misuse(
                    f"{path}: a row has in the partition column '{name}' a time outside of the years 1 to 9999, as "
                    "comes of milliseconds that are taken for seconds. Nothing was recorded. Mend or filter such rows "
                    "in the query, or partition by another column",
                    kind="iceberg.unsupported",
                ) from None  # the original message quotes the value


@dataclass(frozen=True)
class Fitted:
    """The schema of a table as rows of a query find it. root: for messages. schema: in this library's words."""

    root: str
    schema: TableSchema

    def latest_schema(self) -> TableSchema:
        return self.schema

    def evolve(
        self, wanted: Sequence[DataField], *, add_columns: bool, widen_types: bool, newest: TableSchema | None = None
    ) -> TableSchema:
        """What the schema becomes. The table is not changed."""
        return evolve(self.schema, wanted, add_columns=add_columns, widen_types=widen_types, time_millis=0)


def fitted(
    table: Any, to: CatalogTable, given: Sequence[DataField], options: SinkOptions, known: Collection[int] | None = None
) -> Any:
    """The table, whose schema is changed before for rows with the columns ``given``, if options allow it.

    known: ids of the columns that the table had when such rows have fitted before; a nullable column that others have
    added since is no reason to stop a query. Raises Misuse, which names the column, when such rows do not fit;
    Retryable when another program has changed the schema meanwhile.
    """
    from pyiceberg.exceptions import CommitFailedException

    by, names = partition_columns(table), {field.name for field in given}
    asked = [
        field.name
        for field in table.schema().fields
        if known is None or field.field_id in known or field.required or field.name in names or field.name in by
    ]
    fields = [each for each in from_arrow_schema(file_schema(table.schema(), to.path)) if each.name in asked]
    before = TableSchema.create(fields, by)
    after = fit(Fitted(to.path, before), given, options)
    if after is before:
        return table
    _check_identifiers(table, after, to.path)
    try:
        with to.answered("its schema could not be changed"), table.update_schema() as update:
            update.union_by_name(to_arrow_schema(after.fields))
    except CommitFailedException as other:
        raise Retryable(
            f"{to.path}: another program has changed the schema at the same time. Nothing was written. The query "
            "looks at it again when it is started again",
            kind="schema.contended",
        ) from other
    changed = to.load()
    if changed is not None:
        check(changed, to.path)  # another program may have changed it at the same time
    found = from_arrow_schema(file_schema(changed.schema(), to.path)) if changed is not None else []
    wanted = {(field.name, str(field.type)) for field in after.fields}  # the fields of rows have no ids in ``found``
    names = {field.name for field in after.fields}
    if {(field.name, str(field.type)) for field in found if known is None or field.name in names} != wanted:
        raise Misuse(
            f"{to.path}: pyiceberg could not change the schema as the rows need it. No row was written. Change the "
            "columns of the table with another engine, or cast them in the query",
            kind="schema.evolution",
        )
    return changed


def _check_identifiers(table: Any, after: TableSchema, path: str) -> None:
    """Raises Misuse where a column would take nulls by which the table tells rows apart: Iceberg lets none of them."""
    by = table.schema().identifier_field_names()
    freed = next((field.name for field in after.fields if field.name in by and field.type.nullable), "")
    if freed:
        raise Misuse(
            f"{path}: column '{freed}' is one of the table's identifier fields, and is nullable in the data: it can "
            "never take nulls, whatever widen_types says. Nothing was written. Filter nulls and declare it so (for "
            "instance with a schema of nullable=False), or execute ALTER TABLE ... DROP IDENTIFIER FIELDS "
            f"{freed}, with Spark or another engine",
            kind="schema.nullability",
        )
