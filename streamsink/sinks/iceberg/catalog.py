"""One table of a catalog, by pyiceberg, whose errors come in the words of this library. Driver only."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from streamsink.errors import Corrupt, Misuse, Retryable, StreamsinkError
from streamsink.sinks.iceberg import exchange
from streamsink.sinks.iceberg.append import Left

_DURABLE = {"py-io-impl": "streamsink.sinks.iceberg.file_io.DurableFileIO"}
# The property that ``try_out`` changes.
TRIED = "streamsink.tried"
# Errors of pyiceberg after which trying again is of no use; those that are not its own are found by their names, too.
_WRONG = (
    "BadRequestError",
    "ForbiddenError",
    "ModuleNotFoundError",
    "NoSuchNamespaceError",
    "NoSuchTableError",  # behind a creation: what has the name is no Iceberg table
    "NotInstalledError",
    "UnauthorizedError",
    "ValueError",
    "ArgumentError",
    "NoSuchModuleError",
)


class CatalogTable:
    """A table by its name. The table may be missing.

    path: for messages. name, properties: of the catalog, as pyiceberg takes them. identifier: namespace and table.
    """

    def __init__(self, path: str, name: str, properties: Mapping[str, str], identifier: Sequence[str]):
        self.path = path
        self._of = (name, properties)
        self.identifier = tuple(identifier)
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as missing:
            raise Misuse(
                f"{path}: Iceberg tables need the package pyiceberg. Nothing was written. Install it on the driver: "
                "pip install 'streamsink[iceberg]'",
                kind="store.extra-missing",
            ) from missing
        with self.answered("the catalog could not be opened", opening=True):
            self.catalog: Any = load_catalog(name, **{**_DURABLE, **properties})
        self._looked_at: Any = None
        # Of the last commit by this connection.
        self.left: Left | None = None

    def anew(self) -> "CatalogTable":
        """The same with a connection of its own, for another thread."""
        return CatalogTable(self.path, *self._of, self.identifier)

    def load(self) -> Any | None:
        """The table as it is now; None where there is none.

        Costs a question to the catalog, and one file, unless a database says that the file is known.
        """
        from pyiceberg.exceptions import NoSuchTableError, ValidationError

        with self.answered("the table could not be loaded from its catalog", opening=True), self.whole():
            known = self._looked_at
            if known is not None and exchange.newest(self.catalog, self.identifier) == known.metadata_location:
                return _again(known)
            try:
                return self._remembered(self.catalog.load_table(self.identifier))
            except NoSuchTableError:
                return None
            except ValidationError as unknown:
                raise Misuse(
                    f"{self.path}: pyiceberg cannot read the metadata of the table: there is something in it that it "
                    "does not know, such as a newer format version or type, or it is damaged. Nothing was written. "
                    "What pyiceberg says is in the log of the driver, below this error. Take off the table what "
                    "another engine has put there, register it from an earlier metadata file, or write another table",
                    kind="iceberg.unsupported",
                ) from unknown

    def commit(self, table: Any, updates: Sequence[Any], requirements: Sequence[Any]) -> Any:
        """Change the table, as it was looked at, by a commit. Returns it as it is then.

        Raises CommitFailedException when it was changed meanwhile so that a requirement does not hold; in a database,
        when it was changed in whatever way. Raises what the catalog raises.
        """
        if exchange.is_possible(self.catalog):
            return self._remembered(exchange.exchange(table, updates, requirements))
        exchange.flush(table.io)
        after = _again(table)
        after._do_commit(updates=tuple(updates), requirements=tuple(requirements))
        return after

    def _remembered(self, table: Any) -> Any:
        if exchange.is_possible(self.catalog):
            self._looked_at = _again(table)
        return table

    def default_location(self) -> str:
        """Where the catalog would create the table; '' where only its server knows that."""
        resolve = getattr(self.catalog, "_resolve_table_location", None)
        if resolve is None:
            return ""
        from pyiceberg.exceptions import NoSuchNamespaceError

        namespace, name = ".".join(self.identifier[:-1]), self.identifier[-1]
        with self.answered("the catalog does not say where the table would be", opening=True):
            try:
                return str(resolve(None, namespace, name))
            except NoSuchNamespaceError:
                warehouse = str(self.catalog.properties.get("warehouse", "")).rstrip("/")
                return f"{warehouse}/{namespace}/{name}" if warehouse else ""

    def create(self, schema: Any, partition_by: Sequence[str], location: str, properties: Mapping[str, str]) -> Any:
        """Create the table, with its namespace, unless another program was first. Returns what is there then.

        schema: as an Arrow schema. partition_by: its columns by which the table is partitioned, as they are.
        """
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        with self.answered("the table could not be created", opening=True):
            self.catalog.create_namespace_if_not_exists(self.identifier[:-1])
            try:
                with self.catalog.create_table_transaction(
                    self.identifier, schema=schema, location=location or None, properties=dict(properties)
                ) as creating:
                    if partition_by:
                        _partition(creating, partition_by)
            except (TableAlreadyExistsError, CommitFailedException):
                pass  # what another program has created is looked at as any table is
            return self._remembered(self.catalog.load_table(self.identifier))

    def try_out(self, table: Any, word: str) -> None:
        """Change a property of the table, which no reader looks at.

        What would make each commit impossible shows before a record is made: missing rights, or columns that the
        catalog does not take. word: another one each time.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

        with self.answered("a commit was tried, which the catalog did not take", opening=True):
            change = SetPropertiesUpdate(updates={TRIED: word})
            try:
                self.commit(table, [change], [AssertTableUUID(uuid=table.metadata.table_uuid)])
            except CommitFailedException:
                pass  # another program was first

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Within it files of the table's metadata are read. Raises Corrupt when one is gone."""
        try:
            yield
        except FileNotFoundError as gone:
            raise Corrupt(
                f"{self.path}: a file of the table's metadata is gone: {gone}. Nothing was committed. Restore it, or "
                "register the table in its catalog from a metadata file of which all is there",
                kind="iceberg.metadata-gone",
            ) from gone

    @contextmanager
    def answered(self, what: str, *, opening: bool = False) -> Iterator[None]:
        """Within it, errors of pyiceberg, and of what is below it, become errors of this library.

        what: did not succeed. opening: some errors then mean that what the user has named is wrong. Errors of stores,
        and a commit that was certainly refused, stay what they are.
        """
        from pyiceberg.exceptions import CommitFailedException

        try:
            yield
        except (StreamsinkError, CommitFailedException):
            raise
        except Exception as failed:  # the edge to a library whose errors have nothing in common
            if isinstance(failed, OSError) and type(failed).__module__ == "builtins":
                raise  # of a store; that of a catalog's client is of its own module
            names = {each.__name__ for each in type(failed).__mro__}
            if opening and names.intersection(_WRONG):
                raise Misuse(
                    f"{self.path}: {what}: {type(failed).__name__}. Nothing was written. Look whether the catalog's "
                    "name and properties, and the name of the table, are right, and whether the table may be written; "
                    "what pyiceberg says is in the log of the driver, below this error",
                    kind="iceberg.options",
                ) from failed
            raise Retryable(
                f"{self.path}: {what}: {type(failed).__name__}. What is recorded is safe in the journal. Look whether "
                "the catalog answers, and what pyiceberg says in the log of the driver, below this error; the query "
                "goes on when it is started again",
                kind="iceberg.unavailable",
            ) from failed


def _again(table: Any) -> Any:
    """Another object for the same table: pyiceberg changes the one by which something is committed."""
    from pyiceberg.table import Table

    return Table(table.name(), table.metadata, table.metadata_location, table.io, table.catalog, table.config)


def _partition(creating: Any, columns: Sequence[str]) -> None:
    with creating.update_spec() as spec:
        for column in columns:
            spec.add_identity(column)
