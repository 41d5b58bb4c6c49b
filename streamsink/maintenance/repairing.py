"""The entry of a table in a catalog, by hand. See docs/CATALOGS.md."""

import os
from typing import TYPE_CHECKING, Any

from streamsink.maintenance.opened import Path, on_table
from streamsink.options import SinkOptions, refuse

if TYPE_CHECKING:
    from streamsink.table.table import Table


def repair(path: Path, *, dry_run: bool = False, options: SinkOptions | None = None, **settings: Any) -> str:
    """Let the catalog of the option ``catalog`` have the table at ``path`` as it is, beside whoever writes.

    dry_run: change nothing, and say what would be done. Returns 'registered' for a table that the catalog did not have,
    'updated' for one that it had with other columns or parameters, and '' where it has the table as it is. Idempotent.
    Raises Misuse without the option ``catalog``, when the catalog has another table under the name, and for what it
    refuses; Retryable when it does not answer. Then nothing was changed.
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
            registration.look()
            registration.check_new(table.known_schema)
            return properties.catalog(table.root).put(properties.named(table.root), table.known_schema, dry_run=dry_run)
        except Retryable as failed:
            raise unanswered(failed) from failed

    return on_table(path, "maintenance.repair", given, do)
