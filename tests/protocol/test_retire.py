"""An application leaves a table on purpose only: never while rows of it are pending or a query holds it."""

import contextlib
import dataclasses

import pytest

from streamsink.clock import IdSource
from streamsink.commands.give_up import give_up
from streamsink.commands.offsets import Wanted, offsets_of
from streamsink.commands.retire import retire
from streamsink.errors import Fenced, Misuse, StreamsinkError
from streamsink.options import SinkOptions
from streamsink.storage.file_io import FileIO
from streamsink.storage.s3 import S3FileIO
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.crash.letters_world import LettersWorld
from tests.crash.many_world import BOUNDARIES, ManyWorld, check_complete
from tests.crash.many_world import ROOT as MANY_ROOT
from tests.crash.s3_worlds import TablesWorld
from tests.crash.world import World, die_at_step, memory_world
from tests.storage.memory_s3 import MemoryS3Calls


def _retire(world, calls=None) -> bool:
    return retire(FileIO(calls or world.calls, IdSource().new_id), world.driver.root, world.driver.options)


def _names(world) -> set[str]:
    table = open_table(FileIO(world.calls, IdSource().new_id), world.driver.root, for_writing=False)
    return set(table.states.read(table.snapshots.latest()).by_application)


def test_the_state_and_the_journal_go_and_the_rows_and_other_applications_stay():
    """What an application otherwise leaves in each snapshot for ever is taken out.
    A second time there is nothing to do."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    other = World(world.calls, world.driver.root, application="other")
    other.run(boundaries=(3,))
    rows = world.ids()
    assert _retire(world) and not _retire(world)
    assert _names(world) == {"other"} and world.ids() == rows
    assert "streamsink" not in FileIO(world.calls, IdSource().new_id).names(f"{world.driver.root}/streamsink")
    other.run(boundaries=(3, 5))
    assert _names(world) == {"other"}


def test_a_retired_name_is_new_again_although_it_was_the_last_one():
    """The snapshot says that no application is there, so older ones that name it do not count."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    assert _retire(world) and _names(world) == set()
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000009")
    world.run(boundaries=(3,))
    assert world.ids() == sorted([*range(6), *range(3)])


def test_pending_rows_are_never_retired():
    """They would be lost. The advice of the error is to publish them first, and it works."""
    world = memory_world(restore="restore-and-continue")
    assert die_at_step("precommit.saved", 2, world, boundaries=(6, 9))
    with pytest.raises(Misuse) as refused:
        _retire(world)
    assert refused.value.kind == "retire.pending"
    world.run(boundaries=(6, 9))
    assert _retire(world) and world.ids() == list(range(9))


@pytest.mark.parametrize(
    "command", [retire, give_up, lambda io, root, given: offsets_of(io, root, given.application, Wanted({}))]
)
def test_a_command_says_that_the_table_is_gone_of_which_there_is_a_journal(command):
    """It was taken for the folder of several tables, and ended with an error of Python's."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    io = FileIO(world.calls, IdSource().new_id)
    root, journal = world.driver.root, f"{world.driver.root}/streamsink/streamsink"
    for folder in ("schema", "snapshot", "manifest"):
        io.delete_tree(f"{root}/{folder}")
    there = io.names(journal)
    told("table.gone", lambda: command(io, root, world.driver.options)).says(
        journal, "Restore the table", ("Nothing was changed")
    )
    assert io.names(journal) == there


def test_an_application_in_use_is_not_retired():
    """The query that holds it goes on."""
    world = memory_world(restore="restore-and-continue")
    sink = world.driver.start(FileIO(CrashingCalls(world.calls), IdSource().new_id), world.checkpoint)
    sink.batch(world.driver.describe(SparkCheckpoint(world.checkpoint.query, [6]), 0))
    with pytest.raises(Fenced) as refused:
        _retire(world)
    assert refused.value.kind == "application.in-use"
    sink.batch(world.driver.describe(SparkCheckpoint(world.checkpoint.query, [6, 9]), 1))
    assert world.ids() == list(range(9))


def test_a_death_at_any_call_is_mended_by_repeating_it():
    """No row comes or goes, and in the end the name is out."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    counted = CrashingCalls(world.calls)
    _retire(world, counted)
    for n in range(1, counted.count + 1):
        world = memory_world(restore="restore-and-continue")
        world.run(boundaries=(6,))
        try:
            _retire(world, CrashingCalls(world.calls, n, Mode.BEFORE))
        except InjectedCrash:
            world.die()
        _retire(world)
        assert _names(world) == set() and world.ids() == list(range(6)), f"death at call {n}"


