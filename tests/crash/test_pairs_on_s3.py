"""A restart with several pending records on S3, to which two things happen at any two requests; each row is there once.

``test_restarts_on_s3.py`` tries each of them alone.
"""

import copy
import itertools
from errno import EIO

import pytest

from streamsink.errors import StreamsinkError
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from tests.crash.test_restarts_on_s3 import BATCHES, ROOT, _few_at_once, _restarting, _world, pending
from tests.crash.world import expected

__all__ = ["_few_at_once", "pending"]  # fixtures
SNAPSHOT = f"{ROOT}/snapshot/snapshot-"
CHANGES_OBJECTS = {"put", "put_new", "try_new", "unlink", "remove_all", "copy"}


class Events:
    """What others do to the table.

    others: the ids of another application that are there to stay. hidden: those that a rollback took away, or that a
    snapshot of ours hid until it was taken back.
    """

    def __init__(self, world, pending):
        self._world, self._pending = world, pending
        self._calls = world.calls
        self._next = 100
        self.others: list[int] = []
        self.hidden: set[int] = set()

    def _numbers(self):
        return sorted(int(path[len(SNAPSHOT) :]) for path in self._calls._objects if path.startswith(SNAPSHOT))

    def _back_to(self, number):
        """As Paimon does it: from the newest one downwards, then the hint. Nothing goes back to what has expired."""
        number = max(number, self._numbers()[0])
        for newer in [n for n in reversed(self._numbers()) if n > number]:
            self._calls.unlink(f"{SNAPSHOT}{newer}")
        self._calls.put(f"{ROOT}/snapshot/LATEST", str(number).encode())
        seen = self._world.ids()
        self.hidden |= set(self.others) - set(seen)
        self.others = [row for row in self.others if row in seen]

    def back_to_the_first(self):
        self._back_to(1)

    def back_by_one(self):
        self._back_to(max(1, self._numbers()[-1] - 1))

    def back_by_two(self):
        self._back_to(max(1, self._numbers()[-1] - 2))

    def check(self, story):
        """Each row of ours is there once, and each of the other application's that is there to stay."""
        ids = [row for row in self._world.ids() if row not in self.hidden]
        assert ids == [*expected(BATCHES), *self.others], story

    def foreign(self, count=1):
        other = _world(self._calls, application="other")
        other.driver.first_file = self._next
        ends = tuple(range(self._next + 1, self._next + count + 1))
        if not ends:
            return
        other.run(boundaries=ends)
        self.others += range(self._next, self._next + count)
        self._next += count

    def history(self, less=0):
        """Another application fills the numbers that a rollback has freed, but for so many."""
        count = self._numbers()[-1] - 1 - less
        self.back_to_the_first()
        self.foreign(count)

    def history_with_a_hole(self):
        self.history(1)

    def longer_history(self):
        self.history(-1)

    def expiry(self):
        """Three stay, of the ten that do by Paimon's rules, and EARLIEST names the first of them."""
        self._expire(self._numbers()[:-3])
        self._calls.put(f"{ROOT}/snapshot/EARLIEST", str(self._numbers()[0]).encode())

    def sharp_expiry(self):
        """Two stay, and it dies before it moves EARLIEST."""
        self._expire(self._numbers()[:-2])

    def _expire(self, numbers):
        for number in numbers:
            self._calls.unlink(f"{SNAPSHOT}{number}")

    def rival(self):
        other = _world(self._calls, on_rollback="republish")
        other.checkpoint = copy.deepcopy(self._pending.checkpoint)
        other.run(boundaries=BATCHES)


class TwoEvents(CrashingCalls):
    """At each of these calls something happens. error: the call fails. reply: it is done, and reports an error all the
    same. late: it fails, and is done when the driver has gone on (``late``). Else: a method of ``Events``.
    """

    def __init__(self, inner, events, plan, rng):
        super().__init__(inner)
        self._events, self.plan, self._is_inside = events, plan, False
        self.late, self.story = [], []
        self.order = lambda actions: rng.sample(actions, len(actions))

    def _do(self, name, action, torn=None):
        kind = None if self._is_inside else self.plan.pop(self.count + 1, None)
        if kind is None or self.dead:
            return super()._do(name, action, torn)
        self.story.append(f"{kind} at call {self.count + 1} ({name})")
        if kind in ("error", "reply", "late", "death"):
            return super()._do(name, lambda: self._fails(kind, name, action))
        self._is_inside = True
        try:
            getattr(self._events, kind)()
        finally:
            self._is_inside = False
        return super()._do(name, action, torn)

    def unlink(self, path):
        """Between the last look at a snapshot and its deletion nothing happens: nobody could see it."""
        if path.startswith(SNAPSHOT) and not self._is_inside and hasattr(Events, self.plan.get(self.count + 1, "")):
            self.plan[self.count + 2] = self.plan.pop(self.count + 1)
        return super().unlink(path)

    def _fails(self, kind, name, action):
        if kind == "death":
            self.dead = True
            raise InjectedCrash(name)
        if kind == "reply":
            action()
        if kind == "late" and name in CHANGES_OBJECTS:
            self.late.append(action)
        raise OSError(EIO, "injected", name)


