"""Snapshots expire beside a query: at any instant of it, and after any death, each row is there once all the same."""

import itertools
from types import SimpleNamespace

import pytest

import streamsink
from streamsink.errors import Misuse
from streamsink.sinks.paimon.care import needed as journals
from streamsink.sinks.paimon.care.needed import needed_by_journals
from streamsink.storage.calls import PosixCalls
from streamsink.table.care.expire_snapshots import Retention, expire, plan
from streamsink.table.commit.changes import Changes
from streamsink.table.table import is_table, open_table
from streamsink.testing.crashing import CrashingCalls
from tests.crash.letters_world import LettersWorld
from tests.crash.many_world import ManyWorld, check_complete
from tests.crash.sweeps import deaths
from tests.crash.world import BOUNDARIES, WAYS, die_at_step, ends_right, expected, memory_world, posix_world
from tests.table.entries import commit

# Nothing stays but what somebody needs.
_ALL = Retention(num_min=1, num_max=1, time_ms=10**15, limit=100)
# The gate tries each so-manieth state, and the soak all.
_STRIDES = pytest.mark.parametrize("stride", [91, pytest.param(1, marks=pytest.mark.soak)])


def _expires(world) -> int:
    """Let expire what may, in all tables; how many snapshots went."""
    io, gone = world.file_io(world.calls), 0
    paths = [f"{world.root}/{name}" for name in world.tables] if isinstance(world, ManyWorld) else [world.driver.root]
    for path in paths:
        if is_table(io, path):
            table = open_table(io, path, for_writing=True)
            gone += len(expire(table, _ALL, needed_by_journals(table)).snapshots)
    return gone


@_STRIDES
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rollback", ["fail", "republish"])
def test_expiry_after_a_death(way, rollback, stride, rng):
    """A record that is not marked keeps the snapshots since it was made: the restart finds out what is published."""
    world, gone = memory_world(on_rollback=rollback, **WAYS[way]), 0
    for left in deaths(world)[rng.randrange(stride) :: stride]:
        left.put_back(world, False)
        gone += _expires(world)
        ends_right(world, str(left))
        gone += _expires(world)
        assert world.ids() == expected()
    assert gone > 0


@_STRIDES
@pytest.mark.parametrize("way", WAYS)
def test_expiry_between_two_calls_of_a_query(way, stride, rng):
    """The query goes on, and a restart of it too."""
    for n in itertools.count(1 + rng.randrange(stride), stride):
        world = memory_world(restore="restore-and-continue", **WAYS[way])
        calls, happened = CrashingCalls(world.calls), list[int]()

        def happens(world=world, calls=calls, happened=happened, n=n):
            if calls.count == n - 1 and not happened:
                happened.append(n)
                _expires(world)

        calls.before_call = happens
        world.run(calls)
        assert world.ids() == expected(), f"call {n}"
        if not happened:
            break
        _expires(world)
        world.run(boundaries=(*BOUNDARIES, BOUNDARIES[-1] + 3))
        assert world.ids() == list(range(BOUNDARIES[-1] + 3)), f"call {n}, restarted"


def test_a_pending_record_keeps_the_snapshots_since_it_was_made():
    """The plan says whose record it is. When it is marked, they go."""
    world = memory_world()
    assert die_at_step("precommit.saved", 2, world)
    table = open_table(world.file_io(world.calls), world.driver.root, for_writing=True)
    needing = needed_by_journals(table)
    for _ in range(2):
        commit(table, Changes(), "another")
    assert needing().since == 1 and needing().files, "it was made on snapshot 1"
    planned = plan(table, _ALL, needing)
    assert planned.snapshots == () and "record 2 of application 'streamsink'" in str(planned)
    assert die_at_step("commit.published", 1, world), "it is published, and nobody has marked it"
    assert needing().since == 1 and plan(table, _ALL, needing).snapshots == ()
    assert f"streamsink.retire('{table.root}', application='streamsink')" in plan(table, _ALL, needing).held
    ends_right(world, "restarted")
    assert needing().since is None and plan(table, _ALL, needing).snapshots == (1, 2, 3, 4, 5)


