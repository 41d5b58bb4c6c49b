"""The store of a real walk: the local disk, and what an operator copies, removes and puts back there."""

import itertools
import os
import shutil
from pathlib import Path

from streamsink.clock import IdSource
from streamsink.storage.calls import Calls, PosixCalls
from streamsink.storage.file_io import FileIO


class Disk(PosixCalls):
    """The local disk, with an operator's commands."""

    def __init__(self, copies: Path):
        super().__init__()
        self._copies = copies
        self._number = itertools.count()

    def io(self, calls: Calls, root: str) -> FileIO:
        """As of ``tests.walks.store.Store``, whose reader and whose other writers look at this disk too."""
        return FileIO(calls, IdSource().new_id)

    def put_over(self, path: str, data: bytes, unique: str) -> None:
        """Likewise."""
        folder = os.path.dirname(path)
        self.io(self, folder).write(hidden := f"{folder}/.{unique}.tmp", data)
        self.rename(hidden, path)
        self.sync_dir(folder)

    def copy_of(self, folder: str) -> str:
        """Copy the folder with cp -r. Returns where the copy is, or None when there is nothing to copy."""
        if not os.path.isdir(folder):
            return ""
        return shutil.copytree(folder, self._copies / str(next(self._number)))

    def records_in(self, copy: str, application: str) -> dict[int, bytes]:
        """Of a copy of a table's folder, the records of this application's journal by number."""
        found = Path(copy, "streamsink", application).glob("record-*.json") if copy else ()
        return {int(path.stem.removeprefix("record-")): path.read_bytes() for path in found}

    def remove(self, folder: str, keep: str = "") -> None:
        """Remove the folder with rm -r. keep: a folder in it that stays."""
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        elif os.path.isdir(folder):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if path != keep:
                    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)

    def put_back(self, folder: str, copy: str, keep: str = "") -> None:
        """Let the copy take the folder's place. keep: as in ``remove``; what the copy has below it is left out."""
        self.remove(folder, keep)
        left_out = {os.path.basename(keep)} if keep else set()
        shutil.copytree(
            copy, folder, dirs_exist_ok=True, ignore=lambda at, names: left_out if Path(at) == Path(copy) else set()
        )
