"""Overwriting batches, exactly once: each replaces what was there, whatever dies; and no rows of a later one."""

import dataclasses
import datetime
import decimal
import itertools

import pyarrow as pa
import pytest

import streamsink
from streamsink import faults
from streamsink.clock import IdSource
from streamsink.errors import Conflict, Fenced, Misuse, Retryable
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.sinks.paimon.many_tables import ManyTables
from streamsink.sinks.paimon.past.place import Place
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.overwrite import Overwrite
from streamsink.table.table import new_schema
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash, arm, crash
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.compat.arrow_writer import ArrowSink
from tests.crash.sweeps import deaths
from tests.crash.world import BOUNDARIES, World, counting, memory_world
from tests.table.entries import add, commit, live, new_table, part

# Rows of a batch are in three partitions; the empty batch replaces none of them. What a reader may see, in order.
STATES = [[], list(range(6)), [6, 7, 8], [9, 10, 11, 12, 13]]
WHOLE_TABLE = [[], list(range(6)), [6, 7, 8], [], [9, 10, 11, 12, 13]]
STRIDE = 29
# Of the states that deaths leave.
_FEW = 10


EACH_WAY = pytest.mark.parametrize(
    "mode, scope",
    list(itertools.product([Mode.BEFORE, Mode.ERROR, Mode.REPLY_LOST], ["dynamic", "whole-table"])),
    ids=lambda value: value if isinstance(value, str) else value.value,
)


@pytest.mark.in_turn("calls of an overwrite", 3)
@EACH_WAY
def test_overwrites_survive_whatever_happens_at_a_call(mode, scope, rng):
    """A death, an error or a lost reply at some calls, others in each run: readers see one batch at a time, the last
    one at the end.
    """
    assert _survive(mode, scope, 1 + rng.randrange(STRIDE), STRIDE) > 5


@pytest.mark.soak
@EACH_WAY
def test_overwrites_survive_whatever_happens_at_every_call(mode, scope):
    """All of them."""
    print(f"RESULT overwrites: {_survive(mode, scope, 1, 1)} calls, {mode.value}, {scope}, lost=0 doubled=0")


def _survive(mode: Mode, scope: str, first: int, stride: int) -> int:
    """How many calls it happened at."""
    settings = {"mode": "overwrite", "overwrite_partition": None if scope == "dynamic" else {}}
    states = STATES if scope == "dynamic" else WHOLE_TABLE
    world = memory_world(**settings)
    calls = counting(world)
    world.run(calls)
    assert world.ids() == states[-1]
    if mode is Mode.BEFORE:
        return _survive_deaths(memory_world(**settings), states, first, min(stride, _FEW))
    chosen = range(first, calls.count, stride)
    for n in chosen:
        world = memory_world(**settings)
        try:
            world.run(CrashingCalls(world.calls, n, mode))
        except OSError:
            world.die()
        _ends_right(world, states, f"call {n}")
    return len(chosen)


def _survive_deaths(world: World, states: list[list[int]], first: int, stride: int) -> int:
    """The same of deaths: how many of the states that they leave were tried."""
    chosen = deaths(world)[first % stride :: stride]
    for left in chosen:
        left.put_back(world, False)
        _ends_right(world, states, str(left))
    return len(chosen)


def _ends_right(world: World, states: list[list[int]], what: str) -> None:
    assert world.ids() in states, what
    world.run()
    assert world.ids() == states[-1], what
    assert world.unknown_files() == [], what


def _pending(world: World, batches: int) -> None:
    """Let the world die with its last batch recorded and not published."""
    arm("precommit.saved", batches, crash)
    with pytest.raises(InjectedCrash):
        world.run(boundaries=BOUNDARIES[:batches])
    faults.arm(None)
    world.die()


