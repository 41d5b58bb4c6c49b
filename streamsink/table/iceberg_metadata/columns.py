"""What Iceberg metadata says of columns: schemas, and by which names files without ids have them. Driver only.

What holds of a schema may not hold of files that were written with an earlier one. So where a column has changed in a
way that readers of Iceberg do not follow, it is looked whether the snapshot has such files at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsink import shell
from streamsink.errors import Misuse
from streamsink.format.iceberg_names import name_mapping
from streamsink.format.iceberg_options import makes_iceberg
from streamsink.format.iceberg_types import changed_type, iceberg_schema, is_described
from streamsink.format.schema import TableSchema
from streamsink.format.snapshot import Snapshot
from streamsink.table.table import Table


@dataclass(frozen=True)
class Columns:
    """latest: the newest schema. schemas: those that can be described, as JSON. highest_id: of all columns.

    mapping: of names. is_of_all: whether the mapping holds for earlier snapshots too.
    """

    latest: TableSchema
    schemas: tuple[Mapping[str, Any], ...]
    highest_id: int
    mapping: list[dict[str, Any]]
    is_of_all: bool


def columns_of(table: Table, newest: Snapshot) -> Columns:
    """Of the newest schema and this snapshot. Raises Misuse ``table.unsupported-column`` where readers of Iceberg would
    see other values, or miss rows.
    """
    latest = table.latest_schema()
    schemas = [table.schemas.load(number) for number in range(latest.id + 1)]
    _check_types(table, newest, schemas)
    mapping, is_of_all = _mapping(table, newest, schemas)
    described = tuple(iceberg_schema(schema) for schema in schemas if schema.id == latest.id or is_described(schema))
    return Columns(latest, described, max(f.id for schema in schemas for f in schema.fields), mapping, is_of_all)


def _schemas_of_files(table: Table, newest: Snapshot) -> set[int]:
    """Ids of the schemas with which the snapshot's files were written. This reads its manifests."""
    return {entry.file.schema_id for entry in table.manifests.entries_of(newest)}


def _check_types(table: Table, newest: Snapshot, schemas: Sequence[TableSchema]) -> None:
    changed = {each.id: said for each in schemas if (said := changed_type(each, schemas[-1]))}
    for number in sorted(_schemas_of_files(table, newest) & changed.keys() if changed else ()):
        raise Misuse(
            f"{table.root}: {changed[number]}, and readers of Iceberg do not read the one as the other: they would "
            "miss rows. Rewrite the files from before, by streamsink.maintenance.compact(path, full=True) "
            f"{shell.in_a_shell('compact', table.root, '--full', '--yes')}",
            kind="table.unsupported-column",
        )


def _mapping(table: Table, newest: Snapshot, schemas: Sequence[TableSchema]) -> tuple[list[dict[str, Any]], bool]:
    without = [each for each in reversed(schemas) if not makes_iceberg(each.options)]
    others = [each for each in reversed(schemas) if makes_iceberg(each.options)]
    try:
        return name_mapping(schemas[-1], without, others), True
    except Misuse:  # two columns had one name: are there files of both?
        found = _schemas_of_files(table, newest)
        return name_mapping(schemas[-1], [each for each in without if each.id in found], others), False
