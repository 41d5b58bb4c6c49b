"""Writes the report's page to a file, whole or not at all."""

import os
import re

from streamsink.clock import IdSource
from streamsink.operations.report.page import MARK
from streamsink.table.layout import Layout

# What a name of a file has at most of a table's name, and how its letters are chosen: shells and web servers take them.
_MOST, _ODD = 80, re.compile(r"[^A-Za-z0-9._-]+")


def default_name(root: str) -> str:
    """Name of the file for the report of the table, or branch, at this path."""
    at = Layout(root)
    names = [at.main.rstrip("/").rpartition("/")[2], *([at.branch] if at.branch else [])]
    plain = [_ODD.sub("-", name)[:_MOST].strip(".-") or "table" for name in names]
    return f"{'-'.join(plain)}-report.html"


def is_replaceable(path: str) -> bool:
    """Whether the file is not there, or is an older page of a report. Raises OSError where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(len(MARK)) in (MARK.encode(), b"")
    except FileNotFoundError:
        return True


def write(path: str, page: str) -> int:
    """Write the page, in place of an older one. Returns its size in bytes.

    Who opens the file meanwhile sees the older page or the new one. Raises OSError, and then nothing is changed.
    """
    data = page.encode("utf-8", "backslashreplace")
    temporary = f"{path}.{IdSource().new_id()[:8]}.tmp"
    try:
        with open(temporary, "xb") as stream:
            stream.write(data)
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise
    return len(data)
