"""Files of several tables, and dead letters, that have their final names at once, on S3: a run dies at any request, and
what got no record goes, in all of the tables, and nothing else.
"""

import dataclasses
import itertools
import json

import pytest

from streamsink import faults
from streamsink.clock import Clock, IdSource
from streamsink.errors import Misuse, Retryable
from streamsink.storage.s3 import S3FileIO
from streamsink.table.routed.dead_letters import dead_letter_fields
from streamsink.table.table import create_table, is_table, new_schema
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash, arm, crash
from streamsink.testing.stepping import Stepping
from tests.crash.letters_world import LETTERS, NAME, PLAIN, LettersWorld
from tests.crash.many_world import BOUNDARIES, ManyWorld, check_complete, check_readable
from tests.storage.memory_s3 import MemoryS3Calls

ROOT = "s3://bucket/shop.db"
MORE = (*BOUNDARIES, 20)


def _s3(over, table=f"{ROOT}/{NAME}"):
    return S3FileIO(over, IdSource().new_id, table)


class TablesWorld(ManyWorld):
    """Several tables."""

    journal = f"{ROOT}/streamsink/streamsink"

    def __init__(self, delay=0, **settings):
        """delay: of what is left to be done beside the next batch, as ``Stepping`` has it."""
        super().__init__(
            MemoryS3Calls(), ROOT, make_io=lambda over: _s3(over, ROOT), restore="restore-and-continue", **settings
        )
        self._delay = delay

    def unknown_files(self) -> list[str]:
        """But for the empty object with which a store is tried out."""
        return [name for name in super().unknown_files() if not name.startswith(".probe-")]

    def run(self, calls=None, boundaries=BOUNDARIES) -> None:
        calls = calls or CrashingCalls(self.calls)
        self.driver.background = lambda step: Stepping(step, calls, self._delay)
        super().run(calls, boundaries)

    def check_readable(self) -> None:
        check_readable(self.rows())

    def check_complete(self, boundaries=BOUNDARIES) -> None:
        check_complete(self.rows(), boundaries)

    def settle(self) -> None:
        """The start that settles what a death has left, to the end."""
        self.run(boundaries=MORE)


class WithLetters(LettersWorld):
    """One table with dead letters. how: of the start that dies, and of the one that settles what it has left."""

    journal = f"{ROOT}/{NAME}/streamsink/streamsink"

    def __init__(self, how=(LETTERS, LETTERS), calls=None, **settings):
        super().__init__(calls or MemoryS3Calls(), ROOT, make_io=_s3, **settings)
        self._how = how

    def run(self, calls=None, boundaries=BOUNDARIES, how=None, **options) -> None:
        super().run(calls, boundaries, how or self._how[0], **options)

    def settle(self) -> None:
        self.run(how=self._how[1])
        self.check_complete()
        self.run(boundaries=MORE, how=LETTERS)


WORLDS = {
    "tables": lambda: TablesWorld(),
    "tables, few rows": lambda: TablesWorld(small=True),
    "tables, settled late": lambda: TablesWorld(small=True, delay=9),
    "letters": lambda: WithLetters(),
    "letters, few rows": lambda: WithLetters(small=True),
    "letters, settled late": lambda: WithLetters(small=True, delay=9),
    "letters, then without": lambda: WithLetters((LETTERS, PLAIN), small=True),
    "without, then letters": lambda: WithLetters((PLAIN, LETTERS), small=True),
}
# Of the deaths each so-manieth is tried, other ones in each run of the suite.
SOME = 43


def ends_right(world, what: str) -> None:
    """Each row is there once, and nothing is left that nothing names: neither a file nor an announcement."""
    world.check_readable()
    world.settle()
    world.check_complete(MORE)
    assert world.unknown_files() == [], f"{what}: files are left that nobody knows"
    left = [path for path in world.calls._objects if path.startswith(f"{world.journal}/staging/")]
    assert left == [], f"{what}: in staging"


@pytest.mark.in_turn("ways of final names of tables", 2)
@pytest.mark.parametrize("way", WORLDS)
@pytest.mark.parametrize("stride", [SOME, pytest.param(1, marks=pytest.mark.soak)])
def test_death_at_any_request_in_any_order(way, stride, rng):
    """Requests that are made at once reach the store in any order, so a death may leave any part of them."""
    tried = 0
    for mode in Mode:
        n = rng.randrange(stride) + 1
        while True:
            world, seed = WORLDS[way](), rng.random()
            calls = CrashingCalls(world.calls, n, mode)
            calls.order = lambda actions, seed=seed: sorted(actions, key=lambda action: hash((seed, id(action))))
            try:
                world.run(calls)
            except InjectedCrash:
                world.die()
            except Exception:  # an error ends the run as well; the next start settles it
                world.die()
            if calls.count < n:
                break
            ends_right(world, f"{mode.value} at call {n}, {way}")
            n, tried = n + stride, tried + 1
    assert tried * stride > 150