OTHER_HISTORIES = ("history", "history_with_a_hole", "longer_history")
KINDS = (
    *OTHER_HISTORIES,
    "back_to_the_first",
    "back_by_one",
    "back_by_two",
    "foreign",
    "rival",
    "expiry",
    "sharp_expiry",
)
KINDS += ("error", "reply", "late", "death")
BACK = ("back_to_the_first", "back_by_one", "back_by_two")
# Where a rival has published a record, and deleted what the other driver had written for it, and the table goes back at
# that instant, the other driver's snapshot comes without its lists: readers fail.
NOT_DECIDED = {frozenset({"rival", back}) for back in BACK}
# Another history fills the freed numbers while a snapshot of ours is under way, and all of it expires but what two
# snapshots of ours, of which nobody has checked one, leave no room for: nothing tells what they were built on, and to
# take them back would leave no snapshot at all. Where three stay, one of them is of that history.
NOT_DECIDED |= {frozenset({history, "sharp_expiry"}) for history in OTHER_HISTORIES}


@pytest.mark.parametrize("pairs", [25, pytest.param(1_500, marks=pytest.mark.soak)])
def test_two_events_at_any_two_requests(pending, pairs, rng):  # noqa: F811  # as pytest has it
    """Those that are near each other, mostly, and behind the start's own look."""
    every = [kinds for kinds in itertools.product(KINDS, KINDS) if frozenset(kinds) not in NOT_DECIDED]
    for kinds in rng.choices(every, k=pairs):
        first = rng.randrange(15, 110)
        second = first + rng.randrange(1, 12 if rng.random() < 0.7 else 60)
        world = _restarting(pending, on_rollback="republish")
        events = Events(world, pending)
        calls = TwoEvents(world.calls, events, {first: kinds[0], second: kinds[1]}, rng)
        try:
            world.run(calls, boundaries=BATCHES)
        except (InjectedCrash, StreamsinkError, OSError):
            calls.dead = True
        for action in calls.late:
            action()
        world.run(boundaries=BATCHES)
        events.check(calls.story)


class _AtItsSnapshot(TwoEvents):
    """The first event comes when the snapshot of this number is to be created, the other one so many calls later."""

    def __init__(self, inner, events, number, first, later, rng, *, then="error"):
        super().__init__(inner, events, {}, rng)
        self._path, self._first, self._later, self._then = f"{SNAPSHOT}{number}", first, later, then

    def put_new(self, path, data, unique):
        if path == self._path and not self.story and not self.plan:
            self.plan = {self.count + 1: self._first, self.count + 1 + self._later: self._then}
        return super().put_new(path, data, unique)


@pytest.mark.parametrize("history", ["history", "history_with_a_hole"])
@pytest.mark.parametrize("later", range(1, 7))
def test_a_check_that_gets_no_answer_is_made_again(pending, history, later, rng):  # noqa: F811  # as above
    """That our snapshot is there does not tell that it came in time; nor does it when it was about to be taken back."""
    for number in (4, 7):
        world = _restarting(pending, on_rollback="republish")
        events = Events(world, pending)
        calls = _AtItsSnapshot(world.calls, events, number, history, later, rng)
        _run_again(world, calls)
        events.check(calls.story)


@pytest.mark.parametrize("history", ["history", "history_with_a_hole"])
def test_a_death_before_the_check_of_two_snapshots_hides_nothing(pending, history, rng):  # noqa: F811  # as above
    """The upper one is built on the lower one, which is built on nothing that is there: the next start finds both."""
    both = 0
    for later in range(1, 14):
        world = _restarting(pending, on_rollback="republish")
        events = Events(world, pending)
        calls = _AtItsSnapshot(world.calls, events, 3, history, later, rng, then="death")
        calls.order = lambda actions: actions
        with pytest.raises((InjectedCrash, StreamsinkError)):
            world.run(calls, boundaries=BATCHES)
        both += {f"{SNAPSHOT}3", f"{SNAPSHOT}4"} <= set(world.calls._objects)
        world.run(boundaries=BATCHES)
        events.check(calls.story)
    assert both


