"""Others than the driver write small files again: some die, some are tried again, and some write when all is over."""

import dataclasses
import functools
import logging

import pytest

from streamsink.clock import Clock
from streamsink.compaction import attempts, left_alone
from streamsink.compaction import rewrite as rewriting
from streamsink.compaction.beside import Beside
from streamsink.compaction.budget import Slots
from streamsink.compaction.compactor import By, Compactor, Limits, in_this_process
from streamsink.compaction.plan import pack_all
from streamsink.compaction.rewrite import Stopped, rewrite
from streamsink.errors import Corrupt, Fenced, Misuse, Retryable
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from tests.compaction import beside
from tests.compaction.beside import BEFORE, compact, files_of, left, opened, settled, small_files
from tests.crash.world import expected

LOOK_MS = 1_200_000
# Of all calls some are tried in the gate.
STRIDE = 17


class Others:
    """Write in the place of Spark's tasks: each task twice, as one that was taken for dead and tried again.

    asked: for which tables. fails: raised by the next ones. late: what the one that was taken for dead has yet to do.
    """

    def __init__(self, *fails: Exception, are_there: bool = True):
        self.asked, self.late = [], []
        self._fails, self._are_there = list(fails), are_there

    def __call__(self, root, pause):
        self.asked.append(root)
        return By(self._rewriter, Limits(forgets=False)) if self._are_there else None

    def _rewriter(self, table, tasks, how):
        for task in tasks:
            if self._fails:
                raise self._fails.pop(0)
            rewrite(table, task, how)
            self.late.append(lambda task=task: rewrite(table, task, how))
            yield rewrite(table, task, how)


def _beside(world, others, calls=None, **options) -> tuple[Beside, list]:
    told = []
    given = {"compaction_core_percent": 100, "compaction_interval_ms": LOOK_MS, "compaction_idle_ms": 0, **options}
    made = Beside(
        lambda: [world.driver.root],
        lambda root: opened(world, calls),
        dataclasses.replace(world.driver.options, **given),
        is_over=lambda: False,
        tell=lambda root, done, ms: told.append(done),
        others=others,
    )
    return made, told


@pytest.fixture
def time(monkeypatch):
    """A clock that is set."""
    now = [Clock().now_ms()]
    monkeypatch.setattr(Clock, "now_ms", lambda self: now[0])
    monkeypatch.setattr(Clock, "monotonic_ms", lambda self: float(now[0]))
    return now


def test_a_share_of_the_tasks_is_kept():
    """One task at least, and never all; where one is more than the share, it rests."""
    shares = {(25, 8): (2, 0), (100, 8): (7, 0), (25, 2): (1, 1_000), (1, 40): (1, 1_500), (100, 2): (1, 0)}
    for (percent, slots), (at_once, rest_ms) in shares.items():
        share = Slots(percent, slots)
        assert (share.at_once, share.rest_ms(1_000)) == (at_once, pytest.approx(rest_ms)), share
    assert (Slots(25, 0).at_once, Slots(100, 1).at_once) == (1, 1) and Slots(25, 2).rest_ms(10**9) == 600_000


@pytest.mark.parametrize(
    "options, asks",
    [
        ({"compaction_by": "driver", "compaction_driver_max_bytes": 0}, False),
        ({"compaction_by": "tasks"}, True),
        ({"compaction_driver_max_bytes": 0}, True),
        ({}, False),
    ],
)
def test_others_write_what_is_much(options, asks):
    """Or all, or nothing; and nobody is asked where there is nothing to do."""
    world, others = small_files(), Others()
    made, told = _beside(world, others, **options)
    for _ in range(2):
        made.round()
    assert [done.files_after for done in told] == [3] and len(others.asked) == asks
    assert world.ids() == expected(BEFORE) and set(files_of(world).values()) == {1}


