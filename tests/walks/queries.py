"""A query over the real protocol, as Spark would run it: planned batches, a run that lives on, and what ends it."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol import run_inputs
from streamsink.protocol.committable import Batch, Committable
from streamsink.protocol.decision import Verdict
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.same_query import QueryComparison, QueryFingerprint
from streamsink.sinks.paimon.opening import open_one, open_with_letters
from streamsink.table.creation import fields_of
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.testing.driver import Driven, MicroBatchDriver, NumberedRows, columns, written
from streamsink.testing.stepping import Stepping
from tests.walks.checkpoints import Checkpoint
from tests.walks.model import Causes, Wrong
from tests.walks.sources import Folder, Topic, batch_of
from tests.walks.store import Process

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), pa.field("n", pa.int64(), nullable=False)])
TABLE = "orders"
# A query that has dead letters has these settings instead of its own.
_WITH_LETTERS = {"publish": "sync", "publish_every_batches": 1, "publish_as": "snapshot-per-checkpoint"}
_EARLIER_NAME = f"streamsink-{TABLE}"
PARTS = ("a", "b", None, "", "c/d=e", "%41 é", "__DEFAULT_PARTITION__", "x" * 80, "\n", "..")
# The suffix of a query's other name.
RENAMED = "-renamed"
_TABLE = {"manifest.merge-min-count": "3", "snapshot.clean-empty-directories": "true"}
SETTINGS = {"commit_min_wait_ms": 0, "commit_max_wait_ms": 0, "table_options": _TABLE}


def arrow(ids: list[int], parts: int) -> pa.RecordBatch:
    """Rows of these ids. The partition is a function of the id."""
    return pa.RecordBatch.from_pydict(
        {"id": ids, "part": [part_of(row, parts) for row in ids], "n": ids}, schema=SCHEMA
    )


def with_bad_ones(ids: list[int], parts: int) -> pa.RecordBatch:
    """Rows of these ids for a query that has dead letters: every third row lacks a value that the table requires."""
    columns = {
        "id": ids,
        "part": [part_of(row, parts) for row in ids],
        "n": [None if is_bad(row) else row for row in ids],
        ROUTE: [TABLE] * len(ids),
    }
    schema = pa.schema([*(field.with_nullable(True) for field in SCHEMA), (ROUTE, pa.string())])
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def is_bad(row: int) -> bool:
    """Whether the row lacks a value that the table requires, in a query that has dead letters."""
    return row % 3 == 0


def part_of(row: int, parts: int) -> str | None:
    return PARTS[row % parts]


def halves(rows: list[int]) -> tuple[list[int], list[int]]:
    """The rows that a function which calls the sink twice gives to each call."""
    return [row for row in rows if row % 2 == 0], [row for row in rows if row % 2]


def partitioned(parts: int) -> tuple[str, ...]:
    """The table's partition columns."""
    return ("part",) if parts > 1 else ()


@dataclass
class Job:
    """A bounded run. options: those of an overwrite. version: of its program. has_one_count: whether its plan has a row
    for each row that it reads. files: how often the files that it reads were made anew. seen: of an overwrite whose
    calls failed, the rows that were there by then."""

    name: str
    rows: list[int]
    options: dict
    version: int = 0
    has_one_count: bool = True
    files: int = 0
    seen: set[int] = field(default_factory=set)


def check_kept(overwrites: list[Job], before: Counter, gone: Collection[int], parts: int) -> None:
    """The call of another run may publish overwrites whose own calls failed. Check that they take nothing away that
    came after the last call for them."""
    waiting = [job for job in overwrites if job.seen]
    for part in {part_of(job.rows[0], parts) for job in waiting}:
        published = [job for job in waiting if part_of(job.rows[0], parts) == part and not before[job.rows[0]]]
        if late := [
            row for row in gone if part_of(row, parts) == part and not any(row in job.seen for job in published)
        ]:
            raise Wrong("deleted", f"rows {late}, which came after the overwrites of {[job.name for job in published]}")


