"""The state of the machine while it is measured: load, processor time of this process tree, versions."""

import contextlib
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Cost:
    """Wall and processor seconds of one measurement; ``python_s`` is the part of ``cpu_s`` that is not the JVM's."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    python_s: float = 0.0


def load() -> str:
    """The three load averages; shared machines make the numbers noisy, so every table prints them."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def versions(spark=None) -> str:
    """The versions of what ran, in one line."""
    import pyarrow
    import pyspark

    parts = [f"CPython {platform.python_version()}", f"PySpark {pyspark.__version__}", f"pyarrow {pyarrow.__version__}"]
    if spark is not None:
        java = spark._jvm.java.lang.System
        parts.append(f"Java {java.getProperty('java.version')} ({java.getProperty('java.vm.name')})")
    return ", ".join([*parts, f"{os.cpu_count()} cores", f"{platform.system()} {platform.release()}"])


@contextlib.contextmanager
def measured() -> Iterator[Cost]:
    """Fills in the cost when the block ends. Pages that others dirtied are written out before it begins."""
    cost = Cost()
    os.sync()
    before, begun = processes(), time.perf_counter()
    yield cost
    cost.wall_s = time.perf_counter() - begun
    cost.cpu_s, cost.python_s = spent(before, processes())


def spent(before: "dict[int, Process]", after: "dict[int, Process]") -> tuple[float, float]:
    """Processor seconds of a process tree between two looks at it, by process id: of all of it, and without the JVMs.

    What a process took that ended in between is counted by its parent, if that has waited for it.
    """
    cpu_s = python_s = 0.0
    gone = [process for pid, process in before.items() if pid not in after]
    for pid, now in after.items():
        own, ended = now.own_s, now.ended_s
        if pid in before:
            own, ended = own - before[pid].own_s, ended - before[pid].ended_s
        # A child that was waited for brings all of its life along; Spark's daemon does not wait for its workers.
        ended = max(0.0, ended - sum(child.own_s + child.ended_s for child in gone if child.parent == pid))
        cpu_s += own + ended
        python_s += ended if now.is_java else own + ended
    return cpu_s, python_s


def in_turns(rounds: int, ways: Sequence[str], measure: Callable[[str, int], None]) -> None:
    """Measure A B C, C B A, and so on, so that a change of the machine's load meets all ways,
    and none always follows the same one."""
    for number in range(rounds):
        for way in ways if number % 2 == 0 else reversed(ways):
            measure(way, number)
            print(f"  round {number + 1}/{rounds} {way} (load {load()})", flush=True)


def spread(values: Sequence[float], digits: int = 0) -> str:
    """The values as "median [min..max]"; "-" when there are none."""
    if not values:
        return "-"
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}..{max(values):.{digits}f}]"


def own_peak() -> int:
    """KiB that this process has had at most, as the kernel's mark of this program.
    The mark of getrusage begins with what the parent had."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


def python_workers() -> dict[int, int]:
    """KiB that each of Spark's Python workers below this process has had at most, by process id."""
    parents, peaks = {}, {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"daemon" in (folder / "cmdline").read_bytes():
                lines = (folder / "status").read_text().splitlines()
                peaks[pid] = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    # A worker is a child of a daemon and has the daemon's command line.
    return {pid: peak for pid, peak in peaks.items() if parents[pid] in peaks and _is_below(pid, os.getpid(), parents)}


def files_and_bytes(folder: Path) -> tuple[str, str]:
    """Number of all files below ``folder``, and their megabytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return f"{len(sizes):,}", f"{sum(sizes) / 1e6:.1f}"


def slug(name: str) -> str:
    """A sink's name in a form that can be a folder's."""
    return "".join(c if c.isalnum() else "-" for c in name)


@dataclass(frozen=True)
class Process:
    """Processor seconds of a process, its own and those of children that ended and were waited for."""

    parent: int
    own_s: float
    ended_s: float
    is_java: bool


def processes() -> dict[int, Process]:
    """This process and all below it, by process id."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            name, _, rest = (folder / "stat").read_text().rpartition(")")
            fields = rest.split()
            user, system, ended_user, ended_system = (int(ticks) / _TICKS for ticks in fields[11:15])
            found[int(folder.name)] = Process(
                int(fields[1]), user + system, ended_user + ended_system, name.endswith("(java")
            )
    parents = {pid: process.parent for pid, process in found.items()}
    return {pid: process for pid, process in found.items() if _is_below(pid, os.getpid(), parents)}


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    for _ in range(len(parents)):
        if pid == root:
            return True
        if pid not in parents:
            return False
        pid = parents[pid]
    return False
