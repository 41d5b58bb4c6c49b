"""The virtual environments of a checkout.

`.cache/venv-<python>-<spark>` for the library, `.cache/venv-<python>-pypaimon` for the other reader of the tables,
`.cache/venv-<python>-airflow` for the scheduler that a page is about."""

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.common import (
    DEFAULT_SPARK,
    ROOT,
    SetupError,
    checkout_cache,
    locked,
    read_json,
    run_retrying,
    say,
    write_atomically,
)

OLDEST_PYTHON = (3, 10)
STAMP = "streamsink-stamp.json"
PYPAIMON = ["pypaimon==2.1.0", "pyarrow<20"]  # 2.1.0 imports a pyarrow function that 20 removed.
PYPAIMON_NEWEST_PYTHON = (3, 13)  # pyarrow 19 has wheels up to this Python.
# Without the providers that the page of Airflow does not use.
AIRFLOW = ["apache-airflow-core==3.3.2", "apache-airflow-providers-standard==1.21.0"]
AIRFLOW_PINS = ROOT / "tools" / "airflow.txt"  # of all that they need
PIP_WITH_TARGET_PYTHON = (22, 3)  # This is the first pip that knows --python.
# Of the library's extras, by what an environment is for: `make run` can serve its metrics.
EXTRAS = {"run": "prometheus", "docs": "docs,prometheus", "test": "test"}
# These stay uncompiled: 2,000 files that no test imports.
UNCOMPILED = r"pyspark/(pandas|ml|mllib|tests|sql/tests|streaming/tests|testing|pipelines)/|/tests?/"


def spark_version() -> str:
    """The PySpark to install: $SPARK, else the default."""
    return os.environ.get("SPARK") or DEFAULT_SPARK


def _asked(python: str) -> tuple[str, tuple[int, int]]:
    """(real path, version) as `python` itself says,
    because a name on PATH may be a wrapper that chooses an interpreter."""
    code = "import sys; print(sys.executable); print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SetupError(f"{python} is no working Python: {done.stderr.strip()}")
    executable, version = done.stdout.splitlines()[:2]
    major, minor = version.split()
    return executable, (int(major), int(minor))


@functools.cache
def base_python() -> tuple[str, tuple[int, int]]:
    """The interpreter to build on: $PYTHON (a name on PATH or a path), else the one that runs this."""
    wanted = os.environ.get("PYTHON")
    python, version = sys.executable, sys.version_info[:2]
    if wanted:
        found = shutil.which(wanted)
        if not found:
            raise SetupError(f"PYTHON={wanted}: no such program")
        python, version = _asked(found)
    if version < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise SetupError(f"{python} is Python {version[0]}.{version[1]}; {oldest} or newer is needed (set PYTHON=)")
    return python, version


def venv_python(venv: Path) -> Path:
    return venv / "bin" / "python"


def main_venv() -> Path:
    """The path of the library's environment, whether it is made or not."""
    _, version = base_python()
    return checkout_cache() / f"venv-{version[0]}.{version[1]}-{spark_version()}"


def _runs(*command) -> bool:
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        done = subprocess.run([str(part) for part in command], **silent)
    except OSError:
        return False  # There is no such program.
    return done.returncode == 0


