"""Creating a table explicitly, from an Arrow schema, DDL text, or fields."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from streamsink.errors import Misuse
from streamsink.format.arrow_types import from_arrow_schema
from streamsink.format.schema import TableSchema
from streamsink.format.types import DataField, parse_ddl
from streamsink.options import names_of
from streamsink.storage.store_failures import told_of
from streamsink.storage.stores import Store
from streamsink.table.table import create_table, is_table, new_schema


def create(
    store: Store,
    schema: pa.Schema | str | Iterable[DataField],
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    *,
    checking: Callable[[TableSchema], None] = lambda schema: None,
) -> str:
    """Create the table and return its absolute path.

    schema: see ``fields_of``. partition_by: names of its partition columns. options: the table's options. checking:
    called with the schema before anything is written; it may raise.
    Raises Misuse, naming the column where one is at fault, also when the path holds a table already.
    """
    root, file_io = store.root, store.open()
    with told_of(root, "create_table"):
        there_is_one = is_table(file_io, root)
    if there_is_one:
        raise Misuse(f"{root}: there is a table already; open it, or choose another path", kind="table.exists")
    keys = names_of(root, "partition_by", partition_by)
    try:
        wanted = new_schema(fields_of(schema), keys, _options(options), comment)
    except Misuse as refused:
        raise Misuse(f"{root}: {refused}. Nothing was written", kind=refused.kind) from refused
    checking(wanted)
    with told_of(root, "create_table"):
        create_table(file_io, root, wanted)
    return root


def fields_of(schema: pa.Schema | str | Iterable[DataField]) -> Sequence[DataField]:
    """The fields of a schema.

    schema: a pyarrow.Schema, DDL text such as ``id BIGINT NOT NULL, name STRING``, or fields, which stay as they are.
    Raises Misuse for anything else.
    """
    if isinstance(schema, pa.Schema):
        return from_arrow_schema(schema)
    if isinstance(schema, str):
        return parse_ddl(schema)
    fields = list(schema) if isinstance(schema, Iterable) else [schema]
    if not all(isinstance(field, DataField) for field in fields):
        raise Misuse(
            f"the schema is {schema!r}, expected a Spark StructType, a pyarrow.Schema, or DDL text", kind="option.value"
        )
    return fields


def _options(given: Mapping[str, str] | None) -> Mapping[str, str]:
    if not isinstance(given or {}, Mapping) or not all(
        isinstance(word, str) for pair in (given or {}).items() for word in pair
    ):
        raise Misuse(f"the options are {given!r}, expected a dictionary of strings", kind="option.value")
    return given or {}
