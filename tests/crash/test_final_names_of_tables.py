"""Files of several tables, and dead letters, that have their final names at once, on S3: a run dies at any request, and
what got no record goes, in all of the tables, and nothing else.
"""

import copy
import itertools
import json

import pytest

from streamsink import faults
from streamsink.errors import Fenced, Misuse
from streamsink.table.routed.dead_letters import dead_letter_fields
from streamsink.table.table import create_table, is_table, new_schema
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.crash.letters_world import LETTERS, NAME, PLAIN
from tests.crash.s3_worlds import MORE, ROOT, TablesWorld, WithLetters, announcements, data_files, journal_of

WORLDS = {
    "tables": lambda: TablesWorld(),
    "tables, by tasks": lambda: TablesWorld(hands_over=True),
    "tables, few rows": lambda: TablesWorld(small=True),
    "tables, settled late": lambda: TablesWorld(small=True, delay=9),
    "letters": lambda: WithLetters(),
    "letters, by tasks": lambda: WithLetters(hands_over=True),
    "letters, few rows": lambda: WithLetters(small=True),
    "letters, settled late": lambda: WithLetters(small=True, delay=9),
    "letters, then without": lambda: WithLetters((LETTERS, PLAIN), small=True),
    "tables that are staged": lambda: TablesWorld(staged=True, delay=9),
    "letters that are staged": lambda: WithLetters(staged=True, delay=9),
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
    assert announcements(world) == [], f"{what}: in staging"


@pytest.mark.in_turn("ways of final names of tables", 1)
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
                world.die(power=rng.random() < 0.5)  # where that is something else
            except Exception:  # an error ends the run as well; the next start settles it
                world.die()
            if calls.count < n:
                break
            ends_right(world, f"{mode.value} at call {n}, {way}")
            n, tried = n + stride, tried + 1
    assert tried * stride > 150


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
    before = data_files(world)
    _dies_at(world, "precommit.before_record")
    left = data_files(world) - before
    assert {path.split("/")[4] for path in left} == {NAME, "rejected"}
    # what is complete may get its record by a driver that only sleeps, so it stays until the number is taken
    world.driver_of(PLAIN).start(world.file_io(), world.checkpoint).close()
    assert left <= data_files(world)
    world.run(boundaries=(6, 9), how=PLAIN)
    assert not left & data_files(world) and world.unknown_files() == []


@pytest.mark.parametrize("small", [False, True], ids=["tasks", "small"])
def test_files_in_one_table_stay_where_another_one_names_what_the_attempt_left_there(small):
    """The journal is an older copy: its attempt has got a record since, and the dead letters of that are published.

    So the record may come back as well, and the table gets its rows then.
    """
    world, copies = _letters_world(small=small), []

    def copied(actions):
        copies.append(journal_of(world)) if announcements(world) else None
        return actions

    _dies_at(world, "letters.published", copied)
    for path in journal_of(world):
        del world.calls._objects[path]
    world.calls._objects.update(copies[0])
    for path, (data, unique) in list(world.calls._objects.items()):
        if path.startswith(f"{ROOT}/rejected/snapshot/snapshot-"):
            world.calls._objects[path] = (json.dumps(json.loads(data) | {"properties": None}).encode(), unique)
    files = data_files(world)
    world.run(boundaries=(6, 9, 14), how=LETTERS)
    assert files <= data_files(world)
    numbers = {(name, number) for name, number, _ in world.rows()}
    assert {number for _, number in numbers} == set(range(14))


@pytest.mark.parametrize("dropped", [False, True], ids=["there", "dropped"])
def test_a_late_file_in_the_other_table_goes_whether_or_not_the_table_is_there(dropped):
    """A task that outlives its attempt writes where the table for dead letters is, or was."""
    world = _letters_world()
    _dies_at(world, "precommit.before_record")
    attempt = json.loads(world.calls.read(announcements(world)[0]))["attempt"]
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
    before = data_files(world)
    _dies_at(world, "precommit.before_record", boundaries=(6, 9, 12))
    left = data_files(world) - before
    world.calls._objects[snapshot] = (b"{", "")
    world.run(boundaries=(6, 9, 12), how=PLAIN)
    assert left <= data_files(world)
    world.calls._objects[snapshot] = whole
    world.run(boundaries=(6, 9, 12, 14), how=LETTERS)
    assert not left & data_files(world) and world.unknown_files() == []
    world.check_complete((6, 9, 12, 14))


def test_a_record_whose_dead_letters_have_their_final_names_has_a_version_that_older_code_does_not_publish():
    """Also where all of its rows are dead letters, so that it names no other files."""
    world = _letters_world()
    world.run(boundaries=(6, 14), how=PLAIN)
    world._versions = itertools.count()
    world.run(boundaries=(6, 14, 18), how=LETTERS)
    assert {name for name, number, _ in world.rows() if number >= 14} == {"rejected"}
    head = json.loads(world.calls.read(f"{world.journal}/record-3.json").split(b"\n")[0])
    assert head["version"] == 5


@pytest.mark.parametrize("small", [False, True], ids=["tasks", "small"])
def test_rows_are_not_published_before_it_is_known_that_their_dead_letters_came_in_time(small):
    """The other table goes back behind the batch's look at it. The record stays pending until that table is restored:
    once the rows are there nobody would publish the dead letters again.
    """
    world = WithLetters(small=small, delay=9)
    world.run(boundaries=(6, 9))
    path = f"{ROOT}/rejected/snapshot/snapshot-2"
    snapshot = world.calls._objects[path]
    arm("letters.before_publish", 1, lambda: world.calls.unlink(path))
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9, 14))
    faults.arm(None)
    assert refused.value.kind == "dead-letters.gone" and "record 3" in str(refused.value)
    world.calls._objects[path] = snapshot
    world.run(boundaries=(6, 9, 14))
    world.check_complete((6, 9, 14))
    assert world.unknown_files() == []


