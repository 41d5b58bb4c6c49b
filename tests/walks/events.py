"""The kinds of events: how often each comes, and what it does to a world. Arguments are small numbers, read modulo what there is.

So an event means something in every world, or nothing, and a walk stays a walk when events are taken out of it.
``NOT_YET`` switches kinds off, with the hole that they would only find again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from streamsink.faults import STEPS
from streamsink.table.creation import fields_of
from streamsink.testing.crashing import Mode
from tests.walks.machine import Fault
from tests.walks.model import Version
from tests.walks.queries import RENAMED, Query, partitioned
from tests.walks.world import JOBS, World

NOT_YET: dict[str, str] = {}

KINDS: dict[str, "Kind"] = {}
_STEPS = [step for step in STEPS if not step.startswith(("tables.", "spark."))]
# Where a driver that is paused has others change what it builds on.
_PAUSES = [step for step in _STEPS if step.startswith(("restore.", "precommit.", "group.", "commit.", "letters."))]
MODES = [Mode.BEFORE, Mode.TORN, Mode.ERROR, Mode.REPLY_LOST, Mode.REPEATED]
MOST_CALLS = 170
# Calls behind a step, at one of which a driver is paused.
_NEAR = 6
# (option, values), for streams.
_OPTIONS = (
    {"restore": "restore-and-continue"},
    {"restore": "restore-and-fail"},
    {"on_rollback": "republish"},
    {"on_rollback": "fail"},
    {"publish": "sync", "publish_every_batches": 1, "publish_as": "snapshot-per-checkpoint"},
    {"publish": "sync", "publish_every_batches": 2, "publish_as": "snapshot-per-checkpoint"},
    {"publish": "sync", "publish_every_batches": 3, "publish_as": "one-snapshot"},
    {"publish": "async", "publish_every_batches": 1, "publish_queue": 2, "delay": 20},
    {"publish": "async", "publish_every_batches": 1, "publish_queue": 3, "publish_as": "one-snapshot", "delay": None},
    {"journal_retain": 2},
    {"journal_retain": 100},
    {"position_columns": ("topic", "partition", "offset")},
    {"position_columns": ()},
)


@dataclass(frozen=True)
class Kind:
    """weight: how often. size: how many arguments. does: (walk, arguments)."""

    name: str
    weight: int
    size: int
    does: Callable


def event(weight: int, size: int = 1):
    """Registers a kind."""

    def register(does: Callable) -> Callable:
        KINDS[does.__name__] = Kind(does.__name__, weight, size, does)
        return does

    return register


def query_of(world: World, number: int) -> Query:
    """Of the streams: the first one most often."""
    names = [name for name in world.queries if name != JOBS]
    return world.queries[names[0 if number % 10 < 7 else -1]]


def _any(world: World, number: int) -> Query:
    """One of the streams; or what bounded runs are written as."""
    return world.queries[JOBS] if number % 5 == 4 else query_of(world, number)


# -- what is meant to happen -----------------------------------------------------------------------------------------


@event(10, 3)
def produce(walk, which, count, where):
    """A source gets rows."""
    query = query_of(walk.world, which)
    rows = walk.world.new_rows(1 + count % 5)
    query.source.produce(rows, where)
    walk.world.model.produced(rows)


@event(20, 2)
def batch(walk, which, most):
    """A micro-batch, of rows that are there."""
    walk.world.batch(query_of(walk.world, which), 1 + most % 4)


@event(4)
def stop(walk, which):
    """The query is stopped in order."""
    walk.world.stop(query_of(walk.world, which))


@event(8, 2)
def heal(walk, which, choice):
    """The operator does what the last error of the query said."""
    walk.operator.heal(query_of(walk.world, which), choice)


# -- deaths, pauses and errors of the store --------------------------------------------------------------------------


@event(6, 4)
def crash(walk, which, most, step, occurrence):
    """The driver dies at a step of a batch."""
    fault = Fault(step=_STEPS[step % len(_STEPS)], occurrence=1 + occurrence % 2)
    walk.world.batch(query_of(walk.world, which), 1 + most % 4, fault)


@event(6, 4)
def call(walk, which, most, number, mode):
    """Something happens at an I/O call of a batch: a death, a torn write, an error, a lost reply, a call that the store's client repeats."""
    fault = Fault(call=1 + number % MOST_CALLS, mode=MODES[mode % len(MODES)])
    walk.world.batch(query_of(walk.world, which), 1 + most % 4, fault)