def test_a_late_overwrite_that_the_user_insists_on_replaces_what_is_there_when_it_is_published():
    """Rows that another application wrote meanwhile are not deleted unasked; with the token the deletes are worked out
    late.
    """
    world = memory_world(mode="overwrite", overwrite_partition={"part": "a"}, partition_by=("part",))
    world.driver.rows = _only("a", world.driver.rows)
    _pending(world, 2)
    other = World(world.calls, world.driver.root, application="other")
    other.run(boundaries=(3,))
    assert len(world.ids()) == 9
    with pytest.raises(Conflict) as refused:
        world.run(boundaries=BOUNDARIES[:2])
    assert refused.value.kind == "overwrite.changed-since" and len(world.ids()) == 9
    token = str(refused.value).partition("accept_as_new='")[2][:12]
    world.driver.options = dataclasses.replace(world.driver.options, accept_as_new=token)
    world.run(boundaries=BOUNDARIES[:2])
    assert world.ids() == [1, 2, 6, 7, 8]


def _only(name, rows):
    def made(start, end):
        batch = rows(start, end)
        return batch.set_column(1, "part", pa.array([name] * batch.num_rows, pa.string()))

    return made


def test_an_overwrite_never_deletes_rows_of_a_later_record():
    """A record cannot be published before or after its turn: sequence order, checked inside each try."""
    world = memory_world(mode="overwrite", overwrite_partition={}, restore="restore-and-continue")
    published = []
    world.run(boundaries=BOUNDARIES[:1])
    sink = world.driver.start(FileIO(world.calls, IdSource().new_id), world.checkpoint)
    real = sink.opened.committer.publish

    def spy(committable, **named):
        published.append(committable)
        return real(committable, **named)

    sink.opened.committer.publish = spy
    world.checkpoint.ends = list(BOUNDARIES)
    for batch_id in (1, 2, 3):
        sink.batch(world.driver.describe(world.checkpoint, batch_id))
    early, late = published[0], published[-1]
    with pytest.raises(Fenced):
        real(early, expect=early.state.sequence - 1, restored=True, fence=lambda: None)
    assert world.ids() == STATES[-1]
    io = FileIO(world.calls, IdSource().new_id)
    for gone in (2, 3, 4):
        io.delete(f"{world.driver.root}/snapshot/snapshot-{gone}")
    io.replace(f"{world.driver.root}/snapshot/LATEST", b"1", "x")
    with pytest.raises(Retryable) as caught:
        real(late, expect=late.state.sequence - 1, restored=True, fence=lambda: None)
    assert caught.value.kind == "table.history-changed" and world.ids() == STATES[1]


def test_a_batch_that_is_seen_replaces_nothing():
    """accept_as_seen records a batch whose rows are in the table: an overwrite of it would empty the table."""
    world = memory_world(mode="overwrite", overwrite_partition={}, numeric=False)
    world.run(boundaries=(6,))
    world.checkpoint.query = "00000000-0000-0000-0000-000000000002"
    world.checkpoint.ends, world.checkpoint.committed = [6], 0
    with pytest.raises(Misuse) as caught:
        world.run(boundaries=(6,))
    token = str(caught.value).split("accept_as_seen='")[1].split("'")[0]
    again = World(
        world.calls, world.driver.root, numeric=False, mode="overwrite", overwrite_partition={}, accept_as_seen=token
    )
    again.checkpoint = world.checkpoint
    again.run(boundaries=(6,))
    assert again.ids() == list(range(6))


def test_rows_outside_of_the_overwritten_partition_are_refused():
    """They would be added, not replaced; nothing is written."""
    world = memory_world(mode="overwrite", overwrite_partition={"part": "a"})
    with pytest.raises(Misuse) as caught:
        world.run()
    assert caught.value.kind == "overwrite.outside" and world.ids() == []


def test_an_overwrite_of_one_partition_leaves_the_others():
    """By one column of two, with a null, and by a date; partitions that another writer spelled in other bytes too."""
    table = new_table(MemoryCalls())
    commit(table, Changes(tuple(add(str(n), part(name)) for n, name in enumerate(["x", "y", None, "x"]))))
    for given, left in (({"part": "x"}, ["1", "2", "n"]), ({"part": None}, ["1", "m"]), ({}, ["m"])):
        name = part(given["part"]) if given else part("z")
        new = add("n" if given == {"part": "x"} else "m", name)
        if not given:
            commit(table, Changes(), kind="OVERWRITE", overwrite=Overwrite.of("t", table.latest_schema(), given))
            assert live(table) == []
            continue
        commit(table, Changes((new,)), kind="OVERWRITE", overwrite=Overwrite.of("t", table.latest_schema(), given))
        assert live(table) == (left if given == {"part": "x"} else ["1", "m", "n"])


