"""The care of a table on a real HDFS and a real S3: tags, branches, going back, expiry and orphan files; whatever dies,
refuses or restarts in between, all that is retained is whole, and the stream goes on.
"""

from datetime import timedelta

import pytest

from streamsink.commands.branches import delete_branch
from streamsink.errors import OutcomeUnknown, StreamsinkError
from streamsink.sinks.paimon.care.needed import needed_by_journals, needed_of_all
from streamsink.storage.s3_calls import S3Calls
from streamsink.table.branching import branches
from streamsink.table.branching.fast_forward import fast_forward
from streamsink.table.branching.rollback import roll_back
from streamsink.table.branching.targets import find
from streamsink.table.care import orphan_files
from streamsink.table.care.expire_partitions import PartitionRule, expire_partitions
from streamsink.table.care.expire_snapshots import Retention, expire
from streamsink.table.care.removal import unfinished
from streamsink.table.care.tags import create_tag, delete_tags
from streamsink.table.history.retained import roots, tags
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash
from tests.crash.world import World
from tests.services import s3_proxy
from tests.services.hdfs import HdfsCluster
from tests.services.s3_proxy import S3Proxy
from tests.storage.back_ends import REMOTE, back_end
from tests.storage.test_s3_faults import QUICK
from tests.table.entries import OPTIONS

BOUNDARIES, NEXT = (4, 6, 8), (4, 6, 8, 10)
_ONE = Retention(num_min=1, num_max=1, time_ms=10**15, limit=100)
_ALL = PartitionRule(timedelta(), by_update=True, most=1)
BRANCH = "audit"
_CLEANS = {"manifest.merge-min-count": "3", "snapshot.clean-empty-directories": "true"}


def _world(made) -> World:
    """Three batches, of which the table has a tag, and a branch with rows of its own that main has taken over."""
    world = World(made.calls, f"{made.root}/shop.db/orders", make_io=made.io, table_options=_CLEANS)
    world.run(boundaries=BOUNDARIES)
    return world


def _table(world, calls=None):
    return open_table(world.file_io(calls or world.calls), world.driver.root, for_writing=True)


def _expire(world, calls=None) -> tuple[int, ...]:
    table = _table(world, calls)
    return expire(table, _ONE, needed_by_journals(table)).snapshots


def _untag(world, calls=None) -> None:
    table = _table(world, calls)
    delete_tags(table, [tag.name for tag in tags(table)], needed_by_journals(table))


def _branched(world, calls=None) -> None:
    table = _table(world, calls)
    branches.create(table, BRANCH, find(table, BOUNDARIES.index(8) + 1))


def _forwarded(world, calls=None) -> None:
    fast_forward(_table(world, calls), BRANCH, OPTIONS, "a test")


def _back(world, calls=None) -> None:
    table = _table(world, calls)
    roll_back(table, find(table, tag="first"), OPTIONS, "a test")


def _drop_one(world, calls=None) -> None:
    expire_partitions(_table(world, calls), OPTIONS, _ALL)


def _audited(world) -> None:
    other = World(world.calls, _table(world).layout.branch_root(BRANCH), make_io=world.file_io, application="auditor")
    other.run(boundaries=(3,))


def _check_whole(world) -> None:
    """All that is retained, in branches too, has its files."""
    table = _table(world)
    for root in roots(table):
        for entry in table.manifests.entries_of(root.snapshot):
            assert table.file_io.exists(data_file_path(table, table.known_schema, entry)), root


@pytest.mark.in_turn("the care of a table on a store", 1)
@pytest.mark.parametrize("kind", REMOTE)
def test_the_care_of_a_table_on_a_store(kind, request, monkeypatch):
    """One after another, each once. On S3 what expires is deleted by few requests; on HDFS empty folders go, too."""
    world = _world(back_end(kind, request))
    create_tag(_table(world), "first", 1)
    _branched(world)
    _audited(world)
    _forwarded(world)
    forwarded = sorted([*range(8), *range(3)])
    assert world.ids() == forwarded
    _back(world)
    assert world.ids() == list(range(4))
    roll_back(_table(world), find(_table(world), 4), OPTIONS, "a test")
    assert world.ids() == forwarded
    _drop_one(world)
    left = world.ids()
    assert 0 < len(left) < len(forwarded)
    delete_branch(world.file_io(world.calls), world.driver.root, BRANCH)
    calls = CrashingCalls(world.calls)
    assert len(_expire(world, calls)) == 6 and world.ids() == left
    if kind == "s3":
        assert calls.by_name["remove_all"] == 1, "of metadata; tags have all data files"
        assert calls.by_name["unlink"] == 8, "six snapshots, in their order; the list; a probe"
    _check_whole(world)
    _untag(world)
    _check_whole(world)
    table = _table(world)
    folders = [each.name for each in table.file_io.entries(table.root) if each.name.startswith("part=")]
    used = [name for name in folders if table.file_io.names(f"{table.root}/{name}/bucket-0")]
    assert len(used) == 2, "all files of the dropped partition are gone"
    assert kind != "hdfs" or folders == used, "and its folder"
    _no_orphans(world, table, monkeypatch)
    world.run(boundaries=NEXT)
    assert sorted(world.ids()) == sorted([*left, 8, 9]) and world.unknown_files() == []


