"""A table that is replaced in the instant between the look at it and the commit."""

import os
import shutil

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.advice.following import follows, told
from tests.delta.world import DeltaOnDisk, LogOnDisk, World, rows


def replaced_under(commit: int, world: World, *numbers: int):
    """A sink. Right before this commit somebody drops the table, and creates one with a version for each of these
    numbers."""
    left = [commit]

    class Log(LogOnDisk):
        def commit(self, *given):
            left[0] -= 1
            if not left[0]:
                shutil.move(f"{world.path}/_delta_log", f"{world.path}/moved")
                for number in numbers:
                    write_deltalake(world.path, pa.Table.from_batches([rows(number, number + 1)]), mode="append")
            super().commit(*given)

    return DeltaOnDisk(world.path, disk=world.path, make=Log)


def test_a_commit_behind_a_shorter_log_is_refused_by_deltalake(tmp_path):
    """It would have a hole."""
    world = World(tmp_path)
    world.run(3, 5)
    told("publish.unknown", lambda: world.run(3, 5, 9, sink=replaced_under(1, world, 100)))
    assert world.ids() == [100]
    told("table.recreated", lambda: world.run(3, 5, 9)).says("Nothing was written")


@follows("delta.replaced")
@pytest.mark.parametrize("way", ["remove", "restore"])
def test_a_table_that_is_replaced_under_a_commit_is_noticed(tmp_path, way):
    """The commit is made for a version, whatever is before it. Else the record would count as published."""
    world, there = World(tmp_path), (100, 101, 102)
    world.run(3, 5)
    said = told("delta.replaced", lambda: world.run(3, 5, 9, sink=replaced_under(1, world, *there)))
    file = said.says("dropped and created again", "the record is safe").find(r"Remove the file (\S+),")
    if way == "remove":
        os.remove(file)
        assert world.ids() == list(there)
        told("table.recreated", lambda: world.run(3, 5, 9)).says("Nothing was written")
        return
    shutil.rmtree(f"{world.path}/_delta_log")
    shutil.move(f"{world.path}/moved", f"{world.path}/_delta_log")
    world.run(3, 5, 9)
    assert world.ids() == list(range(9))
