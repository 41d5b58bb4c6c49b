"""What is gained by publishing in groups, or beside the next batch: one source, the ways of publishing in turns."""

import contextlib
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import streamsink
from benchmarks import data
from benchmarks.machine import in_turns, load, slug, spread
from benchmarks.report import Table
from benchmarks.ways import ended
from streamsink.sinks.paimon.committer import PaimonCommitter
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table

_GROUP = 10
PLAIN = "each batch, in the batch (default)"
WAYS = {
    PLAIN: {},
    f"every {_GROUP}, a snapshot each": {"publish_every_batches": _GROUP},
    f"every {_GROUP}, one snapshot": {"publish_every_batches": _GROUP, "publish_as": "one-snapshot"},
    "async": {"publish": "async"},
    "async, one snapshot": {"publish": "async", "publish_as": "one-snapshot"},
    f"async, every {_GROUP}, one snapshot": {
        "publish": "async",
        "publish_every_batches": _GROUP,
        "publish_as": "one-snapshot",
    },
}
# The first batches of a query's start compile and restore: they are run, and not counted in the medians.
WARM_UP = 2


def publishing(spark, folder: Path, sizes: data.Sizes) -> list[Table]:
    """Milliseconds of a trigger, of our function in it, and of publishing wherever it happens;
    and how many snapshots there are."""
    source, each = folder / "publishing-in", sizes.batches + WARM_UP
    trigger, ours, whole, publish = (defaultdict(list) for _ in range(4))

    def measure(way: str, number: int) -> None:
        data.add_json(source, number * each, each, sizes.batch_rows)
        at, walls = folder / "publishing" / slug(way), []
        sink = streamsink.to_table(str(at / "out"), lambda event: None, **WAYS[way])

        def timed(batch, batch_id: int) -> None:
            begun = time.perf_counter()
            sink(batch, batch_id)
            walls.append((time.perf_counter() - begun) * 1000)

        stream = data.json_stream(spark, source).writeStream.foreachBatch(timed)
        with publishing_ms() as spent:
            begun = time.perf_counter()
            took = ended(stream.option("checkpointLocation", str(at / "checkpoint")).trigger(availableNow=True).start())
            sink.close()  # What is pending counts.
            whole[way].append((time.perf_counter() - begun) * 1000 / len(took))
        trigger[way] += [durations["triggerExecution"] for durations in took[WARM_UP:]]
        ours[way] += walls[WARM_UP:]
        publish[way].append(sum(spent) / len(took))

    in_turns(sizes.rounds, tuple(WAYS), measure)
    rows = [
        [
            way,
            spread(trigger[way]),
            spread(ours[way]),
            spread(whole[way]),
            spread(publish[way]),
            str(_snapshots(folder / "publishing" / slug(way) / "out")),
        ]
        for way in WAYS
    ]
    share = statistics.median(publish[PLAIN]) / statistics.median(ours[PLAIN])
    head = (
        "publishing",
        "trigger ms",
        "of it our function ms",
        "the whole run ms a batch",
        "publishing ms a batch",
        "snapshots",
    )
    title = f"{len(trigger[PLAIN])} micro-batches of {sizes.batch_rows:,} rows, by the way of publishing"
    note = (
        f"Median [min..max]. The whole run has the start, and publishing what was left at the end. By default "
        f"publishing is {share:.0%} of our function. Load {load()}."
    )
    return [Table(title, head, rows, note)]


@contextlib.contextmanager
def publishing_ms() -> Iterator[list[float]]:
    """Wall milliseconds of each publishing, in whichever thread it happens."""
    publish, spent = PaimonCommitter.publish, []

    def timed(self, *args, **kwargs):
        begun = time.perf_counter()
        try:
            return publish(self, *args, **kwargs)
        finally:
            spent.append((time.perf_counter() - begun) * 1000)

    PaimonCommitter.publish = timed
    try:
        yield spent
    finally:
        PaimonCommitter.publish = publish


def _snapshots(table: Path) -> int:
    return len(open_table(local_file_io(), str(table), for_writing=False).snapshots.ids())
