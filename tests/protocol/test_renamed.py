"""A query that comes back under another name: its rows are here already, under the first one."""

import dataclasses
import re

import pytest

from streamsink.errors import Misuse
from streamsink.format.snapshot import Snapshot
from streamsink.table.application_states import HISTORY
from streamsink.table.table import open_table
from tests.crash.many_world import ManyWorld
from tests.crash.world import World, die_at_step, memory_world
from tests.protocol.history import drop_states, expire, io_of, mine_of, newest_of, other_application, roll_back, say_new
from tests.table.foreign import Prepared


def _renamed(world, name: str, **options) -> World:
    """The same query and checkpoint under another name."""
    other = World(world.calls, world.driver.root, application=name, restore="restore-and-continue", **options)
    other.checkpoint = world.checkpoint
    other._versions = world._versions
    return other


def _second_sink(world) -> World:
    """A second sink, which the same batch function calls beside the first one; it has written batch 0."""
    second = _renamed(world, "second")
    second.driver.other_sinks = frozenset({"streamsink"})
    second.checkpoint = dataclasses.replace(world.checkpoint, ends=[], committed=0)
    second.run(boundaries=(6,))
    return second


def test_the_error_of_a_renamed_application_names_the_first_name_and_it_works():
    """A11: formerly the error advised adopt_from_batch or a new checkpoint, and each of them doubled rows."""
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
    """A11: the driver was killed before Spark's commit log, and the query was renamed and started with
    adopt_from_batch, as the old error said: 3 rows were doubled."""
    world = memory_world(restore="restore-and-continue")
    assert die_at_step("commit.marked", 2, world, boundaries=(6, 9))
    other = _renamed(world, "new-name", adopt_from_batch=1)
    with pytest.raises(Misuse) as refused:
        other.run(boundaries=(6, 9))
    assert refused.value.kind == "application.renamed"
    assert world.ids() == list(range(9))


def test_a_renamed_application_that_leaves_nothing_behind_may_go_on():
    """This is the second way that the error names:
    everything is published under the first name, and the next batch is adopted."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    other = _renamed(world, "new-name")
    with pytest.raises(Misuse, match="adopt_from_batch=2"):
        other.run(boundaries=(6, 9, 14))
    other.driver.options = dataclasses.replace(other.driver.options, adopt_from_batch=2)
    other.run(boundaries=(6, 9, 14))
    assert world.ids() == list(range(14))


def test_two_sinks_of_one_query_under_two_names_are_not_renamed():
    """This is the way on of a sink that was called twice:
    both begin with batch 0 of the same query, and either may be a batch ahead after a kill."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    other = _second_sink(world)
    world.run(boundaries=(6, 9))
    other.run(boundaries=(6, 9))
    assert world.ids() == sorted([*range(9), *range(9)])


@pytest.mark.parametrize("numeric", [True, False])
@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("step", ["commit.published", "commit.marked"])
def test_a_query_that_is_renamed_while_its_last_batch_is_to_be_repeated(step, number, numeric):
    """The driver was killed before Spark's commit log. Formerly batch 0 was written a second time under the new name,
    and a later batch had no way on."""
    ends = (6, 9, 12, 14, 20)
    world = memory_world(numeric=numeric, restore="restore-and-continue")
    assert die_at_step(step, number + 1, world, boundaries=ends)
    assert world.checkpoint.committed == number
    other = _renamed(world, "new-name", numeric=numeric)
    before = world.ids()
    with pytest.raises(Misuse) as refused:
        other.run(boundaries=ends)
    assert refused.value.kind == "application.renamed" and world.ids() == before
    adopt = int(re.search(r"set adopt_from_batch=(\d+)", str(refused.value))[1])
    assert adopt == number + 1
    other.driver.options = dataclasses.replace(other.driver.options, adopt_from_batch=adopt)
    other.run(boundaries=ends)
    other.run(boundaries=(*ends, 22))
    assert world.ids() == list(range(22))


@pytest.mark.parametrize("number", [0, 2])
def test_a_batch_that_is_pending_under_the_first_name_is_not_left_behind(number):
    """Under the new name nobody would ever publish it."""
    ends = (6, 9, 14, 20)
    world = memory_world(restore="restore-and-continue")
    assert die_at_step("precommit.saved", number + 1, world, boundaries=ends)
    for adopt in (number, number + 1):
        other = _renamed(world, "new-name", adopt_from_batch=adopt)
        with pytest.raises(Misuse, match="recorded and not published yet") as refused:
            other.run(boundaries=ends)
        assert refused.value.kind == "application.renamed" and world.checkpoint.committed == number
    world.driver.start(world.file_io(world.calls), world.checkpoint).close()
    other.run(boundaries=ends)
    assert world.ids() == list(range(20))


