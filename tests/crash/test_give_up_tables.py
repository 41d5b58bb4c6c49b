"""Giving up a pending record of several tables, or one of which nobody can tell whether it was published."""

import os

import pytest

from streamsink import faults
from streamsink.errors import Corrupt, Misuse
from streamsink.journal.record_format import decode_record
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.crash.giving_up import ENDS, clean, follow, giving_up, left, record, refused
from tests.crash.many_world import ManyWorld, check_complete
from tests.crash.world import die_at_step, expected, memory_world
from tests.table.foreign import Prepared

# -- several tables ----------------------------------------------------------------------------------------------------


def _clean_many(world, name) -> None:
    """Files of one table that the newest record names go."""
    io = world.file_io(world.calls)
    journal = f"{world.root}/streamsink/streamsink"
    newest = max(int(n[7:-5]) for n in io.names(journal) if n.startswith("record-"))
    record = decode_record(io.read(f"{journal}/record-{newest}.json"), journal)
    for file in record.files:
        if os.path.normpath(file.final).startswith(name + "/"):
            for path in (f"{world.root}/{file.staged}", f"{world.root}/{file.final}"):
                io.delete(path)


def test_files_of_one_of_several_tables_are_gone():
    """No table has the record: given up, the same checkpoint writes the batch again."""
    world = ManyWorld()
    arm("precommit.saved", 2, crash)
    with pytest.raises(InjectedCrash):
        world.run()
    faults.arm(None)
    world.die()
    record = [n for n in world.file_io().names(f"{world.root}/streamsink/streamsink") if n == "record-2.json"]
    assert record
    path = f"{world.root}/streamsink/streamsink/record-2.json"
    tables = {t["name"] for t in decode_record(world.file_io().read(path), path).payload["tables"]}
    _clean_many(world, sorted(tables)[0])
    with pytest.raises(Corrupt) as told:
        world.run()
    assert told.value.kind == "pending.files-gone"
    assert follow(world, told.value).records == (2,)
    world.run()
    check_complete(world.rows())


def test_a_record_that_one_of_several_tables_has_is_not_given_up():
    """Its rows would come twice. Rolled back as the error says, that table loses them, and then it can be given up."""
    world = ManyWorld()
    arm("tables.table_published", 1, crash)
    with pytest.raises(InjectedCrash):
        world.run()
    faults.arm(None)
    world.die()
    path = f"{world.root}/streamsink/streamsink/record-1.json"
    tables = sorted(t["name"] for t in decode_record(world.file_io().read(path), path).payload["tables"])
    _clean_many(world, tables[-1])
    with pytest.raises(Corrupt) as told:
        world.run()
    with pytest.raises(Misuse) as caught:
        follow(world, told.value)
    assert caught.value.kind == "give-up.published" and f"{world.root}/{tables[0]}" in str(caught.value)
    for table in (table for table in tables if f"{world.root}/{table}" in str(caught.value)):
        for name in ("snapshot-1", "LATEST", "EARLIEST"):
            world.file_io().delete(f"{world.root}/{table}/snapshot/{name}")
    assert follow(world, told.value).records == (1,)
    world.run()
    check_complete(world.rows())


# -- what cannot be told -----------------------------------------------------------------------------------------------


def test_an_altered_manifest_is_given_up():
    """Of the right size, with another content."""
    world = left("precommit.saved", 2)
    manifest = record(world, 2).payload["manifest"]
    file = world.calls._names[f"{world.driver.root}/{manifest['staged']}"]
    file.data = file.data[:-1] + bytes([file.data[-1] ^ 1])
    done = follow(world, refused(world, "pending.manifest"))
    assert done.records == (2,)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


def test_whether_it_was_published_cannot_be_told():
    """Snapshots since the record have expired: the command wants to hear that its rows are not in the table, and then
    goes on.
    """
    world = memory_world(restore="restore-and-continue", journal_retain=10)
    assert die_at_step("precommit.saved", 3, world, boundaries=ENDS)
    io, root = world.file_io(world.calls), world.driver.root
    foreign = [Prepared(world), None]
    foreign[0].rename()
    foreign[1] = Prepared(world, 1)
    foreign[1].rename()
    for snapshot in (1, 2, 3):
        io.delete(f"{root}/snapshot/snapshot-{snapshot}")
    clean(world, 3, 1)
    told = refused(world, "journal.undecidable")
    with pytest.raises(Corrupt) as caught:
        giving_up(world)
    assert caught.value.kind == "give-up.undecidable"
    assert follow(world, told).records == (3,)
    world.run(boundaries=ENDS)
    others = foreign[0].ids + foreign[1].ids
    assert [i for i in world.ids() if i not in others] == expected(ENDS)
