"""The destinations other than tables: how each is opened, how somebody reads it who knows nothing of our code, and what
is done to it by hand. One class each."""

import contextlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow.parquet as pq

from streamsink.protocol.sink import Sink
from streamsink.sinks.directory.file_sink import FileSink
from streamsink.storage.file_io import FileIO
from streamsink.testing.crashing import Mode
from tests.sinks.transactions import Remembering, Server
from tests.walks.store import Copy, Process

_HAS_STATE = re.compile(r"/record-\d+\.json$|/(?:_commits|commits)/[^/]+/\d+\.json$")


class Place:
    """Whatever is done to it is durable at once.

    root: of everything that is in the store. journals: the folder below which the journals lie. has_rows: a backup of
    it has the rows, and not only what is noted of them. republishes: it takes on_rollback="republish".
    """

    has_rows = republishes = True
    changes = 0

    def __init__(self, store, root: str):
        self._store = store
        self.root = self.journals = root

    @property
    def io(self) -> FileIO:
        """The I/O of somebody who comes anew."""
        return self._store.io(self._store, self.root)

    def close(self) -> None:
        """Remove what is not in the store."""

    def strike_at(self, number: int, mode: Mode) -> None:
        """Let the n-th statement in the destination, from now on, go wrong; 0 for none."""

    # -- as walks of tables ask --------------------------------------------------------------------------------------

    def is_table(self) -> bool:
        return True

    def letters(self) -> list[int]:
        return []

    def letter_tables(self) -> list[str]:
        return []

    def snapshot_ids(self) -> list[int]:
        return []

    def hint(self) -> int:
        return 0

    def rows_in(self, path: str) -> list[int] | None:
        return None

    # -- of each destination -----------------------------------------------------------------------------------------

    def sink(self, process: Process) -> Sink:
        """The sink as the program of this process names it."""
        raise NotImplementedError

    def visible(self) -> list[int]:
        """The ids that a reader sees."""
        raise NotImplementedError

    def listed(self) -> list[int]:
        """The ids that a reader of another kind sees, when everything is at rest."""
        return self.visible()

    def applications(self) -> list[str]:
        """Of which applications it is known that they have written."""
        raise NotImplementedError

    def copy(self) -> object:
        """A backup of the rows, and of what is known of them, without journals."""
        raise NotImplementedError

    def put_back(self, copy) -> None:
        """The backup takes the place of what is there."""
        raise NotImplementedError

    def drop(self) -> None:
        """Everything but the journals is gone."""
        raise NotImplementedError

    def lose_known(self, all_of_it: bool) -> bool:
        """Only what says which rows are there is gone. all_of_it: so are the journals. Returns whether that can be."""
        return False

    def delete(self, rows: Iterable[int]) -> list[int]:
        """Somebody deletes rows, as far as that can be done to some of them. Returns those that are gone."""
        return []

    def add(self, rows: Iterable[int]) -> bool:
        """Another program adds rows. Returns whether it can."""
        return False

    def version(self) -> int | None:
        """What ``roll_back`` takes to come back to what is there now; None where there is nothing of the kind."""
        return None

    def roll_back(self, version: int) -> bool:
        """Go back to a version by the destination's own means. Returns whether it has that version."""
        return False

    def any_state(self) -> dict | None:
        """The state of any manifest, or of any record of a journal."""
        paths = [path for path in self._store.copy_of(self.root) if _HAS_STATE.search(path)]
        for path in paths:
            with contextlib.suppress(ValueError, KeyError):
                return json.loads(self.io.read(path).split(b"\n")[1 if "/record-" in path else 0])["state"]
        return None

    def open_transactions(self) -> list[str]:
        """What nobody has committed or aborted."""
        return []

    def forget(self, application: str) -> None:
        """What is known of an application is removed."""
        raise NotImplementedError


