"""How a table of a catalog in a database is looked at and exchanged without reading again what is known. Driver only.

pyiceberg's own way reads the metadata of a table at each look and again in each commit, and copies it with all its
snapshots: that costs more than all else in a small batch. A metadata file never changes, so where the database still
names the one that was looked at, nothing is read. A commit is one statement, which names the metadata that it builds
on: whatever anybody has changed since refuses it. Other catalogs (REST, Hive, ...) go pyiceberg's way.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from streamsink.events import log
from streamsink.storage.file_io import FileIO, local_file_io


def is_possible(catalog: Any) -> bool:
    """Whether the catalog is pyiceberg's own one in a database that says how many rows a statement has changed."""
    module = sys.modules.get("pyiceberg.catalog.sql")  # loaded where such a catalog is
    if module is None or type(catalog) is not module.SqlCatalog:
        return False
    return bool(catalog.engine.dialect.supports_sane_rowcount)


def is_lasting(catalog: Any) -> bool:
    """Whether each connection to the catalog finds the same: it is a database that is not in this process's memory."""
    if not is_possible(catalog):
        return False
    url = catalog.engine.url
    in_memory = not url.database or ":memory:" in url.database or "memory" in str(url.query.get("mode", ""))
    return bool(url.get_backend_name() != "sqlite" or not in_memory)


def newest(catalog: Any, identifier: Sequence[str]) -> str | None:
    """Which metadata file is the table's now; None where there is no table. It costs one statement."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import select

    wanted = select(IcebergTables.metadata_location).where(*_row(catalog, identifier))
    only_tables = catalog._iceberg_type_filter()
    with catalog.engine.connect() as connection:
        found = connection.scalar(wanted if only_tables is None else wanted.where(only_tables))
    return None if found is None else str(found)


def exchange(table: Any, updates: Sequence[Any], requirements: Sequence[Any]) -> Any:
    """Change the table from what was looked at to what the updates make of it. Returns it as it is then.

    It costs one file and one statement. Raises CommitFailedException when it was changed meanwhile, in whatever way;
    nothing is left then. After another error of the database nobody knows the outcome.
    """
    from pyiceberg.catalog.sql import IcebergTables
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table import Table
    from pyiceberg.table.locations import load_location_provider
    from sqlalchemy import update

    catalog, before = table.catalog, table.metadata_location
    after = _updated(table, updates, requirements)
    provider = load_location_provider(after.location, after.properties)
    location = provider.new_table_metadata_file_location(catalog._parse_metadata_version(before) + 1)
    catalog._write_metadata(after, table.io, location)
    flush(table.io)
    change = update(IcebergTables).where(*_row(catalog, table.name()), IcebergTables.metadata_location == before)
    with catalog.engine.begin() as connection:
        values = {"metadata_location": location, "previous_metadata_location": before}
        changed = connection.execute(change.values(**values)).rowcount
    if changed < 1:
        _tidy_up("the metadata file of a refused commit", lambda: table.io.delete(location))
        raise CommitFailedException(f"the table was changed meanwhile: its metadata is not {before} any more")
    _tidy_up("old metadata behind a commit", lambda: catalog._delete_old_metadata(table.io, table.metadata, after))
    return Table(table.name(), after, location, table.io, catalog, table.config)


def _updated(table: Any, updates: Sequence[Any], requirements: Sequence[Any]) -> Any:
    """The metadata as pyiceberg makes it, without a copy of all that stays as it is."""
    from pyiceberg.table.update import _apply_table_update, _TableMetadataUpdateContext, _update_table_metadata_log

    for requirement in requirements:
        requirement.validate(table.metadata)
    context, after = _TableMetadataUpdateContext(), table.metadata
    for each in updates:
        after = _apply_table_update(each, after, context)
    return _update_table_metadata_log(after, table.metadata_location, table.metadata.last_updated_ms)


def _row(catalog: Any, identifier: Sequence[str]) -> tuple[Any, ...]:
    """Conditions under which a row of the database is that of the table."""
    from pyiceberg.catalog.sql import IcebergTables

    namespace = catalog.namespace_to_string(catalog.namespace_from(tuple(identifier)))
    return (
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == namespace,
        IcebergTables.table_name == catalog.table_name_from(tuple(identifier)),
    )


def _tidy_up(what: str, delete: Callable[[], None]) -> None:
    """Delete what nobody needs any more. The outcome of the commit is known, and an error here must not hide it."""
    try:
        delete()
    except Exception as failed:  # of whatever library the table's files are deleted by
        log.warning("%s could not be deleted, and stays (%s: %s)", what, type(failed).__name__, failed)


@functools.cache
def disk() -> FileIO:
    """Local disks, one object for all: it remembers which folders above are durable."""
    return local_file_io()


@contextmanager
def one_flush(io: Any) -> Iterator[None]:
    """Within it the files that ``io`` writes to a local disk wait for ``flush``: a commit waits for the disk once."""
    if not hasattr(io, "waiting"):
        yield
        return
    with disk().flush_group() as io.waiting:
        try:
            yield
        finally:
            io.waiting = None


def flush(io: Any) -> None:
    """Make durable what waits, before a catalog is told of it. Raises OSError; then nothing may be told."""
    waiting = getattr(io, "waiting", None)
    if waiting is not None:
        waiting.flush()
