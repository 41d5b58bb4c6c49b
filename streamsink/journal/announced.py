"""Files that have their final names at once: where an attempt may leave them is announced before they exist.

A store that cannot rename would copy each file from staging to its final name. There the files of a checkpoint get
their final names when they are written. No snapshot names them, so no reader sees them; and the names of one attempt
begin alike, as a file ``at-...`` in the attempt's staging folder has said before. So what an attempt leaves that never
got its record is found by listing a few beginnings of names, however many partitions the table has.

An attempt is the id of the record that it is to get. It is never given twice, so files of a record are never taken for
those of an attempt that failed.
"""

import functools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from streamsink import shell
from streamsink.errors import Corrupt
from streamsink.storage.file_io import FileIO

# An id is a UUID.
_NAME, _ID = "at-", 36
# What a compaction announces has a name that begins so (``compaction/attempts.py``), and so have its notes.
COMPACTION = "compact-"
_OF_COMPACTION = re.compile(rf"{COMPACTION}([0-9a-f-]{{{_ID}}})(?:-([0-9]+))?")
# Below the folder of a journal, the one with the staging folders.
STAGING = "staging"
# The file of an attempt that is begun last has a name that begins so; see ``Journal.staging``.
READY = "manifest-"


@dataclass(frozen=True)
class InTable:
    """Where files of one attempt may come to be in one table.

    table: its path relative to the folder that holds the journal: '' for a table that has the journal itself,
    '../<name>' for one beside that. places: (folder relative to the table, beginning of the files' names). since:
    number and uuid of the snapshot of the table on top of which the attempt began; (0, '') where there was none.
    """

    table: str
    places: tuple[tuple[str, str], ...]
    since: tuple[int, str]


@dataclass(frozen=True)
class Announcement:
    """Where files of one attempt may come to be.

    attempt: id of its record. tables: the places in each table. asks: whether its driver asks who owns the application
    when all files are durable. If so, a successor may delete what is not ready for a record; if not, it must wait until
    the record's number is taken.
    """

    attempt: str
    tables: tuple[InTable, ...]
    asks: bool = True

    def files(self, file_io: FileIO, root: str) -> Iterator[str]:
        """Paths of the files of the attempt that are there. root: of the folder that holds the journal."""
        for mine in self.tables:
            yield from files_in(file_io, root_of(root, mine.table), mine.places)

    def may_get_its_record(self, file_io: FileIO, root: str) -> bool:
        """Whether a driver that is only paused may yet create the record."""
        return not self.asks or any(os.path.basename(path).startswith(READY) for path in self.files(file_io, root))


def root_of(folder: str, table: str) -> str:
    """Path of a table. folder: the one that holds the journal. table: as of ``InTable``."""
    beside = table.removeprefix("../")
    return os.path.join(folder, table) if beside == table else f"{folder.rpartition('/')[0]}/{beside}"


