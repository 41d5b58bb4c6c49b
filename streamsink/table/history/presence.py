"""Finds out whether files are in the table already, again and again as the table changes."""

from collections.abc import Iterable, Mapping

from streamsink.format.manifest import FileKind, Identity, ManifestEntry
from streamsink.format.snapshot import Snapshot
from streamsink.table.manifests import Manifests


class Presence:
    """Looks for a few files in one snapshot after another.

    A manifest never changes, and its name is given only once. So what each manifest says about these files is
    remembered, and for a later snapshot only the manifests that are new in it are read, whoever wrote it and on
    whatever it is built. Only the names of one snapshot's manifests and the files that are looked for are remembered,
    so nothing grows with the number of files in the table.
    """

    def __init__(
        self,
        manifests: Manifests,
        wanted: Iterable[Identity] = (),
        known: Mapping[str, Iterable[Identity]] | None = None,
    ):
        """wanted: all files that will be asked for. Asking for others works too, but reads all manifests again.
        known: by name, manifests that add these files and nothing else, so that they need not be read.
        """
        self._manifests = manifests
        self._known = {name: set(added) for name, added in (known or {}).items()}
        self._wanted = set(wanted).union(*self._known.values())
        self._said: dict[str, dict[FileKind, set[Identity]]] = {}

    def of(self, entries: Iterable[ManifestEntry], snapshot: Snapshot | None) -> set[Identity]:
        """Which of the files of these entries are live in the snapshot. Raises Corrupt for an unreadable manifest."""
        return self.live({entry.identity for entry in entries}, snapshot)

    def live(self, asked: set[Identity], snapshot: Snapshot | None) -> set[Identity]:
        """Which of the files with these identities are live in the snapshot. Raises as ``of`` does."""
        if not asked <= self._wanted:
            self._wanted |= asked
            self._said = {}
        self._read(snapshot)
        added, deleted = (
            set().union(*(said[kind] for said in self._said.values())) for kind in (FileKind.ADD, FileKind.DELETE)
        )
        return asked & added - deleted

    def _read(self, snapshot: Snapshot | None) -> None:
        """Remember what each manifest of the snapshot says about the wanted files, and forget other manifests."""
        metas = self._manifests.all_of(snapshot)
        new = [meta for meta in metas if meta.file_name not in self._said and meta.file_name not in self._known]
        said = {
            meta.file_name: self._said.get(meta.file_name)
            or {FileKind.ADD: self._known.get(meta.file_name, set()), FileKind.DELETE: set()}
            for meta in metas
        }
        for name, kind, identity in self._manifests.said_of(self._wanted, new) if new else ():
            if identity in self._wanted:
                said[name][kind].add(identity)
        self._said = said
