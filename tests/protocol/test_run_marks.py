"""A journal's marks of bounded runs: which of them says that its run is published, and which says nothing."""

import pytest

from streamsink.errors import Misuse
from streamsink.journal.run_marks import Runs
from streamsink.protocol.committable import KnownRun
from tests.crash.world import memory_world
from tests.protocol.bounded_runs import run_job
from tests.protocol.history import expire, io_of, newest_of


@pytest.mark.parametrize("again", [1, 2])
def test_a_mark_that_a_sleeper_makes_in_the_journal_of_another_table_says_nothing(again):
    """Found by a walk: a driver had published its run,
    and slept while the table was dropped with its journal and another run wrote a new one."""
    world = _of_a_sleeper()
    for _ in range(again):
        run_job(world, "monday", (0, 3))
    assert world.ids() == list(range(6))


def test_a_sleeper_takes_no_mark_of_the_table_that_is_there_away():
    """Found by a bred walk:
    the same run had been repeated in the new table, and a late mark of the dropped table let it come a second time."""
    world = memory_world(application="batch", restore="restore-and-continue")
    run_job(world, "monday", (0, 3))
    io, runs = io_of(world), Runs(io_of(world), f"{world.driver.root}/streamsink/batch/runs")
    late = KnownRun.from_json(io.read(f"{world.driver.root}/streamsink/batch/runs/monday"))
    io.delete_tree(world.driver.root)
    for run, rows in (("monday", (0, 3)), ("tuesday", (3, 6))):
        run_job(world, run, rows)
    runs.mark("monday", late)
    run_job(world, "monday", (0, 3))
    assert world.ids() == list(range(6))


def test_a_run_has_a_mark_of_this_table_beside_that_of_a_sleeper():
    """Its record was pruned and its snapshot has expired, so that nothing else says that the run is published."""
    world = _of_a_sleeper(journal_retain=2)
    for run, rows in (("monday", (0, 3)), ("wednesday", (6, 9)), ("thursday", (9, 12)), ("friday", (12, 15))):
        run_job(world, run, rows)
    expire(world, 1, newest_of(world) - 1)
    run_job(world, "monday", (0, 3))
    assert world.ids() == list(range(15))


def _of_a_sleeper(**settings):
    """A driver that had published monday slept;
    its table was dropped and tuesday wrote a new one; then the driver made its mark."""
    world = memory_world(application="batch", restore="restore-and-continue", **settings)
    run_job(world, "monday", (0, 3))
    io, mark = io_of(world), f"{world.driver.root}/streamsink/batch/runs/monday"
    said = io.read(mark)
    io.delete_tree(world.driver.root)
    run_job(world, "tuesday", (3, 6))
    io.write(mark, said)
    return world


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_journal_of_another_past_does_not_say_that_a_run_is_published(is_whole):
    """Found by a walk: its mark was believed although the table had gone back behind the run and was written again.
    is_whole: all of the table's history is there."""
    world = memory_world(application="batch", restore="restore-and-continue", journal_retain=2)
    journal = f"{world.driver.root}/streamsink/batch"
    run_job(world, "monday", (0, 3))
    of_all = _tree(world, world.driver.root)
    run_job(world, "tuesday", (3, 6))
    of_journal = _tree(world, journal)
    _put_back(world, world.driver.root, of_all)
    for run, rows in (("wednesday", (6, 9)), ("thursday", (9, 12))):
        run_job(world, run, rows)
    _put_back(world, journal, of_journal)
    if not is_whole:
        expire(world, 1, newest_of(world) - 1)
        with pytest.raises(Misuse) as asked:
            run_job(world, "tuesday", (3, 6))
        assert asked.value.kind == "run.undecidable"
        return
    run_job(world, "tuesday", (3, 6))
    run_job(world, "monday", (0, 3))
    assert world.ids() == list(range(12))


def _tree(world, folder: str) -> dict[str, bytes]:
    return {path: file.data for path, file in world.calls._names.items() if path.startswith(f"{folder}/")}


def _put_back(world, folder: str, tree: dict[str, bytes]) -> None:
    io_of(world).delete_tree(folder)
    for path, data in tree.items():
        io_of(world).write(path, data)
