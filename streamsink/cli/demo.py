"""Commands that show what the library does: ``demo``, a stream with an accident, and ``bench``, a short measure."""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from streamsink.cli.frame import At, command, of_path
from streamsink.cli.output import FINDINGS, RIGHT, Answer, Rows
from streamsink.clock import Clock, IdSource

if TYPE_CHECKING:
    from streamsink.storage.file_io import FileIO

_BATCHES, _SIZE, _KILLED_IN = 10, 1_000, 5
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
def demo(folder: str | None, kill_at: str) -> Answer:
    """A stream, an accident, and the account: needs no configuration and no Spark.

    A process writes 10 batches of 1,000 rows into a table. In the sixth batch it is killed (SIGKILL) at a step of the
    protocol. It is started again, and at the end each row is counted. JSON: {table, killed_at, visible_after_kill,
    pending_after_kill, rows, missing, doubled}. `make run` in a checkout does the same with Spark, and `make chaos`
    with many kills.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="streamsink-demo-") as made:
            return _demo(made, kill_at, "")
    os.makedirs(folder, exist_ok=True)
    return _demo(os.path.abspath(folder), kill_at, f"Look at it: streamsink snapshots {folder}/lake/shop.db/orders")


def _demo(folder: str, kill_at: str, last: str) -> Answer:
    import streamsink
    from streamsink.operations.journals import look_at_journals
    from streamsink.storage.stores import store_of

    table = os.path.join(folder, "lake", "shop.db", "orders")
    if os.path.exists(table):
        raise click.UsageError(f"{table} is there already: give --folder one without a lake")
    ended = _run(folder, table, f"{kill_at}@{_KILLED_IN + 1}:kill")
    killed = streamsink.read_arrow(table, columns=["id"]).num_rows
    [look] = look_at_journals(store_of(table).open(), table)
    again = _run(folder, table, "")
    found = Counter(streamsink.read_arrow(table, columns=["id"])["id"].to_pylist())
    missing = sum(1 for number in range(_BATCHES * _SIZE) if not found[number])
    doubled = sum(1 for times in found.values() if times > 1)
    is_right = (ended, again, missing, doubled) == (-signal.SIGKILL, 0, 0, 0)
    return Answer(
        {
            "table": table,
            "killed_at": kill_at,
            "visible_after_kill": killed,
            "pending_after_kill": len(look.pending),
            "rows": found.total(),
            "missing": missing,
            "doubled": doubled,
        },
        [
            f"The stream: {_BATCHES} batches of {_SIZE:,} rows into {table}",
            f"The accident: in batch {_KILLED_IN} the driver was killed at '{kill_at}': {STEPS[kill_at]}.",
            f"    Visible are {killed:,} rows; pending are {sum(each.rows or 0 for each in look.pending):,}.",
            "The restart: what was pending is published, what was published is skipped, the rest is written.",
            f"The account: {found.total():,} of {_BATCHES * _SIZE:,} rows; {missing} missing, {doubled} doubled.",
            *([last] if last else []),
        ],
        RIGHT if is_right else FINDINGS,
    )


def _run(folder: str, table: str, fault: str) -> int:
    """Run the query in a process of its own, with this fault armed. Returns how it ended."""
    words = [table, os.path.join(folder, "checkpoint.json"), str(_BATCHES), str(_SIZE)]
    call = [sys.executable, "-m", "streamsink.testing.numbered_query", *words]
    return subprocess.run(call, env={**os.environ, "STREAMSINK_FAULT": fault}).returncode


@command("bench", "$ streamsink bench lake --batches 3")
@of_path("FOLDER")
@click.option("--batches", type=click.IntRange(2), default=30, show_default=True, help="How many micro-batches.")
@click.option("--rows", type=click.IntRange(1), default=1_000, show_default=True, help="Rows of each.")
def bench(at: At, batches: int, rows: int) -> Answer:
    """How long a micro-batch takes on your store, beside the least that the store allows. Without Spark.

    FOLDER is any folder of the store; a table is made below it, and removed again. The floor is one small object that
    is created if it is absent: a micro-batch needs at least three of these one after another. `make bench` in a
    checkout measures with Spark, beside other sinks. JSON: {folder, batches, rows, floor_ms: {median, worst}, first_ms,
    batch_ms: {median, worst}}.
    """
    file_io, clock = at.store.open(), Clock()
    root = f"{at.root}/streamsink-bench-{IdSource().new_id()}"
    try:
        floor = [_ms(clock, file_io.create_if_absent, f"{root}/floor/{number}", b"x") for number in range(batches)]
        took = _batches(clock, file_io, f"{root}/bench.db/orders", batches, rows)
    finally:
        file_io.delete_tree(root)
    shown = [
        ["one object created if absent", statistics.median(floor), max(floor)],
        ["first micro-batch: start, table", took[0], took[0]],
        [f"micro-batch of {rows:,} rows", statistics.median(took[1:]), max(took[1:])],
    ]
    document: dict[str, Any] = {
        "folder": at.root,
        "batches": batches,
        "rows": rows,
        "floor_ms": {"median": shown[0][1], "worst": shown[0][2]},
        "first_ms": took[0],
        "batch_ms": {"median": shown[2][1], "worst": shown[2][2]},
    }
    return Answer(document, [f"{at.root}: {batches} micro-batches", Rows("", ("what", "median ms", "worst ms"), shown)])


def _batches(clock: Clock, file_io: "FileIO", root: str, batches: int, size: int) -> Sequence[float]:
    """How long each micro-batch took, in ms, the first one with the start."""
    from streamsink.options import SinkOptions
    from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
    from streamsink.testing.numbered_query import SCHEMA
    from streamsink.testing.numbered_query import rows as numbered

    ends = [size * (number + 1) for number in range(batches)]
    driver, checkpoint = MicroBatchDriver(root, SCHEMA, numbered, SinkOptions()), SparkCheckpoint("bench", ends)
    driver.is_small = True
    begun = clock.monotonic_ms()
    sink = driver.start(file_io, checkpoint)
    try:
        sink.batch(driver.describe(checkpoint, 0))
        first = clock.monotonic_ms() - begun
        later = [driver.describe(checkpoint, number) for number in range(1, batches)]
        return [first, *(_ms(clock, sink.batch, batch) for batch in later)]
    finally:
        sink.close()


def _ms(clock: Clock, action: Callable[..., object], *arguments: Any) -> float:
    begun = clock.monotonic_ms()
    action(*arguments)
    return clock.monotonic_ms() - begun
