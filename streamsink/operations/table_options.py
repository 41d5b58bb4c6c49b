"""``streamsink set-options``: look at the options of a Paimon table, and change those that care and writing read.

A change is a new schema of the table, as Paimon's ``ALTER TABLE ... SET`` makes one. Options that say what the files of
the table mean (keys, buckets, formats of files) are not changed here.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from streamsink.clock import Clock
from streamsink.errors import Misuse
from streamsink.format.iceberg_options import check_iceberg_types, check_place
from streamsink.format.supported import check_writable
from streamsink.table.table import Table

# Beginnings of the names of options that may change at any time.
CHANGEABLE = (
    "snapshot.",
    "tag.",
    "partition.expiration",
    "partition.timestamp",
    "partition.end-input",
    "consumer.",
    "changelog.num-retained",
    "changelog.time-retained",
    "compaction.",
    "manifest.",
    "metadata.iceberg.",
    "target-file-size",
    "commit.",
    "write-buffer",
    "metadata.stats-mode",
    "fields.",
    "streamsink.",
)


@dataclass(frozen=True)
class Change:
    """The options of a table. changed: of each that changes, the value before and after; None where it has none.

    schema_id: of the schema that has them.
    """

    table: str
    options: Mapping[str, str]
    changed: Mapping[str, tuple[str | None, str | None]]
    schema_id: int


def change(table: Table, given: Mapping[str, str], removed: Collection[str] = (), *, dry_run: bool = False) -> Change:
    """Set these options, and remove those. Nothing is written where nothing changes. Idempotent.

    Raises Misuse for an option that must not change, or a value that this library does not write; Conflict where
    another writer changed the schema at the same time.
    """
    schema = table.latest_schema()
    for name in (*given, *removed):
        if not name.startswith(CHANGEABLE):
            raise Misuse(
                f"{table.root}: the option '{name}' says what the table's files are or how they are read, or is not "
                f"known, so it does not change; expected one that begins with {', '.join(CHANGEABLE)}. Nothing was "
                "written. If Paimon allows it, ALTER TABLE in Spark or Flink sets it",
                kind="set-options.fixed",
            )
    options = {name: value for name, value in schema.options.items() if name not in removed} | dict(given)
    changed = {
        name: (schema.options.get(name), options.get(name))
        for name in (*given, *removed)
        if schema.options.get(name) != options.get(name)
    }
    if not changed:
        return Change(table.root, schema.options, {}, schema.id)
    made = replace(schema, id=schema.id + 1, options=options, time_millis=Clock().now_ms())
    check_writable(made)
    check_iceberg_types(made)
    check_place(table.layout.main, options)
    if not dry_run:
        table.schemas.add(made)
    return Change(table.root, options, changed, made.id)
