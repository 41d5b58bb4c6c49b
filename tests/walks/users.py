"""Events of users who do what manuals warn of; see ``events.py``."""

from dataclasses import replace

from tests.walks.beginnings import missing_before
from tests.walks.changes import rename
from tests.walks.events import event, query_of
from tests.walks.model import Causes, Wrong
from tests.walks.queries import Query
from tests.walks.sources import Another

# Numbers of places and versions from here on are those of other jobs.
_OTHERS = 1000


class _Any(Causes):
    """The causes of a job that should not exist: whatever error it gets is right."""

    def check(self, kind, message):
        """Every error is right."""


@event(2, 2)
def old_words(walk, which, number):
    """The query comes back with a word of another time in its options:
    its job is an older one, or two jobs were merged."""
    query = query_of(walk.world, which)
    if query.given:
        walk.world.stop(query)
        option, word = query.given[number % len(query.given)]
        query.options[option] = word


@event(1)
def rename_at_once(walk, which):
    """The query comes back under another name, and its user has said which batch is the next one before he is asked."""
    world, query = walk.world, query_of(walk.world, which)
    name, is_known = query.name, world.is_known(query)
    rename(walk, which)
    if query.name != name:
        query.options["adopt_from_batch"] = query.checkpoint.committed
        query.adopts_blindly = not is_known
        if not is_known:  # Nobody can correct him.
            world.model.unsure(missing_before(world, query))


@event(1, 4)
def copied_job(walk, which, most, older, other):
    """Another job is started under the query's name with a copy of its checkpoint, perhaps an older one, and is ended
    again. It has the same program, or another one that makes other rows of the same source."""
    world, query = walk.world, query_of(walk.world, which)
    if query.halves or query.causes.asleep or query.source.hides():
        return
    checkpoint, is_other = query.checkpoint.copy(), other % 2 == 0
    checkpoint.committed = max(0, checkpoint.committed - older % 3)
    if older % 2:
        checkpoint.truncate(checkpoint.committed)
    world.stop(query)
    world.accident("moved-ever", "copied-ever", "checkpoint", "checkpoint-ever", query=query)
    job = replace(
        query,
        checkpoint=checkpoint,
        place=_OTHERS + world.serial,
        version=_OTHERS + world.serial if is_other else query.version,
        causes=_Any(),
        live=None,
        said=None,
        source=Another(query.source, world.new_rows) if is_other else query.source,
        given=[],
        options={name: value for name, value in query.options.items() if not name.startswith("accept")},
    )
    first = checkpoint.committed
    while checkpoint.committed < first + 1 + most % 2 and world.batch(job, 1 + most % 4):
        pass
    is_published = world.stop(job)
    if is_other:
        visible, written = world.visible(), range(first, checkpoint.committed)
        _account(world, query, job, written, is_published)
        # What the first job has lost of batches whose ids are recorded with the other job's rows now is not asked for
        # any more: it goes on behind them.
        lost = [
            row
            for batch in written
            if batch < query.checkpoint.committed
            for row in query.rows(batch)
            if not visible[row]
        ]
        world.model.unsure(lost)


def _account(world, query: Query, job: Query, batches: range, is_published: bool) -> None:
    """The other program has ended these batches without an error: its rows are there, and the first one's are not."""
    world.model.produced(job.source.made())
    world.model.unsure(job.source.made())
    visible = world.visible()
    if is_published and (missing := [row for batch in batches for row in job.rows(batch) if not visible[row]]):
        raise Wrong("skipped", f"rows {missing} of another program with a copy of the checkpoint")
    query.taken.update(row for batch in batches for row in query.source.rows(job.checkpoint, batch))
