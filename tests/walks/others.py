"""Events of other writers and of the table's maintenance; see ``events.py``."""

import contextlib

from streamsink.commands.retire import retire as retire_application
from streamsink.errors import Corrupt, Misuse, StreamsinkError
from streamsink.format.snapshot import APPEND, COMPACT, OVERWRITE
from streamsink.options import SinkOptions
from streamsink.sinks.paimon.care.needed import needed_by_journals, needed_of_all
from streamsink.table.care.expire_snapshots import Retention, expire
from streamsink.table.care.orphan_files import remove_orphans
from streamsink.table.care.tags import delete_tags
from streamsink.table.history.retained import tags
from streamsink.table.table import open_table
from tests.walks.events import event, query_of
from tests.walks.foreign import Others
from tests.walks.machine import Fault
from tests.walks.model import Wrong
from tests.walks.queries import RENAMED, Job, Run, arrow, part_of
from tests.walks.store import Process


def _new(walk, count: int):
    rows = walk.world.new_rows(count)
    return rows, arrow(rows, walk.world.parts)


@event(3)
def foreign_append(walk, count):
    """Another writer adds rows."""
    if walk.world.others.is_table():
        rows, batch = _new(walk, 1 + count % 3)
        walk.world.others.commit(APPEND, batch)
        walk.world.model.foreign_came(rows)
        walk.world.accident("others")


@event(1, 2)
def foreign_overwrite(walk, which, count):
    """Another writer replaces a partition."""
    world = walk.world
    if not world.others.is_table():
        return
    part = part_of(which % world.parts, world.parts)
    before = [row for row in world.in_table() if part_of(row, world.parts) == part]
    rows = [row for row in world.new_rows(2 * world.parts) if part_of(row, world.parts) == part]
    world.others.commit(OVERWRITE, arrow(rows, world.parts), {"part": part} if world.parts > 1 else {})
    world.overwritten(before)
    world.model.foreign_came(rows)
    world.accident("others")


@event(3, 0)
def compaction(walk):
    """The files of a partition are compacted into one."""
    if walk.world.others.is_table() and walk.world.others.commit(COMPACT):
        walk.world.accident("others")


@event(3)
def expiry(walk, keep):
    """Old snapshots expire."""
    if walk.world.others.is_table() and walk.world.others.expire(1 + keep % 3):
        walk.world.accident("expiry-ever")
        walk.world.forget_rollbacks()


@event(3)
def own_expiry(walk, keep):
    """Old snapshots expire by streamsink's own hand, which keeps what queries need; what cannot be read keeps all."""
    world = walk.world
    before = world.others.snapshot_ids() if world.others.is_table() else []
    if not before:
        return
    retention = Retention(num_min=1 + keep % 3, num_max=1 + keep % 3, time_ms=10**15, limit=100)
    with contextlib.suppress(Corrupt):
        table = open_table(world.others.io, world.others.root, for_writing=True)
        expire(table, retention, needed_by_journals(table))
    if world.others.snapshot_ids() != before:
        world.others.changes += 1
        world.accident("expiry-ever")
        world.forget_rollbacks()


@event(1)
def own_untag(walk, which):
    """A tag is deleted by streamsink's own hand, with what only it needs."""
    world = walk.world
    if not world.others.is_table():
        return
    table = open_table(world.others.io, world.others.root, for_writing=True)
    names = sorted(tag.name for tag in tags(table))
    if names:
        with contextlib.suppress(Corrupt):
            delete_tags(table, [names[which % len(names)]], needed_by_journals(table))
        world.others.changes += 1


@event(2, 0)
def own_cleaning(walk):
    """Two days pass, and orphan files are removed by streamsink's own hand."""
    world = walk.world
    if not world.others.is_table():
        return
    for file in getattr(world.store, "_names", {}).values():
        file.modified_ms -= 2 * 86_400_000
    table = open_table(world.others.io, world.others.root, for_writing=True)
    with contextlib.suppress(Corrupt, Misuse):
        if remove_orphans(table, needed_of_all(table)).paths:
            world.others.changes += 1


@event(2, 2)
def night(walk, count, keep):
    """Between two batches others append several times, files are compacted, and old snapshots expire."""
    for number in range(1 + count % 3):
        foreign_append(walk, number)
    compaction(walk)
    expiry(walk, keep)


@event(1, 2)
def letters_expiry(walk, number, keep):
    """A table for dead letters is compacted, and its old snapshots expire."""
    letters = _letters(walk, number)
    if letters is not None:
        letters.commit(COMPACT)
        letters.expire(1 + keep % 2)
        walk.world.accident("letters-ever", "expiry-ever")


