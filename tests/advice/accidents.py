"""What tests of advice share:
a query without Spark, the accidents that befall it, and what a user does with the words of an error."""

import copy
import dataclasses
import json

import pyarrow as pa
import pytest

from streamsink.commands.offsets import Wanted, offsets_of
from streamsink.errors import StreamsinkError
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.following import Advice, advice
from tests.crash.giving_up import run_from
from tests.crash.world import World

SECOND, THIRD = (f"00000000-0000-0000-0000-00000000000{n}" for n in (2, 3))
POSITIONS = ("topic", "partition", "offset")
_EARLIEST = -2


def refused(world, kind: str, ends, run=None) -> Advice:
    """The advice of the error of this kind, with which the run must stop.
    The table's rows must be the same before and after."""
    before = world.ids()
    with pytest.raises(StreamsinkError) as told:
        run() if run else world.run(boundaries=ends)
    said = advice(told.value, kind)
    assert world.driver.root in said.message, "the table is not named"
    assert world.ids() == before, "something was published"
    return said


def accept(world, **options) -> None:
    """Set options of the query."""
    world.driver.options = dataclasses.replace(world.driver.options, **options)


def lose_checkpoint(world, query: str = SECOND) -> None:
    """The query's checkpoint is lost, and a new one takes its place."""
    world.checkpoint = SparkCheckpoint(query)


def starting_offset(world, said: Advice) -> int:
    """The offset that the call of ``streamsink.starting_offsets`` in the error's message returns for the only
    partition, as a broker takes it."""
    (path,), given = said.call("streamsink.starting_offsets")
    assert path == world.driver.root
    application = given.pop("application", "streamsink")
    at = json.loads(offsets_of(world.file_io(world.calls), path, application, Wanted(**given)))["t"]["0"]
    return (world.driver.earliest or 0) if at == _EARLIEST else at


def start_over(world, start: int, ends, query: str = SECOND) -> None:
    """Start a new checkpoint with startingOffsets=start, where its first batch then begins."""
    lose_checkpoint(world, query)
    run_from(world, start, ends)


def other_rows(rows: pa.RecordBatch, by: int = 1000) -> pa.RecordBatch:
    """The same rows with other ids, as messages of another topic or of another source have them."""
    return rows.set_column(0, "id", pa.array([i + by for i in rows.column("id").to_pylist()], pa.int64()))


def renew_topic(world, **change) -> None:
    """From now on each message is another one.
    change: attributes of the driver that change with it, such as the topic's id."""
    rows = world.driver.rows
    for name, value in change.items():
        setattr(world.driver, name, value)
    world.driver.rows = lambda start, end: other_rows(rows(start, end))


def stopped_by(world, ends) -> str | None:
    """The kind of the error that stops a run, which may have published batches before;
    None when the run reached its end."""
    try:
        world.run(boundaries=ends)
    except StreamsinkError as told:
        return told.kind
    return None


def copy_of(world: World, **options) -> World:
    """A world over a copy of the same store, so that both ways on can be tried after one accident."""
    other = copy.deepcopy(world)
    accept(other, **options)
    return other


def take(world, path: str) -> bytes:
    """Remove a file and return what was in it."""
    io = world.file_io(world.calls)
    data = io.read(path)
    io.delete(path)
    return data


def damage(world, path: str, data: bytes = b"torn") -> bytes:
    """Overwrite a file in its place and return what was in it."""
    file = world.calls._names[path]
    file.data, whole = data, file.data
    return whole


def put_back(world, path: str, data: bytes) -> None:
    """Restore a file from a backup, over whatever is there."""
    if path in world.calls._names:
        damage(world, path, data)
    else:
        world.file_io(world.calls).write(path, data)
