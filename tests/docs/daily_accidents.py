"""What happens to tries of a program of docs/how-to/AIRFLOW.md whose first line calls ``happen``.

The program is called ``PROGRAM.py DAY``. In the folder where it runs ``PROGRAM.json`` says which accident a day has, in
its first try. Files beside it tell the tries, and the test, from each other: ``PROGRAM-DAY.tried`` is there from the
first try on, ``.again`` when a later one has ended, and ``.error`` says the kind of the error that has ended one.
"""

import atexit
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from streamsink.testing import faults

WAIT_S = 600


def happen() -> None:
    program, day = Path(sys.argv[0]).stem, sys.argv[1]
    run = f"{program}-{day}"
    sys.excepthook = functools.partial(_say, Path(f"{run}.error"))
    if not _is_first(Path(f"{run}.tried")):
        atexit.register(Path(f"{run}.again").touch)
        return
    accidents: dict[str, tuple[str, Callable[[], None]]] = {
        "the driver dies": ("commit.before_publish", faults.kill),
        "spark-submit dies": ("precommit.saved", lambda: _lose_spark_submit(f"{run}.again")),
        "keeps the name": ("write.begin", lambda: _wait_for(f"{program}-*.error")),
    }
    step, action = accidents[json.loads(Path(f"{program}.json").read_text())[day]]
    faults.arm(step, 1, action)


def _lose_spark_submit(until: str) -> None:
    """The JVM alone is killed. This process, whose parent it is, goes on later."""
    os.kill(os.getppid(), signal.SIGKILL)
    _wait_for(until)


def _wait_for(files: str) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if next(Path().glob(files), None):
            return
        time.sleep(0.1)
    raise TimeoutError(f"there is no {files}")


def _is_first(tried: Path) -> bool:
    try:
        tried.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _say(file: Path, kind: type[BaseException], error: BaseException, trace: object) -> None:
    file.write_text(getattr(error, "kind", repr(error)))
    sys.__excepthook__(kind, error, trace)
