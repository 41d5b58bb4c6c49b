"""One query into destinations of several kinds, in one store in memory, and what readers see in each of them."""

import contextlib
import copy
import json
from dataclasses import dataclass

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.options import SinkOptions
from streamsink.sink import FanOut, FileSink, PaimonTable
from streamsink.storage.calls import PosixLikeCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.conformance import SCHEMA
from streamsink.testing.crashing import dies_at
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.memory import MemoryCalls
from tests.crash import tried
from tests.sinks import shown, test_conformance, test_file_sink
from tests.sinks.transactions import Server


@dataclass(frozen=True)
class DurableServer(Server):
    """A server that has what is pre-committed after a power failure as well."""

    def pre_commit(self, transaction, context):
        self._ask(context, "pre_commit")
        path = f"{self.path}/open/{context.name}"
        context.file_io.delete(path)
        context.file_io.create_if_absent(path, json.dumps(transaction["rows"]).encode())


ROOT = "/destination"
ENDS = (3, 5, 5, 9)
ALL = list(range(ENDS[-1]))
# By the kind of a destination: a sink at a path, and the ids that a reader sees there.
KINDS = {
    "files": (FileSink, test_file_sink.rows_of),
    "table": (PaimonTable, test_conformance.rows_of_table),
    "lines": (shown.json_lines, shown.rows_of_lines),
    "own": (shown.plain_files, shown.rows_of),
    "server": (lambda path: DurableServer(path, f"{path} journal"), lambda io, root: _committed(io, root)),
}


def _committed(io: FileIO, root: str) -> list[int]:
    names = io.names(f"{root}/committed")
    return [row for name in names for row in json.loads(io.read(f"{root}/committed/{name}"))]


def fan_out(root: str, *names: str, **options) -> FanOut:
    """A fan-out into destinations of these kinds, each named as its kind and in a folder of that name.

    "kind:folder" is one of that kind in another folder.
    """
    paths = {name: name.partition(":") for name in names}
    sinks = {name: KINDS[kind][0](f"{root}/{folder or kind}") for name, (kind, _, folder) in paths.items()}
    return FanOut(sinks, journal=f"{root}/journal", **options)


def ids_in(file_io: FileIO, root: str, name: str) -> list[int]:
    """What a reader sees in one of these destinations, sorted."""
    kind, _, folder = name.partition(":")
    return sorted(KINDS[kind][1](file_io, f"{root}/{folder or kind}"))


def check_whole(found: list[int], ends=ENDS) -> None:
    """A destination has whole batches only, each row once."""
    assert found == list(range(len(found))) and len(found) in (0, *ends), f"a part of a batch, or rows twice: {found}"


class FanOutWorld:
    """The query. ``make``: the sink of a start, from its path. ``names``: of the destinations whose rows are read."""

    def __init__(self, *names: str, **options):
        self.calls, self.checkpoint, self._versions = MemoryCalls(), SparkCheckpoint("query"), 0
        self.names = names or ("files", "table", "lines")
        self.make = lambda root: fan_out(root, *self.names)
        waits = {"commit_min_wait_ms": 0, "commit_max_wait_ms": 0}
        self.options = {"restore": "restore-and-continue", **waits, **options}
        self.events: list = []

    def io(self, calls: PosixLikeCalls | None = None) -> FileIO:
        return FileIO(calls or self.calls, IdSource().new_id)

    def rows(self, start: int, end: int) -> pa.RecordBatch:
        """Never the same twice, as those of a query that is not deterministic."""
        self._versions += 1
        return pa.RecordBatch.from_pydict(
            {"id": range(start, end), "version": [self._versions] * (end - start)}, schema=SCHEMA
        )

    def run(self, calls: PosixLikeCalls | None = None, ends=ENDS, sink=None, once=False, **options) -> None:
        """sink: another one than the fan-out, as a query that writes to one destination has it. once: the query is not
        restarted after an error that passes."""
        given = SinkOptions.of(ROOT, {**self.options, **options})
        driver = MicroBatchDriver(ROOT, SCHEMA, self.rows, given)
        driver.events = self.events
        driver.destination = lambda: sink or self.make(ROOT)
        start = driver._run_once if once else driver.run
        start(self.io(calls), self.checkpoint, ends)

    def dies_at(self, step: str, occurrence: int = 1, ends=ENDS, **options) -> None:
        """A driver dies there."""
        assert dies_at(step, occurrence, self.calls, lambda calls: self.run(calls, ends, **options)), step
        self.calls.process_death()

    def die(self, power: bool) -> None:
        tried.note()
        self.calls.power_failure() if power else self.calls.process_death()

    def ids(self, name: str) -> list[int]:
        return ids_in(self.io(), ROOT, name)

    def seen(self) -> dict[str, list[int]]:
        return {name: self.ids(name) for name in self.names}

    def ends_right(self, what: str, ends=ENDS) -> None:
        """Every destination has whole batches now, and all of them, each row once and of one computation, when the
        query has come to its end."""
        for found in self.seen().values():
            check_whole(found, ends)
        try:
            self.run(ends=ends)
        except (OSError, StreamsinkError) as failed:
            raise AssertionError(f"after {what} the query cannot go on: {failed}") from failed
        assert self.seen() == dict.fromkeys(self.names, list(range(ends[-1]))), what

    def copy(self) -> "FanOutWorld":
        """The same store and checkpoint once more."""
        with contextlib.suppress(AttributeError):
            other = copy.copy(self)
            other.calls, other.checkpoint = copy.deepcopy(self.calls), copy.deepcopy(self.checkpoint)
        return other


def roll_back(world, name: str) -> None:
    """The destination loses its last record, as a rollback or a restore from a backup does it."""
    io, last = world.io(), {"files": "_commits/streamsink", "own": "commits/streamsink", "table": "snapshot"}[name]
    folder = f"{ROOT}/{name}/{last}"
    newest = max((n for n in io.names(folder) if "LATEST" not in n and "EARLIEST" not in n), key=_number)
    io.delete(f"{folder}/{newest}")
    if name == "table":
        io.replace(f"{folder}/LATEST", str(_number(newest) - 1).encode(), "rolled")


def _number(name: str) -> int:
    return int("".join(letter for letter in name if letter.isdigit()))