@pytest.mark.parametrize("number", range(3, 8))
def test_a_creation_that_fails_leaves_nothing_that_is_built_on_its_lists(pending, number, rng):  # noqa: F811  # as above
    """What is behind it was written ahead, and names the manifest that it had merged."""
    world = _restarting(pending, on_rollback="republish")
    events = Events(world, pending)
    _run_again(world, _AtItsSnapshot(world.calls, events, number, "error", 1_000, rng))
    events.check(number)


@pytest.mark.parametrize("later", range(1, 9))
def test_another_history_while_a_next_try_looks_is_not_hidden(pending, later, rng):  # noqa: F811  # as above
    """A part of the answers is of the history before it."""
    for number in (4, 6):
        world = _restarting(pending, on_rollback="republish")
        events = Events(world, pending)
        calls = _AtItsSnapshot(world.calls, events, number, "error", later, rng, then="history")
        calls.order = lambda actions: actions
        _run_again(world, calls)
        events.check(calls.story)


def _run_again(world, calls):
    """The first run may end with the error that was injected."""
    try:
        world.run(calls, boundaries=BATCHES)
    except (StreamsinkError, OSError):
        calls.dead = True
    world.run(boundaries=BATCHES)


class _LateSnapshot(CrashingCalls):
    """The creation of one snapshot fails, and comes when it was looked for once and the table has gone back."""

    def __init__(self, inner, number, goes_back, comes=True):
        """comes: else ``come`` is called later."""
        super().__init__(inner)
        self._path, self._goes_back, self._comes, self._late = f"{SNAPSHOT}{number}", goes_back, comes, None
        self.has_come = False

    def come(self):
        self._inner.put_new(*self._late)

    def put_new(self, path, data, unique):
        if path == self._path and self._late is None:
            self._late = (path, data, unique)
            raise OSError(EIO, "injected: it comes later", path)
        return super().put_new(path, data, unique)

    def read(self, path):
        if path != self._path or self._late is None or self.has_come:
            return super().read(path)
        self.has_come = True
        try:
            return super().read(path)
        finally:
            self._goes_back()
            if self._comes:
                self.come()


@pytest.mark.parametrize("number", [3, 5])
@pytest.mark.parametrize("kind", ["back_to_the_first", "history", "history_with_a_hole"])
def test_a_snapshot_that_comes_without_an_answer_into_another_history(pending, number, kind):  # noqa: F811  # as above
    """It goes, or nothing is built on it; what it names is not deleted while it is there."""
    world = _restarting(pending, on_rollback="republish")
    events = Events(world, pending)
    calls = _LateSnapshot(world.calls, number, getattr(events, kind))
    _run_again(world, calls)
    assert calls.has_come
    events.check(kind)


def test_what_a_snapshot_names_that_may_come_stays(pending):  # noqa: F811  # as above
    """The restart ends, because the table has gone back, before the snapshot comes."""
    world = _restarting(pending, on_rollback="republish")
    calls = _LateSnapshot(world.calls, 3, Events(world, pending).back_to_the_first, comes=False)
    with pytest.raises(StreamsinkError):
        world.driver.start(world.file_io(calls), world.checkpoint)
    calls.come()
    table = open_table(world.file_io(world.calls), ROOT, for_writing=False)
    assert table.manifests.all_of(table.snapshots.load(3))


class _NothingToMerge(CrashingCalls):
    """Before snapshot 4 is created the table has another history; the manifest that is merged next cannot be read."""

    def __init__(self, inner, happens):
        super().__init__(inner)
        self._happens, self._fails = happens, False
        self.order = lambda actions: actions[::-1]

    def put_new(self, path, data, unique):
        if path == f"{SNAPSHOT}4" and not self._fails:
            self._happens()
            self._fails = True
        return super().put_new(path, data, unique)

    def read(self, path):
        if self._fails and path.startswith(f"{ROOT}/manifest/manifest-") and "-list-" not in path:
            self._fails = False
            raise OSError(EIO, "injected", path)
        return super().read(path)


def test_an_error_before_the_next_are_prepared_leaves_no_snapshot_unchecked(pending):  # noqa: F811  # as above
    world = _restarting(pending, on_rollback="republish")
    events = Events(world, pending)
    calls = _NothingToMerge(world.calls, events.history)
    with pytest.raises(StreamsinkError) as failed:
        world.driver.start(world.file_io(calls), world.checkpoint)
    assert failed.value.kind == "table.history-changed"
    calls.dead = True
    world.run(boundaries=BATCHES)
    events.check("an error before the next are prepared")
