"""A small lake for the commands, made without Spark: lake/shop.db/orders, with a query whose driver died."""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from streamsink import faults
from streamsink.format.types import DataField, parse_ddl
from streamsink.options import RESTORE_AND_CONTINUE, SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.table.table import create_table, new_schema, open_table
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.many_driver import LettersDriver

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
PUBLISHED = (10, 20, 30)
PENDING = 40


def rows(start: int, end: int) -> pa.RecordBatch:
    numbers = range(start, end)
    return pa.record_batch({"id": list(numbers), "dt": [f"2026-11-{1 + n % 3:02}" for n in numbers]}, schema=SCHEMA)


def driver(root: Path | str, **settings) -> MicroBatchDriver:
    options = SinkOptions(partition_by=("dt",), restore=RESTORE_AND_CONTINUE, **settings)
    return MicroBatchDriver(str(root), SCHEMA, rows, options)


def dying(root, checkpoint: SparkCheckpoint, ends, step: str = "precommit.saved", file_io=None, sink=None, **settings):
    """Run the query up to the last batch, in which its driver dies at this step, and does nothing more.

    file_io: of the store; else the local disk. sink: what it writes to; else the table.
    """
    query = driver(root, **settings)
    if sink is not None:
        query.destination = lambda: sink
    die_in_the_last_batch(query, checkpoint, ends, step, file_io)


def die_in_the_last_batch(query: MicroBatchDriver, checkpoint: SparkCheckpoint, ends, step: str, file_io=None) -> None:
    """As ``dying``, for any query."""
    left = [len(ends) - checkpoint.committed]

    def die(reached: str) -> None:
        left[0] -= reached == step
        if left[0] <= 0:
            raise InjectedCrash

    faults.arm(die)
    try:
        query.run(file_io or local_file_io(False), checkpoint, ends)
    except InjectedCrash:
        return
    finally:
        faults.arm(None)
    raise AssertionError(f"{step} was not reached")


def make_lake(folder: Path) -> Path:
    """Returns the table, which has three snapshots and one record pending."""
    root, checkpoint = folder / "lake" / "shop.db" / "orders", SparkCheckpoint("q1")
    dying(root, checkpoint, [*PUBLISHED, PENDING])
    make_letters(root.parent)
    if importlib.util.find_spec("streamsink.maintenance") is not None:
        maintenance = importlib.import_module("streamsink.maintenance")
        maintenance.create_tag(root, "release-1", 1)
        maintenance.create_branch(root, "work", snapshot_id="latest")
    return root


def make_letters(warehouse: Path) -> None:
    """Of the 12 rows of the table clicks every third one has no ``n``, and is a dead letter in the table rejected."""
    table_of_numbers(warehouse / "clicks")
    run_letters(warehouse, 0, 12)


def table_of_numbers(path: Path) -> None:
    """A table that takes no row without ``n``."""
    create_table(local_file_io(False), str(path), new_schema(parse_ddl("id BIGINT, n BIGINT NOT NULL"), (), {}))


def run_letters(warehouse: Path, done: int, end: int, query: str = "q2", first: int = 0, letters="rejected") -> None:
    """Run the query with the dead letters behind this many batches of 6 rows, up to the row ``end``.

    first: the number of its first row. letters: name of the table for dead letters.
    """
    ends = list(range(6, end + 1, 6))
    driver = letters_driver(warehouse, "clicks", first, letters)
    driver.run(local_file_io(False), SparkCheckpoint(query, ends[:done], done), ends)


def letters_driver(warehouse: Path, table: str, first: int = 0, letters: str = "rejected") -> LettersDriver:
    """The query whose every third row has no ``n``, into this table. first, letters: as of ``run_letters``."""
    settings = SinkOptions.of(str(warehouse / table), {"restore": RESTORE_AND_CONTINUE})
    routing = Routing.of(str(warehouse), {table: {}}, settings, dead_letters=letters, unrouted="fail")
    made = LettersDriver(str(warehouse), _CLICKS, lambda s, e: _clicks(s + first, e + first, table), routing, settings)
    made.earlier_name = f"streamsink-{table}"
    return made


def allow_nulls(path: str, are_allowed: bool = True) -> None:
    """The fix: the column that was NOT NULL takes nulls from now on; or the other way round."""
    _changed(
        path, lambda field: replace(field, type=field.type.as_nullable(are_allowed)) if field.name == "n" else field
    )


def allow_texts(path: str) -> None:
    """Another fix: the column ``n`` holds texts from now on."""
    [text] = parse_ddl("n STRING")
    _changed(path, lambda field: replace(field, type=text.type) if field.name == "n" else field)


def _changed(path: str, change: Callable[[DataField], DataField]) -> None:
    table = open_table(local_file_io(False), path, for_writing=True)
    newest = table.latest_schema()
    table.schemas.add(replace(newest, id=newest.id + 1, fields=tuple(map(change, newest.fields))))


_CLICKS = pa.schema([("id", pa.int64()), ("n", pa.int64()), (ROUTE, pa.string())])


def _clicks(start: int, end: int, table: str) -> pa.RecordBatch:
    numbers = range(start, end)
    columns = {"id": list(numbers), "n": [None if n % 3 == 0 else n for n in numbers], ROUTE: [table] * len(numbers)}
    return pa.record_batch(columns, schema=_CLICKS)