def files_in(file_io: FileIO, root: str, places: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Paths of the files that are there, which are looked for at once. root: of a table. places: as of ``InTable``."""
    found: dict[tuple[str, str], list[str]] = {(os.path.join(root, folder), name): [] for folder, name in places}

    def look(where: str, beginning: str) -> None:
        found[where, beginning] += [os.path.join(where, name) for name in file_io.names_beginning(where, beginning)]

    file_io.at_once([functools.partial(look, *place) for place in found])
    for paths in found.values():
        yield from paths


def announce(file_io: FileIO, staging: str, said: Announcement, unique: str = "") -> str:
    """Say where files of the attempt may come to be, durably. Returns the path of the announcement.

    staging: the attempt's folder. unique: of the writer, where one attempt has several that announce. Idempotent. Only
    in a store in which a file is there whole or not at all. Driver and executor.
    """
    path = os.path.join(staging, f"{_NAME}{said.attempt}{unique and '-'}{unique}")
    file_io.mark(path, json.dumps(asdict(said)).encode())
    return path


def announced_in(file_io: FileIO, journals: Iterable[str]) -> set[str]:
    """Ids of the attempts that are announced in these journals' staging folders."""
    folders = [f"{path}/{STAGING}" for path in journals]
    inner = [f"{folder}/{name}" for folder in folders for name in file_io.names(folder)]
    names = [name for folder in inner for name in file_io.names(folder)]
    return {name[len(_NAME) :][:_ID] for name in names if name.startswith(_NAME)}


def of_compaction(name: str) -> tuple[str, int | None] | None:
    """Id of the compaction and number of its note (None for the announcement), by the name of a file; None for one that
    is no compaction's.
    """
    match = _OF_COMPACTION.fullmatch(name)
    return (match[1], int(match[2]) if match[2] else None) if match else None


def compactions_in(file_io: FileIO, folder: str) -> set[str]:
    """Ids of the compactions that are announced beside the journals of a table, or of a branch. folder: of these."""
    found = map(of_compaction, file_io.names(folder))
    return {of[0] for of in found if of is not None and of[1] is None}


def _load(file_io: FileIO, path: str) -> Announcement | None:
    """None when the file is gone. Raises Corrupt when it is damaged."""
    try:
        value = json.loads(file_io.read(path))
        # earlier code had the places of one table, and its snapshot, in the announcement itself
        tables = value.get("tables", [{"table": "", **value}])
        return Announcement(str(value["attempt"]), tuple(map(_in_table, tables)), bool(value["asks"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise Corrupt(
            f"{path}: it does not say where an attempt has left files ({type(broken).__name__}). Nothing was written. "
            "It holds no data: make sure that no query writes here, delete the file and start again "
            f"{shell.discard(path)}; orphan cleaning finds what the attempt has left",
            kind="journal.announcement",
        ) from broken


def _in_table(value: Mapping[str, Any]) -> InTable:
    number, uuid = value["since"]
    places = tuple((str(folder), str(beginning)) for folder, beginning in value["places"])
    return InTable(str(value["table"]), places, (int(number), str(uuid)))


def _together(said: Iterable[Announcement]) -> list[InTable]:
    """What these announcements of one attempt say of each table, together."""
    found: dict[str, list[InTable]] = {}
    for each in said:
        for mine in each.tables:
            found.setdefault(mine.table, []).append(mine)
    return [
        InTable(
            table, tuple(sorted({place for mine in every for place in mine.places})), min(mine.since for mine in every)
        )
        for table, every in found.items()
    ]


@dataclass(frozen=True)
class Left:
    """Files that one attempt has left in one table.

    root: path of the table. paths: of the files. since: as of ``InTable``.
    """

    root: str
    paths: Sequence[str]
    since: tuple[int, str]


# Deletes all files of one attempt, in all tables, unless one of the tables names one of them. Returns the paths of the
# files that it has deleted; None when that cannot be told.
Deleting = Callable[[Sequence[Left]], Sequence[str] | None]


@dataclass
class Announced:
    """The announcements in the staging folders of one journal.

    root: path of the folder that holds the journal. deleting: None where nothing is to be deleted.
    """

    file_io: FileIO
    root: str
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
        if before is None or len(before.tables) != len(said.tables):
            return False
        pairs = list(zip(before.tables, said.tables))
        same = tuple(replace(mine, since=now.since) for mine, now in pairs)
        return all(mine.since <= now.since for mine, now in pairs) and replace(before, tables=same) == said

    def know(self, staging: str, said: Announcement) -> None:
        """Remember what writers of this process's attempt have announced."""
        self._own.setdefault(staging, []).append(said)

    def within(self, files: Collection[str]) -> list[Announcement]:
        """The announcements among these files of a staging folder. Raises Corrupt."""
        paths = [path for path in files if os.path.basename(path).startswith(_NAME)]
        return [said for path in paths if (said := _load(self.file_io, path)) is not None]

    def may_get_a_record(self, files: Collection[str]) -> bool:
        """Whether one of these attempts may yet get its record. files: of a staging folder."""
        return any(said.may_get_its_record(self.file_io, self.root) for said in self.within(files))

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
            tables = _together(attempt)
            roots = [root_of(self.root, mine.table) for mine in tables]
            found_in = [list(files_in(self.file_io, root, mine.places)) for root, mine in zip(roots, tables)]
            left = [Left(root, paths, mine.since) for root, paths, mine in zip(roots, found_in, tables)]
            deleted = self.deleting(left) if self.deleting else None
            if deleted is None:
                return None
            gone += deleted
            for root, mine in zip(roots, tables):
                for folder, beginning in mine.places:
                    self.file_io.delete_unfinished(os.path.join(root, folder), beginning)
        return gone

    def forget(self, staging: str) -> None:
        """The folder is settled."""
        self._own.pop(staging, None)
