"""What a query reads, and Spark's two logs of it: a topic of some partitions, a folder of files, and checkpoints of both."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import SourceFile, SourceRange

TOPIC = "orders"
EARLIEST = -2


@dataclass
class Planned:
    """A batch in Spark's offset log. end: next offset of each partition, or how many batches of files there are with it.

    files: of a folder, those that this batch reads.
    """

    end: dict | int
    files: tuple[str, ...] = ()


@dataclass
class Checkpoint:
    """What Spark keeps of a query. given: startingOffsets. start: where a topic's first batch begins, None until Spark has planned it.

    committed: batches in the commit log.
    """

    query: str
    given: dict | None = None
    start: dict | None = None
    planned: list[Planned] = field(default_factory=list)
    committed: int = 0

    def copy(self) -> "Checkpoint":
        return replace(self, planned=list(self.planned))

    @property
    def is_begun(self) -> bool:
        """Whether it is written down where the first batch begins."""
        return self.start is not None

    def begin(self, start: dict) -> None:
        """The first batch is planned. Spark writes down where it begins at its first look; what is lost then nobody else can know."""
        if not self.is_begun:
            self.start = start

    def truncate(self, batch_id: int) -> None:
        """Both logs forget this batch and what came after it."""
        del self.planned[batch_id:]
        self.committed = min(self.committed, batch_id)

    def before(self, batch_id: int):
        """The position at which a batch begins."""
        return self.planned[batch_id - 1].end if batch_id else self.start


class Topic:
    """Numbered rows in partitions. earliest: the first offset that retention has left."""

    numeric = True
    name = TOPIC

    def __init__(self, cluster: str, topic_id: str):
        self.cluster, self.topic_id = cluster, topic_id
        self.parts: dict[str, list[int]] = {"0": []}
        self.earliest: dict[str, int] = {"0": 0}

    def add_partition(self) -> None:
        name = str(len(self.parts))
        self.parts[name], self.earliest[name] = [], 0

    def recreate(self, cluster: str, topic_id: str) -> list[int]:
        """Another topic under this name; the rows of the one before."""
        before = self.all_rows()
        self.cluster, self.topic_id = cluster, topic_id
        self.parts, self.earliest = {name: [] for name in self.parts}, dict.fromkeys(self.parts, 0)
        return before

    def produce(self, ids: list[int], where: int) -> None:
        names = list(self.parts)
        for number, row in enumerate(ids):
            self.parts[names[(where + number) % len(names)]].append(row)

    def expire(self, keep: int) -> list[int]:
        """Retention leaves the newest ``keep`` rows of each partition; the rows that went."""
        gone = []
        for name, rows in self.parts.items():
            first = max(self.earliest[name], len(rows) - keep)
            gone += rows[self.earliest[name]:first]
            self.earliest[name] = first
        return gone

    def begin(self, given: dict | None = None) -> dict:
        """Where a new checkpoint starts: at the beginning, or where ``startingOffsets`` says."""
        offsets = (given or {}).get(self.name, {})
        return {
            name: self.earliest[name] if offsets.get(name, EARLIEST) == EARLIEST else offsets[name] for name in self.parts
        }

    def before(self, given: dict) -> list[int]:
        """Rows that a checkpoint with these startingOffsets does not read."""
        return [row for name, offset in self.begin(given).items() for row in self.parts[name][:offset]]

    def plan(self, checkpoint: Checkpoint, most: int) -> Planned | None:
        """The next batch, of at most so many rows a partition; None when nothing is new."""
        start = self._before(checkpoint, len(checkpoint.planned))
        end = dict(start)
        for name, rows in self.parts.items():
            at = start.get(name, 0)
            end[name] = min(len(rows), at + most)  # below its start, when it is another topic and failOnDataLoss is false
        if end == start:
            return None
        checkpoint.begin(start)
        return Planned(end)

    def _before(self, checkpoint: Checkpoint, batch_id: int) -> dict:
        start = checkpoint.before(batch_id)
        return self.begin(checkpoint.given) if start is None else start

    def offsets(self, checkpoint: Checkpoint, batch_id: int) -> list[tuple[str, int, int]]:
        """(partition, offset, row) of the batch, as far as retention has left them."""
        start, end = checkpoint.before(batch_id), checkpoint.planned[batch_id].end
        return [
            (name, offset, self.parts[name][offset]) for name in end if name in self.parts
            for offset in range(max(start.get(name, 0), self.earliest[name]), min(end[name], len(self.parts[name])))
        ]

    def rows(self, checkpoint: Checkpoint, batch_id: int) -> list[int]:
        return [row for _, _, row in self.offsets(checkpoint, batch_id)]

    def rows_before(self, checkpoint: Checkpoint) -> list[int]:
        """Rows that the checkpoint will not read any more."""
        start = self._before(checkpoint, checkpoint.committed)
        return [row for name, rows in self.parts.items() for row in rows[self.earliest[name]:start.get(name, 0)]]

    def range_of(self, checkpoint: Checkpoint, batch_id: int) -> SourceRange:
        """As Spark's offset log says it, with what the broker says now."""
        start, end = checkpoint.before(batch_id), checkpoint.planned[batch_id].end
        newest = {name: len(rows) for name, rows in self.parts.items()}
        return SourceRange(
            {self.name: dict(start)}, {self.name: dict(end)}, cluster=self.cluster, topic_ids={self.name: self.topic_id}, earliest={self.name: dict(self.earliest)}, newest={self.name: newest},
        )

    def put_back(self) -> None:
        """Nothing of it is set aside."""

    def hides(self) -> bool:
        return False

    def behind(self, is_done: Callable[[int], bool]) -> dict:
        """startingOffsets of what is not done yet."""
        first = {
            name: next((at for at, row in enumerate(rows) if at >= self.earliest[name] and not is_done(row)), len(rows))
            for name, rows in self.parts.items()
        }
        return {self.name: first}

    def all_rows(self) -> list[int]:
        return [row for rows in self.parts.values() for row in rows]

    def partitions(self) -> dict[str, int]:
        return {self.name: len(self.parts)}


