"""Files of a table that compaction leaves as they are, because their rows would not stay what they are. Driver only.

None of them is a reason to stop a query: readers read them as before. Each reason is logged once.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from streamsink.compaction.plan import Task
from streamsink.compaction.rewrite import Rewriting, rows_of
from streamsink.errors import Corrupt, Misuse
from streamsink.events import log
from streamsink.format.index_manifest import DELETION_VECTORS_INDEX
from streamsink.format.manifest import Identity, ManifestEntry
from streamsink.format.schema import TableSchema
from streamsink.format.snapshot import Snapshot
from streamsink.table.read.evolved import check_casts
from streamsink.table.table import Table
from streamsink.table.write.conform import Conform

# How kinds of errors begin that values of rows cause.
_OF_VALUES = ("data.", "partition.", "path.", "read.", "row.")


def is_of_rows(failed: Exception) -> bool:
    """Whether it is an error of what other writers have put into the table, and not of who writes it again."""
    return isinstance(failed, Misuse) and failed.kind.startswith(_OF_VALUES)


class LeftAlone:
    """What is left alone in one table by its newest schema; another schema begins anew."""

    def __init__(self, table: Table):
        self._table = table
        self._newest = -1
        self._readable: dict[int, bool] = {}
        self._files: set[Identity] = set()

    def without(self, newest: Snapshot, partitions: Collection[bytes] | None = None) -> Iterator[ManifestEntry]:
        """The live entries of the snapshot, or those of these partitions, without files that are left alone.

        These are those of which another engine has deleted rows by a vector, and what ``find`` has found. Raises
        Corrupt.
        """
        schema = self._table.known_schema
        if self._newest != schema.id:
            self._newest, self._readable, self._files = schema.id, {}, set()
        vectors = (
            e.file for e in self._table.manifests.index_of(newest) if e.file.index_type == DELETION_VECTORS_INDEX
        )
        deleted_from = {each.data_file for file in vectors for each in file.dv_ranges or ()}
        for entry in self._table.manifests.entries_of(newest, partitions):
            if entry.file.file_name not in deleted_from and entry.identity not in self._files:
                yield entry

    def is_readable(self, schema_id: int) -> bool:
        """Whether files of the schema with this number can be read as the newest one."""
        if schema_id not in self._readable:
            written, wanted = self._table.schemas.load(schema_id), self._table.known_schema
            try:
                check_casts(written, wanted, self._table.root)
                why = _nulls(written, wanted)
            except Misuse as refused:
                why = str(refused)
            self._readable[schema_id] = not why
            if why:
                log.warning("%s: files of schema %d are not compacted: %s", self._table.root, schema_id, why)
        return self._readable[schema_id]

    def find(self, tasks: Sequence[Task], how: Rewriting, failed: Misuse) -> bool:
        """Look for files of these tasks of which a row does not fit the newest schema, or cannot be kept exactly.

        failed: why the first one could not be done; where no file is found that explains it, all of that task are left
        alone. Reads all of their rows, at the pace of ``how``, and writes none. Returns whether it is worth another
        try: there are such files, or others have changed the table meanwhile. Raises what ``how.pace`` raises.
        """
        fits, found, are_changed = Conform(how.schema.fields, "These stay as they are"), dict[str, Misuse](), False
        for entry in (entry for task in tasks for entry in task.files):
            try:
                self._read(entry, fits, how)
            except Misuse as refused:
                self._files.add(entry.identity)
                found[entry.file.file_name] = refused
            except Corrupt:
                are_changed = True
        if not found and not are_changed and is_of_rows(failed):
            self._files.update(entry.identity for entry in tasks[0].files)
            found = {entry.file.file_name: failed for entry in tasks[0].files}
        if found:
            first, why = next(iter(found.items()))
            log.warning("%s: %d file(s) are not compacted, %s first: %s", self._table.root, len(found), first, why)
        return bool(found) or are_changed

    def rest(self, tasks: Iterable[Task]) -> list[Task]:
        """The tasks without files that are left alone, as far as two files are left of each."""
        kept = [Task(t.partition, tuple(e for e in t.files if e.identity not in self._files)) for t in tasks]
        return [task for task in kept if len(task.files) > 1]

    def _read(self, entry: ManifestEntry, fits: Callable[..., object], how: Rewriting) -> None:
        for rows in rows_of(self._table, entry, how.schema):
            for batch in rows.to_batches():
                fits(batch)
            how.pace()


def _nulls(written: TableSchema, wanted: TableSchema) -> str:
    """Says which nulls files of an older schema may have that none of the newest one may have; '' for none."""
    could_be_null = {field.id: field.type.nullable for field in written.fields}
    found = [f.name for f in wanted.fields if not f.type.nullable and could_be_null.get(f.id, True)]
    return f"column '{found[0]}' is NOT NULL now, and could be null then" if found else ""
