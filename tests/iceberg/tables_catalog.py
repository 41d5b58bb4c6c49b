"""A catalog in memory: pyiceberg's own checks and files, and one step in which a table's metadata is exchanged.

Real catalogs are tried by the tests beside it; here replies can be lost, and commits be late.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table


@dataclass
class Tables:
    """What the catalog knows: the newest metadata file of each table.

    exchange: what is done in place of the exchange, which it is given; a test lets replies get lost with it.
    """

    newest: dict[tuple[str, ...], str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    exchange: Callable[[Callable[[], None]], None] = lambda action: action()  # noqa: E731
    commits: int = 0


KNOWN: dict[str, Tables] = {}


class TablesCatalog(MetastoreCatalog, NoopCatalog):
    """Its property ``world`` names the tables that it knows."""

    @property
    def tables(self) -> Tables:
        return KNOWN[self.properties["world"]]

    def load_namespace_properties(self, namespace):
        return {}

    def create_namespace(self, namespace, properties=None) -> None:
        """All are there."""

    def load_table(self, identifier) -> Table:
        name = Catalog.identifier_to_tuple(identifier)
        location = self.tables.newest.get(name)
        if location is None:
            raise NoSuchTableError(name)
        metadata = FromInputFile.table_metadata(self._load_file_io(location=location).new_input(location))
        return Table(name, metadata, location, self._load_file_io(metadata.properties, location), self)

    def drop_table(self, identifier) -> None:
        del self.tables.newest[Catalog.identifier_to_tuple(identifier)]

    def register_table(self, identifier, metadata_location, overwrite=False) -> Table:
        self.tables.newest[Catalog.identifier_to_tuple(identifier)] = metadata_location
        return self.load_table(identifier)

    def commit_table(self, table, requirements, updates) -> CommitTableResponse:
        name = table.name()
        current = self.load_table(name) if name in self.tables.newest else None
        staged = self._update_and_stage_table(current, name, requirements, updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)

        def exchange() -> None:
            with self.tables.lock:
                if self.tables.newest.get(name) != (current.metadata_location if current else None):
                    raise CommitFailedException("another writer was first")
                self.tables.newest[name] = staged.metadata_location
                self.tables.commits += 1

        self.tables.exchange(exchange)
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)
