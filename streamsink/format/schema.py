"""Schema files ``schema/schema-N``: one JSON object each, never rewritten."""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any

from streamsink import shell
from streamsink.errors import Corrupt, Misuse
from streamsink.format.types import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
    field_from_json,
    field_to_json,
    is_primitive,
)

CURRENT_VERSION = 3
#: Field ids from this one on belong to system fields.
FIRST_SYSTEM_ID = 1073741823
RESERVED_NAMES = ("_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID")
KEY_PREFIX = "_KEY_"


@dataclass(frozen=True)
class TableSchema:
    """One version of a table's schema, as Paimon's class of this name.

    ``fields`` have their ids; ``time_millis`` is the creation time in ms.
    """

    version: int
    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = dataclass_field(default_factory=dict)
    comment: str | None = None
    time_millis: int = 0

    @classmethod
    def create(
        cls,
        fields: Sequence[DataField],
        partition_keys: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        time_millis: int = 0,
        *,
        primary_keys: Sequence[str] = (),
    ) -> "TableSchema":
        """Schema 0 of a new table.

        Ids are assigned depth first, as Java does; the ids in ``fields`` are ignored. Raises: Misuse
        ``schema.*``, which names the column, for what Paimon does not allow.
        """
        options = dict(options or {})
        check_names(fields)
        _check_keys(fields, partition_keys, "partition")
        _check_keys(fields, primary_keys, "primary key")
        if primary_keys and list(primary_keys) == list(partition_keys):
            raise Misuse("the primary key must not equal the partition columns", kind="schema.bad-key")
        _check_options(options, fields, partition_keys, primary_keys)
        if primary_keys and options.get("primary-key.nullable", "false").strip().lower() != "true":
            fields = [replace(f, type=f.type.as_nullable(False)) if f.name in primary_keys else f for f in fields]
        counter = IdCounter(-1)
        numbered = tuple(counter.assign(f) for f in fields)
        return cls(
            CURRENT_VERSION,
            0,
            numbered,
            counter.highest,
            tuple(partition_keys),
            tuple(primary_keys),
            options,
            comment,
            time_millis,
        )

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(f.name for f in self.fields)

    @property
    def partition_fields(self) -> tuple[DataField, ...]:
        """The partition columns, in the order of ``partition_keys``."""
        return tuple(self.field(name) for name in self.partition_keys)

    @property
    def row_type(self) -> RowType:
        """All columns as one ROW that is NOT NULL."""
        return RowType(self.fields, nullable=False)

    @functools.cached_property
    def columns_id(self) -> str:
        """A digest of the columns in their order: what readers of a file that was written with this schema go by."""
        columns = [field_to_json(replace(f, description=None, default_value=None)) for f in self.fields]
        return hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:32]

    def field(self, name: str) -> DataField:
        """The column with this name. Raises: Misuse ``schema.no-such-column``."""
        for found in self.fields:
            if found.name == name:
                return found
        raise Misuse(
            f"the table has no column {name!r}; it has {', '.join(self.field_names)}", kind="schema.no-such-column"
        )

    def to_json(self) -> bytes:
        """The bytes of the schema file, UTF-8."""
        out: dict[str, Any] = {
            "version": self.version,
            "id": self.id,
            "fields": [field_to_json(f) for f in self.fields],
            "highestFieldId": self.highest_field_id,
            "partitionKeys": list(self.partition_keys),
            "primaryKeys": list(self.primary_keys),
            "options": dict(self.options),
        }
        if self.comment is not None:
            out["comment"] = self.comment
        out["timeMillis"] = self.time_millis
        return json.dumps(out, indent=2, ensure_ascii=False).encode("utf-8")

    @classmethod
    def from_json(cls, data: bytes, name: str) -> "TableSchema":
        """The schema of a schema file; ``name`` is the file's name, for messages. Unknown keys are ignored.

        Raises: Corrupt ``schema.corrupt``.
        """
        try:
            return _from_object(json.loads(data.decode("utf-8")))
        except (ValueError, KeyError, TypeError, RecursionError, Misuse) as bad:
            raise Corrupt(
                f"schema file {name} is not readable: {type(bad).__name__}: {bad}. Restore it "
                f"{shell.restore(name)} or another copy of the table",
                kind="schema.corrupt",
            ) from bad


class IdCounter:
    """Assigns field ids above ``highest`` depth first: to a field, then to its nested fields."""

    def __init__(self, highest: int):
        self.highest = highest

    def assign(self, field: DataField) -> DataField:
        """Return the field with new ids, also for nested fields. Raises: Misuse ``schema.too-many-fields``."""
        self.highest += 1
        if self.highest >= FIRST_SYSTEM_ID:
            raise Misuse(f"column {field.name!r}: no field ids are left", kind="schema.too-many-fields")
        own = self.highest
        return replace(field, id=own, type=self.assign_nested(field.type))

    def assign_nested(self, t: DataType) -> DataType:
        """Return the type with new ids for every field inside."""
        if isinstance(t, RowType):
            return replace(t, fields=tuple(self.assign(f) for f in t.fields))
        if isinstance(t, (ArrayType, MultisetType, VectorType)):
            return replace(t, element=self.assign_nested(t.element))
        if isinstance(t, MapType):
            return replace(t, key=self.assign_nested(t.key), value=self.assign_nested(t.value))
        return t


