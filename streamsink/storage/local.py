"""The local file system back end: ``FileIO`` over the real calls."""

import os
from urllib.parse import unquote, urlsplit

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO


def local_file_io(flush: bool = True) -> FileIO:
    """FileIO of this machine's file system."""
    return FileIO(PosixCalls(), IdSource().new_id, flush)


def local_path(table: str) -> str:
    """Absolute path of a table given as a path or a file: URI. Raises Misuse for another scheme."""
    if not isinstance(table, str) or not table.strip():
        raise Misuse(f"the table's path is {table!r}, expected a path such as 'lake/shop.db/orders'", kind="table.path")
    if "://" in table or table.startswith("file:"):
        parts = urlsplit(table)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise Misuse(
                f"{table}: the scheme '{parts.scheme}' has no back end here; expected a local path or file: URI",
                kind="table.scheme",
            )
        table = unquote(parts.path)
    return os.path.abspath(table)
