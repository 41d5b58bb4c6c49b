"""Advice of errors of the care of a table: once it is followed, what was asked for is done."""

import pytest

from streamsink.errors import Corrupt
from streamsink.table.care.expire_snapshots import expire
from streamsink.table.care.removal import unfinished
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from tests.advice.following import advice, follows
from tests.table.test_expire_snapshots import ROOT, check_whole, consume, history, keep, nobody, over


def _refused(table) -> Corrupt:
    with pytest.raises(Corrupt) as refused:
        expire(over(table), keep(2), nobody)
    return refused.value


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
