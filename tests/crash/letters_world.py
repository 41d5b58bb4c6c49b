"""A world of one table whose query has dead letters in some of its starts and not in others; which rows are bad is
another thing each time.
"""

import itertools
from collections.abc import Callable

import pyarrow as pa

from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.calls import Calls
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.table.table import create_table, new_schema
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.many_driver import LettersDriver, ManyTablesDriver
from streamsink.testing.memory import MemoryCalls
from streamsink.testing.stepping import Stepping
from tests.crash.many_world import ROOT, ManyWorld, check_complete, check_readable

# Batch 2 is empty. The last ones make the journal prune.
BOUNDARIES = (6, 9, 9, 14, 18)
NAME = "orders"
# How a start is made: without the option, with it, and as earlier code made a query with it.
PLAIN, LETTERS, EARLIER = "plain", "letters", "earlier"
EARLIER_NAME = f"streamsink-{NAME}"


def is_bad(number: int, version: int) -> bool:
    """Whether a row that is computed with dead letters is one, in one evaluation.

    Those of 14 to 17 are all bad, or all good.
    """
    return (version if number >= 14 else number + version) % 3 == 0


class LettersWorld(ManyWorld):
    """One store, one query, and Spark's own logs, which outlive every crash.

    The option is given, or not, to each run.
    """

    def __init__(
        self,
        calls: Calls | None = None,
        root: str = ROOT,
        name: str = NAME,
        dead_letters: str = "rejected",
        make_io: Callable | None = None,
        small: bool = False,
        hands_over: bool = False,
        delay: int | None = 0,
        **options,
    ):
        """make_io, small, hands_over: as of ``ManyWorld``. delay: as of ``World``."""
        self._make_io, self._small, self._delay, self._hands_over = make_io, small, delay, hands_over
        self.calls = calls or MemoryCalls()
        self.root, self.name, self.path = root, name, f"{root}/{name}"
        self.dead_letters = dead_letters
        self.tables = (name, dead_letters)
        self.options = options
        self.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000001")
        self.events: list = []
        self._versions = itertools.count()
        self._screened: set[int] = set()
        create_table(
            self.file_io(), self.path, new_schema(parse_ddl("id BIGINT, n BIGINT NOT NULL, version BIGINT"), (), {})
        )

    def run(self, calls: Calls | None = None, boundaries=BOUNDARIES, how: str = LETTERS, **options) -> None:
        """One start of the query, and its restarts, over these calls."""
        calls = calls or CrashingCalls(self.calls)
        driver = self.driver_of(how, **options)
        driver.background = lambda step: Stepping(step, calls, self._delay)
        driver.events, driver.is_small = self.events, self._small
        driver.run(self.file_io(calls), self.checkpoint, boundaries)

    def driver_of(self, how: str, **options) -> MicroBatchDriver:
        """How the query is started."""
        settings = SinkOptions.of(
            self.path,
            {
                "journal_retain": 2,
                "commit_min_wait_ms": 0,
                "commit_max_wait_ms": 0,
                "table_options": {"manifest.merge-min-count": "3"},
                "restore": "restore-and-continue",
                **self.options,
                **options,
                **({"application": EARLIER_NAME} if how == EARLIER else {}),
            },
        )
        if how == PLAIN:
            schema = pa.schema([("id", pa.int64()), pa.field("n", pa.int64(), nullable=False), ("version", pa.int64())])
            return MicroBatchDriver(self.path, schema, lambda start, end: self._good(start, end, schema), settings)
        routing = Routing.of(self.root, {self.name: {}}, settings, dead_letters=self.dead_letters, unrouted="fail")
        schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("version", pa.int64()), (ROUTE, pa.string())])
        driver = ManyTablesDriver if how == EARLIER else LettersDriver
        made = driver(self.root, schema, lambda start, end: self._some_bad(start, end, schema), routing, settings)
        made.hands_over = self._hands_over
        made.earlier_name = options.get("application", EARLIER_NAME)
        return made

    def place(self, number: int, version: int) -> str:
        """The oracle for one row."""
        return self.dead_letters if version in self._screened and is_bad(number, version) else self.name

    def states(self, name: str) -> dict:
        """What the newest snapshot of a table says of the applications."""
        table = self.table(name)
        return dict(table.states.read(table.snapshots.latest()).by_application) if table else {}

    def check_readable(self, boundaries=BOUNDARIES) -> None:
        check_readable(self.rows(), boundaries, self.place)

    def check_complete(self, boundaries=BOUNDARIES) -> None:
        check_complete(self.rows(), boundaries, self.place)

    def _good(self, start: int, end: int, schema: pa.Schema) -> pa.RecordBatch:
        numbers, version = list(range(start, end)), next(self._versions)
        return pa.RecordBatch.from_pydict(
            {"id": numbers, "n": numbers, "version": [version] * len(numbers)}, schema=schema
        )

    def _some_bad(self, start: int, end: int, schema: pa.Schema) -> pa.RecordBatch:
        numbers, version = list(range(start, end)), next(self._versions)
        self._screened.add(version)
        return pa.RecordBatch.from_pydict(
            {
                "id": numbers,
                "n": [None if is_bad(n, version) else n for n in numbers],
                "version": [version] * len(numbers),
                ROUTE: [self.name] * len(numbers),
            },
            schema=schema,
        )
