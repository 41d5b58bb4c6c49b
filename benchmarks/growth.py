"""Does a commit become more expensive as the table grows?
And how long does a restart take with a long past and much pending?"""

import os
import shutil
import statistics
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import streamsink
from benchmarks import data
from benchmarks.machine import in_turns, load, spread
from benchmarks.micro import WARM_UP
from benchmarks.operations import QUERY, Commit, commits, numbers, root_of
from benchmarks.report import Table, at_most
from benchmarks.ways import ended
from streamsink.sinks.paimon.committer import PaimonCommitter
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from streamsink.table.write.spec import WriteSpec
from streamsink.table.write.writer import TableWriter
from streamsink.testing.driver import Driven, MicroBatchDriver, SparkCheckpoint

_ROWS = 10
# A journal that is full before the first mark, so that every commit measured forgets an old record as well.
_OPTIONS = {"journal_retain": 5, "restore": "restore-and-continue"}


def growth(spark, folder: Path, sizes: data.Sizes) -> list:
    """Grow one table without Spark and keep it at each mark; then run a real query on each of the copies, in turns."""
    marks, at = sizes.growth, folder / "growth"
    checkpoints: dict[int, SparkCheckpoint] = {}

    def keep(number: int, checkpoint: SparkCheckpoint) -> None:
        if number in marks:
            _copy(at, folder / f"growth-{number}")
            checkpoints[number] = SparkCheckpoint(QUERY, checkpoint.ends[:number], number)
            print(f"  {number:,} snapshots (load {load()})", flush=True)

    seen = commits(at, max(marks), _OPTIONS, _ROWS, keep)
    shutil.rmtree(at)
    counted = {
        number: [seen[n] for n in range(max(_OPTIONS["journal_retain"] + 2, number - 29), number + 1)]
        for number in marks
    }
    found = [*_counts(counted), *_times(spark, folder, sizes)]
    found += restart(folder, sizes, checkpoints[max(marks)])
    for number in marks:
        shutil.rmtree(folder / f"growth-{number}")
    return found


def _counts(counted: dict[int, list[Commit]]) -> list:
    calls = {number: statistics.median(c.total for c in some) for number, some in counted.items()}
    written = {number: statistics.median(c.bytes_written for c in some) for number, some in counted.items()}
    rows = [
        [
            f"{number:,}",
            spread([c.total for c in some]),
            spread([c.fsyncs for c in some]),
            spread([c.bytes_written for c in some]),
            f"{statistics.mean(c.bytes_written for c in some):.0f}",
            spread([c.ms for c in some], 1),
        ]
        for number, some in counted.items()
    ]
    first, last = min(counted), max(counted)
    head = (
        "snapshots",
        "file operations",
        "fsyncs asked for",
        "bytes written",
        "their mean",
        "ms without them, without Spark",
    )
    note = (
        f"Median [min..max] of up to 30 commits of {_ROWS} rows before the mark; the greatest are those that merge "
        "manifests."
    )
    what = f"of a commit of {_ROWS} rows, snapshot {last:,} against snapshot {first:,}"
    return [
        Table("What one commit asks of the file system as the table grows", head, rows, note),
        at_most(f"file operations {what}", calls[last] / calls[first], 1.0),
        at_most(f"bytes written {what}", written[last] / written[first], 1.1),
    ]


def _times(spark, folder: Path, sizes: data.Sizes) -> list:
    """The triggers of a real query, which is another application of these tables, with everything flushed."""
    source, trigger, medians = folder / "growth-in", defaultdict(list), defaultdict(list)
    each = sizes.batches + WARM_UP

    def measure(number: int, turn: int) -> None:
        data.add_json(source, turn * each, each, _ROWS)
        at = folder / f"growth-{number}"
        sink = streamsink.to_table(str(root_of(at)), lambda event: None, application="measured", journal_retain=5)
        query = data.json_stream(spark, source).selectExpr("id", "note name").writeStream.foreachBatch(sink)
        done = ended(query.option("checkpointLocation", str(at / "checkpoint")).trigger(availableNow=True).start())[
            WARM_UP:
        ]
        if turn:  # The first one warms up.
            trigger[number] += [took["triggerExecution"] for took in done]
            medians[number].append(statistics.median(trigger[number][-len(done) :]))

    in_turns(sizes.more_rounds + 1, sizes.growth, measure)
    first, last = min(sizes.growth), max(sizes.growth)
    ratios = [late / early for late, early in zip(medians[last], medians[first])]
    rows = [[f"{number:,}", spread(trigger[number]), spread(medians[number])] for number in sizes.growth]
    title = f"Micro-batches of {_ROWS} rows as the table grows, {len(trigger[first])} each"
    what = f"micro-batches of {_ROWS} rows: trigger at snapshot {last:,} against snapshot {first:,}"
    return [
        Table(title, ("snapshots", "trigger ms", "median of a round"), rows, f"In turns. Load {load()}."),
        at_most(what, statistics.median(ratios), 1.1),
    ]


