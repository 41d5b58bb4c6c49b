"""``streamsink.maintenance.compact``: compact a table, or some of its partitions, in this process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsink.compaction.compactor import By, Compactor
from streamsink.compaction.plan import Packing, Task, pack, pack_all
from streamsink.errors import Misuse
from streamsink.locks.locked_file_io import under_lock
from streamsink.options import SinkOptions
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.overwrite import Overwrite
from streamsink.table.table import Table, open_table


@dataclass(frozen=True)
class Compacted:
    """What was compacted, or would be; ``str()`` of it says so.

    files_before, bytes_before: of small files that were replaced. files_after, bytes_after: of those that replace them,
    0 in a dry run. rows: in both. snapshots: numbers of the COMPACT snapshots. conflicts: how often other writers had
    changed the files meanwhile, so that the work was lost.
    """

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    snapshots: tuple[int, ...]
    conflicts: int
    text: str

    def __str__(self) -> str:
        return self.text


def compact(
    file_io: FileIO,
    path: str,
    options: SinkOptions,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    *,
    full: bool = False,
    dry_run: bool = False,
    by: By = By(),
) -> Compacted:
    """Compact the small files of the newest snapshot; see ``streamsink.maintenance.compact``. by: who writes.

    Idempotent: a second call finds nothing left to do. After a crash each COMPACT snapshot is there or not; what the
    dead call has left is deleted by a compaction an hour later. Raises what ``Compactor`` raises.
    """
    table = open_table(under_lock(file_io, path, options), path, for_writing=True)
    is_wanted = _wanted(table, partitions)
    packing: Packing = pack_all if full else pack
    compactor = Compactor(table, options)
    if dry_run:
        table.snapshots.latest()
        return _would(path, compactor.plan(packing, is_wanted))
    compactor.settle()
    compactor.do(compactor.plan(packing, is_wanted), by)
    done = compactor.totals
    lost = f"; {done.conflicts} task group(s) gave up, because other writers had changed the files" * bool(
        done.conflicts
    )
    text = (
        f"{path}: {done.files_before} small files of {done.bytes_before} bytes are {done.files_after} files of "
        f"{done.bytes_after} bytes now, with the same {done.rows} rows, in {len(done.snapshots)} snapshot(s){lost}"
        if done.snapshots
        else f"{path}: nothing was compacted{lost}"
    )
    snapshots = tuple(done.snapshots)
    sizes = (done.files_before, done.files_after, done.bytes_before, done.bytes_after, done.rows)
    return Compacted(*sizes, snapshots, done.conflicts, text)


def _would(path: str, tasks: Sequence[Task]) -> Compacted:
    files, size, rows = (sum(each) for each in zip((0, 0, 0), *((len(t.files), t.bytes, t.rows) for t in tasks)))
    text = f"{path}: {files} small files of {size} bytes would be compacted by {len(tasks)} task(s)"
    return Compacted(files, 0, size, 0, rows, (), 0, text)


def _wanted(table: Table, partitions: Sequence[Mapping[str, Any]] | None) -> Callable[[bytes], bool]:
    """The test whether a partition is to be compacted. Raises Misuse, naming the column."""
    if partitions is None:
        return lambda partition: True
    is_list = isinstance(partitions, Sequence) and not isinstance(partitions, str)
    if not is_list or not all(isinstance(each, Mapping) for each in partitions):
        raise Misuse(
            f"{table.root}: partitions is a {type(partitions).__name__}, expected a list of dictionaries of partition "
            "columns and their values, such as [{'dt': '2026-11-21'}]. Nothing was changed",
            kind="compact.partitions",
        )
    schema = table.known_schema
    tests = [Overwrite.of(table.root, schema, each, "partitions").covers(schema, ()) for each in partitions]
    return lambda partition: any(test(partition) for test in tests)
