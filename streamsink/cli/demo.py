"""Commands that show what the library does: ``demo``, a stream with an accident, and ``bench``, a short measure."""

import importlib.util
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from streamsink.cli.frame import At, command, of_path, progress
from streamsink.cli.output import FINDINGS, RIGHT, Answer, Rows
from streamsink.clock import Clock, IdSource

if TYPE_CHECKING:
    from streamsink.storage.file_io import FileIO

_BATCHES, _SIZE, _KILLED_IN = 10, 1_000, 5
_LAST_LINES = 15
_OF_SPARK = """
from streamsink.spark.query.trial import main
from streamsink.testing.faults import arm_from_env

arm_from_env()
main()
"""
# Where the driver may be killed: the names of the protocol's steps, and what they mean for a reader.
STEPS = {
    "write.staged": "its files are written, and no record names them",
    "precommit.saved": "its record is durable, and nothing of it is visible",
    "commit.before_publish": "its snapshot is about to be created",
    "commit.published": "its snapshot is visible, and nobody has noted that",
}


@command(
    "demo",
    """
    $ streamsink demo
    $ streamsink demo --kill-at commit.published --json
    """,
    exits="1 should a row be missing or doubled",
)
@click.option("--folder", type=click.Path(file_okay=False), help="Where the lake stays; else it is a temporary one.")
@click.option("--kill-at", type=click.Choice(list(STEPS)), default="precommit.saved", show_default=True, help="Where.")
@click.option("--spark", is_flag=True, help="A stream of Spark's, in a local session; takes half a minute.")
def demo(folder: str | None, kill_at: str, spark: bool) -> Answer:
    """A stream, an accident, and the account: needs no configuration, and no Spark without --spark.

    A process writes 10 batches of 1,000 rows into a table, and appends them to plain Parquet files as well, as a batch
    function does that knows nothing of repeated batches. In the sixth batch it is killed (SIGKILL) at a step of the
    protocol. It is started again, and at the end each row of both is counted. JSON: {table, spark, killed_at,
    visible_after_kill, pending_after_kill, rows, missing, doubled, plain: {rows, missing, doubled}}. `make run` in a
    checkout is a longer stream, and `make chaos` has many kills.
    """
    if spark and importlib.util.find_spec("pyspark") is None:
        raise click.UsageError("--spark needs pyspark, which is not installed here: pip install pyspark")
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="streamsink-demo-") as made:
            return _demo(made, kill_at, "", spark=spark)
    os.makedirs(folder, exist_ok=True)
    look = f"Look at it: streamsink snapshots {shlex.quote(f'{folder}/lake/shop.db/orders')}"
    return _demo(os.path.abspath(folder), kill_at, look, spark=spark)


def _demo(folder: str, kill_at: str, last: str, *, spark: bool) -> Answer:
    import streamsink
    from streamsink.operations.journals import look_at_journals
    from streamsink.storage.stores import store_of

    table = os.path.join(folder, "lake", "shop.db", "orders")
    if os.path.exists(table):
        raise click.UsageError(f"{table} is there already: give --folder one without a lake")
    ended = _run(folder, table, f"{kill_at}@{_KILLED_IN + 1}:kill", spark=spark)
    _check(folder, ended, -signal.SIGKILL)
    killed = streamsink.read_arrow(table, columns=["id"]).num_rows
    [look] = look_at_journals(store_of(table).open(), table)
    again = _run(folder, table, "", spark=spark)
    _check(folder, again, 0)
    ours = _Account.of(streamsink.read_arrow(table, columns=["id"])["id"].to_pylist())
    plain = _Account.of(_ids_of_files(os.path.join(folder, "plain")))
    return Answer(
        {
            "table": table,
            "spark": spark,
            "killed_at": kill_at,
            "visible_after_kill": killed,
            "pending_after_kill": len(look.pending),
            **vars(ours),
            "plain": vars(plain),
        },
        [
            f"The stream: {_BATCHES} batches of {_SIZE:,} rows into {table}{', by Spark' if spark else ''}",
            f"The accident: in batch {_KILLED_IN} the driver was killed at '{kill_at}': {STEPS[kill_at]}.",
            f"    Visible are {killed:,} rows; pending are {sum(each.rows or 0 for each in look.pending):,}.",
            "The restart: what was pending is published, what was published is skipped, the rest is written.",
            f"The account: {ours}.",
            f"    The same batches, appended to plain Parquet files: {plain}.",
            *([last] if last else []),
        ],
        RIGHT if (ours.missing, ours.doubled) == (0, 0) else FINDINGS,
    )


