"""A destination that fails and may stay behind: the others go on, and it gets all of it, in order, whoever dies."""

import contextlib
import sqlite3
from collections import Counter

import pytest

from streamsink import faults
from streamsink.databases import DatabaseSink
from streamsink.events import DestinationBehind
from streamsink.sink import FanOut
from streamsink.sinks.fan_out.branch import Branch
from streamsink.testing.faults import arm
from tests.advice.following import follows, told
from tests.crash.sweeps import deaths, deaths_at_steps
from tests.sinks.fan_out_world import ALL, ENDS, ROOT, FanOutWorld, check_whole, fan_out

MANY = (2, 3, 5, 7, 9)
REFUSES = f"{ROOT}/server/refuses"


class Lagging(FanOutWorld):
    """A server that may stay behind a directory and a sink of somebody's own; it refuses ``what`` from the start on."""

    def __init__(self, most: int = 10, refused: tuple[str, ...] = ("commit",), **options):
        super().__init__("server", "files", "own", **options)
        self.most = most
        self.make = lambda root: fan_out(root, *self.names, may_lag={"server": self.most})
        for what in refused:
            self.refuse(what)

    def refuse(self, what: str) -> None:
        self.io().create_if_absent(f"{REFUSES}/{what}", b"")

    def mend(self) -> None:
        self.io().delete_tree(REFUSES)

    def behind(self) -> list[int]:
        """How many records the server lacked, each time that this was told."""
        return [event.pending for event in self.events if isinstance(event, DestinationBehind)]

    def others_end_right(self, what: str) -> None:
        """The others come to their end while the server fails, and the server to its own when it is mended."""
        for found in self.seen().values():
            check_whole(found)
        self.run()
        assert (self.ids("files"), self.ids("own")) == (ALL, ALL), what
        assert self.ids("server") == [], what
        self.mend()
        self.ends_right(what, (*ENDS, 12))


def test_the_others_go_on_and_the_one_that_failed_gets_all_of_it_at_the_next_start():
    world = Lagging()
    world.run()
    assert world.seen() == {"server": [], "files": ALL, "own": ALL} and world.behind() == [1, 2, 3, 4]
    world.run()  # a start without a batch: it is still refused
    assert world.ids("server") == []
    world.mend()
    world.run()
    assert world.seen() == dict.fromkeys(world.names, ALL) and world.behind()[-1] == 4


def test_it_catches_up_with_the_next_batch_of_the_same_run():
    """In order, before it is given anything newer."""
    world, seen = Lagging(), []
    make = world.make

    def watching(root):
        sink = make(root)
        server = sink.sinks["server"]
        commit = type(server).commit

        class Watched(type(server)):
            def commit(self, transaction, context):
                commit(self, transaction, context)
                seen.append(context.number)

        own = Watched(server.path, server.journal)
        return FanOut({**sink.sinks, "server": own}, journal=sink.journal, may_lag=sink.may_lag)

    world.make = watching
    arm("batch.end", 3, world.mend)
    try:
        world.run(ends=MANY)
    finally:
        faults.arm(None)
    assert world.seen() == dict.fromkeys(world.names, list(range(MANY[-1])))
    assert seen == [1, 2, 3, 4, 5] and world.behind() == [1, 2, 3, 0]


@follows("fan-out.too-far-behind")
def test_it_is_bounded():
    """The query stops before it writes a batch more, and goes on when more is allowed, or the destination is mended."""
    world = Lagging(2)
    said = told("fan-out.too-far-behind", lambda: world.run(once=True))
    said.says("'server'", "Nothing is lost", "allow more, may_lag")
    assert world.ids("files") == ALL[: ENDS[1]] and said.kind
    world.most = 3
    told("fan-out.too-far-behind", lambda: world.run(once=True))
    world.mend()
    world.ends_right("it was mended")


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
def test_a_death_while_one_is_behind(power, rng):
    """At any call, of the process or of the machine: what is pending for it stays recorded, with its rows."""
    world = Lagging()
    states = deaths(world, power=power)
    for left in rng.sample(states, 8):
        left.put_back(world, power)
        world.others_end_right(str(left))


def test_a_death_while_it_catches_up(rng):
    """At each step of the start that publishes what was pending."""
    world = Lagging()
    world.run()
    world.mend()
    states = deaths_at_steps(world, lambda calls: world.run(calls, (*ENDS, 12)))
    reached = {step for left in states for step, _ in left.steps}
    assert {"restore.before_publish", "commit.marked", "restore.swept", "batch.end"} <= reached
    for left in rng.sample(states, min(12, len(states))):
        left.put_back(world, False)
        world.ends_right(str(left), (*ENDS, 12))


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
def test_a_death_at_every_call_while_one_is_behind(power):
    world = Lagging()
    for left in deaths(world, power=power):
        left.put_back(world, power)
        world.others_end_right(str(left))


