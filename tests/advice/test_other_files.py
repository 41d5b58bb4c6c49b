"""Advice of errors about files that another checkpoint has read:
old and new ones, moved ones, and ones without their times."""

import dataclasses

import pytest

from tests.advice.accidents import SECOND, THIRD, accept, lose_checkpoint, refused, renew_topic
from tests.advice.following import follows
from tests.advice.test_other_checkpoints import PLAIN, described, query
from tests.crash.world import expected, memory_world


def _read_one_file_a_batch(world, said) -> None:
    """Then no batch has both old and new files."""
    said.says("maxFilesPerTrigger=1")
    lose_checkpoint(world, THIRD)
    world.run(boundaries=tuple(range(1, 15)))
    assert world.ids() == expected((14,))


@follows("files.combined")
@pytest.mark.parametrize("way", ["one-file-a-batch", "accept_as_new", "accept_as_seen"])
def test_old_and_new_files_whose_rows_were_made_into_others(way):
    """With batches of one file nothing has to be filtered.
    Otherwise the batch is written whole or not at all, as the error says."""
    world = memory_world(**PLAIN, tells_files=True, file_column="file")
    described(world, combines="Deduplicate")
    world.run(boundaries=(6, 9))
    lose_checkpoint(world)
    said = refused(world, "files.combined", (12,))
    if way == "one-file-a-batch":
        _read_one_file_a_batch(world, said)
        return
    accept(world, **{way: said.option(way)})
    world.run(boundaries=(12,))
    assert world.ids() == sorted([*range(9), *(range(12) if way == "accept_as_new" else ())])


@follows("files.may-combine")
@pytest.mark.parametrize("way", ["accept_as_same", "one-file-a-batch", "accept_as_new", "accept_as_seen"])
def test_old_and_new_files_whose_rows_may_have_been_made_into_others(way):
    """Rows are filtered where the user says that each is made of one row. Otherwise the ways on are those of a plan
    that shows rows made of several."""
    world = memory_world(**PLAIN, tells_files=True, file_column="file")
    described(world, may_combine="MapInPandas")
    world.run(boundaries=(6, 9))
    lose_checkpoint(world)
    said = refused(world, "files.may-combine", (12,))
    if way == "one-file-a-batch":
        _read_one_file_a_batch(world, said)
        return
    accept(world, **{way: said.option(way)})
    world.run(boundaries=(12,))
    assert (
        world.ids()
        == {
            "accept_as_same": expected((12,)),
            "accept_as_seen": [*range(9)],
            "accept_as_new": sorted([*range(9), *range(12)]),
        }[way]
    )


@follows("files.overlap")
@pytest.mark.parametrize("way", ["file_column", "accept_as_new", "accept_as_seen"])
def test_old_and_new_files_in_one_batch(way):
    """With the column the new files are written. Without it, either all rows of this batch and of those after it are
    written, or none of this batch."""
    world = query(tells_files=True)
    lose_checkpoint(world)
    said = refused(world, "files.overlap", (12,))
    if way == "file_column":
        said.says("Select _metadata.file_path among the columns", "option file_column")
        world.driver.fingerprint = dataclasses.replace(
            world.driver.fingerprint, plan="a column more", schema="a column more"
        )
        accept(world, file_column="file", accept_as_same=said.option("accept_as_same"))
        world.run(boundaries=(12, 14))
        assert world.ids() == expected((14,))
        return
    accept(world, **{way: said.option(way)})
    world.run(boundaries=(12, 14))
    written = said.says("and of all batches after it") and range(14) if way == "accept_as_new" else range(12, 14)
    assert world.ids() == sorted([*range(9), *written])


@follows("files.overlap")
def test_old_and_new_files_in_one_batch_of_a_query_that_replaces():
    """Formerly the error told it to name the column of files, which is refused for such a query."""
    world = query(tells_files=True, mode="overwrite")
    lose_checkpoint(world)
    said = refused(world, "files.overlap", (12,))
    said.says("Start a new checkpoint whose batches read one file each")
    assert "file_column" not in said.message
    lose_checkpoint(world, THIRD)
    world.run(boundaries=tuple(range(1, 13)))
    assert world.ids() == [9, 10, 11]  # The newest offset of each of three partitions.


@follows("files.moved")
@pytest.mark.parametrize("way", ["first-path", "accept_as_seen", "accept_as_new"])
def test_a_folder_that_was_moved(way):
    """It is read under its first path; or taken as seen; or, when it is other data after all, taken as new."""
    world = query(tells_files=True)
    lose_checkpoint(world)
    world.driver.folder = "memory:/moved"
    if way == "accept_as_new":
        renew_topic(world)
    said = refused(world, "files.moved", (9,))
    if way == "first-path":
        said.says("Read them under their first path, and start a new checkpoint")
        world.driver.folder = "memory:/in"
        lose_checkpoint(world, THIRD)
    else:
        accept(world, **{way: said.option(way)})
    world.run(boundaries=(9, 12))
    assert world.ids() == ([*range(9), *range(1000, 1012)] if way == "accept_as_new" else expected((12,)))


