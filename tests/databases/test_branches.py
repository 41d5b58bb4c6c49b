"""Several writers of one checkpoint: each row is there once, whoever dies at whatever statement."""

import contextlib
import random
import threading
from dataclasses import replace

import pytest

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.sinks.databases import branches, mysql, postgresql, sink
from streamsink.sinks.databases.bulk.prepared import PostgreSqlPrepared
from streamsink.sinks.databases.dialect import Run
from streamsink.storage.file_io import FileIO
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.databases.accidents import AFTER, BEFORE, DIALECTS, ENDS, LOST, MODES, Statements, World, lost
from tests.databases.places import TABLE, Place
from tests.services import postgres

ALL = list(range(ENDS[-1]))
_LONG_ENOUGH_S = 1
_OTHER_USER = (
    "DO $$ BEGIN CREATE ROLE other LOGIN PASSWORD '{password}'; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    "GRANT ALL ON SCHEMA {schema} TO other",
    "GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO other",
)


class _BranchesFirst(branches.Shared):
    """The main transaction gets rows when a branch has some: so few rows would not be shared otherwise."""

    def __init__(self, *of):
        super().__init__(*of)
        self.at_once, self._main, self._taken = 1, threading.get_ident(), threading.Event()

    def __next__(self):
        if threading.get_ident() == self._main:
            self._taken.wait(_LONG_ENOUGH_S)  # a branch may have died
        row = super().__next__()
        if threading.get_ident() != self._main:
            self._taken.set()
        return row

    def stop(self):
        super().stop()
        self._taken.set()


@pytest.fixture
def world(served, monkeypatch):
    """Makes a query of three writers over an empty database."""
    monkeypatch.setattr(sink, "_LEAST_ROWS", 2)
    monkeypatch.setattr(branches, "Shared", _BranchesFirst)
    return lambda **options: World(served, monkeypatch, **{"writers": 3, **options})


def _log(world: World) -> list[str]:
    """The statements of a run without an accident."""
    world.start()
    _all_once(world)
    return world.statements.log


def _all_once(world: World) -> None:
    """Each row is there once, and nothing is left of any branch."""
    assert world.place.ids() == ALL
    assert world.place.count("streamsink_branches") == 0
    assert _prepared(world) == []


def _prepared(world: World) -> list:
    ask = "XA RECOVER" if world.place.kind == "mariadb" else "SELECT gid FROM pg_prepared_xacts"
    return list(world.place.ask(ask))


@pytest.mark.in_turn("three writers", 1)
def test_each_of_three_writers_has_rows(world):
    """They are committed together, and what is noted of them is forgotten."""
    log = _log(world())
    into = [text for text in log if text.startswith(("COPY", "INSERT INTO")) and TABLE in text]
    assert len(into) > len(ENDS) - 1 and len({text[-20:] for text in log if text.startswith("COMMIT PREP")}) in (0, 6)


def _accident(world_of, number: int, mode: str) -> None:
    world = world_of()
    statements, where = Statements(world.place.kind, number, mode), f"{mode} at statement {number}"
    with contextlib.suppress(InjectedCrash, StreamsinkError):
        world.start(statements)
    assert len(statements.log) >= number, where
    statements.cut()
    world.start()
    assert world.place.ids() == ALL, where
    _all_once(world)


def _of_branches(log: list[str]) -> list[int]:
    """The numbers of the statements from the first branch on to the end of the first checkpoint."""
    first = next(n for n, text in enumerate(log, 1) if text.startswith(("BEGIN", "XA START")))
    last = next(n for n, text in enumerate(log, 1) if text.startswith("DELETE FROM") and "branches" in text)
    return list(range(first - 1, last + 3))


@pytest.mark.in_turn("drivers of several writers that die", 2)
@pytest.mark.parametrize("mode", MODES)
def test_a_driver_of_several_writers_dies(world, mode, rng: random.Random):
    """Around the last decision, behind which no other checkpoint comes, and at one statement of the first branches."""
    log = _log(world())
    decided = _decisions(log)[-1]
    for number in (decided, decided + 1, rng.choice(_of_branches(log))):
        _accident(world, number, mode)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_driver_of_several_writers_dies_at_every_statement(world, mode):
    """All of them, of three checkpoints."""
    count = len(_log(world()))
    for number in range(1, count):
        _accident(world, number, mode)


