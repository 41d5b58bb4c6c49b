"""How the ways of writing to one destination are measured side by side: large batches, and micro-batches."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks import data
from benchmarks.machine import in_turns, load, measured, slug, spread
from benchmarks.micro import WARM_UP
from benchmarks.report import Table
from benchmarks.ways import ended

_FILES = 4


@dataclass(frozen=True)
class Way:
    """start(rows, folder, name): a query that writes into a place of this name; the folder is its own.

    close: waits for what is published beside the batches. count(folder, name): as the place's, where ways keep their
    rows in different places; None when nothing is kept.
    """

    start: Callable[[DataFrame, Path, str], DataStreamWriter]
    close: Callable[[], None] = field(default=lambda: None)
    count: Callable[[Path, str], int | None] | None = None


@dataclass(frozen=True)
class Place:
    """A destination. make(name): a new place of this name. count(name): how many rows it has.

    shape: what rows of the input become. base: the way whose time the others' micro-batches are over; '' for none.
    """

    title: str
    ways: Mapping[str, Way]
    make: Callable[[str], None]
    count: Callable[[str], int]
    shape: Callable[[DataFrame], DataFrame]
    base: str = ""


class Found(NamedTuple):
    """values: of each way, rows/s of each large batch or ms of each trigger. rounds: their median in each round.
    cpu: in each round, seconds for a million rows or ms of a micro-batch."""

    table: Table
    values: Mapping[str, Sequence[float]]
    rounds: Mapping[str, Sequence[float]]
    cpu: Mapping[str, Sequence[float]]


def large(spark, folder: Path, place: Place, sizes: data.Sizes) -> Found:
    """Rows per second of a query over what is there, from its start until all of it is published."""
    rows, files = sizes.sink_rows * sizes.sink_batches, folder / f"in-{sizes.sink_rows}"
    for number in range(sizes.sink_batches):
        one = data.large(spark, folder / "parts", sizes.sink_rows)
        if not (files / f"{number}-0.parquet").exists():
            files.mkdir(parents=True, exist_ok=True)
            for part, path in enumerate(sorted(Path(one).glob("*.parquet"))):
                (files / f"{number}-{part}.parquet").hardlink_to(path)
    speed, cpu = defaultdict(list), defaultdict(list)

    def measure(way: str, number: int) -> None:
        name, at = f"large_{slug(way)}_{number}".replace("-", "_"), folder / "large" / f"{slug(way)}-{number}"
        place.make(name)
        stream = spark.readStream.schema(data.DDL).option("maxFilesPerTrigger", _FILES).parquet(str(files))
        with measured() as cost:
            writer = place.ways[way].start(place.shape(stream), at, name)
            query = writer.option("checkpointLocation", str(at / "checkpoint")).trigger(availableNow=True).start()
            query.awaitTermination()
            place.ways[way].close()
        _check(place, way, (at, name), rows)
        if number:
            speed[way].append(rows / cost.wall_s)
            cpu[way].append(cost.cpu_s * 1e6 / rows)

    in_turns(sizes.rounds + 1, tuple(place.ways), measure)
    head = ("sink", "rows/s", "CPU s for a million rows")
    cells = [[way, spread(speed[way]), spread(cpu[way], 1)] for way in place.ways]
    batches = "one batch" if sizes.sink_batches == 1 else f"{sizes.sink_batches} batches"
    title = f"{place.title}: {batches} of {sizes.sink_rows:,} rows"
    note = f"From the query's start until all is published. CPU of Spark, its Python and the server. Load {load()}."
    return Found(Table(title, head, cells, note), speed, speed, cpu)


def micro(spark, folder: Path, place: Place, sizes: data.Sizes) -> Found:
    """The time of a trigger. Each way has one query, which is continued in every round."""
    source, each = folder / "micro-in", sizes.micro_batches + WARM_UP
    trigger, medians, cpu = (defaultdict(list) for _ in range(3))
    for way in place.ways:
        place.make(_micro(way))

    def measure(way: str, number: int) -> None:
        data.add_json(source, number * each, each, sizes.batch_rows)
        at = folder / "micro" / slug(way)
        with measured() as cost:
            writer = place.ways[way].start(place.shape(data.json_stream(spark, source)), at, _micro(way))
            query = writer.option("checkpointLocation", str(at / "checkpoint")).trigger(availableNow=True).start()
            done = ended(query)
            place.ways[way].close()
        if number:
            took = [durations["triggerExecution"] for durations in done[WARM_UP:]]
            trigger[way] += took
            medians[way].append(statistics.median(took))
            cpu[way].append(cost.cpu_s * 1000 / len(done))

    in_turns(sizes.rounds + 1, tuple(place.ways), measure)
    for way in place.ways:
        _check(place, way, (folder / "micro" / slug(way), _micro(way)), (sizes.rounds + 1) * each * sizes.batch_rows)
    head, cells = ["sink", "trigger ms", "CPU ms a batch"], [[way, spread(trigger[way])] for way in place.ways]
    if place.base:
        head[2:] = [f"ms over {place.base}, by round", head[2]]
        cells = [[*row, spread(over(medians, row[0], place.base))] for row in cells]
    cells = [[*row, spread(cpu[row[0]])] for row in cells]
    title = f"{place.title}: micro-batches of {sizes.batch_rows:,} rows"
    table = Table(title, head, cells, f"Median [min..max], one JSON file a trigger. Load {load()}.")
    return Found(table, trigger, medians, cpu)


def over(rounds: Mapping[str, Sequence[float]], way: str, base: str) -> list[float]:
    """What a way takes more than another, round by round."""
    return [mine - least for mine, least in zip(rounds[way], rounds[base])]


def ratio(values: Mapping[str, Sequence[float]], way: str, base: str) -> float:
    """By how much the median of a way is larger than that of another."""
    return statistics.median(values[way]) / statistics.median(values[base])


def _micro(way: str) -> str:
    return f"micro_{slug(way)}".replace("-", "_")


def _check(place: Place, way: str, where: tuple[Path, str], rows: int) -> None:
    count = place.ways[way].count
    found = count(*where) if count else place.count(where[1])
    if found not in (rows, None):
        raise SystemExit(f"{place.title}, {way}: {found:,} rows, expected {rows:,}")