def test_a_record_that_comes_again_keeps_snapshots():
    """Its mark is of an earlier publishing, which the table has lost by a rollback."""
    world = memory_world(on_rollback="republish")
    world.run()
    table = open_table(world.file_io(world.calls), world.driver.root, for_writing=True)
    newest = table.snapshots.latest().id
    for number in (newest, newest - 1):
        table.file_io.delete(table.layout.snapshot(number))
    assert die_at_step("commit.lists_written", 1, world, boundaries=(*BOUNDARIES, BOUNDARIES[-1] + 3))
    needed = needed_by_journals(open_table(world.file_io(world.calls), world.driver.root, for_writing=True))()
    assert needed.since is not None and needed.since <= newest - 2
    world.run(boundaries=(*BOUNDARIES, BOUNDARIES[-1] + 3))
    assert world.ids() == list(range(BOUNDARIES[-1] + 3))


@_STRIDES
@pytest.mark.parametrize("make", [ManyWorld, LettersWorld], ids=["many", "letters"])
def test_expiry_of_several_tables_after_a_death(make, stride, rng):
    """Their journal lies beside them; that of dead letters in the table that they belong to."""
    world, gone = make(), 0
    for left in deaths(world)[rng.randrange(stride) :: stride]:
        left.put_back(world, False)
        gone += _expires(world)
        world.run()
        gone += _expires(world)
        check_complete(world.rows()) if make is ManyWorld else world.check_complete()
    assert gone > 0


@pytest.mark.parametrize(("make", "names"), [(ManyWorld, {"a", "rejected"}), (LettersWorld, {"orders", "rejected"})])
def test_a_record_of_several_tables_is_needed_in_each(make, names):
    """Of a table that has no part of it only files count."""
    world = make()
    assert die_at_step("precommit.saved", 4, world)
    io, since = world.file_io(world.calls), {}
    for name in world.tables:
        if is_table(io, f"{world.root}/{name}"):
            table = open_table(io, f"{world.root}/{name}", for_writing=True)
            needed = needed_by_journals(table)()
            if needed.since is not None:
                assert needed.files and needed.since == (table.snapshots.latest() or SimpleNamespace(id=0)).id
                since[name] = needed.since
    assert names <= since.keys(), since


@pytest.mark.parametrize("linked", ["table", "warehouse"])
def test_a_table_behind_a_link_has_the_journals_of_both_its_places(tmp_path, linked):
    """The journal of several tables lies above the place that the link leads to, or above the link."""
    world = ManyWorld(PosixCalls(), str(tmp_path / "shop.db"))
    assert die_at_step("precommit.saved", 4, world)
    at = tmp_path / "link"
    if linked == "table":
        at.symlink_to(tmp_path / "shop.db" / "a")
    else:
        (tmp_path / "shop.db" / "a").rename(at)
        (tmp_path / "shop.db" / "a").symlink_to(at)
        at = tmp_path / "shop.db" / "a"
    table = open_table(world.file_io(world.calls), str(at), for_writing=True)
    needed = needed_by_journals(table)()
    assert needed.files and needed.since == table.snapshots.latest().id


def test_a_place_without_journals_is_refused():
    """It is mistyped, or another one is meant."""
    world = memory_world()
    world.run()
    table = open_table(world.file_io(world.calls), world.driver.root, for_writing=True)
    assert needed_by_journals(table, [table.root])().since is None
    with pytest.raises(Misuse, match="/lake/elsewhere"):
        needed_by_journals(table, ["/lake/elsewhere"])()


def test_a_query_that_is_no_more_is_retired(tmp_path):
    """As the plan says it; then nothing needs the snapshots any more."""
    world = posix_world(tmp_path)
    assert die_at_step("commit.published", 3, world)
    table = open_table(world.file_io(world.calls), world.driver.root, for_writing=True)
    held = plan(table, _ALL, needed_by_journals(table)).held
    assert "streamsink.retire(" in held
    streamsink.retire(world.driver.root, application="streamsink")
    newest = table.snapshots.latest().id
    assert plan(table, _ALL, needed_by_journals(table)).snapshots == tuple(range(1, newest))


def test_the_journal_of_several_tables_is_found_far_above_them(monkeypatch):
    """A table's path may lie deep below the folder of its query."""
    world = ManyWorld()
    assert die_at_step("precommit.saved", 4, world)
    table = open_table(world.file_io(world.calls), f"{world.root}/a", for_writing=True)
    monkeypatch.setattr(journals, "_ABOVE", 0)
    assert needed_by_journals(table)().since == table.snapshots.latest().id