def test_the_record_is_not_marked_while_one_lacks_it():
    """Else a destination that is left out while it is behind would be forgotten."""
    world = Lagging()
    world.run()
    journal = f"{ROOT}/journal/streamsink/streamsink"
    marks = [name for name in world.io().names(journal) if name.startswith("done-")]
    assert marks == []
    world.names = ("files", "own")
    world.make = lambda root: fan_out(root, *world.names)
    told("fan-out.left-destination", lambda: world.run()).says("'server'", "may not be published")
    world.names, world.make = ("server", "files", "own"), lambda root: fan_out(root, *world.names)
    told("transaction.failed", lambda: world.run(once=True))  # without the option all wait for it
    world.mend()
    world.ends_right("it was mended", (*ENDS, 12))
    marks = sorted(name for name in world.io().names(journal) if name.startswith("done-"))
    assert marks == [f"done-{number}" for number in range(1, 6)]


def test_one_that_may_not_lag_stops_all():
    """Also when another one is behind, which loses nothing by that."""
    world = Lagging()
    world.make = lambda root: fan_out(root, *world.names, may_lag={"files": 5})
    told("transaction.failed", lambda: world.run(once=True))
    world.mend()
    world.ends_right("it was mended")


def test_what_is_wrong_with_rows_stops_all_before_the_record():
    """A destination that cannot be written at all is no destination that is behind."""
    world = Lagging(refused=("pre_commit",))
    with pytest.raises(ConnectionResetError):
        world.run(once=True)
    assert world.seen() == dict.fromkeys(world.names, [])
    world.mend()
    world.ends_right("it was mended")


@follows("fan-out.option")
def test_it_publishes_in_the_batch():
    """By another thread it would have to be told apart what is behind and what only waits."""
    told("fan-out.option", lambda: Lagging(publish="async").run()).says("may_lag", "Nothing was written")
    told("fan-out.option", lambda: fan_out(ROOT, "files", may_lag={"other": 1})).says("may_lag")
    told("fan-out.option", lambda: fan_out(ROOT, "files", may_lag={"files": 0})).says("from 1 on")


def test_a_table_of_a_database_that_is_away_for_a_while(tmp_path):
    """A real database: its table is renamed while the query runs, and comes back."""
    path, world, counts = tmp_path / "rows.db", FanOutWorld("files"), Counter()
    database = DatabaseSink(f"sqlite:{path}", table="rows", create_table=True)
    files = fan_out(ROOT, "files").sinks
    world.make = lambda root: FanOut({"db": database, **files}, journal=f"{root}/journal", may_lag={"db": 5})

    def rename(step: str) -> None:
        counts[step] += 1
        names = {1: ("rows", "away"), 4: ("away", "rows")}.get(counts["batch.end"], ())
        if step == "batch.end" and names:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute(f"ALTER TABLE {names[0]} RENAME TO {names[1]}")

    faults.arm(rename)
    try:
        world.run(ends=MANY)
    finally:
        faults.arm(None)
    assert [event.pending for event in world.events if isinstance(event, DestinationBehind)] == [1, 2, 3, 0]
    assert world.ids("files") == list(range(MANY[-1]))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT id FROM rows ORDER BY rowid").fetchall()
    assert found == [(number,) for number in range(MANY[-1])]


def test_what_was_given_up_does_not_come_when_the_destination_joins_again():
    """The server keeps all records unmarked, so the one that was given up looks like one that was not delivered. The
    user has copied its rows by then, as the message says."""
    world = Lagging()
    world.dies_at("fan-out.recorded", 2)  # the third one lacks its part
    world.names = ("server", "files")
    word = told("fan-out.left-destination", lambda: world.run(ends=ENDS[:3])).option("accept_as_seen")
    world.run(ends=ENDS[:3], accept_as_seen=word)
    world.names = ("server", "files", "own")
    joining = told("fan-out.new-destination", lambda: world.run()).says("has rows up to checkpoint 0")
    joins = {"accept_as_new": joining.option("accept_as_new")}
    world.dies_at("fan-out.recorded", 1, **joins)
    world.run(ends=(*ENDS, 12), **joins)
    assert world.ids("own") == [*ALL[: ENDS[0]], *range(ENDS[2], 12)]
    world.mend()
    world.run(ends=(*ENDS, 12))
    assert world.ids("server") == world.ids("files") == list(range(12))


