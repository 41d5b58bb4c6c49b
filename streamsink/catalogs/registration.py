"""When a table is registered in the catalog of the option ``catalog``, and what happens when the catalog fails.

At the start of a query the catalog is asked before anything is written: another table under the name is an error.
Then the table is registered, and again when its columns change. From the first record on no error comes of it: what
fails is told by an event, and tried again with a later publishing.
"""

import threading
from collections.abc import Callable

from streamsink.catalogs.catalog import UNCHANGED, Catalog, Entry, Named, other_than
from streamsink.catalogs.properties import CatalogProperties
from streamsink.clock import Clock
from streamsink.errors import Misuse, Retryable, StreamsinkError
from streamsink.events import Event, TableNotRegistered, TableRegistered
from streamsink.format.schema import TableSchema
from streamsink.shell import command

# A catalog that has failed is asked again with the first publishing after so long.
RETRY_MS = 60_000
_NEVER = -1


class Registration:
    """One table in one catalog, for one start of a query or one command.

    ``look`` and ``check_new`` come before anything is written, and raise. ``register`` does not.
    """

    def __init__(
        self,
        catalog: Catalog,
        named: Named,
        tell: Callable[[type[Event], dict[str, object]], None] = lambda kind, fields: None,
        clock: Clock | None = None,
    ):
        """tell(kind, fields): takes events."""
        self._catalog, self._named, self._tell = catalog, named, tell
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._done = self._tried = _NEVER  # numbers of schemas
        self._failed_ms: float | None = None
        self.retries = False  # whether the last failure passes by itself
        self._why, self.failures = "", 0  # of the last failure, and how many there were in a row

    def look(self, moved_from: str = "") -> bool:
        """Whether the catalog has the table. moved_from: as of ``other_than``.

        Raises Misuse ``catalog.other-table``; Retryable without an answer.
        """
        named, where = self._named, self._catalog.where
        found = self._catalog.entry(named)
        other = other_than(named, found, moved_from) if found else ""
        if found and other:
            raise _other_table(named, f"{where} has {other}", found)
        return found is not None

    def check_new(self, schema: TableSchema) -> None:
        """Before a table with these columns is created: raises Misuse where the catalog can never have them."""
        self._catalog.check_new(self._named, schema)

    def is_due(self, schema: TableSchema) -> bool:
        """Whether ``register`` has something to do now. Asks nobody."""
        if schema.id == self._done:
            return False
        if self._failed_ms is None or schema.id != self._tried:
            return True
        return self.retries and self._clock.monotonic_ms() - self._failed_ms >= RETRY_MS

    def register(self, schema: TableSchema) -> bool:
        """Let the catalog have the table with these columns; whether it has them. What fails is told, not raised."""
        with self._lock:
            self._tried = schema.id
            try:
                # What the catalog had in this start, and has no more, was dropped there, and somebody meant it.
                change = self._catalog.put(self._named, schema, may_create=self._done == _NEVER)
            except StreamsinkError as failed:
                self._failed(failed)
                return False
            self._done, self._failed_ms, self._why, self.failures = schema.id, None, "", 0
        if change != UNCHANGED:
            self._tell(TableRegistered, {**self._told(), "change": change})
        return True

    def put_off(self, schema: TableSchema, failed: Retryable) -> None:
        """As ``register`` of a catalog that has just not answered, without asking it again."""
        with self._lock:
            self._tried = schema.id
            self._failed(failed)

    def _failed(self, failed: StreamsinkError) -> None:
        self._failed_ms, self.failures = self._clock.monotonic_ms(), self.failures + 1
        self.retries = isinstance(failed, Retryable)
        why = str(failed)
        if why != self._why:
            self._why = why
            retry_ms = RETRY_MS if self.retries else None
            self._tell(
                TableNotRegistered, {**self._told(), "why": why, "failures": self.failures, "retry_ms": retry_ms}
            )

    def _told(self) -> dict[str, object]:
        return {"path": self._named.root, "catalog": self._catalog.where, "name": str(self._named)}


def _other_table(named: Named, what: str, found: Entry) -> Misuse:
    """The error for an entry that is another table. what: what is there."""
    if found.is_paimon:  # this table may be meant, and a drop would delete its files
        typed = command("register", named.root, "--catalog", "NAME=VALUE", "--moved-from", found.location, "--yes")
        return Misuse(
            f"{named.root}: {what} under the name {named}, expected this table, or none. Nothing was written. If it is "
            "this table, which was moved, or has its place in other words there, let the entry have this place: "
            f"streamsink.maintenance.repair({named.root!r}, catalog=..., moved_from={found.location!r}) {typed}. Else "
            "name the table otherwise, with database and table in the option 'catalog'. Drop nothing there to get the "
            "name: dropping a managed table deletes its files",
            kind="catalog.other-table",
        )
    return Misuse(
        f"{named.root}: {what} under the name {named}, expected this table, or none. Nothing was written. Name the "
        "table otherwise, with database and table in the option 'catalog'; or rename what is there; or drop it, if "
        "nobody needs it: dropping a managed table deletes its files",
        kind="catalog.other-table",
    )


def unanswered(failed: Retryable) -> Retryable:
    """The error of a start that needs an answer: that of ``Registration.look``, with the way on."""
    return Retryable(
        f"{failed}. Nothing was written. Start again when the catalog is there, or leave out the option 'catalog' "
        "until then: a later start with it registers the table",
        kind=failed.kind,
    )


def registration_of(
    root: str,
    properties: CatalogProperties,
    tell: Callable[[type[Event], dict[str, object]], None],
    *,
    beside: bool = False,
) -> Registration:
    """The registration of the table at ``root``. Raises Misuse, naming the property."""
    named = properties.named(root, beside=beside)
    return Registration(properties.catalog(root), named, tell)