def _outer_pip(python: str) -> list | None:
    """Another interpreter's pip that can install into a virtual environment which has none."""
    names = [python, "python3", *(f"python3.{minor}" for minor in range(10, 16)), "pip3", "pip"]
    for found in dict.fromkeys(filter(None, map(shutil.which, names))):
        command = [found] if Path(found).name.startswith("pip") else [found, "-m", "pip"]
        try:
            done = subprocess.run([*command, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
            version = tuple(int(part) for part in done.stdout.split()[1].split(".")[:2])
        except (OSError, ValueError, IndexError):
            continue
        if version >= PIP_WITH_TARGET_PYTHON:
            return command
    return None


def _create(venv: Path, python: str) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    if _runs(python, "-c", "import ensurepip, venv") and _runs(python, "-m", "venv", venv):
        return
    # Debian keeps ensurepip in a package of its own. An environment without pip, which a pip from outside fills, is as
    # good.
    shutil.rmtree(venv, ignore_errors=True)
    if not _runs(python, "-m", "venv", "--without-pip", venv):
        raise SetupError(f"{python} cannot make a virtual environment: its `venv` module is missing")
    if not _outer_pip(python):
        raise SetupError(
            f"{python} has no ensurepip and no pip 22.3 or newer is on PATH: install python3-venv or python3-pip"
        )


def pip_for(venv: Path) -> list:
    """The command that installs into `venv`."""
    python = venv_python(venv)
    if _runs(python, "-c", "import pip"):
        return [str(python), "-m", "pip"]
    outer = _outer_pip(str(python.resolve()))
    if not outer:
        raise SetupError(f"no pip can install into {venv}")
    return [*outer, "--python", str(python)]


def _install(venv: Path, requirements: list, *options: str) -> None:
    command = [*pip_for(venv), "install", "-q", "--no-compile", "--use-pep517", "--disable-pip-version-check", *options]
    if os.geteuid() == 0:
        command.append("--root-user-action=ignore")
    run_retrying([*command, *requirements], f"installing into {venv.name}")


def _base_stamp(venv: Path, python: str) -> list:
    """What an environment is built on: when it changes, the environment is made anew."""
    return [str(venv), os.path.realpath(python)]


def _fill(venv: Path, python: str, content: list, install) -> Path:
    """Make `venv`, or fill it up, unless its stamp says that this was done; `install(venv)` fills it.

    Filling up leaves what is there in place, so that what is tied to the dates of files (a class-data archive) stays
    valid."""
    stamp_file, stamp = venv / STAMP, {"base": _base_stamp(venv, python), "content": content}
    if read_json(stamp_file) == stamp:
        return venv_python(venv)
    with locked(venv.with_name(venv.name + ".lock")):
        known = read_json(stamp_file) or {}
        if known != stamp:
            say(f"preparing {venv.relative_to(ROOT)} with {python}")
            if known.get("base") != stamp["base"] or not _runs(venv_python(venv), "-c", "pass"):
                _create(venv, python)
                # An interrupted installation is filled up the next time, not started over.
                write_atomically(stamp_file, json.dumps({"base": stamp["base"]}))
            install(venv)
            site = next((venv / "lib").glob("python*/site-packages"))
            # It is compiled here once: where PYTHONDONTWRITEBYTECODE is set, every Spark worker would compile it again.
            _runs(venv_python(venv), "-m", "compileall", "-q", "-j", "2", "-x", UNCOMPILED, site)
            write_atomically(stamp_file, json.dumps(stamp))
    return venv_python(venv)


def _project_digest() -> str:
    """A digest of what pip reads in pyproject.toml; the settings of tools below it may change freely."""
    text = (ROOT / "pyproject.toml").read_text().partition("[tool.pytest")[0]
    return hashlib.sha256(text.encode()).hexdigest()


def ensure_main(purpose: str = "run") -> Path:
    """The interpreter that has the library (editable) and PySpark; `purpose` is one of `EXTRAS`.
    Idempotent; milliseconds when it is there."""
    python, _ = base_python()
    venv, spark, digest = main_venv(), spark_version(), _project_digest()
    # Once filled for tests, an environment serves `run` and `docs` as well; one for docs serves `run`.
    stamp = read_json(venv / STAMP) or {}
    larger = {"run": ("docs", "test"), "docs": ("test",)}.get(purpose, ())
    if stamp in [{"base": _base_stamp(venv, python), "content": [EXTRAS[each], spark, digest]} for each in larger]:
        return venv_python(venv)
    extras = EXTRAS[purpose]
    # pip takes "pyspark[connect]", which the tests need, for another package: where only "pyspark" has a version, it
    # first fetches every newer one, of 450 MB each, to find that they do not go together.
    pinned = [f"pyspark=={spark}"] if purpose != "test" else [f"pyspark[connect]=={spark}"]
    packages = [*pinned, "-e", f"{ROOT}[{extras}]"]
    return _fill(venv, python, [extras, spark, digest], lambda place: _install(place, packages))


def ensure_pypaimon() -> Path:
    """The interpreter that has pypaimon, in an environment of its own: it needs an older pyarrow than the library."""
    python, version = base_python()
    if version > PYPAIMON_NEWEST_PYTHON:
        names = [f"python3.{minor}" for minor in range(PYPAIMON_NEWEST_PYTHON[1], OLDEST_PYTHON[1] - 1, -1)]
        older = next((name for name in map(shutil.which, names) if name and _runs(name, "-c", "pass")), None)
        if not older:
            newest = ".".join(map(str, PYPAIMON_NEWEST_PYTHON))
            raise SetupError(
                f"pypaimon needs pyarrow<20, which has no wheel after Python {newest}; none of {', '.join(names)} "
                "is on PATH"
            )
        say(f"pypaimon: pyarrow<20 has no wheel for Python {version[0]}.{version[1]}, taking {older} for it")
        python, version = _asked(older)
    venv = checkout_cache() / f"venv-{version[0]}.{version[1]}-pypaimon"
    return _fill(venv, python, PYPAIMON, lambda place: _install(place, PYPAIMON, "--only-binary", "pyarrow"))


def ensure_airflow() -> Path:
    """The interpreter that has Airflow, in an environment of its own: 130 packages, made when a test asks for it."""
    python, version = base_python()
    venv = checkout_cache() / f"venv-{version[0]}.{version[1]}-airflow"
    digest = hashlib.sha256(AIRFLOW_PINS.read_bytes()).hexdigest()
    pinned = [*AIRFLOW, "--constraint", str(AIRFLOW_PINS)]
    return _fill(venv, python, [*AIRFLOW, digest], lambda place: _install(place, pinned))