@follows("files.moved")
@pytest.mark.parametrize("way", ["first-path", "accept_as_seen", "accept_as_new"])
def test_a_part_of_a_folder_that_was_moved(way):
    """The moved files come beside known files and new ones.
    The answer is for the moved ones alone, and the error names them."""
    world = query(tells_files=True, file_column="file")
    lose_checkpoint(world)
    stays = world.driver.file
    world.driver.file = lambda number: (
        dataclasses.replace(stays(number), path=f"memory:/moved/{number:05}") if number in (2, 4) else stays(number)
    )
    said = refused(world, "files.moved", (12, 14)).says(
        "2 of 12 files (memory:/moved/00002, memory:/moved/00004)", "beside which the others are decided"
    )
    if way == "first-path":
        said.says("Read them under their first path, and start a new checkpoint")
        world.driver.file = stays
        lose_checkpoint(world, THIRD)
    else:
        accept(world, **{way: said.option(way)})
    world.run(boundaries=(12, 14))
    assert world.ids() == sorted([*range(14), *((2, 4) if way == "accept_as_new" else ())])


@follows("files.other-times", "files.moved")
@pytest.mark.parametrize("first", ["accept_as_seen", "accept_as_new"])
def test_files_without_their_times_beside_moved_ones(first):
    """Both are asked for, one after the other. The second error repeats the first answer where it names its option."""
    world = query(tells_files=True, file_column="file")
    lose_checkpoint(world)
    stays, world.driver.modified[3] = world.driver.file, 1_700_000_000_000
    world.driver.file = lambda number: (
        dataclasses.replace(stays(number), path=f"memory:/moved/{number:05}") if number == 2 else stays(number)
    )
    accept(world, **{first: refused(world, "files.other-times", (12,)).option(first)})
    accept(world, accept_as_seen=refused(world, "files.moved", (12,)).option("accept_as_seen"))
    world.run(boundaries=(12, 14))
    assert world.ids() == sorted([*range(14), *((3,) if first == "accept_as_new" else ())])


@follows("files.other-times")
@pytest.mark.parametrize("way", ["times", "accept_as_seen", "accept_as_new"])
def test_files_that_were_restored_without_their_times(way):
    """With their times they are known.
    Otherwise the user says what they are, and files beside them are decided as ever."""
    world = query(tells_files=True, file_column="file")
    lose_checkpoint(world)
    world.driver.modified = dict.fromkeys(range(6), 1700000000000)
    said = refused(world, "files.other-times", (7, 12))
    if way == "times":
        said.says("Give them their times back (cp -p), and start a new checkpoint")
        world.driver.modified = {}
        lose_checkpoint(world, THIRD)
    else:
        accept(world, **{way: said.option(way)})
    world.run(boundaries=(7, 12))
    assert world.ids() == sorted([*range(12), *(range(6) if way == "accept_as_new" else ())])


@follows("files.other-times")
def test_files_without_their_times_beside_new_ones():
    """Each answer leads on: first the times are settled, then the column tells the two kinds of files apart."""
    world = query(tells_files=True)
    lose_checkpoint(world)
    world.driver.modified[2] = 1_700_000_000_000
    accept(
        world, accept_as_seen=refused(world, "files.other-times", (12,)).says("1 of 12 files").option("accept_as_seen")
    )
    said = refused(world, "files.overlap", (12,))
    world.driver.fingerprint = dataclasses.replace(
        world.driver.fingerprint, plan="a column more", schema="a column more"
    )
    accept(world, file_column="file", accept_as_same=said.option("accept_as_same"))
    world.run(boundaries=(12, 14))
    assert world.ids() == expected((14,))


@follows("files.other-source")
@pytest.mark.parametrize("way", ["accept_as_new", "accept_as_seen"])
def test_a_file_that_one_of_two_sources_has_read(way):
    """The file's rows of the other source are written with the rest of the batch, or none of the batch is written."""
    world = memory_world(**PLAIN, tells_files=True)
    plain, two = world.driver.describe, {}

    def describe(checkpoint, batch_id):
        """From file 3 on the second source reads what the first one reads;
        batch 1 of the new checkpoint gives it files 0 to 2."""
        batch = plain(checkpoint, batch_id)
        [source] = batch.sources
        other = dataclasses.replace(source, files=source.files if checkpoint.query == two.get("both") else ())
        return dataclasses.replace(batch, sources=(source, other))

    world.driver.describe = describe
    world.run(boundaries=(3,))
    lose_checkpoint(world)
    two["both"] = SECOND
    said = refused(world, "files.other-source", (3,))
    accept(world, **{way: said.option(way)})
    world.run(boundaries=(3,))
    assert world.ids() == ([0, 0, 1, 1, 2, 2] if way == "accept_as_new" else [0, 1, 2])
