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
from collections.abc import Iterator
from dataclasses import dataclass

from streamsink.errors import Corrupt
from streamsink.storage.file_io import FileIO

_NAME = "at-"


@dataclass(frozen=True)
class Announcement:
    """attempt: id of its record. places: (folder relative to the journal's table, beginning of the files' names)."""

    attempt: str
    places: tuple[tuple[str, str], ...]

    def files(self, file_io: FileIO, root: str) -> Iterator[str]:
        """Paths of the files of the attempt that are there. root: of the journal's table."""
        for folder, beginning in self.places:
            where = os.path.join(root, folder)
            for name in file_io.names_beginning(where, beginning):
                yield os.path.join(where, name)


def announce(file_io: FileIO, staging: str, said: Announcement, unique: str = "") -> str:
    """Say where files of the attempt may come to be, durably. Returns the path of the announcement.

    staging: the attempt's folder. unique: of the writer, where one attempt has several that announce. Idempotent. Only
    in a store in which a file is there whole or not at all. Driver and executor.
    """
    path = os.path.join(staging, f"{_NAME}{said.attempt}{unique and '-'}{unique}")
    file_io.mark(path, json.dumps({"attempt": said.attempt, "places": said.places}).encode())
    return path


def is_announcement(path: str) -> bool:
    """Whether a file in a staging folder is one, by its name."""
    return os.path.basename(path).startswith(_NAME)


def load(file_io: FileIO, path: str) -> Announcement:
    """Raises Corrupt when the file is damaged; FileNotFoundError."""
    try:
        value = json.loads(file_io.read(path))
        return Announcement(str(value["attempt"]), tuple((str(at), str(begins)) for at, begins in value["places"]))
    except (ValueError, KeyError, TypeError) as broken:
        raise Corrupt(
            f"{path}: it does not say where an attempt has left files ({type(broken).__name__}). Nothing was deleted. "
            "It holds no data: make sure that no query writes here, delete the file and start again; orphan cleaning "
            "finds what the attempt has left",
            kind="journal.announcement",
        ) from broken
