"""A Delta table as the destination of a walk: its log on a disk, where deltalake needs it, all else in the store."""

import dataclasses
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from streamsink.testing.crashing import Mode
from tests.delta.world import DeltaOnDisk, LogOnDisk, seen
from tests.walks.elsewhere.places import Place
from tests.walks.model import Wrong
from tests.walks.queries import SCHEMA
from tests.walks.store import Process

_MEMORY = "/dev/shm"
_CALLS = ("is_there", "create", "newest", "entry", "commit", "flush")
_APPLICATION = "streamsink:"


class _Strike:
    """What is to go wrong at the n-th call of deltalake from now on; 0 for nothing."""

    left, mode = 0, Mode.BEFORE

    def ask(self, process: Process | None, name: str, ask):
        """Make a call of this driver, which a command does without one."""
        if process is None:
            return ask()
        self.left -= 1
        if self.left == 0:
            process.fail_in(1, self.mode)
        return process._do(name, ask)


def _log_of(process: Process | None, strike: _Strike) -> type[LogOnDisk]:
    """The log as this driver uses it, which may die, fail or stand still at each of its calls."""

    def wrap(name):
        def method(self, *args, **named):
            own = getattr(LogOnDisk, name)
            if self.is_asked:  # one of these calls makes another one
                return own(self, *args, **named)
            return strike.ask(process, f"delta {name}", lambda: within(self, lambda: own(self, *args, **named)))

        return method

    def within(log, call):
        log.is_asked = True
        try:
            return call()
        finally:
            log.is_asked = False

    return type("Log", (LogOnDisk,), {"is_asked": False, **{name: wrap(name) for name in _CALLS}})


@dataclass(frozen=True)
class _Sink(DeltaOnDisk):
    def open(self, file_io, options, *more):
        return super().open(file_io, dataclasses.replace(options, table_options={}), *more)


class Delta(Place):
    """A backup of it has its log, its data files and the states."""

    def __init__(self, store, root: str):
        super().__init__(store, root)
        self.journals = f"{root}/_streamsink"
        self._of_applications = f"{self.journals}/streamsink"
        self._disk = tempfile.mkdtemp(prefix="streamsink-walk-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
        self._log = Path(self._disk, "_delta_log")
        self._strike = _Strike()

    def strike_at(self, number, mode):
        self._strike.left, self._strike.mode = number, mode

    def close(self):
        shutil.rmtree(self._disk, ignore_errors=True)

    def sink(self, process):
        return _Sink(self.root, disk=self._disk, make=_log_of(process, self._strike))

    def visible(self):
        return seen(self.io, self.root, self._disk)

    def applications(self):
        """As the log says; walks are short, so all of it is there."""
        actions = [json.loads(line) for path in self._entries() for line in path.read_text().splitlines()]
        names = {action["txn"]["appId"] for action in actions if action.get("txn")}
        return sorted(name.removeprefix(_APPLICATION) for name in names if name.count(":") == 1)

    def copy(self):
        files = self._store.copy_of(self.root)
        files = {path: data for path, data in files.items() if not path.startswith(f"{self._of_applications}/")}
        return {path.name: path.read_bytes() for path in self._entries()}, files

    def put_back(self, copy):
        log, files = copy
        self._store.put_back(self.root, files, keep=self._of_applications)
        shutil.rmtree(self._log, ignore_errors=True)
        if log:
            self._log.mkdir()
        for name, data in log.items():
            (self._log / name).write_bytes(data)

    def drop(self):
        self._store.remove(self.root, keep=self._of_applications)
        shutil.rmtree(self._log, ignore_errors=True)

    def add(self, rows) -> bool:
        """deltalake appends rows."""
        if not DeltaTable.is_deltatable(self._disk):
            return False
        values = {"id": rows, "part": ["a"] * len(rows), "n": [0] * len(rows)}
        write_deltalake(self._disk, pa.Table.from_pydict(values, schema=SCHEMA), mode="append")
        for path in Path(self._disk).glob("*.parquet"):
            self.io.create_if_absent(f"{self.root}/{path.name}", path.read_bytes())
            path.unlink()
        return True

    def forget(self, application):
        """Nothing is remembered in a table that was made anew. In another one nobody can remove a transaction."""
        if application in self.applications():
            raise Wrong("no way to forget", application)

    def version(self):
        return DeltaTable(self._disk).version() if DeltaTable.is_deltatable(self._disk) else None

    def roll_back(self, version):
        """RESTORE."""
        newest = self.version()
        if newest is None or newest <= version:
            return False
        DeltaTable(self._disk).restore(version, ignore_missing_files=True)
        return True

    def _entries(self) -> list[Path]:
        return sorted(self._log.glob("*.json")) if self._log.is_dir() else []
