"""The files of a table's Iceberg metadata: where they are, and how they are written and read. Driver only."""

import json
import os
import re
from collections.abc import Collection, Iterable

from streamsink.clock import IdSource
from streamsink.errors import Corrupt
from streamsink.format.iceberg_manifest import IcebergManifest, read_list
from streamsink.format.iceberg_metadata import IcebergMetadata
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup

_VERSION = re.compile(r"v([0-9]+)\.metadata\.json")
_OTHER = re.compile(r"[^.].*\.metadata\.json(\.gz)?|v[0-9]+\.gz\.metadata\.json")
_HINT = "version-hint.text"
_MOST_DIGITS = 20  # of a number of a snapshot
_MANIFEST, _TEMPORARY = ".avro", ".tmp"


class Folder:
    """The folder of the metadata. Each round that makes metadata has names of its own for its manifests.

    others: names of metadata files as Paimon's writers never call one, as of the last ``versions``.
    """

    def __init__(self, file_io: FileIO, path: str):
        self._io = file_io
        self.path = path
        self._round = IdSource().new_id()
        self._manifests = self._lists = 0
        self.others: list[str] = []

    def begin_round(self) -> None:
        """Other names from here on."""
        self._round, self._manifests, self._lists = IdSource().new_id(), 0, 0

    def drop_round(self) -> None:
        """Remove what this round has written, which no metadata file came to name. Idempotent."""
        lists = [f"snap-{number}-{self._round}.avro" for number in range(1, self._lists + 1)]
        self.drop([*lists, *(f"{self._round}-m{number}.avro" for number in range(1, self._manifests + 1))])

    def new_manifest(self) -> str:
        """Path for a manifest."""
        self._manifests += 1
        return self.within(f"{self._round}-m{self._manifests}.avro")

    def new_list(self) -> str:
        """Path for a manifest list."""
        self._lists += 1
        return self.within(f"snap-{self._lists}-{self._round}.avro")

    def within(self, name: str) -> str:
        """Path of a file of this name."""
        return os.path.join(self.path, name)

    def version(self, number: int) -> str:
        """Path of the metadata file of this number."""
        return self.within(f"v{number}.metadata.json")

    def versions(self) -> list[int]:
        """The numbers of all metadata files, in ascending order. This lists the folder."""
        names = self._io.names(self.path)
        self.others = sorted(name for name in names if _OTHER.fullmatch(name) and not _VERSION.fullmatch(name))
        return sorted(int(match[1]) for name in names if (match := _VERSION.fullmatch(name)))

    def is_of_iceberg(self, number: int) -> bool:
        """Whether the metadata file of this number was made by a writer of Iceberg: no snapshot has Paimon's numbers.

        False for one that is torn.
        """
        try:
            said = json.loads(self._io.read(self.version(number)))
            numbers = [(each["snapshot-id"], each.get("sequence-number")) for each in said.get("snapshots") or ()]
            is_whole = bool(said["location"])
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False
        return is_whole and all(one != other for one, other in numbers)

    def may_name(self, numbers: Collection[int]) -> bool:
        """Whether readers may find one of these snapshots of the table; also where a metadata file cannot be read."""
        for version in self.versions():
            found = self.metadata(version)
            if found is None and not self.is_of_iceberg(version):
                return True
            if found is not None and any(each.number in numbers for each in found.snapshots):
                return True
        return False

    def metadata(self, number: int) -> IcebergMetadata | None:
        """The metadata of this number; None where there is none, or none that can be read or belongs there."""
        path = self.version(number)
        try:
            found = IcebergMetadata.from_json(self._io.read(path), path)
        except (FileNotFoundError, Corrupt):
            return None
        return found if found.current.number == number else None

    def manifests(self, path: str) -> list[IcebergManifest]:
        """The manifests of this list. Only its name counts: the folder may be spelled in another way there.

        Raises Corrupt; FileNotFoundError.
        """
        own = self.own(path)
        return read_list(self._io.read(own), own)

    def own(self, path: str) -> str:
        """The path of a file of this folder, however another writer spells the folder."""
        return self.within(os.path.basename(path))

    def read(self, path: str) -> bytes:
        """The bytes of a file of this folder, as ``own``. Raises FileNotFoundError."""
        return self._io.read(self.own(path))

    def group(self) -> FlushGroup:
        """For files that become durable before a metadata file names them."""
        return self._io.flush_group()

    def create(self, number: int, data: bytes) -> bool:
        """Create the metadata file of this number; False where there is one."""
        path = self.version(number)
        if self._io.atomic_create:
            return self._io.create_if_absent(path, data, IdSource().new_id())
        if self._io.exists(path):
            return False
        self.replace(number, data)  # what another writer makes of the same snapshot means the same
        return True

    def replace(self, number: int, data: bytes) -> None:
        """Put this in place of the metadata file of this number. Readers see the one or the other."""
        self._io.replace(self.version(number), data, IdSource().new_id())

    def hint(self) -> int:
        """The number that readers begin with; -1 where there is none."""
        try:
            text = self._io.read(self.within(_HINT)).strip()
        except FileNotFoundError:
            return -1
        return int(text) if text.isdigit() and len(text) < _MOST_DIGITS else -1

    def move_hint(self, number: int) -> None:
        """Let readers begin with the metadata file of this number."""
        self._io.replace(self.within(_HINT), str(number).encode(), IdSource().new_id())

    def drop(self, paths: Iterable[str]) -> None:
        """Remove these files of the folder. Idempotent."""
        self._io.delete_all([self.own(path) for path in paths])

    def sweep_temporaries(self) -> None:
        """Remove what a dead writer has left while it gave a file its name. One that is alive tries again."""
        self.drop(name for name in self._io.names(self.path) if _is_temporary(name))

    def files(self) -> list[tuple[str, int]]:
        """(path, size in bytes) of all manifests and lists, and of temporary files."""
        entries = [each for each in self._io.entries(self.path) if not each.is_dir]
        return [
            (self.within(each.name), each.size)
            for each in entries
            if each.name.endswith(_MANIFEST) or _is_temporary(each.name)
        ]

    def clear(self) -> None:
        """Remove the folder with all that is in it: that of a table that was dropped."""
        self._io.delete_tree(self.path)


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(_TEMPORARY)
