"""What a restart looks up once for all the records that it publishes or marks, however many they are. Driver only."""

import functools
from collections.abc import Iterator, Sequence

from streamsink.errors import Corrupt
from streamsink.format.manifest import Identity
from streamsink.format.snapshot import APPEND
from streamsink.protocol.committable import Committable
from streamsink.sinks.records import read_staged, staged_manifests
from streamsink.table import leftovers
from streamsink.table.presence import Presence
from streamsink.table.table import Table


class Restoring:
    """Of one table; both are looked up when they are first needed."""

    def __init__(self, table: Table, records: Sequence[Committable]):
        self._table = table
        self._records = records

    @functools.cached_property
    def presence(self) -> Presence:
        """Tells which of the records' files are in the table."""
        return Presence(self._table.manifests, self._identities())

    @functools.cached_property
    def left(self) -> leftovers.Found:
        """What tries to publish these records left. Their writers are dead or fenced, so there will be no more; the tries that
        this process makes meanwhile remove what they leave.
        """
        return leftovers.look(self._table, (committable.state.record_id for committable in self._records))

    def _identities(self) -> Iterator[Identity]:
        for committable in (c for c in self._records if c.payload["kind"] == APPEND):
            for manifest in staged_manifests(committable):
                try:
                    entries = read_staged(self._table, manifest)
                except (FileNotFoundError, Corrupt):
                    continue  # publishing this record says so; until then those before it are published
                yield from (entry.identity for entry in entries)
