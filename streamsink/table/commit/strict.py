"""Paimon's strict mode: a commit fails if another user compacted or overwrote its partitions since a safe snapshot."""

from streamsink import shell
from streamsink.errors import Conflict, Misuse
from streamsink.format.snapshot import APPEND, COMPACT, OVERWRITE, Snapshot
from streamsink.table.commit.changes import Changes
from streamsink.table.table import Table

OPTION = "commit.strict-mode.last-safe-snapshot"


class StrictMode:
    """Checks every snapshot of other users once. It does nothing unless the table sets the option."""

    def __init__(self, table: Table):
        self._table = table
        self._safe: int | None = None

    def check(self, commit_user: str, kind: str, changes: Changes, newest: Snapshot | None) -> None:
        """Raises Conflict ``commit.strict-mode`` when a snapshot after the safe one contradicts these changes."""
        given = self._table.known_schema.options.get(OPTION)
        if given is None or newest is None:
            return
        safe = _number(self._table.root, given) if self._safe is None else self._safe
        for snapshot_id in range(max(safe, 0) + 1, newest.id + 1):
            snapshot = self._table.snapshots.load(snapshot_id)
            if snapshot is None:
                raise Conflict(
                    f"{OPTION} is {given}, but snapshot {snapshot_id} has expired, so what it did cannot be checked; "
                    "set the option to a newer snapshot that is known to be safe "
                    f"{shell.set_option(self._table.root, OPTION)}",
                    kind="commit.strict-mode",
                )
            if snapshot.commit_user != commit_user and self._touches(snapshot, kind, changes):
                raise Conflict(
                    f"snapshot {snapshot_id} is a {snapshot.commit_kind} of another user, '{snapshot.commit_user}', on "
                    f"the same partition, and {OPTION} is {given}. See what it did, then set the option to its number "
                    f"{shell.set_option(self._table.root, OPTION)}",
                    kind="commit.strict-mode",
                )

    def move_to(self, snapshot_id: int) -> None:
        """Note that everything up to this snapshot of ours, including it, has been checked."""
        self._safe = snapshot_id

    def _touches(self, snapshot: Snapshot, kind: str, changes: Changes) -> bool:
        manifests, partitions = self._table.manifests, changes.partitions
        if snapshot.commit_kind not in (COMPACT, OVERWRITE) and (snapshot.commit_kind, kind) != (APPEND, OVERWRITE):
            return False
        entries = [e for meta in manifests.delta_of(snapshot) for e in manifests.read(meta.file_name, partitions)]
        if snapshot.commit_kind == APPEND:
            return any(e.total_buckets > 0 for e in entries)  # an append matters only where a bucket has one writer
        return bool(entries) or self._changes_index(snapshot, partitions)

    def _changes_index(self, snapshot: Snapshot, partitions: frozenset[bytes]) -> bool:
        before = self._table.snapshots.load(snapshot.id - 1)
        if snapshot.index_manifest is None or (before and before.index_manifest == snapshot.index_manifest):
            return False
        return any(entry.partition in partitions for entry in self._table.manifests.index_of(snapshot))


def check_option(table: Table) -> None:
    """Raises Misuse ``option.value`` when the table's option is not a number."""
    given = table.known_schema.options.get(OPTION)
    if given is not None:
        _number(table.root, given)


def _number(table: str, text: str) -> int:
    try:
        return int(text.strip())
    except ValueError as wrong:
        raise Misuse(
            f"{table}: table option {OPTION} is {text!r}, expected the number of a snapshot", kind="option.value"
        ) from wrong
