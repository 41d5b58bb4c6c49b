"""Checks that what a commit builds on exists: the newest snapshot's lists, its manifests, and some of its data files.

Each check is cheap and looks only at a part.
"""

import itertools

from streamsink.errors import Corrupt
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import Snapshot
from streamsink.shell import in_a_shell, restore
from streamsink.storage.reading import Questions
from streamsink.table.application_states import is_foreign
from streamsink.table.history.renamed_folders import check_missing
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import Table

# Another writer's commit may make files superfluous while they are checked. The newer snapshot is then checked instead,
# in at most this many checks altogether.
_LOOKS = 3
# At a start, so many data files each are looked up of the oldest and of the newest manifest.
_FILES_EACH = 4
# If more manifests delete files, it costs too much to know what is live, and no data files are looked up.
_MOST_DELETING = 2
# Of the manifests that other writers have added since the last check, so many of the newest ones are read.
_MOST_READ = 8
_BACK = "or roll the table back to a snapshot that is whole (streamsink.verify names what is missing)"


class Whole:
    """Checks one table again and again, for one committer.

    Raises Corrupt, which names what is missing and the way out.
    """

    def __init__(self, table: Table, started: bool = False):
        """started: True if another committer of this process has already made the first, full check."""
        self._table = table
        self._at = table.layout
        self._started = started
        self._in_turn: list[str] = []  # manifests that were not checked in this round yet; the next one stands last
        self._seen: Snapshot | None = None

    def start_over(self) -> None:
        """The next look is again the one that is made the first time."""
        self._started = False

    def look(self, newest: Snapshot | None) -> Snapshot | None:
        """Check the newest snapshot, and return it, or a newer one that was checked instead. Raises Corrupt.

        Its lists must exist. The first time, all of its manifests must exist too, and the oldest and the newest must be
        readable. Later, the manifest whose turn it is must exist (this is only checked if the manifests are known
        without asking the store), and those that another writer has added must be readable.
        """
        for left in reversed(range(_LOOKS)):
            broken = self._broken(newest) if newest is not None else None
            if broken is None:
                self._started = True
                return newest
            before, newest = newest, self._table.snapshots.latest()
            if newest == before or not left:
                raise broken
        return newest

    def questions(self) -> Questions:
        """What ``look`` asks about if the newest snapshot still is the one that was read or published here last."""
        newest = self._table.snapshots.known()
        metas = self._table.manifests.known_of(newest) if self._started and newest is not None else None
        if newest is None or metas is None:
            return Questions()
        lists = [] if self._knows_lists(newest) else [newest.base_manifest_list, newest.delta_manifest_list]
        return Questions(size=tuple(map(self._at.manifest, lists))) + self.questions_of_one()

    def questions_of_one(self) -> Questions:
        """What ``look_at_one`` asks about, likewise."""
        newest = self._table.snapshots.known()
        metas = self._table.manifests.known_of(newest) if newest is not None else None
        if newest is None or metas is None or self._is_seen(newest):
            return Questions()
        return Questions(size=tuple(map(self._at.manifest, self._turn(metas)[-1:])))

    def look_at_one(self, newest: Snapshot | None, metas: list[ManifestFileMeta]) -> None:
        """Check, before a commit builds on these manifests of ``newest``, that one of them exists.

        Nothing is asked if ``look`` has just done so for this snapshot. Raises Corrupt.
        """
        if newest is None or self._is_seen(newest):
            return
        broken = self._one_broken(newest, metas)
        if broken is not None and self._table.snapshots.latest() == newest:
            raise broken

    def has_all_of(self, snapshot: Snapshot) -> bool:
        """Whether everything exists that ``look`` checks the first time. The snapshot need not be the newest one.

        The store is asked about its lists too, which may be older than the snapshot that this process has just created.
        """
        return self._broken(snapshot, knows_lists=False) is None

    # -- parts -----------------------------------------------------------------------------------------------------

    def _knows_lists(self, newest: Snapshot) -> bool:
        """Whether this process has just written the lists: the answers of a distant store have said that they exist."""
        return self._table.file_io.is_distant and self._table.snapshots.was_just_created(newest)

    def _broken(self, newest: Snapshot, *, knows_lists: bool = True) -> Corrupt | None:
        lists = self._at.manifest(newest.base_manifest_list), self._at.manifest(newest.delta_manifest_list)
        first = Questions(lists, lists, (self._at.manifest_dir,)) if not self._started else Questions()
        with self._table.file_io.asking(first):
            return self._found_broken(newest, is_known=knows_lists and self._knows_lists(newest))

    def _found_broken(self, newest: Snapshot, *, is_known: bool) -> Corrupt | None:
        for name, size in (
            ()
            if is_known
            else (
                (newest.base_manifest_list, newest.base_manifest_list_size),
                (newest.delta_manifest_list, newest.delta_manifest_list_size),
            )
        ):
            broken = self._compare(newest, name, size, self._table.file_io.size(self._at.manifest(name)))
            if broken is not None:
                return broken
        try:
            if not self._started:
                metas = self._table.manifests.all_of(newest)
                return self._any_broken(newest, metas) or self._data_file_missing(newest, metas)
            known = self._table.manifests.known_of(newest)
            if known is None and is_foreign(newest):
                before = self._table.manifests.known_names()
                added = [meta for meta in self._table.manifests.all_of(newest) if meta.file_name not in before]
                self._table.manifests.check(added[-_MOST_READ:])
        except Corrupt as broken:
            return broken
        return None if known is None or self._is_seen(newest) else self._one_broken(newest, known)

    def _any_broken(self, newest: Snapshot, metas: list[ManifestFileMeta]) -> Corrupt | None:
        """The error for the first manifest that is missing or has another size; None if there is none.

        One listing of the folder tells this. It has the sizes where the store lists them.
        """
        found = self._table.file_io.listed(self._at.manifest_dir) if metas else {}
        for meta in metas:
            size = found.get(meta.file_name)
            if size is None and meta.file_name in found:
                continue  # the manifest exists, and the listing does not tell its size
            broken = self._compare(newest, meta.file_name, meta.file_size, size)
            if broken is not None:
                return broken
        return None

    def _one_broken(self, newest: Snapshot, metas: list[ManifestFileMeta]) -> Corrupt | None:
        self._seen = newest
        self._in_turn = self._turn(metas)
        if not self._in_turn:
            return None
        meta = {meta.file_name: meta for meta in metas}[self._in_turn.pop()]
        return self._compare(
            newest, meta.file_name, meta.file_size, self._table.file_io.size(self._at.manifest(meta.file_name))
        )

    def _turn(self, metas: list[ManifestFileMeta]) -> list[str]:
        """Names of the manifests that were not checked in this round yet; the one whose turn it is stands last."""
        there = dict.fromkeys(meta.file_name for meta in metas)
        return [name for name in self._in_turn if name in there] or list(there)[::-1]

    def _is_seen(self, newest: Snapshot) -> bool:
        return self._seen is not None and (self._seen.id, self._seen.uuid) == (newest.id, newest.uuid)

    def _compare(self, newest: Snapshot, name: str, wanted: int | None, found: int | None) -> Corrupt | None:
        path = self._at.manifest(name)
        if found is None:
            return Corrupt(
                f"{self._at.root}: snapshot {newest.id} refers to {path}, which is gone: the table's metadata was "
                f"removed. Nothing was written. Restore it {restore(path)}, {_BACK}",
                kind="manifest.missing",
            )
        if wanted is not None and found != wanted:
            return Corrupt(
                f"{self._at.root}: snapshot {newest.id} refers to {path}, which has {found} bytes, expected {wanted}: "
                f"it was cut or altered. Nothing was written. Restore it {restore(path)}, {_BACK}",
                kind="manifest.size",
            )
        return None

    def _data_file_missing(self, newest: Snapshot, metas: list[ManifestFileMeta]) -> Corrupt | None:
        schema, io = self._table.known_schema, self._table.file_io
        paths = {data_file_path(self._table, schema, entry): entry for entry in self._some_live(metas)}
        with io.asking(Questions(size=tuple(paths))):
            path = next((path for path in paths if io.size(path) is None), None)
        if path is None:
            return None
        check_missing(self._table, [paths[path]])
        return Corrupt(
            f"{self._at.root}: snapshot {newest.id} has the data file {path}, which is gone, and perhaps "
            "others: no reader can read the whole table. Nothing was written. Restore what is gone "
            f"{restore(path)}: streamsink.verify names it. If its rows may be lost, call "
            f"streamsink.drop_missing({self._at.root!r}) {in_a_shell('drop-missing', self._at.root, '--yes')}: it "
            "takes the files that are gone out of the table",
            kind="data.missing",
        )

    def _some_live(self, metas: list[ManifestFileMeta]) -> list[ManifestEntry]:
        """A few live files each of the oldest and of the newest manifest that adds files.

        If too many manifests delete files, or none adds any, there are none, and only the newest manifest is checked.
        """
        deleting = [meta for meta in metas if meta.num_deleted_files]
        adding = [meta for meta in metas if meta.num_added_files]
        if len(deleting) > _MOST_DELETING or not adding:
            self._table.manifests.check(metas[-1:])
            return []
        ends = {meta.file_name: meta for meta in (adding[0], adding[-1])}
        with self._table.manifests.reading(list((ends | {meta.file_name: meta for meta in deleting}).values())):
            return self._live_of(list(ends.values()), deleting)

    def _live_of(self, ends: list[ManifestFileMeta], deleting: list[ManifestFileMeta]) -> list[ManifestEntry]:
        read = self._table.manifests.entries_in
        deleted = {entry.identity for meta in deleting for entry in read(meta) if entry.kind is FileKind.DELETE}
        found: list[ManifestEntry] = []
        for meta in ends:
            live = (
                e
                for e in read(meta)
                if e.kind is FileKind.ADD and e.identity not in deleted and e.file.external_path is None
            )
            found += itertools.islice(live, _FILES_EACH)
        return found
