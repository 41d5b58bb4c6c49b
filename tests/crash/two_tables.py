"""A world of two tables, whose batches come to both or to one of them, and what other writers, expiry and a rollback do to one."""

import dataclasses

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.table.routing import ROUTE
from tests.crash.many_world import ROOT, SCHEMA, ManyWorld

X, Y = "more_x", "more_y"
# Every batch has rows for both tables, but where a world says that they all come to one.
ENDS = (4, 8, 12, 16)


class TwoTables(ManyWorld):
    """to_x(number): whether this row comes to the first table; else it comes to the second one."""

    tables = (X, Y)

    def __init__(self, **options):
        super().__init__(restore="restore-and-continue", **options)
        self.to_x = lambda number: number % 2 == 0

    def _rows(self, start: int, end: int) -> pa.RecordBatch:
        numbers, version = range(start, end), next(self._versions)
        return pa.RecordBatch.from_pylist([
            {"id": n, "part": "p", "n": "1", "version": version, ROUTE: X if self.to_x(n) else Y} for n in numbers
        ], schema=SCHEMA)

    def numbers(self) -> list[int]:
        return sorted(number for _, number, _ in self.rows())


def snapshot_of_another(world, name: str = X, *, uuid: str = "of-another") -> int:
    """A writer that carries no properties forward commits: its number."""
    newest = world.table(name).snapshots.latest()
    other = dataclasses.replace(newest, id=newest.id + 1, properties=None, commit_user="another", uuid=uuid)
    world.file_io().write(f"{ROOT}/{name}/snapshot/snapshot-{other.id}", other.to_json())
    _hint(world, name, other.id)
    return other.id


def expire_before(world, snapshot_id: int, name: str = X) -> None:
    for number in world.table(name).snapshots.ids():
        if number < snapshot_id:
            world.file_io().delete(f"{ROOT}/{name}/snapshot/snapshot-{number}")


def roll_back_to(world, snapshot_id: int, name: str = X) -> dict[str, bytes]:
    """The snapshots behind it, which are gone: what was in their files."""
    gone = {f"{ROOT}/{name}/snapshot/snapshot-{number}": b"" for number in world.table(name).snapshots.ids() if number > snapshot_id}
    assert gone
    for path in gone:
        gone[path] = world.file_io().read(path)
        world.file_io().delete(path)
    _hint(world, name, snapshot_id)
    return gone


def _hint(world, name: str, snapshot_id: int) -> None:
    world.file_io().replace(f"{ROOT}/{name}/snapshot/LATEST", str(snapshot_id).encode(), IdSource().new_id())
