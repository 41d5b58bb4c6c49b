"""Files that have their final names at once: where an attempt may leave them is announced before they exist.

A store that cannot rename would copy each file from staging to its final name. There the files of a checkpoint get
their final names when they are written. No snapshot names them, so no reader sees them; and the names of one attempt
begin alike, as a file ``at-...`` in the attempt's staging folder has said before. So what an attempt leaves that never
got its record is found by listing a few beginnings of names, however many partitions the table has.

An attempt is the id of the record that it is to get. It is never given twice, so files of a record are never taken for
those of an attempt that failed.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from streamsink.errors import Corrupt
from streamsink.storage.file_io import FileIO

_NAME = "at-"
# The file of an attempt that is begun last has a name that begins so; see ``Journal.staging``.
READY = "manifest-"


@dataclass(frozen=True)
class Announcement:
    """Where files of one attempt may come to be.

    attempt: id of its record. places: (folder relative to the journal's table, beginning of the files' names). asks:
    whether its driver asks who owns the application when all files are durable. If so, a successor may delete what is
    not ready for a record; if not, it must wait until the record's number is taken. since: number and uuid of the
    snapshot on top of which the attempt began; (0, '') where there was none.
    """

    attempt: str
    places: tuple[tuple[str, str], ...]
    since: tuple[int, str]
    asks: bool = True

    def files(self, file_io: FileIO, root: str) -> Iterator[str]:
        """Paths of the files of the attempt that are there. root: of the journal's table."""
        for folder, beginning in self.places:
            where = os.path.join(root, folder)
            for name in file_io.names_beginning(where, beginning):
                yield os.path.join(where, name)

    def may_get_its_record(self, file_io: FileIO, root: str) -> bool:
        """Whether a driver that is only paused may yet create the record."""
        return not self.asks or any(os.path.basename(path).startswith(READY) for path in self.files(file_io, root))


def announce(file_io: FileIO, staging: str, said: Announcement, unique: str = "") -> str:
    """Say where files of the attempt may come to be, durably. Returns the path of the announcement.

    staging: the attempt's folder. unique: of the writer, where one attempt has several that announce. Idempotent. Only
    in a store in which a file is there whole or not at all. Driver and executor.
    """
    path = os.path.join(staging, f"{_NAME}{said.attempt}{unique and '-'}{unique}")
    file_io.mark(path, json.dumps(vars(said)).encode())
    return path


def _load(file_io: FileIO, path: str) -> Announcement | None:
    """None when the file is gone. Raises Corrupt when it is damaged."""
    try:
        value = json.loads(file_io.read(path))
        places = tuple((str(folder), str(beginning)) for folder, beginning in value["places"])
        number, uuid = value["since"]
        return Announcement(str(value["attempt"]), places, (int(number), str(uuid)), bool(value["asks"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as broken:
        raise Corrupt(
            f"{path}: it does not say where an attempt has left files ({type(broken).__name__}). Nothing was written. "
            "It holds no data: make sure that no query writes here, delete the file and start again; orphan cleaning "
            "finds what the attempt has left",
            kind="journal.announcement",
        ) from broken


# Deletes all files of one attempt, given their paths and ``Announcement.since``, unless the destination names them.
# Returns the paths of those that it has deleted; None when that cannot be told.
Deleting = Callable[[Sequence[str], tuple[int, str]], Sequence[str] | None]


@dataclass
class Announced:
    """The announcements in the staging folders of one journal.

    table: the journal's, to which places are relative. deleting: None where nothing is to be deleted.
    """

    file_io: FileIO
    table: str
    deleting: Deleting | None = None
    # By staging folder, what this process has announced there.
    _own: dict[str, list[Announcement]] = field(default_factory=dict)

    def add(self, staging: str, said: Announcement) -> str:
        """As ``announce``."""
        path = announce(self.file_io, staging, said)
        self.know(staging, said)
        return path

    def has(self, staging: str, said: Announcement) -> bool:
        """Whether the last announcement of this process there says the same, and began no later."""
        before = self._own.get(staging, [None])[-1]
        return before is not None and before.since <= said.since and replace(before, since=said.since) == said

    def know(self, staging: str, said: Announcement) -> None:
        """Remember what writers of this process's attempt have announced."""
        self._own.setdefault(staging, []).append(said)

    def within(self, files: Collection[str]) -> list[Announcement]:
        """The announcements among these files of a staging folder. Raises Corrupt."""
        paths = [path for path in files if os.path.basename(path).startswith(_NAME)]
        return [said for path in paths if (said := _load(self.file_io, path)) is not None]

    def may_get_a_record(self, files: Collection[str]) -> bool:
        """Whether one of these attempts may yet get its record. files: of a staging folder."""
        return any(said.may_get_its_record(self.file_io, self.table) for said in self.within(files))

    def sweep(self, staging: str, files: Collection[str], kept: str | None = None) -> list[str] | None:
        """Delete the files of these attempts but the attempt ``kept``. Idempotent. Returns their paths.

        files: of the staging folder. What this process has announced counts although a successor has deleted it there.
        None when some stay because it cannot be told whether they are named: then the folder must stay too.
        """
        found: dict[str, list[Announcement]] = {}
        # What an attempt has announced has its id in the name, so that of ``kept`` need not be read.
        others = [path for path in files if not kept or not os.path.basename(path).startswith(f"{_NAME}{kept}")]
        for said in (*self._own.get(staging, ()), *self.within(others)):
            found.setdefault(said.attempt, []).append(said)
        found.pop(kept or "", None)
        gone: list[str] = []
        for attempt in found.values():
            paths = sorted({path for said in attempt for path in said.files(self.file_io, self.table)})
            deleted = self.deleting(paths, min(said.since for said in attempt)) if self.deleting else None
            if deleted is None:
                return None
            gone += deleted
            for folder, beginning in {place for said in attempt for place in said.places}:
                self.file_io.delete_unfinished(os.path.join(self.table, folder), beginning)
        return gone

    def forget(self, staging: str) -> None:
        """The folder is settled."""
        self._own.pop(staging, None)
