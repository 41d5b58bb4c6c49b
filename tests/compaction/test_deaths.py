"""A compaction changes no row, whatever dies, and whatever others do at the same time."""

import functools

import pytest

import streamsink
import streamsink.commands.verify
from streamsink.clock import IdSource
from streamsink.compaction import attempts
from streamsink.compaction.compactor import Compactor
from streamsink.errors import Fenced, Retryable, StreamsinkError
from streamsink.storage.file_io import FileIO
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash
from tests.compaction import beside
from tests.compaction.beside import BEFORE, compact, files_of, ids_of, left, opened, settled, small_files
from tests.crash.sweeps import deaths
from tests.crash.world import expected

# Of all calls, and of the states that deaths leave, some are tried in the gate.
STRIDE, EACH_NTH = 37, 3


@pytest.mark.in_turn("compactions that die", 1)
@pytest.mark.parametrize("power", [False, True])
def test_it_may_die(power, rng):
    """Readers see the same rows after each death, and what it has left is swept when it can come no more."""
    _die_on_a_disk(power, rng.randrange(EACH_NTH), EACH_NTH)


@pytest.mark.soak
@pytest.mark.parametrize("power", [False, True])
def test_it_may_die_at_every_call(power):
    """All of them."""
    _die_on_a_disk(power, 0, 1)


def _die_on_a_disk(power: bool, first: int, stride: int) -> None:
    world = small_files()
    found = deaths(world, power, run=lambda calls: compact(world, calls))
    assert len(found) > (5 if power else 20)
    for state in found[first::stride]:
        world = small_files()
        state.put_back(world, power)
        assert world.ids() == expected(BEFORE), state
        settled(world)
        assert world.ids() == expected((17,)) and left(world) == [], state


@pytest.mark.parametrize("mode", [Mode.ERROR, Mode.REPLY_LOST, Mode.REPEATED], ids=lambda mode: mode.value)
def test_the_store_may_fail_at_every_call(mode, rng):
    """Once: the compaction ends with an error or goes on, and no row is lost or doubled."""
    _fail(mode, 1 + rng.randrange(STRIDE), STRIDE)


@pytest.mark.soak
@pytest.mark.parametrize("mode", [Mode.ERROR, Mode.REPLY_LOST, Mode.REPEATED], ids=lambda mode: mode.value)
def test_the_store_may_fail_at_every_single_call(mode):
    _fail(mode, 1, 1)


def _fail(mode: Mode, first: int, stride: int) -> None:
    world = small_files()
    counting = CrashingCalls(world.calls)
    compact(world, counting)
    for n in range(first, counting.count + 1, stride):
        world = small_files()
        try:
            compact(world, CrashingCalls(world.calls, n, mode))
        except (OSError, StreamsinkError):
            pass
        assert world.ids() == expected(BEFORE), f"call {n}"
        settled(world)
        assert world.ids() == expected((17,)) and left(world) == [], f"call {n}"


