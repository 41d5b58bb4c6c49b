"""docs/LINEAGE.md: its lines of Python run, and its table has what the listener takes."""

import inspect
import re
from pathlib import Path

from streamsink.lineage import OpenLineage

PAGE = Path(__file__).resolve().parents[2] / "docs" / "LINEAGE.md"


def test_the_lines_of_the_page_run(collector, tmp_path):
    """With a collector and a lake of ours."""
    [lines] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    made: dict = {}
    exec(lines.replace("http://marquez:5000", collector.url).replace("lake/", f"{tmp_path}/lake/"), made)
    assert made["lineage"].close()
    assert made["sink"].path.endswith("/lake/shop.db/orders")


def test_each_argument_has_its_line():
    """In the order of the code."""
    named = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    taken = [name for name in inspect.signature(OpenLineage.__init__).parameters if name != "self"]
    assert [name for name in named if name in taken] == taken
