"""Advice of errors about the journal and what is pending in it:
it is restored, deleted, given up or started again, and each row is there once."""

import contextlib
import errno
import json
import os

import pytest

from streamsink.clock import IdSource
from streamsink.commands.give_up import give_up
from streamsink.commands.retire import retire
from streamsink.errors import StreamsinkError
from streamsink.storage.calls import NameLimits
from streamsink.storage.file_io import FileIO
from tests.advice.accidents import (
    accept,
    copy_of,
    damage,
    lose_checkpoint,
    put_back,
    refused,
    start_over,
    starting_offset,
    stopped_by,
    take,
)
from tests.advice.following import follows, told
from tests.crash.giving_up import ENDS, clean, follow, left, record
from tests.crash.world import World, die_at_step, expected, memory_world
from tests.protocol.history import expire, roll_back
from tests.table.foreign import Prepared

PLAIN = {"restore": "restore-and-continue"}
JOURNAL = "/lake/shop.db/orders/streamsink/streamsink"


def _pending(last=2, **options) -> World:
    """A query whose last batch has a durable record that is not published."""
    world = left("precommit.saved", last, ends=ENDS[:last], **{**PLAIN, **options})
    assert world.ids() == list(range(ENDS[last - 1] - 3))
    return world


# -- put back from a backup ----------------------------------------------------------------------------------------


def _staged(world) -> str:
    return next(p for p in world.calls._names if "/staging/" in p and p.endswith(".parquet"))


def _manifest(world) -> str:
    return next(p for p in world.calls._names if "/staging/" in p and "manifest" in p.rsplit("/", 1)[1])


def _altered(world, path: str) -> bytes:
    """Other bytes of the same length."""
    return world.calls._names[path].data[:-1] + b"\0"


BACKUPS = {
    "journal.corrupt": (lambda world: f"{JOURNAL}/record-2.json", damage),
    "journal.missing-record": (lambda world: f"{JOURNAL}/record-1.json", take),
    "journal.identity": (lambda world: f"{JOURNAL}/journal-1", damage),
    "pending.files-gone": (_staged, take),
    "pending.manifest": (_manifest, lambda world, path: damage(world, path, _altered(world, path))),
}


@follows(*BACKUPS)
@pytest.mark.parametrize("kind", BACKUPS)
def test_a_file_that_is_restored_as_the_error_says(kind):
    """The file's path is in the message. Once it is restored the query goes on by itself."""
    several = kind == "journal.missing-record"
    world = left("group.stopping", publish_every_batches=9, **PLAIN) if several else _pending()
    where, accident = BACKUPS[kind]
    path = where(world)
    whole = accident(world, path)
    said = refused(world, kind, ENDS)
    if several:
        number = said.says("Restore the record").find(r"does not have number (\d+)")
        path = f"{JOURNAL}/record-{number}.json"
    else:
        path = said.find(r"first: (/\S+?)\)" if kind == "pending.files-gone" else r"^(/\S+?):")
        assert "estore" in said.message
    put_back(world, path, whole)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("journal.newer")
def test_a_record_of_a_newer_streamsink_is_left_to_that_one():
    """Formerly it was called damaged, and the advice was to give it up."""
    world = _pending()
    path = f"{JOURNAL}/record-2.json"
    written = world.calls._names[path].data
    version = json.loads(written.partition(b"\n")[0])["version"]
    newer = written.replace(b'"version": %d' % version, b'"version": 99', 1)
    world.calls._names[path].data = newer
    said = refused(world, "journal.newer", ENDS).says(path, "Start the query with the streamsink that has written it")
    assert "give_up" not in said.message and "version is 99" in said.message
    assert world.calls._names[path].data == newer
    world.calls._names[path].data = written  # the streamsink that has written it reads it
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


# -- given up ------------------------------------------------------------------------------------------------------


GIVEN_UP = {
    "journal.corrupt": lambda world: damage(world, f"{JOURNAL}/record-2.json"),
    "pending.files-gone": lambda world: clean(world, 2),
    "pending.manifest": lambda world: damage(world, _manifest(world), _altered(world, _manifest(world))),
}


@follows(*GIVEN_UP)
@pytest.mark.parametrize("kind", GIVEN_UP)
@pytest.mark.parametrize("numeric", [True, False], ids=["kafka", "files"])
def test_a_record_is_given_up_as_the_error_says(kind, numeric):
    world = _pending(numeric=numeric)
    GIVEN_UP[kind](world)
    assert follow(world, refused(world, kind, ENDS)).records == (2,)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("pending.unpublishable")
