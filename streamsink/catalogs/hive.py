"""A Hive Metastore as a catalog of Paimon tables, which writes there what Paimon's own HiveCatalog does."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from streamsink.catalogs import hive_table
from streamsink.catalogs.catalog import REGISTERED, UNCHANGED, UPDATED, Catalog, Entry, Named, is_one_place, other_than
from streamsink.clock import Clock
from streamsink.errors import Misuse, Retryable
from streamsink.format.schema import TableSchema
from streamsink.locks.hive_client import HiveClient, user

_RETENTION = 2**31 - 1  # what Java writes there
# What a view is to a metastore.
_VIEWS = ("VIRTUAL_VIEW", "MATERIALIZED_VIEW")
_ATTEMPTS = 3
_Answer = TypeVar("_Answer")
# Calls of one server: each takes what to do with the generated client.
Ask = Callable[[Callable[[Any], Any]], Any]


class HiveCatalog(Catalog):
    """The databases and tables of a metastore."""

    def __init__(
        self, uris: Sequence[tuple[str, int]], table: str, *, create_database: bool = True, in_properties: bool = False
    ):
        """uris: (host, port) of its servers, of which any that answers will do. table: for messages.

        in_properties: write the location into the table's parameters, where Hive itself never looks for it.
        """
        try:
            self._clients = [HiveClient(host, port) for host, port in uris]
        except ImportError as missing:
            raise Misuse(
                f"{table}: a catalog in a Hive Metastore needs the package 'pymetastore', which is not installed. "
                "Nothing was written. Install it: pip install 'streamsink[hive]'",
                kind="catalog.driver",
            ) from missing
        self._types = self._clients[0].types
        self._create_database, self._in_properties = create_database, in_properties
        self.where = "hive " + ",".join(f"thrift://{client.url}" for client in self._clients)

    # -- Catalog ---------------------------------------------------------------------------------------------------

    def entry(self, named: Named) -> Entry | None:
        found = self._asking(named, lambda ask: self._table(ask, named))
        return None if found is None else self._entry(found)

    def put(
        self, named: Named, schema: TableSchema, *, dry_run: bool = False, moved_from: str = "", may_create: bool = True
    ) -> str:
        def do(ask: Ask) -> str:
            return self._put(ask, named, schema, dry_run=dry_run, moved_from=moved_from, may_create=may_create)

        return self._asking(named, do)

    def check_new(self, named: Named, schema: TableSchema) -> None:
        hive_table.check_columns(named.root, schema)
        hive_table.columns_of(schema)
        if not self._create_database:
            self._asking(named, lambda ask: self._have_database(ask, named))

    # -- parts -----------------------------------------------------------------------------------------------------

    def _put(
        self, ask: Ask, named: Named, schema: TableSchema, *, dry_run: bool, moved_from: str, may_create: bool
    ) -> str:
        for _ in range(_ATTEMPTS):
            found = self._table(ask, named)
            if found is not None:
                return self._update(ask, found, named, schema, dry_run=dry_run, moved_from=moved_from)
            if not may_create:
                return UNCHANGED
            if dry_run:
                return REGISTERED
            with suppress(self._types.AlreadyExistsException):  # another program was first: what has it made?
                self._have_database(ask, named)
                ask(lambda client: client.create_table(self._new_table(named, schema)))
                return REGISTERED
        raise Retryable(
            f"{named.root}: {self.where} says that {named} is there, and that it is not", kind="catalog.unavailable"
        )

    def _update(
        self, ask: Ask, found: Any, named: Named, schema: TableSchema, *, dry_run: bool, moved_from: str
    ) -> str:
        entry = self._entry(found)
        other = other_than(named, entry, moved_from)
        if other:
            raise Misuse(f"{named.root}: {self.where} has {other} under the name {named}", kind="catalog.other-table")
        columns = hive_table.columns_of(schema)
        wanted = hive_table.parameters_of(named, schema, in_properties=self._in_properties)
        # Whether a drop deletes the files stays as it is there.
        wanted = {name: value for name, value in wanted.items() if name != "EXTERNAL"}
        parameters: Mapping[str, str] = found.parameters or {}
        is_here = is_one_place(entry.location, named.location)
        if not is_here and hive_table.LOCATION_PARAMETER in parameters:
            wanted[hive_table.LOCATION_PARAMETER] = named.location  # it counts before the other place
        there = hive_table.as_stored((each.name, each.type, each.comment) for each in found.sd.cols or ())
        if is_here and there == hive_table.as_stored(columns) and wanted.items() <= parameters.items():
            return UNCHANGED
        if dry_run:
            return UPDATED
        found.parameters = {**parameters, **wanted}
        self._describe(found.sd, named, columns)
        keeps = str(parameters.get("DO_NOT_UPDATE_STATS", "")).lower() == "true"
        context = self._types.EnvironmentContext(
            properties={"CASCADE": "true", "DO_NOT_UPDATE_STATS": "true" if keeps else "false"}
        )
        ask(lambda client: client.alter_table_with_environment_context(named.database, named.table, found, context))
        return UPDATED

    def _new_table(self, named: Named, schema: TableSchema) -> Any:
        now_s = int(Clock().now_ms() // 1000)
        sd = self._types.StorageDescriptor(
            serdeInfo=self._types.SerDeInfo(parameters={}), compressed=False, numBuckets=0
        )
        self._describe(sd, named, hive_table.columns_of(schema))
        return self._types.Table(
            tableName=named.table,
            dbName=named.database,
            owner=user(),
            createTime=now_s,
            lastAccessTime=now_s,
            retention=_RETENTION,
            sd=sd,
            partitionKeys=[],
            parameters=dict(hive_table.parameters_of(named, schema, in_properties=self._in_properties)),
            tableType=hive_table.EXTERNAL if named.external else hive_table.MANAGED,
        )

    def _describe(self, sd: Any, named: Named, columns: Sequence[hive_table.Column]) -> None:
        sd.cols = [self._types.FieldSchema(name=name, type=kind, comment=said) for name, kind, said in columns]
        sd.inputFormat, sd.outputFormat = hive_table.INPUT_FORMAT, hive_table.OUTPUT_FORMAT
        sd.serdeInfo = sd.serdeInfo or self._types.SerDeInfo()
        sd.serdeInfo.serializationLib, sd.serdeInfo.parameters = hive_table.SERDE, {}
        if not self._in_properties:
            sd.location = named.location

    def _have_database(self, ask: Ask, named: Named) -> None:
        try:
            ask(lambda client: client.get_database(named.database))
            return
        except self._types.NoSuchObjectException:
            pass
        if not self._create_database:
            raise Misuse(
                f"{named.root}: {self.where} has no database '{named.database}', and the option 'catalog' says "
                "create-database=false. Nothing was written. Create the database, or leave that property out",
                kind="catalog.no-database",
            )
        at = named.database_location
        made = self._types.Database(name=named.database, parameters={})
        if at and self._in_properties:
            made.parameters = {hive_table.LOCATION_PARAMETER: at}
        elif at:
            made.locationUri = at
        with suppress(self._types.AlreadyExistsException):
            ask(lambda client: client.create_database(made))

    def _table(self, ask: Ask, named: Named) -> Any:
        request = self._types.GetTableRequest(dbName=named.database, tblName=named.table)
        try:
            return ask(lambda client: client.get_table_req(request)).table
        except self._types.NoSuchObjectException:
            return None

    def _entry(self, found: Any) -> Entry:
        parameters, sd = found.parameters or {}, found.sd
        location = parameters.get(hive_table.LOCATION_PARAMETER) or (sd and sd.location) or ""
        is_paimon = (
            sd is not None
            and (sd.inputFormat, sd.outputFormat) == (hive_table.INPUT_FORMAT, hive_table.OUTPUT_FORMAT)
            and found.tableType not in _VIEWS
        )
        kind = parameters.get("table_type") or (sd and sd.inputFormat) or "unknown format"
        what = "a view" if found.tableType in _VIEWS else f"another kind of table ({kind.rpartition('.')[2]})"
        return Entry(is_paimon, what, location)

    # -- the servers -----------------------------------------------------------------------------------------------

    def _asking(self, named: Named, action: Callable[[Ask], _Answer]) -> _Answer:
        """What ``action`` returns for the first server that answers."""
        types = self._types
        last: Exception | None = None
        answers = (types.NoSuchObjectException, types.AlreadyExistsException)
        for client in self._clients:
            try:
                return action(functools.partial(client.call, answers=answers))
            except (types.InvalidObjectException, types.InvalidOperationException) as refused:
                raise Misuse(
                    f"{named.root}: {self.where} refuses the table {named}: {_said(refused)}", kind="catalog.refused"
                ) from refused
            except client.broken as failed:
                last = failed
            finally:
                client.close()
        raise Retryable(
            f"{named.root}: {self.where} does not answer, or has failed: {_said(last)}", kind="catalog.unavailable"
        ) from last


def _said(failed: BaseException | None) -> str:
    """The first line of what a server or a socket says; Java's errors go on with their frames."""
    text = str(getattr(failed, "message", None) or failed).strip().partition("\n")[0]
    return f"{type(failed).__name__}: {text}"
