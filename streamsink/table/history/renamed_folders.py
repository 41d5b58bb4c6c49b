"""Data files that are there in folders whose names an option of the table has changed since they were written.

Paimon lets anybody set ``partition.default-name`` and ``partition.legacy-name``, also where partitions have files. Its
readers look for all of them under the new names then.
"""

from collections.abc import Iterable, Iterator, Sequence

from streamsink.errors import Corrupt
from streamsink.format.manifest import ManifestEntry
from streamsink.format.schema import TableSchema
from streamsink.table.table import Table

# The options, and the values that they have where they are not set.
_OPTIONS = (("partition.default-name", "__DEFAULT_PARTITION__"), ("partition.legacy-name", "true"))


def folder_names(schema: TableSchema) -> tuple[str, ...]:
    """What decides, besides its values, which folder a partition has."""
    return tuple(schema.options.get(option, plain) for option, plain in _OPTIONS) if schema.partition_keys else ()


def check_missing(table: Table, missing: Sequence[ManifestEntry]) -> None:
    """Raises Corrupt when one of these files is in the folder that an earlier schema gives it.

    missing: entries of files that are not where the newest schema has them.
    """
    for schema in _earlier(table):
        for entry in missing:
            path = _path(table, schema, entry)
            if table.file_io.exists(path):
                raise _renamed(table, schema, path, entry)


def check_staged(table: Table, entries: Iterable[ManifestEntry]) -> None:
    """Raises Corrupt when readers would look for one of these files, which a pending record names, in another folder
    than in the one that it has, or is to get.
    """
    now = folder_names(table.known_schema)
    for entry in entries:
        schema = _schema(table, entry.file.schema_id) if now else None
        if schema is not None and folder_names(schema) != now:
            path = _path(table, schema, entry)
            if path != _path(table, table.known_schema, entry):
                raise _renamed(table, schema, path, entry)


def _earlier(table: Table) -> Iterator[TableSchema]:
    """The last schema of each way of naming folders that is another one than the present one."""
    seen = {folder_names(table.known_schema)}
    for number in range(table.known_schema.id - 1, -1, -1):
        schema = _schema(table, number)
        if schema is not None and folder_names(schema) not in seen:
            seen.add(folder_names(schema))
            yield schema


def _schema(table: Table, number: int) -> TableSchema | None:
    """None where its file is gone, or damaged: those say so that need it."""
    try:
        return table.schemas.load(number)
    except Corrupt:
        return None


def _path(table: Table, schema: TableSchema, entry: ManifestEntry) -> str:
    from streamsink.table.read.scan import data_file_path  # with pyarrow, which a look at a journal does without

    return data_file_path(table, schema, entry)


def _renamed(table: Table, schema: TableSchema, path: str, entry: ManifestEntry) -> Corrupt:
    pairs = zip(_OPTIONS, folder_names(schema), folder_names(table.known_schema))
    option, before, now = next((option, before, now) for (option, _), before, now in pairs if before != now)
    return Corrupt(
        f"{table.root}: the table's option {option} was {before!r} when the data file {path} was written, and is "
        f"{now!r} now. Readers look for it at {_path(table, table.known_schema, entry)}, and cannot read the table. "
        f"Nothing was written, and no row is lost. With ALTER TABLE, set the option back to {before!r}, and start "
        "again. If files were written under the new names meanwhile, move them into the folders of the old ones then",
        kind="partition.renamed",
    )