class Folder:
    """Files of rows. Spark reads those that its checkpoint has not seen. hidden: set aside by the operator.

    tells: whether the source's log names its files; else it is any source whose position means nothing outside of its checkpoint.
    """

    numeric = False
    topic_id = ""

    def __init__(self, tells: bool):
        self.files: dict[str, list[int]] = {}
        self.hidden: set[str] = set()
        self.tells = tells

    def produce(self, ids: list[int], where: int) -> None:
        """One or two files."""
        cut = where % (len(ids) + 1)
        for part in (ids[:cut], ids[cut:]):
            if part:
                self.files[f"file-{part[0]:04}"] = part

    def behind(self, is_done: Callable[[int], bool]) -> dict:
        """What is done is moved away for good."""
        self.files = {name: rows for name, rows in self.files.items() if not all(map(is_done, rows))}
        return {}

    def all_rows(self) -> list[int]:
        return [row for rows in self.files.values() for row in rows]

    def hides(self) -> bool:
        return bool(self.hidden)

    def set_aside(self, stays: Callable[[int], bool]) -> bool:
        """Files of which no row stays are moved away for a while. Whether there are others than were moved away already."""
        before, self.hidden = self.hidden, {name for name, rows in self.files.items() if not any(map(stays, rows))}
        return not self.hidden <= before

    def put_back(self) -> None:
        """What the operator has set aside comes back."""
        self.hidden.clear()

    def begin(self, given: dict | None = None) -> dict:
        return {}

    def plan(self, checkpoint: Checkpoint, most: int) -> Planned | None:
        seen = {name for planned in checkpoint.planned for name in planned.files}
        fresh = [name for name in self.files if name not in seen and name not in self.hidden]
        return Planned(len(checkpoint.planned), tuple(fresh[:most])) if fresh else None

    def rows(self, checkpoint: Checkpoint, batch_id: int) -> list[int]:
        return [row for name in checkpoint.planned[batch_id].files for row in self.files.get(name, ())]

    def rows_before(self, checkpoint: Checkpoint) -> list[int]:
        return [row for planned in checkpoint.planned[:checkpoint.committed] for name in planned.files for row in self.files.get(name, ())]

    def range_of(self, checkpoint: Checkpoint, batch_id: int) -> SourceRange:
        planned = checkpoint.planned[batch_id]
        start = {"logOffset": batch_id - 1} if batch_id else None
        digest = hashlib.sha256("|".join(planned.files).encode()).hexdigest()[:32]
        files = tuple(SourceFile(self.path(name), 1) for name in planned.files) if self.tells else None
        return SourceRange(start, {"logOffset": planned.end}, digest, files=files)

    @staticmethod
    def path(name: str) -> str:
        return f"memory:/in/{name}"

    def rows_of_others(self, checkpoint: Checkpoint, batch_id: int, seen: frozenset[str]) -> list[int]:
        """Rows of the batch's files but for these."""
        names = [name for name in checkpoint.planned[batch_id].files if self.path(name) not in seen]
        return [row for name in names for row in self.files.get(name, ())]


def batch_of(source, checkpoint: Checkpoint, batch_id: int, run: str, fingerprint) -> Batch:
    """The micro-batch as Spark would describe it."""
    return Batch(batch_id, checkpoint.query, run, (source.range_of(checkpoint, batch_id),), fingerprint=fingerprint)
