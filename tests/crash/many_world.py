"""A world of several tables: a source whose rows, and whose routes, are different each time they are computed, and an
oracle.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.calls import Calls
from streamsink.storage.file_io import FileIO
from streamsink.table.read.scan import read_arrow
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.table.table import create_table, is_table, new_schema, open_table
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.many_driver import ManyTablesDriver
from streamsink.testing.memory import MemoryCalls
from tests.crash import tried
from tests.crash.world import FIRST, query_of

ROOT = "/lake/shop.db"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("part", pa.string()), ("n", pa.string()), ("version", pa.int64()), (ROUTE, pa.string())]
)
# Batch 2 is empty, batch 1 goes to one table. The last ones make the journal prune.
BOUNDARIES = (6, 9, 9, 14, 18)
RULES = {"a": {"partition_by": ("part",)}, "strict": {"create": False}, "more_*": {}}
TABLES = ("a", "strict", "more_x", "more_y", "rejected")


def route(number: int, version: int) -> str | None:
    """Where a row goes in one evaluation: another table, or none, in the next one."""
    at = version if 6 <= number < 9 else number + version
    return ("a", "strict", "more_x", "more_y", "unknown", None)[at % 6]


def count_text(number: int) -> str | None:
    """A column that table ``strict`` keeps as a number that is not null."""
    return (str(number), None, "many")[number % 3]


class ManyWorld:
    """One store, one query, and Spark's own logs, which outlive every crash."""

    tables = TABLES

    def __init__(
        self,
        calls: Calls | None = None,
        root: str = ROOT,
        *,
        make_io: Callable | None = None,
        small: bool = False,
        hands_over: bool = False,
        **options,
    ):
        """make_io: FileIO over some calls, for stores unlike POSIX. small: the driver knows that its rows are few.
        hands_over: as of ``ManyTablesDriver``.
        """
        self._make_io = make_io
        self.calls = calls or MemoryCalls()
        self.root = root
        self.checkpoint = SparkCheckpoint(query_of(options.get("application", FIRST)))
        self._versions = itertools.count()
        settings = SinkOptions.of(
            root,
            {
                "journal_retain": 2,
                "commit_min_wait_ms": 0,
                "commit_max_wait_ms": 0,
                "table_options": {"manifest.merge-min-count": "3"},
                **options,
            },
        )
        routing = Routing.of(root, RULES, settings, dead_letters="rejected", unrouted="dead-letter")
        self.driver = ManyTablesDriver(root, SCHEMA, self._rows, routing, settings)
        self.driver.is_small, self.driver.hands_over = small, hands_over
        strict = new_schema(parse_ddl("id BIGINT, part STRING, n BIGINT NOT NULL, version BIGINT"), (), {})
        create_table(self.file_io(), f"{root}/strict", strict)

    def file_io(self, calls: Calls | None = None) -> FileIO:
        calls = calls or self.calls
        return self._make_io(calls) if self._make_io else FileIO(calls, IdSource().new_id)

    def run(self, calls: Calls | None = None, boundaries=BOUNDARIES) -> None:
        """Start the query and let it run to its end, over these calls."""
        self.driver.run(self.file_io(calls), self.checkpoint, boundaries)

    def die(self, power: bool = False) -> None:
        """The driver is gone; with ``power`` the machine too."""
        tried.note()
        if isinstance(self.calls, MemoryCalls):
            self.calls.power_failure() if power else self.calls.process_death()

    def table(self, name: str):
        """The table, or None."""
        file_io = self.file_io()
        return (
            open_table(file_io, f"{self.root}/{name}", for_writing=False)
            if is_table(file_io, f"{self.root}/{name}")
            else None
        )

    def rows(self) -> list[tuple[str, int, int]]:
        """(table, id, version) of each row that a reader sees; a dead letter's from its text."""
        found = []
        for name in self.tables:
            table = self.table(name)
            for row in read_arrow(table).to_pylist() if table else ():
                values = json.loads(row["row"]) if "row" in row else row
                found.append((name, values["id"], values["version"]))
        return found

    def unknown_files(self) -> list[str]:
        """Data files, manifests, lists and temporary files that no snapshot names, in tables and journal."""
        file_io, named = self.file_io(), set()
        for table in filter(None, map(self.table, self.tables)):
            for snapshot_id in table.snapshots.ids():
                snapshot = table.snapshots.load(snapshot_id)
                named |= {snapshot.base_manifest_list, snapshot.delta_manifest_list}
                for meta in table.manifests.base_of(snapshot) + table.manifests.delta_of(snapshot):
                    named |= {meta.file_name} | {e.file.file_name for e in table.manifests.read(meta.file_name)}
        return sorted(name for name in _files(file_io, self.root) if name not in named)

    def _rows(self, start: int, end: int) -> pa.RecordBatch:
        numbers = list(range(start, end))
        version = next(self._versions)
        return pa.RecordBatch.from_pydict(
            {
                "id": numbers,
                "part": [("p", "q", None)[n % 3] for n in numbers],
                "n": [count_text(n) for n in numbers],
                "version": [version] * len(numbers),
                ROUTE: [route(n, version) for n in numbers],
            },
            schema=SCHEMA,
        )


def _files(file_io: FileIO, folder: str) -> list[str]:
    found = []
    for entry in file_io.entries(folder):
        if entry.is_dir:
            found += _files(file_io, f"{folder}/{entry.name}")
        elif entry.name.startswith(("data-", "manifest-", ".")):
            found.append(entry.name)
    return found


def should_be_in(number: int, version: int) -> str:
    """The oracle for one row: its table, or the dead letters when it does not fit there."""
    name = route(number, version)
    if name in (None, "unknown") or name == "strict" and number % 3:
        return "rejected"
    return name


def check_readable(rows, boundaries=BOUNDARIES, place=should_be_in) -> None:
    """What a reader may see at any instant: no row twice, each in its right table, one version a batch, batches in
    order.

    place(number, version): the table of a row.
    """
    ids = Counter(number for _, number, _ in rows)
    assert set(ids.values()) <= {1}, "a row is there twice"
    assert all(name == place(number, version) for name, number, version in rows), "a row is in the wrong table"
    complete = True
    for start, end in zip((0, *boundaries), boundaries):
        found = [(number, version) for _, number, version in rows if start <= number < end]
        assert len({version for _, version in found}) <= 1, "two evaluations of a batch are mixed"
        assert complete or not found, "a batch is visible although one before it is not whole"
        complete = len(found) == end - start


def check_complete(rows, boundaries=BOUNDARIES, place=should_be_in) -> None:
    """At the end: every row once, in one of the tables."""
    check_readable(rows, boundaries, place)
    assert sorted(number for _, number, _ in rows) == list(range(boundaries[-1]))
