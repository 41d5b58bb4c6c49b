"""A query gets dead letters, or loses them, between two starts that die anywhere: each row once, in the table or among
them.
"""

import dataclasses
import random
from collections import Counter

import pytest

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.errors import Fenced
from streamsink.storage.s3 import S3FileIO
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash, arm
from tests.crash.letters_world import BOUNDARIES, EARLIER, EARLIER_NAME, LETTERS, NAME, PLAIN, LettersWorld
from tests.crash.sweeps import Left, deaths, deaths_at_steps
from tests.crash.world import die_at_step
from tests.storage.memory_s3 import MemoryS3Calls

_OTHER = {PLAIN: LETTERS, LETTERS: PLAIN}
_FIRST = (6, 9)
# Of about 100 states that deaths leave, or 20 when the power fails.
_FEW_STATES = 12


def _ends_right(world: LettersWorld, how: str, what: str) -> None:
    """The next start is of the other kind; then one with dead letters, which looks after their table as well."""
    world.check_readable()
    world.run(how=_OTHER[how])
    world.check_complete()
    world.run(boundaries=(*BOUNDARIES, 20), how=LETTERS)
    world.check_complete((*BOUNDARIES, 20))
    assert world.unknown_files() == [], what
    assert list(world.states(NAME)) == ["streamsink"]


def _first_and_last(states: list[Left]) -> list[Left]:
    """Those at the first and the last time that each step is reached."""
    times: Counter[str] = Counter(step for left in states for step, _ in left.steps)
    return [left for left in states if any(occurrence in (1, times[step]) for step, occurrence in left.steps)]


@pytest.mark.parametrize("how", [PLAIN, LETTERS])
def test_the_option_changes_after_a_death_at_each_step(how):
    """After a run of the other kind; the first and the last time that the step is reached."""
    world = LettersWorld()
    world.run(boundaries=_FIRST, how=_OTHER[how])
    states = deaths_at_steps(world, run=lambda calls: world.run(calls, how=how))
    for left in _first_and_last(states):
        left.put_back(world, False)
        _ends_right(world, how, f"{left}: {left.steps}")


def test_the_option_changes_after_each_of_two_deaths():
    """Killed between the dead letters and the table, and once more at each step of the restore that finishes them
    without the option.
    """
    world = LettersWorld()
    assert die_at_step("letters.published", 2, world)
    states = deaths_at_steps(world, run=lambda calls: world.run(calls, how=PLAIN))
    wanted = {(step, 1) for step in faults.STEPS if step.startswith(("restore.", "commit.", "letters."))}
    chosen = [left for left in states if wanted.intersection(left.steps)]
    missing = wanted.difference(step for left in chosen for step in left.steps)
    assert not missing, f"the restore never reached {missing}"
    for left in chosen:
        left.put_back(world, False)
        _ends_right(world, PLAIN, f"{left}: {left.steps}")


@pytest.mark.parametrize("step", ["precommit.saved", "letters.before_publish", "letters.published", "commit.published"])
@pytest.mark.parametrize("how", [PLAIN, LETTERS])
def test_the_option_changes_on_a_store_without_renames(how, step):
    """An S3 in memory: files have their final names at once, and paths are URIs."""
    root = "s3://bucket/shop.db"
    world = LettersWorld(
        MemoryS3Calls(), root, make_io=lambda over: S3FileIO(over, IdSource().new_id, f"{root}/{NAME}")
    )
    world.run(boundaries=(6,), how=_OTHER[how])
    assert die_at_step(step, 2, world)
    _ends_right(world, _OTHER[how], step)


@pytest.mark.parametrize("how", [PLAIN, LETTERS])
@pytest.mark.parametrize(
    "step", ["precommit.saved", "letters.before_publish", "letters.published", "commit.before_publish"]
)
def test_a_driver_that_wakes_up_beside_its_successor_is_fenced(step, how):
    """The successor has finished that checkpoint and all others, with or without the option; the sleeper writes nothing
    more.
    """
    for occurrence in (1, 2, 3):
        world = LettersWorld()

        def sleep():
            faults.arm(None)
            successor = world.driver_of(how)
            successor.run(
                world.file_io(), dataclasses.replace(world.checkpoint, ends=list(world.checkpoint.ends)), BOUNDARIES
            )
            world.check_complete()

        arm(step, occurrence, sleep)
        with pytest.raises(Fenced):
            world.driver_of(LETTERS)._run_once(world.file_io(), world.checkpoint, BOUNDARIES)
        world.check_complete()
        assert world.unknown_files() == []


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
@pytest.mark.parametrize("how", [PLAIN, LETTERS])
def test_the_option_changes_after_a_death_at_a_call(how, power, rng):
    """Some of the states that a death before an I/O call leaves, of all in turn over many runs of the suite."""
    world = LettersWorld()
    world.run(boundaries=_FIRST, how=_OTHER[how])
    states = deaths(world, power, run=lambda calls: world.run(calls, how=how))
    for left in rng.sample(states, _FEW_STATES):
        left.put_back(world, power)
        _ends_right(world, how, str(left))


