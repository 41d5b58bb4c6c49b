"""Which files of pending records are in the table already, by snapshots that others' have replaced. Driver only."""

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamsink.errors import Corrupt
from streamsink.events import log
from streamsink.format.manifest import Identity, ManifestEntry
from streamsink.format.snapshot import APPEND
from streamsink.protocol.committable import Committable, StagedFile
from streamsink.sinks.paimon.past.records import read_staged, staged_manifests, state_alone
from streamsink.storage.reading import Questions
from streamsink.table.history import leftovers
from streamsink.table.history.lineage import named_since
from streamsink.table.history.presence import Presence
from streamsink.table.table import Table

# Entries of manifests that are kept between looking for their files and publishing them: some 10 MiB.
_MOST_ENTRIES = 5_000
# So many manifests are read at once, and so many bytes of them, unless one alone has more.
_LOOKED_UP = 256
_READ_BYTES = 16 * 2**20


class PendingFiles:
    """The files of the records of one restart. Each look at the table is made once, on first use."""

    def __init__(self, table: Table, records: Sequence[Committable], entries: dict[str, list[ManifestEntry]]):
        """entries: as of ``Restart``."""
        self._table = table
        self._records = records
        self._entries = entries

    @functools.cached_property
    def presence(self) -> Presence:
        """Tells which of the records' files are in the table.

        Reads each record's manifest, which need not be read again then.
        """
        return Presence(self._table.manifests, known=self.added)

    def unpublished(self, committable: Committable) -> Committable:
        """What of the record is to be published: without the files that are in the table already although its state
        does not say so.

        Another writer's rename has replaced the snapshot that said so, and a third one had built on it before.
        """
        payloads = committable.payload.get("joined", [committable.payload])
        kept = [
            p
            for p in payloads
            if p["manifest"] is None or os.path.basename(p["manifest"]["final"]) not in self._in_the_table
        ]
        if len(kept) == len(payloads):
            return committable
        log.warning(
            "%s: rows of record %d are in the table, by a snapshot that another writer's replaced: its state is "
            "published again",
            self._table.root,
            committable.state.sequence,
        )
        published = {f.final for name, mine in self._in_the_table.items() for f in mine}
        files = tuple(f for f in committable.files if f.final not in published)
        if not kept:
            return state_alone(committable, held=True)
        held = [
            *committable.payload.get("held", ()),
            *(file.final for file in committable.files if file.final in published),
        ]
        return replace(committable, files=files, payload={"kind": APPEND, "joined": kept, "held": held, "alone": True})

    @functools.cached_property
    def _in_the_table(self) -> Mapping[str, Sequence[StagedFile]]:
        """By manifest, the files of the records that are there, live or rewritten since, as of the first look."""
        wanted = {identity for added in self.added.values() for identity in added}
        bases = [c.payload["base"] for c in self._records if c.payload.get("base") is not None]
        newest = self._table.snapshots.last_seen()  # the plan of the restart has just looked
        seen = self.presence.live(wanted, newest) if wanted else set()
        if wanted - seen and bases and newest is not None and newest.id > min(bases):
            seen |= named_since(self._table, min(bases), wanted - seen)
        files = {os.path.basename(m["final"]): c.files for c in self._records for m in staged_manifests(c)}
        found = {name: files[name] for name, added in self.added.items() if seen.issuperset(added)}
        found |= {name: files[name] for name in files.keys() - self.added.keys() if self._outlived(files[name])}
        return found

    def _outlived(self, files: Sequence[StagedFile]) -> bool:
        """Whether these data files of a record are in the table without the record's manifest.

        That happens when the manifest was merged into another one and has expired.
        """
        names, newest = {os.path.basename(file.final) for file in files}, self._table.snapshots.latest()
        if not names or newest is None:
            return False
        return names <= {entry.file.file_name for entry in self._table.manifests.entries_of(newest)}

    @functools.cached_property
    def added(self) -> Mapping[str, Sequence[Identity]]:
        """By manifest, what the records add."""
        return dict(self._identities())

    @functools.cached_property
    def left_behind(self) -> leftovers.Found:
        """What dead tries to publish the records have left."""
        return leftovers.look(self._table, (committable.state.record_id for committable in self._records))

    def _identities(self) -> Iterator[tuple[str, list[Identity]]]:
        """By manifest."""
        appended = (c for c in self._records if c.payload["kind"] == APPEND)
        every = [manifest for committable in appended for manifest in staged_manifests(committable)]
        layout = self._table.layout
        folders: tuple[str, ...] = (layout.manifest_dir, layout.snapshot_dir)
        for some in _lots(every):
            read, folders_now = tuple(layout.within(manifest["final"]) for manifest in some), folders
            folders = ()
            with self._table.file_io.asking(Questions(read=read, names=folders_now)):
                _ = self.left_behind  # before this process writes into these folders
                yield from self._identities_of(some)

    def _identities_of(self, manifests: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Identity]]]:
        for manifest in manifests:
            try:
                entries = read_staged(self._table, manifest)
            except (FileNotFoundError, Corrupt):
                continue  # publishing this record says so; until then those before it are published
            name = os.path.basename(manifest["final"])
            if sum(map(len, self._entries.values())) + len(entries) <= _MOST_ENTRIES:
                self._entries[name] = entries
            yield name, [entry.identity for entry in entries]


def _lots(manifests: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """The manifests, in order, in lots that are read at once."""
    lot: list[Mapping[str, Any]] = []
    for manifest in manifests:
        if lot and (len(lot) == _LOOKED_UP or sum(m["size"] for m in lot) + manifest["size"] > _READ_BYTES):
            yield lot
            lot = []
        lot.append(manifest)
    if lot:
        yield lot