def restart(folder: Path, sizes: data.Sizes, checkpoint: SparkCheckpoint) -> list:
    """The time from the start of the query's function to the end of the first new batch,
    with checkpoints pending, without Spark."""
    newest = max(sizes.growth)
    at = folder / f"growth-{newest}"
    driver = numbers(at, _OPTIONS, _ROWS)
    _leave_pending(driver, checkpoint, sizes.pending)
    opened, first_batch = [], []
    for number in range(sizes.more_rounds):
        copy = folder / f"restart-{number}"
        _copy(at, copy)
        again = numbers(copy, {**_OPTIONS, "journal_retain": 100}, _ROWS)
        begun = time.perf_counter()
        sink = again.start(local_file_io(), checkpoint)
        opened.append((time.perf_counter() - begun) * 1000)
        sink.batch(again.describe(checkpoint, len(checkpoint.ends) - 1))
        first_batch.append((time.perf_counter() - begun) * 1000)
        sink.close()
        shutil.rmtree(copy)
    title = f"A restart with {sizes.pending} checkpoints pending, at {newest:,} snapshots"
    rows = [
        ["until everything pending is published", spread(opened)],
        ["until the end of the first new batch", spread(first_batch)],
    ]
    what = f"restart at {newest:,} snapshots and {sizes.pending} pending checkpoints, to the end of the first new batch"
    return [
        Table(
            title,
            ("", "ms of our time"),
            rows,
            f"Everything flushed; median [min..max] of {sizes.more_rounds}. Load {load()}.",
        ),
        at_most(what, statistics.median(first_batch), 1000, "{:.0f} ms"),
    ]


def _leave_pending(driver: MicroBatchDriver, checkpoint: SparkCheckpoint, count: int) -> None:
    """Leave checkpoints that are pre-committed and not published, and one more that Spark has planned."""
    begin = len(checkpoint.ends)
    checkpoint.ends += [checkpoint.ends[-1] + _ROWS * number for number in range(1, count + 2)]
    sink = driver.start(local_file_io(flush=False), checkpoint)
    decision = sink.protocol.admit(driver.describe(checkpoint, begin))
    for batch_id in range(begin, begin + count):
        _pre_commit(driver, sink, driver.describe(checkpoint, batch_id), decision)
    sink.close()


def _pre_commit(driver: MicroBatchDriver, sink: Driven, batch, decision) -> None:
    file_io, options = local_file_io(flush=False), driver.options
    table = open_table(file_io, driver.root, for_writing=True)
    table.snapshots.latest()  # Admission does the same: the record says on which snapshot it was made.
    opened = sink.protocol.begin(batch, replace(decision, recorded=decision.recorded.advanced(batch.sources)))
    writer = TableWriter(
        file_io,
        WriteSpec(
            opened.staging,
            table.latest_schema().to_json(),
            options.target_file_bytes,
            options.max_open_writers,
            options.writer_memory_bytes,
        ),
    )
    writer.write(driver.rows(0, _ROWS))
    with file_io.flush_group() as group:
        files, payload = PaimonCommitter(table, options).stage(opened.staging, writer.close(group), group)
        sink.protocol.pre_commit(opened, files, payload, group)


def _copy(table: Path, to: Path) -> None:
    """Link the table's files, which are never changed in place.
    The hold is left out, because it belongs to a process."""
    shutil.copytree(table, to, copy_function=os.link, ignore=shutil.ignore_patterns("hold", "checkpoint"))
