"""How long each file of tests takes: ``make test ARGS=--durations=0 | tee gate.log``, then ``python -m tests.durations
gate.log``.

The schedule begins with the longest. Several logs may be given, of which a later one counts where both name a test: so
a log that has only the slowest tests makes an older one current. A log of a run with little else on the machine tells
most. The budget of the gate (``tests/test_schedule.py``) is in seconds of one machine: for a log of another one,
``--scaled`` divides all seconds by what the files took there in the median, compared with what is recorded.
"""

import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

FILE = Path(__file__).with_name("durations.json")
# Of a file that no log has named.
UNKNOWN_S = 2.0
_LINE = re.compile(r"\s*([\d.]+)s (call|setup|teardown)\s+(tests/\S+?\.py)(::.*)")


def read() -> dict[str, float]:
    """Seconds of each file, as they were written."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def seconds_of(logs: Iterable[str]) -> dict[str, float]:
    """Seconds of each file by these logs, the longest first."""
    tests: dict[tuple[str, str, str], float] = {}
    for log in logs:
        for line in log.splitlines():
            if found := _LINE.fullmatch(line.rstrip()):
                tests[found[3], found[4], found[2]] = float(found[1])
    files: dict[str, float] = defaultdict(float)
    for (file, _, _), seconds in tests.items():
        files[file] += seconds
    return _longest_first(files)


def scaled(found: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    """What another machine has found, in seconds of the machine of the record before, whose files stay if they are
    missing in it: they take turns.
    """
    both = [seconds / before[file] for file, seconds in found.items() if min(seconds, before.get(file, 0)) >= UNKNOWN_S]
    slower = statistics.median(both) if both else 1
    return _longest_first(before | {file: seconds / slower for file, seconds in found.items()})


def _longest_first(files: dict[str, float]) -> dict[str, float]:
    return {file: round(files[file], 1) for file in sorted(files, key=lambda file: (-files[file], file))}


def main(arguments: list[str]) -> int:
    root, paths = FILE.parent.parent, [path for path in arguments if path != "--scaled"]
    found = seconds_of(Path(path).read_text(encoding="utf-8") for path in paths)
    if found and len(paths) < len(arguments):
        found = scaled(found, read())
    there = {file: seconds for file, seconds in found.items() if (root / file).exists()}
    if not there:
        print(f"no log among {paths} has durations: run the tests with --durations=0", file=sys.stderr)
        return 1
    FILE.write_text(json.dumps(there, indent=1) + "\n", encoding="utf-8")
    print(f"{len(there)} files, {sum(there.values()):,.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
