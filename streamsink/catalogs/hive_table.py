"""What Paimon's HiveCatalog writes into a metastore for a table: names of classes, columns and parameters.

Values only. Paimon's programs take the schema from the table's own files. Hive compares the columns of the metastore
with these, so they have to be as Paimon writes them.
"""

from collections.abc import Iterable, Mapping

from streamsink.catalogs.catalog import Named
from streamsink.errors import Misuse
from streamsink.format.schema import TableSchema
from streamsink.format.types import MAX_LENGTH, ArrayType, AtomicType, DataType, MapType, RowType

INPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonInputFormat"
OUTPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
SERDE = "org.apache.paimon.hive.PaimonSerDe"
LOCATION_PARAMETER = "paimon_location"
MANAGED, EXTERNAL = "MANAGED_TABLE", "EXTERNAL_TABLE"
_STORAGE_HANDLER = "org.apache.paimon.hive.PaimonStorageHandler"
# The longest that Hive has; a longer one is its STRING.
_LONGEST = {"CHAR": 255, "VARCHAR": 65535}
# A time of day is text there. Hive 2 has no timestamp with a time zone, and later ones take the plain one for it.
_NAMES = {
    "BINARY": "binary",
    "VARBINARY": "binary",
    "TIME": "string",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
}

Column = tuple[str, str, str | None]


def hive_type(t: DataType) -> str:
    """The type as Hive writes it; whether it may be NULL is not said there."""
    if isinstance(t, ArrayType):
        return f"array<{hive_type(t.element)}>"
    if isinstance(t, MapType):
        return f"map<{hive_type(t.key)},{hive_type(t.value)}>"
    if isinstance(t, RowType):
        return f"struct<{','.join(f'{field.name}:{hive_type(field.type)}' for field in t.fields)}>"
    if not isinstance(t, AtomicType):
        raise Misuse(f"a column of type {t} has no counterpart in Hive", kind="catalog.columns")
    if t.root in _LONGEST:
        length = t.length or MAX_LENGTH
        return f"{t.root.lower()}({length})" if length <= _LONGEST[t.root] else "string"
    if t.root == "DECIMAL":
        return f"decimal({t.precision},{t.scale})"
    return _NAMES.get(t.root, t.root.lower())


def columns_of(schema: TableSchema) -> list[Column]:
    """(name, type, comment) of each column. Partition columns are among them: the metastore has no partitions."""
    return [(field.name, hive_type(field.type), field.description) for field in schema.fields]


def as_stored(columns: Iterable[Column]) -> list[Column]:
    """The columns as a metastore gives them back: it knows no upper case in names, nor an empty comment."""
    return [(name.lower(), kind, comment or None) for name, kind, comment in columns]


def parameters_of(named: Named, schema: TableSchema, *, in_properties: bool) -> Mapping[str, str]:
    """The parameters of the table: its options, and what tells it from a table of Hive's own."""
    found = dict(schema.options)
    if schema.partition_keys:
        found["partition"] = ",".join(schema.partition_keys)
    found |= {"table_type": "PAIMON", "storage_handler": _STORAGE_HANDLER}
    if named.external:
        found["EXTERNAL"] = "TRUE"
    if schema.comment is not None:
        found["comment"] = schema.comment
    if in_properties:
        found[LOCATION_PARAMETER] = named.location
    return found


def check_columns(root: str, schema: TableSchema) -> None:
    """Raises Misuse for columns whose names differ in upper and lower case only: a metastore takes them for one."""
    seen: dict[str, str] = {}
    for name in schema.field_names:
        if seen.setdefault(name.lower(), name) != name:
            raise Misuse(
                f"{root}: the columns '{seen[name.lower()]}' and '{name}' are one column for a Hive Metastore, which "
                "knows no upper case. Nothing was written. Rename one of them in the query, or leave the option "
                "'catalog' out",
                kind="catalog.columns",
            )
