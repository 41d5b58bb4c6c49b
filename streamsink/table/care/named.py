"""Which files a snapshot names: what may go is looked for in all that stays.

Data files are looked for by their names, which no two files share, in the manifests of what stays. A manifest is read
once, however many snapshots have it, and one that holds none of the partitions is not read at all.
"""

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streamsink.errors import Corrupt
from streamsink.format.manifest import FileKind, Identity, ManifestEntry
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import Snapshot
from streamsink.table.history.retained import Kind, Root
from streamsink.table.manifests import Manifests
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import Table


@dataclass(frozen=True)
class DataFile:
    """A data file that may go. partition: as BinaryRow bytes.

    paths: its own, and those of files that belong to it, relative to the table: a copy of a table has a list of such
    files as well, and those of the original are none of it.
    """

    name: str
    partition: bytes
    paths: tuple[str, ...]

    @classmethod
    def of(cls, table: Table, entry: ManifestEntry) -> "DataFile":
        path = table.layout.relative(data_file_path(table, table.known_schema, entry))
        folder = path.rpartition("/")[0]
        beside = tuple(f"{folder}/{name}" for name in entry.file.extra_files)
        return cls(entry.file.file_name, entry.partition, (path, *beside))


class Named:
    """Looks for a few data files in one snapshot after another."""

    def __init__(self, table: Table, wanted: Iterable[DataFile]):
        self._manifests = table.manifests
        self._names = {file.name for file in wanted}
        # What ``said_of`` asks of an identity: its partition, and the file's name.
        self._wanted = {(file.partition, 0, 0, file.name) for file in wanted} if self._names else set()
        self._said: dict[str, tuple[set[Identity], set[Identity]]] = {}

    def live_in(self, root: Root) -> set[str]:
        """The names of those that are live in it. Raises Corrupt for a manifest that cannot be read."""
        if not self._wanted:
            return set()
        names = [meta for name in _lists(root.snapshot) for meta in _list_of(self._manifests, name, root.kind)]
        new = [meta for meta in names if meta.file_name not in self._said]
        self._said |= {meta.file_name: (set(), set()) for meta in new}
        for manifest, kind, identity in self._manifests.said_of(self._wanted, new) if new else ():
            self._said[manifest][0 if kind is FileKind.ADD else 1].add(identity)
        said = [self._said[meta.file_name] for meta in names]
        added: set[Identity] = set().union(*(each[0] for each in said))
        return {identity[3] for identity in added.difference(*(each[1] for each in said))} & self._names


class _Added:
    """What each snapshot of the main branch names that the one below it may not have named. Read once for each."""

    def __init__(self) -> None:
        self._by_number: dict[int, frozenset[str]] = {}
        # The snapshot behind them. As long as it is there, they are those that were read.
        self._behind: Snapshot | None = None

    def between(self, table: Table, after: int, newest: Snapshot) -> set[str] | None:
        """Names as of ``unnamed``; None when the table has gone back meanwhile. Raises Corrupt."""
        if self._behind is not None and table.snapshots.load(self._behind.id) != self._behind:
            self._by_number.clear()
        known, self._by_number, self._behind = self._by_number, {}, newest
        for number in range(after + 1, newest.id):
            names = known.get(number)
            if names is None:
                names = _added_by(table, number)
            if names is not None:
                self._by_number[number] = names
        if table.snapshots.load(newest.id) != newest:
            self._by_number, self._behind = {}, None
            return None
        return set[str]().union(*self._by_number.values())


_ADDED: "weakref.WeakKeyDictionary[Table, _Added]" = weakref.WeakKeyDictionary()


def added_between(table: Table, after: int, newest: Snapshot) -> set[str] | None:
    """Names of data files, and paths of metadata relative to the table, that the snapshots between these two bring.

    What none of them brings, and the first one does not name, none of them names. A file that was deleted may come
    back: a rollback as latest brings it, and so does who publishes it again behind one. None when the table goes back
    meanwhile. Raises Corrupt.
    """
    return _ADDED.setdefault(table, _Added()).between(table, after, newest)