@dataclass
class Query:
    """One logical query: what its user calls it, what it reads, and where its checkpoint is now.

    live: its run, when a driver has one open. said: the error that stopped it last, when the world's serial was
    ``said_at``. afterwards: what a command said to do next. rows_of_job: the bounded run that is under way.

    version: of its plan. is_comparable: whether the plan shows everything. stateful: its rows come out of state.
    combines: the operator by which its function makes rows of several, if it does. hides: the operator that does not
    show whether it does, if there is one. halves: its function calls the sink twice, each time with a part of the rows.
    at_once: it does so from two threads, and the second call comes at this I/O call of the first one. one_each: its
    batches read one file each.

    first: id of its first checkpoint. place: number of the checkpoint's folder. topic_id: of the topic that the last
    batch was of. begun_before: the id of a checkpoint that was planned for the topic before and of which nobody has
    recorded anything, and where its first batch here begins. asked_of: the topic that was there when its user was asked
    whether it had written before.

    went_back: to its first name, as an error said. given: the options with words that its user has set. taken: rows of
    batches that another program has written with a copy of the checkpoint. adopts_blindly: only its user's word says
    what the batches before its first one have written.
    """

    name: str
    source: Topic | Folder
    options: dict
    checkpoint: Checkpoint
    causes: Causes = field(default_factory=Causes)
    live: "Run | None" = None
    said: Exception | None = None
    said_at: int = 0
    rows_of_job: object = None
    afterwards: str = ""
    version: int = 0
    halves: bool = False
    at_once: int = 0
    topic_id: str = ""
    is_comparable: bool = True
    place: int = 0
    stateful: bool = False
    combines: str = ""
    hides: str = ""
    one_each: bool = False
    begun_before: tuple[str, dict] = ("", MappingProxyType({}))
    asked_of: str = ""
    went_back: bool = False
    given: list[tuple[str, object]] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)
    adopts_blindly: bool = False

    def __post_init__(self):
        self.first = self.checkpoint.query

    def settings(self, root: str, more: Mapping = MappingProxyType({})) -> SinkOptions:
        given = self.options | more | (_WITH_LETTERS if self.letters else {})
        given = {name: value for name, value in given.items() if name not in ("delay", "dead_letters")}
        return SinkOptions.of(root, {**SETTINGS, "application": self.name, **given})

    @property
    def letters(self) -> str | None:
        """The table for its dead letters; None when the option is off."""
        return self.options.get("dead_letters")

    def rows(self, batch_id: int) -> list[int]:
        return self.source.rows(self.checkpoint, batch_id)

    def rows_adopted(self) -> list[int]:
        """The rows of batches that it has adopted, while it has written none under its name since:
        it does not know whether they are in the table."""
        checkpoint, adopted = self.checkpoint, self.options.get("adopt_from_batch", 0) if self.adopts_blindly else 0
        batches = range(len(checkpoint.planned[:adopted])) if adopted and checkpoint.committed <= adopted else ()
        return [row for batch in batches for row in self.rows(batch)]

    @property
    def is_known_by_name(self) -> bool:
        """Whether it has written under its present name.
        A query that loses its name and its checkpoint at once is another query."""
        return not self.causes.knows("renamed")

    @property
    def fingerprint(self) -> QueryFingerprint:
        selected = f"{self.options.get('position_columns')}, {self.options.get('file_column')}"
        return QueryFingerprint(
            type(self.source).__name__, f"version {self.version}", "", selected, "4.1", self.is_comparable
        )


class Waiting(Stepping):
    """Waits while the batch function itself publishes, as a thread would."""

    def __init__(self, step, process: Process, delay: int | None):
        super().__init__(step, process, delay)
        self._process = process

    def _turn(self):
        if self._step.__self__._queue._publishing.locked():
            self._left = 1
        else:
            with self._process.beside():
                super()._turn()


class Rows(NumberedRows):
    """Rows that are computed when they are written, except those that the decision filters."""

    def __init__(
        self,
        run: "Run",
        read: Callable[[], list[int]],
        query: Query | None = None,
        at: tuple[Checkpoint, int] | None = None,
    ):
        """read: returns the rows that the source has for the batch by now.
        at: the checkpoint and the number of the batch."""
        super().__init__(run.driver, run.process.io, run.opened)
        self._run = run
        self._query, self._read, self._parts, self._root = query, read, run.parts, run.driver.root
        self._checkpoint, self._batch_id = at or (None, 0)

    def count(self) -> int:
        return len(self._read())

    def compared(self, published: Committable | None) -> QueryComparison:
        """Compare a bounded run with what is in the files that it has published."""
        if published is None:
            return QueryComparison((), ("the journal does not remember the run's record",))
        there = []
        try:
            for file in published.files:
                with self._io.open_input(os.path.join(self._root, file.final)) as stream:
                    there += pq.ParquetFile(stream).read(["id"], use_threads=False).column("id").to_pylist()
        except OSError:
            return QueryComparison((), ("the files in which they were published are gone",))
        return QueryComparison(() if sorted(there) == sorted(self._read()) else ("the rows in them",), ())

    def looked_at_again(self, batch: Batch) -> Batch:
        """The batch with what the broker says now."""
        if self._query is None or not self._query.source.numeric:
            return batch
        return replace(batch, sources=self._query.source.ranges(self._checkpoint, self._batch_id))

    def _rows(self, batch: Batch, decision) -> pa.RecordBatch:
        return arrow(self._chosen(decision), self._parts)

    def _chosen(self, decision) -> list[int]:
        read = self._read()
        ids = self._new_of(read, decision)
        is_filtered = decision.seen_files or decision.verdict is Verdict.FILTER
        if is_filtered and self._query and self._query.combines and 0 < len(ids) < len(read):
            # When all rows are old nothing is left of them, whatever was made of them.
            raise Wrong("rows made of several are filtered")
        return ids

    def _new_of(self, ids: list[int], decision) -> list[int]:
        if decision.seen_files:
            others = self._query.source.rows_of_others(self._checkpoint, self._batch_id, decision.seen_files)
            return [row for row in ids if row in others]
        if decision.verdict is Verdict.FILTER:
            found = self._query.source.offsets(self._checkpoint, self._batch_id)
            return [
                row
                for topic, part, offset, row in found
                if offset >= decision.below.get(topic, {}).get(part, 0) and row in ids
            ]
        return ids


