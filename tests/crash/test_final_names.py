"""Files that have their final names at once, on S3: a run dies at any request, and what got no record goes, and nothing
else.
"""

import json

import pytest

from streamsink import faults
from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt, Misuse, Retryable
from streamsink.events import Restored
from streamsink.storage.s3 import S3FileIO
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash, arm
from streamsink.testing.stepping import Stepping
from tests.advice.following import advice, follows
from tests.crash.world import World, die_at_step, ends_right, expected
from tests.storage.memory_s3 import MemoryS3Calls

ROOT = "s3://bucket/shop.db/orders"
STAGING = f"{ROOT}/streamsink/streamsink/staging"
WAYS = {
    "tasks": {},
    "small": {"small": True},
    "grouped": {"small": True, "publish_every_batches": 3},
    "async": {"small": True, "publish": "async", "publish_queue": 2, "delay": 20},
    "settled late": {"small": True, "delay": 9},
    "republish": {"on_rollback": "republish"},
}
# Steps behind the batch's look at the table.
LOOKED = ["write.staged", "precommit.before_record", "precommit.saved", "commit.before_publish"]
# Of the deaths each so-manieth is tried, other ones in each run of the suite.
SOME = 9


def s3_world(**settings) -> World:
    return World(MemoryS3Calls(), ROOT, make_io=lambda over: S3FileIO(over, IdSource().new_id, ROOT), **settings)


def _dies(world, n, mode, order) -> bool:
    """Run and die at call n; calls that may be made at once come in this order. False when there is no such call."""
    calls = CrashingCalls(world.calls, n, mode)
    calls.order = order
    try:
        world.run(calls)
    except InjectedCrash:
        world.die()
    except Exception:  # an error ends the run as well; the next start settles it
        world.die()
    return calls.count >= n


