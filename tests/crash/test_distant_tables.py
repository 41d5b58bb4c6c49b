"""What happens to one of the tables of a query, or to the one for its dead letters, in a distant store, which is asked
less: it is noticed before the next record.
"""

import copy
import dataclasses

import pytest

from streamsink import faults
from streamsink.clock import Clock
from streamsink.errors import Corrupt, Fenced, Misuse, Retryable
from streamsink.table.table import create_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash, arm
from streamsink.testing.stepping import Stepping
from tests.crash.letters_world import LETTERS, NAME
from tests.crash.many_world import BOUNDARIES
from tests.crash.s3_worlds import ROOT, TablesWorld, WithLetters, data_files
from tests.storage.memory_s3 import MemoryS3Calls

# A first start makes fewer calls before its first record.
_MOST_OF_A_START = 40


def _drop(world, name: str) -> None:
    for path in [path for path in world.calls._objects if path.startswith(f"{ROOT}/{name}/")]:
        del world.calls._objects[path]


def _recreate(world, name: str) -> None:
    schema = world.table(name).latest_schema()
    _drop(world, name)
    create_table(world.file_io(), f"{ROOT}/{name}", dataclasses.replace(schema, time_millis=schema.time_millis + 1))


def _roll_back(world, name: str) -> None:
    table = world.table(name)
    world.file_io().delete(table.layout.snapshot(table.snapshots.latest().id))
    world.file_io().delete(table.layout.latest_hint)


@pytest.mark.parametrize("kind", ["table.gone", "table.recreated", "table.rolled-back"])
@pytest.mark.parametrize("slept", [False, True], ids=["before the batch", "while it is written"])
def test_what_happens_to_one_of_the_tables_is_noticed_before_the_next_record(kind, slept, monkeypatch):
    """What was looked at when the batch was admitted counts for seconds: a driver that sleeps longer looks again."""
    accident = {"table.gone": _drop, "table.recreated": _recreate, "table.rolled-back": _roll_back}[kind]
    world, calls = TablesWorld(small=True), CrashingCalls(MemoryS3Calls())
    world.driver.background = lambda step: Stepping(step, calls, 0)
    sink = world.driver.start(world.file_io(), world.checkpoint)
    world.checkpoint.ends += [6, 14]
    sink.batch(world.driver.describe(world.checkpoint, 0))
    before = data_files(world)
    rows, now = world.driver.rows, Clock.monotonic_ms

    def late(start, end):
        accident(world, "more_x")
        monkeypatch.setattr(Clock, "monotonic_ms", lambda self: now(self) + 60_000)
        monkeypatch.setattr(Clock, "now_ms", lambda self, before=Clock.now_ms: before(self) + 60_000)
        return rows(start, end)

    if slept:
        world.driver.rows = late
    else:
        accident(world, "more_x")
    with pytest.raises(Misuse) as refused:
        sink.batch(world.driver.describe(world.checkpoint, 1))
    assert refused.value.kind == kind and "more_x" in str(refused.value)
    assert f"{world.journal}/record-2.json" not in world.calls._objects
    assert data_files(world) <= before


def test_another_writer_of_one_of_the_tables_loses_and_keeps_nothing():
    """It commits between the look and the record: what was prepared for that table is deleted and made anew."""
    for step in ("write.staged", "precommit.before_record", "precommit.saved", "tables.table_published"):
        world = TablesWorld(small=True)
        world.run(boundaries=(6,))
        arm(step, 1, lambda: (faults.arm(None), _foreign_commit(world, "more_x")))
        try:
            world.run(boundaries=(6, 14))
        finally:
            faults.arm(None)
        world.check_complete((6, 14))
        assert world.unknown_files() == [], step


def _foreign_commit(world, name: str) -> None:
    table = world.table(name)
    newest = table.snapshots.latest()
    foreign = dataclasses.replace(newest, id=newest.id + 1, commit_user="another", uuid="of another")
    world.file_io().write(table.layout.snapshot(foreign.id), foreign.to_json())


@pytest.mark.parametrize("accident", [_drop, _recreate, _roll_back])
@pytest.mark.parametrize("slept", [False, True], ids=["before the batch", "while it is written"])
def test_what_happens_to_the_table_for_dead_letters_is_noticed_before_the_next_record(accident, slept, monkeypatch):
    """As above. Only a batch that has dead letters has to do with that table."""
    world = WithLetters(small=True)
    driver, calls = world.driver_of(LETTERS), CrashingCalls(MemoryS3Calls())
    driver.background, driver.is_small = lambda step: Stepping(step, calls, 0), True
    sink = driver.start(world.file_io(), world.checkpoint)
    world.checkpoint.ends += [6, 12]
    sink.batch(driver.describe(world.checkpoint, 0))
    before, rows, now = data_files(world), driver.rows, Clock.monotonic_ms

    def late(start, end):
        accident(world, "rejected")
        monkeypatch.setattr(Clock, "monotonic_ms", lambda self: now(self) + 60_000)
        monkeypatch.setattr(Clock, "now_ms", lambda self, before=Clock.now_ms: before(self) + 60_000)
        return rows(start, end)

    if slept:
        driver.rows = late
    else:
        accident(world, "rejected")
    with pytest.raises((Misuse, Retryable)) as refused:
        sink.batch(driver.describe(world.checkpoint, 1))
    assert refused.value.kind in ("dead-letters.replaced", "dead-letters.changed")
    assert f"{world.journal}/record-2.json" not in world.calls._objects
    assert data_files(world) <= before


