"""Advice of the error of folders of partitions whose names an option of the table has changed, as Paimon lets anybody:
formerly it was to take the files, which are there, out of the table."""

import dataclasses
import itertools

import pyarrow as pa
import pytest

from streamsink.commands.drop_missing import drop_missing
from streamsink.table.table import open_table
from tests.advice.accidents import refused
from tests.advice.following import follows, told
from tests.crash.giving_up import ENDS
from tests.crash.world import World, die_at_step, expected, memory_world

PLAIN = {"restore": "restore-and-continue"}
ROOT = "/lake/shop.db/orders"
OPTION = "partition.default-name"


def _world(first_null: int = 0) -> World:
    """A world of which each third row from this one on is in the partition of nulls."""
    world, versions = memory_world(**PLAIN), itertools.count()

    def rows(start: int, end: int) -> pa.RecordBatch:
        numbers, version = list(range(start, end)), next(versions)
        parts = ["p" if n % 3 or n < first_null else None for n in numbers]
        columns = {"id": numbers, "part": parts, "version": [version] * len(numbers)}
        return pa.RecordBatch.from_pydict(columns, schema=world.driver.schema)

    world.driver.rows = rows
    return world


def _set(world, value: str) -> None:
    """As ALTER TABLE ... SET of another engine."""
    io = world.file_io(world.calls)
    schema = open_table(io, ROOT, for_writing=False).latest_schema()
    changed = dataclasses.replace(schema, id=schema.id + 1, options={**schema.options, OPTION: value})
    io.create_if_absent(f"{ROOT}/schema/schema-{changed.id}", changed.to_json())


def _set_back(world, said) -> None:
    said.says("With ALTER TABLE", OPTION, "and start again")
    _set(world, said.find(r"set the option back to '([^']+)'"))


@follows("partition.renamed")
def test_the_name_of_the_partition_of_nulls_is_changed_between_two_runs():
    world = _world()
    world.run(boundaries=ENDS[:2])
    _set(world, "nothing")
    said = told("partition.renamed", lambda: world.run(boundaries=ENDS))
    before = sorted(world.calls._names)
    told("partition.renamed", lambda: drop_missing(world.file_io(world.calls), ROOT))
    assert sorted(world.calls._names) == before
    _set_back(world, said)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("partition.renamed")
@pytest.mark.parametrize("step", ["precommit.saved", "commit.placed", "commit.before_publish"])
def test_it_is_changed_while_the_first_rows_of_that_partition_are_pending(step):
    """Readers would look for the record's file in another folder: not even what is published could be read."""
    world = _world(first_null=3)
    world.run(boundaries=ENDS[:1])
    assert die_at_step(step, 1, world, boundaries=ENDS[:2])
    _set(world, "nothing")
    said = refused(world, "partition.renamed", ENDS)
    assert world.ids() == expected(ENDS[:1])
    _set_back(world, said)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("partition.renamed")
def test_it_is_changed_under_the_running_query():
    world = _world()
    world.run(boundaries=ENDS[:1])
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    world.checkpoint.ends = list(ENDS)
    sink.batch(world.driver.describe(world.checkpoint, 1))
    world.checkpoint.committed = 2
    _set(world, "nothing")
    said = told("partition.renamed", lambda: sink.batch(world.driver.describe(world.checkpoint, 2)))
    sink.close()
    _set_back(world, said)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


def test_where_no_partition_has_that_name_the_query_goes_on():
    """Nobody looks for a file elsewhere."""
    world = _world(first_null=6)
    world.run(boundaries=ENDS[:1])
    assert die_at_step("precommit.saved", 1, world, boundaries=ENDS[:2])
    _set(world, "nothing")
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)
    assert any("/part=nothing/" in path for path in world.calls._names)
