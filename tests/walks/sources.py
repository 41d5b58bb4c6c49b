"""What a query reads: a topic of some partitions, or a folder of files."""

import hashlib
from collections.abc import Callable, Sequence

from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import SourceFile, SourceRange
from tests.walks.checkpoints import EARLIEST, Checkpoint, Planned, flat, nested

TOPICS = ("orders", "refunds")


class Topic:
    """Numbered rows in the partitions of a topic, or of two topics that one query reads; "orders/0" is a partition.

    earliest: what retention has left. apart: each topic is a source of its own. tells: whether the broker tells the ids
    of clusters and topics; tells_cluster: whether it tells the cluster's id alone; was_silent: whether at some time it
    did not tell all. always_tells_cluster: it tells the cluster's id at all times. former: of topics that were deleted,
    how far each partition went; perhaps nobody can tell that they were other topics.
    """

    numeric = True
    reads_again = False

    def __init__(
        self,
        new_id: Callable[[], str],
        names: Sequence[str] = TOPICS[:1],
        apart: bool = False,
        tells: bool = True,
        tells_cluster: bool = False,
    ):
        self.cluster, self.ids = new_id(), {name: new_id() for name in names}
        self.apart, self.tells, self.tells_cluster, self.was_silent = apart, tells, tells_cluster, not tells
        self.always_tells_cluster = tells_cluster
        self.parts: dict[str, list[int]] = {f"{name}/0": [] for name in self.ids}
        self.earliest: dict[str, int] = dict.fromkeys(self.parts, 0)
        self.former: dict[str, int] = {}
        self._by_cluster: dict[str, int] = {}  # those of which the cluster's id tells, as long as it is told

    @property
    def topic_id(self) -> str:
        """The id of all its topics together."""
        return " ".join(self.ids.values())

    def add_partition(self, number: int = 0) -> None:
        topic = list(self.ids)[number % len(self.ids)]
        name = f"{topic}/{self.partitions()[topic]}"
        self.parts[name], self.earliest[name] = [], 0

    def recreate(self, number: int, new_id: Callable[[], str], elsewhere: bool) -> list[int]:
        """Put another topic under the name of one; elsewhere: put others under all names, in another cluster.
        Returns the rows of the topics before."""
        anew = list(self.ids) if elsewhere else [list(self.ids)[number % len(self.ids)]]
        self.former |= {
            name: max(len(rows), self.former.get(name, 0))
            for name, rows in self.parts.items()
            if name.split("/")[0] in anew
        }
        if elsewhere:
            self.cluster = new_id()
            if self.always_tells_cluster:
                self.former, self._by_cluster = {}, self.former
        self.ids |= {topic: new_id() for topic in anew}
        gone = []
        for name in self.parts:
            if name.split("/")[0] in anew:
                gone += self.parts[name]
                self.parts[name], self.earliest[name] = [], 0
        return gone

    def leave(self) -> list[int]:
        """Stop reading the last topic. Returns its rows."""
        topic = list(self.ids)[-1]
        names = [name for name in self.parts if name.split("/")[0] == topic]
        del self.ids[topic]
        for name in names:
            del self.earliest[name]
            self.former.pop(name, None)
        return [row for name in names for row in self.parts.pop(name)]

    def tell(self, ids: bool, cluster: bool) -> list[int]:
        """From now on the broker tells the ids, or does not, or tells the cluster's alone. Returns rows of which some
        may have been read from another topic than was known then."""
        self.tells_cluster, self.always_tells_cluster = cluster, False
        if not ids and not cluster:
            self.former, self._by_cluster = {**self._by_cluster, **self.former}, {}
        speaks, self.tells, self.was_silent = ids and not self.tells, ids, self.was_silent or not ids
        return [row for name in self.former for row in self.parts[name]] if speaks else []

    def below_former(self) -> list[int]:
        """Rows at positions that were read from a topic before,
        where perhaps nobody can tell that it was another one."""
        return [row for name, most in self.former.items() for row in self.parts[name][:most]] if self.was_silent else []

    def told(self) -> tuple[str, dict[str, str]]:
        """What the broker tells now: the cluster's id and those of the topics, empty where it does not tell them."""
        return self.cluster if self.tells or self.tells_cluster else "", dict(self.ids) if self.tells else {}

    def read_unseen(self, was: tuple[str, dict[str, str]]) -> list[int]:
        """Rows that a batch may have read of another topic than it was planned for. was: what was told then."""
        (cluster, ids), (found, found_ids) = was, self.told()
        has_moved = cluster and found and cluster != found
        return [] if has_moved or ids and found_ids else self.below_former()

    def produce(self, ids: list[int], where: int) -> None:
        names = list(self.parts)
        for number, row in enumerate(ids):
            self.parts[names[(where + number) % len(names)]].append(row)

    def expire(self, keep: int) -> list[int]:
        """Retention leaves the newest ``keep`` rows of each partition. Returns the deleted rows."""
        gone = []
        for name, rows in self.parts.items():
            first = max(self.earliest[name], len(rows) - keep)
            gone += rows[self.earliest[name] : first]
            self.earliest[name] = first
        return gone

    def begin(self, given: dict | None = None) -> dict:
        """Where a new checkpoint starts: at the beginning, or where ``startingOffsets`` says."""
        offsets = flat(given or {})
        return {
            name: self.earliest[name] if offsets.get(name, EARLIEST) == EARLIEST else offsets[name]
            for name in self.parts
        }

    def before(self, given: dict) -> list[int]:
        """Rows that a checkpoint with these startingOffsets does not read."""
        return self.before_start(self.begin(given))

    def before_start(self, start: dict) -> list[int]:
        """Rows that a checkpoint which begins there does not read."""
        return [row for name, offset in start.items() for row in self.parts[name][:offset]]

    def plan(self, checkpoint: Checkpoint, most: int) -> Planned | None:
        """Plan the next batch, of at most so many rows a partition. None when nothing is new."""
        start = self._before(checkpoint, len(checkpoint.planned))
        end = dict(start)
        for name, rows in self.parts.items():
            at = start.get(name, 0)
            # It is below its start when it is another topic and failOnDataLoss is false.
            end[name] = min(len(rows), at + most)
        if end == start:
            return None
        checkpoint.begin(start)
        return Planned(end)

    def _before(self, checkpoint: Checkpoint, batch_id: int) -> dict:
        start = checkpoint.before(batch_id)
        return self.begin(checkpoint.given) if start is None else start

    def offsets(self, checkpoint: Checkpoint, batch_id: int) -> list[tuple[str, str, int, int]]:
        """(topic, partition, offset, row) of the batch, as far as retention has left them."""
        start, end = checkpoint.before(batch_id), checkpoint.planned[batch_id].end
        return [
            (*name.split("/"), offset, self.parts[name][offset])
            for name in end
            if name in self.parts
            for offset in range(max(start.get(name, 0), self.earliest[name]), min(end[name], len(self.parts[name])))
        ]

    def rows(self, checkpoint: Checkpoint, batch_id: int) -> list[int]:
        return [found[-1] for found in self.offsets(checkpoint, batch_id)]

    def rows_before(self, checkpoint: Checkpoint) -> list[int]:
        """Rows that the checkpoint will not read any more.
        A batch that ends before its start is followed by what comes after its end."""
        start = self._before(checkpoint, checkpoint.committed)
        planned = checkpoint.planned[checkpoint.committed].end if checkpoint.committed < len(checkpoint.planned) else {}
        until = {name: min(at, planned.get(name, at)) for name, at in start.items()}
        return [row for name, rows in self.parts.items() for row in rows[self.earliest[name] : until.get(name, 0)]]

    def ranges(self, checkpoint: Checkpoint, batch_id: int) -> tuple[SourceRange, ...]:
        """The ranges as Spark's offset log says them, with what the broker says now."""
        start, end = nested(checkpoint.before(batch_id)), nested(checkpoint.planned[batch_id].end)
        earliest, newest = nested(self.earliest), nested({name: len(rows) for name, rows in self.parts.items()})

        def of(*topics: str) -> SourceRange:
            start_of, end_of, first, last = (
                {topic: at[topic] for topic in topics if topic in at} for at in (start, end, earliest, newest)
            )
            cluster, told = self.told()
            ids = {topic: told[topic] for topic in topics if topic in told}
            return SourceRange(start_of, end_of, cluster=cluster, topic_ids=ids, earliest=first, newest=last)

        return tuple(map(of, self.ids)) if self.apart else (of(*self.ids),)

    def put_back(self) -> None:
        """Nothing of a topic is ever set aside."""

    def hides(self) -> bool:
        return False

    def behind(self, is_done: Callable[[int], bool]) -> dict:
        """startingOffsets of what is not done yet."""
        return nested(
            {
                name: next(
                    (at for at, row in enumerate(rows) if at >= self.earliest[name] and not is_done(row)), len(rows)
                )
                for name, rows in self.parts.items()
            }
        )

    def all_rows(self) -> list[int]:
        return [row for rows in self.parts.values() for row in rows]

    def by_source(self) -> list[list[str]]:
        """The partitions of each source of the query."""
        return (
            [[name for name in self.parts if name.split("/")[0] == topic] for topic in self.ids]
            if self.apart
            else [list(self.parts)]
        )

    def partitions(self) -> dict[str, int]:
        return {topic: len(parts) for topic, parts in nested(self.earliest).items()}


