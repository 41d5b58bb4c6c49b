"""Spark's two logs of a query, and offsets in the form that Spark writes and in the form that walks use."""

from dataclasses import dataclass, field, replace

EARLIEST = -2


@dataclass
class Planned:
    """A batch in Spark's offset log. end: the next offset of each partition, or how many batches of files there are
    including this one.

    files: of a folder, the files that this batch reads. at_ms: when it was planned; 0 where Spark does not say it.
    """

    end: dict | int
    files: tuple[str, ...] = ()
    at_ms: int = 0


@dataclass
class Checkpoint:
    """What Spark keeps of a query. given: startingOffsets. start: where a topic's first batch begins; None until Spark
    has planned it.

    committed: how many batches are in the commit log.
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
        """Whether the beginning of the first batch is written down."""
        return self.start is not None

    def begin(self, start: dict) -> None:
        """Plan the first batch.
        Spark writes down where it begins when it first looks; nobody else can know what is lost after that."""
        if not self.is_begun:
            self.start = start

    def truncate(self, batch_id: int) -> None:
        """Let both logs forget this batch and what came after it."""
        del self.planned[batch_id:]
        self.committed = min(self.committed, batch_id)

    def before(self, batch_id: int):
        """The position at which a batch begins."""
        return self.planned[batch_id - 1].end if batch_id else self.start


def flat(offsets: dict) -> dict[str, int]:
    """{"orders": {"0": 7}} as {"orders/0": 7}."""
    return {f"{topic}/{part}": at for topic, parts in offsets.items() for part, at in parts.items()}


def nested(offsets: dict[str, int]) -> dict[str, dict[str, int]]:
    """{"orders/0": 7} as {"orders": {"0": 7}}."""
    found: dict[str, dict[str, int]] = {}
    for name, at in offsets.items():
        topic, part = name.split("/")
        found.setdefault(topic, {})[part] = at
    return found