def _added_by(table: Table, number: int) -> frozenset[str] | None:
    """None where there is no such snapshot any more."""
    snapshot = table.snapshots.load(number)
    if snapshot is None:
        return None
    try:
        found = own_metadata(table, snapshot, Kind.SNAPSHOT)
        for meta in table.manifests.delta_of(snapshot):
            found.add(f"manifest/{meta.file_name}")
            entries = table.manifests.read(meta.file_name) if meta.num_added_files else ()
            found |= {entry.file.file_name for entry in entries if entry.kind is FileKind.ADD}
        return frozenset(found)
    except Corrupt:
        if table.snapshots.exists(number):
            raise
        return None


def metadata_of(table: Table, root: Root, *, gone_ok: bool = False) -> set[str]:
    """Paths, relative to the table, of all files that the snapshot names except data files.

    gone_ok: whether lists may be missing, as of a snapshot whose deletion had begun. Raises Corrupt for one that cannot
    be read.
    """
    kind = Kind.CHANGELOG if gone_ok else root.kind
    found = {f"manifest/{name}" for name in manifests_of(table, root.snapshot, kind)}
    return found | own_metadata(table, root.snapshot, kind)


def manifests_of(table: Table, snapshot: Snapshot, kind: Kind) -> set[str]:
    """Names of the manifests in all lists of the snapshot, which may be called anything. Raises Corrupt."""
    lists = (*_lists(snapshot), snapshot.changelog_manifest_list)
    return {meta.file_name for name in lists if name for meta in _list_of(table.manifests, name, kind)}


def own_metadata(table: Table, snapshot: Snapshot, kind: Kind) -> set[str]:
    """As ``metadata_of``, without what its lists name."""
    lists = (*_lists(snapshot), snapshot.changelog_manifest_list)
    found = {f"manifest/{name}" for name in lists if name}
    if snapshot.index_manifest:
        found.add(f"manifest/{snapshot.index_manifest}")
        try:
            entries = table.manifests.index_of(snapshot)
        except Corrupt as broken:
            if broken.kind != "manifest.missing" or kind is not Kind.CHANGELOG:
                raise
            entries = []
        found |= {f"index/{entry.file.file_name}" for entry in entries if entry.file.external_path is None}
    return found | ({f"statistics/{snapshot.statistics}"} if snapshot.statistics else set())


def deleted_by(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    """The data files that the snapshot's own changes delete, except those that they add again at another level.

    Nothing for one whose lists are gone, since its deletion had begun. Raises Corrupt for one that cannot be read.
    """
    try:
        metas = table.manifests.delta_of(snapshot)
        entries = [entry for meta in metas for entry in table.manifests.read(meta.file_name)]
    except Corrupt as broken:
        if broken.kind != "manifest.missing":
            raise
        return
    added = {entry.file.file_name for entry in entries if entry.kind is FileKind.ADD}
    for entry in entries:
        if entry.kind is FileKind.DELETE and entry.file.file_name not in added and entry.file.external_path is None:
            yield DataFile.of(table, entry)


def live_files(table: Table, snapshot: Snapshot) -> list[DataFile]:
    """All data files of the snapshot, in memory. Raises Corrupt."""
    return [DataFile.of(table, e) for e in table.manifests.entries_of(snapshot) if e.file.external_path is None]


def _lists(snapshot: Snapshot) -> tuple[str, str]:
    return snapshot.base_manifest_list, snapshot.delta_manifest_list


def _list_of(manifests: Manifests, name: str, kind: Kind) -> list[ManifestFileMeta]:
    """The manifests of a list; none where it is missing and need not be there: a changelog keeps one of its lists."""
    try:
        return manifests.list_of(name)
    except Corrupt as broken:
        if broken.kind != "manifest.missing" or kind is not Kind.CHANGELOG:
            raise
        return []