@pytest.mark.parametrize("make", [TablesWorld, WithLetters], ids=["tables", "letters"])
def test_a_record_of_several_tables_has_a_version_that_older_code_does_not_publish(make):
    """Older code, which knows version 4, takes final names for those of the table that holds the journal. It would copy
    the manifest there over the one of the dead letters, which has the same name.
    """
    world = make()
    world.run(boundaries=(6,))
    assert len({path.split("/")[4] for path in data_files(world)}) > 1
    head = json.loads(world.calls.read(f"{world.journal}/record-1.json").split(b"\n")[0])
    assert head["version"] == 5


def test_tables_that_are_new_in_a_batch_are_announced_with_one_object():
    """A driver knows none of them when it starts. The next ones it announces itself, beside the record before."""
    world, found = TablesWorld(small=True), {}

    def seen(actions):
        found.update({path: json.loads(world.calls.read(path)) for path in announcements(world)})
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
    attempt = json.loads(world.calls.read(announcements(world)[0]))["attempt"]
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


@pytest.mark.parametrize("make", [TablesWorld, WithLetters], ids=["tables", "letters"])
def test_a_driver_that_another_one_has_superseded_says_so(make):
    """What the other one has published does not look to it like a journal or a table that was restored or removed."""
    world, other = make(small=True), make(small=True)
    world.run(boundaries=(6, 9))
    other.calls, other._versions = world.calls, world._versions
    other.checkpoint = copy.deepcopy(world.checkpoint)
    if isinstance(world, WithLetters):
        other._screened = world._screened
    arm("write.staged", 1, lambda: (faults.arm(None), other.run(boundaries=(6, 9, 14))))
    with pytest.raises(Fenced) as refused:
        world.run(boundaries=(6, 9, 14))
    assert refused.value.kind == "writer.fenced"
    other.check_complete((6, 9, 14))


def test_a_folder_with_files_of_nobody_becomes_no_table():
    """They may be those of a table that has lost its metadata."""
    world = TablesWorld(small=True)
    world.calls.put(
        f"{ROOT}/more_x/bucket-0/data-6d2f5c0e-3f0e-4f68-9d51-000000000000-0123456789abcdef-0.parquet", b"?"
    )
    with pytest.raises(Misuse) as refused:
        world.run()
    assert refused.value.kind == "table.not-empty"
