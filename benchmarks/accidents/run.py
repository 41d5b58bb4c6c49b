#!/usr/bin/env python3
"""Accidents S14 to S18 and S20 to S22 on real Spark, files and Kafka, for streamsink and each peer: `make accidents`,
or `make accidents ARGS="--only S16 --sink Delta"`. The report says what is in each table; nothing is asserted."""

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = str(ROOT)  # The Python workers import streamsink as well.

from py4j.protocol import Py4JNetworkError  # noqa: E402
from pyspark import SparkContext  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from benchmarks import machine, report  # noqa: E402
from benchmarks.accidents.ground import Ground, reason  # noqa: E402
from benchmarks.accidents.kafka import Clusters  # noqa: E402
from benchmarks.accidents.sinks import settings, sinks  # noqa: E402
from benchmarks.accidents.situations import SITUATIONS  # noqa: E402
from tools.cds import fast_options  # noqa: E402
from tools.jars import jars  # noqa: E402
from tools.sparkconf import local_conf  # noqa: E402

GONE = "the driver's JVM ended"


def session(folder: Path) -> SparkSession:
    wanted, found = settings(folder)
    builder = SparkSession.builder.appName("streamsink-accidents")
    ours = {"spark.sql.shuffle.partitions": "1", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    ours["spark.sql.pyspark.jvmStacktrace.enabled"] = "true"  # The report quotes the last cause.
    for name, value in {**local_conf(fast_options(sys.executable), [*jars("kafka"), *found]), **wanted, **ours}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="situations whose name begins so, as S15"
    )
    parser.add_argument("--sink", nargs="+", default=[""], metavar="TEXT", help="sinks whose name begins so, as Delta")
    parser.add_argument(
        "--brokers", nargs=2, default=[], metavar="HOST:PORT", help="two clusters, instead of brokers of its own"
    )
    parser.add_argument("--out", default="build/accidents", help="folder of report.md (default: %(default)s)")
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    options = arguments(argv)
    with tempfile.TemporaryDirectory(prefix="streamsink-accidents-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        situations = dict(SITUATIONS)
        if any("S15".startswith(only[:3]) for only in options.only):
            situations |= stack.enter_context(Clusters(folder, options.brokers)).situations()
        spark = session(folder)
        about = machine.versions(spark)
        met = [sink for sink in sinks(spark) if sink.name.startswith(tuple(options.sink))]
        lines, errors = [], []
        for number, title in enumerate(sorted(title for title in situations if title.startswith(tuple(options.only)))):
            cells = []
            for place, sink in enumerate(met):
                ground = Ground(spark, sink, folder / f"t{number}" / f"s{place}")
                try:
                    cells.append(situations[title](ground) if title.startswith(sink.only) else "")
                except (Py4JNetworkError, ConnectionError) as gone:
                    cells.append(GONE)
                    ground.errors.append(reason(gone))
                    spark = _session_again(folder)
                errors += [[title, sink.name, error] for error in ground.errors]
                print(f"{title} | {sink.name} | {cells[-1]} | {ground.errors}", flush=True)
            lines.append([title, *cells])
        spark.stop()
    tables = [
        report.Table("What is in the table after the accident", ("accident", *(sink.name for sink in met)), lines),
        report.Table("Errors", ("accident", "sink", "said"), errors),
    ]
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.md").write_text(f"{report.text(tables)}\n\n{about}.\n", encoding="utf-8")
    print(f"\n{report.text(tables)}\n\n{about}.\n{out}/report.md")


def _session_again(folder: Path) -> SparkSession:
    """A session in a new JVM, because a sink has ended the driver's."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    return session(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
