"""Micro-batches and one large batch on S3, beside the sinks of others, at several latencies: `--only s3`."""

import contextlib
import shutil
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import data
from benchmarks.machine import in_turns, load, slug, spread
from benchmarks.report import Table, at_least, at_most
from benchmarks.s3.account import (
    KINDS,
    Batch,
    by_kind,
    copied_bytes,
    dear,
    dollars,
    round_trips,
    spans,
    uncovered_ms,
    union_ms,
)
from benchmarks.s3.ground import Ground, in_its_way, of_its_thread
from benchmarks.s3.marked import trips
from benchmarks.s3.sinks import ASYNC, ICEBERG, OURS, RIVALS
from benchmarks.stores import NO_SERVER
from benchmarks.ways import NOOP

# Of a table's first run, which the times leave out: its first batch, and one that is not.
_FRESH = 2
_WARM_UP_ROWS = 100_000
# In each round the first batch is a restart's.
_RESTART = 1
# (sink, ms of delay)
_Key = tuple[str, int]
_WAITING_GOALS = {20: 0.8, 50: 0.7}
_PRICE_LIST = "Amazon's list price (PUT, COPY, LIST and POST $5.00, GET and HEAD $0.40 per million, DELETE free)"


@dataclass
class _Seen:
    """What was measured. large: the one batch of each round. medians: of a round's triggers, in ms."""

    steady: dict[_Key, list[Batch]] = field(default_factory=lambda: defaultdict(list))
    fresh: dict[_Key, list[Batch]] = field(default_factory=lambda: defaultdict(list))
    restarted: dict[_Key, list[Batch]] = field(default_factory=lambda: defaultdict(list))
    medians: dict[_Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    large: dict[str, list[Batch]] = field(default_factory=lambda: defaultdict(list))

    def of(self, found: dict[_Key, list[Batch]], sink: str, delays: Iterable[int]) -> list[Batch]:
        return [batch for delay in delays for batch in found[sink, delay]]


def s3(spark, folder: Path, sizes: data.Sizes) -> list:
    """Requests, round trips, waiting, money and time of a micro-batch; time and bytes of a large one."""
    with contextlib.ExitStack() as servers:
        try:
            ground = Ground(spark, folder / "s3", servers)
        except NO_SERVER as why:
            return [Table("Micro-batches on S3", ("sink",), [], f"Not measured: {str(why).splitlines()[0]}.")]
        seen = _Seen()
        _micro(spark, folder, ground, sizes, seen)
        _large(spark, folder, ground, sizes, seen)
    names = [name for name in ground.sinks if name != NOOP]
    tables = [_counts(names, seen, sizes), _times(names, seen, sizes), _begins(names, seen, sizes)]
    return [*tables, _large_table(names, seen, sizes), *_goals(seen, sizes)]


def _micro(spark, folder: Path, ground: Ground, sizes: data.Sizes, seen: _Seen) -> None:
    """A table of its own for each sink and delay; in each round its query goes on with some batches."""
    source, each = folder / "s3-in", sizes.s3_batches + _RESTART
    ways = {NOOP: (NOOP, 0)} | {
        f"{delay} ms, {name}": (name, delay) for delay in sizes.s3_delays for name in ground.sinks if name != NOOP
    }

    def measure(way: str, number: int) -> None:
        key = name, delay = ways[way]
        first, count = (_FRESH + (number - 1) * each, each) if number else (0, _FRESH)
        data.add_json(source, first, count, sizes.batch_rows)
        done = ground.run(name, f"{slug(name)}-{delay}", data.json_stream(spark, source), delay)
        if len(done) != count:
            raise SystemExit(f"{way}: {len(done)} batches instead of {count}")
        if number == 0:
            seen.fresh[key].append(done[0])
            return
        seen.restarted[key].append(done[0])
        seen.steady[key] += done[_RESTART:]
        seen.medians[key].append(statistics.median(batch.took["triggerExecution"] for batch in done[_RESTART:]))

    in_turns(sizes.s3_rounds + 1, tuple(ways), measure)


def _large(spark, folder: Path, ground: Ground, sizes: data.Sizes, seen: _Seen) -> None:
    """One batch into a fresh table; one of few rows before, which is not counted."""
    delay = _shown(sizes)

    def measure(name: str, number: int) -> None:
        rows = sizes.s3_rows if number else min(sizes.s3_rows, _WARM_UP_ROWS)
        stream = data.parquet_stream(spark, data.large(spark, folder, rows), data.ddl())
        spark._jvm.System.gc()
        done = ground.run(name, f"{slug(name)}-large-{number}", stream, delay, alone=True)
        if number:
            seen.large[name] += done

    in_turns(sizes.s3_rounds + 1, tuple(name for name in ground.sinks if name != NOOP), measure)
    for path in folder.glob(f"input-{min(sizes.s3_rows, _WARM_UP_ROWS)}-*"):
        shutil.rmtree(path, ignore_errors=True)


def _shown(sizes: data.Sizes) -> int:
    """The delay of the tables that show one only."""
    return next((delay for delay in sizes.s3_delays if delay), 0)


def _trips(batch: Batch) -> int:
    return round_trips(spans(batch.requests))


def _trips_in_its_way(batch: Batch) -> int:
    return trips(in_its_way(batch))


def _waiting(batch: Batch) -> float:
    """Milliseconds of its requests that no job of Spark covers."""
    return uncovered_ms(spans(of_its_thread(batch)), batch.jobs)


def _each(what: Callable[[Batch], float], batches: Iterable[Batch], digits: int = 0) -> str:
    return spread([what(batch) for batch in batches], digits)


def _middle(what: Callable[[Batch], float], batches: Iterable[Batch]) -> float:
    return statistics.median(what(batch) for batch in batches)


def _counts(names: list[str], seen: _Seen, sizes: data.Sizes) -> Table:
    """Without the delay of none, with which requests that are made at the same time may not overlap."""
    delays = [delay for delay in sizes.s3_delays if delay] or sizes.s3_delays
    rows = []
    for name in names:
        batches = seen.of(seen.steady, name, delays)
        kinds = [by_kind(batch.requests) for batch in batches]
        rows.append(
            [
                name,
                _each(lambda batch: len(batch.requests), batches),
                " ".join(f"{statistics.median(counted[kind] for counted in kinds):.0f}" for kind in KINDS),
                _each(_trips, batches),
                _each(_trips_in_its_way, batches),
                f"{_middle(lambda batch: sum(r.up_bytes for r in batch.requests), batches) / 1000:.1f}",
                f"{_middle(lambda batch: sum(r.down_bytes for r in batch.requests), batches) / 1000:.1f}",
                f"{_middle(lambda batch: copied_bytes(batch.requests), batches) / 1000:.1f}",
                f"{statistics.mean(dollars(batch.requests) for batch in batches):.2f}",
            ]
        )
    kinds_head = " ".join(KINDS)
    head = ("sink", "requests", kinds_head, "round trips", "in its way", "KB up", "KB down", "KB copied", "$ a million")
    note = (
        f"{len(seen.of(seen.steady, OURS, delays))} batches of each sink, from the second of a run on, with "
        f"answers held back by {' and '.join(map(str, delays))} ms. Requests are laid to the trigger in which they "
        "begin. Round trips: the longest chain of requests of which each begins after the one before has ended. In its "
        "way: those that the batch waits for. Left out are requests that begin beside a job of Spark (the peers' "
        "writing of rows among them), of which our batches go on from when they have asked Spark for their rows, and "
        "requests of other threads of ours than the batch's. What such a job does not cover of a request that began "
        "beside it is waited for (next table). Ours are counted by what each of them waited for, as the client "
        "numbers them, those of the others by their times, one after another. The price of a million batches is by "
        f"{_PRICE_LIST}, of the mean batch, without storage. Source and checkpoint lie on a local disk."
    )
    return Table(f"A micro-batch of {sizes.batch_rows:,} rows x 8 columns on S3: what it asks", head, rows, note)


def _times(names: list[str], seen: _Seen, sizes: data.Sizes) -> Table:
    rows = []
    for delay in sizes.s3_delays:
        for name in names:
            batches = seen.steady[name, delay]
            over = [mine - noop for mine, noop in zip(seen.medians[name, delay], seen.medians[NOOP, 0])]
            rows.append(
                [
                    name,
                    f"{delay}",
                    _each(lambda batch: batch.took["triggerExecution"], batches),
                    spread(over),
                    _each(lambda batch: union_ms(spans(batch.requests)), batches),
                    _each(_waiting, batches),
                ]
            )
    head = ("sink", "answers held back by ms", "trigger ms", "ms over noop, by round", "requests under way ms")
    note = (
        f"Noop: {spread([b.took['triggerExecution'] for b in seen.steady[NOOP, 0]])} ms. Under way: the time in which "
        "at least one request was. Waiting: that of the batch's own requests, without what a job of Spark covers. "
        f"Median [min..max]. Load {load()}."
    )
    return Table(
        f"A micro-batch of {sizes.batch_rows:,} rows x 8 columns on S3: what it waits for",
        (*head, "waiting ms"),
        rows,
        note,
    )


def _begins(names: list[str], seen: _Seen, sizes: data.Sizes) -> Table:
    """What a fresh table and a restart ask once more, at each delay but none."""
    delays = [delay for delay in sizes.s3_delays if delay] or sizes.s3_delays
    rows = []
    for name in names:
        cells = [name]
        for found in (seen.fresh, seen.restarted):
            batches = seen.of(found, name, delays)
            cells += [_each(lambda batch: len(batch.requests), batches), _each(_trips, batches)]
            cells += [_each(_waiting, found[name, _shown(sizes)])]
        rows.append(cells)
    head = ["sink"] + [
        f"{what}: {column}"
        for what in ("fresh table", "restart")
        for column in ("requests", "round trips", "waiting ms")
    ]
    note = (
        "From the query's start, with the creation of the table, to the end of its first batch. Restart: with nothing "
        f"pending, the run before was ended in order. Waiting with answers held back by {_shown(sizes)} ms."
    )
    return Table("The first batch of a query on S3", head, rows, note)


def _large_table(names: list[str], seen: _Seen, sizes: data.Sizes) -> Table:
    rows = [
        [
            name,
            spread([sizes.s3_rows / _seconds(batch) / 1000 for batch in seen.large[name]]),
            _each(_seconds, seen.large[name], 2),
            _each(lambda batch: len(batch.requests), seen.large[name]),
            _each(_trips, seen.large[name]),
            f"{_middle(lambda batch: sum(r.up_bytes for r in batch.requests), seen.large[name]) / 1e6:.1f}",
            f"{_middle(lambda batch: copied_bytes(batch.requests), seen.large[name]) / 1e6:.1f}",
        ]
        for name in names
    ]
    head = ("sink", "1000 rows/s", "trigger s", "requests", "round trips", "MB up", "MB copied")
    note = (
        f"Into a fresh table, answers held back by {_shown(sizes)} ms. Requests and bytes are those of the whole run; "
        f'with publish="async" the snapshot comes after the trigger. Median [min..max]. Load {load()}.'
    )
    return Table(f"One batch of {sizes.s3_rows:,} rows x 8 columns on S3, from Parquet", head, rows, note)


def _seconds(batch: Batch) -> float:
    return batch.took["triggerExecution"] / 1000


def _goals(seen: _Seen, sizes: data.Sizes) -> list:
    """What the goals compare with may be missing, and the delays may be others; such goals are left out."""
    goals, shown = [], _shown(sizes)
    steady, asynchronous = seen.steady[OURS, shown], seen.steady[ASYNC, shown]
    count = "{:.0f}"
    goals += [
        at_most("S3, micro-batch: round trips in its way", _middle(_trips_in_its_way, steady), 3, count),
        at_most("S3, micro-batch: requests", _middle(lambda batch: len(batch.requests), steady), 20, count),
        at_most("S3, micro-batch: PUT, COPY, LIST, POST", _middle(lambda b: dear(b.requests), steady), 9, count),
        at_most(
            'S3, micro-batch, publish="async": round trips in its way',
            _middle(_trips_in_its_way, asynchronous),
            2,
            count,
        ),
        at_most(
            "S3, first batch of a fresh table: round trips",
            _middle(_trips_in_its_way, seen.fresh[OURS, shown]),
            12,
            count,
        ),
    ]
    for delay, most in _WAITING_GOALS.items():
        ours, theirs = seen.steady.get((OURS, delay)), seen.steady.get((ICEBERG, delay))
        if ours and theirs:
            what = f"S3, micro-batch at {delay} ms: waiting against Iceberg with JDBC catalog and S3FileIO"
            goals.append(at_most(what, _middle(_waiting, ours) / _middle(_waiting, theirs), most))
    rivals = [name for name in RIVALS if seen.large[name]]
    if rivals:
        fastest = min(_middle(_seconds, seen.large[name]) for name in rivals)
        least = min(_middle(_up, seen.large[name]) for name in rivals)
        what = f"S3, one batch of {sizes.s3_rows:,} rows"
        ours = seen.large[OURS]
        goals.append(at_least(f"{what}: rows/s against the fastest", fastest / _middle(_seconds, ours), 1.0))
        goals.append(at_most(f"{what}: bytes up against the least", _middle(_up, ours) / least, 1.0, "{:.3f}x"))
    return goals


def _up(batch: Batch) -> float:
    return sum(request.up_bytes for request in batch.requests)
