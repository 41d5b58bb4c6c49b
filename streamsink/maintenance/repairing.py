"""The entry of a table in a catalog, by hand. See docs/CATALOGS.md."""

import os
from typing import TYPE_CHECKING, Any

from streamsink.maintenance.opened import Path, on_table
from streamsink.options import SinkOptions, refuse

if TYPE_CHECKING:
    from streamsink.table.table import Table


def repair(
    path: Path,
    *,
    moved_from: str | None = None,
    dry_run: bool = False,
    options: SinkOptions | None = None,
    **settings: Any,
) -> str:
    """Let the catalog of the option ``catalog`` have the table at ``path`` as it is, beside whoever writes.

    moved_from: the location that the catalog has for the table until now: after a move, or where a store has two names.
    The entry gets this place; files are neither moved nor deleted. dry_run: change nothing, and say what would be done.
    Returns 'registered' for a table that the catalog did not have, 'updated' for one that it had at ``moved_from``, or
    with other columns or parameters, and '' where it has the table as it is. Idempotent. Raises Misuse without the
    option ``catalog``, when the catalog has another table under the name, or another one is at ``moved_from``, and for
    what the catalog refuses; Retryable when it does not answer. Then nothing was changed.
    """
    from streamsink.catalogs.properties import CatalogProperties
    from streamsink.catalogs.registration import registration_of, unanswered
    from streamsink.errors import Retryable

    given = SinkOptions.of(os.fspath(path), settings, options)

    def do(table: "Table") -> str:
        properties = CatalogProperties.of(table.root, given.catalog)
        if properties is None:
            refuse(table.root, "catalog", {}, "the properties of a catalog, such as {'metastore': 'hive', 'uri': ...}")
        try:
            registration = registration_of(table.root, properties, lambda kind, fields: None)
            if moved_from:
                _check_was(table, moved_from, given)
            registration.look(moved_from or "")
            registration.check_new(table.known_schema)
            return properties.catalog(table.root).put(
                properties.named(table.root), table.known_schema, dry_run=dry_run, moved_from=moved_from or ""
            )
        except Retryable as failed:
            raise unanswered(failed) from failed

    return on_table(path, "maintenance.repair", given, do)


def _check_was(table: "Table", moved_from: str, given: SinkOptions) -> None:
    """Raises Misuse where another table than this one, or a copy of it, is there; a place out of reach has none."""
    from streamsink.errors import Misuse, StreamsinkError
    from streamsink.storage.stores import store_of
    from streamsink.table.table import open_table

    try:
        store = store_of(moved_from, given.store_options)
        there = open_table(store.open(), store.root, for_writing=False)
    except (StreamsinkError, OSError):
        return
    if there.table_id != table.table_id:
        raise Misuse(
            f"{table.root}: at {moved_from} is another table, with another first schema, and no copy of this one. "
            "Nothing was changed. Name this table otherwise, with database and table in the option 'catalog'",
            kind="catalog.other-table",
        )