def drawn(number: int, new_id: Callable[[], str]) -> "Topic | Folder":
    """A source of any kind. A third of them are folders. A few of the topics have another one beside them, or are in a
    cluster that tells no ids, or only its own."""
    if number % 3 == 0:
        return Folder(tells=number % 2 == 0)
    several = number % 7 == 0
    return Topic(
        new_id,
        TOPICS[: 1 + several],
        apart=several and number % 2 == 0,
        tells=number % 11 not in (0, 5),
        tells_cluster=number % 11 == 5,
    )


class Folder:
    """Files of rows. Spark reads those that its checkpoint has not seen.

    hidden: files that the operator has set aside. moved: rows of files that he has moved away for good. tells: whether
    the source's log names its files; if not, it is any source whose position means nothing outside its checkpoint.
    """

    numeric = False
    reads_again = True  # A new checkpoint lists all of it.
    topic_id = ""

    @staticmethod
    def told() -> None:
        return None

    @staticmethod
    def read_unseen(was: None) -> list[int]:
        return []

    @staticmethod
    def below_former() -> list[int]:
        """No file stands at a position, so there are none."""
        return []

    def __init__(self, tells: bool):
        self.files: dict[str, list[int]] = {}
        self.moved: list[int] = []
        self.hidden: set[str] = set()
        self.tells = tells
        self._planned = 0

    def produce(self, ids: list[int], where: int) -> None:
        """Write one or two files."""
        cut = where % (len(ids) + 1)
        for part in (ids[:cut], ids[cut:]):
            if part:
                self.files[f"file-{part[0]:04}"] = part

    def behind(self, is_done: Callable[[int], bool]) -> dict:
        """Move away for good what is done."""
        gone = {name: rows for name, rows in self.files.items() if all(map(is_done, rows))}
        self.moved += [row for rows in gone.values() for row in rows]
        self.files = {name: rows for name, rows in self.files.items() if name not in gone}
        return {}

    def all_rows(self) -> list[int]:
        return [row for rows in self.files.values() for row in rows]

    def hides(self) -> bool:
        return bool(self.hidden)

    def set_aside(self, stays: Callable[[int], bool]) -> bool:
        """Move files away for a while of which no row stays.
        Returns whether they are others than were moved away already."""
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
        if not fresh:
            return None
        self._planned += 1
        return Planned(len(checkpoint.planned), tuple(fresh[:most]), self._planned)

    def rows(self, checkpoint: Checkpoint, batch_id: int) -> list[int]:
        return [row for name in checkpoint.planned[batch_id].files for row in self.files.get(name, ())]

    def rows_before(self, checkpoint: Checkpoint) -> list[int]:
        return [
            row
            for planned in checkpoint.planned[: checkpoint.committed]
            for name in planned.files
            for row in self.files.get(name, ())
        ]

    def ranges(self, checkpoint: Checkpoint, batch_id: int) -> tuple[SourceRange, ...]:
        planned = checkpoint.planned[batch_id]
        start = {"logOffset": batch_id - 1} if batch_id else None
        told = planned.files if self.tells else ()
        digest = hashlib.sha256("|".join(told).encode()).hexdigest()[:32]
        files = tuple(SourceFile(self.path(name), 1) for name in planned.files) if self.tells else None
        return (SourceRange(start, {"logOffset": planned.end}, digest, files=files),)

    @staticmethod
    def path(name: str) -> str:
        return f"memory:/in/{name}"

    def rows_of_others(self, checkpoint: Checkpoint, batch_id: int, seen: frozenset[str]) -> list[int]:
        """The rows of the batch's files except these files."""
        names = [name for name in checkpoint.planned[batch_id].files if self.path(name) not in seen]
        return [row for name in names for row in self.files.get(name, ())]


class Another:
    """The same source, of which a program makes other rows."""

    def __init__(self, source: Topic | Folder, new_rows: Callable[[int], list[int]]):
        self._source, self._new_rows = source, new_rows
        self._as: dict[int, int] = {}

    def __getattr__(self, name: str):
        return getattr(self._source, name)

    def rows(self, checkpoint: Checkpoint, batch_id: int) -> list[int]:
        rows = self._source.rows(checkpoint, batch_id)
        self._as |= {row: self._new_rows(1)[0] for row in rows if row not in self._as}
        return [self._as[row] for row in rows]

    def made(self) -> list[int]:
        """All rows that were made so far."""
        return list(self._as.values())


def batch_of(source, checkpoint: Checkpoint, batch_id: int, run: str, fingerprint) -> Batch:
    """The micro-batch as Spark would describe it."""
    before = lambda: source.ranges(checkpoint, batch_id - 1) if batch_id else None  # noqa: E731
    return Batch(
        batch_id,
        checkpoint.query,
        run,
        source.ranges(checkpoint, batch_id),
        fingerprint=fingerprint,
        planned_ms=checkpoint.planned[batch_id].at_ms,
        before_ms=checkpoint.planned[batch_id - 1].at_ms if batch_id else 0,
        before=before,
    )