@pytest.mark.parametrize(
    "given, says",
    [
        ({"mode": "replace"}, "mode"),
        ({"overwrite_partition": {"part": "a"}}, "mode='overwrite'"),
        ({"mode": "overwrite", "overwrite_partition": ["a"]}, "dictionary"),
        ({"mode": "overwrite", "position_columns": ("t", "p", "o")}, "position_columns"),
    ],
)
def test_wrong_options_are_refused(given, says):
    with pytest.raises(Misuse, match=says):
        SinkOptions.of("t", given)


@pytest.mark.parametrize(
    "given, says",
    [
        ({"id": 1}, "partition columns are part"),
        ({"part": 5}, "column 'part'"),
        ({"part": datetime.date(2026, 1, 1)}, "STRING"),
    ],
)
def test_wrong_partition_values_are_refused(given, says):
    """By the name of the column, and without the value."""
    table = new_table(MemoryCalls())
    with pytest.raises(Misuse, match=says) as caught:
        Overwrite.of("t", table.latest_schema(), given)
    assert caught.value.kind == "option.overwrite-partition"


UTC = datetime.timezone.utc


@pytest.mark.parametrize(
    "ddl, value",
    [
        ("DATE", datetime.datetime(2026, 1, 1, 23)),
        ("DATE", 20000),
        ("TIME", datetime.time(1, 2, 3, 4)),
        ("TIME", 1000),
        ("INT", 2**31),
        ("DOUBLE", "1"),
        ("DECIMAL(5, 2)", decimal.Decimal("1e100")),
        ("TIMESTAMP(3)", datetime.datetime(2026, 1, 1, tzinfo=UTC)),
        ("TIMESTAMP(3)", datetime.datetime(2026, 1, 1, 0, 0, 0, 1)),
        ("TIMESTAMP(6)", 1767225600000),
        ("TIMESTAMP_LTZ(6)", datetime.datetime(2026, 1, 1)),
        ("TIMESTAMP_LTZ(6)", datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1)))),
    ],
)
def test_a_partition_value_that_would_be_rounded_or_means_several_is_refused(ddl, value):
    """It stood for another partition than the one that was meant, whose rows were deleted."""
    schema = new_schema(parse_ddl(f"p {ddl}, id INT"), ["p"], {})
    with pytest.raises(Misuse, match=r"column 'p', expected a value of type .*Nothing was written") as caught:
        Overwrite.of("t", schema, {"p": value})
    assert caught.value.kind == "option.overwrite-partition" and "2026" not in str(caught.value)


@follows("option.overwrite-partition")
@pytest.mark.parametrize("given", [datetime.datetime(2026, 11, 1), datetime.date(2026, 11, 1), 1793491200000])
def test_a_partition_of_an_instant_is_given_with_a_time_zone(tmp_path, given):
    """A time without one was taken for UTC, and a number for nanoseconds: another partition was overwritten."""
    path = streamsink.create_table(tmp_path / "orders", "id BIGINT, at TIMESTAMP_LTZ(3)", ["at"])
    instant = datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc)
    at = pa.array([instant], pa.timestamp("ms", "UTC"))
    row = pa.table({"id": pa.array([1], pa.int64()), "at": at})

    def overwrite(value, rows):
        with ArrowSink(path, application="job", mode="overwrite", overwrite_partition={"at": value}) as sink:
            sink.write(rows)

    overwrite(instant, row)
    said = told("option.overwrite-partition", lambda: overwrite(given, row))
    assert "'at'" in said.message and "2026" not in said.message
    zone = getattr(datetime, said.find(r"such as tzinfo=datetime\.(timezone)\.utc")).utc
    overwrite(datetime.datetime(2026, 11, 1, tzinfo=zone), row.set_column(0, "id", pa.array([2], pa.int64())))
    assert streamsink.read_arrow(path)["id"].to_pylist() == [2]


def test_several_tables_are_not_overwritten():
    """One batch for several tables appends: an option that would be ignored is refused."""
    with pytest.raises(Misuse, match="mode"):
        ManyTables(Place(None, "/lake/shop.db", "app", "j"), None, SinkOptions.of("t", {"mode": "overwrite"}), print)
