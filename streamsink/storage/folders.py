"""Making folders, and making the names in them durable: the part of ``FileIO`` that concerns folders.

A name that was created in a folder survives a power failure only after the folder has been synced. The folder's own
name is such a name in its parent, and so on up to the root.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from streamsink.storage.calls import PosixLikeCalls
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.reading import Reading

_Result = TypeVar("_Result")
# So often a folder is made anew that somebody else deletes meanwhile, because nothing is in it.
_TIMES = 4


class Folders(Reading):
    """Makes folders and syncs them; remembers which folders this process has made durable.

    ``flush=False`` omits the syncs.
    """

    def __init__(self, calls: PosixLikeCalls, flush: bool):
        super().__init__(calls)
        self._flush = flush
        self._settled: set[str] = set()  # folders whose own names this process has made durable
        self._takes_names: set[str] = set()  # folders that ``begin_names`` has checked

    def make_dir(self, path: str) -> None:
        """Make the folder and its parents where they are missing. Each folder that was made is durable afterwards."""
        _again(lambda: self._make_dir(path))

    def _make_dir(self, path: str) -> None:
        for folder in self._missing(path):
            self._settled.discard(folder)
            self._calls.mkdir(folder)
            self.sync_dir(os.path.dirname(folder))
            self._settled.add(folder)

    def begin_dir(self, path: str) -> None:
        """Make the folder if it is missing. The folder and the names in it are durable only after ``sync_dir``."""
        self._settled.discard(path)
        self._in_dir(path, lambda: self._calls.mkdir(path))

    def begin_names(self, folder: str, staging: str, group: FlushGroup) -> None:
        """Make ``folder`` if it is missing, and check that files of the folder ``staging`` can be placed into it.

        A folder that was made is durable when ``group`` has been flushed. One FileIO checks each folder only once, so a
        folder that is in use costs no further calls. Raises: OSError, which says what prevents the placing.
        """
        if folder in self._takes_names:
            return
        _again(lambda: self._begin_names(folder, staging, group))
        self._takes_names.add(folder)

    def check_sources(self, paths: Sequence[str]) -> None:
        """Check that these files, which other processes have written, can be placed. Raises: OSError, of the first one
        that cannot."""
        self._calls.check_sources(paths)

    def settled(self, path: str) -> None:
        """Note that the folder's own name is durable now."""
        self._settled.add(path)

    def doubt(self, path: str, root: str) -> None:
        """Forget that the names of this folder, and of those above it up to ``root``, are durable.

        Called where others delete folders in which nothing is left: the folder that is there may be another one, which
        another process has made.
        """
        while path.startswith(f"{root}/"):
            self._settled.discard(path)
            path = os.path.dirname(path)

    def sync_dir(self, path: str) -> None:
        """Make durable the names created in this folder so far, and the folder's own path.

        A process may have died between making a folder and syncing its parent. So this process also syncs the folders
        above when it relies on a folder for the first time.
        """
        if not self._flush:
            return
        self._calls.sync_dir(path)
        parent = os.path.dirname(path)
        while path not in self._settled and parent != path:
            try:
                self._calls.sync_dir(parent)
            except PermissionError:
                return  # this folder is not ours: it is far above the table
            self._settled.add(path)
            path, parent = parent, os.path.dirname(parent)

    def _missing(self, path: str) -> list[str]:
        """The folders to make so that ``path`` exists, outermost first."""
        missing = []
        while path and self._calls.size(path) is None:
            missing.append(path)
            path = os.path.dirname(path)
        return missing[::-1]

    def _begin_names(self, folder: str, staging: str, group: FlushGroup) -> None:
        for missing in self._missing(folder):
            self._settled.discard(missing)
            self._calls.mkdir(missing)
            group.made_dir(missing)
        self._calls.check_link(staging, folder)

    def _in_dir(self, path: str, action: Callable[[], _Result]) -> _Result:
        """Run ``action``. As long as the folder of ``path`` is missing, make it and run ``action`` again."""
        folder = os.path.dirname(path)
        for again in range(_TIMES):
            try:
                return action()
            except FileNotFoundError:
                if again and not self._missing(folder):
                    raise
                self.make_dir(folder)
        return action()


def _again(action: Callable[[], None]) -> None:
    """Run ``action``, which makes folders, anew where one of them has gone meanwhile."""
    for _ in range(_TIMES - 1):
        with contextlib.suppress(FileNotFoundError):
            action()
            return
    action()
