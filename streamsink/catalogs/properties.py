"""The option ``catalog``: which catalog, and what the table is called there."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from streamsink.catalogs.catalog import Catalog, Named, as_location
from streamsink.errors import Misuse
from streamsink.locks.hive_client import DEFAULT_PORT
from streamsink.options import refuse
from streamsink.storage.stores import table_path

HIVE, REST = "hive", "rest"
_OURS = ("database", "table", "create-database", "required")
# By metastore, the properties that there are: those of Paimon's CREATE CATALOG, and ours.
_PROPERTIES = {
    HIVE: ("metastore", "uri", "warehouse", "table.type", "location-in-properties", *_OURS),
    REST: ("metastore", "uri", "warehouse", "token.provider", "token", *_OURS),
}
_BRANCH = "/branch/branch-"
# What a metastore takes for a name by itself, without settings of its own.
_NAME = re.compile(r"[A-Za-z0-9_]+")
_TRUE_OR_FALSE = ("true", "false")


@dataclass(frozen=True)
class CatalogProperties:
    """The properties of the option, checked.

    uri: of the server, or several of them. required: whether a catalog that does not answer ends a start.
    """

    metastore: str
    uri: str
    warehouse: str
    external: bool
    location_in_properties: bool
    database: str
    table: str
    create_database: bool
    required: bool
    token: str = field(default="", repr=False)

    @classmethod
    def of(cls, table: str, given: Mapping[str, str]) -> "CatalogProperties | None":
        """None when no catalog is asked for. Raises Misuse that names the table and the property."""
        if not given:
            return None
        metastore = given.get("metastore", "")
        if metastore not in _PROPERTIES:
            raise Misuse(
                f"{table}: option 'catalog' has metastore={metastore!r}, expected '{HIVE}' or '{REST}'. Nothing was "
                "written. A catalog of the file system needs no entry, so leave the option out. Tables of a JDBC "
                "catalog are not registered here: see docs/CATALOGS.md",
                kind="catalog.kind",
            )
        for key in given:
            if key not in _PROPERTIES[metastore]:
                raise Misuse(
                    f"{table}: the option 'catalog' has no property '{key}' for metastore='{metastore}'; there are "
                    f"{', '.join(_PROPERTIES[metastore])}. Nothing was written",
                    kind="option.unknown",
                )
        if given.get("table.type", "managed").lower() not in ("managed", "external"):
            refuse(table, "catalog", f"table.type={given['table.type']}", "'managed' or 'external' as table.type")
        if given.get("token.provider", "bear") != "bear":
            refuse(table, "catalog", f"token.provider={given['token.provider']}", "'bear' as token.provider")
        made = cls(
            metastore,
            given.get("uri", ""),
            given.get("warehouse", ""),
            metastore == REST or given.get("table.type", "").lower() == "external",
            _is_on(table, given, "location-in-properties", "false"),
            given.get("database", ""),
            given.get("table", ""),
            _is_on(table, given, "create-database", "true"),
            _is_on(table, given, "required", "false"),
            given.get("token", ""),
        )
        _uris(table, made)
        return made

    def catalog(self, table: str) -> Catalog:
        """The catalog, which has not been asked yet. Raises Misuse when its client is not installed."""
        if self.metastore == REST:
            from streamsink.catalogs.rest import RestCatalog

            return RestCatalog(self.uri, self.warehouse, self.token, create_database=self.create_database)
        from streamsink.catalogs.hive import HiveCatalog

        return HiveCatalog(
            _uris(table, self), table, create_database=self.create_database, in_properties=self.location_in_properties
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
            way_on = f"Give the name: catalog={{..., '{key}': ...}}"
            if key == "table" and beside:
                way_on = "Give the table another name, or a path that ends with one, or leave the option 'catalog' out"
            if not _NAME.fullmatch(given):
                raise Misuse(
                    f"{root}: the catalog needs the names of database and table, in letters, digits and '_'. The path "
                    f"should be <warehouse>/<database>.db/<table>, and tells {given!r} for the {key}. Nothing was "
                    f"written. {way_on}",
                    kind="catalog.name",
                )
        if self.metastore == REST:
            return Named(root, database, table, external=True)
        at = self._folder_of(root, database, table)
        return Named(root, database.lower(), table.lower(), as_location(at) if at else "", self.external)

    def _folder_of(self, root: str, database: str, table: str) -> str:
        """Where Hive is to put the database, if it has to make it: '' where nothing says so.

        Raises Misuse when the warehouse says another place than the table's path.
        """
        folder = os.path.dirname(root.rstrip("/"))
        warehouse = table_path(self.warehouse) if self.warehouse else ""
        if warehouse and folder != f"{warehouse}/{database}.db":
            raise Misuse(
                f"{root}: the option 'catalog' has the warehouse {warehouse}, where the table {database}.{table} "
                f"would be at {warehouse}/{database}.db/{table}. Nothing was written. Give the path of the table "
                "that way, or leave 'warehouse' out",
                kind="catalog.warehouse",
            )
        return folder if os.path.basename(folder) == f"{database}.db" else ""


def _is_on(table: str, given: Mapping[str, str], key: str, default: str) -> bool:
    value = given.get(key, default).lower()
    if value not in _TRUE_OR_FALSE:
        refuse(table, "catalog", f"{key}={value}", f"'true' or 'false' as {key}")
    return value == "true"


def _uris(table: str, properties: CatalogProperties) -> tuple[tuple[str, int], ...]:
    """(host, port) of each server, in the order in which they are tried."""
    is_rest = properties.metastore == REST
    schemes = ("http", "https") if is_rest else ("thrift", "hive")
    expected = (
        "'http://host:port' or https as uri" if is_rest else "'thrift://host:port' as uri, or several with commas"
    )
    found = []
    for each in filter(None, map(str.strip, [properties.uri] if is_rest else properties.uri.split(","))):
        try:
            parts = urlsplit(each)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if parts.scheme not in schemes or not host or parts.username or parts.query:
            refuse(table, "catalog", "a uri of another form", expected)
        found.append((host, port or DEFAULT_PORT))
    if not found:
        refuse(table, "catalog", "without a uri", expected)
    return tuple(found)
