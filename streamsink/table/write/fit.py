"""Decides, before anything is written, whether a writer's schema fits the table. Messages name the column."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from streamsink.errors import Misuse
from streamsink.format.evolution import widens
from streamsink.format.schema import TableSchema
from streamsink.format.type_model import MAX_LENGTH
from streamsink.format.types import ArrayType, AtomicType, DataField, DataType, MapType, RowType
from streamsink.options import SinkOptions

# A source with only one type for text, bytes or timestamps says nothing about length or precision, so the values
# decide.
_SAME_KIND = ({"CHAR", "VARCHAR"}, {"BINARY", "VARBINARY"}, {"TIMESTAMP"}, {"TIMESTAMP_LTZ"}, {"TIME"})


# The advice for a query with one table. With several tables, one may also leave a column out.
_ONCE_IN_THE_QUERY = "the query; of a join, select the columns of each side by name"


def check_once(names: Sequence[str], where: str, way: str = _ONCE_IN_THE_QUERY) -> None:
    """Raises Misuse when a name occurs twice among the columns that are to be written.

    where: the path, and perhaps the table below it, for the message. way: where the user can drop or rename a column.
    """
    twice = sorted(name for name in set(names) if list(names).count(name) > 1)
    if twice:
        raise Misuse(
            f"{where}: column '{twice[0]}' is there twice in the data. Nothing was written. Drop or rename one of them "
            f"in {way}",
            kind="schema.bad-name",
        )


class Fitted(Protocol):
    """A table, as the check sees it: of this library, or another one that has its schema in the same words."""

    @property
    def root(self) -> str: ...

    def latest_schema(self) -> TableSchema: ...

    def evolve(
        self, wanted: Sequence[DataField], *, add_columns: bool, widen_types: bool, newest: TableSchema | None = None
    ) -> TableSchema: ...


def fit(
    table: Fitted, given: Sequence[DataField], options: SinkOptions, newest: TableSchema | None = None
) -> TableSchema:
    """The table's schema, evolved for the columns ``given`` if an option allows it.

    newest: the newest schema, where the store has just said which it is. Raises Misuse, naming the column, when one is
    missing, extra, of another type, or nullable but not so in the table.
    """
    schema = newest or table.latest_schema()
    by_name = {field.name: field for field in given}
    for field in schema.fields:
        found = by_name.get(field.name)
        if found is None:
            _check_missing(table, field, options)
        elif found.type.nullable and not field.type.nullable and not options.widen_types:
            raise Misuse(
                f"{table.root}: column '{field.name}' is NOT NULL in the table, and nullable in the data. Filter nulls "
                "and declare it so (for instance with a schema of nullable=False), or set widen_types=True to drop "
                "NOT NULL in the table",
                kind="schema.nullability",
            )
    known = {field.name: field for field in schema.fields}
    wanted = [_as_table_says(field, known.get(field.name)) for field in given]
    try:
        return table.evolve(wanted, add_columns=options.add_columns, widen_types=options.widen_types, newest=newest)
    except Misuse as refused:
        raise Misuse(f"{table.root}: {refused}. Nothing was written", kind=refused.kind) from refused


def _check_missing(table: Fitted, field: DataField, options: SinkOptions) -> None:
    if options.add_columns and field.type.nullable:
        return
    raise Misuse(
        f"{table.root}: column '{field.name}' of the table is missing in the data. Nothing was written. Add it to the "
        "query; a nullable column may be left out with add_columns=True (its values are then null)",
        kind="schema.missing-column",
    )


def _as_table_says(given: DataField, known: DataField | None) -> DataField:
    return given if known is None else replace(given, type=_align(given.type, known.type))


def _align(given: DataType, known: DataType) -> DataType:
    if isinstance(given, RowType) and isinstance(known, RowType):
        by_name = {f.name: f for f in known.fields}
        return replace(given, fields=tuple(_as_table_says(f, by_name.get(f.name)) for f in given.fields))
    if isinstance(given, ArrayType) and isinstance(known, ArrayType):
        return replace(given, element=_align(given.element, known.element))
    if isinstance(given, MapType) and isinstance(known, MapType):
        key = _align(given.key, known.key).as_nullable(known.key.nullable)  # Arrow's map keys are never null
        return replace(given, key=key, value=_align(given.value, known.value))
    if not isinstance(given, AtomicType) or not isinstance(known, AtomicType):
        return given
    same = any(given.root in kinds and known.root in kinds for kinds in _SAME_KIND)
    return known.as_nullable(given.nullable) if same and not widens(known, given) or _erased(given, known) else given


def _erased(given: AtomicType, known: AtomicType) -> bool:
    """Whether the given type is what its source calls every type of that kind: STRING, BYTES or TIMESTAMP(6)."""
    unlimited = given.root in ("VARCHAR", "VARBINARY") and given.length == MAX_LENGTH
    micros = given.root in ("TIMESTAMP", "TIMESTAMP_LTZ", "TIME") and given.precision == 6
    if unlimited:
        return known.root in (("CHAR", "VARCHAR") if given.root == "VARCHAR" else ("BINARY", "VARBINARY"))
    return micros and known.root == given.root
