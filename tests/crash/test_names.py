"""Partition values whose folders no store can name: an error before the record, and the query goes on without such
rows.
"""

import pyarrow as pa
import pytest

from streamsink.errors import Misuse
from streamsink.table.read.scan import read_arrow
from tests.crash.many_world import ManyWorld
from tests.crash.world import SCHEMA, World
from tests.storage.back_ends import ALL, back_end

# Escaped, each makes a folder's name of more than 255 bytes; the last one a path of more than 1,024.
LONG = {"letters": "a" * 300, "emoji": "\N{GRINNING FACE}" * 70, "slashes": "/" * 90}
LONG_KEYS = {"letters": "a" * 1_000, "slashes": "/" * 330}
TOO_LONG = {"local": LONG, "memory": LONG, "hdfs": LONG, "s3": LONG_KEYS, "memory-s3": LONG_KEYS}
# The longest that each takes: ``part=`` and 250 letters make 255 bytes.
FITS = {
    "local": "a" * 250,
    "memory": "\N{GRINNING FACE}" * 62,
    "hdfs": "/" * 83,
    "s3": "/" * 85,
    "memory-s3": "a" * 700,
}


def _world(kind, request, **options) -> World:
    made = back_end(kind, request)
    return World(made.calls, f"{made.root}/shop.db/orders", make_io=made.io, **options)


def _rows(world, part, bad):
    """Rows whose partition is ``part`` for the numbers in ``bad``."""

    def rows(start, end):
        numbers = range(start, end)
        return pa.RecordBatch.from_pydict(
            {"id": list(numbers), "part": [part if n in bad else "x" for n in numbers], "version": [0] * len(numbers)},
            schema=SCHEMA,
        )

    world.driver.rows = rows


def _records(world) -> list[str]:
    io = world.file_io(world.calls)
    return [n for n in io.names(f"{world.driver.root}/streamsink/streamsink") if n.startswith(("record-", ".record-"))]


@pytest.mark.in_turn("values that name no folder", 8)
@pytest.mark.parametrize("kind, value", [(kind, value) for kind in ALL for value in TOO_LONG[kind]])
def test_a_value_that_no_folder_can_be_named_by_is_an_error_before_the_record(kind, value, request):
    """It names the column and the limit, not the value; without the row the same batch goes on, each row once."""
    world = _world(kind, request)
    world.run(boundaries=(2,))
    text = TOO_LONG[kind][value]
    _rows(world, text, {3})
    for _ in range(2):  # and so it is after a restart
        with pytest.raises(Misuse) as refused:
            world.run(boundaries=(2, 6))
        assert refused.value.kind == "partition.name-too-long"
        assert (
            "column 'part'" in str(refused.value)
            and world.driver.root in str(refused.value)
            and text[:20] not in str(refused.value)
        )
        assert ("1024" if kind.endswith("s3") else "255") in str(refused.value)
        assert len(_records(world)) == 1, "a record names a file that can never get its name"
    _rows(world, "y", {3})
    world.run(boundaries=(2, 6, 8))
    assert world.ids() == list(range(8))
    assert world.unknown_files() == []


@pytest.mark.parametrize("kind", ALL)
def test_the_longest_value_that_a_store_takes_is_written(kind, request):
    """No false alarm at the limit."""
    world = _world(kind, request)
    _rows(world, FITS[kind], {1, 2})
    world.run(boundaries=(4,))
    assert world.ids() == [0, 1, 2, 3]


@pytest.mark.parametrize("value", LONG)
def test_such_a_row_is_a_dead_letter(value):
    """The others of its batch are in their tables, and no table stops."""
    world = ManyWorld()
    given = world._rows

    def rows(start, end):
        batch = given(start, end)
        parts = [LONG[value] if n % 5 == 0 else p for n, p in zip(range(start, end), batch.column("part").to_pylist())]
        return batch.set_column(1, "part", pa.array(parts, pa.string()))

    world.driver.rows = rows
    world.run()
    found = world.rows()
    assert sorted(number for _, number, _ in found) == list(range(18)) and world.unknown_files() == []
    assert not any(name == "a" and number % 5 == 0 for name, number, _ in found)
    letters = [
        row
        for row in read_arrow(world.table("rejected")).to_pylist()
        if row["reason"].startswith("partition.name-too-long")
    ]
    assert letters and {(row["target"], row["column"]) for row in letters} == {("a", "part")}
    assert not any(LONG[value][:20] in row["reason"] for row in letters)