class RowsWithLetters(Rows):
    """The rows of a query that has dead letters."""

    def write(self, checkpoint, group):
        checkpoint = replace(checkpoint, is_small=self._driver.is_small)
        rows = self._routed(self._chosen(checkpoint.decision))
        return written(self._opened.writing(checkpoint, columns(rows.schema), ()), self._io, rows, group)

    def _routed(self, ids: list[int]) -> pa.RecordBatch:
        return with_bad_ones(ids, self._parts)


class Run:
    """One start of a query in one driver. Its first batch opens it, as under Spark."""

    def __init__(
        self,
        process: Process,
        root: str,
        settings: SinkOptions,
        query_id: str,
        parts: int,
        delay: int | None,
        letters: str | None = None,
    ):
        """letters: the table for dead letters."""
        self.process, self.parts, self._root, self._query_id, self._letters = process, parts, root, query_id, letters
        self.driver = MicroBatchDriver(root, SCHEMA, lambda start, end: None, settings)
        self.driver.background = lambda step: Waiting(step, process, delay)
        self.driver.is_small = process.writes_few()
        self.id = IdSource().new_id()
        self.sink: Driven | None = None
        self.slept = False  # It slept in the work that it did last.

    def open(self, batch_id: int) -> None:
        if self.sink is not None:
            return
        options, fields = self.driver.options, lambda: fields_of(SCHEMA)  # noqa: E731
        if self._letters is None:
            self.opened = open_one(self.process.io, self._root, options, batch_id, fields)
        else:
            routing = Routing.of(
                os.path.dirname(self._root), {TABLE: {}}, options, dead_letters=self._letters, unrouted="fail"
            )
            self.opened = open_with_letters(
                self.process.io,
                routing,
                options,
                (self._query_id, batch_id),
                fields,
                earlier_name=_EARLIER_NAME,
                emit=lambda event: None,
            )
        self.sink = Driven(self.driver, self.process.io, self.opened, self._query_id)

    def _rows(self, *given) -> Rows:
        return (Rows if self._letters is None else RowsWithLetters)(self, *given)

    def batch(self, query: Query, at: tuple[Checkpoint, int], read: Callable[[], list[int]]) -> None:
        """Write a batch of a checkpoint, with those of its rows that are read when it is written.
        An error ends the run."""
        checkpoint, batch_id = at
        self.open(batch_id)
        batch = replace(
            batch_of(query.source, checkpoint, batch_id, self.id, query.fingerprint),
            place=f"folder {query.place}",
            stateful=query.stateful,
            combines="" if query.hides else query.combines,
            may_combine=query.hides,
        )
        self.sink.run.micro_batch(batch, self._rows(read, query, at))

    def batch_in_two(self, query: Query, at: tuple[Checkpoint, int], read: Callable[[], list[int]]) -> None:
        """Write a batch by a function that calls the sink twice, each time with a part of the rows."""
        first, second = (lambda: halves(read())[0]), (lambda: halves(read())[1])

        def background() -> None:
            try:
                with self.process.beside():
                    self.batch(query, at, second)
            except Misuse as refused:
                if refused.kind != "batch.concurrent":
                    raise

        self.open(at[1])  # The sink is opened under a lock, for which the other thread waits.
        if query.at_once:
            self.process.pause_in(query.at_once, background)
        self.batch(query, at, first)
        # This is the second thread, which comes later than at the chosen call; or which waited, as one thread cannot
        # do.
        self.batch(query, at, second)

    def job(self, job: Job) -> None:
        """Write a bounded job's only batch, which is published when this returns."""
        self.open(END_OF_INPUT)
        fingerprint = QueryFingerprint("Files", f"version {job.version}", "", "", "4.1", True)
        batch = Batch(
            END_OF_INPUT,
            job.name,
            job.name,
            fingerprint=fingerprint,
            has_one_count=job.has_one_count,
            inputs=run_inputs.digests(f"{job.files}/{file}" for file in range(2)),
        )
        self.sink.run.micro_batch(batch, self._rows(lambda: job.rows))
        self.sink.run.commit_up_to_checkpoint(END_OF_INPUT)

    def close(self) -> None:
        if self.sink is not None and not self.process.dead:
            self.sink.close()
        self.process.die()
