"""The sink that docs/TWO_PHASE_COMMIT_SINK.md shows, and what is promised of transactions."""

import functools
import json
import re
import types
from pathlib import Path

from streamsink.testing.conformance import check_sink

PAGE = Path(__file__).resolve().parents[2] / "docs" / "TWO_PHASE_COMMIT_SINK.md"


@functools.cache
def shown() -> types.ModuleType:
    """The page's first block of code."""
    module = types.ModuleType("json_lines")
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    exec(compile(code, str(PAGE), "exec"), module.__dict__)  # noqa: S102  our own page
    return module


def rows_of(file_io, root: str) -> list[int]:
    names = file_io.names(f"{root}/rows")
    lines = [line for name in names for line in file_io.read(f"{root}/rows/{name}").decode().splitlines()]
    return [json.loads(line)["id"] for line in lines]


def test_the_sink_of_the_docs_passes():
    """Every call is tried, in every way."""
    print(check_sink(lambda root: shown().JsonLines(f"{root}/rows", journal=root), rows_of))
