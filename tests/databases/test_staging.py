"""Several writers that fill staging tables: each row is there once, at one instant, whoever dies at whatever
statement."""

import contextlib
import random

import pytest

from streamsink.errors import StreamsinkError
from streamsink.sinks.databases import mysql, postgresql, sink, staging
from streamsink.sinks.databases.bulk.sharing import Shared
from streamsink.sinks.databases.changes import Change
from streamsink.sinks.databases.remembered import Remembered
from streamsink.sinks.databases.staging import Filled, Staging
from streamsink.testing.faults import InjectedCrash
from tests.advice.following import follows, told
from tests.databases.accidents import AFTER, BEFORE, DIALECTS, ENDS, LOST, MODES, Statements, World
from tests.databases.places import TABLE

MORE = (*ENDS, 15)  # a batch after the accident: with it a start drops what is left over
ALL = list(range(MORE[-1]))
STAGED = {"writers": 2, "writers_by": "staged"}
BY_KEY = {"mode": "upsert", "keys": ("id",)}


@pytest.fixture(autouse=True)
def however_few(monkeypatch):
    """However few rows are written by several writers, and one row at once."""
    monkeypatch.setattr(sink, "_LEAST_ROWS", 2)
    monkeypatch.setattr(staging, "ROWS_AT_ONCE", 1)


@pytest.fixture(params=[{}, BY_KEY], ids=["insert", "upsert"])
def world(request, served, monkeypatch):
    """Makes a query over an empty database, with these options."""
    return lambda **options: World(served, monkeypatch, **{**STAGED, **request.param, **options})


@pytest.fixture
def impatient(monkeypatch):
    """Nobody waits long for a lock."""
    for module in (mysql, postgresql):
        monkeypatch.setattr(module, "LOCK_TIMEOUT_S", 1)


def _tables(place) -> list[str]:
    """The staging tables that are there."""
    ask = "SELECT table_name FROM information_schema.tables WHERE table_schema = ? ORDER BY table_name"
    return [name for (name,) in place.ask(ask, place.schema) if name.startswith("streamsink-")]


def _all_once(world: World) -> None:
    """Each row is there once, and nothing is left over."""
    assert world.place.ids() == ALL
    assert _tables(world.place) == []


def _log(world: World) -> list[str]:
    """The statements of a run without an accident."""
    world.start()
    assert world.place.ids() == ALL[: ENDS[-1]] and _tables(world.place) == []
    return world.statements.log


class _At(Statements):
    """An accident at the n-th statement of a kind, as threads are never at the same one twice."""

    def __init__(self, kind, is_it, nth, mode=BEFORE, act=None):
        super().__init__(kind, 0, mode, act)
        self._is_it, self._nth = is_it, nth

    def do(self, name, action):
        if self._is_it(self.log, name):
            self._nth -= 1
            if self._nth == 0:
                self.at = len(self.log) + 1
        return super().do(name, action)


def _is_move(log: list[str], name: str) -> bool:
    """Whether rows are moved now; that is first of all so when a start looks whether they could be."""
    return _counts(name) and not _counts(log[-1])


def _counts(name: str) -> bool:
    return name.startswith("SELECT count(*)") and "streamsink-" in name


def _is_commit(log: list[str], name: str) -> bool:
    """Whether a batch is committed now."""
    return name == "commit" and "UPDATE" in log[-1] and "record_id" in log[-1]


_MOVES, _COMMITS = len(ENDS), len(ENDS)  # a batch is empty, and is committed; and there is the look


def _accident(world: World, statements: Statements) -> None:
    with contextlib.suppress(InjectedCrash, StreamsinkError):
        world.start(statements)
    statements.cut()
    seen, where = world.place.ids(), f"{statements.mode} at statement {statements.at}"
    assert seen == ALL[: len(seen)] and len(seen) in (0, *ENDS), f"a part of a batch is seen after {where}"
    world.start(ends=MORE)
    assert world.place.ids() == ALL, where
    assert _tables(world.place) == [], where


@pytest.mark.in_turn("staging tables", 2)
def test_rows_are_moved_from_tables_of_two_writers(world):
    """Each batch, by one transaction."""
    log = _log(world())
    assert len({text for text in log if text.startswith("CREATE") and "streamsink-" in text}) > 3
    assert len([text for text in log if text.startswith("INSERT INTO") and " SELECT " in text]) > 3


@pytest.mark.in_turn("drivers of staging tables that die", 1)
@pytest.mark.parametrize("mode", MODES)
def test_a_driver_of_staging_tables_dies(world, mode, rng: random.Random):
    """At the last commit, at the move before it, and at any statement."""
    for is_it in (_is_commit, _is_move):
        _accident(made := world(), _At(made.place.kind, is_it, _MOVES, mode))
    number = rng.randint(1, len(_log(world())))
    _accident(made := world(), Statements(made.place.kind, number, mode))


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_driver_of_staging_tables_dies_at_every_statement(world, mode):
    """Of all batches, and of the look at a start."""
    count = len(_log(world()))
    for number in range(1, count + 1):
        _accident(made := world(), Statements(made.place.kind, number, mode))


