"""A mark says that its snapshot has the record's state alone, however that came about, so that a rollback behind it is
no proof of the rows.

In each test the rows of record 2 are behind a snapshot that another writer's rename has replaced, a compaction has
rewritten them, and a rollback takes the state that was published alone. The rows must not be published again without a
question.
"""

import contextlib
import dataclasses

import pytest

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.errors import OutcomeUnknown, StreamsinkError
from streamsink.format.manifest_list import write_manifest_list
from streamsink.format.snapshot import Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.testing.faults import arm
from tests.advice.accidents import accept, damage, refused
from tests.advice.test_state_alone import ENDS, MERGES, _rolled_back
from tests.crash.letters_world import NAME, LettersWorld
from tests.crash.world import BOUNDARIES, die_at_step, expected, memory_world
from tests.protocol.history import (
    drop_states,
    expire,
    io_of,
    mine_of,
    newest_of,
    other_application,
    published_not_marked,
)
from tests.table.foreign import Prepared, compact

SETTINGS = {"restore": "restore-and-continue", "table_options": MERGES, "journal_retain": 5}
THREES = (3, 6, 9)
CARRIED = pytest.mark.parametrize("is_carried", [True, False], ids=["state-carried", "no-state"])


def _replace(world, replacing: Prepared) -> None:
    """A third writer builds on our snapshot 2,
    another writer's rename takes its place, and a compaction rewrites the rows."""
    third = Prepared(world, 1)
    replacing.rename()
    third.rename()
    compact(world)


def _back(world, to: int, is_carried: bool) -> None:
    """The table goes back to this snapshot, another application writes to it, and everything before that expires."""
    for number in range(newest_of(world), to, -1):
        io_of(world).delete(f"{world.driver.root}/snapshot/snapshot-{number}")
    other_application(world, "merging")
    if not is_carried:
        drop_states(world)
    expire(world, 1, to)


def _is_asked(world, ends, word: str = r"set accept_as_seen='(\w+)'") -> None:
    """When the start is told that the rows are there, the query goes on with each row once.
    word: where the message has the word for these rows."""
    accept(world, on_rollback="republish")
    accept(world, accept_as_seen=refused(world, "journal.undecidable", ends).find(word))
    world.run(boundaries=ends)
    assert mine_of(world) == expected(ends)


@CARRIED
def test_of_a_group_of_records(is_carried):
    world = memory_world(**SETTINGS, publish_as="one-snapshot")
    world.run(boundaries=THREES[:1])
    replacing = Prepared(world)
    assert die_at_step("precommit.saved", 2, world, boundaries=THREES)
    _replace(world, replacing)
    world.run(boundaries=THREES)
    assert mine_of(world) == expected(THREES)
    _back(world, 4, is_carried)
    _is_asked(world, THREES, r"goes on with the others: '(\w+)' for checkpoint 1")


@pytest.mark.parametrize("way", [{"publish_as": "one-snapshot"}, {}], ids=str)
def test_rows_of_a_group_that_were_there_and_went_while_it_was_published(way):
    """Formerly they were lost: the state said that they were there."""
    world = memory_world(**SETTINGS, **way)
    world.run(boundaries=THREES[:1])
    replacing = Prepared(world)
    assert die_at_step("precommit.saved", 2, world, boundaries=THREES)
    third = Prepared(world, 1)
    replacing.rename()
    third.rename()

    def roll_back():
        for number in (3, 2):
            io_of(world).delete(f"{world.driver.root}/snapshot/snapshot-{number}")
        io_of(world).replace(f"{world.driver.root}/snapshot/LATEST", b"1", IdSource().new_id())

    arm("commit.before_filter", 1, roll_back)
    # With a group the rollback is found at once; with a single record the next batch finds it.
    with contextlib.suppress(StreamsinkError):
        world.run(boundaries=THREES)
    faults.arm(None)
    accept(world, on_rollback="republish")
    world.run(boundaries=THREES)
    assert mine_of(world) == expected(THREES)


