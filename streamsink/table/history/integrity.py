"""Checks that everything exists to which snapshots refer, and that their numbers add up. It only reads.

``commands/verify.py`` checks the journals.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from streamsink import shell
from streamsink.errors import Corrupt, Misuse
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import Snapshot
from streamsink.table.read.scan import ScanFile, data_file_path, read_file
from streamsink.table.table import Table

DAMAGE, NOTE = "damage", "note"
# At most this many of several similar things are listed by name.
_NAMED = 5


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    severity: 'damage' (rows are missing, doubled or unreadable, or will be) or 'note'. kind: stable, for programs.
    """

    severity: str
    kind: str
    message: str


@dataclass(frozen=True)
class Report:
    """The result of checking one table.

    table: its path. snapshots: number of snapshots that were checked. files: number of data files and index files to
    which they refer. rows: number of rows in the newest snapshot.
    """

    table: str
    snapshots: int
    files: int
    rows: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True when nothing is damaged. Notes, such as of a pending checkpoint or an old hint, are allowed."""
        return not any(finding.severity == DAMAGE for finding in self.findings)

    def __str__(self) -> str:
        head = (
            f"{self.table}: {'ok' if self.ok else 'DAMAGED'}, {self.snapshots} snapshots, {self.files} data files, "
            f"{self.rows} rows"
        )
        return "\n".join([head, *(f"  {f.severity} {f.kind}: {f.message}" for f in self.findings)])


class TableCheck:
    """Checks one table once. Each file is checked only once, however many snapshots share it."""

    def __init__(self, table: Table, contents: bool = False, told: Callable[[int, int], None] = lambda done, all: None):
        """contents: if True, each data file is also read as a whole. told: called with the number of snapshots that are
        checked, and that of all.
        """
        self._told = told
        self._table = table
        self._contents = contents
        self._at = table.layout
        self.findings: list[Finding] = []
        self._entries: dict[str, list[ManifestEntry]] = {}
        self.snapshots: list[Snapshot] = []
        self.files: set[str] = set()

    def run(self) -> None:
        """Check the table, and fill ``findings``, ``snapshots`` and ``files``."""
        ids = self._table.snapshots.ids()
        self._chain(ids)
        before: Snapshot | None = None
        for done, snapshot_id in enumerate(ids):
            self._told(done, len(ids))
            snapshot = self._load(snapshot_id)
            if snapshot is not None:
                self.snapshots.append(snapshot)
                self._snapshot(snapshot, before if before and before.id == snapshot_id - 1 else None)
            before = snapshot

    def damage(self, kind: str, message: str) -> None:
        """Add a finding of severity 'damage'."""
        self.findings.append(Finding(DAMAGE, kind, message))

    def note(self, kind: str, message: str) -> None:
        """Add a finding of severity 'note'."""
        self.findings.append(Finding(NOTE, kind, message))

    # -- snapshots -------------------------------------------------------------------------------------------------

    def _chain(self, ids: list[int]) -> None:
        missing = sorted(set(range(ids[0], ids[-1])) - set(ids)) if ids else []
        if missing:
            self.damage("snapshot.hole", f"snapshots {_few(missing)} are missing between {ids[0]} and {ids[-1]}")
        for name, path, expected in (
            ("LATEST", self._at.latest_hint, ids[-1:]),
            ("EARLIEST", self._at.earliest_hint, ids[:1]),
        ):
            hint = self._hint(path)
            if hint is None or [hint] == expected:
                continue
            if name == "LATEST" and (not ids or hint > ids[-1]):
                self.damage(
                    "hint.future",
                    f"{path} says {hint}, newer than every snapshot: Java's readers fail on it; delete it "
                    f"{shell.discard(path)}",
                )
            else:
                self.note(
                    "hint.old", f"{path} says {hint}, expected {expected[0] if expected else 'nothing'}; harmless"
                )

    def _hint(self, path: str) -> int | None:
        try:
            text = self._table.file_io.read(path)
        except FileNotFoundError:
            return None
        return int(text) if text.isdigit() else None

    def _load(self, snapshot_id: int) -> Snapshot | None:
        try:
            return self._table.snapshots.load(snapshot_id)
        except Corrupt as broken:
            self.damage(broken.kind, str(broken))
            return None

    def _snapshot(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        """Check what the snapshot refers to, and that it is built on the one before it, if that one is given."""
        base = self._list(snapshot, "base", snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        delta = self._list(snapshot, "delta", snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
        if base is None or delta is None:
            return
        below, added = self._read_all(base), self._read_all(delta)
        live = _live([*below, *added])
        self._counts(snapshot, live, added)
        self._data_files(snapshot, live)
        self._index(snapshot)
        if before is not None:
            self._derives(snapshot, before, _live(below))

    def _counts(self, snapshot: Snapshot, live: list[ManifestEntry], added: list[ManifestEntry]) -> None:
        rows = sum(entry.file.row_count for entry in live)
        if rows != snapshot.total_record_count:
            self.damage(
                "count.total", f"snapshot {snapshot.id} says {snapshot.total_record_count} rows, its files have {rows}"
            )
        delta = sum(e.file.row_count if e.kind is FileKind.ADD else -e.file.row_count for e in added)
        if delta != snapshot.delta_record_count:
            self.damage(
                "count.delta",
                f"snapshot {snapshot.id} says {snapshot.delta_record_count} rows came, its delta has {delta}",
            )
        twice = [entry[3] for entry, n in Counter(e.identity for e in live).items() if n > 1]
        if twice:
            self.damage("file.twice", f"snapshot {snapshot.id} has {_few(twice)} twice: readers see their rows twice")

    def _derives(self, snapshot: Snapshot, before: Snapshot, below: list[ManifestEntry]) -> None:
        """Check that what is live below this snapshot's own changes is exactly what the one before it has."""
        base = self._quiet_list(before.base_manifest_list)
        delta = self._quiet_list(before.delta_manifest_list)
        if base is None or delta is None:
            return
        there = {e.identity for e in _live([*self._read_all(base), *self._read_all(delta)])}
        here = {e.identity for e in below}
        if there == here:
            return
        hidden, other = [i[3] for i in there - here], [i[3] for i in here - there]
        self.damage(
            "snapshot.not-derived",
            f"snapshot {snapshot.id} (user '{snapshot.commit_user}') is not built on snapshot {before.id} as it is now "
            f"(user '{before.commit_user}'): a writer whose rename replaces has overwritten snapshot {before.id}, or "
            f"it was rolled back. Of that snapshot {len(hidden)} files are hidden ({_few(hidden)}), {len(other)} are "
            f"of one that is gone ({_few(other)})",
        )

    # -- files -----------------------------------------------------------------------------------------------------

    def _list(self, snapshot: Snapshot, which: str, name: str, size: int | None) -> list[ManifestFileMeta] | None:
        path = self._at.manifest(name)
        if not self._present(f"snapshot {snapshot.id}", f"{which} manifest list", path, size):
            return None
        try:
            lists = self._table.manifests.base_of if which == "base" else self._table.manifests.delta_of
            return lists(snapshot)
        except Corrupt as broken:
            self.damage(broken.kind, str(broken))
            return None

    def _quiet_list(self, name: str) -> list[ManifestFileMeta] | None:
        """The manifests of a list that was read before, without naming its damage again; None if it is damaged."""
        try:
            return self._table.manifests.list_of(name)
        except Corrupt:
            return None

    def _read_all(self, metas: list[ManifestFileMeta]) -> list[ManifestEntry]:
        return [entry for meta in metas for entry in self._manifest(meta)]

    def _manifest(self, meta: ManifestFileMeta) -> list[ManifestEntry]:
        if meta.file_name not in self._entries:
            self._entries[meta.file_name] = found = []
            path = self._at.manifest(meta.file_name)
            if self._present("a manifest list", "manifest", path, meta.file_size):
                try:
                    found += self._table.manifests.read(meta.file_name)
                except Corrupt as broken:
                    self.damage(broken.kind, str(broken))
                added = sum(1 for entry in found if entry.kind is FileKind.ADD)
                if found and (added, len(found) - added) != (meta.num_added_files, meta.num_deleted_files):
                    self.damage(
                        "manifest.counts",
                        f"{path} has {added} added and {len(found) - added} deleted files, its list says "
                        f"{meta.num_added_files} and {meta.num_deleted_files}",
                    )
        return self._entries[meta.file_name]

    def _data_files(self, snapshot: Snapshot, live: list[ManifestEntry]) -> None:
        schema = self._table.latest_schema()
        for entry in live:
            path = data_file_path(self._table, schema, entry)
            if path not in self.files:
                self.files.add(path)
                if self._present(f"snapshot {snapshot.id}", "data file", path, entry.file.file_size) and self._contents:
                    self._content(path, entry)

    def _content(self, path: str, entry: ManifestEntry) -> None:
        """Check that the file can be read and has the rows and columns that the manifest and its schema say."""
        try:
            fields = self._table.schemas.load(entry.file.schema_id).fields
            read_file(
                ScanFile(path, entry.file.file_size, entry.file.row_count, entry.file.schema_id),
                self._table.file_io.read(path),
                fields,
            )
        except Corrupt as broken:
            self.damage(broken.kind, str(broken))
        except Misuse:
            return  # a time that Arrow cannot hold is no damage
        except OSError as broken:
            self.damage("data.unreadable", f"data file {path} cannot be read: {type(broken).__name__}")

    def _index(self, snapshot: Snapshot) -> None:
        if snapshot.index_manifest is None:
            return
        try:
            for entry in self._table.manifests.index_of(snapshot):
                path = entry.file.external_path or self._at.within(f"index/{entry.file.file_name}")
                if path not in self.files:
                    self.files.add(path)
                    self._present(f"snapshot {snapshot.id}", "index file", path, entry.file.file_size)
        except Corrupt as broken:
            self.damage(broken.kind, str(broken))

    def _present(self, who: str, what: str, path: str, size: int | None) -> bool:
        found = self._table.file_io.size(path)
        if found is None:
            self.damage("file.missing", f"{who} refers to {what} {path}, which does not exist")
        elif size is not None and found != size:
            self.damage("file.size", f"{what} {path} has {found} bytes, {who} says {size}")
        return found is not None


def _live(entries: list[ManifestEntry]) -> list[ManifestEntry]:
    """The live entries as every reader sees them: an ADD counts unless any entry deletes its file.

    A file that is added twice comes out twice.
    """
    deleted = {e.identity for e in entries if e.kind is FileKind.DELETE}
    return [e for e in entries if e.kind is FileKind.ADD and e.identity not in deleted]


def _few(found: Iterable[int] | Iterable[str]) -> str:
    names = [str(name) for name in sorted(found)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
