"""Copies of tables and journals share their ids: what they may expect (docs/PROTOCOL.md, "Copies")."""

import copy
import shutil
from pathlib import Path

import pytest

from streamsink.errors import Misuse
from streamsink.testing.driver import SparkCheckpoint
from tests.crash.world import World, die_at_step, posix_world


@pytest.fixture
def world(tmp_path) -> World:
    """Two checkpoints are published, and a third one is pending."""
    world = posix_world(tmp_path, restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9, 14))
    return world


def _copied(world, journal: bool = True) -> World:
    """A copy of the table at another path, and a query with a copy of the checkpoint that writes it."""
    target = Path(world.driver.root).parent / "copy"
    shutil.copytree(world.driver.root, target, ignore=None if journal else shutil.ignore_patterns("streamsink"))
    made = World(world.calls, str(target), restore="restore-and-continue")
    made.checkpoint = SparkCheckpoint(world.checkpoint.query, list(world.checkpoint.ends), world.checkpoint.committed)
    return made


def test_a_table_copied_with_its_journal_and_checkpoint_goes_on_like_the_first(world):
    """What was pending is published once in each of the two tables, and neither knows of the other."""
    copied = _copied(world)
    for each in (copied, world):
        each.run(boundaries=(6, 9, 14, 20))
        assert each.ids() == list(range(20)) and each.unknown_files() == []


def test_a_table_copied_without_its_journal_lacks_what_was_pending_and_reads_it_again(world):
    """The query replays the batch, which the copy does not know. The new journal says that it began later."""
    copied = _copied(world, journal=False)
    copied.run(boundaries=(6, 9, 14, 20))
    assert copied.ids() == list(range(20))


def test_a_copy_that_lags_behind_its_query_is_a_gap_and_never_a_loss(world):
    """The query went on over the first table, so that its next batch does not follow what the copy has."""
    copied = _copied(world)
    world.run(boundaries=(6, 9, 14, 20))
    copied.checkpoint = world.checkpoint
    with pytest.raises(Misuse) as refused:
        copied.run(boundaries=(6, 9, 14, 20, 25))
    assert refused.value.kind == "positions.gap" and copied.ids() == list(range(14))


def test_the_journal_of_another_table_is_refused(world):
    """The ids tell: records of one table are never published into another one."""
    other = posix_world(Path(world.driver.root).parent.parent / "elsewhere", restore="restore-and-continue")
    other.run(boundaries=(3,))
    shutil.rmtree(f"{other.driver.root}/streamsink")
    shutil.copytree(f"{world.driver.root}/streamsink", f"{other.driver.root}/streamsink")
    with pytest.raises(Misuse) as refused:
        other.run(boundaries=(3, 5))
    assert refused.value.kind == "journal.other" and other.ids() == [0, 1, 2]
    shutil.rmtree(f"{other.driver.root}/streamsink")  # This is the advice: remove it, and restart the query.
    other.run(boundaries=(3, 5))
    assert other.ids() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("died", ["precommit.saved", "commit.published"])
def test_a_journal_that_has_gone_on_in_another_way_is_refused(world, died):
    """Everything was restored from a backup and went on with another batch; then the earlier journal came back.
    The ids are the same."""
    root, kept = Path(world.driver.root), Path(world.driver.root).parent / "kept"
    shutil.copytree(root, kept / "all")
    restored = copy.deepcopy(world.checkpoint)
    assert die_at_step(died, 2, world, boundaries=(6, 9, 14, 20, 30))
    shutil.copytree(root / "streamsink", kept / "journal")
    shutil.rmtree(root)
    shutil.copytree(kept / "all", root)
    world.checkpoint = restored
    world.run(boundaries=(6, 9, 14, 17))
    shutil.rmtree(root / "streamsink")
    shutil.copytree(kept / "journal", root / "streamsink")
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9, 14, 17, 23))
    assert refused.value.kind == "journal.other" and world.ids() == list(range(17))
    shutil.rmtree(root / "streamsink")  # This is the advice: remove it, and restart the query.
    world.run(boundaries=(6, 9, 14, 17, 23))
    assert world.ids() == list(range(23))


def test_an_older_copy_of_the_journal_gets_a_new_identity(world):
    """It was put back from a backup.
    The table knows more records than it does, so it may not answer for the runs between."""
    backup = Path(world.driver.root).parent / "backup"
    shutil.copytree(f"{world.driver.root}/streamsink", backup)
    world.run(boundaries=(6, 9, 14, 20))
    shutil.rmtree(f"{world.driver.root}/streamsink")
    shutil.copytree(backup, f"{world.driver.root}/streamsink")
    world.run(boundaries=(6, 9, 14, 20, 25))
    assert world.ids() == list(range(25))
    assert Path(world.driver.root, "streamsink/streamsink/journal-2").exists()


def test_a_running_query_finds_that_the_table_and_its_journal_went_on_in_different_ways(world):
    """Under the query the table was put back from the copy, whose record of the same number is another one.
    A start says so, and so does a batch."""
    copied, root = _copied(world), Path(world.driver.root)
    world.run(boundaries=(6, 9, 14, 20))
    copied.run(boundaries=(6, 9, 14, 20))
    world.checkpoint.ends.append(25)
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    for folder in ("snapshot", "manifest"):
        shutil.rmtree(root / folder)
    shutil.copytree(copied.driver.root, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("streamsink"))
    before = world.ids()
    try:
        with pytest.raises(Misuse) as refused:
            sink.batch(world.driver.describe(world.checkpoint, 4))
    finally:
        sink.close()
    assert refused.value.kind == "journal.other" and world.ids() == before
