"""By which names columns are found in data files that say no field ids (``schema.name-mapping.default``)."""

from collections.abc import Iterable, Sequence
from typing import Any

from streamsink.errors import Misuse
from streamsink.format.iceberg_types import element_id, key_id, value_id
from streamsink.format.schema import TableSchema
from streamsink.format.types import ArrayType, DataField, DataType, MapType, RowType

_ELEMENT, _KEY, _VALUE = "element", "key", "value"
# Where a field stands: the ids of the fields around it, and what of an array or a map it is in.
_Place = tuple[int | str, ...]


def name_mapping(
    current: TableSchema, without_ids: Iterable[TableSchema], with_ids: Iterable[TableSchema] = ()
) -> list[dict[str, Any]]:
    """The fields of the newest schema, and those that were dropped, each with all of its names; nested ones too.

    without_ids: schemas with which files without ids may have been written. with_ids: those with which our files say
    ids, and those of some other programs do not: their names are given as far as they mean one field.
    Raises Misuse ``table.unsupported-column`` where a name of the first ones stood for another field.
    """
    names = _Names()
    for schema in (current, *without_ids):
        names.add(schema.fields, (), "", is_strict=True)
    for schema in with_ids:
        names.add(schema.fields, (), "", is_strict=False)
    return names.mapped(())


class _Names:
    """Fields by place and id, as the first schema has them that knows them, with their names."""

    def __init__(self) -> None:
        self._fields: dict[_Place, dict[int, tuple[DataField, list[str]]]] = {}
        self._owners: dict[tuple[_Place, str], int] = {}

    def add(self, fields: Sequence[DataField], place: _Place, path: str, *, is_strict: bool) -> None:
        """path: of the fields around these, with a dot behind it, for messages."""
        known = self._fields.setdefault(place, {})
        for field in fields:
            _, names = known.setdefault(field.id, (field, []))
            if self._owners.setdefault((place, field.name), field.id) == field.id:
                names += [] if field.name in names else [field.name]
            elif is_strict:
                raise Misuse(
                    f"column '{path}{field.name}': an earlier schema had another column of this name, and files of it "
                    "say no field ids, so that readers of Iceberg's metadata would take one for the other. Rewrite "
                    "these files, by streamsink.maintenance.compact(path, full=True) (in a shell: streamsink compact "
                    "PATH --full --yes)",
                    kind="table.unsupported-column",
                )
            self._add_parts(field.type, (*place, field.id), f"{path}{field.name}.", is_strict=is_strict)

    def _add_parts(self, t: DataType, place: _Place, path: str, *, is_strict: bool) -> None:
        if isinstance(t, RowType):
            self.add(t.fields, place, path, is_strict=is_strict)
        elif isinstance(t, ArrayType):
            self._add_parts(t.element, (*place, _ELEMENT), f"{path}{_ELEMENT}.", is_strict=is_strict)
        elif isinstance(t, MapType):
            for part, name in ((t.key, _KEY), (t.value, _VALUE)):
                self._add_parts(part, (*place, name), f"{path}{name}.", is_strict=is_strict)

    def mapped(self, place: _Place) -> list[dict[str, Any]]:
        """The mapping of all fields of a place."""
        return [
            _with_parts({"field-id": number, "names": names}, self._parts(field.type, number, 0, (*place, number)))
            for number, (field, names) in self._fields.get(place, {}).items()
            if names
        ]

    def _parts(self, t: DataType, field_id: int, depth: int, place: _Place) -> list[dict[str, Any]]:
        if isinstance(t, RowType):
            return self.mapped(place)
        inner = depth + 1
        if isinstance(t, ArrayType):
            return [self._part(element_id(field_id, inner), _ELEMENT, t.element, (field_id, inner), place)]
        if isinstance(t, MapType):
            return [
                self._part(key_id(field_id, inner), _KEY, t.key, (field_id, inner), place),
                self._part(value_id(field_id, inner), _VALUE, t.value, (field_id, inner), place),
            ]
        return []

    def _part(self, own: int, name: str, t: DataType, at: tuple[int, int], place: _Place) -> dict[str, Any]:
        """An element, a key or a value. at: the column's id, and how deep in it this is."""
        return _with_parts({"field-id": own, "names": [name]}, self._parts(t, *at, (*place, name)))


def _with_parts(made: dict[str, Any], parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {**made, "fields": parts} if parts else made
