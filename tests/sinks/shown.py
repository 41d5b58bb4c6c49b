"""The sink that docs/WRITING_A_SINK.md shows, as a reader of that page has it, and what a reader of its files sees."""

import functools
import io
import json
import re
import types
from pathlib import Path

import pyarrow.parquet as pq

PAGE = Path(__file__).resolve().parents[2] / "docs" / "WRITING_A_SINK.md"


@functools.cache
def shown() -> types.ModuleType:
    """The page's first block of code."""
    module = types.ModuleType("plain_files")
    exec(compile(code(), str(PAGE), "exec"), module.__dict__)  # noqa: S102  our own page
    return module


def code() -> str:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]


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