class Files(Place):
    """A directory of Parquet files. A reader reads the files that manifests name; another one lists the folders."""

    def __init__(self, store, root: str):
        super().__init__(store, root)
        self.journals = f"{root}/_streamsink"
        self._rows: dict[str, list[int]] = {}

    def sink(self, process):
        return FileSink(self.root)

    def visible(self):
        return [row for name in self._named() for row in self._read(f"{self.root}/{name}")]

    def listed(self):
        names = [f"{folder}/{name}" for folder in self._folders() for name in self.io.names(f"{self.root}/{folder}")]
        return [row for name in names if "/part-" in name for row in self._read(f"{self.root}/{name}")]

    def applications(self):
        return sorted({path.split("/")[-2] for path in self._manifests()})

    def copy(self):
        return {path: data for path, data in self._store.copy_of(self.root).items() if not self._is_ours(path)}

    def put_back(self, copy: Copy):
        self._store.put_back(self.root, copy, keep=self.journals)

    def drop(self):
        self._store.remove(self.root, keep=self.journals)

    def lose_known(self, all_of_it):
        self._store.remove(f"{self.root}/_commits")
        if all_of_it:
            self._store.remove(self.journals)
        return True

    def delete(self, rows):
        """Whole folders are deleted, and their manifests stay."""
        gone, rows = [], set(rows)
        for folder in self._folders():
            files = [f"{self.root}/{folder}/{name}" for name in self.io.names(f"{self.root}/{folder}")]
            found = [row for path in files if "/part-" in path for row in self._read(path)]
            if rows & set(found):
                self._store.remove(f"{self.root}/{folder}")
                gone += found
        return gone

    def forget(self, application):
        self._store.remove(f"{self.root}/_commits/{application}")

    def remove_folders(self, application: str, first: int) -> None:
        """Remove the folders of an application from this number on."""
        for name in self._folders():
            of, _, number = name.removeprefix("checkpoint=").rpartition("-")
            if of == application and int(number) >= first:
                self._store.remove(f"{self.root}/{name}")

    def _is_ours(self, path: str) -> bool:
        return path == self.journals or path.startswith(self.journals + "/")

    def _folders(self) -> list[str]:
        return [each.name for each in self.io.entries(self.root) if each.is_dir and each.name.startswith("checkpoint=")]

    def _manifests(self) -> list[str]:
        folders = [f"{self.root}/_commits/{each.name}" for each in self.io.entries(f"{self.root}/_commits")]
        return [f"{folder}/{name}" for folder in folders for name in self.io.names(folder) if name.endswith(".json")]

    def _named(self) -> list[str]:
        return [name for path in self._manifests() for name in json.loads(self.io.read(path))["files"]]

    def _read(self, path: str) -> list[int]:
        """The ids in a file; a file never changes, and may be deleted on purpose."""
        if not self.io.exists(path):
            return []
        if path not in self._rows:
            with self.io.open_input(path) as stream:
                self._rows[path] = pq.ParquetFile(stream).read(["id"], use_threads=False).column("id").to_pylist()
        return self._rows[path]


@dataclass(frozen=True)
class _Server(Server):
    """The same server; what is pre-committed there outlives its machine's power."""

    def pre_commit(self, transaction, context):
        path = f"{self.path}/open/{context.name}"
        context.file_io.delete(path)
        context.file_io.create_if_absent(path, json.dumps(transaction["rows"]).encode())


class Notes(Place):
    """A server that keeps transactions, of which the folder beside the journals notes what was committed."""

    has_rows = republishes = False

    def __init__(self, store, root: str):
        super().__init__(store, root)
        self._server, self._notes = f"{root}/server", f"{root}/commits"

    def sink(self, process):
        return _Server(self._server, self.root)

    def visible(self):
        names = [name for name in self.io.names(f"{self._server}/committed") if not name.startswith(".")]
        return [row for name in names for row in json.loads(self.io.read(f"{self._server}/committed/{name}"))]

    def applications(self):
        return [entry.name for entry in self.io.entries(self._notes) if entry.is_dir]

    def open_transactions(self) -> list[str]:
        done = self.io.names(f"{self._server}/committed")  # with the power the server forgets that it is not open
        return [n for n in self.io.names(f"{self._server}/open") if not n.startswith(".") and n not in done]

    def copy(self):
        return self._store.copy_of(self._notes)

    def put_back(self, copy: Copy):
        self._store.put_back(self._notes, copy)

    def drop(self):
        self._store.remove(self._notes)

    def forget(self, application):
        self._store.remove(f"{self._notes}/{application}")


class Kept(Place):
    """A destination in Flink's form that keeps the rows of a checkpoint together with its state."""

    republishes = False

    def __init__(self, store, root: str):
        super().__init__(store, root)
        self._kept = f"{root}/kept"

    def sink(self, process):
        return Remembering(self._kept, self.root)

    def visible(self):
        return [row for path in self._all() for row in json.loads(self.io.read(path))["rows"]]

    def applications(self):
        return sorted({path.split("/")[-2] for path in self._all()})

    def copy(self):
        return self._store.copy_of(self._kept)

    def put_back(self, copy: Copy):
        self._store.put_back(self._kept, copy)

    def drop(self):
        self._store.remove(self._kept)

    def forget(self, application):
        self._store.remove(f"{self._kept}/{application}")

    def _all(self) -> list[str]:
        folders = [f"{self._kept}/{each.name}" for each in self.io.entries(self._kept) if each.is_dir]
        return [f"{folder}/{n}" for folder in folders for n in self.io.names(folder) if not n.startswith(".")]
