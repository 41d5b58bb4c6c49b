"""After how many walks a defect is found that nobody told them of: ``python -m tests.walks.teeth [words]``, over tests/sabotage/defects.py."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.sabotage.defect import Defect
from tests.sabotage.defects import DEFECTS
from tests.sabotage.run import Copy

MOST = int(os.environ.get("WALKS") or 1_000)
# Parts that no walk in memory goes through.
_ELSEWHERE = ("spark/", "storage/s3", "storage/hdfs", "storage/calls.py", "locks/")


class _Walking(Copy):
    """A copy of the tree that is walked instead of tested."""

    seed = "1"

    def _first_failure(self, tests):
        command = [sys.executable, "-B", "-m", "tests.walks", "--until-wrong", self.seed, str(MOST)]
        done = subprocess.run(command, cwd=self._root, env={**os.environ, "PYTHONPATH": str(self._root)}, capture_output=True, text=True)
        found = re.search(r"WRONG after .*", done.stdout)
        if found is None and done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return found and found[0]


def main(words: list[str]) -> int:
    """Prints one line a defect."""
    chosen = [d for d in DEFECTS if not d.file.startswith(_ELSEWHERE) and (not words or any(word in d.name for word in words))]
    found = 0
    with tempfile.TemporaryDirectory(prefix="streamsink-teeth-") as folder:
        copy = _Walking(Path(folder))
        copy.seed = os.environ.get("STREAMSINK_SEED", "1")
        for defect in chosen:
            said = copy.try_out(defect).by
            found += said is not None
            print(f"{_name(defect)}: {said or f'not found in {MOST} walks'}", flush=True)
    print(f"{found} of {len(chosen)} defects are found by walks")
    return 0


def _name(defect: Defect) -> str:
    return f"{defect.name} ({defect.file})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
