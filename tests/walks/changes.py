"""Events that change a query or what it reads:
its topics, its options, its program, its place and its name; see ``events.py``."""

from tests.walks.events import event, query_of
from tests.walks.queries import RENAMED

# Options of a stream, of which one event sets one entry.
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


@event(1, 2)
def partition(walk, which, topic):
    """A topic gets another partition."""
    query = query_of(walk.world, which)
    if query.source.numeric:
        query.source.add_partition(topic)
        walk.world.serial += 1


@event(1, 2)
def retention(walk, which, keep):
    """Retention deletes a topic's oldest rows."""
    world, query = walk.world, query_of(walk.world, which)
    if query.source.numeric:
        world.model.expired(query.source.expire(keep % 6), world.visible())
        world.accident("retention", query=query)


@event(1, 2)
def ids(walk, which, told):
    """From now on the broker does not tell the ids of clusters and topics, or not that of the cluster alone;
    or it tells them again."""
    query = query_of(walk.world, which)
    if query.source.numeric:
        walk.world.model.unsure(query.source.tell(told % 2 == 0, told % 4 == 1), most=2)


@event(1, 3)
def recreate(walk, which, cluster, grown):
    """A topic is deleted and created again, or its name leads to another cluster.
    It may have grown before anybody looks."""
    world, query = walk.world, query_of(walk.world, which)
    if query.source.numeric:
        if not query.checkpoint.is_begun:
            query.checkpoint.given = (
                # These offsets are those of the topic before. The checkpoint has not begun, and begins with this topic.
                None
            )
        if query.checkpoint.is_begun and not query.checkpoint.committed:
            query.begun_before = (query.checkpoint.query, query.checkpoint.start)
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
    """The query does not read its second topic any more and begins with a new checkpoint.
    Backups of the checkpoint before are of no use then."""
    world, query = walk.world, query_of(walk.world, which)
    has_two = query.source.numeric and len(query.source.ids) > 1 and not query.source.apart
    if has_two and query.is_known_by_name and not query.causes.asleep:
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
    """The query comes back under another name, or under the one that it had first."""
    query = query_of(walk.world, which)
    # Otherwise it would get another name and another checkpoint at once.
    is_known = query.checkpoint.committed or query.checkpoint.query == query.first
    if query.checkpoint.planned and is_known and not query.causes.asleep:
        walk.world.stop(query)
        query.name = query.name.removesuffix(RENAMED) if query.name.endswith(RENAMED) else query.name + RENAMED
        walk.world.accident("renamed", "renamed-ever", query=query)
