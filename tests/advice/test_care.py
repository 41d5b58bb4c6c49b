"""Advice of errors of the care of a table: once it is followed, what was asked for is done."""

import ast
import os
from datetime import datetime, timedelta, timezone

import pytest

import streamsink
from streamsink import maintenance
from streamsink.errors import Corrupt
from streamsink.storage.file_io import local_file_io
from streamsink.table.care.expire_consumers import matching
from streamsink.table.care.expire_snapshots import expire
from streamsink.table.care.removal import unfinished
from streamsink.table.care.tags import create_tag, delete_tags
from streamsink.table.commit.changes import Changes
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from tests.advice.following import advice, follows, told
from tests.crash.world import posix_world
from tests.table.caring import check_whole, consume, history, keep, nobody, over
from tests.table.entries import ROOT, commit


def _refused(table) -> Corrupt:
    with pytest.raises(Corrupt) as refused:
        expire(over(table), keep(2), nobody)
    return refused.value


def _on_disk(folder) -> str:
    """A table of two snapshots on the local disk."""
    path = streamsink.create_table(folder / "shop.db" / "t", "id INT", ())
    table = open_table(local_file_io(), path, for_writing=True)
    for _ in range(2):
        commit(table, Changes())
    return path


@follows("consumer.corrupt")
def test_the_file_of_a_consumer_that_is_no_more_is_deleted():
    """What it needs is not known, so nothing expires until it is gone."""
    table = history()
    consume(table, 3)
    table.file_io.replace(f"{ROOT}/consumer/consumer-c", b"{", "x")
    said = advice(_refused(table), "consumer.corrupt")
    assert min(table.snapshots.ids()) == 1
    table.file_io.delete(said.says("delete the file").find(r"^(\S+):"))
    expire(over(table), keep(2), nobody)
    assert check_whole(table).keys() == {"snapshot-6", "snapshot-7"}


@follows("removal.corrupt")
def test_a_list_of_what_was_going_that_is_damaged_is_removed():
    """What it named stays, and expiry goes on."""
    table, n = history(), 30
    while not unfinished(table):
        n += 1
        with pytest.raises(InjectedCrash):
            expire(over(table, CrashingCalls(table.file_io._calls, n)), keep(2), nobody)
    [path] = unfinished(table)
    table.file_io.replace(path, table.file_io.read(path)[:-9], "x")
    said = advice(_refused(table), "removal.corrupt")
    table.file_io.delete(said.says("Remove this file").find(r"^(\S+):"))
    expire(over(table), keep(2), nobody)
    assert check_whole(table).keys() == {"snapshot-6", "snapshot-7"}


@follows("tag.exists")
def test_a_name_that_is_taken_is_free_when_that_tag_is_deleted(tmp_path):
    """By the call that the message gives."""
    path = _on_disk(tmp_path)
    maintenance.create_tag(path, "a", 1)
    said = told("tag.exists", lambda: maintenance.create_tag(path, "a", 2))
    arguments, _ = said.call("streamsink.maintenance.delete_tag")
    maintenance.delete_tag(*arguments)
    assert maintenance.create_tag(path, "a", 2) == 2


@follows("tag.time")
def test_a_tag_that_does_not_say_its_time_is_deleted(tmp_path):
    """By the call that the message gives; the others then expire."""
    path = _on_disk(tmp_path)
    maintenance.create_tag(path, "a", 1, timedelta(0))
    with open(f"{path}/tag/tag-a") as stream:
        text = stream.read()
    with open(f"{path}/tag/tag-a", "w") as stream:
        stream.write(text.replace('"tagCreateTime" : [', '"tagCreateTime" : ["x", '))
    said = told("tag.time", lambda: maintenance.expire_tags(path))
    arguments, _ = said.call("streamsink.maintenance.delete_tag")
    assert maintenance.delete_tag(*arguments).names == ("a",) and maintenance.expire_tags(path).names == ()


@follows("tag.no-snapshot")
def test_a_snapshot_that_is_there_gets_the_tag():
    """The message names one."""
    table = history()
    said = told("tag.no-snapshot", lambda: create_tag(over(table), "a", 9))
    assert create_tag(over(table), "a", said.option("snapshot")).id == 7


@follows("tag.missing")
def test_a_tag_that_is_there_is_deleted():
    """The message names those that are there."""
    table = history()
    create_tag(table, "a")
    said = told("tag.missing", lambda: delete_tags(over(table), ["b"], nobody))
    assert delete_tags(over(table), [said.find("one of '([^']*)'")], nobody).names == ("a",)


@follows("tag.name")
def test_a_name_without_a_slash_is_taken():
    """As the message says."""
    table = history()
    told("tag.name", lambda: create_tag(table, "a/b")).says("without '/'")
    assert create_tag(table, "a-b") is not None


@follows("tag.expired-meanwhile")
def test_a_tag_of_a_snapshot_that_is_there_is_made_again():
    """The one that was asked for has expired."""
    table = history()
    calls = CrashingCalls(table.file_io._calls)
    opened = over(table, calls)

    def happens():
        if calls.log[-1:] == ["link"]:
            calls.before_call = lambda: None
            expire(over(table), keep(1), nobody)

    calls.before_call = happens
    told("tag.expired-meanwhile", lambda: create_tag(opened, "a", 2)).says("Do it again, for a snapshot that is there")
    assert create_tag(over(table), "a").id == 7 and check_whole(table)["a"] == "fgh"


@follows("consumer.pattern")
def test_a_regular_expression_as_the_message_has_it():
    """It is taken as it is written there."""
    table = history()
    consume(table, 3, "report-1")
    said = told("consumer.pattern", lambda: matching(over(table), "("))
    assert matching(over(table), said.find("such as '([^']*)'")).names == ("report-1",)


@follows("orphans.journal-unknown")
def test_a_journal_that_is_gone_is_named(tmp_path):
    """By the option that the message gives; then orphans can be told."""
    world = posix_world(tmp_path)
    world.run()
    os.rename(f"{world.driver.root}/streamsink", tmp_path / "gone")
    said = told("orphans.journal-unknown", lambda: maintenance.remove_orphan_files(world.driver.root))
    names = ast.literal_eval(said.find(r"without_journals=(\[[^]]*\])"))
    assert maintenance.remove_orphan_files(world.driver.root, without_journals=names).paths == ()


@follows("orphans.too-young")
def test_an_older_moment_is_given(tmp_path):
    """Or none at all."""
    path = _on_disk(tmp_path)
    recent = datetime.now(timezone.utc) - timedelta(minutes=1)
    said = told("orphans.too-young", lambda: maintenance.remove_orphan_files(path, recent))
    said.says("Give an older moment, or leave it out")
    assert maintenance.remove_orphan_files(path, recent - timedelta(hours=1)).paths == ()
    assert maintenance.remove_orphan_files(path).paths == ()


@follows("journals.none")
def test_the_place_that_has_the_journal_is_given(tmp_path):
    """By hand, and as one text as well."""
    world = posix_world(tmp_path)
    world.run()
    mistyped = f"{world.driver.root}s"
    said = told("journals.none", lambda: maintenance.expire_snapshots(world.driver.root, journals=mistyped))
    assert said.find(r"journals names (\S+),") == mistyped
    assert maintenance.expire_snapshots(world.driver.root, journals=world.driver.root).snapshots == ()