def test_a_batch_that_is_planned_anew_is_not_the_one_of_the_first_name():
    """Its offsets were deleted with the newest files of the checkpoint, so that it has other rows."""
    world = memory_world(restore="restore-and-continue")
    assert die_at_step("commit.marked", 2, world, boundaries=(6, 9))
    other = _renamed(world, "new-name", adopt_from_batch=2)
    other.checkpoint.ends[1] = 12
    with pytest.raises(Misuse) as refused:
        other.run(boundaries=(6, 12))
    assert refused.value.kind == "application.renamed" and world.ids() == list(range(9))


@pytest.mark.parametrize("numeric", [True, False])
@pytest.mark.parametrize("dies", [True, False])
def test_a_name_that_is_taken_back(dies, numeric):
    """The first name's record is behind what was published under the second name, whose last batch may come again."""
    ends = (6, 9, 12, 14, 20)
    world = memory_world(numeric=numeric, restore="restore-and-continue")
    world.run(boundaries=ends[:2])
    other = _renamed(world, "new-name", numeric=numeric, adopt_from_batch=2)
    if dies:
        assert die_at_step("commit.marked", 1, other, boundaries=ends[:3])
    else:
        other.run(boundaries=ends[:3])
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=ends)
    assert refused.value.kind == "application.renamed" and "application='new-name'" in str(refused.value)
    assert world.ids() == list(range(12))
    world.driver.options = dataclasses.replace(world.driver.options, adopt_from_batch=3)
    for _ in range(2):
        world.run(boundaries=ends)
    assert world.ids() == list(range(20))


def test_of_several_earlier_names_the_newest_counts():
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    _renamed(world, "a-second", adopt_from_batch=2).run(boundaries=(6, 9, 12))
    with pytest.raises(Misuse, match="application='a-second'"):
        _renamed(world, "third", adopt_from_batch=2).run(boundaries=(6, 9, 12, 14))
    _renamed(world, "third", adopt_from_batch=3).run(boundaries=(6, 9, 12, 14))
    assert world.ids() == list(range(14))


def test_of_two_sinks_of_one_function_the_one_that_is_renamed_is_told_both_names():
    """Found by a walk: it was told to take the other sink's name."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    _second_sink(world)
    said = _is_told_that_it_is_renamed(world, (6, 9))
    assert "under the names 'streamsink', up to batch 0, and 'second', up to batch 0; now" in said
    assert "Set application to the one of these names that this sink had to go on" in said


def _is_told_that_it_is_renamed(world, boundaries, **options) -> str:
    with pytest.raises(Misuse) as refused:
        _go(world, boundaries, options)
    assert refused.value.kind == "application.renamed"
    return str(refused.value)


def _go(world, boundaries, options) -> None:
    other = _renamed(world, "new-name", **options)
    say_new(other, lambda: other.run(boundaries=boundaries))


def test_the_mark_of_a_first_name_tells_when_its_snapshots_have_expired():
    """Only the journal still knows the name."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    Prepared(world).rename()
    expire(world, 1, newest_of(world) - 1)
    drop_states(world)
    assert "set adopt_from_batch=2" in _is_told_that_it_is_renamed(world, (6, 9, 14))
    _go(world, (6, 9, 14), {"adopt_from_batch": 2})
    assert mine_of(world) == list(range(14))


def _others_take_the_place(world) -> None:
    """Others write in the place of what was rolled back, and the snapshots there have expired."""
    for name in ("one", "two"):
        other_application(world, name)
    expire(world, 1, newest_of(world) - 1)


@pytest.mark.parametrize("others_came", [True, False])
@pytest.mark.parametrize("is_whole", [True, False])
def test_what_was_rolled_back_is_not_published_under_the_first_name(is_whole, others_came):
    """Its mark outlives it, and a start under the first name finds out.
    is_whole: whether all of the table's history was there before."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    roll_back(world, 1)
    if not is_whole:
        path = f"{world.driver.root}/snapshot/snapshot-1"
        newest = Snapshot.from_json(io_of(world).read(path), path)
        io_of(world).replace(
            path,
            dataclasses.replace(newest, properties={**newest.properties, HISTORY: "incomplete"}).to_json(),
            "incomplete",
        )
    if others_came:
        _others_take_the_place(world)
    assert "first start the query once more" in _is_told_that_it_is_renamed(world, (6, 9, 14), adopt_from_batch=2)
    assert mine_of(world) == list(range(6))


@pytest.mark.parametrize("pending", [False, True])
def test_a_rollback_past_the_first_name_is_not_mended_by_the_second_one(pending):
    """Found by a walk: the second name's records were published again,
    and what the first name had written after that snapshot was lost in silence."""
    ends = (6, 9, 14)
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=ends[:2])
    other = _renamed(world, "new-name", adopt_from_batch=2, on_rollback="republish")
    if pending:
        assert die_at_step("precommit.saved", 1, other, boundaries=ends)
    else:
        other.run(boundaries=ends)
        roll_back(world, 2)
    roll_back(world, 1)
    with pytest.raises(Misuse, match="goes on from record 2 of 'streamsink'") as refused:
        other.run(boundaries=(*ends, 20))
    assert refused.value.kind == "table.rolled-back-too-far" and world.ids() == list(range(6))


@pytest.mark.parametrize("every", [1, 3])
def test_a_rollback_past_the_first_name_under_a_running_query(every):
    """Found by a walk:
    pending records were published, in silence, in a table that had lost what was written under the first name."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    other = _renamed(world, "new-name", adopt_from_batch=2, publish_every_batches=every)
    rows = other.driver.rows

    def rolled_back_meanwhile(start: int, end: int):
        if start == (9 if every == 1 else 14):
            roll_back(world, 1)
        return rows(start, end)

    other.driver.rows = rolled_back_meanwhile
    with pytest.raises(Misuse, match="goes on from record 2 of 'streamsink'") as refused:
        other.run(boundaries=(6, 9, 14, 20, 23))
    assert refused.value.kind == "table.rolled-back-too-far" and world.ids() == list(range(6))


