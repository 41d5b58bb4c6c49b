"""The end of a process tells what is left, and the end of the run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from streamsink.lineage import OpenLineage
from tests.lineage.test_account import admitted, kafka, published

told = {"type": "file", "log_file_path": sys.argv[1], "append": True}
lineage = OpenLineage(config={"transport": told}, interval_ms=3_600_000)
lineage(admitted(0, kafka(0, 10)))
lineage(published(0, 1))
"""


@pytest.mark.usefixtures("package")
def test_a_program_that_ends_without_a_word(tmp_path):
    """Nobody has closed the listener. What was published, and waited for its time, is in the last message."""
    told = tmp_path / "told.json"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(told)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    start, end = map(json.loads, told.read_text().splitlines())
    assert (start["eventType"], end["eventType"]) == ("START", "ABORT")
    assert end["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 10