def test_a_start_commits_what_is_decided(world):
    """A driver dies behind the decision, and no other checkpoint comes: the start itself sees to its branches."""
    _accident(world, _decisions(_log(world()))[-1], AFTER)


def test_a_reply_to_the_decision_is_lost(world, served):
    """The driver looks, and commits the branches in the same run."""
    number = _decisions(_log(world()))[-1]
    made = world()
    made.start(Statements(served.kind, number, LOST))
    _all_once(made)


def _sleeps(world: World, number: int) -> None:
    """A driver stands still before a statement, in one of its threads, while a successor does what it can."""
    successor, seen = world.twin(), []

    def meanwhile() -> None:
        mine, world.statements = world.statements, Statements(world.place.kind)
        with contextlib.suppress(StreamsinkError):
            world.start(checkpoint=successor)
        seen.append(world.place.ids())
        world.statements = mine

    statements = Statements(world.place.kind, number, act=meanwhile)
    with contextlib.suppress(StreamsinkError):
        world.start(statements)
    statements.cut()
    assert len(seen) == 1
    world.checkpoint.committed = 0
    world.start(checkpoint=successor)
    _all_once(world)


@pytest.fixture
def impatient(monkeypatch):
    """Nobody waits long for a lock."""
    for module in (mysql, postgresql):
        monkeypatch.setattr(module, "LOCK_TIMEOUT_S", 1)
    monkeypatch.setattr(branches, "_LOOKS", 4)


def _decisions(log: list[str]) -> list[int]:
    return [n + 1 for n, text in enumerate(log, 1) if text.startswith("UPDATE") and "checkpoints" in text]


@pytest.mark.in_turn("drivers of several writers that sleep", 1)
def test_a_driver_sleeps_between_the_decision_and_its_branches(world, impatient):
    """Its successor commits the branches, or the sleeper itself where they belong to its connections."""
    number = _decisions(_log(world()))[0]
    _sleeps(world(), number + 1)


@pytest.mark.soak
@pytest.mark.slow
def test_a_driver_of_several_writers_sleeps_at_every_statement(world, impatient):
    """Of the first checkpoint with rows."""
    for number in _of_branches(_log(world())):
        _sleeps(world(), number)


@pytest.mark.in_turn("servers of several writers that are killed", 2)
@pytest.mark.parametrize("mode", [BEFORE, AFTER])
def test_the_server_is_killed_between_prepare_and_commit(world, served, mode):
    """By SIGKILL, before and after the decision; then it is started again with its branches prepared."""
    number = _decisions(_log(world()))[-1]
    made, seen = world(), []

    def kill() -> None:
        served.server.kill()
        served.server.start()
        seen.append((_prepared(made), made.place.ids(), made.place.count("streamsink_branches")))

    with contextlib.suppress(StreamsinkError):
        made.start(Statements(served.kind, number, mode, act=kill))
    prepared, ids, decided = seen[0]  # who begins late may have no rows: the others have taken all
    assert len(prepared) == 2 and decided == (0 if mode == BEFORE else 2) and (mode == AFTER or ids == ALL[: ENDS[-2]])
    made.start()
    _all_once(made)