@event(4, 3)
def pause(walk, which, most, number):
    """The driver stands still at an I/O call of a batch, until ``wake``."""
    query = query_of(walk.world, which)
    if walk.depth < 2:
        fault = Fault(call=1 + number % MOST_CALLS, meanwhile=lambda: walk.meanwhile(query))
        walk.world.batch(query, 1 + most % 4, fault)


@event(4, 4)
def pause_at(walk, which, most, step, calls):
    """The same at one of the I/O calls that follow a step of a batch."""
    query = query_of(walk.world, which)
    if walk.depth < 2:
        fault = Fault(
            step=_PAUSES[step % len(_PAUSES)], call=1 + calls % _NEAR, meanwhile=lambda: walk.meanwhile(query)
        )
        walk.world.batch(query, 1 + most % 4, fault)


@event(4, 0)
def wake(walk):
    """The driver that was paused last goes on."""


@event(3)
def kill(walk, which):
    """The driver dies between two batches."""
    walk.world.kill(query_of(walk.world, which))


@event(1, 0)
def power(walk):
    """The machine loses its power."""
    walk.world.power()


@event(1, 2)
def twice(walk, which, most):
    """From now on the user's function calls the sink twice in each batch, until he is told."""
    query = query_of(walk.world, which)
    if query.causes.asleep:
        return  # a driver with the function from before would take the first call's rows for the whole batch
    query.halves, query.at_once = True, 0
    walk.world.accident("twice-ever", query=query)
    walk.world.batch(query, 2 + most % 4)


@event(1, 3)
def at_once(walk, which, most, number):
    """The same from two threads, of which the second one's call comes at an I/O call of the first one's."""
    query = query_of(walk.world, which)
    if query.causes.asleep:
        return
    query.halves, query.at_once = True, 1 + number % MOST_CALLS
    walk.world.accident("twice-ever", query=query)
    walk.world.batch(query, 2 + most % 4)


# -- the checkpoint, the journal and the table -----------------------------------------------------------------------


@event(2)
def lose_checkpoint(walk, which):
    """It is deleted."""
    world, query = walk.world, query_of(walk.world, which)
    world.stop(query)
    if query.is_known_by_name:
        world.new_checkpoint(query)


@event(2)
def lose_checkpoint_behind(walk, which):
    """It is deleted, and the driver killed."""
    world, query = walk.world, query_of(walk.world, which)
    world.kill(query)
    if query.is_known_by_name:
        world.new_checkpoint(query)


@event(1)
def begin_at_latest(walk, which):
    """It is deleted, and its user lets the next one begin with what comes from now on. Where nothing is recorded he gets what he asked for."""
    world, query = walk.world, query_of(walk.world, which)
    if query.source.numeric:
        world.stop(query)
        visible = world.visible()
        if not any(visible[row] for row in query.source.all_rows()):
            world.model.unsure(query.source.all_rows())
        if query.is_known_by_name:
            world.new_checkpoint(query, query.source.behind(lambda row: True))


@event(3, 2)
def copy(walk, what, which):
    """A backup: of a checkpoint, a journal, the table, table and journals, or all of it."""
    kind, world = _COPIES[what % len(_COPIES)], walk.world
    query = (_any if kind == "journal" else query_of)(world, which)
    path = world.journal_of(query) if kind == "journal" else world.root
    tree = world.store.copy_of(path) if kind != "checkpoint" else {}
    checkpoints = {each.name: each.checkpoint.copy() for each in world.queries.values()}
    walk.copies.append((kind, query, query.name, tree, checkpoints, world.backup()))


_COPIES = ("checkpoint", "journal", "table", "table and journals", "all")


@event(4, 2)
def restore(walk, number, in_order):
    """A backup takes the place of what is there. in_order: drivers are stopped before, else they are killed."""
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
    if (
        kind != "table" and job.causes.asleep
    ):  # it has published, also what earlier runs left, and says so in the journal that was put back
        world.model.unsure(row for each in world.jobs for row in each.rows)
    if kind == "table":  # nothing else has gone back
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
    """It is deleted."""
    world, query = walk.world, _any(walk.world, which)
    world.store.remove(world.journal_of(query))
    world.lost_journal(query)


@event(1)
def lose_identity(walk, which):
    """Of the journal the files that say which one it is are deleted, and no others."""
    world, query = walk.world, _any(walk.world, which)
    world.store.remove_files(world.journal_of(query), "journal-")
    world.lost_journal(query)