def test_its_snapshot_was_replaced_too():
    """There is no rollback, and the options are the defaults."""
    world, _ = published_not_marked(table_options=MERGES)
    compact(world)
    late = Prepared(world, 3)
    world.run(boundaries=ENDS[:2])
    assert late.snapshot.id == newest_of(world) == 5
    late.rename()
    other_application(world, "merging")
    drop_states(world)
    expire(world, 1, 4)
    _is_asked(world, ENDS)


def test_its_snapshot_was_replaced_and_so_was_the_next_one():
    """Found by reading:
    what its user had said of the first record was taken for the next one too, whose rows were lost."""
    world, _ = published_not_marked(table_options=MERGES)
    compact(world)
    late = Prepared(world, 3)
    world.run(boundaries=ENDS[:2])
    later = Prepared(world, 4)
    ends = (*ENDS[:2], 14)
    world.run(boundaries=ends)
    assert later.snapshot.id == newest_of(world) == 6
    later.rename()
    late.rename()
    other_application(world, "merging")
    drop_states(world)
    expire(world, 1, 4)
    _is_asked(world, ends)


@CARRIED
def test_of_what_its_user_has_seen(is_carried):
    """The table goes back a second time."""
    world = _rolled_back(4, is_carried=True)
    accept(world, on_rollback="republish")
    accept(world, accept_as_seen=refused(world, "journal.undecidable", ENDS).option("accept_as_seen"))
    world.run(boundaries=ENDS[:2])
    assert mine_of(world) == expected(ENDS[:2])
    accept(world, accept_as_seen=None)
    newest = newest_of(world)
    io_of(world).delete(f"{world.driver.root}/snapshot/snapshot-{newest}")
    io_of(world).replace(f"{world.driver.root}/snapshot/LATEST", str(newest - 1).encode(), IdSource().new_id())
    Prepared(world, 7).rename()
    if not is_carried:
        drop_states(world)
    expire(world, newest - 1, newest - 1)
    _is_asked(world, ENDS)


def _marked_and_alone():
    """The record was marked where its snapshot was then replaced.
    The driver published its state alone, and died before it marked that."""
    world = memory_world(**SETTINGS)
    world.run(boundaries=BOUNDARIES[:1])
    replacing = Prepared(world)
    world.run(boundaries=BOUNDARIES[:2])
    _replace(world, replacing)
    assert die_at_step("commit.published", 1, world, boundaries=ENDS[:2])
    return world


def test_where_the_driver_died_before_it_marked_that():
    """The record had the mark of the replaced snapshot."""
    world = _marked_and_alone()
    world.run(boundaries=ENDS[:2])
    assert mine_of(world) == expected(ENDS[:2])
    _back(world, 4, is_carried=True)
    _is_asked(world, ENDS)


@pytest.mark.parametrize("is_started_again", [True, False])
def test_where_the_driver_died_before_it_marked_that_and_the_rows_went_too(is_started_again):
    """The mark of the replaced snapshot said nothing of a table that
    went back behind it and then grew longer than that again."""
    world = _marked_and_alone()
    if is_started_again:
        world.run(boundaries=ENDS[:2])
    for number in range(5, 1, -1):
        io_of(world).delete(f"{world.driver.root}/snapshot/snapshot-{number}")
    for name in ("merging", "writing"):
        other_application(world, name)
    drop_states(world)
    expire(world, 1, 2)
    accept(world, on_rollback="republish")
    accept(world, accept_as_new=refused(world, "journal.undecidable", ENDS).option("accept_as_new"))
    world.run(boundaries=ENDS)
    assert mine_of(world) == expected(ENDS)


@CARRIED
def test_where_marks_were_torn(is_carried):
    """A start finds out where the last record is, and where no other one is."""
    world, _ = published_not_marked(table_options=MERGES, journal_retain=5)
    compact(world)
    world.run(boundaries=ENDS)
    for number in (2, 3):
        damage(world, f"{world.driver.root}/streamsink/streamsink/done-{number}", b"")
    world.run(boundaries=ENDS)
    _back(world, 4, is_carried)
    _is_asked(world, ENDS)