@pytest.mark.in_turn("staging tables", 2)
def test_a_reply_to_the_commit_of_moved_rows_is_lost(world, served):
    """The driver looks, and goes on in the same run."""
    made = world()
    made.start(_At(served.kind, _is_commit, _COMMITS, LOST))
    assert made.statements.at
    made.start(ends=MORE)
    _all_once(made)


@pytest.mark.in_turn("servers of staging tables that are killed", 1)
@pytest.mark.parametrize("mode", [BEFORE, AFTER])
def test_the_server_is_killed_between_filling_and_moving(world, served, mode):
    """By SIGKILL; then it is started again, and unlogged tables are empty."""
    made, left = world(), []

    def kill() -> None:
        served.server.kill()
        served.server.start()
        left.extend(served.count(name) for name in _tables(served))

    with contextlib.suppress(StreamsinkError):
        made.start(_At(served.kind, _is_move, _MOVES, mode, kill))
    assert left and (sum(left) == 0) == (served.kind == "postgresql")
    assert served.ids() in (ALL[: ENDS[-2]], ALL[: ENDS[-1]])
    made.start(ends=MORE)
    _all_once(made)


@pytest.mark.in_turn("staging tables", 2)
@follows("database.staging")
def test_staging_tables_that_somebody_else_has_emptied(served, monkeypatch):
    """They are counted by the transaction that moves them: nothing of the batch is there."""
    made = World(served, monkeypatch, **STAGED, **BY_KEY)

    def empty() -> None:
        served.do(f'DELETE FROM "{_tables(served)[-1]}"')

    said = told("database.staging", lambda: made.start(_At(served.kind, _is_move, _MOVES, act=empty)))
    said.says("have ", "rows, and 4 were expected", "Leave such tables alone")
    assert served.ids() == ALL[: ENDS[-2]]
    made.start(ends=MORE)
    _all_once(made)


def _sleeps(world: World, statements_of) -> None:
    """A driver stands still before a statement, in one of its threads, while a successor does what it can."""
    successor, seen = world.twin(), []

    def meanwhile() -> None:
        mine, world.statements = world.statements, Statements(world.place.kind)
        with contextlib.suppress(StreamsinkError):
            world.start(checkpoint=successor)
        seen.append(world.place.ids())
        world.statements = mine

    statements = statements_of(meanwhile)
    with contextlib.suppress(StreamsinkError):
        world.start(statements)
    statements.cut()
    assert len(seen) == 1 and seen[0] == ALL[: len(seen[0])], f"slept at statement {statements.at}"
    world.checkpoint.committed = 0
    world.start(checkpoint=successor, ends=MORE)
    _all_once(world)


@pytest.mark.in_turn("drivers of staging tables that sleep", 1)
def test_a_driver_sleeps_before_it_moves_rows(world, impatient):
    """Its successor waits for it, or its transaction is over."""
    _sleeps(made := world(), lambda act: _At(made.place.kind, _is_move, 2, act=act))


@pytest.mark.soak
@pytest.mark.slow
def test_a_driver_of_staging_tables_sleeps_at_every_statement(world, impatient):
    """Of the first batch."""
    log = _log(world())
    first = next(n for n, text in enumerate(log) if _counts(text))
    for number in range(first, next(n for n in range(first, len(log)) if _is_commit(log[:n], log[n])) + 5):
        _sleeps(made := world(), lambda act, at=number: Statements(made.place.kind, at, act=act))


@pytest.mark.in_turn("staging tables", 2)
def test_a_sleeper_without_its_transaction_wakes_up_among_its_successor(served, monkeypatch):
    """The successor drops what it finds, and neither moves it; the sleeper drops none of the successor's tables."""
    of = {**STAGED, **BY_KEY, "name": "it"}
    made = World(served, monkeypatch, **of)
    made.start(ends=ENDS[:3])
    sleeper, _ = _left_over(made, of)
    (its,) = _tables(served)

    def wakes_up() -> None:
        assert its not in _tables(served) and len(_tables(served)) > 0
        of_successor = _tables(served)
        made.statements, mine = Statements(served.kind), made.statements
        sleeper.close()
        made.statements = mine
        assert _tables(served) == of_successor

    made.start(_At(served.kind, _is_move, 2, act=wakes_up))
    assert made.statements.at
    made.start(ends=MORE)
    _all_once(made)


def _left_over(made: World, of: dict) -> tuple[Filled, str]:
    """The staging table of a driver that is in the midst of a batch, and the application whose it is."""
    address = made.place.sink("/journal", **of)._address()
    remembered = Remembered(DIALECTS[made.place.kind](), made.place.schema, TABLE)
    (application,) = {name for (name,) in made.place.ask('SELECT application FROM "streamsink_checkpoints"')}
    filled = Staging(remembered, application, address, "it").begin()
    filled._fill(0, Shared([made.rows(100, 103)], 1), Change(("id",)))
    return filled, application


@pytest.mark.in_turn("staging tables", 2)
def test_a_query_that_is_given_up_leaves_no_staging_tables(served, monkeypatch):
    """Who forgets an application drops what a driver of it has left."""
    of = {**STAGED, **BY_KEY, "name": "it"}
    made = World(served, monkeypatch, **of)
    made.start()
    _, application = _left_over(made, of)
    assert len(_tables(served)) == 1
    served.sink("/journal", **of).forget(application, {})
    assert _tables(served) == [] and served.ids() == ALL[: ENDS[-1]]