def test_a_record_whose_names_the_store_does_not_take_is_given_up():
    """The table was moved to a store with shorter names,
    or the record was made by earlier code, which did not check them."""
    world = _pending(numeric=False)
    plain = world.file_io

    class Short(FileIO):
        def name_limits(self, root):
            return NameLimits(name=30, path=None)

        def place(self, source, target, *args, **kwargs):
            if len(target.rsplit("/", 1)[1]) > 30:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), target)
            return super().place(source, target, *args, **kwargs)

    world.file_io = lambda calls: Short(calls, IdSource().new_id)
    said = refused(world, "pending.unpublishable", ENDS)
    assert follow(world, said).records == (2,)
    world.file_io = plain
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("give-up.published")
@pytest.mark.parametrize("way", ["restored", "rolled-back"])
def test_a_record_that_a_snapshot_names_is_not_given_up_before_what_the_error_says(way):
    """Either the record's files are restored, and nothing is given up; or the table is rolled back to the snapshot
    before it, and then the record is given up."""
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS[:1])
    replacing = Prepared(world)
    assert die_at_step("commit.published", 1, world, boundaries=ENDS[:2])  # It is published and not marked.
    third = Prepared(world, 1)
    replacing.rename()
    third.rename()
    io, root = world.file_io(world.calls), world.driver.root
    paths = [
        path
        for file in record(world, 2).files
        for path in (f"{root}/{file.staged}", f"{root}/{file.final}")
        if io.exists(path)
    ]
    kept = {path: take(world, path) for path in paths}

    def settle():
        return give_up(io, root, world.driver.options)

    said = told("give-up.published", settle)
    if way == "restored":
        said.says("Restore the files that are gone")
        for path, data in kept.items():
            put_back(world, path, data)
        assert settle().records == ()
        world.run(boundaries=ENDS)
        assert [i for i in world.ids() if i < 1000] == expected(ENDS)
        return
    assert said.find(r"roll back (\S+) to the snapshot before the one that names them") == root
    for name in ("snapshot/snapshot-3", "snapshot/LATEST"):
        take(world, f"{root}/{name}")
    assert settle().records == (2,)
    world.run(boundaries=ENDS)
    assert [i for i in world.ids() if i < 1000] == expected(ENDS)


@follows("give-up.published")
def test_a_record_that_every_snapshot_names_is_not_given_up():
    """Found by a bred walk: the state alone was rolled back, and all snapshots before it had expired, so that nobody
    could roll back to one of them."""
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS[:1])
    replacing = Prepared(world)
    assert die_at_step("commit.published", 1, world, boundaries=ENDS[:2])
    third = Prepared(world, 1)
    replacing.rename()
    third.rename()
    world.run(boundaries=ENDS[:2])  # It publishes the state alone.
    roll_back(world, 3)
    expire(world, 1, 2)
    said = refused(world, "table.rolled-back", ENDS)
    said = told("give-up.published", lambda: follow(world, said)).says("or, where no snapshot before that is left")
    accept(world, on_rollback=said.option("on_rollback"))
    world.run(boundaries=ENDS)
    assert [i for i in world.ids() if i < 1000] == expected(ENDS)


# -- deleted and started again -------------------------------------------------------------------------------------


@follows("journal.owner")
def test_a_damaged_owner_is_deleted():
    world = _pending()
    name = max(n for n in world.calls._names if "/owner-" in n)
    damage(world, name)
    said = refused(world, "journal.owner", ENDS).says("delete the file and start again")
    take(world, said.find(r"(/\S+owner-\d+)"))
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("journal.identity")
@pytest.mark.parametrize("published", [True, False], ids=["published", "pending"])
def test_a_damaged_identity_is_deleted(published):
    """The file holds no data, as the error says: the journal gets another identity, and the query goes on."""
    world = memory_world(**PLAIN)
    if published:
        world.run(boundaries=ENDS[:2])
    else:
        world = _pending()
    damage(world, f"{JOURNAL}/journal-1")
    said = refused(world, "journal.identity", ENDS).says("delete the file and start again")
    take(world, said.find(r"(/\S+journal-\d+)"))
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("journal.files")
@pytest.mark.parametrize("way", ["restored", "deleted"])
def test_a_damaged_list_of_files(way):
    """If the list is restored, files decide again. If it is deleted, the sink asks after a lost checkpoint."""
    world = memory_world(tells_files=True, file_column="file", **PLAIN)
    ends = tuple(range(2, 14, 2))
    world.run(boundaries=ends)
    path = max(name for name in world.calls._names if "/files-" in name)
    whole = damage(world, path)
    lose_checkpoint(world)
    said = refused(world, "journal.files", (12,))
    assert said.find(r"(/\S+files-[\d-]+)") == path
    if way == "restored":
        put_back(world, path, whole)
    else:
        said.says("delete it", "asks instead of deciding by files")
        take(world, path)
        accept(world, accept_as_seen=refused(world, "checkpoint.replaced", (12,)).option("accept_as_seen"))
        world.run(boundaries=(12,))
        assert stopped_by(world, (12, 15)) == "batch.in-replay"
        accept(world, accept_as_new=refused(world, "batch.in-replay", (12, 15)).option("accept_as_new"))
    world.run(boundaries=(12, 15))
    assert world.ids() == expected((15,))


