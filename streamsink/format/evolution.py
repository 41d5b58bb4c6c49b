"""Schema evolution: what a table's schema becomes when a writer brings other columns.

Readers cast a file from the schema it was written with to the newest one, so only changes that preserve every old value
are made. Partition columns keep their type, because their values are in manifests, which carry no schema.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamsink.errors import Misuse
from streamsink.format.schema import IdCounter, TableSchema, check_names
from streamsink.format.type_model import INTEGER_ROOTS
from streamsink.format.types import (
    BINARY_ROOTS,
    CHARACTER_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    RowType,
)

_FLOATS = ("FLOAT", "DOUBLE")
_FIXED = "the type of a partition or key column can never change"


@dataclass
class _Plan:
    """What is allowed, and the ids assigned so far. fixed: partition and key columns; no option changes their type."""

    add_columns: bool
    widen_types: bool
    ids: IdCounter
    fixed: Sequence[str] = ()


def evolve(
    current: TableSchema, wanted: Sequence[DataField], *, add_columns: bool, widen_types: bool, time_millis: int
) -> TableSchema:
    """The schema that can also hold rows of ``wanted``; ``current`` itself if it already can.

    A column of the table that is not in ``wanted`` stays. A type of the table that is wider than the wanted type
    stays too, and so does NOT NULL without ``widen_types``; then the values decide when they are written.
    ``time_millis`` is the creation time of the new schema. Raises: Misuse ``schema.evolution``, which names the
    column, both types and the option.
    """
    check_names(wanted)
    plan = _Plan(
        add_columns, widen_types, IdCounter(current.highest_field_id), current.partition_keys + current.primary_keys
    )
    fields = _merge_fields(current.fields, wanted, plan, "")
    for name in current.partition_keys + current.primary_keys:
        before, after = current.field(name).type, next(f.type for f in fields if f.name == name)
        if before != after and (name in current.primary_keys or before != after.as_nullable(before.nullable)):
            raise _error(name, after, before, _FIXED)
    if fields == list(current.fields):
        return current
    return replace(
        current,
        version=3,
        id=current.id + 1,
        fields=tuple(fields),
        highest_field_id=plan.ids.highest,
        time_millis=time_millis,
    )


def _merge_fields(have: Sequence[DataField], wanted: Sequence[DataField], plan: _Plan, where: str) -> list[DataField]:
    by_name = {f.name: f for f in wanted}
    merged = []
    for field in have:
        other = by_name.pop(field.name, None)
        path = where + field.name
        merged.append(field if other is None else replace(field, type=_merge(field.type, other.type, plan, path)))
    folded = {f.name.lower(): f.name for f in have}
    added = [field for field in wanted if field.name in by_name]
    for field in added:
        if field.name.lower() in folded:
            raise Misuse(
                f"column {where + field.name!r}: the table has {folded[field.name.lower()]!r}, which differs only in "
                "case; rename one of them",
                kind="schema.evolution",
            )
    _check_added(added, plan, where)
    return merged + [plan.ids.assign(field) for field in added]


def _check_added(added: Sequence[DataField], plan: _Plan, where: str) -> None:
    """Raises: Misuse with everything that has to be done, if these columns cannot be added as they are."""
    strict = [where + field.name for field in added if not field.type.nullable]
    if not added or plan.add_columns and not strict:
        return
    way_on = "add_columns=True would add it"
    if strict:
        outer = f"`{strict[0].partition('.')[0]}`"
        how = (
            f"cast its column to a type without NOT NULL, CAST({outer} AS ...)"
            if where
            else f"such as if({outer} IS NULL, NULL, {outer})"
        )
        way_on = (
            f"a new column must be nullable, because the rows already there have no value, and "
            f"{', '.join(map(repr, strict))} in the data {'is' if len(strict) == 1 else 'are'} NOT NULL. Do both: make "
            f"{'it' if len(strict) == 1 else 'each of them'} nullable in the query, {how}, and set add_columns=True"
        )
    raise Misuse(
        f"column {where + added[0].name!r} of type {added[0].type} is not in the table; {way_on}",
        kind="schema.evolution",
    )


def _merge(have: DataType, wanted: DataType, plan: _Plan, path: str) -> DataType:
    merged = _merge_nested(have, wanted, plan, path)
    if merged is None:
        plain, other = have.as_nullable(True), wanted.as_nullable(True)
        if plain == other or widens(other, plain):
            merged = have
        elif not widens(plain, other):
            raise _error(path, wanted, have, "no option allows this change; cast the column")
        elif path in plan.fixed:
            raise _error(path, wanted, have, f"{_FIXED}; cast the column")
        elif not plan.widen_types:
            raise _error(path, wanted, have, "widen_types=True would widen the table's column")
        else:
            merged = wanted.as_nullable(have.nullable)
    if wanted.nullable and not merged.nullable and plan.widen_types:
        merged = merged.as_nullable(True)
    return merged


def _merge_nested(have: DataType, wanted: DataType, plan: _Plan, path: str) -> DataType | None:
    """The merged type of two nested types of the same kind, otherwise None."""
    if isinstance(have, RowType) and isinstance(wanted, RowType):
        return replace(have, fields=tuple(_merge_fields(have.fields, wanted.fields, plan, path + ".")))
    if isinstance(have, ArrayType) and isinstance(wanted, ArrayType):
        return replace(have, element=_merge(have.element, wanted.element, plan, path + ".element"))
    if isinstance(have, MapType) and isinstance(wanted, MapType):
        _check_key(have.key, wanted.key, plan, path + ".key")
        return replace(have, value=_merge(have.value, wanted.value, plan, path + ".value"))
    return None


def _check_key(have: DataType, wanted: DataType, plan: _Plan, path: str) -> None:
    """Refuse any change of a map's key type, nullability included, because Java refuses to read such a map.

    For the same reason the message advises no option.
    """
    never = _error(path, wanted, have, "the key type of a map can never change")
    try:
        same = _merge(have, wanted, _Plan(False, False, plan.ids), path) == have
    except Misuse as refused:
        raise never from refused
    if not same:
        raise never


def _error(path: str, wanted: DataType, have: DataType, way_out: str) -> Misuse:
    return Misuse(f"column {path!r}: found type {wanted}, the table has {have}; {way_out}", kind="schema.evolution")


def widens(narrow: DataType, wide: DataType) -> bool:
    """Whether every value of ``narrow`` reads back unchanged after the table's type has become ``wide``.

    Nullability is ignored. BINARY(n) and CHAR(n) do not widen within their kind, because Java pads their old
    values.
    """
    if not isinstance(narrow, AtomicType) or not isinstance(wide, AtomicType) or narrow == wide:
        return False
    a, b = narrow.root, wide.root
    if a in INTEGER_ROOTS and b in INTEGER_ROOTS:
        return INTEGER_ROOTS.index(a) < INTEGER_ROOTS.index(b)
    if a in _FLOATS and b in _FLOATS:
        return _FLOATS.index(a) < _FLOATS.index(b)
    if a == b == "DECIMAL":
        return narrow.scale == wide.scale and (narrow.precision or 0) < (wide.precision or 0)
    if (a in CHARACTER_ROOTS and b == "VARCHAR") or (a in BINARY_ROOTS and b == "VARBINARY"):
        return (narrow.length or 0) <= (wide.length or 0)
    if a == b and a in TIMESTAMP_ROOTS:
        small, large = narrow.precision or 0, wide.precision or 0
        return small < large and _physical_class(small) == _physical_class(large)
    return False


def _physical_class(precision: int) -> int:
    """How a timestamp of this precision is stored in a file: 0 milliseconds, 1 microseconds, 2 INT96."""
    return 0 if precision <= 3 else 1 if precision <= 6 else 2
