#!/usr/bin/env python3
"""Run the benchmarks: `make bench`, or `make bench ARGS="--quick --only micro"`. Nothing here asserts a time."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = str(ROOT)  # the Python workers import `benchmarks` as well

from pyspark.sql import SparkSession  # noqa: E402

from benchmarks import large, machine, micro, operations, reading, report, road, writers  # noqa: E402
from benchmarks.data import Sizes  # noqa: E402
from tools.sparkconf import local_conf  # noqa: E402

BENCHMARKS = {
    "operations": operations.operations,
    "writers": writers.writers,
    "micro": micro.micro,
    "replay": micro.replay,
    "inside": micro.inside,
    "large": large.large,
    "partitioned": large.partitioned,
    "reading": reading.reading,
    "road": road.road,
    "levers": road.levers,
    "worker": road.worker,
}
_MEMORY = "3g"


def session(folder: Path) -> SparkSession:
    """As a user's: the JVM's own compiler and collector, not the tests' fast start."""
    builder = SparkSession.builder.appName("streamsink-benchmarks").config("spark.driver.memory", _MEMORY)
    for name, value in {**local_conf("", []), "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the program; the numbers mean nothing")
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), help="may be repeated")
    parser.add_argument("--rounds", type=int, help="rounds of A B A B")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/BENCHMARKS.md")
    options = parser.parse_args(argv)
    sizes = Sizes.quick() if options.quick else Sizes()
    if options.rounds:
        sizes = Sizes(**{**vars(sizes), "rounds": options.rounds})
    with tempfile.TemporaryDirectory(prefix="streamsink-bench-") as name:
        spark = session(Path(name))
        about = machine.versions(spark)
        print(f"{about}; load {machine.load()}", flush=True)
        for only in options.only or BENCHMARKS:
            print(f"\n# {only}", flush=True)
            before = machine.load()
            tables = BENCHMARKS[only](spark, Path(name), sizes)
            content = report.text(tables)
            print(f"\n{content}\n", flush=True)
            if options.write:
                report.write(only, f"{content}\n\n{about}. Load before {before}, after {machine.load()}.")
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