def test_a_destination_that_joins_again_tells_what_is_pending_for_it():
    """It is published then, so the user must not copy it."""
    world = Lagging()
    world.run(ends=ENDS[:2])
    world.names, world.make = ("files", "own"), lambda root: fan_out(root, *world.names)
    world.run(accept_as_seen=told("fan-out.left-destination", lambda: world.run()).option("accept_as_seen"))
    world.mend()
    world.names = ("server", "files", "own")
    said = told("fan-out.new-destination", lambda: world.run(ends=(*ENDS, 12)))
    said.says("has rows up to checkpoint 1", "the last 2 records are pending", "published when it joins")
    assert world.ids("server") == []
    world.run(ends=(*ENDS, 12), accept_as_new=said.option("accept_as_new"))
    assert world.ids("server") == [*ALL[: ENDS[1]], 9, 10, 11]


@pytest.mark.parametrize("also_lost", ["", "the journal of the fan-out"])
def test_an_older_copy_of_its_journal_does_not_take_it_back(also_lost, monkeypatch):
    """The start that should settle it fails. A record of a number that the destination has would count as published."""
    world = Lagging(refused=())
    world.run(ends=MANY[:1])
    io, journal, away = world.io(), f"{ROOT}/server journal/streamsink/streamsink", [True]
    kept = {path: io.read(path) for path in io.files_below(journal)}
    world.run(ends=MANY[:2])
    io.delete_tree(journal)
    for path, data in kept.items():
        io.create_if_absent(path, data)
    if also_lost:
        io.delete_tree(f"{ROOT}/journal")
    settle = Branch.restore

    def once(branch):
        if away and branch.name == "server" and not branch.is_running:
            away.clear()
            raise OSError("the store is away for a moment")
        settle(branch)

    monkeypatch.setattr(Branch, "restore", once)
    world.run(ends=MANY, once=True)
    assert away == [] and world.seen() == dict.fromkeys(world.names, list(range(MANY[-1])))


@follows("table.rolled-back")
def test_one_that_is_behind_and_is_put_back_under_the_query_stops_it():
    """What the user has to decide does not wait until too many records are pending."""
    world, notes = Lagging(refused=()), f"{ROOT}/server journal/commits/streamsink"
    counts, kept = Counter(), {}

    def put_back(step: str) -> None:
        counts[step] += 1
        if step == "batch.end" and counts[step] == 2:
            world.refuse("commit")
        if step == "batch.end" and counts[step] == 3:
            newest = max(world.io().names(notes))
            kept[newest] = world.io().read(f"{notes}/{newest}")
            world.io().delete(f"{notes}/{newest}")

    faults.arm(put_back)
    try:
        said = told("table.rolled-back", lambda: world.run(ends=MANY))
    finally:
        faults.arm(None)
    assert counts["batch.end"] == 3 and said.says("Restore the folder", "Nothing was written")
    world.io().create_if_absent(f"{notes}/{max(kept)}", kept[max(kept)])
    world.mend()
    world.ends_right("what it knows was restored", MANY)


@follows("fan-out.other-records")
def test_a_destination_that_is_put_back_with_its_journal_while_another_one_lags():
    """No record has a mark then. What it lacks was published there once, and is not given to it without a word."""
    world = Lagging()
    world.run(ends=MANY[:1])
    io, own = world.io(), f"{ROOT}/own"
    kept = {path: io.read(path) for path in io.files_below(own)}
    world.run(ends=MANY[:4])
    newer = {path: io.read(path) for path in io.files_below(own)}
    put_back(io, own, kept)
    said = told("fan-out.other-records", lambda: world.run(ends=MANY))
    said.says("'own'", "put back to an earlier", "Restore what was put back", "Nothing was written")
    assert world.ids("own") == ALL[: MANY[0]]
    put_back(io, own, newer)
    world.mend()
    world.ends_right("a newer copy was put back", MANY)


def test_a_journal_that_is_lost_while_another_destination_lags():
    """The destination says what it has; its journal is not needed."""
    world = Lagging()
    world.run(ends=MANY[:4])
    world.io().delete_tree(f"{ROOT}/own/streamsink")
    world.mend()
    world.ends_right("the journal was lost", MANY)


def put_back(io, folder: str, files: dict[str, bytes]) -> None:
    io.delete_tree(folder)
    for path, data in files.items():
        io.create_if_absent(path, data)
