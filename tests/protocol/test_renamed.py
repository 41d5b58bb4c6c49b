"""A query that comes back under another name: its rows are here already, under the first one."""

import dataclasses
import re

import pytest

from streamsink.errors import Misuse
from tests.crash.many_world import ManyWorld
from tests.crash.world import World, die_at_step, memory_world


def _renamed(world, name: str, **options) -> World:
    """The same query and checkpoint under another name."""
    other = World(world.calls, world.driver.root, application=name, restore="restore-and-continue", **options)
    other.checkpoint = world.checkpoint
    other._versions = world._versions
    return other


def test_the_error_of_a_renamed_application_names_the_first_name_and_it_works():
    """A11: the error advised adopt_from_batch or a new checkpoint, of which each doubled rows."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    other = _renamed(world, "new-name")
    with pytest.raises(Misuse) as refused:
        other.run(boundaries=(6, 9, 14))
    assert refused.value.kind == "application.renamed"
    assert "application='streamsink'" in str(refused.value) and "'new-name'" in str(refused.value)
    assert world.ids() == list(range(9))
    world.run(boundaries=(6, 9, 14))
    assert world.ids() == list(range(14))


def test_a_renamed_application_may_not_adopt_a_batch_that_is_published():
    """A11: killed before Spark's commit log, renamed, and started with adopt_from_batch as the old error said: 3 doubled."""
    world = memory_world(restore="restore-and-continue")
    assert die_at_step("commit.marked", 2, world, boundaries=(6, 9))
    other = _renamed(world, "new-name", adopt_from_batch=1)
    with pytest.raises(Misuse) as refused:
        other.run(boundaries=(6, 9))
    assert refused.value.kind == "application.renamed"
    assert world.ids() == list(range(9))


def test_a_renamed_application_that_leaves_nothing_behind_may_go_on():
    """The second way that the error names: everything is published under the first name, and the next batch is adopted."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    other = _renamed(world, "new-name")
    with pytest.raises(Misuse, match="adopt_from_batch=2"):
        other.run(boundaries=(6, 9, 14))
    other.driver.options = dataclasses.replace(other.driver.options, adopt_from_batch=2)
    other.run(boundaries=(6, 9, 14))
    assert world.ids() == list(range(14))


def test_two_sinks_of_one_query_under_two_names_are_not_renamed():
    """The way on of a sink that was called twice: both begin with batch 0 of the same query."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    other = _renamed(world, "second")
    other.checkpoint = dataclasses.replace(world.checkpoint, ends=[], committed=0)
    other.run(boundaries=(6,))
    assert world.ids() == sorted([*range(6), *range(6)])


def test_a_second_sink_that_joins_a_running_query_is_let_in_by_the_token():
    """The advice of `batch.twice` is a second sink in the same function, and the query is past batch 0 by then."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    other = _renamed(world, "second")
    with pytest.raises(Misuse) as refused:
        other.run(boundaries=(6, 9, 14))
    token = re.search(r"second sink in the same batch function, set accept_as_new='(\w+)'", str(refused.value))[1]
    other.driver.options = dataclasses.replace(other.driver.options, accept_as_new=token)
    other.run(boundaries=(6, 9, 14, 16))
    assert world.ids() == list(range(16)), "the first sink has written 0 to 8, and the second one goes on where it joined"


def test_a_query_that_moves_to_several_tables_is_told_its_first_name():
    """A11: to_tables takes another name in silence, and the table knows the query under the first one."""
    many = ManyWorld(application="streamsink-a")
    single = World(many.calls, f"{many.root}/a", restore="restore-and-continue")
    single.run(boundaries=(6, 9))
    many.checkpoint = dataclasses.replace(single.checkpoint, ends=[6, 9], committed=2)
    with pytest.raises(Misuse) as refused:
        many.run(boundaries=(6, 9, 14))
    assert refused.value.kind == "application.renamed" and "application='streamsink'" in str(refused.value)