@pytest.mark.parametrize("older", [False, True], ids=["gone", "an older copy"])
def test_a_journal_that_is_gone_or_older_is_noticed_before_the_next_record(older):
    """The run does not read it between its own records; who owns the application is asked for each of them."""
    world = TablesWorld(small=True)
    before = dict(world.calls._objects)
    if older:
        world.run(boundaries=(6,))
        before = dict(world.calls._objects)
    calls = CrashingCalls(MemoryS3Calls())
    world.driver.background = lambda step: Stepping(step, calls, 0)
    sink = world.driver.start(world.file_io(), world.checkpoint)
    world.checkpoint.ends += [14, 16] if older else [6, 14]
    number = world.checkpoint.committed
    sink.batch(world.driver.describe(world.checkpoint, number))
    for path in [path for path in world.calls._objects if path.startswith(f"{world.journal}/")]:
        del world.calls._objects[path]
    world.calls._objects.update({path: found for path, found in before.items() if path.startswith(f"{world.journal}/")})
    with pytest.raises((Misuse, Fenced, Retryable, Corrupt)):
        sink.batch(world.driver.describe(world.checkpoint, number + 1))
    records = [path for path in world.calls._objects if path.startswith(f"{world.journal}/record-")]
    assert len(records) == (1 if older else 0)


def test_the_table_does_not_say_that_dead_letters_are_there_before_that_is_known():
    """Their table goes back while their snapshot is created, which is taken back then. The record stays pending."""
    world = WithLetters(small=True)
    world.run(boundaries=(6,))
    calls, others, gone = CrashingCalls(world.calls), CrashingCalls(MemoryS3Calls()), []

    def goes_back():
        snapshots = [path for path in world.calls._objects if path.startswith(f"{ROOT}/rejected/snapshot/snapshot-")]
        if len(snapshots) > 1 and not gone:
            gone.extend(world.calls._objects.pop(path) for path in snapshots)

    calls.before_call = goes_back
    driver = world.driver_of(LETTERS)
    driver.background, driver.is_small = lambda step: Stepping(step, others, 0), True
    sink = driver.start(world.file_io(calls), world.checkpoint)
    world.checkpoint.ends.append(12)
    with pytest.raises(Retryable):
        sink.batch(driver.describe(world.checkpoint, 1))
    assert gone and world.states(NAME)["streamsink"]["sequence"] == 1
    with pytest.raises(Misuse) as refused:  # which says the way on
        world.run(boundaries=(6, 12))
    assert refused.value.kind == "dead-letters.gone"


class _Interrupted(CrashingCalls):
    """Something happens before the n-th call of these names; ``before_call`` is taken by what publishes beside the
    batches.
    """

    def __init__(self, inner, n, names, happens):
        super().__init__(inner)
        self.left, self._names, self._happens = n, names, happens

    def _do(self, name, action, torn=None):
        self.left -= not self._names or name in self._names
        if self.left == 0:
            self.left = -1
            self._happens()
        return super()._do(name, action, torn)


# Each batch goes to all tables.
_BATCHES = (6, 14, 20)


def _ended_by(first):
    """The objects when the driver's second batch was recorded, and when it had ended."""
    recorded = {}
    first.run(boundaries=_BATCHES[:1])
    first.checkpoint.ends.append(_BATCHES[1])
    calls = CrashingCalls(first.calls)
    first.driver.background = lambda step: Stepping(step, calls, 0)
    sink = first.driver.start(first.file_io(calls), first.checkpoint)
    arm("precommit.saved", 1, lambda: recorded.update(first.calls._objects))
    sink.batch(first.driver.describe(first.checkpoint, 1))
    faults.arm(None)
    sink.close()
    return recorded, dict(first.calls._objects)


@pytest.mark.parametrize(
    "before, most",
    [(("entries",), 20), pytest.param((), 10_000, marks=pytest.mark.soak)],
    ids=["a listing", "any call"],
)
def test_a_driver_that_ends_its_batch_while_the_next_one_starts_is_no_rollback(before, most):
    """It publishes in all tables and marks its record, before any request of the start: what the journal says is there
    was there before the tables were looked at.
    """
    first = TablesWorld(small=True)
    recorded, ended = _ended_by(first)
    more = {path: data for path, data in ended.items() if recorded.get(path) != data}
    n, is_there = 1, True
    while is_there and n <= most:
        world = TablesWorld(small=True)
        world.calls._objects, world.checkpoint = dict(recorded), copy.deepcopy(first.checkpoint)

        def ends(objects=world.calls._objects):
            if not any("/snapshot-" in path and path in objects for path in more):
                objects |= more

        calls = _Interrupted(world.calls, n, before, ends)
        world.run(calls, boundaries=_BATCHES)
        world.check_complete(_BATCHES)
        is_there, n = calls.left < 0, n + 1
    assert n > min(most, 100)


def test_what_a_death_has_left_of_trying_out_the_store_is_taken_off_by_the_next_start():
    """Below the folder of the tables, at each call of the first start in turn. Formerly it stayed for good."""
    left_once = False
    for at in range(1, _MOST_OF_A_START):
        world = TablesWorld(small=True)
        try:
            world.run(CrashingCalls(world.calls, at), boundaries=BOUNDARIES[:1])
        except InjectedCrash:
            world.die()
        left_once |= bool(_probes(world))
        world.run(boundaries=BOUNDARIES[:2])
        assert _probes(world) == [], f"a death at call {at}"
    assert left_once


def _probes(world) -> list[str]:
    return [path for path in world.calls._objects if "/.probe-" in path]
