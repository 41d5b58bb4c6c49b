"""What tests of history share:
snapshots that expire or are rolled back, other applications, and writers that are not ours."""

import dataclasses
import re
from collections.abc import Callable

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.format.snapshot import Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.table.table import Table, open_table
from tests.crash.world import BOUNDARIES, World, die_at_step, memory_world
from tests.table.foreign import FIRST_ID, Prepared, _shifted

OTHERS = range(FIRST_ID, FIRST_ID + 10_000)


def io_of(world) -> FileIO:
    return FileIO(world.calls, IdSource().new_id)


def expire(world, first: int, last: int) -> None:
    """Delete snapshots as Paimon's expiry does. Their data files stay, because the newest snapshot has them."""
    for number in range(first, last + 1):
        io_of(world).delete(f"{world.driver.root}/snapshot/snapshot-{number}")


def published_not_marked(step: str = "commit.published", **settings) -> tuple[World, Prepared]:
    """Our snapshot 2 is published and not marked when the driver dies; another writer's snapshot 2 replaces it, after a
    third writer has built its snapshot 3 on ours. Returns that snapshot 3."""
    world = memory_world(restore="restore-and-continue", **settings)
    world.run(boundaries=BOUNDARIES[:1])
    replacing = Prepared(world)
    assert die_at_step(step, 1, world, boundaries=BOUNDARIES[:2])
    third = Prepared(world, 1)
    replacing.rename()
    third.rename()
    return world, third


def newest_of(world) -> int:
    return open_table(io_of(world), world.driver.root, for_writing=False).snapshots.latest().id


def other_application(world, name: str) -> World:
    """Write one batch of three rows by another application of streamsink."""
    other = World(world.calls, world.driver.root, application=name)
    rows = other.driver.rows
    other.driver.rows = lambda start, end: _shifted(rows(start, end), FIRST_ID + 5_000)
    say_new(other, lambda: other.run(boundaries=(3,)))
    return other


def say_new(world, run: Callable[[], None]) -> None:
    """Run it. Where expired history cannot tell that the application never wrote here, its user says so."""
    try:
        run()
    except Misuse as asked:
        if asked.kind != "history.incomplete":
            raise
        word = re.search(r"new_application='(\w+)'", str(asked))[1]
        world.driver.options = dataclasses.replace(world.driver.options, new_application=word)
        run()


def mine_of(world) -> list[int]:
    return [i for i in world.ids() if i not in OTHERS]


def of_others(world) -> None:
    """A table with two snapshots of writers that have no properties and no journal."""
    name = "first"
    other_application(world, name)
    io_of(world).delete_tree(f"{world.driver.root}/streamsink/{name}")
    drop_states(world)
    Prepared(world).rename()


def drop_states(world) -> None:
    """Make the newest snapshot that of a writer which does not carry what streamsink says in it."""
    io, path = io_of(world), f"{world.driver.root}/snapshot/snapshot-{newest_of(world)}"
    io.replace(
        path,
        dataclasses.replace(Snapshot.from_json(io.read(path), path), properties=None).to_json(),
        IdSource().new_id(),
    )


def roll_back(world, to: int) -> None:
    """Delete the newest snapshot and nothing else."""
    assert newest_of(world) == to + 1
    io_of(world).delete(f"{world.driver.root}/snapshot/snapshot-{to + 1}")
    io_of(world).replace(f"{world.driver.root}/snapshot/LATEST", str(to).encode(), IdSource().new_id())


def assert_republished_when_told(world) -> None:
    """The rollback is an error before anything is written.
    With the option, what was lost is published again, and everything after it."""
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9, 14))
    assert refused.value.kind == "table.rolled-back" and "on_rollback='republish'" in str(refused.value)
    assert mine_of(world) == []
    world.driver.options = dataclasses.replace(world.driver.options, on_rollback="republish")
    world.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))


def tear_mark(world, number: int = 1) -> None:
    """Empty a mark: a power failure kept its name and forgot its content."""
    io_of(world).replace(f"{world.driver.root}/streamsink/streamsink/done-{number}", b"", "torn")


def drop_from_newest(world) -> None:
    """No retained snapshot names our files, as after a compaction whose result was deleted together with its rows."""
    io = io_of(world)
    table = open_table(io, world.driver.root, for_writing=False)
    newest = table.snapshots.latest()
    alone = dataclasses.replace(
        newest, base_manifest_list=newest.delta_manifest_list, base_manifest_list_size=newest.delta_manifest_list_size
    )
    io.replace(f"{world.driver.root}/snapshot/snapshot-{newest.id}", alone.to_json(), IdSource().new_id())


# -- by table, without the world it is in ---------------------------------------------------------------------------


def snapshot_of_another(table: Table, *, uuid: str = "of-another", later_ms: int = 0) -> int:
    """A writer that carries no properties forward commits without changing a row. Returns the number of its snapshot.
    later_ms: how much later than the newest snapshot its clock says it is."""
    newest = table.snapshots.latest()
    at_ms = newest.time_millis + later_ms
    other = dataclasses.replace(
        newest, id=newest.id + 1, properties=None, commit_user="another", uuid=uuid, time_millis=at_ms
    )
    table.file_io.write(table.snapshots.path(other.id), other.to_json())
    table.snapshots.move_hint(other.id, IdSource().new_id())
    return other.id


def expire_before(table: Table, snapshot_id: int) -> None:
    for number in table.snapshots.ids():
        if number < snapshot_id:
            table.file_io.delete(table.snapshots.path(number))


def roll_back_to(table: Table, snapshot_id: int) -> dict[str, bytes]:
    """Delete the snapshots after this one. Returns what was in their files."""
    gone = {table.snapshots.path(number): b"" for number in table.snapshots.ids() if number > snapshot_id}
    assert gone
    for path in gone:
        gone[path] = table.file_io.read(path)
        table.file_io.delete(path)
    table.file_io.replace(table.layout.latest_hint, str(snapshot_id).encode(), IdSource().new_id())
    return gone