def _survive(seed: str, hows: tuple[str, ...]) -> int:
    """One life of a query whose starts are of any kind, with up to six deaths; how many there were."""
    chance = random.Random(seed)
    world = LettersWorld(restore=chance.choice(["restore-and-fail", "restore-and-continue"]))
    world.run(boundaries=(6,), how=hows[0])
    deaths = 0
    for _ in range(chance.randint(2, 6)):
        mode, how = chance.choice([Mode.BEFORE, Mode.TORN, Mode.ERROR, Mode.REPLY_LOST]), chance.choice(hows)
        grouped = {"publish_every_batches": 3, "publish_as": chance.choice(["one-snapshot", "snapshot-per-checkpoint"])}
        options = grouped if how == PLAIN and chance.random() < 0.5 else {}
        try:
            world.run(CrashingCalls(world.calls, chance.randint(1, 700), mode), how=how, **options)
        except (InjectedCrash, OSError):
            deaths += 1
            world.die(power=mode in (Mode.BEFORE, Mode.TORN) and chance.random() < 0.5)
        world.check_readable()
    world.run(boundaries=(*BOUNDARIES, 20))
    world.check_complete((*BOUNDARIES, 20))
    assert world.unknown_files() == [], f"seed {seed}"
    return deaths


def test_crash_upon_crash(seed):
    """A few lives, other ones in each run of the suite."""
    print(f"STREAMSINK_SEED={seed}")
    assert sum(_survive(f"{seed}-letters-{number}", (PLAIN, LETTERS)) for number in range(20)) > 0


@pytest.mark.soak
def test_crash_upon_crash_for_long(seed):
    """Many lives; STREAMSINK_SEED repeats them."""
    deaths = sum(_survive(f"{seed}-letters-{number}", (PLAIN, LETTERS)) for number in range(2_000))
    print(f"RESULT soak dead letters: lives=2000 deaths={deaths} lost=0 doubled=0 seed={seed}")


def test_a_table_of_earlier_code_goes_on_under_its_first_name_after_any_death():
    """Its journal lies in the folder above, and may hold what is pending: killed there at each step, it is continued by
    code that looks.
    """
    world = LettersWorld()
    states = deaths_at_steps(world, run=lambda calls: world.run(calls, how=EARLIER))
    for left in states:
        if not any(occurrence == 1 for _, occurrence in left.steps):
            continue
        left.put_back(world, False)
        world.check_readable()
        world.run()
        world.check_complete()
        assert world.unknown_files() == [], str(left)
        assert list(world.states(NAME)) == [f"{EARLIER_NAME}@tables"], str(left)


def test_lives_of_earlier_tables(seed):
    """As crash upon crash, begun by earlier code."""
    assert sum(_survive(f"{seed}-earlier-{number}", (EARLIER, LETTERS)) for number in range(8)) > 0


def _foreign_commit_and_expiry(world: LettersWorld, name: str) -> None:
    """A writer that carries no properties forward commits, and every snapshot before its own expires."""
    table, file_io = world.table(name), world.file_io()
    newest = table.snapshots.latest()
    foreign = dataclasses.replace(newest, id=newest.id + 1, properties=None, commit_user="compactor")
    file_io.write(table.layout.snapshot(foreign.id), foreign.to_json())
    for old in table.snapshots.ids()[:-1]:
        file_io.delete(table.layout.snapshot(old))
    file_io.delete(table.layout.latest_hint)


@pytest.mark.parametrize("names", [(NAME,), ("rejected",), (NAME, "rejected")], ids="+".join)
@pytest.mark.parametrize("step", ["precommit.saved", "letters.published", "commit.published", "batch.end"])
@pytest.mark.parametrize("how", [PLAIN, LETTERS])
def test_history_expires_behind_a_half_published_checkpoint(names, step, how):
    """No snapshot says any more what is published, in one of the two tables or in both: journal and files do."""
    world = LettersWorld()
    world.run(boundaries=(6,))
    assert die_at_step(step, 1 if step != "commit.published" else 2, world, boundaries=_FIRST)
    for name in names:
        _foreign_commit_and_expiry(world, name)
    world.run(how=how)
    world.check_complete()
    world.run(boundaries=(*BOUNDARIES, 20))
    world.check_complete((*BOUNDARIES, 20))


@pytest.mark.parametrize("names", [(NAME,), (NAME, "rejected")], ids="+".join)
@pytest.mark.parametrize("by", [1, 2])
@pytest.mark.parametrize(
    "how, more",
    [(LETTERS, {}), (PLAIN, {"publish_every_batches": 3, "publish_as": "one-snapshot"})],
    ids=[LETTERS, PLAIN],
)
def test_what_a_rollback_removed_is_published_again_and_nothing_else(by, names, how, more):
    """Dead letters that are where they were stay there: on_rollback='republish', with the option or without it."""
    world = LettersWorld()
    world.run(boundaries=_FIRST)
    dead = [row for row in world.rows() if row[0] == "rejected"]
    for table in map(world.table, names):
        for gone in table.snapshots.ids()[-by:]:
            world.file_io().delete(table.layout.snapshot(gone))
        world.file_io().delete(table.layout.latest_hint)
    world.run(boundaries=_FIRST, how=how, on_rollback="republish", **more)
    world.check_complete(_FIRST)
    assert dead and [row for row in world.rows() if row[0] == "rejected"] == dead
    world.run()
    world.check_complete()
