"""What the errors of a rollback, and of a branch, say to do."""

import copy
import os
import shlex

import pytest

import streamsink
from streamsink import maintenance
from streamsink.format.types import parse_ddl
from streamsink.storage.calls import PosixCalls
from streamsink.storage.stores import table_path
from streamsink.table.branching import fast_forward
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import open_table
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.following import follows, told
from tests.cli.conftest import run
from tests.crash.letters_world import PLAIN, LettersWorld
from tests.crash.world import World, posix_world, query_of

ENDS = (6, 9, 12)


@pytest.fixture
def world(tmp_path):
    """Each batch has replaced all rows."""
    found = posix_world(tmp_path, mode="overwrite", overwrite_partition={})
    found.run(boundaries=ENDS)
    return found


@follows("rollback.target")
def test_a_moment_is_given_with_its_zone(world):
    """In the form that the message shows."""
    path = world.driver.root
    said = told("rollback.target", lambda: maintenance.rollback_to(path, timestamp="2099-01-01T00:00:00"))
    zone = said.find(r"such as '2026-11-27T10:15:00(\+00:00)'")
    assert maintenance.rollback_to(path, timestamp=f"2099-01-01T00:00:00{zone}").plan.target.snapshot.id == 3


@follows("rollback.target-gone")
def test_a_snapshot_is_chosen_of_those_that_there_are(world):
    """The message names them."""
    path = world.driver.root
    said = told("rollback.target-gone", lambda: maintenance.rollback_to(path, 17))
    assert maintenance.rollback_to(path, int(said.find(r"There are snapshots (\d+) to \d+"))).snapshot_id == 4
    assert world.ids() == list(range(6))


@follows("rollback.files-gone")
def test_a_file_that_is_gone_is_restored(world):
    """The message names it; then the rollback is done."""
    table = open_table(world.file_io(world.calls), world.driver.root, for_writing=True)
    gone = data_file_path(table, table.latest_schema(), next(table.manifests.entries_of(table.snapshots.load(1))))
    data = table.file_io.read(gone)
    world.calls.unlink(gone)
    said = told("rollback.files-gone", lambda: maintenance.rollback_to(world.driver.root, 1))
    table.file_io.write(said.find(r"\((\S+)\): snapshot 1"), data)
    maintenance.rollback_to(world.driver.root, 1)
    assert streamsink.verify(world.driver.root, contents=True).ok and world.ids() == list(range(6))


# -- branches ------------------------------------------------------------------------------------------------------


@pytest.fixture
def plain(tmp_path):
    """A table with one batch of six rows."""
    found = posix_world(tmp_path / "plain")
    found.run(boundaries=ENDS[:1])
    return found


def _audit(world, name="audit", **options):
    """A query that writes to the branch."""
    path = table_path(f"{world.driver.root}$branch_{name}")
    return World(world.calls, path, **{"application": "auditor", **options})


def _made(said, call):
    """Do as the message says."""
    arguments, given = said.call(f"streamsink.maintenance.{call}")
    return getattr(maintenance, call)(*arguments, **given)


def _typed(said):
    """Type what the message says behind the name of the program."""
    run(*shlex.split(said.find(r"\(in a shell: streamsink (.+?)\)")))


@follows("branch.name")
def test_a_branch_gets_a_name_as_the_message_shows(plain):
    said = told("branch.name", lambda: maintenance.create_branch(plain.driver.root, "1/2"))
    maintenance.create_branch(plain.driver.root, said.find("such as '([a-z]+)'"))


@follows("branch.missing")
@pytest.mark.parametrize("way", ["written", "taken over", "deleted"])
def test_a_branch_that_there_is_not_is_made_or_chosen(way, plain):
    path = plain.driver.root
    maintenance.create_branch(path, "nightly", snapshot_id="latest")
    if way == "deleted":
        said = told("branch.missing", lambda: maintenance.delete_branch(path, "audit"))
        maintenance.delete_branch(path, _made(said, "branches")[0].name)
        return
    other = _audit(plain)
    do = (lambda: other.run(boundaries=(3,))) if way == "written" else lambda: maintenance.fast_forward(path, "audit")
    _made(told("branch.missing", do), "create_branch")
    other.run(boundaries=(3,))
    assert other.ids() == [0, 1, 2]


@follows("branch.of-a-branch", "branch.exists")
def test_branches_are_of_the_table_and_each_has_a_name_of_its_own(plain):
    path = plain.driver.root
    made = maintenance.create_branch(path, "audit", snapshot_id="latest")
    said = told("branch.of-a-branch", lambda: maintenance.create_branch(made.path, "more", snapshot_id=1))
    maintenance.create_branch(said.find("the path of the table: '([^']+)'"), "more", snapshot_id=1)
    plain.run(boundaries=ENDS[:2])
    said = told("branch.exists", lambda: maintenance.create_branch(path, "audit", snapshot_id="latest"))
    _made(said, "delete_branch")
    assert maintenance.create_branch(path, "audit", snapshot_id="latest").newest.id == 2


@follows("branch.given")
def test_care_is_taken_of_the_table_and_not_of_a_branch(plain):
    made = maintenance.create_branch(plain.driver.root, "audit", snapshot_id="latest")
    said = told("branch.given", lambda: maintenance.expire_snapshots(made.path))
    assert maintenance.expire_snapshots(said.find(r"Call it for (\S+): "), dry_run=True).table == plain.driver.root