def _announcements(world) -> list[str]:
    return [path for path in world.calls._objects if path.startswith(f"{world.journal}/staging/") and "/at-" in path]


def _data_files(world) -> set[str]:
    return {path for path in world.calls._objects if "/data-" in path}


def _journal_of(world) -> dict:
    return {path: found for path, found in world.calls._objects.items() if path.startswith(f"{world.journal}/")}


def _letters_world(**settings) -> WithLetters:
    """Batch 0 is there, without the option, and an empty table for dead letters; the next batch has some."""
    world = WithLetters(**settings)
    world.run(boundaries=(6,), how=PLAIN)
    create_table(world.file_io(), f"{ROOT}/rejected", new_schema(dead_letter_fields(()), (), {}))
    return world


def _dies_at(world, step: str, order=lambda actions: actions, boundaries=(6, 9), **how) -> None:
    calls = CrashingCalls(world.calls)
    calls.order = order
    arm(step, 1, crash)
    with pytest.raises(InjectedCrash):
        world.run(calls, boundaries, **how)
    faults.arm(None)
    world.die()


@pytest.mark.parametrize("small", [False, True], ids=["tasks", "small"])
def test_what_an_attempt_leaves_goes_from_both_tables(small):
    """The record is not there, and its files are in the table and in the one for dead letters."""
    world = _letters_world(small=small)
    before = _data_files(world)
    _dies_at(world, "precommit.before_record")
    left = _data_files(world) - before
    assert {path.split("/")[4] for path in left} == {NAME, "rejected"}
    # what is complete may get its record by a driver that only sleeps, so it stays until the number is taken
    world.driver_of(PLAIN).start(world.file_io(), world.checkpoint).close()
    assert left <= _data_files(world)
    world.run(boundaries=(6, 9), how=PLAIN)
    assert not left & _data_files(world) and world.unknown_files() == []


@pytest.mark.parametrize("small", [False, True], ids=["tasks", "small"])
def test_files_in_one_table_stay_where_another_one_names_what_the_attempt_left_there(small):
    """The journal is an older copy: its attempt has got a record since, and the dead letters of that are published.

    So the record may come back as well, and the table gets its rows then.
    """
    world, copies = _letters_world(small=small), []

    def copied(actions):
        copies.append(_journal_of(world)) if _announcements(world) else None
        return actions

    _dies_at(world, "letters.published", copied)
    for path in _journal_of(world):
        del world.calls._objects[path]
    world.calls._objects.update(copies[0])
    for path, (data, unique) in list(world.calls._objects.items()):
        if path.startswith(f"{ROOT}/rejected/snapshot/snapshot-"):
            world.calls._objects[path] = (json.dumps(json.loads(data) | {"properties": None}).encode(), unique)
    files = _data_files(world)
    world.run(boundaries=(6, 9, 14), how=LETTERS)
    assert files <= _data_files(world)
    numbers = {(name, number) for name, number, _ in world.rows()}
    assert {number for _, number in numbers} == set(range(14))


@pytest.mark.parametrize("dropped", [False, True], ids=["there", "dropped"])
def test_a_late_file_in_the_other_table_goes_whether_or_not_the_table_is_there(dropped):
    """A task that outlives its attempt writes where the table for dead letters is, or was."""
    world = _letters_world()
    _dies_at(world, "precommit.before_record")
    attempt = json.loads(world.calls.read(_announcements(world)[0]))["attempt"]
    if dropped:
        for path in [path for path in world.calls._objects if path.startswith(f"{ROOT}/rejected/")]:
            del world.calls._objects[path]
    late = f"{ROOT}/rejected/bucket-0/data-{attempt}-0123456789abcdef-9.parquet"
    world.calls.put(late, b"of nobody")
    world.run(boundaries=(6, 9), how=PLAIN)
    assert late not in world.calls._objects
    world.run(boundaries=(6, 9, 14), how=LETTERS)
    world.check_complete((6, 9, 14))


