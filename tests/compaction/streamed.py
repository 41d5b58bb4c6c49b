"""A stream and its compaction as sizes of files alone: what readers find at any time, and what is written again.

It is the planner's arithmetic without tables, so ten thousand batches take a moment.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from types import SimpleNamespace

from streamsink.compaction.plan import Packing, Sizes
from streamsink.format.data_file import FILE_SOURCE_COMPACT

# How many bytes a batch adds to a partition, by the number of the batch.
SizeOf = Callable[[int], int]


@dataclass
class Streamed:
    """What was seen behind each batch, before the compaction looked.

    live: files of the table. job: files that one batch job would have left of the same bytes. came, again: bytes that
    came, and that were written again. snapshots: looks in which something was compacted.
    """

    live: list[int] = field(default_factory=list)
    job: list[int] = field(default_factory=list)
    came: int = 0
    again: int = 0
    snapshots: int = 0

    @property
    def rewritten(self) -> float:
        """Bytes written again for each byte that came."""
        return self.again / self.came

    @property
    def most_more(self) -> int:
        """At the worst time, files more than those of the job."""
        return max(live - job for live, job in zip(self.live, self.job))

    def ratio(self, last: int) -> tuple[float, float]:
        """(the mean, the worst) of files against those of the job, over so many last batches."""
        found = [live / job for live, job in zip(self.live[-last:], self.job[-last:])]
        return sum(found) / len(found), max(found)


def around(size: int, seed: int) -> SizeOf:
    """Sizes that differ by a fifth."""
    chance = random.Random(seed)
    return lambda batch: chance.randint(size * 4 // 5, size * 6 // 5)


def streamed(packing: Packing, sizes: Sizes, batches: int, size_of: SizeOf, *, every: int, partitions: int) -> Streamed:
    """Each batch adds a file to each partition, and each ``every``-th batch is followed by a look of the compaction."""
    small: list[list] = [[] for _ in range(partitions)]
    came, large, seen = [0] * partitions, 0, Streamed()
    for batch in range(batches):
        for partition, files in enumerate(small):
            size = size_of(batch)
            came[partition] += size
            files.append(SimpleNamespace(file_size=size, file_source=None))
        seen.live.append(large + sum(map(len, small)))
        seen.job.append(sum(ceil(each / sizes.target_bytes) for each in came))
        if (batch + 1) % every:
            continue
        before = seen.again
        for partition, files in enumerate(small):
            outputs, gone = [], set[int]()
            for places in packing(b"", files, sizes):
                assert len(places) > 1 and gone.isdisjoint(places), places
                gone.update(places)
                total = sum(files[place].file_size for place in places)
                seen.again += total
                full, rest = divmod(total, sizes.target_bytes)
                outputs += [sizes.target_bytes] * full + [rest] * (rest > 0)
            small[partition] = [file for place, file in enumerate(files) if place not in gone]
            small[partition] += [
                SimpleNamespace(file_size=size, file_source=FILE_SOURCE_COMPACT)
                for size in outputs
                if size < sizes.small_bytes
            ]
            large += sum(size >= sizes.small_bytes for size in outputs)
        seen.snapshots += seen.again > before
    seen.came = sum(came)
    return seen