@event(1, 2)
def letters_back(walk, number, to):
    """A table for dead letters goes back to an earlier snapshot."""
    world, letters = walk.world, _letters(walk, number)
    ids = letters.snapshot_ids() if letters is not None else []
    if len(ids) > 1:
        rows = set(world.others.letters())
        letters.roll_back(ids[to % (len(ids) - 1)], clean=True)
        world.model.dropped(rows - set(world.others.letters()))
        world.accident("letters-ever")


def _letters(walk, number: int) -> Others | None:
    """One of the tables for dead letters, or None when there is none."""
    paths = walk.world.others.letter_tables()
    return Others(walk.world.store, paths[number % len(paths)]) if paths else None


@event(1)
def tag(walk, number):
    """The newest snapshot is tagged."""
    if walk.world.others.is_table():
        walk.world.others.tag(str(number % 2))


@event(2, 2)
def rollback(walk, to, clean):
    """The table goes back to an earlier snapshot.
    clean: files that only newer snapshots need are deleted, as Paimon does."""
    world = walk.world
    ids = world.others.snapshot_ids()
    if len(ids) > 1:
        world.go_back_to(ids[to % (len(ids) - 1)], clean=clean % 3 > 0)


@event(2)
def foreign_prepare(walk, count):
    """A foreign writer has prepared a snapshot and is about to rename it to its final name."""
    if walk.world.others.is_table():
        rows, batch = _new(walk, 1 + count % 3)
        walk.prepared = (walk.world.others.prepare(APPEND, batch), rows, walk.world.others.changes)


@event(3, 0)
def foreign_rename(walk):
    """The foreign writer renames its snapshot over whatever has the number by now, unless it was prepared long ago. It
    is its own loss if only a foreign snapshot had some rows."""
    world, others = walk.world, walk.world.others
    if walk.prepared is None or not others.is_table():
        return
    (snapshot, rows, changes), walk.prepared = walk.prepared, None
    ids = others.snapshot_ids()
    newest = ids[-1] if ids else 0
    if others.changes != changes or snapshot.id < newest - 1:
        return
    replaced = others.table().snapshots.load(snapshot.id)
    if replaced is not None and replaced.commit_kind != APPEND:
        return
    before = world.visible()
    others.publish(snapshot, replacing=True)
    world.model.foreign_came(rows, raced=replaced is not None)
    if replaced is not None:
        world.model.foreign_came([row for row in before - world.visible() if row in world.model.foreign], raced=True)
        world.seconds_end(world.visible())
        world.replaced(snapshot.id, before)
        world.accident("raced")
        world.hides = True
    world.accident("others")


@event(2, 4)
def lost_race(walk, which, most, step, then):
    """A foreign writer prepares a snapshot; a driver dies after it has published its own; others build on that; then
    the foreign writer renames its snapshot over the driver's."""
    foreign_prepare(walk, most)
    fault = Fault(step=("commit.published", "commit.hinted", "commit.marked")[step % 3])
    walk.world.batch(query_of(walk.world, which), 1 + most % 4, fault)
    if then % 3 == 1:
        foreign_append(walk, most)
    elif then % 3 == 2:
        compaction(walk)
    foreign_rename(walk)


@event(1)
def retire(walk, number):
    """A name that nobody uses any more,
    of a second sink or of a query that has gone on under another name, is retired."""
    world = walk.world
    if not world.others.is_table():
        return
    used = {query.name for query in world.queries.values()}
    waiting = {query.name.removesuffix(RENAMED) for query in world.queries.values() if query.causes.knows("renamed")}
    names = [
        name for name in world.others.applications() if name not in used and name.removesuffix(RENAMED) not in waiting
    ]
    if names:
        name = names[number % len(names)]
        with contextlib.suppress(Misuse):  # It is refused where pending rows would be lost.
            retire_application(world.others.io, world.root, SinkOptions.of(world.root, {"application": name}))
        world.accident("others")


@event(1)
def run_as_query(walk, which):
    """Somebody gives a bounded run the name of a query that has written here, and is refused."""
    world, query = walk.world, query_of(walk.world, which)
    world.stop(query)
    if world.others.is_table() and query.name in world.others.applications():
        run = Run(
            Process(world.store, world.root), world.root, query.settings(world.root), world.new_id(), world.parts, 0
        )
        with contextlib.suppress(StreamsinkError), world.inside(query, run, None):
            run.job(Job(world.new_id(), [], {}))
            raise Wrong("a run under a query's name")
        world.close(query, run)
