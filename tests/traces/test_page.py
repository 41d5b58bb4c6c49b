"""docs/TRACES.md: its lines of Python run, and its table has the spans that there are."""

import re
from pathlib import Path

import pytest

from streamsink import events
from streamsink.traces import spans
from tests.lineage.collector import collecting

PAGE = Path(__file__).resolve().parents[2] / "docs" / "TRACES.md"


@pytest.mark.usefixtures("sdk")
def test_the_lines_of_the_page_run(tmp_path):
    """One block after the other, with a server that refuses what it is sent: that is the exporters' own affair."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    made: dict = {}
    with collecting() as collector:
        for lines in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
            exec(lines.replace("http://collector:4318", collector.url).replace("lake/", f"{tmp_path}/lake/"), made)
        made["metrics"](events.Claimed("/lake/t", "orders", 1))
        made["provider"].shutdown()
        made["meters"].shutdown()
    assert made["sink"].path.endswith("/lake/shop.db/orders")


def test_each_span_has_its_line():
    """Steps of a batch, and work beside it."""
    named = set(
        re.findall(r"`streamsink\.([a-z-]+)`(?=[, |])", PAGE.read_text(encoding="utf-8").split("## Metrics")[0])
    )
    made = {
        "batch",
        "restore",
        "publish-destination",
        *spans.STEPS.values(),
        *(name for name, _ in spans.BESIDE.values()),
    }
    assert named & made == made