def _retire_of_all(world) -> bool:
    return retire(world.file_io(), MANY_ROOT, world.driver.options)


def _names_in_all(world) -> set[str]:
    tables = [
        open_table(world.file_io(), f"{MANY_ROOT}/{name}", for_writing=False)
        for name in {table for table, _, _ in world.rows()}
    ]
    return {name for table in tables for name in table.states.read(table.snapshots.latest()).by_application}


def test_a_query_into_several_tables_is_retired_in_each_of_them():
    """Its rows stay, and another query begins under its name."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    rows = world.rows()
    assert _names_in_all(world) == {"streamsink@tables"}
    assert _retire_of_all(world)
    with pytest.raises(Misuse):
        _retire_of_all(world)  # Nothing is left of it by which it could be known.
    assert _names_in_all(world) == set() and world.rows() == rows
    assert world.file_io().names(f"{MANY_ROOT}/streamsink") == []
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000009")
    world.run(boundaries=BOUNDARIES[:1])
    assert len(world.rows()) > len(rows)


def test_pending_rows_of_several_tables_are_never_retired():
    """This holds even when some of the tables have their rows."""
    world = ManyWorld(restore="restore-and-continue")
    assert die_at_step("tables.table_published", 2, world, boundaries=BOUNDARIES)
    with pytest.raises(Misuse) as refused:
        _retire_of_all(world)
    assert refused.value.kind == "retire.pending"
    world.run()
    assert _retire_of_all(world)
    check_complete(world.rows())


def test_a_folder_in_which_nobody_wrote_is_no_table():
    """The error is the one for a table that is not there."""
    world = ManyWorld(restore="restore-and-continue")
    with pytest.raises(Misuse) as refused:
        _retire_of_all(world)
    assert refused.value.kind == "table.missing"


@follows("retire.elsewhere")
def test_one_table_of_several_says_where_its_application_retires():
    """Formerly nothing was done, and nothing was said."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    said = told("retire.elsewhere", lambda: retire(world.file_io(), f"{MANY_ROOT}/more_x", world.driver.options))
    (path, application), _ = said.call("streamsink.retire")
    assert _names_in_all(world) == {"streamsink@tables"}
    assert retire(world.file_io(), path, dataclasses.replace(world.driver.options, application=application))
    assert _names_in_all(world) == set()


@follows("retire.elsewhere")
def test_a_table_for_dead_letters_says_where_its_application_retires():
    world = LettersWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    assert _names_in_all(world) > {"streamsink"}
    options = SinkOptions.of(MANY_ROOT, {})
    said = told("retire.elsewhere", lambda: retire(world.file_io(), f"{MANY_ROOT}/rejected", options))
    (path, application), _ = said.call("streamsink.retire")
    assert retire(world.file_io(), path, dataclasses.replace(options, application=application))
    assert _names_in_all(world) == set()


def test_an_application_whose_journal_is_lost_leaves_each_table_by_itself():
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    world.file_io().delete_tree(f"{MANY_ROOT}/streamsink")
    for name in {table for table, _, _ in world.rows()}:
        path = f"{MANY_ROOT}/{name}"
        assert retire(world.file_io(), path, world.driver.options) and not retire(
            world.file_io(), path, world.driver.options
        )
    assert _names_in_all(world) == set()