@follows("database.branch-lost")
@pytest.mark.in_turn("branches that somebody rolled back", 1)
def test_a_branch_that_somebody_has_rolled_back(world, served, monkeypatch):
    """It is never taken for committed: the query stops until its rows, if it had any, are given up by hand."""
    monkeypatch.setattr(branches, "_LOOKS", 2)
    number = _decisions(_log(world()))[-1]
    made, seen = world(), []
    with contextlib.suppress(InjectedCrash):
        made.start(Statements(served.kind, number, AFTER))
    made.statements.cut()
    name = _one_rolled_back(made)
    for _ in range(2):
        said = told("database.branch-lost", made.start)
        seen.append(served.ids())
    assert seen == [seen[0]] * 2 and set(ALL[: ENDS[-2]]) <= set(seen[0]) <= set(ALL) and name in said.message
    with contextlib.closing(served.server.connect()) as elsewhere:  # in no schema of ours
        cursor = elsewhere.cursor()
        cursor.execute(said.find(r"(DELETE FROM .*streamsink_branches.* WHERE name IN \('[a-z0-9-]+'\))"))
        assert cursor.rowcount == 1
    made.start(ends=(*ENDS, 15))
    assert served.ids() == [*seen[0], 12, 13, 14] and _prepared(made) == []


def _one_rolled_back(world: World) -> str:
    """The other branch may still belong to the connection of the dead driver: it is waited for."""
    dialect = DIALECTS[world.place.kind]()
    prepared = dialect.prepared
    with contextlib.closing(world.place.server.connect()) as connection:
        run = Run(connection)
        for _ in range(1000):
            name = prepared.names(run, "streamsink-")[0]
            with contextlib.suppress(dialect.driver().Error):
                prepared.roll_back(run, name)
                return name
    raise AssertionError(name)


@pytest.mark.parametrize("served", ["postgresql"], indirect=True)
def test_a_server_that_prepares_no_transactions(world, served, monkeypatch):
    """Many servers of PostgreSQL do not, by default: the message has the setting, and the way without it."""
    _few = PostgreSqlPrepared.refused
    monkeypatch.setattr(PostgreSqlPrepared, "refused", lambda of, run, at_once: _few(of, run, at_once + 50))
    made = world(writers_by="prepared")
    said = told("database.options", made.start)
    said.says("max_prepared_transactions of the server is 20", "leave the option writers out")
    made.of_sink["writers_by"] = said.option("writers_by")
    made.start()
    _all_once(made)


@pytest.mark.in_turn("branches that wait", 1)
def test_a_branch_that_waits_for_another_one(world, served, impatient, caplog):
    """Two writers in each other's way would wait for ever: one writes instead."""
    made = world(create_table=False)
    served.do(f'CREATE TABLE "{TABLE}" (id bigint, word varchar(99))')
    served.do("CREATE TABLE summed (one int PRIMARY KEY, n bigint)")
    served.do("INSERT INTO summed VALUES (1, 0)")
    if served.kind == "mariadb":
        served.do(
            f'CREATE TRIGGER sums AFTER INSERT ON "{TABLE}" FOR EACH ROW UPDATE summed SET n = n + 1 WHERE one = 1'
        )
    else:
        schema = served._quoted(served.schema).replace("%", "%%")
        served.do(
            f"CREATE FUNCTION sums() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE {schema}.summed "
            "SET n = n + 1; RETURN NEW; END $$"
        )
        served.do(f'CREATE TRIGGER sums AFTER INSERT ON "{TABLE}" FOR EACH ROW EXECUTE FUNCTION sums()')
    made.start()
    _all_once(made)
    assert served.ask("SELECT n FROM summed")[0][0] == len(ALL)
    assert "from now on one writes" in caplog.text


class _MainFirst(branches.Shared):
    """The main transaction gets the first row."""

    def __init__(self, *of):
        super().__init__(*of)
        self.at_once, self._main, self._taken = 1, threading.get_ident(), threading.Event()

    def __next__(self):
        if threading.get_ident() != self._main:
            self._taken.wait()
        try:
            return super().__next__()
        finally:
            self._taken.set()


@pytest.mark.parametrize("served", ["postgresql"], indirect=True)
def test_what_is_checked_at_the_commit_leaves_no_branch(world, served, monkeypatch):
    """Who dropped the constraint, as the error says, would wait for what is prepared."""
    made = world(create_table=False, check_rows_up_to=0)
    monkeypatch.setattr(branches, "Shared", _MainFirst)
    served.do(f'CREATE TABLE "{TABLE}" (id bigint CONSTRAINT late UNIQUE DEFERRABLE INITIALLY DEFERRED, word text)')
    served.do(f'INSERT INTO "{TABLE}" VALUES (0)')
    said = told("database.rows-refused", made.start)
    said.says("late", "Change the table")
    assert _prepared(made) == []
    served.do(f'ALTER TABLE "{TABLE}" DROP CONSTRAINT late')
    made.start()
    assert served.ids() == [0, *ALL]