@dataclass(frozen=True)
class _Account:
    """Of rows that are numbered from 0. missing, doubled: how many numbers are not there, or more than once."""

    rows: int
    missing: int
    doubled: int

    @classmethod
    def of(cls, ids: Sequence[int]) -> "_Account":
        found = Counter(ids)
        expected = max(_BATCHES * _SIZE, max(found, default=-1) + 1)
        return cls(found.total(), expected - len(found), sum(1 for times in found.values() if times > 1))

    def __str__(self) -> str:
        return f"{self.rows:,} rows; {self.missing:,} missing, {self.doubled:,} doubled"


def _ids_of_files(folder: str) -> list[int]:
    import pyarrow.parquet as pq

    names = sorted(name for name in os.listdir(folder) if name.endswith(".parquet"))
    return [
        number
        for name in names
        for number in pq.read_table(os.path.join(folder, name), columns=["id"])["id"].to_pylist()
    ]


def _run(folder: str, table: str, fault: str, *, spark: bool) -> int:
    """Run the query in a process of its own, with this fault armed. Returns how it ended; what it says is in a file."""
    beside = os.path.join(folder, "plain")
    words = [table, os.path.join(folder, "checkpoint.json"), str(_BATCHES), str(_SIZE), beside]
    call = ["-m", "streamsink.testing.numbered_query", *words]
    if spark:
        call = ["-c", _OF_SPARK, "demo", folder, str(_BATCHES), str(_SIZE)]
        progress("Spark runs ...")
    with open(os.path.join(folder, "said.log"), "ab") as said:
        environment = {**os.environ, "STREAMSINK_FAULT": fault}
        return subprocess.run([sys.executable, *call], env=environment, stdout=said, stderr=said).returncode


def _check(folder: str, ended: int, expected: int) -> None:
    """Raises click's error where the process has ended in another way, with the end of what it said."""
    if ended != expected:
        with open(os.path.join(folder, "said.log"), encoding="utf-8", errors="replace") as said:
            last = "".join(said.readlines()[-_LAST_LINES:])
        raise click.ClickException(f"the stream ended with {ended}, expected {expected}. Its last words:\n{last}")