def test_the_driver_writes_while_nobody_else_can():
    """As where the session can run a single task."""
    world = small_files()
    made, told = _beside(world, Others(are_there=False), compaction_by="tasks")
    made.round()
    assert [done.files_after for done in told] == [3] and left(world) == []


def test_where_others_cannot_do_it_the_driver_does(caplog):
    """Under 'auto': a task's Python that lacks the library ends no query."""
    for failed in (Misuse("no library", kind="t.t"), Retryable("lost", kind="t.t")):
        world, others = small_files(), Others(failed)
        made, told = _beside(world, others, compaction_driver_max_bytes=0)
        with caplog.at_level(logging.WARNING, "streamsink"):
            made.round()
        assert told == [] and "the driver compacts from now on" in caplog.text
        made.round()
        assert len(others.asked) == 1 and [done.files_after for done in told] == [3]
        assert world.ids() == expected(BEFORE)


def test_a_row_that_another_writer_let_in_is_no_failure_of_the_others(monkeypatch, caplog):
    """They go on with the other files, and the driver has not taken over."""
    world, others = small_files(), Others()
    before = next(iter(opened(world).manifests.entries_of(opened(world).snapshots.latest()))).file.file_name
    real = rewriting.rows_of

    def refuses(table, entry, wanted):
        if entry.file.file_name == before:
            raise Misuse("too long", kind="data.too-long")
        return real(table, entry, wanted)

    for module in (rewriting, left_alone):
        monkeypatch.setattr(module, "rows_of", refuses)
    made, told = _beside(world, others, compaction_driver_max_bytes=0)
    made.round()
    assert [done.files_before for done in told] == [8] and "1 file(s) are not compacted" in caplog.text
    assert not made._have_failed and len(others.asked) == 1


def test_who_asks_for_others_alone_gets_their_error():
    """And damage is told in any case."""
    made, _ = _beside(small_files(), Others(Misuse("no library", kind="t.t")), compaction_by="tasks")
    with pytest.raises(Misuse, match="no library"):
        made.round()
    made, _ = _beside(small_files(), Others(Corrupt("broken", kind="t.t")), compaction_driver_max_bytes=0)
    with pytest.raises(Corrupt, match="broken"):
        made.round()


def test_what_is_announced_does_not_pile_up(time):
    """Beside a stream, for three hours with a look each twenty minutes: what tasks have left, or bring late, is deleted
    when an hour is over, and the announcements are never more than an hour's.
    """
    world = small_files()
    others = Others()
    made, told = _beside(world, others, compaction_by="tasks")
    ends, most = list(BEFORE), 0
    for _ in range(9):
        ends += (ends[-1] + 3, ends[-1] + 6, ends[-1] + 9)
        world.run(boundaries=tuple(ends))
        made.round()
        for task in others.late:
            try:
                task()
            except (Corrupt, OSError):
                pass  # its input has expired
        others.late.clear()
        time[0] += LOOK_MS
        most = max(most, len(attempts.announced(opened(world))))
    assert len(told) > 7 and 2 <= most <= 4 and world.ids() == expected((ends[-1],))
    time[0] += attempts.ABANDONED_MS
    world.run(boundaries=(*ends, ends[-1] + 3))
    made.round()
    time[0] += attempts.ABANDONED_MS
    made.round()
    assert left(world) == [] and world.ids() == expected((ends[-1] + 3,))


def test_each_announcement_is_read_once(time):
    """A look costs no more for what is announced."""
    world, paths = small_files(), list[str]()
    calls = CrashingCalls(world.calls)
    real = calls.read
    calls.read = lambda path: paths.append(path) or real(path)
    made, told = _beside(world, Others(), calls, compaction_by="tasks")
    ends = list(BEFORE)
    for _ in range(6):
        ends += (ends[-1] + 3, ends[-1] + 6)
        world.run(boundaries=tuple(ends))
        made.round()
    assert len(told) > 3 and len(attempts.announced(opened(world))) == len(told)
    read = [path for path in paths if "/streamsink/compact-" in path]
    assert 0 < len(read) == len(set(read)) < len(told) + 1, read


