"""Orphan files: those that nothing names, and that are too old to belong to something under way.

Dead writers of other programs leave them, and accidents do. As in Paimon they are looked for in the folders of
manifests, indexes, statistics, snapshots, changelogs and data, and of Iceberg's metadata. The journals' own folder is
none of them.
"""

import math
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.format.manifest import FileKind
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.table.care.empty_folders import delete_empty_folders, folders_of, is_bucket, old_empty_folders
from streamsink.table.care.expire_snapshots import everybody_needing
from streamsink.table.care.named import manifests_of, own_metadata
from streamsink.table.care.removal import Needed, Needing, finish
from streamsink.table.history.retained import roots
from streamsink.table.iceberg_metadata.following import Following
from streamsink.table.table import Table

DEFAULT_AGE_MS = 86_400_000
# Files of a batch that is being written are as old as the batch.
_LEAST_AGE_MS = 3_600_000
_METADATA = ("manifest", "index", "statistics")
_NAMED_BY_THEMSELVES = ("snapshot", "changelog")
_HINTS = {"LATEST", "EARLIEST"}


@dataclass(frozen=True)
class OrphanPlan:
    """Files that nothing names; ``str()`` of it says it for people.

    paths: of those that are old enough. bytes: their size. young, of_unknown_age: how many others nothing names.
    """

    table: str
    paths: tuple[str, ...]
    bytes: int
    young: int
    of_unknown_age: int

    def __str__(self) -> str:
        more = [f"{self.young} are too young"] if self.young else []
        more += [f"of {self.of_unknown_age} the store does not tell the age"] if self.of_unknown_age else []
        said = f"{len(self.paths)} orphan files of {self.bytes} bytes go"
        lines = [f"{self.table}: {'; '.join([said, *more])}", *(f"  {path}" for path in self.paths)]
        return "\n".join(lines)


def plan(
    table: Table,
    needing: Needing,
    before_ms: float | None = None,
    now_ms: float | None = None,
    *,
    kept: Collection[str] = (),
) -> OrphanPlan:
    """The orphan files. Changes nothing.

    before_ms: only files that are older than this moment; by default than a day ago. now_ms: by default what the clock
    of this machine says; that of the store counts for its files. kept: names of data files that are none. Raises
    Misuse for a moment within the last hour, Corrupt where something that is retained, or a journal, cannot be read.
    """
    now = Clock().now_ms() if now_ms is None else now_ms
    limit = now - DEFAULT_AGE_MS if before_ms is None else before_ms
    if limit > now - _LEAST_AGE_MS:
        raise Misuse(
            f"{table.root}: older_than is less than an hour ago, so files of a batch that is being written would count "
            "as orphans. Nothing was deleted. Give an older moment, or leave it out: a day ago",
            kind="orphans.too-young",
        )
    # In this order: what gets its name meanwhile is named by a record, and then by a snapshot.
    there = list(_candidates(table))
    needed = needing()
    named = _named(table).union(kept)
    orphans = [(path, size) for path, size in there if not _is_needed(os.path.basename(path), path, named, needed)]
    aged = [(path, size, table.file_io.modified_ms(path)) for path, size in orphans]
    old = [(path, size) for path, size, at_ms in aged if at_ms is not None and at_ms < limit]
    unknown = sum(at_ms is None and table.file_io.exists(path) for path, _, at_ms in aged)
    size = sum(size for _, size in old)
    return OrphanPlan(table.root, tuple(path for path, _ in old), size, len(aged) - len(old) - unknown, unknown)


def remove_orphans(table: Table, needing: Needing, before_ms: float | None = None) -> OrphanPlan:
    """Delete them, and folders in which nothing is then, or was for as long. Idempotent. Returns what was deleted.

    Where the clock of this machine is ahead of the store's, that of the store counts. Raises as ``plan``.
    """
    finish(table, everybody_needing(table, needing))
    now_ms = min(Clock().now_ms(), _now_of_store(table))
    # Others may have taken snapshots away, as a rollback of Paimon's does, to which readers of Iceberg are led still.
    kept = Following(table).read_still()
    planned = plan(table, needing, before_ms, now_ms, kept=kept)
    old = old_empty_folders(table, now_ms - DEFAULT_AGE_MS if before_ms is None else before_ms)
    table.file_io.delete_all(planned.paths)
    buckets = [folder for folder in map(os.path.dirname, planned.paths) if is_bucket(folder)]
    delete_empty_folders(table, [*old, *buckets], needing().folders)
    return planned


def _now_of_store(table: Table) -> float:
    """The time of a file that is written now."""
    name, folder = IdSource().new_id(), table.layout.within(JOURNAL_DIR)
    path = f"{folder}/clock-{name}"
    table.file_io.make_dir(folder)
    table.file_io.replace(path, b"", name)
    at_ms = table.file_io.modified_ms(path)
    table.file_io.delete(path)
    return math.inf if at_ms is None else at_ms


def _candidates(table: Table) -> Iterator[tuple[str, int]]:
    """(path, size in bytes) of all files that could be orphans."""
    for name in _METADATA:
        yield from _files_in(table, table.layout.within(name))
    for name in _NAMED_BY_THEMSELVES:
        for path, size in _files_in(table, table.layout.within(name)):
            kind, _, number = os.path.basename(path).partition("-")
            if not (kind == name and number.isdigit()) and os.path.basename(path) not in _HINTS:
                yield path, size
    for folder in folders_of(table, table.root, table.known_schema.partition_keys):
        yield from _files_in(table, folder)
    yield from Following(table).unnamed()


def _files_in(table: Table, folder: str) -> Iterator[tuple[str, int]]:
    return ((f"{folder}/{e.name}", e.size) for e in table.file_io.entries(folder) if not e.is_dir)


def _named(table: Table) -> set[str]:
    """Paths relative to the table of metadata, and names of data files, that anything retained names."""
    found, read = set[str](), set[str]()
    for root in roots(table):
        try:
            manifests = manifests_of(table, root.snapshot, root.kind)
            metadata = {f"manifest/{name}" for name in manifests} | own_metadata(table, root.snapshot, root.kind)
            for manifest in manifests - read:
                found |= _added(table, manifest)
                read.add(manifest)
        except Corrupt:
            if table.file_io.exists(root.path):
                raise
            continue  # it has expired meanwhile
        found |= metadata
    return found


def _added(table: Table, manifest: str) -> set[str]:
    entries = [entry for entry in table.manifests.read(manifest) if entry.kind is FileKind.ADD]
    return {name for entry in entries for name in (entry.file.file_name, *entry.file.extra_files)}


def _is_needed(name: str, path: str, named: Iterable[str], needed: Needed) -> bool:
    """Whether something names it. A name that is not a data file's is given once in its folder."""
    folder = os.path.basename(os.path.dirname(path))
    is_named = name in named or f"{folder}/{name}" in named or name in needed.files
    return is_named or any(attempt in name for attempt in needed.attempts)
