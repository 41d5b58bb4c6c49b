"""Events of streamsink's own care that change what is in the table, or what stays: branches that are taken over,
partitions that expire, and tags by period. Each may die, or meet an error of the store, at a call; see ``events.py``.
"""

import ast
import contextlib
import dataclasses
import re
from collections.abc import Callable
from datetime import timedelta

from streamsink.commands.branches import delete_branch
from streamsink.errors import Conflict, StreamsinkError
from streamsink.format.snapshot import APPEND
from streamsink.options import SinkOptions
from streamsink.sinks.paimon.care.needed import needed_by_journals
from streamsink.table.branching import branches
from streamsink.table.branching.fast_forward import fast_forward
from streamsink.table.branching.targets import find
from streamsink.table.care.auto_tags import TagCreation
from streamsink.table.care.expire_partitions import PartitionRule, expire_partitions
from streamsink.table.history.retained import tags
from streamsink.table.table import Table, is_table, open_table
from streamsink.testing.faults import InjectedCrash
from tests.walks.events import MODES, event
from tests.walks.foreign import Others
from tests.walks.model import Wrong
from tests.walks.queries import arrow, part_of
from tests.walks.store import Process

BRANCH = "audit"
_MOST_CALLS = 100
_MINUTE_MS = 60_000
_BY_PERIOD = re.compile(r"[0-9-]{10} [0-9]{4}")
_TAGS = {"tag.automatic-creation": "process-time", "tag.creation-period-duration": "1 min", "tag.num-retained-max": "2"}


def _tries(walk, call: int, mode: int, do: Callable[[Table, SinkOptions], None]) -> bool:
    """Do it to the table by a process of its own, which may die or meet an error at a call. Whether it is done."""
    world = walk.world
    if not world.others.is_table():
        return False
    process = Process(world.store, world.root)
    if call % 3:
        process.fail_in(1 + call % _MOST_CALLS, MODES[mode % len(MODES)])
    options = SinkOptions.of(world.root, {"commit_min_wait_ms": 0, "commit_max_wait_ms": 0})
    try:
        do(open_table(process.io, world.root, for_writing=True), options)
        return True
    except (InjectedCrash, StreamsinkError, OSError):
        return False  # somebody does it again, or nobody
    finally:
        process.calm()
        process.die()


def _branch(world) -> Others | None:
    path = f"{world.root}/branch/branch-{BRANCH}"
    return Others(world.store, path) if is_table(world.others.io, path) and world.others.is_table() else None


@event(2, 4)
def own_branch(walk, to, count, call, mode):
    """A branch is made of a snapshot, mostly of the newest one, and others write rows into it. One that is there
    gets the rows.
    """
    world, ids = walk.world, walk.world.others.snapshot_ids() if walk.world.others.is_table() else []
    if not ids:
        return
    number = ids[-1 if to % 3 else to % len(ids)]
    if _branch(world) is None:
        _tries(walk, call, mode, lambda table, _: branches.create(table, BRANCH, find(table, number)))
    branch = _branch(world)
    if branch is not None:
        rows = world.new_rows(1 + count % 3)
        with contextlib.suppress(StreamsinkError):  # main, or what it had, is gone
            branch.commit(APPEND, arrow(rows, world.parts))


@event(3, 2)
def own_fast_forward(walk, call, mode):
    """The table takes over what the branch has, and whoever asks gives up what others wrote to the table since."""
    world, branch = walk.world, _branch(walk.world)
    if branch is None:
        return
    before, theirs = world.in_table(), set()
    with contextlib.suppress(StreamsinkError):
        theirs = set(branch.read())

    asked = []

    def do(table: Table, options: SinkOptions) -> None:
        try:
            fast_forward(table, BRANCH, options, "somebody")
        except Conflict as refused:
            discard = re.search(r"set discard=(\(.*?\)) \(in a shell", str(refused))
            if discard is None:
                raise
            asked.append(discard[1])
            fast_forward(table, BRANCH, options, "somebody", discard=ast.literal_eval(discard[1]))

    is_done = _tries(walk, call, mode, do)
    after = world.in_table()
    if is_done and theirs != set(after):
        raise Wrong("not taken over", f"the branch has {sorted(theirs)}, the table {sorted(after)}")
    if not is_done and set(after) not in (set(before), theirs):
        raise Wrong("half taken over", f"the branch has {sorted(theirs)}, the table {sorted(after)}")
    if is_done and not asked and (gone := set(before).difference(after)):
        raise Wrong("given up unasked", f"rows {sorted(gone)} of the table, which the branch does not have")
    came = [row for row in after if after[row] > before[row]]
    world.model.foreign_came([row for row in came if row not in world.model.known])
    world.overwritten([row for row in before if not after[row]])
    world.model.accepted_as_seen([row for row in after if after[row] != before[row]], after)
    world.accident("others")


@event(1, 2)
def own_branch_end(walk, call, mode):
    """The branch is deleted."""
    if _branch(walk.world) is not None:
        root = walk.world.root
        _tries(walk, call, mode, lambda table, _: delete_branch(table.file_io, root, BRANCH))


@event(2, 2)
def own_partition_expiry(walk, call, mode):
    """The first partition by name expires, if there are partitions: each file is old enough."""
    world = walk.world
    if world.parts == 1 or not world.others.is_table():
        return
    rule = PartitionRule(timedelta(), by_update=True, most=1)
    before = world.in_table()
    _tries(walk, call, mode, lambda table, options: expire_partitions(table, options, rule))
    gone = [row for row in before if not world.in_table()[row]]
    if len({(part_of(row, world.parts) or "").strip() or "__DEFAULT_PARTITION__" for row in gone}) > 1:  # of one folder
        raise Wrong("more than one partition expired", str(gone))
    world.overwritten(gone)
    world.accident("others")


@event(2, 2)
def own_tags(walk, call, mode):
    """A minute passes, and tags are made by period, of which two stay. Options of the table would make its queries ask
    who makes them.
    """
    walk.time.pass_by(_MINUTE_MS)

    def do(table: Table, _: SinkOptions) -> None:
        schema, tagging = table.latest_schema(), Table(table.file_io, table.root)
        tagging.latest_schema = lambda: dataclasses.replace(schema, options={**schema.options, **_TAGS})
        made = TagCreation(tagging, needed_by_journals(table)).run()
        kept = [tag.name for tag in tags(table) if _BY_PERIOD.fullmatch(tag.name)]
        if made and not (made[-1] in kept and len(kept) <= 2):
            raise Wrong("tags by period", f"{made} were made, and {kept} are there")

    _tries(walk, call, mode, do)
    walk.world.others.changes += 1
