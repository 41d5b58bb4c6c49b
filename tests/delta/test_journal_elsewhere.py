"""A journal that lies in another folder than the table, or in another store."""

import os
import shutil

import pytest

from streamsink import faults
from streamsink.delta import DeltaSink
from streamsink.storage.stores import Store
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.advice.following import follows, told
from tests.delta.world import World

_STEPS = ("write.staged", "precommit.saved", "commit.before_publish", "commit.published", "commit.marked")


def world_at(tmp_path, place: str) -> World:
    """Its journal is at this place; <> stands for a folder."""
    world = World(tmp_path)
    world.place = place.replace("<>", str(tmp_path))
    world.sink = DeltaSink(world.path, journal=world.place)
    return world


def run(world, *ends, **options) -> None:
    world.run(*ends, io=Store(world.place).open(), **options)


@pytest.mark.parametrize("step", _STEPS)
@pytest.mark.parametrize("place", ["<>/journals", "sqlite:<>/journals.db"])
def test_whoever_dies_each_row_is_there_once(tmp_path, place, step):
    """Nothing of the journal is in the table's folder, and what a dead attempt has left there goes."""
    world = world_at(tmp_path, place)
    arm(step, 2, crash)
    with pytest.raises(InjectedCrash):
        run(world, 3, 5, 9)
    faults.arm(None)
    run(world, 3, 5, 9)
    assert world.ids() == list(range(9)) and world.unnamed() == set()
    assert os.listdir(f"{world.path}/_streamsink") == ["states"]


@follows("journal.other-destination")
def test_two_tables_whose_journals_lie_in_one_folder(tmp_path):
    """Under different names. One journal is of one table."""
    first = world_at(tmp_path / "first", "<>")
    second = world_at(tmp_path / "second", "<>")
    first.place = second.place = str(tmp_path / "journals")
    for world in (first, second):
        world.sink = DeltaSink(world.path, journal=world.place)
    run(first, 3, 5)
    said = told("journal.other-destination", lambda: run(second, 3, 5)).says("Nothing was written", first.path)
    assert said.message.count("application='...'") == 1
    run(second, 3, 5, application="second")
    run(first, 3, 5, 7)
    assert (first.ids(), second.ids()) == (list(range(7)), list(range(5)))


@follows("application.renamed")
def test_another_name_whose_journal_lies_elsewhere_is_known(tmp_path):
    world = world_at(tmp_path, "<>/journals")
    run(world, 3, 5)
    name = told("application.renamed", lambda: run(world, 3, 5, 7, application="other")).option("application")
    run(world, 3, 5, 7, application=name)
    assert world.ids() == list(range(7))


def test_a_journal_elsewhere_is_lost(tmp_path):
    """The table knows what it has."""
    world = world_at(tmp_path, "<>/journals")
    run(world, 3, 5)
    shutil.rmtree(world.place)
    run(world, 3, 5, 7)
    assert world.ids() == list(range(7))


@follows("table.gone")
@pytest.mark.parametrize("place", ["<>/journals", "<>/table/_streamsink"])
def test_a_table_that_is_gone_is_not_created_anew_for_a_query_with_a_past(tmp_path, place):
    """Its whole folder was moved, with the journal in it or without. A new table would be in its way, and have none of
    its rows."""
    world = world_at(tmp_path, place)
    run(world, 3, 5)
    os.rename(world.path, f"{world.path}-moved")
    said = told("table.gone", lambda: run(world, 3, 5, 9)).says("Nothing was written", "Restore it")
    assert said.option("adopt_from_batch") == 2 and not os.path.exists(f"{world.path}/_delta_log")
    shutil.rmtree(world.path, ignore_errors=True)
    os.rename(f"{world.path}-moved", world.path)
    run(world, 3, 5, 9)
    assert world.ids() == list(range(9))