@follows("database.refused")
@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("served", ["postgresql"], indirect=True)
def test_branches_of_another_user(world, served, monkeypatch, decided):
    """PostgreSQL lets nobody else end them: the message says whose they are to be, and how they are ended by hand."""
    number = _decisions(_log(world()))[-1]
    made = world()
    with contextlib.suppress(InjectedCrash):
        made.start(Statements(served.kind, number if decided else number - 1, AFTER))
    made.statements.cut()
    of_test, end = Place.sink, "COMMIT" if decided else "ROLLBACK"
    with contextlib.closing(served.server.connect()) as connection:
        for text in _OTHER_USER:
            connection.execute(text.format(password=postgres.PASSWORD, schema=served._quoted(served.schema)))
    monkeypatch.setattr(Place, "sink", lambda of, journal, **more: replace(of_test(of, journal, **more), user="other"))
    for _ in range(2):
        said = told("database.refused", made.start)
        said.says("made by another user of the database than 'other'")
        served.do(said.find(rf"execute ({end} PREPARED '\S+') in"))
    made.start()
    _all_once(made)


class _Hooked(Statements):
    """Calls ``act`` in the place of the first statement that begins so."""

    def __init__(self, kind, begins, act):
        super().__init__(kind)
        self._begins, self._instead = begins, act

    def do(self, name, action):
        if self._instead is None or not name.startswith(self._begins):
            return super().do(name, action)
        act, self._instead = self._instead, None
        return act()


def _dies(*_):
    raise InjectedCrash("here")


def _sleeper(made, monkeypatch):
    """Commits the record that was in hand last, as a driver that wakes up, and dies behind the decision."""
    pending, of_sink = [], sink.DatabaseSink.commit_checkpoint

    def noted(destination, checkpoint):
        pending.append((destination, checkpoint))
        of_sink(destination, checkpoint)

    def wakes_up():
        destination, checkpoint = pending[-1]
        with monkeypatch.context() as patch, contextlib.suppress(InjectedCrash):
            patch.setattr(branches.Attempt, "commit", _dies)
            of_sink(replace(destination, writers=3), replace(checkpoint, session={}))
        assert len(_prepared(made)) == 2

    monkeypatch.setattr(sink.DatabaseSink, "commit_checkpoint", noted)
    return wakes_up


@pytest.mark.in_turn("sleepers that decide", 1)
def test_a_sleeper_decides_between_two_tries_of_its_successor(world, served, monkeypatch):
    """The successor has looked for branches in its first try; then it finds its record committed, but not these."""
    made = world(check_rows_up_to=0)
    made.start(ends=ENDS[:3])
    made.of_sink["writers"] = 1
    wakes_up = _sleeper(made, monkeypatch)

    def act():
        made.statements.cut()
        wakes_up()
        raise lost(served.kind)

    made.start(_Hooked(served.kind, ("COPY", "INSERT INTO"), act))
    _all_once(made)


@pytest.mark.in_turn("branches whose journal is lost", 1)
def test_branches_of_a_dead_driver_whose_journal_is_lost(world, served, impatient):
    """They have locks on keys of the batch that comes again, which is tried before it is recorded."""
    made = world(create_table=False)
    served.do(f'CREATE TABLE "{TABLE}" (id bigint PRIMARY KEY, word varchar(99))')
    with contextlib.suppress(InjectedCrash):
        made.start(_Hooked(served.kind, "UPDATE", _dies))
    made.statements.cut()
    assert len(_prepared(made)) == 2
    made.io = FileIO(MemoryCalls(), IdSource().new_id)
    made.start()
    _all_once(made)
