"""Keeps the tables of a query registered in a catalog, beside its batches: a thread that is there while it is needed.

The start asks the catalog once and registers what is there. Then ``published`` compares two numbers, unless the columns
of a table have changed or the catalog has failed before; so no batch waits for a catalog, and none fails by it.
"""

import os
import threading
from collections.abc import Callable, Sequence

from streamsink.catalogs.properties import CatalogProperties
from streamsink.catalogs.registration import Registration, registration_of, unanswered
from streamsink.errors import Misuse, Retryable
from streamsink.events import Event, TableNotRegistered
from streamsink.format.schema import TableSchema
from streamsink.options import SinkOptions
from streamsink.protocol.upkeep import Care, CareOfAll, begun
from streamsink.table.table import Table

# How long a stop waits for a registration that is under way.
_PATIENCE_MS = 30_000


class Registering(Care):
    """The registrations of one start of a query; without the option ``catalog`` none, and nothing is done."""

    def __init__(self, path: str, options: SinkOptions, emit: Callable[[Event], None], *, several: bool = False):
        """path: of the table, or of the folder of several. Raises Misuse, naming the property, before anything else."""
        self._properties = CatalogProperties.of(path, options.catalog)
        self._path, self._several, self._application, self._emit = path, several, options.application, emit
        self._registrations: dict[str, Registration | None] = {}
        self._names: dict[str, str] = {}  # in the catalog -> path of the table
        self._tables: Callable[[], Sequence[Table]] = tuple
        self._changed = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._unanswered: Retryable | None = None

    @property
    def is_asked_for(self) -> bool:
        """Whether there is a catalog."""
        return self._properties is not None

    # -- before anything is written --------------------------------------------------------------------------------

    def look(self, root: str) -> None:
        """At the start: raises as ``Registration.look``, but for a catalog that does not answer.

        That one is asked no more, and a query whose table is there goes on, unless the option says ``required``.
        """
        registration = self._of(root)
        if registration is None or self._unanswered is not None:
            return
        try:
            registration.look()
        except Retryable as failed:
            self._unanswered = failed
            if self._properties is not None and self._properties.required:
                raise unanswered(failed) from failed

    def check_new(self, root: str, schema: TableSchema) -> None:
        """Before the start creates this table: raises as ``Registration.check_new``.

        Raises Retryable when the catalog has not answered ``look``, since another table may have the name.
        """
        registration = self._of(root)
        if registration is not None:
            registration.check_new(schema)
        if self._unanswered is not None:
            raise unanswered(self._unanswered) from self._unanswered

    def register(self, table: Table) -> None:
        """At the start: let the catalog have the table. What fails is told, and tried again later."""
        registration = self._of(table.root)
        if registration is not None and self._unanswered is not None:
            registration.put_off(table.known_schema, self._unanswered)
        elif registration is not None:
            registration.register(table.known_schema)

    # -- Care ------------------------------------------------------------------------------------------------------

    def follow(self, tables: Callable[[], Sequence[Table]]) -> None:
        """tables(): those that are to be registered, as far as they are open; asks no store, from any thread."""
        self._tables = tables

    def published(self) -> None:
        if self._properties is None:
            return
        due = [(each, each.known_schema) for each in self._tables()]
        due = [(table, schema) for table, schema in due if self._is_due(table, schema)]
        with self._changed:
            if due and self._thread is None and not self._is_stopping:
                self._thread = begun(lambda: self._run(due), f"streamsink-catalog {self._application}")

    def stop(self) -> None:
        with self._changed:
            self._is_stopping = True
            thread = self._thread
        if thread is not None:
            thread.join(_PATIENCE_MS / 1000)  # one that hangs is a daemon, and the next start registers

    # -- parts -----------------------------------------------------------------------------------------------------

    def _run(self, due: Sequence[tuple[Table, TableSchema]]) -> None:
        try:
            for table, schema in due:
                registration = self._of(table.root)
                if registration is not None and not registration.register(schema) and registration.retries:
                    return  # the catalog is away: the others would wait for it in vain
        finally:
            with self._changed:
                self._thread = None

    def _is_due(self, table: Table, schema: TableSchema) -> bool:
        try:
            registration = self._of(table.root)
        except Misuse as refused:  # rows have come for a name that a pattern covers, and no catalog
            self._registrations[table.root] = None
            self._told_once(table.root, refused)
            return False
        return registration is not None and registration.is_due(schema)

    def _told_once(self, root: str, refused: Misuse) -> None:
        properties = self._properties
        where = f"{properties.metastore} {properties.uri}" if properties is not None else ""
        said = {"catalog": where, "name": os.path.basename(root), "why": str(refused), "failures": 1, "retry_ms": None}
        self._tell(TableNotRegistered, {"path": root, **said})

    def _of(self, root: str) -> Registration | None:
        if self._properties is None:
            return None
        if root not in self._registrations:
            beside = self._several or root != self._path
            named = str(self._properties.named(root, beside=beside))
            other = self._names.setdefault(named, root)
            if other != root:
                raise Misuse(
                    f"{root}: the catalog would have another table of this query, {other}, under the name {named} as "
                    "well, since it knows no upper case. Nothing was written. Give one of the two another name, or a "
                    "path that ends with one",
                    kind="catalog.other-table",
                )
            self._registrations[root] = registration_of(root, self._properties, self._tell, beside=beside)
        return self._registrations[root]

    def _tell(self, kind: type[Event], fields: dict[str, object]) -> None:
        self._emit(kind(self._path, self._application, **fields))


def cares_of(care: Care, registering: Registering) -> Care:
    """What looks after the tables, and what registers them."""
    return CareOfAll((care, registering)) if registering.is_asked_for else care
