"""A driver dies between the creation of its snapshot and the check whether it came in time; the table has gone back
meanwhile, and others have filled the numbers. The next start takes the snapshot back, and each row is there once.
"""

import json

import pytest

from streamsink import faults
from streamsink.clock import Clock, IdSource
from streamsink.errors import StreamsinkError
from streamsink.storage.s3 import S3FileIO
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash, arm
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import told
from tests.crash.letters_world import LettersWorld
from tests.crash.world import World, expected
from tests.storage.memory_s3 import MemoryS3Calls

BATCHES = (3, 5, 8, 11, 14)
OTHERS = 100
# Of the calls behind the creation: more than there are up to the mark, on either store.
BEHIND = range(14)


def _near(calls=None, **options):
    return World(calls or MemoryCalls(), "/lake/shop.db/orders", **options)


def _on_s3(calls=None, **options):
    root = "s3://bucket/shop.db/orders"

    def make_io(over):
        return S3FileIO(over, IdSource().new_id, root)

    return World(calls or MemoryS3Calls(), root, make_io=make_io, small=True, **options)


def _table(world):
    return open_table(world.file_io(world.calls), world.driver.root, for_writing=False)


def _another_history(make, world, less):
    """The table goes back to its first snapshot, and another application fills the numbers, but for so many.
    What it writes has a later millisecond than all that was prepared."""
    table, begun_ms = _table(world), Clock().now_ms()
    numbers = table.snapshots.ids()
    for number in reversed(numbers[1:]):
        table.file_io.delete(table.layout.snapshot(number))
    table.file_io.replace(table.layout.latest_hint, b"1", "of-the-rollback")
    while Clock().now_ms() <= begun_ms:
        Clock().sleep_ms(1)
    other = make(world.calls, application="other")
    other.driver.first_file = OTHERS
    ends = tuple(range(OTHERS + 1, OTHERS + len(numbers) - less))
    if ends:
        other.run(boundaries=ends)


def _dies(make, behind, less):
    """A world whose driver has died so many calls after it began to create its fourth snapshot, in another history;
    whether it has died."""
    world = make(on_rollback="republish")
    world.run(boundaries=BATCHES[:3])
    calls = CrashingCalls(world.calls)

    def happens():
        _another_history(make, world, less)
        calls._at = calls.count + 1 + behind

    arm("commit.before_publish", 1, happens)
    try:
        world.run(calls, boundaries=BATCHES[:4])
    except (InjectedCrash, StreamsinkError):
        world.die()
    finally:
        faults.arm(None)
    return world, calls.dead


@pytest.mark.in_turn("deaths before a check", 3)
@pytest.mark.parametrize("make", [_near, _on_s3])
@pytest.mark.parametrize("less", [0, 1, 2])
def test_a_death_before_the_check_hides_nothing(make, less):
    """Each of our rows is there once, and each of the others'; less 2 is a rollback that nobody has written after."""
    unchecked = 0
    for behind in BEHIND:
        world, is_dead = _dies(make, behind, less)
        unchecked += is_dead and 4 in _table(world).snapshots.ids()
        world.run(boundaries=BATCHES)
        others = list(range(OTHERS, OTHERS + 2 - less))
        assert world.ids() == [*expected(BATCHES), *others], f"died {behind} calls behind the creation"
    assert unchecked


@pytest.mark.parametrize("make", [_near, _on_s3])
def test_a_death_before_the_check_takes_nothing_back_that_came_in_time(make):
    """The next start goes on from the snapshot, which readers have seen."""
    for behind in BEHIND:
        world = make()
        world.run(boundaries=BATCHES[:3])
        calls = CrashingCalls(world.calls)
        arm("commit.before_publish", 1, lambda: setattr(calls, "_at", calls.count + 2 + behind))
        try:
            world.run(calls, boundaries=BATCHES[:4])
        except InjectedCrash:
            world.die()
        finally:
            faults.arm(None)
        seen = _table(world).snapshots.load(4)
        world.run(boundaries=BATCHES)
        assert world.ids() == expected(BATCHES)
        assert seen is None or _table(world).snapshots.load(4) == seen


