"""Where a job keeps its table, its checkpoint and Spark's log."""

import json
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """Absolute paths.
    The checkpoint stands beside the warehouse, so that nobody deletes one by accident with the other."""

    table: Path
    checkpoint: Path
    log: Path

    @classmethod
    def of(cls, warehouse: str, name: str) -> "Places":
        """name: ``shop.db/orders``."""
        root = Path(warehouse).absolute()
        checkpoint = root.parent / "ckpt" / root.name / name
        return cls(root / name, checkpoint, checkpoint.with_name(checkpoint.name + ".spark.log"))

    def newest_batch(self) -> int | None:
        """The newest batch that Spark has planned.
        Its offset log, written before the batch runs, is the source's own account."""
        folder = self.checkpoint / "offsets"
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) for name in names if re.fullmatch("[0-9]+", name)), default=None)

    def planned_end(self, batch_id: int | None) -> dict:
        """Where that batch ends, as its only source says; empty when there is none."""
        if batch_id is None:
            return {}
        return json.loads((self.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[2])
