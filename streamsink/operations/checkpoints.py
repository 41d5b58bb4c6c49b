"""``streamsink rewind``: let Spark plan the last batches of a checkpoint anew, as a report of ``give_up`` tells to.

What a query has planned, and what of that it has done, stands in files of Spark's checkpoint, ``offsets/<batch>`` and
``commits/<batch>``. Where records of batches were given up that Spark takes for done, it must plan their rows again.
"""

import os
from dataclasses import dataclass

from streamsink.errors import Misuse
from streamsink.storage.file_io import FileIO

_OFFSETS, _COMMITS, _STATE = "offsets", "commits", "state"


@dataclass(frozen=True)
class Rewound:
    """What was deleted, or would be. batches: numbers, in order. paths: of the files, in the order of deletion."""

    checkpoint: str
    batches: tuple[int, ...]
    paths: tuple[str, ...]

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.batches))
        return f"{self.checkpoint}: " + (f"batches {numbers} are planned anew" if numbers else "no such batch is there")


def rewind(file_io: FileIO, checkpoint: str, batch: int, *, dry_run: bool = False) -> Rewound:
    """Delete what the checkpoint says of this batch and all behind it, the newest first. The query must not run.

    Idempotent. After a crash: call it again, or start the query, which repeats its last batch. Raises Misuse for what
    is no checkpoint of Spark's, and for one of a stateful query, whose state has these batches in it.
    """
    if not file_io.exists(os.path.join(checkpoint, "metadata")):
        raise Misuse(
            f"{checkpoint}: this is no checkpoint of Spark's: it has no file 'metadata'. Nothing was deleted. Give the "
            "query's option checkpointLocation",
            kind="rewind.no-checkpoint",
        )
    if file_io.entries(os.path.join(checkpoint, _STATE)):
        raise Misuse(
            f"{checkpoint}: the query is stateful, and its state has the rows of these batches in it: planned anew, "
            "they would be counted twice. Nothing was deleted. Start the query with a new checkpoint, whose state is "
            "built from the beginning of the source",
            kind="rewind.stateful",
        )
    found: dict[int, list[str]] = {}
    for folder in (_COMMITS, _OFFSETS):
        for name in file_io.names(os.path.join(checkpoint, folder)):
            number = name.removeprefix(".").removesuffix(".crc")
            if number.isdecimal() and int(number) >= batch:
                found.setdefault(int(number), []).append(os.path.join(checkpoint, folder, name))
    paths = tuple(path for number in sorted(found, reverse=True) for path in found[number])
    if not dry_run:
        for path in paths:
            file_io.delete(path)
        for folder in (_COMMITS, _OFFSETS):
            file_io.sync_dir(os.path.join(checkpoint, folder))
    return Rewound(checkpoint, tuple(sorted(found)), paths)