@pytest.mark.in_turn("compactions that die far away", 1)
@pytest.mark.parametrize("store", ["s3", "distant"])
def test_it_may_die_in_distant_stores(store, rng):
    """Where files cannot be renamed, or read in parts; at some calls, others in each run."""
    _die(store, 1 + rng.randrange(STRIDE // 2), STRIDE // 2)


@pytest.mark.soak
@pytest.mark.parametrize("store", ["s3", "distant"])
def test_it_may_die_at_every_call_in_distant_stores(store):
    _die(store, 1, 1)


def _die(store: str, first: int, stride: int) -> None:
    world = small_files(store)
    counting = CrashingCalls(world.calls)
    compact(world, counting)
    assert world.ids() == expected(BEFORE) and set(files_of(world).values()) == {1} and left(world) == []
    for n in range(first, counting.count + 1, stride):
        world = small_files(store)
        try:
            compact(world, CrashingCalls(world.calls, n))
        except InjectedCrash:
            world.die()
        assert world.ids() == expected(BEFORE), f"call {n}"
        settled(world)
        assert world.ids() == expected((17,)) and left(world) == [], f"call {n}"


OTHERS = [
    beside.stream_goes_on,
    beside.overwritten,
    beside.expired,
    beside.dropped_with_its_folder,
    beside.rolled_back,
    beside.compacted_by_others,
    beside.stream_goes_on_and_all_expires,
    beside.takes_it_for_dead,
]
EACH = pytest.mark.parametrize("others", OTHERS, ids=lambda others: others.__name__)


@pytest.mark.in_turn("what others do beside a compaction", 4)
@EACH
def test_others_may_come_between_any_two_calls(others, rng):
    """What a reader sees then is what it would see without the compaction, in each snapshot that is retained."""
    _beside(others, 1 + rng.randrange(STRIDE), STRIDE)


@pytest.mark.soak
@EACH
def test_others_may_come_at_every_single_call(others):
    _beside(others, 1, 1)


def _beside(others, first: int, stride: int) -> None:
    world = small_files()
    others(world)
    wanted, world = world.ids(), small_files()
    counting = CrashingCalls(world.calls)
    compact(world, counting)
    for n in range(first, counting.count + 1, stride):
        world = small_files()
        _at_call(world, n, lambda world=world: others(world))
        assert world.ids() == wanted, f"call {n}"
        for number, batch in enumerate(BEFORE, 1):
            snapshot = opened(world).snapshots.load(number)
            if snapshot is not None and snapshot.commit_kind == "APPEND":
                assert ids_of(world, number) == expected((batch,)), f"call {n}, snapshot {number}"
        if others is beside.rolled_back:
            continue  # the stream stops and asks
        settled(world)
        report = streamsink.commands.verify.verify(FileIO(world.calls, IdSource().new_id), world.driver.root, True)
        assert left(world) == [] and report.ok, f"call {n}: {report}"


def test_a_rollback_at_the_instant_of_its_commit_counts_although_it_dies_then():
    """Its snapshot has come into another history, above a free number, and nobody has checked that. The next compaction
    takes it back, before it would become the newest one.
    """
    for n in range(_creation(), _creation() + 4):
        _dies_in_another_history(n)


@functools.cache
def _creation() -> int:
    """Number of the call with which the snapshot gets its name."""
    world = small_files()
    calls, seen = CrashingCalls(world.calls), []
    link = calls.link

    def linked(source, target):
        if target.endswith("snapshot-4"):
            seen.append(calls.count + 1)
        return link(source, target)

    calls.link = linked
    compact(world, calls)
    return seen[0]


def _dies_in_another_history(n: int) -> None:
    """The table goes back right before the snapshot is created, and the compaction dies before this call."""
    world = small_files()
    with pytest.raises(InjectedCrash):
        _at_call(world, _creation(), lambda: beside.rolled_back(world), dies=n)
    world.die()
    for _ in range(3):
        compact(world)
        assert world.ids() == expected((9,)), f"call {n}"
    report = streamsink.commands.verify.verify(world.file_io(world.calls), world.driver.root, True)
    damage = [each.kind for each in report.findings if each.severity == "damage"]
    assert damage == ["checkpoint.rolled-back"], f"call {n}: {report}"


def test_a_snapshot_of_a_dead_compaction_in_another_history_is_taken_back(caplog):
    """The table was rolled back by one snapshot only, so that it is the newest one."""
    world = small_files()

    def rolled_back_by_one():
        table = opened(world)
        table.file_io.delete(table.snapshots.path(3))
        table.file_io.replace(table.layout.latest_hint, b"2", "x")

    with pytest.raises(InjectedCrash):
        _at_call(world, _creation(), lambda: (rolled_back_by_one(), beside.foreign_append(world)), dies=_creation() + 2)
    world.die()
    table = opened(world)
    assert table.snapshots.latest().commit_kind == "COMPACT"
    Compactor(table, world.driver.options, abandoned_ms=0).settle()
    assert "It was taken back" in caplog.text and opened(world).snapshots.latest().id == 3
    assert world.ids() == [*expected((9,)), 1002]


def _at_call(world, n: int, do, dies: int = 0) -> None:
    """Compact, and do this before the n-th call. dies: the call before which the compaction dies."""
    calls = CrashingCalls(world.calls, dies)

    def look() -> None:
        if calls.count == n - 1 and done.append(n) is None and len(done) == 1:
            do()

    done: list[int] = []
    calls.before_call = look
    try:
        compact(world, calls, abandoned_ms=attempts.ABANDONED_MS)
    except Retryable:
        pass
    except Fenced as fenced:
        assert fenced.kind == "compact.taken-for-dead"


@pytest.mark.soak
@EACH
def test_it_may_die_behind_what_others_do(others, rng):
    """They come at a random call, and it dies at a later one."""
    world = small_files()
    counting = CrashingCalls(world.calls)
    compact(world, counting)
    others(reference := small_files())
    for _ in range(20):
        n = 1 + rng.randrange(counting.count)
        dies = n + rng.randrange(counting.count)
        world = small_files()
        try:
            _at_call(world, n, lambda world=world: others(world), dies=dies)
        except InjectedCrash:
            world.die()
        assert world.ids() == reference.ids(), f"others at call {n}, death at {dies}"
        for _ in range(3):
            compact(world)
            assert world.ids() == reference.ids(), f"others at call {n}, death at {dies}"
