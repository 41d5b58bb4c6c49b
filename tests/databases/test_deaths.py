"""A driver that dies, sleeps or loses its connection at any statement that it sends to a database: each row is there
once."""

import contextlib
import random

import pytest

from streamsink.errors import StreamsinkError
from streamsink.sinks.databases import mysql, postgresql, sqlite
from streamsink.testing.faults import InjectedCrash
from tests.advice.following import told
from tests.databases.accidents import AFTER, BEFORE, ENDS, MODES, Statements, World
from tests.databases.places import TABLE
from tests.services.lossy import LossyRelay

IN_THE_GATE = 4
BY_KEY = {"mode": "upsert", "keys": ("id",)}
ALL = list(range(ENDS[-1]))


@pytest.fixture(params=[{}, BY_KEY], ids=["insert", "upsert"])
def world_of(request, place, monkeypatch):
    """Makes a query over an empty database, with these options."""
    return lambda **options: World(place, monkeypatch, **request.param, **options)


@pytest.fixture
def world(world_of):
    """The same without options."""
    return world_of


def _statements(world: World) -> list[str]:
    """Those of a run without an accident."""
    world.start()
    assert world.place.ids() == ALL
    return world.statements.log


def _accident(world: World, number: int, mode: str) -> None:
    statements, where = Statements(world.place.kind, number, mode), f"{mode} at statement {number}"
    with contextlib.suppress(InjectedCrash, StreamsinkError):
        world.start(statements)
    assert len(statements.log) >= number, where
    statements.cut()
    seen = world.place.ids()
    assert seen == ALL[: len(seen)] and len(seen) in (0, *ENDS), f"a part of a batch is seen after {where}"
    world.start()
    assert world.place.ids() == ALL, where


@pytest.mark.in_turn("drivers of databases that die", 2)
def test_a_driver_that_dies_or_loses_its_connection(world, rng: random.Random):
    """Some of the statements, each in one way; the commits in every way."""
    log = _statements(world())
    commits = [number for number, text in enumerate(log, 1) if text == "commit"]
    chosen = [(rng.randint(1, len(log)), mode) for mode in MODES for _ in range(IN_THE_GATE // len(MODES))]
    for number, mode in [*chosen, *((commits[-1], mode) for mode in MODES)]:
        _accident(world(), number, mode)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_driver_that_dies_at_every_statement(world, mode):
    """All of them."""
    count = len(_statements(world()))
    assert count > 30
    for number in range(1, count + 1):
        _accident(world(), number, mode)


def _sleeps(world: World, number: int) -> None:
    """A driver stands still before a statement, while a successor begins, and does what it can."""
    successors = []

    def meanwhile() -> None:
        mine, world.statements = world.statements, Statements(world.place.kind)
        with contextlib.suppress(StreamsinkError):  # it does not get a lock that the sleeper has
            world.start(checkpoint=successor)
        successors.append(world.place.ids())
        world.statements = mine

    successor = world.twin()
    statements = Statements(world.place.kind, number, act=meanwhile)
    with contextlib.suppress(StreamsinkError):  # a superseded driver may fail in any way
        world.start(statements)
    statements.cut()
    assert successors and successors[0] == ALL[: len(successors[0])]
    world.checkpoint.committed = 0
    world.start(checkpoint=successor)
    assert world.place.ids() == ALL, f"slept at statement {number}"


@pytest.fixture
def impatient(monkeypatch):
    """Nobody waits long for a lock."""
    for module in (mysql, postgresql, sqlite):
        monkeypatch.setattr(module, "LOCK_TIMEOUT_S", 1)


@pytest.mark.in_turn("drivers of databases that sleep", 2)
def test_a_driver_that_sleeps_behind_its_look_at_the_checkpoint(world, impatient):
    """It has seen that it may commit, and its successor comes before it has."""
    log = _statements(world())
    looks = [number for number, text in enumerate(log, 1) if "record_id FROM" in text and "SELECT" in text]
    assert len(looks) > len(ENDS) - 1
    for number in (looks[0] + 1, looks[-1], looks[-1] + 1):
        _sleeps(world(), number)


@pytest.mark.soak
@pytest.mark.slow
def test_a_driver_that_sleeps_at_every_statement(world, impatient):
    """All of them."""
    for number in range(1, len(_statements(world())) + 1):
        _sleeps(world(), number)


@pytest.mark.in_turn("lost replies of databases", 1)
def test_a_reply_to_a_commit_is_lost(served, monkeypatch):
    """The server has committed, and nobody has heard of it: the driver looks, and goes on in the same run."""
    with LossyRelay(served.port) as relay:
        served.port = relay.port
        number = _last_commit(World(served, monkeypatch))
        world = World(served, monkeypatch)

        def lose() -> None:
            relay.to_lose = 1

        world.start(Statements(served.kind, number, act=lose))
        assert relay.lost == 1 and world.place.ids() == ALL


def _last_commit(world: World) -> int:
    log = _statements(world)
    rows = max(number for number, text in enumerate(log, 1) if "UPDATE" in text and "record_id" in text)
    return log.index("commit", rows) + 1


class Replica:
    """The rows, and what is remembered with them, as a replica has them that gets no further."""

    def __init__(self, place, name: str = "of"):
        self._place, self._tables, self._name = place, (TABLE, "streamsink_checkpoints"), name
        for table in self._tables:
            place.do(f'CREATE TABLE "{name} {table}" AS SELECT * FROM "{table}"')

    def promote(self) -> None:
        """It takes the place of the database that had gone on."""
        for table in self._tables:
            self._place.do(f'DELETE FROM "{table}"')
            self._place.do(f'INSERT INTO "{table}" SELECT * FROM "{self._name} {table}"')


@pytest.mark.in_turn("replicas that lagged", 3)
def test_a_replica_that_lagged_is_promoted(world_of, place):
    """What it lacks is committed again from the journal, when the option says so; each row is there once. Also where
    the driver dies on the way."""
    world = world_of(options={"on_rollback": "republish"})
    world.start(ends=ENDS[:2])
    replica = Replica(place)
    world.start()
    replica.promote()
    assert place.ids() == ALL[: ENDS[1]]
    world.checkpoint.committed -= 1
    with contextlib.suppress(InjectedCrash):
        world.start(Statements(place.kind, 12))
    world.start()
    assert place.ids() == ALL


@pytest.mark.in_turn("replicas that lagged", 3)
def test_without_the_option_a_replica_that_lagged_stops_the_query(world_of, place):
    """Until it has what it had before. The rows are not kept in the journal then."""
    world = world_of()
    world.start(ends=ENDS[:2])
    replica = Replica(place)
    world.start(ends=ENDS[:3])
    complete = Replica(place, "all of")
    replica.promote()
    for _ in range(2):
        told("table.rolled-back", world.start).says("Restore the destination")
        assert place.ids() == ALL[: ENDS[1]]
    complete.promote()
    world.start()
    assert place.ids() == ALL


@pytest.mark.in_turn("servers of databases that are killed", 1)
@pytest.mark.parametrize("mode", [BEFORE, AFTER])
def test_the_server_is_killed(served, monkeypatch, mode):
    """By SIGKILL, when the rows are written and nothing is committed, or all is; then it is started again."""
    number = _last_commit(World(served, monkeypatch))
    world = World(served, monkeypatch)
    try:
        with contextlib.suppress(StreamsinkError):
            world.start(Statements(served.kind, number, mode, act=served.server.kill))
    finally:
        served.server.start()
    seen = world.place.ids()
    assert seen == (ALL if mode == AFTER else ALL[: ENDS[-2]])
    world.start()
    assert world.place.ids() == ALL
