"""Where a job keeps its table, its checkpoint and Spark's log."""

import json
import re
from dataclasses import dataclass
from pathlib import Path


def is_uri(warehouse: str) -> bool:
    return "://" in warehouse


@dataclass(frozen=True)
class Places:
    """Absolute paths, or URIs of a store.
    The checkpoint stands beside the warehouse, so that nobody deletes one by accident with the other.

    log: on this machine's disk, also when the other two are not. A driver on another machine needs none of what is
    there. page: of the report, beside it."""

    table: str
    checkpoint: str
    log: Path
    page: Path

    @classmethod
    def of(cls, warehouse: str, name: str) -> "Places":
        """warehouse: a folder, or ``s3a://bucket/lake``. name: ``shop.db/orders``."""
        root = warehouse.rstrip("/") if is_uri(warehouse) else str(Path(warehouse).absolute())
        above, _, last = root.rpartition("/")
        checkpoint = f"{above}/ckpt/{last}/{name}"
        beside = Path(name).name if is_uri(root) else checkpoint
        log, page = (Path(f"{beside}.{what}").absolute() for what in ("spark.log", "report.html"))
        return cls(f"{root}/{name}", checkpoint, log, page)

    def newest_batch(self) -> int | None:
        """The newest batch that Spark has planned.
        Its offset log, written before the batch runs, is the source's own account."""
        folder = Path(self.checkpoint, "offsets")
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) for name in names if re.fullmatch("[0-9]+", name)), default=None)

    def planned_end(self, batch_id: int | None) -> dict:
        """Where that batch ends, as its only source says; empty when there is none."""
        if batch_id is None:
            return {}
        return json.loads(Path(self.checkpoint, "offsets", str(batch_id)).read_text().splitlines()[2])
