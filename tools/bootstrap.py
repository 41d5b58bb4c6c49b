#!/usr/bin/env python3
"""Prepare this machine, and run something in what was prepared. Needs only Python 3.10; called by the Makefile.

    bootstrap.py env [--for run|docs|test]                   virtual environment(s) and Java
    bootstrap.py jars KIND [--python P]                      resolve jars; prints {"jars": [...], "way": "..."}
    bootstrap.py cds [--python P]                            class-data archive; prints the JVM options
    bootstrap.py exec [--for run|docs|test] [--jars KIND ...] -- ARGS   all of it, then `python ARGS` in the environment

Environment: PYTHON (interpreter to build on), SPARK (PySpark version), STREAMSINK_CACHE (default ~/.cache/streamsink),
STREAMSINK_IVY_SETTINGS (for a mirror of Maven's central repository), STREAMSINK_JAVA_OPTS (options of the JVM of `exec
--for run`).
"""

import argparse
import json
import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036  said before anything fails
    sys.exit("streamsink needs Python 3.10 or newer: run make with PYTHON=/path/to/python3")
# The checkout, for `tools`; this folder's own entry does no harm.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import cds, chromium, compiled, jars, java, sparkconf, venvs  # noqa: E402
from tools.common import ROOT, SetupError, checkout_cache, say, write_atomically  # noqa: E402

PURPOSES = ("run", "docs", "test")


def prepare(purpose: str) -> tuple[str, java.Java]:
    """The (interpreter, Java) for "run" or "test"."""
    python = str(venvs.ensure_main(purpose))
    # pip is asked for only when there is no Java, because finding it costs a process.
    found = (
        java.find_java((python, "-m", "pip"))
        if java.installed()
        else java.find_java(tuple(venvs.pip_for(Path(python).parent.parent)))
    )
    return python, found


def child_environment(python: str, found: java.Java) -> dict[str, str]:
    env = dict(os.environ)
    env |= {"JAVA_HOME": found.home, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    # A Spark of the machine's own would win over the one in the environment.
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYTHONHOME", "PYTHONPATH"):
        env.pop(name, None)
    return env


def run_environment(python: str, found: java.Java, kinds: list) -> dict[str, str]:
    """The environment that spark-submit would make:
    a job's plain SparkSession.builder.getOrCreate() gets jars and settings from here."""
    paths = [path for kind in kinds for path in jars.jars(kind, python)]
    conf = sparkconf.local_conf(os.environ.get("STREAMSINK_JAVA_OPTS", cds.FAST), paths)
    args = [part for name, value in conf.items() if name != "spark.master" for part in ("--conf", f"{name}={value}")]
    env = child_environment(python, found)
    env["PYSPARK_SUBMIT_ARGS"] = shlex.join(["--master", conf["spark.master"], *args, "pyspark-shell"])
    return env


def test_environment(runs_tests: bool) -> tuple[str, java.Java, dict[str, str]]:
    """The (interpreter, Java, environment) with everything that the tests look for, so that no test process prepares
    anything itself.

    On a new machine one part waits for the network while another computes, so they are made beside each other.
    runs_tests: pytest follows.
    """
    with ThreadPoolExecutor() as pool:
        pypaimon = pool.submit(venvs.ensure_pypaimon)
        browser = pool.submit(chromium.prepare)
        python, found = prepare("test")
        test_conf = pool.submit(sparkconf.test_conf, python)
        tests = [pool.submit(compiled.compile_tests, python)] if runs_tests else []
        for kind in ("broker", "hdfs", "s3proxy", "paimon-rest"):
            jars.jars(kind, python)
        conf = test_conf.result()
        for each in (browser, *tests):
            each.result()
    conf_file = checkout_cache() / f"{Path(python).parent.parent.name}-spark-conf.json"
    write_atomically(conf_file, json.dumps(conf, indent=1))
    env = child_environment(python, found) | {
        "STREAMSINK_TEST_SPARK_CONF": str(conf_file),
        "STREAMSINK_TEST_SPARK_HOME": str(sparkconf.test_home(python)),
        "STREAMSINK_PYPAIMON_PYTHON": str(pypaimon.result()),
        "STREAMSINK_PAIMON_JAR": jars.jars("paimon", python)[0],
    }
    # Some hundred processes of the tests import the library, and each worker has the tests' assertions rewritten.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return python, found, env


def parse(argv: list) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bootstrap.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    env = verbs.add_parser("env")
    env.add_argument("--for", dest="purpose", choices=PURPOSES, default="run")
    jar = verbs.add_parser("jars")
    jar.add_argument("kind", choices=jars.KINDS)
    jar.add_argument("--python")
    archive = verbs.add_parser("cds")
    archive.add_argument("--python")
    execute = verbs.add_parser("exec")
    execute.add_argument("--for", dest="purpose", choices=PURPOSES, default="run")
    execute.add_argument("--jars", dest="kinds", choices=jars.KINDS, action="append", default=[])
    execute.add_argument("args", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


def _of_jobs(options: argparse.Namespace) -> tuple[str, java.Java, dict[str, str]]:
    if options.purpose == "test":
        return test_environment("pytest" in options.args)
    python, found = prepare("run")
    return python, found, run_environment(python, found, options.kinds)


def main(argv: list) -> None:
    options = parse(argv)
    if options.verb in ("jars", "cds"):
        python = options.python or prepare("run")[0]
        print(
            json.dumps(jars.resolve(options.kind, python)._asdict())
            if options.verb == "jars"
            else cds.fast_options(python)
        )
        return
    if options.verb == "env":
        python, found = prepare(options.purpose)
        say(f"python {python}; Java {found.version} from {found.origin}: {found.home}")
        if options.purpose == "test":
            say(f"pypaimon {venvs.ensure_pypaimon()}")
        print(python)
        return
    if options.purpose == "docs":
        python = str(venvs.ensure_main("docs"))
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    else:
        python, found, env = _of_jobs(options)
        say(f"Java {found.version} from {found.origin}")
    args = options.args[1:] if options.args[:1] == ["--"] else options.args
    os.chdir(ROOT)
    os.execve(python, [python, *args], env)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SetupError as error:
        sys.exit(f"[setup] error: {error}")