def test_a_rollback_behind_the_first_name_is_mended_by_the_second_one():
    """Everything that went with it is in the second name's journal."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    other = _renamed(world, "new-name", adopt_from_batch=2, on_rollback="republish")
    other.run(boundaries=(6, 9, 14))
    roll_back(world, 2)
    other.run(boundaries=(6, 9, 14, 20))
    assert world.ids() == list(range(20))


@pytest.mark.parametrize("accident", ["rolled back", "recreated", "recreated, and expired"])
def test_what_the_table_has_nothing_of_is_not_published_under_the_first_name(accident):
    """Found by a walk: the mark counted although all of the table's history is there, or the table is another one.
    The batch was skipped."""
    world = memory_world(restore="restore-and-continue")
    root = world.driver.root
    if accident == "rolled back":
        other_application(world, "other")
    world.run(boundaries=(6,))
    world.checkpoint.committed = 0
    if accident == "rolled back":
        roll_back(world, 1)
        _others_take_the_place(world)
    else:
        of_before = open_table(io_of(world), root, for_writing=False).latest_schema()
        for entry in io_of(world).entries(root):
            if entry.name not in ("streamsink", "schema"):
                io_of(world).delete_tree(f"{root}/{entry.name}")
        another = dataclasses.replace(of_before, options={**of_before.options, "owner": "somebody else"})
        io_of(world).replace(f"{root}/schema/schema-0", another.to_json(), "another")
    if accident == "recreated, and expired":
        other_application(world, "other").run(boundaries=(3, 5))
        expire(world, 1, 1)
        drop_states(world)
    assert "first start the query once more" in _is_told_that_it_is_renamed(world, (6, 9), adopt_from_batch=1)
    assert mine_of(world) == []


def test_a_second_sink_that_joins_a_running_query_is_let_in_by_the_token():
    """The advice of `batch.twice` is a second sink in the same function, and the query is past batch 0 by then."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    other = _renamed(world, "second")
    other.driver.other_sinks = frozenset({"streamsink"})
    with pytest.raises(Misuse) as refused:
        other.run(boundaries=(6, 9, 14))
    token = re.search(r"second sink in the same batch function, set accept_as_new='(\w+)'", str(refused.value))[1]
    other.driver.options = dataclasses.replace(other.driver.options, accept_as_new=token)
    other.run(boundaries=(6, 9, 14, 16))
    assert world.ids() == list(range(16)), (
        "the first sink has written 0 to 8, and the second one goes on where it joined"
    )


def test_the_word_for_one_sink_of_a_batch_function_does_not_answer_for_another_one():
    """Both sinks write one table, and get their options from one place. Only the second one is new: formerly the third
    one, which is the first one under another name, was let in by its word and wrote its rows a second time."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    second, third = _renamed(world, "second"), _renamed(world, "third")
    second.driver.other_sinks = frozenset({"streamsink"})
    with pytest.raises(Misuse) as refused:
        second.run(boundaries=(6, 9, 14))
    token = re.search(r"second sink in the same batch function, set accept_as_new='(\w+)'", str(refused.value))[1]
    third.driver.options = dataclasses.replace(third.driver.options, accept_as_new=token)
    with pytest.raises(Misuse) as refused:
        third.run(boundaries=(6, 9, 14))
    assert refused.value.kind == "application.renamed" and world.ids() == list(range(9))


def test_a_query_that_moves_to_several_tables_is_told_its_first_name():
    """A11: to_tables takes another name in silence, and the table knows the query under the first one."""
    many = ManyWorld(application="streamsink-a")
    single = World(many.calls, f"{many.root}/a", restore="restore-and-continue")
    single.run(boundaries=(6, 9))
    many.checkpoint = dataclasses.replace(single.checkpoint, ends=[6, 9], committed=2)
    with pytest.raises(Misuse) as refused:
        many.run(boundaries=(6, 9, 14))
    assert refused.value.kind == "application.renamed" and "application='streamsink'" in str(refused.value)