@follows("retire.pending")
@pytest.mark.parametrize("make, do", [(ManyWorld, _retire_of_all), (memory_world, _retire)])
def test_a_name_is_not_retired_while_the_first_rows_of_the_next_one_are_pending(make, do):
    """They are published where the table still has what was before them, which nobody could tell after that."""
    world = make(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:1])
    first = world.driver.options
    second = world.driver.options = dataclasses.replace(first, application="second", adopt_from_batch=1)
    assert die_at_step("precommit.saved", 1, world, boundaries=BOUNDARIES)
    world.driver.options = first
    told("retire.pending", lambda: do(world)).says("application 'second'", "Start that query once more")
    world.driver.options = second
    world.run(boundaries=BOUNDARIES)
    world.driver.options = first
    assert do(world)
    world.driver.options = second
    world.run(boundaries=(*BOUNDARIES, 24))


def _s3_world(**settings) -> World:
    root = "s3://bucket/shop.db/orders"
    return World(MemoryS3Calls(), root, make_io=lambda over: S3FileIO(over, IdSource().new_id, root), **settings)


def _give_up_holds(world) -> None:
    """As a host that is cut off does, after a while."""
    if isinstance(world.calls, MemoryCalls):
        world.calls.process_death()
        return
    journal = f"{world.driver.root}/streamsink/streamsink"
    for name in world.file_io(world.calls).names(journal):
        if name.startswith("hold-"):
            world.calls.put(f"{journal}/{name}", b"released")


@pytest.mark.in_turn("sleepers while a name is retired", 2)
@pytest.mark.parametrize(
    ("make_world", "settings", "asked"),
    [
        (memory_world, {}, range(1, 200)),
        (memory_world, {"small": True}, range(1, 200)),
        (_s3_world, {}, range(1, 20)),
        (_s3_world, {"on_rollback": "republish"}, range(1, 20)),
        (TablesWorld, {}, range(70, 90, 3)),
    ],
    ids=["disk", "small", "s3", "s3-republish", "s3-tables"],
)
def test_a_driver_that_slept_while_its_application_was_retired_is_told_so_at_any_call(make_world, settings, asked):
    """It found the folder for its files gone, and ended with an error of Python's. Where one look asks several
    questions, as on S3, it was told of a rollback, or of a record that was removed by hand; over several tables, when
    they were looked at once more, of a rollback. Nothing of its batch is written.

    asked: before which calls; where all would take long, those of the looks."""
    kinds, rows = set(), lambda world: world.rows() if make_world is TablesWorld else world.ids()
    for n in asked:
        world = make_world(**settings)
        world.run(boundaries=(3,))
        world.checkpoint.ends.append(6)
        calls = CrashingCalls(world.calls)
        sleeper = world.driver.start(world.file_io(calls), world.checkpoint)
        before, done, sleeps_at = rows(world), [], calls.count + n

        def retire_it(world=world, calls=calls, done=done, sleeps_at=sleeps_at):
            if calls.count == sleeps_at and not done:
                done.append(False)
                _give_up_holds(world)
                with contextlib.suppress(Misuse):  # the batch is pending by now
                    done[0] = retire(world.file_io(world.calls), world.driver.root, world.driver.options)

        calls.before_call = retire_it
        try:
            sleeper.batch(world.driver.describe(world.checkpoint, 1))
        except StreamsinkError as ended:
            kinds.add(ended.kind)
            assert rows(world) == before, f"retired at call {n}"
            assert ended.kind in ("journal.gone", "writer.fenced"), f"retired at call {n}: {ended}"
            assert ended.kind != "journal.gone" or "retired on purpose" in str(ended)
        finally:
            with contextlib.suppress(StreamsinkError):
                sleeper.close()
        if not done:
            break
    assert "journal.gone" in kinds and bool(done) == (len(asked) < 50)
