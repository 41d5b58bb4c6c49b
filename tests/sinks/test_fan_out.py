"""One query into several destinations: each has each row once, whatever dies, wherever."""

import contextlib
import functools
import sqlite3

import pytest

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.databases import DatabaseSink
from streamsink.errors import Corrupt, StreamsinkError
from streamsink.sink import FanOut
from streamsink.storage.s3 import S3FileIO
from streamsink.testing import conformance
from streamsink.testing.conformance import check_sink
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash
from tests.crash.sweeps import Left, deaths, deaths_at_steps
from tests.iceberg.lake import Lake, ids_of
from tests.sinks.fan_out_world import ENDS, KINDS, FanOutWorld, fan_out, ids_in
from tests.storage.memory_s3 import MemoryS3Calls

ALL_KINDS = ("files", "table", "lines", "own")
# Steps of a batch that no fan-out passes, or only with other options.
_ELSEWHERE = (
    "tables.",
    "letters.",
    "spark.",
    "iceberg.",
    "task.",
    "group.queued",
    "group.stopping",
    "restore.before_publish",
)
_STEPS = [step for step in faults.STEPS if not step.startswith(_ELSEWHERE)]


def _rows_of(names):
    """What a reader sees of all destinations: that of the last one; a part of a batch in any other is an error."""

    def seen(file_io, root):
        found = [ids_in(file_io, root, name) for name in names]
        for each in found:
            if each != list(range(len(each))) or len(each) not in (0, *conformance.ENDS):
                raise Corrupt(f"a part of a batch, or rows twice: {found}", kind="test")
        return found[-1]

    return seen


def _passes(names, every, **options) -> int:
    return check_sink(lambda root: fan_out(root, *names), _rows_of(names), every=every, **options)


@pytest.mark.in_turn("fan-outs in the suite of all sinks", 1)
@pytest.mark.parametrize("options", [{}, {"publish": "async"}, {"publish_every_batches": 3}], ids=str)
def test_a_fan_out_passes_the_suite_of_all_sinks(options):
    """Some of the calls are tried, in every way."""
    assert _passes(("table", "lines", "files"), 199, **options) > 30


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("last", ALL_KINDS)
@pytest.mark.parametrize("options", [{}, {"publish": "async"}, {"publish_every_batches": 3}], ids=str)
def test_a_fan_out_passes_at_many_calls(options, last):
    """The suite reads the last one: each kind is it once."""
    names = (*(name for name in ALL_KINDS if name != last), last)
    assert _passes(names, 7, **options) > 900


@pytest.mark.in_turn("fan-outs in the suite of all sinks", 1)
def test_a_directory_and_a_database_pass(tmp_path):
    """The database is not in the store that the suite breaks: files of the journal, and those of the other one, are."""
    path = tmp_path / "rows.db"

    def make(root):
        database = DatabaseSink(f"sqlite:{path}", table="rows", create_table=True)
        return FanOut({"db": database, "files": KINDS["files"][0](f"{root}/files")}, journal=f"{root}/journal")

    def seen(file_io, root):
        with sqlite3.connect(path) as connection:
            there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone()
            found = [row[0] for row in connection.execute("SELECT id FROM rows ORDER BY id")] if there else []
        connection.close()
        if found != list(range(len(found))) or len(found) not in (0, *conformance.ENDS):
            raise Corrupt(f"a part of a batch, or rows twice: {found}", kind="test")
        return ids_in(file_io, root, "files")

    assert check_sink(make, seen, drop=lambda: path.unlink(missing_ok=True), every=199) > 20


@pytest.mark.in_turn("fan-outs in the suite of all sinks", 1)
def test_a_directory_and_an_iceberg_table_pass():
    """Whose catalog and files are in memory."""
    lake = Lake()

    def make(root):
        return FanOut({"files": KINDS["files"][0](f"{root}/files"), "ice": lake.sink()}, journal=f"{root}/journal")

    def seen(file_io, root):
        lake.io(file_io._calls)
        in_table, in_files = sorted(ids_of(file_io, lake.catalog())), ids_in(file_io, root, "files")
        if in_files != list(range(len(in_files))) or len(in_files) not in (0, *conformance.ENDS):
            raise Corrupt(f"a part of a batch, or rows twice: {in_files}", kind="test")
        return in_table

    assert check_sink(make, seen, drop=lake.drop, every=199) > 20