def _no_orphans(world, table, monkeypatch) -> None:
    """One file is an orphan; what the store's time says is waited for by nobody here."""
    monkeypatch.setattr(orphan_files, "_LEAST_AGE_MS", -(10**9))
    path = f"{table.root}/part=b/bucket-0/data-orphan.parquet"
    table.file_io.write(path, b"x")
    at_ms = table.file_io.modified_ms(path)
    found = orphan_files.remove_orphans(table, needed_of_all(table, without={"auditor"}), at_ms + 1000)
    assert path in found.paths and not table.file_io.exists(path)
    _check_whole(world)


# What is done, and what goes before it.
COURSES = {
    "expire": (_expire, lambda world: _drop_one(world)),
    "untag": (_untag, lambda world: (create_tag(_table(world), "first", 1), _drop_one(world), _expire(world))),
    "branch": (_branched, lambda world: None),
    "forward": (_forwarded, lambda world: (_branched(world), _audited(world))),
    "back": (_back, lambda world: create_tag(_table(world), "first", 1)),
    "drop": (_drop_one, lambda world: None),
}


def _meets(world, do, what, *, calls=None) -> None:
    """Do it over these calls, whatever comes of it; then do it again."""
    try:
        do(world, calls)
    except (InjectedCrash, OSError, StreamsinkError, OutcomeUnknown):
        pass
    _check_whole(world)
    before = world.ids()
    if do is not _untag or tags(_table(world)):
        do(world)
    _expire(world)
    _check_whole(world)
    assert unfinished(_table(world)) == [] and len(world.ids()) == len(set(world.ids())) or do is _forwarded, what
    assert before or world.ids() == [], what
    world.run(boundaries=NEXT)
    assert {8, 9} <= set(world.ids()), what


@pytest.mark.soak
@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("kind", REMOTE)
def test_deaths_and_errors_at_some_calls(kind, course, request, rng):
    """Of each kind of care, at some of its calls: killed, an error, a lost reply, or a call that comes twice."""
    do, before = COURSES[course]
    world = _world(back_end(kind, request))
    before(world)
    counting = CrashingCalls(world.calls)
    do(world, counting)
    for n in sorted(rng.sample(range(1, counting.count + 1), min(12, counting.count))):
        world, mode = _world(back_end(kind, request)), rng.choice(list(Mode))
        before(world)
        _meets(world, do, f"{course}: {mode.value} at call {n}", calls=CrashingCalls(world.calls, n, mode))


@pytest.mark.soak
@pytest.mark.parametrize("times", [1, QUICK.attempts], ids=["once", "lasting"])
def test_a_server_of_s3_that_is_too_busy_in_the_middle_of_an_expiry(s3_server, request, times):
    """503 SlowDown, at requests of each kind: once, which the client mends, or for as long as it tries."""
    with S3Proxy(s3_server.endpoint) as proxy:
        world = _world(back_end("s3", request))
        _drop_one(world)
        slow = S3Calls({**s3_server.options, "s3.endpoint": proxy.endpoint}, QUICK, QUICK)
        _expire(world, slow)
        kinds = {one.kind: 0 for one in proxy.take()}
        assert {"GET", "LIST", "DELETE"} <= kinds.keys() or "DELETE_MANY" in kinds, kinds
        for kind in sorted(kinds):
            world = _world(back_end("s3", request))
            _drop_one(world)
            proxy.fault(lambda one, kind=kind: one.kind == kind, 1, s3_proxy.SLOW_DOWN, times=times)
            _meets(world, _expire, f"{kind} x {times}", calls=slow)
            proxy.clear()
            assert any(one.fault for one in proxy.take()), kind


@pytest.mark.soak
def test_a_name_node_that_restarts_in_the_middle_of_an_expiry(tmp_path, rng):
    """The expiry ends with an error, or goes on; the next one finishes it."""
    from tests.storage.back_ends import BackEnd, HdfsCalls

    with HdfsCluster(tmp_path / "hdfs", datanodes=1) as cluster:
        made = BackEnd("hdfs", f"{cluster.uri}/own", HdfsCalls(cluster.uri, {"dfs.replication": "1"}))
        world = _world(made)
        _drop_one(world)
        calls, at, restarted = CrashingCalls(made.calls), 20 + rng.randrange(20), []

        def restarts() -> None:
            if calls.count == at:
                calls.before_call = lambda: None
                restarted.append(cluster.restart())

        calls.before_call = restarts
        _meets(world, _expire, f"restarted at call {at}", calls=calls)
        assert restarted