@pytest.mark.in_turn("ways of final names", 2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stride", [SOME, pytest.param(1, marks=pytest.mark.soak)])
def test_death_at_any_request_in_any_order(way, stride, rng):
    """Requests that are made at once reach the store in any order, so a death may leave any part of them."""
    tried = 0
    for mode in Mode:
        n = rng.randrange(stride) + 1
        while True:
            world, seed = s3_world(**WAYS[way]), rng.random()

            def shuffled(actions, seed=seed):
                return sorted(actions, key=lambda action: hash((seed, id(action))))

            if not _dies(world, n, mode, shuffled):
                break
            ends_right(world, f"{mode.value} at call {n}, {way}")
            n, tried = n + stride, tried + 1
    assert tried * stride > 150


def _announcements(world) -> list[str]:
    return [path for path in world.calls._objects if path.startswith(f"{STAGING}/") and "/at-" in path]


def _data_files(world) -> list[str]:
    return sorted(path for path in world.calls._objects if "/data-" in path)


@pytest.mark.parametrize("small", [False, True], ids=["tasks", "small"])
def test_what_an_attempt_leaves_goes_with_the_next_start_or_with_the_next_record(small):
    """A driver of many rows asks before its record, so that its successor need not wait to delete what it has left."""
    world = s3_world(small=small)
    world.run(boundaries=(6,))
    assert die_at_step("precommit.before_record", 1, world, boundaries=(6, 9))
    before = _data_files(world)
    # what is complete may get its record by a driver that only sleeps, so it stays until the number is taken
    world.driver.start(world.file_io(world.calls), world.checkpoint).close()
    assert _data_files(world) == before and len(before) == 6
    world.run(boundaries=(6, 9))
    assert world.ids() == list(range(9)) and world.unknown_files() == [] and len(_data_files(world)) == 6


class _Stops(Exception):
    pass


def _left_incomplete(small: bool) -> World:
    """A driver that died when one of its data files was there and its manifest was not."""
    world = s3_world(small=small)
    world.run(boundaries=(6,))
    calls = CrashingCalls(world.calls)

    def until_the_first_file(actions):
        if not _announcements(world):
            return actions

        def stop():
            calls.dead = True
            raise InjectedCrash("after the first file")

        return [actions[0], stop, *actions[1:]]

    calls.order = until_the_first_file
    with pytest.raises(InjectedCrash):
        world.run(calls, boundaries=(6, 9))
    world.die()
    return world


@pytest.mark.parametrize("small", [False, True], ids=["tasks", "small"])
def test_an_incomplete_attempt_of_many_rows_goes_with_the_next_start(small):
    """That of few rows waits for the number: its driver may only sleep, and does not ask before its record."""
    world = _left_incomplete(small)
    assert len(_data_files(world)) == 4
    world.driver.events.clear()
    world.driver.start(world.file_io(world.calls), world.checkpoint).close()
    assert len(_data_files(world)) == (4 if small else 3)
    [restored] = [event for event in world.driver.events if isinstance(event, Restored)]
    assert any("/data-" in path for path in restored.orphans_removed) == (not small)
    world.run(boundaries=(6, 9))
    assert world.unknown_files() == [] and world.ids() == list(range(9))


def _copy_of_the_journal(world) -> dict:
    return {path: found for path, found in world.calls._objects.items() if path.startswith(f"{ROOT}/streamsink/")}


def _put_back(world, journal) -> None:
    for path in _copy_of_the_journal(world):
        del world.calls._objects[path]
    world.calls._objects.update(journal)


@pytest.mark.parametrize("small", [False, True], ids=["tasks", "small"])
@pytest.mark.parametrize("forgets", [False, True], ids=["the table remembers", "the table has forgotten"])
def test_a_journal_of_an_older_copy_deletes_nothing_that_the_table_names(small, forgets):
    """It has an attempt without a record. The attempt has got one since, in the journal that is lost."""
    world = s3_world(small=small)
    world.run(boundaries=(6,))
    copies = []
    calls = CrashingCalls(world.calls)

    def copied(actions):
        # when the files of the second batch, and its manifest, are about to be written
        copies.append(_copy_of_the_journal(world)) if _announcements(world) else None
        return actions

    calls.order = copied
    world.run(calls, boundaries=(6, 9))
    journal = copies[0]
    if forgets:
        for path, (data, unique) in list(world.calls._objects.items()):
            if "/snapshot/snapshot-" in path:
                said = json.loads(data)
                said["properties"] = None
                world.calls._objects[path] = (json.dumps(said).encode(), unique)
    _put_back(world, journal)
    live = _data_files(world)
    try:
        world.run(boundaries=(6, 9, 14))
    except Exception:  # where nobody knows any more what is published, the start asks; nothing is deleted either
        assert forgets
    assert set(live) <= set(_data_files(world))
    table = open_table(world.file_io(world.calls), ROOT, for_writing=False)
    assert table.snapshots.latest() is not None and set(range(9)) <= set(world.ids())


@follows("journal.announcement")
@pytest.mark.parametrize("damaged", [b"{", b"[]", b"1", b"null", b'"at"', b"{}", b'{"tables": 1}', b'{"tables": [1]}'])
def test_an_announcement_that_is_damaged_stops_the_start_which_says_what_to_do(damaged):
    """It holds no data, so it is deleted by hand; what the attempt has left is a matter of orphan cleaning then."""
    world = _left_incomplete(small=False)
    [path] = [path for path in world.calls._objects if path.startswith(f"{STAGING}/") and world.calls.size(path) < 400][
        :1
    ]
    world.calls._objects[path] = (damaged, "")
    with pytest.raises(Corrupt) as refused:
        world.run(boundaries=(6, 9))
    advice(refused.value, "journal.announcement").says(path, "delete the file and start again")
    world.calls.unlink(path)
    world.run(boundaries=(6, 9))
    assert world.ids() == list(range(9))


@pytest.mark.parametrize("dies", [False, True], ids=["repeated", "restarted"])
def test_a_task_that_outlives_its_attempt_leaves_nothing_for_good(dies):
    """The batch has failed and is repeated, in the same run or in a new one. Before that a late task of it ends."""
    world = s3_world()
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    world.checkpoint.ends.append(6)
    late = []

    def fails(actions):
        if _announcements(world) and not late:
            attempt = json.loads(world.calls.read(_announcements(world)[0]))["attempt"]
            late.append(f"{ROOT}/part=a/bucket-0/data-{attempt}-0123456789abcdef-9.parquet")
            raise _Stops
        return actions

    calls = CrashingCalls(world.calls)
    calls.order = fails
    sink.close()
    sink = world.driver.start(world.file_io(calls), world.checkpoint)
    with pytest.raises(_Stops):
        sink.batch(world.driver.describe(world.checkpoint, 0))
    assert _data_files(world) == []
    world.calls.put(late[0], b"of nobody")
    if dies:
        sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    sink.batch(world.driver.describe(world.checkpoint, 0))
    sink.close()
    assert late[0] not in world.calls._objects and world.ids() == list(range(6)) and world.unknown_files() == []


def test_a_record_of_such_files_has_a_version_that_older_code_does_not_publish():
    """Older code would copy each file onto itself, which S3 refuses."""
    world = s3_world()
    world.run(boundaries=(6, 9))
    head = json.loads(world.calls.read(f"{ROOT}/streamsink/streamsink/record-1.json").split(b"\n")[0])
    assert head["version"] == 4


def test_files_that_were_staged_by_earlier_code_are_published():
    """As those are that this code stages where a second copy is kept for rollbacks."""
    world = s3_world(on_rollback="republish")
    assert die_at_step("precommit.saved", 2, world, boundaries=(6, 9))
    world.driver.options = s3_world().driver.options
    world.run()
    assert world.ids() == expected() and world.unknown_files() == []


@pytest.mark.parametrize("small", [False, True], ids=["tasks", "small"])
@pytest.mark.parametrize(
    "step", ["write.staged", "precommit.before_record", "precommit.saved", "commit.before_publish"]
)
def test_what_was_prepared_for_the_first_try_is_not_used_when_another_writer_was_first(step, small):
    """The lists are written before the record, on top of what the batch has found. All rows of both are there."""
    world, other = s3_world(small=small), s3_world(small=small, application="other")
    world.run(boundaries=(6,))
    other.calls = world.calls
    arm(step, 1, lambda: (faults.arm(None), other.run(boundaries=(6,))))
    try:
        world.run(boundaries=(6, 9))
    finally:
        faults.arm(None)
    assert other.checkpoint.committed == 1
    world.run()
    assert world.ids() == sorted([*expected(), *range(6)]) and world.unknown_files() == []


def test_a_batch_whose_snapshot_turns_out_to_be_late_is_published_again():
    """That is found beside the next batch: the batch has returned, and its record is pending until then."""
    world = s3_world(small=True, delay=None)
    world.run(boundaries=(6,))
    world.checkpoint.ends.append(9)
    calls = CrashingCalls(world.calls)
    world.driver.background = lambda step: Stepping(step, calls, None)
    sink = world.driver.start(world.file_io(calls), world.checkpoint)
    sink.batch(world.driver.describe(world.checkpoint, 1))
    world.checkpoint.committed = 2
    assert world.ids() == list(range(9))
    # the table goes back: what the new snapshot is built on is gone, and so is the snapshot
    for path in [path for path in world.calls._objects if "/snapshot/snapshot-" in path]:
        del world.calls._objects[path]
    with pytest.raises(Retryable) as refused:
        sink.close()
    assert refused.value.kind in ("table.history-changed", "publish.expired-meanwhile")
    assert not world.calls._objects.get(f"{ROOT}/streamsink/streamsink/done-2")


@pytest.mark.parametrize("batches", [1, 2], ids=["on close", "behind a look that has found it"])
def test_what_is_pending_is_not_published_into_a_table_that_was_created_anew(batches):
    """The files of the record are gone with the table before, so a snapshot that names them could not be read.

    A tool that replaces a table takes no time. Answers of the look before that do not count, because the newest
    snapshot was looked up again.
    """
    world, other = s3_world(small=True, publish_every_batches=3), s3_world(application="other")
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    world.checkpoint.ends += [6, 9]
    sink.batch(world.driver.describe(world.checkpoint, 0))
    other.run(boundaries=(6,))
    journal = _copy_of_the_journal(world)
    world.calls._objects.clear()
    world.calls._objects.update(other.calls._objects | journal)
    for number in range(1, batches):
        with pytest.raises(Misuse, match="dropped and recreated"):
            sink.batch(world.driver.describe(world.checkpoint, number))
    with pytest.raises(Misuse, match="dropped and recreated"):
        sink.close()
    table = open_table(world.file_io(world.calls), ROOT, for_writing=False)
    assert world.ids() == list(range(6)) and table.snapshots.ids() == [1]


@pytest.mark.parametrize("small", [False, True], ids=["tasks", "small"])
def test_files_of_a_snapshot_whose_number_came_again_stay(small):
    """The attempt begins on top of snapshot 4, the table goes back to 2, and the attempt's record becomes snapshot 3.

    Then an older copy of the journal, which has the attempt and not its record, comes back.
    """
    world, other = s3_world(small=small), s3_world(small=small, application="other")
    world.run(boundaries=(6,))
    other.calls = world.calls
    other.run(boundaries=(6, 9, 12))
    copies = []
    calls = CrashingCalls(world.calls)

    def goes_back(actions):
        if _announcements(world) and not copies:
            copies.append(_copy_of_the_journal(world))
            for number in (3, 4):
                world.calls.unlink(f"{ROOT}/snapshot/snapshot-{number}")
            world.calls.put(f"{ROOT}/snapshot/LATEST", b"2")
        return actions

    calls.order = goes_back
    world.run(calls, boundaries=(6, 9))
    rows = world.ids()
    assert rows == sorted([*range(9), *range(6)])
    _put_back(world, copies[0])
    world.run(boundaries=(6, 9, 14))
    world.run(boundaries=(6, 9, 14, 16))
    assert world.ids() == sorted([*range(16), *range(6)])


@pytest.mark.parametrize("all_but_a_list", [False, True], ids=["its files are gone", "a list is gone"])
def test_a_driver_that_slept_while_the_table_was_restored_takes_its_snapshot_back(all_but_a_list, monkeypatch):
    """The backup does not have the files that were there before it slept, so nobody could read its snapshot.

    This is found before the batch returns: it took so long that nobody may rely on its snapshot before the check.
    """
    world = s3_world(small=True, delay=None)
    world.run(boundaries=(6,))
    backup, now, calls, slept = dict(world.calls._objects), Clock.now_ms, CrashingCalls(world.calls), []

    def sleeps():
        if not slept and any(f"/manifest-list-{_attempt(world)}-" in path for path in world.calls._objects):
            slept.append(True)
            mine = {path: found for path, found in world.calls._objects.items() if "/owner-" in path}
            world.calls._objects.clear()
            world.calls._objects.update(backup | mine)
            monkeypatch.setattr(Clock, "now_ms", lambda self: now(self) + 60_000)

    world.checkpoint.ends.append(9)
    sink = world.driver.start(world.file_io(calls), world.checkpoint)
    calls.before_call = sleeps
    calls.order = (lambda actions: actions[::-1]) if all_but_a_list else calls.order
    with pytest.raises((Retryable, Corrupt)):
        sink.batch(world.driver.describe(world.checkpoint, 1))
    assert slept and world.ids() == list(range(6))
    world.die()
    if all_but_a_list:
        world.run(boundaries=(6, 9))
        assert world.ids() == list(range(9))
    else:
        with pytest.raises(Corrupt, match="files are gone"):  # which says the way on
            world.run(boundaries=(6, 9))


def _attempt(world) -> str:
    return next((json.loads(world.calls.read(path))["attempt"] for path in _announcements(world)), "none")