@event(1)
def drop(walk, keep):
    """The table is dropped with all that is in its folder; or a tool drops it, leaves the journals, and creates it anew."""
    world = walk.world
    world.store.remove(world.root, keep=f"{world.root}/streamsink" if keep % 2 else "")
    world.went_back(Version())
    if keep % 2:
        world.others.create(fields_of(world.schema), partitioned(world.parts))
    world.accident("table", "journal", "journal-ever")


# -- sources and options ---------------------------------------------------------------------------------------------


@event(1, 2)
def partition(walk, which, topic):
    """A topic gets another partition."""
    query = query_of(walk.world, which)
    if query.source.numeric:
        query.source.add_partition(topic)
        walk.world.serial += 1


@event(1, 2)
def retention(walk, which, keep):
    """A topic's oldest rows go."""
    world, query = walk.world, query_of(walk.world, which)
    if query.source.numeric:
        world.model.expired(query.source.expire(keep % 6), world.visible())
        world.accident("retention", query=query)


@event(1, 2)
def ids(walk, which, told):
    """The broker does not tell the ids of clusters and topics from now on, or the cluster's alone; or it does."""
    query = query_of(walk.world, which)
    if query.source.numeric:
        walk.world.model.unsure(query.source.tell(told % 2 == 0, told % 4 == 1), most=2)


@event(1, 3)
def recreate(walk, which, cluster, grown):
    """A topic is deleted and created again, or the name leads to another cluster; it may have grown before anybody looks."""
    world, query = walk.world, query_of(walk.world, which)
    if query.source.numeric:
        if not query.checkpoint.is_begun:
            query.checkpoint.given = (
                None  # its offsets are those of the topic before: it has not begun, and begins with this one
            )
        if query.checkpoint.is_begun and not query.checkpoint.committed:
            query.begun_before = query.checkpoint
        world.model.expired(query.source.recreate(cluster, world.new_id, cluster % 3 == 0), world.visible())
        world.accident("topic", "topic-ever", query=query)
        rows = world.new_rows(grown % 8)
        query.source.produce(rows, 0)
        world.model.produced(rows)


@event(3, 2)
def option(walk, which, number):
    """The query comes back with another option."""
    query = query_of(walk.world, which)
    given = _OPTIONS[number % len(_OPTIONS)]
    if "position_columns" not in given or query.source.numeric and not query.stateful:
        walk.world.stop(query)
        query.options.update(given)


@event(2, 2)
def letters(walk, which, on):
    """The query comes back with dead letters, or without them."""
    query = query_of(walk.world, which)
    walk.world.stop(query)
    query.options["dead_letters"] = "rejected" if on % 3 else None


@event(1)
def leave_topic(walk, which):
    """The query does not read its second topic any more, and begins with a new checkpoint. Backups of the one before are of no use."""
    world, query = walk.world, query_of(walk.world, which)
    if query.source.numeric and len(query.source.ids) > 1 and not query.source.apart and not query.causes.asleep:
        world.stop(query)
        world.model.expired(query.source.leave(), world.visible())
        walk.copies = [each for each in walk.copies if each[0] not in ("checkpoint", "all")]
        world.new_checkpoint(query)


@event(1)
def drop_letters(walk, number):
    """A table for dead letters is dropped."""
    world, paths = walk.world, walk.world.others.letter_tables()
    if paths:
        rows = set(world.others.letters())
        world.store.remove(paths[number % len(paths)])
        world.model.dropped(rows - set(world.others.letters()))
        world.accident("letters-ever")


@event(1)
def upgrade(walk, which):
    """The query comes back as a new version of its program."""
    query = query_of(walk.world, which)
    walk.world.stop(query)
    query.version += 1
    walk.world.accident("query-ever", query=query)


@event(1)
def move(walk, which):
    """The query's checkpoint is moved to another folder."""
    query = query_of(walk.world, which)
    walk.world.stop(query)
    walk.world.move(query)
    walk.world.accident("moved-ever", query=query)


@event(1)
def rename(walk, which):
    """The query comes back under another name; or under the one that it had first."""
    query = query_of(walk.world, which)
    is_known = (
        query.checkpoint.committed or query.checkpoint.query == query.first
    )  # else it has another name and another checkpoint at once
    if query.checkpoint.planned and is_known and not query.causes.asleep:
        walk.world.stop(query)
        query.name = query.name.removesuffix(RENAMED) if query.name.endswith(RENAMED) else query.name + RENAMED
        walk.world.accident("renamed", "renamed-ever", query=query)