def check_names(fields: Sequence[DataField], where: str = "") -> None:
    """Raises: Misuse ``schema.bad-name`` for empty, reserved or repeated names, nested ones included."""
    if not fields:
        raise Misuse(f"{where or 'a table'} needs at least one column", kind="schema.bad-name")
    seen: dict[str, str] = {}
    for field in fields:
        path = f"{where}.{field.name}" if where else field.name
        if not field.name.strip():
            raise Misuse(f"a column{' of ' + where if where else ''} has an empty name", kind="schema.bad-name")
        if not where and (field.name in RESERVED_NAMES or field.name.startswith(KEY_PREFIX)):
            raise Misuse(f"column {path!r}: this name is reserved by Paimon", kind="schema.bad-name")
        if field.name in seen:
            raise Misuse(f"column {path!r} is there twice", kind="schema.bad-name")
        seen[field.name] = path
        for part in nested_parts(field.type):
            if isinstance(part, RowType):
                check_names(part.fields, path)


def nested_parts(t: DataType) -> list[DataType]:
    """The type itself and the types inside it, down to and including the first ROW of each branch."""
    if isinstance(t, (ArrayType, MultisetType, VectorType)):
        return [t] + nested_parts(t.element)
    if isinstance(t, MapType):
        return [t] + nested_parts(t.key) + nested_parts(t.value)
    return [t]


def _check_keys(fields: Sequence[DataField], keys: Sequence[str], what: str) -> None:
    by_name = {f.name: f for f in fields}
    for key in keys:
        if key not in by_name:
            raise Misuse(
                f"{what} column {key!r} is not a column of the table, which has {', '.join(by_name)}",
                kind="schema.bad-key",
            )
        if not is_primitive(by_name[key].type):
            raise Misuse(
                f"{what} column {key!r} has type {by_name[key].type}; keys must be of a primitive type",
                kind="schema.bad-key",
            )
    if len(set(keys)) != len(keys):
        raise Misuse(f"a {what} column is named twice: {', '.join(keys)}", kind="schema.bad-key")


def _check_options(
    options: Mapping[str, str], fields: Sequence[DataField], partition_keys: Sequence[str], primary_keys: Sequence[str]
) -> None:
    for key, value in options.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise Misuse(f"option {key!r}: keys and values must be strings", kind="schema.bad-option")
    for key in ("primary-key", "partition"):
        if key in options:
            raise Misuse(f"option {key!r}: give the columns as an argument, not as an option", kind="schema.bad-option")
    text = options.get("bucket", "-1").strip()
    try:
        bucket = int(text)
    except ValueError as bad:
        raise Misuse(f"option 'bucket' is {text!r}, expected a number such as '-1'", kind="schema.bad-option") from bad
    if bucket == 0 or bucket < -2:
        raise Misuse(f"option 'bucket' must be positive, -1 or -2, found {bucket}", kind="schema.bad-option")
    bucket_keys = options["bucket-key"].split(",") if options.get("bucket-key") else []
    names = [f.name for f in fields]
    for key in bucket_keys:
        if key not in names or key in partition_keys or (primary_keys and key not in primary_keys):
            raise Misuse(
                f"bucket-key column {key!r} must be a column, no partition column, and part of the primary "
                "key if there is one",
                kind="schema.bad-key",
            )
    if bucket > 0 and not primary_keys and not bucket_keys:
        raise Misuse(f"an append table with bucket={bucket} needs the option 'bucket-key'", kind="schema.bad-option")
    if bucket == -1 and bucket_keys and not primary_keys:
        raise Misuse("an append table with a 'bucket-key' needs a positive 'bucket'", kind="schema.bad-option")


def _from_object(value: Any) -> TableSchema:
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    version = _integer(value.get("version", 1), "version")
    if not 1 <= version <= CURRENT_VERSION:
        raise ValueError(f"version {version} is not known here")
    options = value["options"]
    if not isinstance(options, dict):
        raise ValueError("options is not an object")
    # Java converts other JSON scalars to strings, so true must become "true".
    options = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items() if v is not None}
    if version < 2:
        options.setdefault("bucket", "1")
    if version < CURRENT_VERSION:
        options.setdefault("file.format", "orc")
    fields = tuple(field_from_json(f) for f in _list(value["fields"], "fields"))
    comment = value.get("comment")
    if not isinstance(comment, (str, type(None))):
        raise ValueError("comment is not a string")
    schema = TableSchema(
        version,
        _integer(value["id"], "id"),
        fields,
        _integer(value["highestFieldId"], "highestFieldId"),
        _names(value["partitionKeys"], "partitionKeys"),
        _names(value["primaryKeys"], "primaryKeys"),
        options,
        comment,
        _integer(value.get("timeMillis") or 0, "timeMillis"),
    )
    known = set(schema.field_names)
    if len(known) != len(fields):
        raise ValueError("a column name is there twice")
    for key in schema.partition_keys + schema.primary_keys:
        if key not in known:
            raise ValueError(f"key column {key!r} is not a column")
    return schema


def _integer(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{what} is not an integer")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what} is not a list")
    return value


def _names(value: Any, what: str) -> tuple[str, ...]:
    if not all(isinstance(name, str) for name in _list(value, what)):
        raise ValueError(f"{what} holds something that is not a name")
    return tuple(value)
