"""Small files beside a query: what readers find and wait for, and what the query pays, with compaction and without."""

import statistics
import time
from collections import defaultdict
from pathlib import Path

import streamsink
from benchmarks import data
from benchmarks.compaction.found import WITH, WITHOUT, Found, live
from benchmarks.machine import in_turns, load, measured, spread
from benchmarks.report import Goal, Table, at_most
from benchmarks.ways import ended
from streamsink import maintenance

# The first batches of a start compile and restore: they are run and not counted.
WARM_UP = 2
# A file of the target size holds as many batches as one of Paimon's 256 MB holds of batches of 3 MB.
TARGET = "4 mb"
BESIDE = {"compaction": True, "compaction_interval_ms": 1_000}
READS = 5
# So many batches of one way run before those of the other: what the load does to both is nearly the same.
TURN = 50


def compaction(spark, folder: Path, sizes: data.Sizes) -> list:
    """Two queries over the same files, in turns; then both tables are read, and beside them that of one batch job."""
    source, beside = folder / "compaction-in", Found(WITH)
    rounds = max(2, sizes.compacted_batches // TURN)
    each = min(TURN, sizes.compacted_batches // rounds) + WARM_UP
    trigger, cpu = defaultdict(list), defaultdict(list)

    def measure(way: str, number: int) -> None:
        data.add_json(source, number * each, each, sizes.batch_rows)
        at = folder / "compaction" / ("with" if way == WITH else "without")
        options = BESIDE if way == WITH else {}
        sink = streamsink.to_table(
            str(at / "out"), beside.listen, table_options={"target-file-size": TARGET}, **options
        )
        query = data.json_stream(spark, source).writeStream.foreachBatch(sink)
        with measured() as cost:
            done = ended(query.option("checkpointLocation", str(at / "checkpoint")).trigger(availableNow=True).start())
        trigger[way] += [took["triggerExecution"] for took in done[WARM_UP:]]
        cpu[way].append(cost.cpu_s * 1000 / len(done))

    in_turns(rounds, (WITHOUT, WITH), measure)
    tables = {way: str(folder / "compaction" / name / "out") for way, name in ((WITHOUT, "without"), (WITH, "with"))}
    came = sum(entry.file.file_size for entry in live(tables[WITHOUT]))
    job = str(folder / "compaction" / "job")
    rows = spark.read.schema(data.DDL).json(str(source)).coalesce(1)
    streamsink.write(rows, job, "all", target_file_bytes=4 * 2**20, table_options={"target-file-size": TARGET})
    found = {way: _read(path) for way, path in {**tables, "one batch job": job}.items()}
    maintenance.compact(tables[WITH], full=True)
    found[f"{WITH}, at rest"] = _read(tables[WITH])
    return _report(trigger, cpu, found, beside, came=came)


def _read(path: str) -> tuple[int, list[float]]:
    """(files, ms of each read)."""
    took = []
    for _ in range(READS):
        begun = time.perf_counter()
        streamsink.read_arrow(path)
        took.append((time.perf_counter() - begun) * 1000)
    return len(live(path)), took


def _report(trigger, cpu, found, beside: Found, *, came: int) -> list:
    again = beside.totals.bytes_before / came
    batches, job = len(trigger[WITH]), found["one batch job"]
    rows = [
        [way, str(count), spread(took), spread(trigger.get(way, [])), spread(cpu.get(way, []))]
        for way, (count, took) in found.items()
    ]
    note = f"{beside.said(came)} target-file-size={TARGET}. Load {load()}."
    head = ("way", "files", "ms to read all, pyarrow", "trigger ms", "CPU ms a batch")
    what, files = "compaction beside a query", "files against those of one batch job"
    medians = {way: statistics.median(took) for way, took in trigger.items()}
    goals: list[Goal] = [
        at_most(f"{what}: {files}, right after the last batch", found[WITH][0] / job[0], 1.2),
        at_most(f"{what}: {files}, at rest", found[f"{WITH}, at rest"][0] / job[0], 1.2),
        at_most(f"{what}: trigger against that without", medians[WITH] / medians[WITHOUT], 1.1),
        at_most(f"{what}: bytes written again for each byte", again, 2.0),
        at_most(f"{what}: share of that in vain", beside.lost, 0.05, "{:.3f}"),
    ]
    return [Table(f"{batches} micro-batches of 1,000 rows", head, rows, note), *goals]