@functools.cache
def _of_steps() -> tuple[FanOutWorld, list[Left]]:
    world = FanOutWorld()
    return world, deaths_at_steps(world)


@pytest.mark.parametrize("step", _STEPS)
def test_a_death_at_each_step(step, rng):
    """The first time that it is reached, and another one: destinations pass the same steps one after another."""
    world, states = _of_steps()
    reached = [left for left in states if step in dict(left.steps)]
    assert reached, f"a run never reaches {step}"
    for left in {id(left): left for left in (reached[0], rng.choice(reached))}.values():
        left.put_back(world, False)
        world.ends_right(str(left))


@pytest.mark.parametrize("step", [step for step in faults.STEPS if step.startswith("fan-out.")])
def test_a_death_each_time_between_two_destinations(step):
    """The record is durable, and none, some or all of the journals, or of the destinations, have their parts."""
    world, states = _of_steps()
    reached = [left for left in states if step in dict(left.steps)]
    assert len(reached) >= len(ENDS)
    for left in reached:
        left.put_back(world, False)
        world.ends_right(str(left))


@pytest.mark.parametrize("first", ["fan-out.recorded", "fan-out.delivered", "fan-out.before_destination"])
def test_a_second_death_while_the_first_is_settled(first, rng):
    """Killed between two destinations, and again at the steps of the start that settles it."""
    world, states = _of_steps()
    between = rng.choice([left for left in states if first in dict(left.steps)])
    between.put_back(world, False)
    again = deaths_at_steps(world)
    assert {"restore.claimed", "restore.swept"} <= {step for left in again for step, _ in left.steps}
    for left in rng.sample(again, 8):
        left.put_back(world, False)
        world.ends_right(f"{between}, and then {left}")


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
def test_a_death_at_calls(power, rng):
    """Of the process, or of the machine: some of the calls."""
    world = FanOutWorld("files", "own")
    states = deaths(world, power=power)
    for left in rng.sample(states, 12):
        left.put_back(world, power)
        world.ends_right(str(left))


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
@pytest.mark.parametrize("options", [{}, {"publish_every_batches": 2}, {"on_rollback": "republish"}], ids=str)
def test_a_death_at_every_call(power, options):
    third = "own" if "on_rollback" in options else "lines"  # which cannot publish again
    world = FanOutWorld("files", "table", third, **options)
    states = deaths(world, power=power)
    for left in states:
        left.put_back(world, power)
        world.ends_right(str(left))
    assert len(states) > 100


def test_rows_are_computed_once_for_all_destinations():
    """Each destination has the same rows, of one computation, whatever came again."""
    world = FanOutWorld("files", "own")
    world.dies_at("write.staged", 2)
    world.run()
    world.checkpoint.committed -= 1  # Spark has lost its commit log
    before = world._versions
    world.run()
    assert world._versions == before, "a replay is computed again"
    assert world.seen() == dict.fromkeys(world.names, list(range(ENDS[-1])))


class OnS3(FanOutWorld):
    """The same on S3, where files have their final names at once, and are announced before."""

    root = "s3://bucket/lake"

    def __init__(self, *names: str):
        super().__init__(*names)
        self.calls = MemoryS3Calls()
        self.make = lambda root: fan_out(self.root, *self.names)

    def io(self, calls=None):
        return S3FileIO(calls or self.calls, IdSource().new_id, self.root)

    def ids(self, name: str) -> list[int]:
        return ids_in(self.io(), self.root, name)


def _accidents_on_s3(rng, how_many: int) -> None:
    world = OnS3("table", "files")
    counting = CrashingCalls(world.calls)
    world.run(counting)
    for _ in range(how_many):
        number, mode = rng.randint(1, counting.count), rng.choice(list(Mode))
        world = OnS3("table", "files")
        with contextlib.suppress(InjectedCrash, OSError, StreamsinkError):
            world.run(CrashingCalls(world.calls, number, mode))
        world.ends_right(f"{mode.value} at call {number}")


def test_accidents_on_s3(rng):
    """At some calls."""
    _accidents_on_s3(rng, 6)


@pytest.mark.soak
def test_many_accidents_on_s3(rng):
    _accidents_on_s3(rng, 300)