@command("bench", "$ streamsink bench lake --batches 3")
@of_path("FOLDER")
@click.option("--batches", type=click.IntRange(2), default=30, show_default=True, help="How many micro-batches.")
@click.option("--rows", type=click.IntRange(1), default=1_000, show_default=True, help="Rows of each.")
@click.option("--spark", is_flag=True, help="Beside Spark's own file sink, in a local session. On local disks.")
def bench(at: At, batches: int, rows: int, spark: bool) -> Answer:
    """What a micro-batch costs on your store: time, calls of the store, and the least that it allows.

    FOLDER is any folder of the store; a table is made below it, and removed again. The floor is one small object that
    is created if it is absent: a micro-batch needs at least three of these one after another. Calls are those of this
    process, by what they do; a store bills them as requests. With --spark the same rows come from a stream of Spark's,
    into its own file sink and into streamsink. `make bench` in a checkout measures beside other sinks. JSON: {folder,
    batches, rows, floor_ms, first_ms, batch_ms, calls: {name: a batch}, spark_files_ms, spark_streamsink_ms}; each
    {median, p90, worst}, the last two null without --spark.
    """
    file_io, clock = at.store.open(), Clock()
    if spark and ("://" in at.root or importlib.util.find_spec("pyspark") is None):
        raise click.UsageError("--spark needs pyspark, and a FOLDER on a local disk")
    root = f"{at.root}/streamsink-bench-{IdSource().new_id()}"
    try:
        floor = [_ms(clock, file_io.create_if_absent, f"{root}/floor/{number}", b"x") for number in range(batches)]
        took, calls = _batches(clock, file_io, f"{root}/bench.db/orders", batches, rows)
        of_spark = _by_spark(root, batches, rows) if spark else {}
    finally:
        file_io.delete_tree(root)
    times = {
        "floor_ms": ("one object created if absent", _Times.of(floor)),
        "batch_ms": (f"micro-batch of {rows:,} rows", _Times.of(took[1:])),
        "spark_files_ms": ("with Spark: its own file sink", _Times.of(of_spark.get("spark_files_ms", ()))),
        "spark_streamsink_ms": ("with Spark: streamsink", _Times.of(of_spark.get("streamsink_ms", ()))),
    }
    document: dict[str, Any] = {
        "folder": at.root,
        "batches": batches,
        "rows": rows,
        "first_ms": took[0],
        "calls": calls,
        **{name: vars(each) if each else None for name, (_, each) in times.items()},
    }
    shown = [[what, each.median, each.p90, each.worst] for what, each in times.values() if each]
    total = sum(calls.values())
    return Answer(
        document,
        [
            f"{at.root}: {batches} micro-batches, {rows / document['batch_ms']['median'] * 1000:,.0f} rows a second",
            Rows("", ("what", "median ms", "p90 ms", "worst ms"), shown),
            f"the first micro-batch, with the start and the table: {took[0]:,.1f} ms",
            f"calls of the store a micro-batch: {total:,.1f} ("
            + ", ".join(f"{name} {number:,.1f}" for name, number in calls.items())
            + ")",
        ],
    )


@dataclass(frozen=True)
class _Times:
    """Of several times in ms."""

    median: float
    p90: float
    worst: float

    @classmethod
    def of(cls, times: Sequence[float]) -> "_Times | None":
        """None for no times."""
        ordered = sorted(times)
        return cls(statistics.median(ordered), ordered[int(0.9 * (len(ordered) - 1))], ordered[-1]) if ordered else None


def _by_spark(root: str, batches: int, size: int) -> dict[str, list[float]]:
    """How long micro-batches take in a stream of Spark's, by sink, in ms."""
    progress("Spark runs ...")
    call = [sys.executable, "-c", _OF_SPARK, "bench", f"{root}/spark", str(batches), str(size)]
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode != 0:
        last = "\n".join(done.stderr.splitlines()[-_LAST_LINES:])
        raise click.ClickException(f"Spark ended with {done.returncode}. Its last words:\n{last}")
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _batches(
    clock: Clock, file_io: "FileIO", root: str, batches: int, size: int
) -> tuple[Sequence[float], dict[str, float]]:
    """How long each micro-batch took, in ms, the first one with the start; and calls of the store a later one."""
    from streamsink.options import SinkOptions
    from streamsink.testing.counting import count_calls
    from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
    from streamsink.testing.numbered_query import SCHEMA
    from streamsink.testing.numbered_query import rows as numbered

    ends = [size * (number + 1) for number in range(batches)]
    driver, checkpoint = MicroBatchDriver(root, SCHEMA, numbered, SinkOptions()), SparkCheckpoint("bench", ends)
    driver.is_small = True
    calls = count_calls(file_io)
    begun = clock.monotonic_ms()
    sink = driver.start(file_io, checkpoint)
    try:
        sink.batch(driver.describe(checkpoint, 0))
        first = clock.monotonic_ms() - begun
        calls.clear()
        later = [driver.describe(checkpoint, number) for number in range(1, batches)]
        took = [first, *(_ms(clock, sink.batch, batch) for batch in later)]
        return took, {name: number / len(later) for name, number in calls.most_common()}
    finally:
        sink.close()


def _ms(clock: Clock, action: Callable[..., object], *arguments: Any) -> float:
    begun = clock.monotonic_ms()
    action(*arguments)
    return clock.monotonic_ms() - begun
