#!/usr/bin/env python3
"""Accidents S14 to S18 on real Spark, files and Kafka, for streamsink and each peer: `make accidents`, or
`make accidents ARGS="--only S16 --sink Delta"`. The report says what is in each table; nothing is asserted."""

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = str(ROOT)  # the Python workers import streamsink as well

from pyspark.sql import SparkSession  # noqa: E402

from benchmarks import machine, report  # noqa: E402
from benchmarks.accidents.ground import Ground  # noqa: E402
from benchmarks.accidents.kafka import Brokers  # noqa: E402
from benchmarks.accidents.sinks import settings, sinks  # noqa: E402
from benchmarks.accidents.situations import SITUATIONS  # noqa: E402
from tools.cds import fast_options  # noqa: E402
from tools.jars import jars  # noqa: E402
from tools.sparkconf import local_conf  # noqa: E402


def session(folder: Path) -> SparkSession:
    wanted, found = settings(folder)
    builder = SparkSession.builder.appName("streamsink-accidents")
    ours = {"spark.sql.shuffle.partitions": "1", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    ours["spark.sql.pyspark.jvmStacktrace.enabled"] = "true"  # the report quotes the last cause
    for name, value in {**local_conf(fast_options(sys.executable), [*jars("kafka"), *found]), **wanted, **ours}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="situations whose name begins so, as S15")
    parser.add_argument("--sink", nargs="+", default=[""], metavar="TEXT", help="sinks whose name begins so, as Delta")
    parser.add_argument("--out", default="build/accidents", help="folder of report.md (default: %(default)s)")
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    options = arguments(argv)
    with tempfile.TemporaryDirectory(prefix="streamsink-accidents-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        situations = dict(SITUATIONS)
        if "S15".startswith(tuple(only[:3] for only in options.only)):
            situations |= stack.enter_context(Brokers(folder)).situations()
        spark = session(folder)
        stack.callback(spark.stop)
        met = [sink for sink in sinks(spark) if sink.name.startswith(tuple(options.sink))]
        lines, errors = [], []
        for number, title in enumerate(sorted(title for title in situations if title.startswith(tuple(options.only)))):
            line = [title]
            for place, sink in enumerate(met):
                if not title.startswith(sink.only):
                    line.append("")
                    continue
                ground = Ground(spark, sink, folder / f"t{number}" / f"s{place}")
                line.append(situations[title](ground))
                errors += [[title, sink.name, error] for error in ground.errors]
                print(f"{title} | {sink.name} | {line[-1]} | {ground.errors}", flush=True)
            lines.append(line)
        tables = [
            report.Table("What is in the table after the accident", ("accident", *(sink.name for sink in met)), lines),
            report.Table("Errors", ("accident", "sink", "said"), errors),
        ]
        out = Path(options.out)
        out.mkdir(parents=True, exist_ok=True)
        text = f"{report.text(tables)}\n\n{machine.versions(spark)}.\n"
        (out / "report.md").write_text(text, encoding="utf-8")
        print(f"\n{text}\n{out}/report.md")


if __name__ == "__main__":
    main(sys.argv[1:])
