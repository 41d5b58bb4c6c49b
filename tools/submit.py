"""A ``spark-submit`` for the tests' Spark home that starts Spark's JVM at once.

Spark's own script starts bash, ps and a JVM whose only answer is the command line of the JVM that is wanted: about 0.2
of the 3.4 CPU-seconds of a driver of the tests. Here the answer is kept. What the kept answer is not for goes Spark's
own way: other arguments than settings, settings that change the command line otherwise, another Java.
"""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.java import Java

_OPTIONS, _CLASSES = "spark.driver.extraJavaOptions", "spark.driver.extraClassPath"
# Stands for what the caller gives, in the kept command line.
_MARK = {_OPTIONS: "-Doptions.of.the.caller", _CLASSES: "/classes/of/the/caller"}
_TIMEOUT_S = 60

# A java that runs the launcher, and says with what it is itself called to run Spark.
_TELLING = """#!/bin/sh
for arg; do [ "$arg" = org.apache.spark.launcher.Main ] && exec {java} "$@"; done
for arg; do printf '%s\\0' "$arg"; done
printf '\\0'
env -0
"""

# Variables that Spark's scripts read, and which change what they come to.
_ASKED = "SPARK_CONF_DIR SPARK_SUBMIT_OPTS SPARK_DRIVER_MEMORY SPARK_PRINT_LAUNCH_COMMAND SPARK_TESTING SPARK_REMOTE"

_SCRIPT = """#!/bin/sh
# Made by tools/submit.py: what {script} comes to for a session of the tests.
options= classes=
[ "$JAVA_HOME" = {java_home} ] && [ "$SPARK_HOME" = {home} ] &&
  [ -z "{asked}" ] || exec {script} "$@"
for arg; do
  case $arg in
    *[\\'\\"\\\\]*) exec {script} "$@" ;;
    {of_options}=*) options=${{arg#*=}} ;;
    {of_classes}=*) classes=${{arg#*=}} ;;
    spark.driver.memory=* | spark.driver.default*=* | spark.driver.extraLibraryPath=*) exec {script} "$@" ;;
    spark.remote=* | spark.api.mode=* | spark.master=[!l]*) exec {script} "$@" ;;
    --conf | --master | local\\[*\\] | spark.*=* | pyspark-shell) ;;
    *) exec {script} "$@" ;;
  esac
done
[ -n "$options" ] && [ -n "$classes" ] || exec {script} "$@"
export {exports}
set -f
exec "$JAVA_HOME/bin/java" {command} "$@"
"""


def telling_java(folder: Path, java: Java) -> Path:
    """A home of Java below ``folder`` whose java says how it is called to run Spark, for ``told``."""
    telling = folder / "bin" / "java"
    telling.parent.mkdir(parents=True)
    telling.write_text(_TELLING.format(java=shlex.quote(java.java)))
    telling.chmod(0o755)
    return folder


def told(script: Path, home: Path, telling: Path, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The arguments with which ``script`` calls java, and the variables of Spark and Python that it sets.

    Raises OSError or subprocess.SubprocessError where it cannot be started or fails.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    env |= {"SPARK_HOME": str(home), "JAVA_HOME": str(telling)}
    env.pop("PYTHONHASHSEED", None)
    command = [script, *arguments]
    said = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True, timeout=_TIMEOUT_S
    ).stdout
    called, _, variables = said.partition("\0\0")
    found = dict(line.split("=", 1) for line in variables.split("\0") if "=" in line)
    for name in found.keys() & env.keys() | {"SPARK_BEELINE_OPTS"}:  # that one is for terminals
        found.pop(name, None)
    return called.split("\0"), {name: value for name, value in found.items() if name.startswith(("SPARK_", "PYTHON"))}


def short_submit(script: Path, home: Path, java: Java) -> str | None:
    """The text of the short script for ``home``, which takes the place of Spark's ``script``. None where that one does
    not say what it comes to.
    """
    settings = [part for name, value in _MARK.items() for part in ("--conf", f"{name}={value}")]
    try:
        with tempfile.TemporaryDirectory(prefix="streamsink-java-") as folder:
            telling = telling_java(Path(folder, "java"), java)
            called, variables = told(script, home, telling, [*settings, "pyspark-shell"])
        before = called[: called.index("org.apache.spark.deploy.SparkSubmit") + 1]
        options, classes = before.index(_MARK[_OPTIONS]), before.index("-cp") + 1
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    parts = [shlex.quote(part) for part in before]
    parts[options] = "$options"
    parts[classes] = '"{}"'.format(before[classes].replace(_MARK[_CLASSES], "$classes"))
    return _SCRIPT.format(
        script=shlex.quote(str(script)),
        java_home=shlex.quote(java.home),
        home=shlex.quote(str(home)),
        asked="".join(f"${name}" for name in _ASKED.split()),
        of_options=_OPTIONS,
        of_classes=_CLASSES,
        exports=" ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(variables.items())),
        command=" ".join(parts),
    )
