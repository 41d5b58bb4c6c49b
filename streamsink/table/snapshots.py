"""The chain of a table's snapshots: finding the newest one, and reading one by its number."""

from streamsink import shell
from streamsink.clock import Clock
from streamsink.errors import Corrupt
from streamsink.format.snapshot import Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.storage.reading import Questions
from streamsink.table.layout import Layout

# A snapshot may expire after it was found and before it is read. A reader then searches again, at most this often.
_LOOKS = 5
_JUST_MS = 60_000


class Snapshots:
    """The snapshot files of one table. Their numbers begin at 1 and have no holes."""

    def __init__(self, file_io: FileIO, layout: Layout):
        self._io = file_io
        self._at = layout
        self._newest: tuple[bytes, Snapshot] | None = None
        # Whether there is none, as of the last look-up or of the creation of the table.
        self.are_none = False
        # Where this process has moved the hint to. One that another writer has moved further meanwhile becomes an old
        # one, which is harmless.
        self._moved_to = -1
        self._clock = Clock()
        # Others of the same table, for other threads, that are told what this one creates.
        self.told: tuple[Snapshots, ...] = ()
        # The snapshot that this process has created last, and when.
        self._created: tuple[Snapshot | None, float] = (None, 0)

    def latest(self) -> Snapshot | None:
        """The newest snapshot, or None for a table without one. Raises Corrupt.

        Its file is read every time, since a rollback may have replaced it, but equal bytes are decoded only once.
        """
        for _ in range(_LOOKS):
            found = self._known_newest() or self._hinted_newest() or self._listed_newest()
            self.are_none = found is None
            if found is None:
                return None
            newest, data = found
            if data is None:
                continue
            known = self._newest  # another thread may find another one meanwhile
            if known is None or known[0] != data:
                self._newest = known = (data, _decode(data, self._at.snapshot(newest), newest))
            return known[1]
        raise Corrupt(
            f"{self._at.snapshot_dir}: the newest snapshot vanished {_LOOKS} times while it was read: the folder is "
            "being changed by something that does not follow the format",
            kind="snapshot.unstable",
        )

    def load(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot of this number; None when it has expired or never existed. Raises Corrupt."""
        data = self._bytes(snapshot_id)
        if data is None:
            return None
        known = self._newest
        is_known = known is not None and known[0] == data and known[1].id == snapshot_id
        return known[1] if known and is_known else _decode(data, self._at.snapshot(snapshot_id), snapshot_id)

    def ids(self) -> list[int]:
        """The numbers of all snapshot files, in ascending order. This lists the folder."""
        names = self._io.names(self._at.snapshot_dir)
        return sorted(int(n[9:]) for n in names if n.startswith("snapshot-") and n[9:].isdigit())

    def earliest(self) -> int | None:
        """The number that the hint EARLIEST names, whether that snapshot is there or not; None without a hint."""
        return self._hint(self._at.earliest_hint)

    def published(self, snapshot: Snapshot, data: bytes) -> None:
        """Remember as the newest one a snapshot that this process has just created with these bytes."""
        for each in (self, *self.told):
            each.are_none = False
            each._newest = (data, snapshot)
            each._created = (snapshot, self._clock.monotonic_ms())

    def was_just_created(self, snapshot: Snapshot) -> bool:
        """Whether this process has created the snapshot within the last minute."""
        created, at_ms = self._created
        return created == snapshot and self._clock.monotonic_ms() - at_ms < _JUST_MS

    def last_seen(self) -> Snapshot | None:
        """As ``known``; looked up if that was never done."""
        return self.known() if self._newest or self.are_none else self.latest()

    def known(self) -> Snapshot | None:
        """The newest snapshot as of the last look-up, or as created here since; None when there was none."""
        return self._newest[1] if self._newest else None

    def known_id(self) -> int:
        """Number of the newest snapshot as of the last look-up; 0 when there was none."""
        return self._newest[1].id if self._newest else 0

    def known_name(self) -> tuple[int, str]:
        """Number and uuid of that snapshot; (0, '') when there was none, and no uuid where it has none."""
        known = self.known()
        return (known.id, known.uuid or "") if known else (0, "")

    def exists(self, snapshot_id: int) -> bool:
        """Whether the snapshot file with this number exists."""
        return self._io.exists(self._at.snapshot(snapshot_id))

    def move_hint(self, snapshot_id: int, name: str) -> None:
        """Let LATEST point at this snapshot unless it points at it or a newer one; snapshot 1 sets EARLIEST as well.

        name: a unique name for the temporary file.
        """
        hint = self._moved_to if self._moved_to == snapshot_id - 1 else self._hint(self._at.latest_hint)
        if hint is None or hint < snapshot_id:
            self._io.replace(self._at.latest_hint, str(snapshot_id).encode(), name)
            self._moved_to = snapshot_id
        if snapshot_id == 1:
            self._io.replace(self._at.earliest_hint, b"1", name)

    def questions(self) -> Questions:
        """What ``latest`` asks about, if the newest snapshot still is the one of its last call."""
        if self._newest is None and self.are_none:
            # The first number is what others would have taken since: it is asked about again beside the record.
            first, folder = self._at.snapshot(1), self._at.snapshot_dir
            return Questions(read=(self._at.latest_hint,), size=(first,), names=(folder,))
        if self._newest is None:
            return Questions(read=(self._at.latest_hint,))
        known = self._newest[1].id
        return Questions(read=(self._at.snapshot(known),), size=(self._at.snapshot(known + 1),))

    def questions_of_settling(self, snapshot_id: int, *, hint: bool) -> Questions:
        """What is asked when this snapshot was created: what is before it, and where the hint points if it is moved."""
        before = (self._at.snapshot(snapshot_id - 1),) if snapshot_id > 1 else ()
        moves = hint and self._moved_to != snapshot_id - 1
        return Questions(read=(*before, *((self._at.latest_hint,) if moves else ())))

    def _known_newest(self) -> tuple[int, bytes] | None:
        """Number and bytes of the newest snapshot of the last look-up, which mostly is the newest still; else None."""
        return self._if_last(self._newest[1].id) if self._newest is not None else None

    def _hinted_newest(self) -> tuple[int, bytes] | None:
        """Number and bytes of the snapshot that the hint names, if that is the newest one."""
        hint = self._hint(self._at.latest_hint)
        if hint is None:
            return None
        with self._io.asking(Questions(read=(self._at.snapshot(hint),), size=(self._at.snapshot(hint + 1),))):
            return self._if_last(hint)

    def _listed_newest(self) -> tuple[int, bytes | None] | None:
        """Number and bytes of the last snapshot in the folder's listing; no bytes when it has vanished since."""
        ids = self.ids()
        return (ids[-1], self._bytes(ids[-1])) if ids else None

    def _if_last(self, snapshot_id: int) -> tuple[int, bytes] | None:
        """The snapshot if it is there and the following one is not."""
        data = self._bytes(snapshot_id)
        return (snapshot_id, data) if data is not None and not self.exists(snapshot_id + 1) else None

    def _bytes(self, snapshot_id: int) -> bytes | None:
        try:
            return self._io.read(self._at.snapshot(snapshot_id))
        except FileNotFoundError:
            return None

    def path(self, snapshot_id: int) -> str:
        """Path of the snapshot's file, for messages."""
        return self._at.snapshot(snapshot_id)

    def _hint(self, path: str) -> int | None:
        try:
            text = self._io.read(path)
        except FileNotFoundError:
            return None
        return int(text) if text.isdigit() and int(text) > 0 else None


def _decode(data: bytes, path: str, snapshot_id: int) -> Snapshot:
    snapshot = Snapshot.from_json(data, path)
    if snapshot.id != snapshot_id:
        raise Corrupt(
            f"{path}: it says it is snapshot {snapshot.id}; restore it {shell.restore(path)}", kind="snapshot.id"
        )
    return snapshot
