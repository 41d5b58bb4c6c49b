"""Whether files are in the table already: asked again and again as it changes."""

from collections.abc import Iterable, Mapping

from streamsink.format.manifest import FileKind, Identity, ManifestEntry
from streamsink.format.snapshot import Snapshot
from streamsink.table.manifests import Manifests


class Presence:
    """Looks for a few files in one snapshot after another.

    A manifest never changes and its name is given once. So what each one says of these files is remembered, and a later
    snapshot, whoever wrote it and over whichever other, costs the manifests that are new in it. Remembered are the names of
    one snapshot's manifests, and of files only those that are looked for: nothing grows with the files of the table.
    """

    def __init__(
        self,
        manifests: Manifests,
        wanted: Iterable[Identity] = (),
        known: Mapping[str, Iterable[Identity]] | None = None,
    ):
        """wanted: all the files that will be asked for. Asking for others is fine, and reads everything anew.
        known: by name, manifests that add these files and nothing else: they are not read.
        """
        self._manifests = manifests
        self._known = {name: set(added) for name, added in (known or {}).items()}
        self._wanted = set(wanted).union(*self._known.values())
        self._said: dict[str, dict[FileKind, set[Identity]]] = {}

    def of(self, entries: Iterable[ManifestEntry], snapshot: Snapshot | None) -> set[Identity]:
        """Which of the files that these entries add are live in the snapshot. Raises Corrupt for an unreadable manifest."""
        return self.live({entry.identity for entry in entries}, snapshot)

    def live(self, asked: set[Identity], snapshot: Snapshot | None) -> set[Identity]:
        """As ``of``, of the files with these identities."""
        if not asked <= self._wanted:
            self._wanted |= asked
            self._said = {}
        self._read(snapshot)
        added, deleted = (
            set().union(*(said[kind] for said in self._said.values())) for kind in (FileKind.ADD, FileKind.DELETE)
        )
        return asked & added - deleted

    def _read(self, snapshot: Snapshot | None) -> None:
        """What each manifest of the snapshot says of the wanted files, and nothing of other manifests."""
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
