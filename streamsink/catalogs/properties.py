"""The option ``catalog``: which catalog, and what the table is called there."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from streamsink.catalogs.catalog import Catalog, Named, as_location
from streamsink.errors import Misuse
from streamsink.locks.hive_client import DEFAULT_PORT
from streamsink.options import refuse
from streamsink.storage.stores import table_path

HIVE = "hive"
# As Paimon's CREATE CATALOG has them.
_OF_PAIMON = ("metastore", "uri", "warehouse", "table.type", "location-in-properties")
_OURS = ("database", "table", "create-database", "required")
_BRANCH = "/branch/branch-"
# What a metastore takes for a name by itself, without settings of its own.
_NAME = re.compile(r"[A-Za-z0-9_]+")
_TRUE_OR_FALSE = ("true", "false")


@dataclass(frozen=True)
class CatalogProperties:
    """The properties of the option, checked. required: whether a catalog that does not answer ends a start."""

    uris: tuple[tuple[str, int], ...]
    warehouse: str
    external: bool
    location_in_properties: bool
    database: str
    table: str
    create_database: bool
    required: bool

    @classmethod
    def of(cls, table: str, given: Mapping[str, str]) -> "CatalogProperties | None":
        """None when no catalog is asked for. Raises Misuse that names the table and the property."""
        if not given:
            return None
        for key in given:
            if key not in _OF_PAIMON + _OURS:
                raise Misuse(
                    f"{table}: the option 'catalog' has no property '{key}'; there are "
                    f"{', '.join(_OF_PAIMON + _OURS)}. Nothing was written",
                    kind="option.unknown",
                )
        metastore = given.get("metastore", "")
        if metastore != HIVE:
            raise Misuse(
                f"{table}: option 'catalog' has metastore={metastore!r}, expected '{HIVE}'. Nothing was written. A "
                "catalog of the file system needs no entry, so leave the option out. Tables of other catalogs (rest, "
                "jdbc) are not registered here: see docs/CATALOGS.md",
                kind="catalog.kind",
            )
        kinds = given.get("table.type", "managed").lower()
        if kinds not in ("managed", "external"):
            refuse(table, "catalog", f"table.type={kinds}", "'managed' or 'external' as table.type")
        return cls(
            _uris(table, given.get("uri", "")),
            table_path(given["warehouse"]) if given.get("warehouse") else "",
            kinds == "external",
            _is_on(table, given, "location-in-properties", "false"),
            given.get("database", ""),
            given.get("table", ""),
            _is_on(table, given, "create-database", "true"),
            _is_on(table, given, "required", "false"),
        )

    def catalog(self, table: str) -> Catalog:
        """The catalog, which has not been asked yet. Raises Misuse when its client is not installed."""
        from streamsink.catalogs.hive import HiveCatalog

        return HiveCatalog(
            self.uris, table, create_database=self.create_database, in_properties=self.location_in_properties
        )

    def named(self, root: str, *, beside: bool = False) -> Named:
        """What the table at this path is called. beside: it is one of several, so the property ``table`` is not its
        name.

        Raises Misuse for a branch, for a path that does not tell the name, and for a name that a metastore refuses.
        """
        if _BRANCH in root:
            raise Misuse(
                f"{root}: the option 'catalog' is given for a branch, which has no entry of its own: readers find it "
                "under the name of its table. Nothing was written. Leave the option out",
                kind="catalog.branch",
            )
        folder, name = os.path.split(root.rstrip("/"))
        told = os.path.basename(folder)
        database = self.database or (told.removesuffix(".db") if told.endswith(".db") else "")
        table = name if beside else self.table or name
        for given, key in ((database, "database"), (table, "table")):
            if not _NAME.fullmatch(given):
                raise Misuse(
                    f"{root}: the catalog needs the names of database and table, in letters, digits and '_'. The path "
                    f"should be <warehouse>/<database>.db/<table>, and tells {given!r} for the {key}. Nothing was "
                    f"written. Give the name: catalog={{..., '{key}': ...}}",
                    kind="catalog.name",
                )
        at = folder if told == f"{database}.db" else f"{self.warehouse}/{database}.db" if self.warehouse else ""
        if self.warehouse and folder != f"{self.warehouse}/{database}.db":
            raise Misuse(
                f"{root}: the option 'catalog' has the warehouse {self.warehouse}, where the table {database}.{table} "
                f"would be at {self.warehouse}/{database}.db/{table}. Nothing was written. Give the path of the table "
                "that way, or leave 'warehouse' out",
                kind="catalog.warehouse",
            )
        return Named(root, database.lower(), table.lower(), as_location(at) if at else "", self.external)


def _is_on(table: str, given: Mapping[str, str], key: str, default: str) -> bool:
    value = given.get(key, default).lower()
    if value not in _TRUE_OR_FALSE:
        refuse(table, "catalog", f"{key}={value}", f"'true' or 'false' as {key}")
    return value == "true"


def _uris(table: str, given: str) -> tuple[tuple[str, int], ...]:
    """(host, port) of each server, in the order in which they are tried."""
    found = []
    for each in filter(None, map(str.strip, given.split(","))):
        try:
            parts = urlsplit(each)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if parts.scheme not in ("thrift", "hive") or not host or parts.username:
            refuse(table, "catalog", "a uri of another form", "'thrift://host:port' as uri, or several with commas")
        found.append((host, port or DEFAULT_PORT))
    if not found:
        refuse(table, "catalog", "without a uri", "the metastore's 'thrift://host:port' as uri")
    return tuple(found)
