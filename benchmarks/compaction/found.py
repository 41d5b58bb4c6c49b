"""What the measurements of compaction have in common: counts of files, times of reads, and the account of a thread."""

import time
from dataclasses import dataclass, field

import streamsink
from streamsink.compaction.compactor import Totals
from streamsink.events import Compacted
from streamsink.format.manifest import ManifestEntry
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table

WITHOUT, WITH = "streamsink", "streamsink, compaction=True"
_READS = 5


def live(root: str) -> list[ManifestEntry]:
    """The entries of the newest snapshot's files."""
    table = open_table(local_file_io(), root, for_writing=False)
    newest = table.snapshots.latest()
    return list(table.manifests.entries_of(newest)) if newest is not None else []


def read_ms(root: str) -> list[float]:
    """ms of each of some reads of one column of all files, which each read opens."""
    took = []
    for _ in range(_READS):
        begun = time.perf_counter()
        streamsink.read_arrow(root, columns=["id"])
        took.append((time.perf_counter() - begun) * 1000)
    return took


@dataclass
class Found:
    """What was seen of one table.

    live: number of files, each time when they were counted. read_ms: as ``read_ms``. totals, rounds: of the compaction
    beside.
    """

    way: str
    live: list[int] = field(default_factory=list)
    read_ms: list[float] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    rounds: int = 0

    def tell(self, root: str, done: Totals, elapsed_ms: float) -> None:
        """Add a round of the thread."""
        self._add(done, len(done.snapshots))

    def listen(self, event: object) -> None:
        """Add a round that a query tells."""
        if isinstance(event, Compacted):
            self._add(event, event.snapshots)

    def _add(self, done, snapshots: int) -> None:
        totals = self.totals
        totals.bytes_before += done.bytes_before
        totals.bytes_after += done.bytes_after
        totals.files_before += done.files_before
        totals.files_after += done.files_after
        totals.conflicts += done.conflicts
        totals.bytes_lost += done.bytes_lost
        totals.snapshots += [0] * snapshots
        self.rounds += 1

    @property
    def lost(self) -> float:
        """The share of the bytes that were written in vain."""
        written = self.totals.bytes_after + self.totals.bytes_lost
        return self.totals.bytes_lost / written if written else 0.0

    def said(self, came: int) -> str:
        """In a sentence, what the compaction did with so many bytes that came."""
        totals = self.totals
        return (
            f"Bytes written again for each byte that came: {totals.bytes_before / came:.2f}; of these in vain: "
            f"{self.lost:.1%} ({totals.conflicts} conflicts); in {len(totals.snapshots)} snapshots."
        )
