"""The Iceberg table of a job: in a given catalog, or in one of the job's own, a file of SQLite; and what it holds."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import load_catalog

from support.report import Outcome

NAMESPACE = "shop"


@dataclass(frozen=True)
class Lake:
    """catalog, properties: as pyiceberg takes them. table: namespace and name."""

    catalog: str
    properties: dict[str, str]
    table: str

    @classmethod
    def of(cls, args: argparse.Namespace, name: str) -> "Lake":
        """The catalog that the arguments name; else one below the warehouse, which is made when it is not there."""
        table = f"{NAMESPACE}.{name}"
        if args.catalog:
            return cls(args.catalog, dict(args.catalog_property), table)
        warehouse = Path(args.warehouse).absolute()
        warehouse.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{warehouse / 'catalog.db'}"
        return cls("lake", {"type": "sql", "uri": uri, "warehouse": f"file://{warehouse}"}, table)

    def outcome(self, given_as: str, expected: int) -> Outcome:
        """Compare the table with the events 0 to ``expected`` - 1, each of which must be there once."""
        table = load_catalog(self.catalog, **self.properties).load_table(self.table)
        numbers = table.scan(selected_fields=("order_id",)).to_arrow().column("order_id").to_pylist()
        mine = sum(0 <= number < expected for number in set(numbers))
        return Outcome(
            given_as, expected, rows=len(numbers), duplicates=len(numbers) - len(set(numbers)), lost=expected - mine
        )
