"""``streamsink discard``: delete one file or folder that an error tells to delete, and nothing that is needed.

What it is, its place tells (``one_file.py``). Files that snapshots name, records and notes go only when they are
damaged; a journal only when no driver holds it, and never when it knows which dead letters were replayed.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from streamsink.errors import Corrupt, Fenced, Misuse
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.journal.repair import REPLAYS
from streamsink.operations.holds import ALIVE, UNKNOWN, look_at_hold
from streamsink.operations.journals import applications_of, look_at_journals
from streamsink.operations.one_file import (
    CONSUMER,
    DATA,
    HINT,
    JOURNAL,
    JOURNALS,
    METADATA,
    NOTE,
    OTHER,
    RECORD,
    OneFile,
    look_at,
)
from streamsink.storage.file_io import FileIO
from streamsink.table.read.scan import plan
from streamsink.table.table import is_table, leftovers_of, open_table

_DATA_FOLDERS = 32  # of partitions above a data file, at most


@dataclass(frozen=True)
class Discarded:
    """What was deleted, or would be. what: of which kind, and why it may go. paths: in order. pending: records of the
    journals among them that are not published yet, whose rows go with them; None where that is not known.
    """

    path: str
    what: str
    paths: tuple[str, ...]
    pending: int | None = 0

    def __str__(self) -> str:
        number = "An unknown number of" if self.pending is None else self.pending
        rows = f" {number} records in it are pending: their rows go with it." if self.pending != 0 else ""
        return f"{self.path}: {self.what}.{rows}"


def discard(file_io: FileIO, path: str, *, dry_run: bool = False) -> Discarded:
    """Delete what is at this path: a file, a journal, or what a dropped table has left.

    Idempotent. After a crash: call it again. Raises Misuse for what is needed or is not streamsink's, and says which
    command is meant instead; Fenced while a driver holds a journal.
    """
    found = look_at(file_io, path)
    if found is not None and found.kind == OTHER and found.is_folder:
        found = _dropped_table(file_io, path) or found
    if found is None:
        return Discarded(path, "nothing is there any more", ())
    if found.kind == OTHER:
        raise Misuse(
            f"{path}: this is {found.text}. Nothing was deleted. Give the path that an error names, as the error has "
            "it",
            kind="discard.foreign",
        )
    kept = _why_not(file_io, found)
    if kept:
        raise Misuse(f"{path}: this is {found.text}. {kept}", kind="discard.needed")
    counts = [_pending(file_io, place, name) for place, name in _journals(file_io, found)]
    pending = None if None in counts else sum(filter(None, counts))
    why = f"{found.text}, and damaged: {found.problem}" if found.problem else found.text
    if not dry_run:
        if found.is_folder:
            file_io.delete_tree(path)
        else:
            file_io.delete(path)
        file_io.sync_dir(os.path.dirname(path))
    return Discarded(path, why, (path,), pending)


def _why_not(file_io: FileIO, found: OneFile) -> str:
    """Why it stays, in sentences with the way on; '' where it may go."""
    if found.kind in (HINT, CONSUMER, JOURNAL, JOURNALS):
        return _why_not_journals(file_io, found)
    problem = found.problem or (_problem_in_table(file_io, found.path) if found.kind == DATA else "")
    if problem:
        return ""
    says = {
        METADATA: "Tags, branches and snapshots go by commands of their own: tag, branch, expire",
        DATA: "Files that nothing names go by 'streamsink orphans'",
        RECORD: "What can never be published is given up by 'streamsink recover --give-up'",
        NOTE: "It is no matter for anybody as long as it is whole",
    }
    return f"It is whole, as far as that can be told, so nothing was deleted. {says[found.kind]}"


def _why_not_journals(file_io: FileIO, found: OneFile) -> str:
    for place, name in _journals(file_io, found):
        look = look_at_hold(file_io, place, name, wait=True)
        if look.state in (ALIVE, UNKNOWN):
            raise Fenced(
                f"{found.path}: a driver {'holds' if look.state == ALIVE else 'may hold'} application '{name}'"
                f"{f' (process {look.pid})' if look.pid else ''}. Nothing was deleted. End it first",
                kind="discard.in-use",
            )
        if file_io.names(os.path.join(place, JOURNAL_DIR, name, REPLAYS)) and is_table(file_io, place):
            return (
                f"The journal of '{name}' knows which dead letters were replayed: without it they would be written "
                "once more. Nothing was deleted. Leave it: nobody waits for it"
            )
    return ""


def _journals(file_io: FileIO, found: OneFile) -> Iterator[tuple[str, str]]:
    """(place, application) of each journal in this folder."""
    if found.kind == JOURNAL:
        folder, name = os.path.split(found.path)
        yield os.path.dirname(folder), name
    elif found.kind == JOURNALS:
        is_above = os.path.basename(found.path) != JOURNAL_DIR  # a folder with the journals in one below it
        place = found.path if is_above or found.text == _LEFT else os.path.dirname(found.path)
        yield from ((place, name) for name in applications_of(file_io, place))


def _pending(file_io: FileIO, place: str, name: str) -> int | None:
    try:
        [look] = look_at_journals(file_io, place, name)
    except (Corrupt, Misuse):
        return None
    return len(look.pending)


_LEFT = "what a table has left that was dropped: journals, manifests, data files"


def _dropped_table(file_io: FileIO, path: str) -> OneFile | None:
    return OneFile(path, JOURNALS, _LEFT, is_folder=True) if leftovers_of(file_io, path) else None


def _problem_in_table(file_io: FileIO, path: str) -> str:
    """Why a data file is not the one that the newest snapshot of its table names; '' where it is, or is not named."""
    root = os.path.dirname(path)
    for _ in range(_DATA_FOLDERS):
        if is_table(file_io, root):
            table = open_table(file_io, root, for_writing=False)
            said = next((file for file in plan(table)[1] if file.path == path), None)
            size = file_io.size(path)
            return f"it has {size} bytes, the manifest says {said.size}" if said and said.size != size else ""
        root = os.path.dirname(root)
    return ""
