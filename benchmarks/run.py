#!/usr/bin/env python3
"""Run the benchmarks: `make bench`, or `make bench ARGS="--quick --only micro"`. Nothing here asserts a time."""

import argparse
import dataclasses
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = str(ROOT)  # The Python workers import `benchmarks` as well.

from pyspark.sql import SparkSession  # noqa: E402

from benchmarks import (  # noqa: E402
    growth,
    large,
    machine,
    memory,
    micro,
    operations,
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
from benchmarks.data import Sizes  # noqa: E402
from streamsink.spark import worker_daemon  # noqa: E402
from tools.sparkconf import local_conf  # noqa: E402

# What the goals are about comes first, then what explains them.
MAIN = {
    "micro": micro.micro,
    "replay": micro.replay,
    "large": large.large,
    "partitioned": large.partitioned,
    "growth": growth.growth,
    "memory": memory.memory,
    "planning": planning.planning,
}
DETAILS = {
    "operations": operations.operations,
    "positions": positions.positions,
    "publishing": publishing.publishing,
    "writers": writers.writers,
    "stores": stores.stores,
    "inside": micro.inside,
    "reading": reading.reading,
    "road": road.road,
    "levers": road.levers,
    "worker": road.worker,
}
BENCHMARKS = {**MAIN, **DETAILS}
_MEMORY = "3g"


def session(folder: Path, compared: bool) -> SparkSession:
    """A session like a user's: with the JVM's own compiler and collector, not the tests' fast start.
    ``compared``: with other people's sinks."""
    settings, jars = peers.conf(folder) if compared else ({}, [])
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
    parser.add_argument(
        "--out", default="build/bench", help="folder of report.md and report.svg (default: %(default)s)"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the tables into docs/BENCHMARKS.md, the picture beside it"
    )
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    options = arguments(argv)
    sizes = dataclasses.replace(Sizes.quick() if options.quick else Sizes(), more_sinks=tuple(options.sink))
    if options.rounds:
        sizes = dataclasses.replace(
            sizes, rounds=options.rounds, micro_rounds=options.rounds, more_rounds=options.rounds
        )
    items: list = []
    with tempfile.TemporaryDirectory(prefix="streamsink-bench-") as name:
        spark = session(Path(name), not options.no_peers)
        about = machine.versions(spark)
        print(f"{about}; load {machine.load()}", flush=True)
        for only in options.only or (BENCHMARKS if options.all else MAIN):
            print(f"\n# {only}", flush=True)
            before, begun = machine.load(), time.monotonic()
            found = BENCHMARKS[only](spark, Path(name), sizes)
            items += found
            told = f"{about}. Load before {before}, after {machine.load()}; took {time.monotonic() - begun:.0f} s."
            content = f"{report.text(found)}\n\n{told}"
            print(f"\n{content}\n", flush=True)
            if options.write:
                report.write(only, content)
        spark.stop()
    finish(items, about, options)


def finish(items: list, about: str, options: argparse.Namespace) -> None:
    """Write the goals, the whole report and its picture."""
    goals = report.text([report.goals(items)])
    print(f"\n{goals}\n")
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    body = "![bars](report.svg)\n\n" if any(isinstance(item, report.Bar) for item in items) else ""
    (out / "report.md").write_text(
        f"# Benchmarks\n\n{goals}\n\n{body}{report.text(items)}\n\n{about}.\n", encoding="utf-8"
    )
    picture.draw(items, out / "report.svg")
    if options.write:
        report.write("goals", f"{goals}\n\n{about}.")
        picture.draw(items, report.PICTURE)
    print(f"{out}/report.md, {out}/report.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
