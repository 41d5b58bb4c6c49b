"""How often a store is called, by what the calls do: what a store bills, and what a distant one makes slow."""

import threading
from collections import Counter
from typing import Any

from streamsink.storage.file_io import FileIO

# Of the store's own calls, what people know them as. Others keep their names.
_NAMES = {
    "entries": "list",
    "names": "list",
    "below": "list",
    "size": "look up",
    "modified_ms": "look up",
    "open_new": "create",
    "write_new": "create",
    "put": "create",
    "put_new": "create",
    "try_new": "create",
    "sync_file": "flush",
    "sync_dir": "flush",
    "unlink": "delete",
    "remove_tree": "delete",
    "remove_all": "delete",
}
# These ask nothing of a store.
_FREE = {"name_limits", "at_once", "close", "check_link", "check_sources"}


class _Counted:
    """Hands each call on, and counts it."""

    def __init__(self, inner: Any, counts: "Counter[str]"):
        self._inner, self._counts, self._alone = inner, counts, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name.startswith("_") or name in _FREE:
            return found

        def counted(*arguments: Any, **named: Any) -> Any:
            with self._alone:
                self._counts[_NAMES.get(name, name)] += 1
            return found(*arguments, **named)

        return counted


def count_calls(file_io: FileIO) -> "Counter[str]":
    """Count the calls of this store from now on, in what is returned. For measuring: a call costs a little more."""
    counts: Counter[str] = Counter()
    counted: Any = _Counted(file_io._calls, counts)
    file_io._calls = counted
    return counts