@CARRIED
def test_where_the_driver_died_before_the_marks_of_a_group(is_carried):
    world = memory_world(**SETTINGS, publish_every_batches=2, publish_as="one-snapshot")
    world.run(boundaries=THREES[:1])
    replacing = Prepared(world)
    assert die_at_step("commit.published", 1, world, boundaries=THREES)
    _replace(world, replacing)
    assert die_at_step("commit.published", 1, world, boundaries=THREES)
    world.run(boundaries=THREES)
    _back(world, 4, is_carried)
    accept(world, on_rollback="republish")
    world.run(boundaries=THREES)
    assert mine_of(world) == expected(THREES), "files of the second record of the group are there, and prove both"


class _Silent(FileIO):
    """Gives no answer about snapshot 2, which is there."""

    def __init__(self, calls, meanwhile):
        super().__init__(calls, IdSource().new_id)
        self._meanwhile = [meanwhile]

    def create_if_absent(self, path, data, unique="", **prepared):
        made = super().create_if_absent(path, data, unique, **prepared)
        if path.endswith("/snapshot-2") and self._meanwhile:
            self._meanwhile.pop()()
            raise OutcomeUnknown("no answer", kind="publish.unknown")
        return made


@CARRIED
def test_where_publishing_gave_no_answer(is_carried):
    world = memory_world(**SETTINGS)
    world.run(boundaries=THREES[:1])
    replacing, io = Prepared(world), world.file_io
    silent = _Silent(world.calls, lambda: _replace(world, replacing))
    world.file_io = lambda calls: silent
    world.run(boundaries=THREES[:2])
    world.file_io = io
    assert mine_of(world) == expected(THREES[:2])
    _back(world, 4, is_carried)
    _is_asked(world, THREES)


# -- dead letters ------------------------------------------------------------------------------------------------------


def _built_on(world, snapshot: Snapshot) -> Snapshot:
    """Another writer's next snapshot, without rows of its own."""
    table, unique = world.table(NAME), IdSource().new_id()
    lists = {
        "base": write_manifest_list(table.manifests.base_of(snapshot) + table.manifests.delta_of(snapshot)),
        "delta": write_manifest_list([]),
    }
    for name, data in lists.items():
        world.file_io().write(table.layout.manifest(f"manifest-list-{unique}-{name}"), data)
    return dataclasses.replace(
        snapshot,
        id=snapshot.id + 1,
        uuid=unique,
        properties=None,
        commit_user="foreign",
        delta_record_count=0,
        base_manifest_list=f"manifest-list-{unique}-base",
        base_manifest_list_size=len(lists["base"]),
        delta_manifest_list=f"manifest-list-{unique}-delta",
        delta_manifest_list_size=len(lists["delta"]),
    )


def _put(world, *snapshots: Snapshot) -> None:
    table = world.table(NAME)
    for snapshot in snapshots:
        world.file_io().replace(table.layout.snapshot(snapshot.id), snapshot.to_json(), IdSource().new_id())
    world.file_io().replace(table.layout.latest_hint, str(max(s.id for s in snapshots)).encode(), IdSource().new_id())


def _go_back(world, name: str, to: int) -> None:
    table = world.table(name)
    for number in table.snapshots.ids():
        if number > to:
            world.file_io().delete(table.layout.snapshot(number))
    world.file_io().replace(table.layout.latest_hint, str(to).encode(), IdSource().new_id())


@pytest.mark.parametrize("is_alone", [True, False])
def test_dead_letters_come_again_with_the_state(is_alone):
    """Both tables go back to one time: the rows are still there, and the dead letters are not."""
    world = LettersWorld(journal_retain=5, on_rollback="republish")
    world.run(boundaries=(6,))
    second = _built_on(world, world.table(NAME).snapshots.load(1))
    world.run(boundaries=(6, 9))
    if is_alone:
        _put(world, _built_on(world, world.table(NAME).snapshots.load(2)), second)
        world.run(boundaries=(6, 9))
        assert world.table(NAME).snapshots.ids()[-1] == 4
    before = sorted(number for _, number, _ in world.rows())
    assert before == list(range(9))
    _go_back(world, NAME, 3 if is_alone else 1)
    _go_back(world, world.dead_letters, 1)
    world.run(boundaries=(6, 9))
    assert sorted(number for _, number, _ in world.rows()) == before