@follows("journal.other")
@pytest.mark.parametrize("pending", [True, False])
def test_the_journal_of_another_table(pending):
    """Once it is removed as the error says, at the path that it names, the query goes on."""
    world = _other_journal(pending)
    said = refused(world, "journal.other", (*ENDS, 15))
    whole = copy_of(world)
    world.file_io(world.calls).delete_tree(said.find(r"remove this one, the folder (\S+?),? "))
    world.run(boundaries=(*ENDS, 15))
    assert world.ids() == expected((*ENDS, 15))
    io = whole.file_io(whole.calls)
    io.delete_tree(JOURNAL)
    said.says("Restore the right journal")
    for name, file in whole.right.items():
        io.create_if_absent(name, file)
    whole.run(boundaries=(*ENDS, 15))
    assert whole.ids() == expected((*ENDS, 15))


def _other_journal(pending: bool) -> World:
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS)
    other = World(world.calls, "/lake/shop.db/other", **PLAIN)
    if pending:
        assert die_at_step("precommit.saved", 5, other, boundaries=(3, 6, 9, 12, 15))
    else:
        other.run(boundaries=(3, 6, 9, 12, 15))
    world.die()
    io = world.file_io(world.calls)
    world.right = {path: file.data for path, file in world.calls._names.items() if path.startswith(f"{JOURNAL}/")}
    io.delete_tree(JOURNAL)
    foreign = "/lake/shop.db/other/streamsink/streamsink"
    for path in [p for p in world.calls._names if p.startswith(f"{foreign}/")]:
        io.create_if_absent(path.replace(foreign, JOURNAL), world.calls._names[path].data)
    return world


@follows("journal.gone")
@pytest.mark.parametrize("way", ["restore", "restart", "restart-grouped"])
def test_a_journal_removed_under_the_running_query(way):
    """A restart goes on whether or not the journal is restored.
    What was pending in it alone is a gap, whose advice reads it again."""
    grouped = {"publish_every_batches": 9} if way == "restart-grouped" else {}
    world = memory_world(**PLAIN, **grouped)
    world.run(boundaries=ENDS[:1])
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    world.checkpoint.ends = [3, 6, 9]
    sink.batch(world.driver.describe(world.checkpoint, 1))
    world.checkpoint.committed = 2
    kept = {path: file.data for path, file in world.calls._names.items() if path.startswith(f"{JOURNAL}/")}
    io = world.file_io(world.calls)
    io.delete_tree(JOURNAL)
    said = told("journal.gone", lambda: sink.batch(world.driver.describe(world.checkpoint, 2)))
    with contextlib.suppress(StreamsinkError):
        sink.close()
    world.die()
    if way == "restore":
        assert said.says("Restore the folder").find(r"(/\S+?): the journal") == JOURNAL
        for path, data in kept.items():
            if "/staging/" not in path and "hold" not in path:
                io.create_if_absent(path, data)
    said.says("restart the query")
    if way == "restart-grouped":
        assert world.ids() == [0, 1, 2]
        gap = refused(world, "positions.gap", (3, 6, 9))
        start_over(world, starting_offset(world, gap), (8, 12))
        assert world.ids() == expected((12,))
    else:
        world.run(boundaries=ENDS)
        assert world.ids() == expected(ENDS)


@follows("retire.pending")
def test_what_is_pending_is_published_before_it_retires():
    world = _pending()

    def leave():
        return retire(world.file_io(world.calls), world.driver.root, world.driver.options)

    refused(world, "retire.pending", (), leave).says("Start the query once more", "stop it, and retire it then")
    world.run(boundaries=ENDS[:2])
    assert leave() and world.ids() == expected(ENDS[:2])


# -- restarted -----------------------------------------------------------------------------------------------------


@follows("restore.restarting")
def test_a_query_that_failed_on_purpose_is_started_again():
    world = _pending(restore="restore-and-fail")
    told("restore.restarting", lambda: world.driver.start(world.file_io(world.calls), world.checkpoint)).says(
        "streamsink.run(...) restarts it by itself"
    )
    world.driver._run_once(world.file_io(world.calls), world.checkpoint, ENDS)
    assert world.ids() == expected(ENDS)


@follows("run.closed")
@pytest.mark.parametrize("way", [{}, {"publish": "async"}], ids=["sync", "async"])
def test_a_run_that_was_closed_is_started_again(way):
    """It has given its hold back, so another query may be writing by then."""
    world = memory_world(**way, **PLAIN)
    world.checkpoint.ends = [3, 6]
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    sink.batch(world.driver.describe(world.checkpoint, 0))
    sink.close()
    said = told("run.closed", lambda: sink.batch(world.driver.describe(world.checkpoint, 1)))
    said.says("a restarted query goes on")
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)