def _dies_above_another(make):
    """A world whose driver has died before the check of its snapshot, which is built on one of another application."""
    world = make()
    world.run(boundaries=BATCHES[:3])
    other = make(world.calls, application="other")
    other.driver.first_file = OTHERS
    other.run(boundaries=(OTHERS + 1,))
    calls = CrashingCalls(world.calls)
    arm("commit.before_publish", 1, lambda: setattr(calls, "_at", calls.count + 3))
    try:
        with pytest.raises(InjectedCrash):
            world.run(calls, boundaries=BATCHES[:4])
    finally:
        faults.arm(None)
    world.die()
    assert _table(world).snapshots.ids() == [1, 2, 3, 4, 5]
    return world


def _put(table, number, data, name):
    table.file_io.replace(table.layout.snapshot(number), data, name)


def _expire_all_below(table, newest):
    for number in range(1, newest):
        table.file_io.delete(table.layout.snapshot(number))
    table.file_io.replace(table.layout.earliest_hint, str(newest).encode(), "of-the-expiry")


@pytest.mark.parametrize("make", [_near, _on_s3])
@pytest.mark.parametrize("late", [2, 4])
def test_what_a_late_writer_leaves_is_no_rollback(make, late):
    """All below our snapshot have expired, and a writer that slept has created one of their numbers since."""
    world = _dies_above_another(make)
    table = _table(world)
    left = json.loads(table.file_io.read(table.layout.snapshot(late - 1)))
    _expire_all_below(table, 5)
    _put(table, late, json.dumps({**left, "id": late, "uuid": "late"}).encode(), "late")
    world.run(boundaries=BATCHES)
    assert world.ids() == [*expected(BATCHES), OTHERS]


@pytest.mark.parametrize("make", [_near, _on_s3])
def test_what_another_programs_rename_replaces_is_no_rollback(make):
    """Our snapshot alone has the rows of the application whose snapshot was replaced, and that never starts again."""
    world = _dies_above_another(make)
    table = _table(world)
    below, replaced = (json.loads(table.file_io.read(table.layout.snapshot(number))) for number in (3, 4))
    foreign = {**below, "id": 4, "uuid": "renamed", "commitUser": "another", "timeMillis": replaced["timeMillis"] - 1}
    foreign.pop("properties")
    _put(table, 4, json.dumps(foreign).encode(), "renamed")
    world.run(boundaries=BATCHES)
    assert world.ids() == [*expected(BATCHES), OTHERS]


def test_a_death_before_the_check_of_dead_letters_hides_none_of_others():
    """Two applications have one table for dead letters, which goes back while one of them publishes into it."""
    world, others = LettersWorld(), []
    world.run(boundaries=BATCHES[:3])
    calls = CrashingCalls(world.calls)

    def happens():
        table, begun_ms = world.table("rejected"), Clock().now_ms()
        numbers = table.snapshots.ids()
        for number in numbers[1:]:
            table.file_io.delete(table.layout.snapshot(number))
        table.file_io.replace(table.layout.latest_hint, b"1", "of-the-rollback")
        while Clock().now_ms() <= begun_ms:
            Clock().sleep_ms(1)
        LettersWorld(world.calls, name="returns", application="other").run(boundaries=BATCHES[: len(numbers) - 1])
        others.extend(_letters_of(world, "other"))
        calls._at = calls.count + 2

    arm("letters.before_publish", 1, lambda: arm("commit.before_publish", 1, happens))
    try:
        with pytest.raises(InjectedCrash):
            world.run(calls, boundaries=BATCHES[:4])
    finally:
        faults.arm(None)
    world.die()
    assert others and not _letters_of(world, "other")  # hidden by the snapshot that nobody has checked
    told("dead-letters.gone", lambda: world.run(boundaries=BATCHES)).says("dropped, recreated or rolled back")
    assert _letters_of(world, "other") == others


def _letters_of(world, application):
    rows = read_arrow(world.table("rejected")).to_pylist()
    return sorted(row["row"] for row in rows if row["application"] == application)
