"""All that is measured at n, 2n and 4n: of a batch, of a source, of a run, and of a table.

Each part can also be run alone: ``python -m benchmarks.grows.part files`` (or partitions, live; batches needs Spark).
"""

import sys
import tempfile
from pathlib import Path

from benchmarks import report
from benchmarks.data import Sizes
from benchmarks.grows import batches, files, live, partitions

_ALONE = {"files": files.files, "partitions": partitions.partitions, "live": live.live}


def grows(spark, folder: Path, sizes: Sizes) -> list:
    """The four of them, with one goal for all: there are too many limits for a page. Time is processor time."""
    found = [
        *partitions.partitions(folder, sizes),
        *files.files(folder, sizes),
        *batches.batches(spark, folder, sizes),
        *live.live(folder, sizes),
    ]
    limits = [item for item in found if isinstance(item, report.Goal)]
    met, what = sum(goal.met for goal in limits), "what grows with the work: its limits that hold"
    return [
        *(item for item in found if not isinstance(item, report.Goal)),
        report.at_least(f"{what}, of {len(limits)}", met, len(limits), "{:.0f}"),
    ]


def alone(name: str, quick: bool) -> str:
    """One part, without Spark, as text."""
    with tempfile.TemporaryDirectory(prefix="streamsink-grows-") as folder:
        items = _ALONE[name](Path(folder), Sizes.quick() if quick else Sizes())
    return f"{report.text(items)}\n\n{report.text([report.goals(items)])}"


if __name__ == "__main__":
    print(alone(sys.argv[1], "--quick" in sys.argv))
