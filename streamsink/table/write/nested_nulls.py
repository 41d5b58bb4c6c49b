"""NOT NULL inside nested columns: finds nulls that break it, and builds arrays that keep it. Executor and driver.

Arrow's Parquet writer trusts a type that says NOT NULL. If there is a null nevertheless, it silently writes a row of
nulls or an empty list, or it refuses the file. It also refuses the file because of placeholders that a source puts
below a null row, where there is no value at all. So nulls are counted only where a value could be, and the arrays that
are written have no validity bitmap where their type is NOT NULL.
"""

from collections.abc import Iterator

import pyarrow as pa


def has_not_null(kind: pa.DataType) -> bool:
    """Whether anything inside a type is NOT NULL, apart from the keys of maps, which are never null."""
    return any(not field.nullable or has_not_null(field.type) for field in _inside(kind))


def loosened(kind: pa.DataType) -> pa.DataType:
    """The same type, nullable at every level. Values are brought to this type before their nulls are counted."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, loosened(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, loosened(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(pa.field(key.name, loosened(key.type), False), pa.field(item.name, loosened(item.type)))
    return kind


def nulls_inside(values: pa.Array, kind: pa.DataType, path: str) -> tuple[str, int] | None:
    """(path, number of nulls) of the first place inside that is NOT NULL in ``kind`` and has nulls; None without one.

    Nulls that are only there because a value around them is null are not counted.
    """
    for name, field, part, above in _parts(values, kind):
        where = f"{path}.{name}"
        if not field.nullable and part.null_count > above:
            return where, part.null_count - above
        deeper = nulls_inside(part, field.type, where)
        if deeper is not None:
            return deeper
    return None


def keeping(values: pa.Array, kind: pa.DataType, nullable: bool = True) -> pa.Array:
    """The same values in the type ``kind``, without a validity bitmap where the type is NOT NULL.

    ``nulls_inside`` must have found no nulls there.
    """
    if pa.types.is_struct(kind):
        fields = list(kind)
        parts = [keeping(values.field(place), field.type, field.nullable) for place, field in enumerate(fields)]
        return pa.StructArray.from_arrays(
            parts, fields=fields, mask=values.is_null() if nullable and values.null_count else None
        )
    if pa.types.is_list(kind):
        inside = [keeping(values.values, kind.value_type, kind.value_field.nullable)]
    elif pa.types.is_map(kind):
        entries, fields = values.values, [kind.key_field, kind.item_field]
        parts = [keeping(entries.field(place), field.type, field.nullable) for place, field in enumerate(fields)]
        inside = [pa.StructArray.from_arrays(parts, fields=fields)]
    elif nullable or not values.null_count:
        return values
    else:
        inside = None
    own = values.buffers()[: kind.num_buffers]
    if not nullable:
        own[0] = None
    return pa.Array.from_buffers(kind, len(values), own, values.null_count if nullable else 0, values.offset, inside)


def _inside(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_list(kind):
        return [kind.value_field]
    # Arrow itself makes keys NOT NULL and keeps to it, so this is not counted.
    return [kind.key_field.with_nullable(True), kind.item_field] if pa.types.is_map(kind) else []


def _parts(values: pa.Array, kind: pa.DataType) -> Iterator[tuple[str, pa.Field, pa.Array, int]]:
    """(name, field in ``kind``, values, how many of them are null because their holder is) of each part of an array."""
    fields = _inside(kind)
    if pa.types.is_struct(kind):
        for field, part in zip(fields, values.flatten()):
            yield field.name, field, part, values.null_count
    elif pa.types.is_list(kind):
        yield "element", fields[0], values.flatten(), 0
    elif pa.types.is_map(kind):
        entries = _as_list(values).flatten()
        for place, (name, field) in enumerate(zip(("key", "value"), fields)):
            yield name, field, entries.field(place), 0


def _as_list(values: pa.Array) -> pa.Array:
    """A map array as a list array of its entries, because Arrow can flatten lists but not maps."""
    entries = values.values
    kind = pa.list_(entries.type)
    return pa.Array.from_buffers(
        kind, len(values), values.buffers()[: kind.num_buffers], values.null_count, values.offset, [entries]
    )
