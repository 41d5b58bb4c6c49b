"""Events that lose the checkpoint, the journal or the table, and events that copy them and put a copy back;
see ``events.py``."""

from streamsink.table.creation import fields_of
from tests.walks.events import any_of, event, query_of
from tests.walks.model import Version
from tests.walks.queries import partitioned
from tests.walks.world import JOBS


@event(2)
def lose_checkpoint(walk, which):
    """The query is stopped, and its checkpoint is deleted."""
    world, query = walk.world, query_of(walk.world, which)
    world.stop(query)
    if query.is_known_by_name:
        world.new_checkpoint(query)


@event(2)
def lose_checkpoint_behind(walk, which):
    """The driver is killed, and the checkpoint is deleted."""
    world, query = walk.world, query_of(walk.world, which)
    world.kill(query)
    if query.is_known_by_name:
        world.new_checkpoint(query)


@event(1)
def begin_at_latest(walk, which):
    """The checkpoint is deleted, and its user lets the next one begin with what comes from now on.
    Where nothing is recorded he gets just that."""
    world, query = walk.world, query_of(walk.world, which)
    if query.source.numeric:
        world.stop(query)
        visible = world.visible()
        if not any(visible[row] for row in query.source.all_rows()):
            world.model.unsure(query.source.all_rows())
        world.model.unsure(query.taken)
        if query.is_known_by_name:
            world.new_checkpoint(query, query.source.behind(lambda row: True))


@event(3, 2)
def copy(walk, what, which):
    """A backup is made of a checkpoint, a journal, the table, the table with its journals, or everything."""
    kind, world = _COPIES[what % len(_COPIES)], walk.world
    query = (any_of if kind == "journal" else query_of)(world, which)
    path = world.journal_of(query) if kind == "journal" else world.root
    tree = world.store.copy_of(path) if kind != "checkpoint" else {}
    checkpoints = {each.name: each.checkpoint.copy() for each in world.queries.values()}
    walk.copies.append((kind, query, query.name, tree, checkpoints, world.backup()))


_COPIES = ("checkpoint", "journal", "table", "table and journals", "all")


@event(4, 2)
def restore(walk, number, in_order):
    """A backup takes the place of what is there. in_order: drivers are stopped before; otherwise they are killed."""
    if not walk.copies:
        return
    world = walk.world
    kind, query, name, tree, checkpoints, version = walk.copies[number % len(walk.copies)]
    for each in world.queries.values():
        world.stop(each) if in_order % 2 else world.kill(each)
    if kind == "checkpoint":
        if query.name == name:
            world.put_checkpoint(query, checkpoints[name].copy())
        return
    if not tree:
        return
    if kind == "journal":
        if query.name == name:
            world.store.put_back(f"{world.root}/streamsink/{name}", tree)
            world.older_journal(query)
        return
    before = world.in_table()
    world.store.put_back(world.root, tree, keep=f"{world.root}/streamsink" if kind == "table" else "")
    world.went_back(version)
    job = world.queries[JOBS]
    # The sleeping run has published what earlier runs left as well, and says so in the journal that is put back.
    if kind != "table" and job.causes.asleep:
        world.model.unsure(row for each in world.jobs for row in each.rows)
    if kind == "table":  # Nothing else has gone back.
        world.rolled_back(max(world.others.snapshot_ids(), default=0), before)
        world.journals_stayed(tree)
    if kind == "all":
        for each in world.queries.values():
            if each.name in checkpoints and each.source is not None:
                world.put_checkpoint(each, checkpoints[each.name].copy())
        world.accident("table", "checkpoint", "checkpoint-ever")
    else:
        world.accident("table", "journal", "journal-ever")


@event(2)
def lose_journal(walk, which):
    """The journal is deleted."""
    world, query = walk.world, any_of(walk.world, which)
    world.store.remove(world.journal_of(query))
    world.lost_journal(query)


@event(1)
def lose_identity(walk, which):
    """Of the journal only those files are deleted that say which journal it is."""
    world, query = walk.world, any_of(walk.world, which)
    world.store.remove_files(world.journal_of(query), "journal-")
    world.lost_journal(query)


@event(1)
def drop(walk, keep):
    """Either the table is dropped with everything in its folder;
    or a tool drops it, leaves the journals, and creates it anew."""
    world = walk.world
    world.store.remove(world.root, keep=f"{world.root}/streamsink" if keep % 2 else "")
    world.went_back(Version())
    if keep % 2:
        world.others.create(fields_of(world.schema), partitioned(world.parts))
    world.accident("table", "journal", "journal-ever")
