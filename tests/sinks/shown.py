"""The sinks that pages of the docs show, as a reader of the page has them, and what a reader of their files sees."""

import functools
import io
import json
import re
import types
from pathlib import Path

import pyarrow.parquet as pq

DOCS = Path(__file__).resolve().parents[2] / "docs"


@functools.cache
def shown(page: str = "WRITING_A_SINK.md") -> types.ModuleType:
    """The page's first block of code."""
    module = types.ModuleType(page.removesuffix(".md").lower())
    exec(compile(code(page), str(DOCS / page), "exec"), module.__dict__)  # noqa: S102  our own page
    return module


def code(page: str = "WRITING_A_SINK.md") -> str:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)[0]


def plain_files(path: str):
    """The sink at this path."""
    return shown().PlainFiles(path)


def rows_of(file_io, root: str) -> list[int]:
    """The ids in the files that manifests name."""
    found = []
    for application in file_io.entries(f"{root}/commits"):
        folder = f"{root}/commits/{application.name}"
        for name in (name for name in file_io.names(folder) if name.endswith(".json")):
            for path in json.loads(file_io.read(f"{folder}/{name}"))["files"]:
                content = pq.ParquetFile(io.BytesIO(file_io.read(f"{root}/{path}")))
                found += content.read(["id"], use_threads=False).column("id").to_pylist()
    return found


def json_lines(path: str):
    """The sink in Flink's form at this path, with its journal."""
    return shown("TWO_PHASE_COMMIT_SINK.md").JsonLines(f"{path}/rows", journal=path)


def rows_of_lines(file_io, root: str) -> list[int]:
    """The ids in the files of such a sink."""
    names = file_io.names(f"{root}/rows")
    lines = [line for name in names for line in file_io.read(f"{root}/rows/{name}").decode().splitlines()]
    return [json.loads(line)["id"] for line in lines]
