"""What a restart looks up once for all the records that it publishes or marks, however many they are. Driver only."""

import functools
import os
from collections.abc import Iterator, Sequence

from streamsink.errors import Corrupt
from streamsink.format.manifest import Identity, ManifestEntry
from streamsink.format.snapshot import APPEND
from streamsink.protocol.committable import Committable
from streamsink.sinks.records import read_staged, staged_manifests
from streamsink.table import leftovers
from streamsink.table.presence import Presence
from streamsink.table.table import Table

# Entries of manifests that are kept between looking for their files and publishing them: some 10 MiB.
_MOST_ENTRIES = 5_000


class Restoring:
    """Of one table; both are looked up when they are first needed."""

    def __init__(self, table: Table, records: Sequence[Committable], entries: dict[str, list[ManifestEntry]]):
        """entries: by name, of manifests that are not published: what is read is put in, to be taken out by who publishes."""
        self._table = table
        self._records = records
        self._entries = entries
        self._sweeps = 0

    def is_first_sweep(self) -> bool:
        """True once."""
        self._sweeps += 1
        return self._sweeps == 1

    def is_last(self, committable: Committable) -> bool:
        """Whether no record is published after it."""
        return committable.state.sequence == self._records[-1].state.sequence

    @functools.cached_property
    def presence(self) -> Presence:
        """Tells which of the records' files are in the table. Reads each record's manifest, which need not be read again then."""
        return Presence(self._table.manifests, known=dict(self._identities()))

    @functools.cached_property
    def left(self) -> leftovers.Found:
        """What tries to publish these records left. Their writers are dead or fenced, so there will be no more; the tries that
        this process makes meanwhile remove what they leave.
        """
        return leftovers.look(self._table, (committable.state.record_id for committable in self._records))

    def _identities(self) -> Iterator[tuple[str, list[Identity]]]:
        """By manifest."""
        for committable in (c for c in self._records if c.payload["kind"] == APPEND):
            for manifest in staged_manifests(committable):
                try:
                    entries = read_staged(self._table, manifest)
                except (FileNotFoundError, Corrupt):
                    continue  # publishing this record says so; until then those before it are published
                name = os.path.basename(manifest["final"])
                if sum(map(len, self._entries.values())) + len(entries) <= _MOST_ENTRIES:
                    self._entries[name] = entries
                yield name, [entry.identity for entry in entries]
