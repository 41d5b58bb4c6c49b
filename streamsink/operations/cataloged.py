"""Creating a table that a catalog knows by its name, without a query."""

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from streamsink.catalogs.properties import CatalogProperties
from streamsink.catalogs.registration import registration_of, unanswered
from streamsink.errors import Misuse, Retryable
from streamsink.events import Event, to_log
from streamsink.format.types import DataField
from streamsink.options.option import check_texts
from streamsink.shell import command
from streamsink.storage.stores import Store
from streamsink.table.creation import create
from streamsink.table.table import open_table


def create_in_catalog(
    store: Store,
    schema: pa.Schema | str | Iterable[DataField],
    partition_by: Sequence[str],
    options: Mapping[str, str],
    *,
    comment: str | None,
    catalog: Mapping[str, str] | None,
) -> str:
    """Create the table, register it where a catalog is given, and return its absolute path.

    Raises as ``create``, and before anything is written Misuse when the catalog has another table under the name, and
    Retryable when it does not answer. What fails behind the creation is logged: a query with the option registers it.
    """
    check_texts(store.root, "catalog", catalog or {}, of="catalog")
    properties = CatalogProperties.of(store.root, catalog or {})
    if properties is None:
        return create(store, schema, partition_by, options, comment)
    registration = registration_of(store.root, properties, _log)
    try:
        is_known = registration.look()
    except Retryable as failed:
        raise unanswered(failed) from failed
    try:
        root = create(store, schema, partition_by, options, comment, checking=registration.check_new)
    except Misuse as there:
        if is_known or there.kind != "table.exists":
            raise
        typed = command("register", store.root, "--catalog", "NAME=VALUE", "--yes")
        raise Misuse(  # whoever made it may have died before it was registered
            f"{there}. The catalog has no entry of it: streamsink.maintenance.repair({store.root!r}, catalog=...) "
            f"{typed} registers it",
            kind=there.kind,
        ) from there
    registration.register(open_table(store.open(), root, for_writing=False).known_schema)
    return root


def _log(kind: type[Event], fields: dict[str, object]) -> None:
    to_log(kind(str(fields["path"]), "", **fields))