@follows("branch.empty")
def test_a_branch_without_a_snapshot_is_written_first(plain):
    path = plain.driver.root
    maintenance.create_branch(path, "audit")
    said = told("branch.empty", lambda: maintenance.fast_forward(path, "audit"))
    World(plain.calls, said.find("its path is '([^']+)'"), application="auditor").run(boundaries=(3,))
    told("branch.main-changed", lambda: maintenance.fast_forward(path, "audit"))


@follows("branch.main-changed")
@pytest.mark.parametrize("way", ["discard", "in a shell", "anew"])
def test_main_has_been_written_since_the_branch_was_made(way, plain):
    path = plain.driver.root
    maintenance.create_branch(path, "audit", snapshot_id="latest")
    _audit(plain).run(boundaries=(3,))
    plain.run(boundaries=ENDS[:2])
    said = told("branch.main-changed", lambda: maintenance.fast_forward(path, "audit"))
    if way != "anew":
        if way == "discard":
            maintenance.fast_forward(path, "audit", discard=said.option("discard"))
        else:
            _typed(said)
        assert plain.ids() == sorted([*range(6), *range(3)])
        return
    said.says("Make the branch anew, of main as it is now")
    maintenance.delete_branch(path, "audit")
    maintenance.create_branch(path, "audit", snapshot_id="latest")
    other = _audit(plain)
    other.run(boundaries=(3,))
    maintenance.fast_forward(path, "audit")
    assert plain.ids() == sorted([*range(9), *range(3)])


@follows("branch.no-base")
@pytest.mark.parametrize("way", ["with-tag", "in a shell", "without"])
def test_mains_history_since_the_branch_was_made_has_expired(way, plain):
    path = plain.driver.root
    maintenance.create_branch(path, "audit", snapshot_id=None if way == "without" else "latest")
    other = _audit(plain)
    other.run(boundaries=(3,))
    plain.run(boundaries=ENDS)
    for number in (1, 2):
        os.remove(f"{path}/snapshot/snapshot-{number}")
    said = told("branch.no-base", lambda: maintenance.fast_forward(path, "audit"))
    if way == "without":
        said.says("Make the branch anew, of main as it is now")
        maintenance.delete_branch(path, "audit")
        maintenance.create_branch(path, "audit", snapshot_id="latest")
        _audit(plain).run(boundaries=(3,))
    elif way == "with-tag":
        _made(said, "rollback_to")
    else:
        _typed(said)
    maintenance.fast_forward(path, "audit")
    assert plain.ids() == sorted([*range(12 if way == "without" else 6), *range(3)])


@follows("branch.both-wrote")
def test_an_application_writes_to_the_branch_under_a_name_of_its_own(plain):
    path = plain.driver.root
    maintenance.create_branch(path, "audit", snapshot_id="latest")
    other = _audit(plain, application="streamsink")
    other.checkpoint = copy.deepcopy(plain.checkpoint)
    other.run(boundaries=ENDS[:2])
    plain.run(boundaries=ENDS[:2])
    said = told("branch.both-wrote", lambda: maintenance.fast_forward(path, "audit", discard=("streamsink",)))
    maintenance.delete_branch(path, "audit")
    maintenance.create_branch(path, "audit", snapshot_id="latest")
    _audit(plain, application=said.option("application")).run(boundaries=(3,))
    maintenance.fast_forward(path, "audit")
    assert plain.ids() == sorted([*range(9), *range(3)])


@follows("branch.schema-differs")
def test_columns_were_changed_in_both(plain):
    path = plain.driver.root
    maintenance.create_branch(path, "audit", snapshot_id="latest")
    for at, column in ((path, "one"), (f"{path}/branch/branch-audit", "two")):
        table = open_table(plain.file_io(plain.calls), at, for_writing=True)
        table.evolve(
            parse_ddl(f"id BIGINT, part STRING, version BIGINT, {column} INT"), add_columns=True, widen_types=False
        )
    _audit(plain, add_columns=True).run(boundaries=(3,))
    said = told("branch.schema-differs", lambda: maintenance.fast_forward(path, "audit"))
    said.says("Make the branch anew, of main as it is now")
    maintenance.delete_branch(path, "audit")
    maintenance.create_branch(path, "audit", snapshot_id="latest")
    _audit(plain, add_columns=True).run(boundaries=(3,))
    maintenance.fast_forward(path, "audit")
    assert plain.ids() == sorted([*range(6), *range(3)])


@follows("branch.contended")
def test_main_is_changed_in_each_try(plain, monkeypatch):
    path = plain.driver.root
    maintenance.create_branch(path, "audit", snapshot_id="latest")
    _audit(plain).run(boundaries=(3,))
    with monkeypatch.context() as others:
        others.setattr(fast_forward, "_publish", lambda *given: None)
        told("branch.contended", lambda: maintenance.fast_forward(path, "audit")).says("call it again")
    maintenance.fast_forward(path, "audit")


@follows("branch.dead-letters")
def test_a_branch_has_no_table_for_dead_letters_beside_it(tmp_path):
    world = LettersWorld(PosixCalls(), str(tmp_path))
    world.run(boundaries=ENDS[:1])
    made = maintenance.create_branch(world.path, "audit", snapshot_id="latest")
    world.root, _, world.name = made.path.rpartition("/")
    world.path, world.options = made.path, {"application": "auditor"}
    world.checkpoint = SparkCheckpoint(query_of("auditor"))
    told("branch.dead-letters", lambda: world.run(boundaries=(3,))).says("Leave it out", "filter the rows")
    assert os.listdir(f"{tmp_path}/orders/branch") == ["branch-audit"]
    world.run(boundaries=(3,), how=PLAIN)
