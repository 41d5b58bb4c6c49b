"""Events of bounded runs; see ``events.py``."""

from tests.walks.events import MODES, MOST_CALLS, event
from tests.walks.machine import Fault
from tests.walks.queries import Job, part_of
from tests.walks.world import JOBS, World


@event(4, 2)
def run(walk, number, again):
    """A bounded run, which is new or was there before."""
    walk.world.job(job_of(walk.world, number, again))


@event(2)
def overwrite_run(walk, number):
    """A bounded run that replaces a partition."""
    walk.world.job(job_of(walk.world, number, 1, part_of(number % walk.world.parts, walk.world.parts)))


@event(1, 3)
def same_run(walk, number, count, how):
    """Other rows come under the id of a run: more rows where they are counted, rows of another program, rows of files
    that were replaced, or none, because what it reads is empty now."""
    world, earlier = walk.world, [job for job in walk.world.jobs if not job.options]
    if earlier:
        like = earlier[number % len(earlier)]
        if how % 7 == 6:
            world.jobs.append(Job(like.name, [], {}, 1000 * len(world.jobs), like.has_one_count))
        elif how % 3 == 1 and like.has_one_count:
            most = max(len(job.rows) for job in earlier if job.name == like.name)
            world.jobs.append(Job(like.name, world.new_rows(most + 1 + count % 3), {}, like.version, files=like.files))
        elif how % 3 == 2:
            rows = world.new_rows(len(like.rows))
            world.jobs.append(Job(like.name, rows, {}, like.version, like.has_one_count, 1000 * len(world.jobs)))
        else:
            world.jobs.append(
                Job(like.name, world.new_rows(len(like.rows)), {}, 1000 * len(world.jobs), like.has_one_count)
            )
        world.accident("same-run-ever", query=world.queries[JOBS])
        world.job(world.jobs[-1])


@event(1)
def upgrade_job(walk, number):
    """A run is repeated by a new version of its program."""
    world = walk.world
    if world.jobs:
        job = world.jobs[number % len(world.jobs)]
        job.version += 1
        world.accident("same-run-ever", query=world.queries[JOBS])
        world.job(job)


@event(1)
def files_anew(walk, number):
    """A run is repeated after what it reads was made anew: the same rows in other files."""
    world = walk.world
    if world.jobs:
        job = world.jobs[number % len(world.jobs)]
        job.files += 1
        world.accident("same-run-ever", query=world.queries[JOBS])
        world.job(job)


@event(4, 3)
def job_call(walk, number, again, at):
    """Something happens at an I/O call of a bounded run."""
    part = (part_of(number % walk.world.parts, walk.world.parts),) if again % 4 == 1 else ()
    walk.world.job(
        job_of(walk.world, number, again, *part), Fault(call=1 + at % MOST_CALLS, mode=MODES[at % len(MODES)])
    )


@event(2, 3)
def job_pause(walk, number, again, at):
    """A bounded run stands still at an I/O call, until ``wake``. This does not happen where a run replaces a partition,
    which may take what comes meanwhile."""
    world, query = walk.world, walk.world.queries[JOBS]
    if walk.depth < 2 and not any(job.options for job in world.jobs):
        fault = Fault(call=1 + at % MOST_CALLS, meanwhile=lambda: walk.meanwhile(query))
        world.job(job_of(world, number, again), fault)


def job_of(world: World, number: int, again: int, *part: str | None) -> Job:
    if again % 3 == 0 and world.jobs:
        return world.jobs[number % len(world.jobs)]
    if world.queries[JOBS].causes.asleep:
        part = ()  # An overwrite might take what comes meanwhile.
    rows = world.new_rows(world.parts * 2 if part else 0 if number % 11 == 10 else 3)
    options = {}
    if part:
        rows = [row for row in rows if part_of(row, world.parts) == part[0]]
        options = {"mode": "overwrite", "overwrite_partition": {"part": part[0]} if world.parts > 1 else {}}
    world.jobs.append(Job(f"run-{len(world.jobs)}", rows, options, has_one_count=number % 2 == 0))
    return world.jobs[-1]
