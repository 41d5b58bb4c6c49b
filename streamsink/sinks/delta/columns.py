"""Columns of Delta tables: their types, and whether rows with certain columns fit. Driver only."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from streamsink.errors import Misuse
from streamsink.format.arrow_types import from_arrow_type, to_arrow_type
from streamsink.format.types import AtomicType, DataField

_PLAIN = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {arrow: name for name, arrow in _PLAIN.items()}
# Values of the first type are brought to the others without loss.
_WIDER = {"byte": {"short", "integer", "long"}, "short": {"integer", "long"}, "integer": {"long"}, "float": {"double"}}
# Without a mapping of columns Spark's Delta refuses names with these, and with the last one Arrow's readers do.
_NO_LETTERS = " ,;{}()\n\t=\0"
_NO_PARTITION = ("binary",)
_CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
_LIMITED = re.compile(r"(?:char|varchar)\((\d+)\)")


@dataclass(frozen=True)
class Column:
    """A column of a table, as its schema has it. type: a name, or an object for nested types."""

    name: str
    type: Any
    nullable: bool
    metadata: Mapping[str, Any]

    def field(self, path: str) -> DataField:
        """The column as rows are brought to it. Raises Misuse for a type that no row has."""
        of = from_arrow_type(arrow_type(self.type, self.name, path), self.nullable, self.name)
        # Spark keeps a column of CHAR(n) or VARCHAR(n) as one of texts, and lets no longer ones come into it.
        limited = _LIMITED.fullmatch(str(self.metadata.get(_CHAR_VARCHAR, "")).lower())
        if limited is not None and isinstance(of, AtomicType):
            of = replace(of, root="VARCHAR", length=int(limited[1]))
        return DataField(-1, self.name, of)


def columns_of(schema_json: str) -> list[Column]:
    """The columns of a schema, as deltalake writes it."""
    fields = json.loads(schema_json)["fields"]
    return [Column(each["name"], each["type"], each["nullable"], each.get("metadata") or {}) for each in fields]


def schema_of(fields: Sequence[DataField], path: str) -> str:
    """The schema of a table with these columns, as deltalake reads it. Raises Misuse."""
    check_names([field.name for field in fields], path)
    return json.dumps({"type": "struct", "fields": [_field(each, path) for each in fields]})


def _field(field: DataField, path: str) -> dict[str, Any]:
    of = delta_type(to_arrow_type(field.type, field.name), field.name, path)
    return {"name": field.name, "type": of, "nullable": field.type.nullable, "metadata": {}}


def check_names(names: Sequence[str], path: str) -> None:
    """Raises Misuse for names that a table cannot have, or not together: readers take no heed of capitals."""
    wrong = next((name for name in names if not name or any(letter in name for letter in _NO_LETTERS)), None)
    if wrong is not None:
        raise _misfit(path, f"a column has the name {wrong!r}, which a Delta table cannot have without column mapping")
    lower = [name.lower() for name in names]
    twice = next((name for name in names if lower.count(name.lower()) > 1), None)
    if twice is not None:
        raise _misfit(path, f"there are two columns '{twice}': readers of Delta tables take no heed of capitals")


def delta_type(of: pa.DataType, column: str, path: str) -> Any:
    """The type of a column for an Arrow type. Raises Misuse where Delta has none."""
    if of in _NAMES:
        return _NAMES[of]
    if pt.is_timestamp(of) and of.unit in ("s", "ms", "us"):
        return "timestamp_ntz" if of.tz is None else "timestamp"
    if pt.is_decimal(of):
        return f"decimal({of.precision},{of.scale})"
    if pt.is_map(of):
        key, value = delta_type(of.key_type, column, path), delta_type(of.item_type, column, path)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": of.item_field.nullable}
    if pt.is_list(of):
        inner = delta_type(of.value_type, column, path)
        return {"type": "array", "elementType": inner, "containsNull": of.value_field.nullable}
    if pt.is_struct(of):
        fields = [
            {"name": f.name, "type": delta_type(f.type, column, path), "nullable": f.nullable, "metadata": {}}
            for f in of
        ]
        return {"type": "struct", "fields": fields}
    raise _misfit(path, f"column '{column}' is {of}, which a Delta table cannot hold", "Cast it in the query")


def has_times_without_zone(of: Any, *, in_maps: bool = True) -> bool:
    """Whether values of a type have such times in them. in_maps: also those of its maps."""
    if isinstance(of, str):
        return of == "timestamp_ntz"
    if of["type"] == "map":
        return in_maps and any(map(has_times_without_zone, (of["keyType"], of["valueType"])))
    parts = [each["type"] for each in of["fields"]] if of["type"] == "struct" else [of["elementType"]]
    return any(has_times_without_zone(each, in_maps=in_maps) for each in parts)


def arrow_type(of: Any, column: str, path: str) -> pa.DataType:
    """The Arrow type for the type of a column. Raises Misuse for one that this writer does not know."""
    if isinstance(of, str):
        if of in _PLAIN:
            return _PLAIN[of]
        if of.startswith("decimal(") and of.endswith(")"):
            precision, _, scale = of[len("decimal(") : -1].partition(",")
            return pa.decimal128(int(precision), int(scale))
    elif of["type"] == "array":
        return pa.list_(pa.field("element", arrow_type(of["elementType"], column, path), of["containsNull"]))
    elif of["type"] == "map":
        value = pa.field("value", arrow_type(of["valueType"], column, path), of["valueContainsNull"])
        return pa.map_(pa.field("key", arrow_type(of["keyType"], column, path), False), value)
    elif of["type"] == "struct":
        return pa.struct(
            [pa.field(f["name"], arrow_type(f["type"], column, path), f["nullable"]) for f in of["fields"]]
        )
    raise _misfit(path, f"column '{column}' of the table is {of}, which this writer does not know")


def missing_columns(
    columns: Sequence[Column], given: Sequence[DataField], *, add_columns: bool, path: str
) -> list[DataField]:
    """The columns that rows have and the table has not yet, which are to be added.

    Raises Misuse, which names the column, where rows do not fit: a column that the table lacks or that rows lack,
    without ``add_columns``, or one of another type.
    """
    known = {column.name: column for column in columns}
    lower = {column.name.lower(): column.name for column in columns}
    new = []
    for field in given:
        column = known.get(field.name)
        if column is None:
            if field.name.lower() in lower:
                raise _misfit(
                    path,
                    f"the rows have a column '{field.name}', and the table has '{lower[field.name.lower()]}'",
                    "Write it as the table has it",
                )
            if not add_columns:
                raise _misfit(
                    path,
                    f"the rows have a column '{field.name}', which the table does not have; its columns are "
                    f"{', '.join(known)}",
                    "Leave it out of the rows, or set add_columns=True",
                )
            new.append(field)
            continue
        of = delta_type(to_arrow_type(field.type, field.name), field.name, path)
        if not _goes_into(of, column.type):
            raise _misfit(
                path,
                f"column '{field.name}' is {_said(of)} in the rows and {_said(column.type)} in the table",
                "Cast it in the query",
            )
    there = {field.name for field in given}
    for column in columns:
        if column.name not in there and not (add_columns and column.nullable):
            raise _misfit(
                path,
                f"column '{column.name}' of the table is missing in the rows",
                "Add it to the query; a nullable column may be left out with add_columns=True (its values are then "
                "null)",
            )
    check_names([field.name for field in new], path)
    return new


def check_partition(columns: Sequence[Column], partition_by: Sequence[str], path: str) -> None:
    """Raises Misuse for columns by which a table cannot be partitioned."""
    known = {column.name: column for column in columns}
    for name in partition_by:
        if name not in known:
            raise _misfit(path, f"partition_by names a column '{name}', which the rows do not have")
        of = known[name].type
        if not isinstance(of, str) or of in _NO_PARTITION:
            raise _misfit(
                path,
                f"partition_by names column '{name}', which is {_said(of)}: its values have no text on which readers "
                "of Delta tables agree",
                "Partition by another column",
            )
    if columns and len(partition_by) == len(columns):
        raise _misfit(path, "partition_by names all columns, and a data file needs one at least")


def _goes_into(given: Any, known: Any) -> bool:
    """Whether all values of a type are values of another one, null or not."""
    if isinstance(given, str) or isinstance(known, str):
        return bool(given == known or (isinstance(given, str) and known in _WIDER.get(given, ())))
    if given["type"] != known["type"]:
        return False
    if given["type"] == "array":
        return _goes_into(given["elementType"], known["elementType"])
    if given["type"] == "map":
        return _goes_into(given["keyType"], known["keyType"]) and _goes_into(given["valueType"], known["valueType"])
    pairs = list(zip(given["fields"], known["fields"]))
    same = len(given["fields"]) == len(known["fields"]) and all(g["name"] == k["name"] for g, k in pairs)
    return same and all(_goes_into(g["type"], k["type"]) for g, k in pairs)


def _said(of: Any) -> str:
    return of if isinstance(of, str) else json.dumps(of)


def _misfit(path: str, found: str, remedy: str = "Give it another name, or leave it out") -> Misuse:
    return Misuse(f"{path}: {found}. Nothing was written. {remedy}", kind="delta.columns")