def test_what_cannot_be_told_stays_until_it_can():
    """The other table's only snapshot is damaged. When that is mended, the next record takes what was left."""
    world = _letters_world()
    world.run(boundaries=(6, 9), how=LETTERS)
    snapshot = f"{ROOT}/rejected/snapshot/snapshot-1"
    whole = world.calls._objects[snapshot]
    before = _data_files(world)
    _dies_at(world, "precommit.before_record", boundaries=(6, 9, 12))
    left = _data_files(world) - before
    world.calls._objects[snapshot] = (b"{", "")
    world.run(boundaries=(6, 9, 12), how=PLAIN)
    assert left <= _data_files(world)
    world.calls._objects[snapshot] = whole
    world.run(boundaries=(6, 9, 12, 14), how=LETTERS)
    assert not left & _data_files(world) and world.unknown_files() == []
    world.check_complete((6, 9, 12, 14))


def test_a_record_whose_dead_letters_have_their_final_names_has_a_version_that_older_code_does_not_publish():
    """Also where all of its rows are dead letters, so that it names no other files."""
    world = _letters_world()
    world.run(boundaries=(6, 14), how=PLAIN)
    world._versions = itertools.count()
    world.run(boundaries=(6, 14, 18), how=LETTERS)
    assert {name for name, number, _ in world.rows() if number >= 14} == {"rejected"}
    head = json.loads(world.calls.read(f"{world.journal}/record-3.json").split(b"\n")[0])
    assert head["version"] == 4


def test_tables_that_are_new_in_a_batch_are_announced_with_one_object():
    """A driver knows none of them when it starts. The next ones it announces itself, beside the record before."""
    world, found = TablesWorld(small=True), {}

    def seen(actions):
        found.update({path: json.loads(world.calls.read(path)) for path in _announcements(world)})
        return actions

    calls = CrashingCalls(world.calls)
    world.run(calls, boundaries=(6,))
    calls.order = seen
    world.run(calls, boundaries=(6, 14))
    [said] = [said for path, said in found.items() if "/2-2/" in path]
    assert len(said["tables"]) > 2
    assert all(len(each["places"]) >= 3 for each in said["tables"])  # data files, the manifest and the lists


def test_rows_that_begin_a_table_beside_others_leave_nothing_in_staging():
    """Of some tables the driver says where files will be, of the new ones the writer does."""
    world = TablesWorld(small=True)
    world.run(boundaries=(1, 3))
    assert [name for name, _, _ in sorted(world.rows())] == ["a", "more_x", "more_y"]
    assert world.unknown_files() == []
    assert [path for path in world.calls._objects if path.startswith(f"{world.journal}/staging/")] == []


def _written_by_a_task(world, table: str) -> str:
    """A file that a task of the attempt has finished, before the driver has created the table."""
    attempt = json.loads(world.calls.read(_announcements(world)[0]))["attempt"]
    path = f"{ROOT}/{table}/bucket-0/data-{attempt}-0123456789abcdef-0.parquet"
    world.calls.put(path, b"rows")
    return path


@pytest.mark.parametrize("small", [False, True], ids=["tasks", "small"])
def test_a_table_begins_where_a_dead_attempt_has_left_files(small):
    """The attempt was to begin it. What it has left is no table that is damaged, and goes."""
    world = TablesWorld(small=small)
    _dies_at(world, "write.staged")
    left = _written_by_a_task(world, "more_x")
    assert not is_table(world.file_io(), f"{ROOT}/more_x")
    ends_right(world, "begun again")
    assert is_table(world.file_io(), f"{ROOT}/more_x") and left not in world.calls._objects


def test_a_query_may_begin_a_table_that_another_one_is_about_to_begin():
    """It finds files of that one, whose journal lies in another table."""
    world = WithLetters(small=True)
    other = WithLetters(small=True, name="others", calls=world.calls)
    _dies_at(world, "write.staged")
    path = _written_by_a_task(world, "rejected")
    other.run(boundaries=(6, 9))
    assert is_table(world.file_io(), f"{ROOT}/rejected") and path in world.calls._objects
    world.run(boundaries=(6, 9))
    assert path not in world.calls._objects
    kept = [number for each in (world, other) for name, number, _ in each.rows() if name == each.name]
    rejected = [number for name, number, _ in world.rows() if name == "rejected"]
    assert sorted(rejected + kept) == sorted([*range(9), *range(9)])


def test_a_folder_with_files_of_nobody_becomes_no_table():
    """They may be those of a table that has lost its metadata."""
    world = TablesWorld(small=True)
    world.calls.put(
        f"{ROOT}/more_x/bucket-0/data-6d2f5c0e-3f0e-4f68-9d51-000000000000-0123456789abcdef-0.parquet", b"?"
    )
    with pytest.raises(Misuse) as refused:
        world.run()
    assert refused.value.kind == "table.not-empty"


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
    before = _data_files(world)
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
    assert _data_files(world) <= before


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
    before, rows, now = _data_files(world), driver.rows, Clock.monotonic_ms

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
    assert _data_files(world) <= before