@pytest.mark.parametrize("failed", [Stopped(), Retryable("lost", kind="t.t")])
def test_what_others_have_begun_is_announced_still(failed, time):
    """Their job is given up, or has failed: its tasks may write yet. A stop waits for nobody, so it deletes nothing."""
    world, others = small_files(), Others()
    calls = CrashingCalls(world.calls)
    compactor = Compactor(opened(world, calls), world.driver.options)
    compactor.settle()
    tasks = compactor.plan(pack_all)

    def rewriter(table, given, how):
        yield from others("", None).rewriter(table, given[:1], how)
        calls.log.clear()
        raise failed

    with pytest.raises(type(failed)):
        compactor.do(tasks, By(rewriter, Limits(forgets=False)))
    assert isinstance(failed, Retryable) or not calls.log
    others.late[0]()
    compactor.settle()
    assert len(attempts.announced(opened(world))) == 1 and world.ids() == expected(BEFORE)
    time[0] += attempts.ABANDONED_MS
    compactor.settle()
    assert left(world) == []


@pytest.mark.parametrize("happens", [beside.overwritten, beside.rolled_back, beside.takes_it_for_dead])
def test_others_are_first_while_tasks_write(happens, time):
    """The work is thrown away, and what comes late is swept: nothing is orphaned, no row is lost."""
    world, others = small_files(), Others()
    compactor = Compactor(opened(world), world.driver.options)
    compactor.settle()
    tasks = compactor.plan(pack_all)

    def rewriter(table, given, how):
        found = list(others("", None).rewriter(table, given, how))
        happens(world)
        yield from found

    try:
        compactor.do(tasks, By(rewriter, Limits(forgets=False)))
    except Fenced as lost:
        assert lost.kind == "compact.taken-for-dead"
    wanted = small_files()
    happens(wanted)
    assert world.ids() == wanted.ids() and compactor.totals.files_after < 3
    for task in others.late:
        try:
            task()
        except (Corrupt, OSError):
            pass
    time[0] += 2 * attempts.ABANDONED_MS
    if happens is not beside.rolled_back:  # behind that the stream stops and asks
        compact(world, abandoned_ms=attempts.ABANDONED_MS)
    assert world.ids() == wanted.ids()


def test_the_driver_may_die_while_others_write(rng):
    """At some calls, others in each run: its tasks write on, and what they bring is swept when it can come no more."""
    _die(1 + rng.randrange(STRIDE), STRIDE)


@pytest.mark.soak
def test_the_driver_may_die_at_every_call_while_others_write():
    _die(1, 1)


def _die(first: int, stride: int) -> None:
    n, is_over = first, False
    while not is_over:
        world, late = small_files(), []
        by = By(functools.partial(_twice, world, late), Limits(forgets=False))
        try:
            compact(world, CrashingCalls(world.calls, n), by=by)
            is_over = True
        except InjectedCrash:
            world.die()
        assert world.ids() == expected(BEFORE), f"call {n}"
        for task in late:
            task()
        settled(world)
        assert world.ids() == expected((17,)) and left(world) == [], f"call {n}"
        n += stride
    assert n > 20


def _twice(world, late, table, tasks, how):
    """A ``Rewriter`` whose tasks have calls of their own: each is done twice, and a third time when all is over."""
    for task in tasks:
        rewrite(opened(world), task, how)
        late.append(functools.partial(rewrite, opened(world), task, how))
        yield rewrite(opened(world), task, how)


def test_in_this_process_nothing_stays_announced():
    """Nobody can write late then."""
    world = small_files()
    compactor = Compactor(opened(world), world.driver.options)
    compactor.settle()
    compactor.do(compactor.plan(pack_all), By(in_this_process))
    assert left(world) == [] and world.ids() == expected(BEFORE)
