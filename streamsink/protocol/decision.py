"""What is to be done with a micro-batch, and the checkpoint that is then written of it."""

from dataclasses import dataclass, field
from enum import Enum

from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import Offsets
from streamsink.protocol.recorded import Recorded


class Verdict(Enum):
    """NEW: write all rows. FILTER: write the rows beyond ``below``. SEEN: record it without rows. SKIP: change nothing."""

    NEW = "new"
    FILTER = "filter"
    SEEN = "seen"
    SKIP = "skip"


@dataclass(frozen=True)
class Decision:
    """What to do with a batch. recorded: positions once it is published.

    below: the first new offset of each topic and partition, for every source that reads it (FILTER only).
    seen_files: paths of the files whose rows are not to be written (FILTER over files only). replaying: for the state.
    forgets_files: the files of earlier records do not count any more. same: the token for this query when it changes (FILTER over
    files under another checkpoint). counts_rows: the rows of this bounded run are to be counted, and the run admitted again.
    compares_rows: the rows of this bounded run are to be compared with the published ones, and the run admitted again.
    leads_on: the earlier name of the query under which the batches before it are recorded, and its last record there.
    """

    verdict: Verdict
    reason: str
    generation: int = 0
    recorded: Recorded = field(default_factory=Recorded)
    below: Offsets = field(default_factory=dict)
    seen_files: frozenset[str] = frozenset()
    replaying: bool = False
    forgets_files: bool = False
    same: str | None = None
    counts_rows: bool = False
    compares_rows: bool = False
    leads_on: tuple[str, int] | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is being written. ``staging``: absolute folder of its files; ``sequence``: its record's number.

    begun_ms: on the monotonic clock.
    """

    batch: Batch
    decision: Decision
    sequence: int
    staging: str
    begun_ms: float
