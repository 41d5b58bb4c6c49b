#!/usr/bin/env python3
"""Run the benchmarks: `make bench`, or `make bench ARGS="--quick --only micro"`. Nothing here asserts a time."""

import argparse
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Collection
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = str(ROOT)  # The Python workers import `benchmarks` as well.

from pyspark.sql import SparkSession  # noqa: E402

from benchmarks import (  # noqa: E402
    freshness,
    growth,
    large,
    machine,
    memory,
    micro,
    operations,
    pages,
    peers,
    picture,
    planning,
    positions,
    publishing,
    reading,
    report,
    road,
    stores,
    writers,
)
from benchmarks.compaction import long, query, rivals  # noqa: E402
from benchmarks.data import Sizes  # noqa: E402
from benchmarks.grows import part as grows  # noqa: E402
from benchmarks.s3 import compare, listing  # noqa: E402
from benchmarks.s3 import sinks as s3_sinks  # noqa: E402
from benchmarks.sinks import databases, kafka, lakes, several  # noqa: E402
from streamsink.spark import worker_daemon  # noqa: E402
from tools.jars import jars as jars_of  # noqa: E402
from tools.sparkconf import local_conf  # noqa: E402

# What the goals are about and what the documentation quotes comes first, then what explains it.
MAIN = {
    "micro": micro.micro,
    "replay": micro.replay,
    "large": large.large,
    "partitioned": large.partitioned,
    "growth": growth.growth,
    "memory": memory.memory,
    "planning": planning.planning,
    "stores": stores.stores,
    "s3": compare.s3,
    "freshness": freshness.freshness,
    "grows": grows.grows,
    "kafka": kafka.kafka,
    "databases": databases.databases,
    "iceberg": lakes.iceberg,
    "delta": lakes.delta,
    "fan-out": several.several,
}
DETAILS = {
    "compaction": query.compaction,
    "compaction-long": long.long,
    "compaction-live": long.live_thread,
    "compaction-more": long.more,
    "compaction-rivals": rivals.rivals,
    "operations": operations.operations,
    "positions": positions.positions,
    "publishing": publishing.publishing,
    "writers": writers.writers,
    "inside": micro.inside,
    "reading": reading.reading,
    "road": road.road,
    "levers": road.levers,
    "worker": road.worker,
    "s3-requests": listing.requests,
}
BENCHMARKS = {**MAIN, **DETAILS}
_MEMORY = "3g"


def session(folder: Path, compared: bool, parts: Collection[str] = ()) -> SparkSession:
    """A session like a user's: with the JVM's own compiler and collector, not the tests' fast start.
    ``compared``: with other people's sinks. ``parts``: what will be measured."""
    settings, jars = peers.conf(folder) if compared else ({}, [])
    if compared and "s3" in parts:
        jars += s3_sinks.jars()
    if {"freshness", "kafka"}.intersection(parts):
        jars = [*jars, *jars_of("kafka")]
    if "databases" in parts:
        jars = [*jars, *jars_of("jdbc")]
    elif compared and "iceberg" in parts:
        jars += peers.available({"jdbc": {}})[1]
    builder = SparkSession.builder.appName("streamsink-benchmarks").config("spark.driver.memory", _MEMORY)
    ours = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.python.daemon.module": worker_daemon.MODULE}
    for name, value in {**local_conf("", jars), **settings, **ours}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to try the program; the numbers mean nothing"
    )
    parser.add_argument(
        "--only", action="append", choices=list(BENCHMARKS), help=f"may be repeated; without it: {', '.join(MAIN)}"
    )
    parser.add_argument("--all", action="store_true", help="everything")
    parser.add_argument(
        "--sink",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="compare with it too; see benchmarks/ways.py",
    )
    parser.add_argument("--no-peers", action="store_true", help="leave Iceberg and Delta out")
    parser.add_argument("--rounds", type=int, help="rounds of A B A B")
    parser.add_argument("--batches", type=int, help="batches of compaction-long and -live (default: 10,000)")
    parser.add_argument(
        "--out", default="build/bench", help="folder of report.md and report.svg (default: %(default)s)"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="make this the run that the documentation quotes; with --only, these parts of it",
    )
    options = parser.parse_args(argv)
    if options.write and (options.quick or options.no_peers and not options.only):
        parser.error("--write is for a whole run, or for parts of one: leave --quick and --no-peers out")
    return options


def main(argv: list[str]) -> None:
    options = arguments(argv)
    sizes = dataclasses.replace(Sizes.quick() if options.quick else Sizes(), more_sinks=tuple(options.sink))
    if options.rounds:
        sizes = dataclasses.replace(
            sizes,
            rounds=options.rounds,
            micro_rounds=options.rounds,
            more_rounds=options.rounds,
            s3_rounds=options.rounds,
        )
    if options.batches:
        sizes = dataclasses.replace(sizes, long_batches=options.batches)
    chosen = options.only or list(BENCHMARKS if options.all else MAIN)
    parts: dict[str, list] = {}
    day = datetime.now(timezone.utc).date().isoformat()
    with tempfile.TemporaryDirectory(prefix="streamsink-bench-") as name:
        spark = session(Path(name), not options.no_peers, chosen)
        about = machine.versions(spark)
        print(f"{about}; load {machine.load()}", flush=True)
        for part in chosen:
            print(f"\n# {part}", flush=True)
            before, begun = machine.load(), time.monotonic()
            parts[part] = BENCHMARKS[part](spark, Path(name), sizes)
            print(f"\n{report.text(parts[part])}\n", flush=True)
            print(f"Load before {before}, after {machine.load()}; took {time.monotonic() - begun:.0f} s.", flush=True)
        spark.stop()
    finish(parts, about, options)
    if options.write:
        (pages.keep_parts if options.only else pages.keep)(pages.Run.of(about, day, parts))


def finish(parts: dict[str, list], about: str, options: argparse.Namespace) -> None:
    """Write the goals, the whole report and its picture; the picture also for the documentation, if asked to."""
    items = [item for found in parts.values() for item in found]
    goals = report.text([report.goals(items)])
    print(f"\n{goals}\n")
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    body = "![bars](report.svg)\n\n" if any(isinstance(item, report.Bar) for item in items) else ""
    (out / "report.md").write_text(
        f"# Benchmarks\n\n{goals}\n\n{body}{report.text(items)}\n\n{about}.\n", encoding="utf-8"
    )
    for path in [out / "report.svg", *([pages.PICTURE] if options.write and not options.only else [])]:
        picture.draw(items, path)
    print(f"{out}/report.md, {out}/report.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
