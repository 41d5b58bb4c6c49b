"""What is to be done with a micro-batch, and the checkpoint that is then written for it."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import Offsets
from streamsink.protocol.recorded import Recorded


class Verdict(Enum):
    """NEW: write all rows. FILTER: write the new rows only.
    SEEN: record the batch without rows. SKIP: change nothing.
    """

    NEW = "new"
    FILTER = "filter"
    SEEN = "seen"
    SKIP = "skip"


@dataclass(frozen=True)
class Decision:
    """What to do with a batch, and what its record will say.

    generation: as in ``Writer.commit_user``. recorded: the recorded positions once the batch is published.
    below: the first new offset of each topic and partition, for every source that reads it (FILTER by positions only).
    seen_files: paths of the files whose rows are not to be written (FILTER by files only).
    replaying: becomes ``AppState.replaying``.
    forgets_files: the files of earlier records do not count any more.
    same: the token with which the user says that a changed query is the same (FILTER by files under another
    checkpoint).
    counts_rows: the rows of this bounded run are to be counted, and the run admitted again.
    compares_rows: the rows of this bounded run are to be compared with the published ones, and the run admitted again.
    leads_on: the earlier name of the query under which the batches before it are recorded, and the number of its last
    record there.
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

    def told(self, batch: Batch) -> dict[str, Any]:
        """The decision on this batch, as fields of ``BatchAdmitted``."""
        return {
            "verdict": self.verdict.value,
            "watermark_ms": batch.watermark_ms,
            "planned_ms": batch.planned_ms,
            "query": batch.query,
            "run": batch.run,
            "sources": batch.sources,
        }

    def left_out(self, batch: Batch) -> dict[str, int]:
        """How many offsets and files of the batch are not written, as fields of ``BatchFiltered``.

        A partition counts where Spark says at which offset the batch begins there.
        """
        offsets = 0
        for source in batch.sources if self.below else ():
            for topic, part, end in source.ends():
                first, new = source.first(topic, part), self.below.get(topic, {}).get(part)
                if first is not None and new is not None:
                    offsets += max(min(new, end) - first, 0)
        files = sum(file.path in self.seen_files for source in batch.sources for file in source.files or ())
        return {"offsets": offsets, "files": files}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is being written.

    sequence: number of its record. staging: absolute path of the folder of its files. begun_ms: on the monotonic clock.
    attempt: id of the record that it is to get; never given twice. is_small: its rows are few, and this driver alone
    writes them.
    """

    batch: Batch
    decision: Decision
    sequence: int
    staging: str
    begun_ms: float
    attempt: str = ""
    is_small: bool = False
