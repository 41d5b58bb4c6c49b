"""All that is kept beside the log of a table is lost, and the log still says that somebody has written."""

import shutil
from pathlib import Path

import pytest

from tests.advice.following import follows, told
from tests.delta.test_past import cleaned, others
from tests.delta.world import World


@follows("history.incomplete")
@pytest.mark.parametrize("left", ["entries", "a checkpoint", "one without a hint", "one with an older hint"])
def test_a_new_name_where_all_but_the_log_is_lost_is_asked_for(tmp_path, left):
    """The log has the other name, and nothing says any more how far that came. Without the question the rows that are
    there would come again."""
    world = World(tmp_path)
    world.run(3, 5)
    log = Path(world.path, "_delta_log")
    hint, first = log / "_last_checkpoint", log / f"{0:020}.checkpoint.parquet"
    world.table(0).create_checkpoint()
    older = {path: path.read_bytes() for path in (hint, first)}
    if left != "entries":
        others(world, 100, 103)
        cleaned(world)
    if left == "one without a hint":
        hint.unlink()
    if left == "one with an older hint":  # writers need not write it
        for path, data in older.items():
            path.write_bytes(data)
    shutil.rmtree(f"{world.path}/_streamsink")
    there = world.ids()
    world.forget_checkpoint()
    said = told("history.incomplete", lambda: world.run(3, 5, 9, application="other")).says("Nothing was written")
    assert world.ids() == there
    world.forget_checkpoint()
    world.first = 5  # it begins behind the rows that are here
    word = said.option("new_application")
    world.run(9, application="other", new_application=word)
    assert world.ids() == sorted([*there, *range(5, 9)])
    world.run(9, 12, application="other")
    assert world.ids() == sorted([*there, *range(5, 12)])
