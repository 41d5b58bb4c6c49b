"""Which journal this is: a journal that was removed, or restored from an older copy, gets another identity.

It does not know every record, and must say so.
"""

import functools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from streamsink import shell
from streamsink.errors import Corrupt
from streamsink.protocol import ways
from streamsink.protocol.committable import AppState
from streamsink.protocol.journal import JournalIdentity
from streamsink.storage.file_io import FileIO

_PREFIX = "journal-"


class OwnIdentity:
    """The identity of a journal that this process has claimed. known: as of the last ``identify``."""

    def __init__(self, file_io: FileIO, folder: str):
        self._io = file_io
        self._folder = folder
        self.known = JournalIdentity("", 0)

    def identify(
        self, last: int, published: int, new_id: Callable[[], str], *, anew: bool, names: Sequence[str] | None
    ) -> JournalIdentity:
        """As ``identify``. names: of the folder, where it was listed since the claim.

        A journal that begins is asked about by nobody before its first record; so the file is made beside the next
        questions of a distant store.
        """
        if names is not None and not (anew or last or published or paths_of(self._folder, names)):
            self.known = JournalIdentity(new_id(), 0)
            self._io.soon(functools.partial(self._create, self.known))
        else:
            self.known = identify(self._io, self._folder, last, published, new_id, anew=anew, names=names)
        return self.known

    def _create(self, fresh: JournalIdentity) -> None:
        self.known = _create(self._io, self._folder, [], fresh)


def paths_of(folder: str, names: Sequence[str]) -> list[str]:
    """The paths of the identities among these names of a journal's folder, the one that counts last."""
    return [_path(folder, number) for number in _numbers_in(names)]


def identify(
    file_io: FileIO,
    folder: str,
    last: int,
    published: int,
    new_id: Callable[[], str],
    *,
    anew: bool = False,
    names: Sequence[str] | None = None,
) -> JournalIdentity:
    """The identity of the journal in ``folder``; a new one when it does not know the last record that was published.

    last: number of the journal's newest record. published: number of the last record that the destination has.
    anew: a new identity in any case, which answers for nothing up to the last published record. names: of the folder,
    where they are known.
    """
    numbers = _numbers(file_io, folder) if names is None else _numbers_in(names)
    known = _load(file_io, _path(folder, numbers[-1])) if numbers else None
    behind = max(last, known.ended if known else 0) < published
    if known is not None and not anew and not (behind and known.began < published):
        return known
    # A journal of earlier code has no identity. When it is whole, it knows the record that the destination has.
    return _create(file_io, folder, numbers, JournalIdentity(new_id(), published if behind or anew else 0))


def go_back(
    file_io: FileIO, folder: str, to: int, pruned: int, new_id: Callable[[], str], *, behind: tuple[Any, ...] = ()
) -> None:
    """Note in the identity that all records behind number ``to`` are about to be given up.

    pruned: the last of those that the journal does not know any more, or 0. behind: as in ``JournalIdentity``.
    """
    numbers = _numbers(file_io, folder)
    known = _load(file_io, _path(folder, numbers[-1])) if numbers else None
    if pruned:
        _create(file_io, folder, numbers, JournalIdentity(new_id(), to or pruned, to, behind))
    elif known is not None and (known.ended, known.behind) != (to, behind):
        _create(file_io, folder, numbers, JournalIdentity(known.id, known.began, to, behind))


def newest_id(file_io: FileIO, folder: str) -> str:
    """The id of the journal in ``folder``; '' where it has none yet."""
    numbers = _numbers(file_io, folder)
    return _load(file_io, _path(folder, numbers[-1])).id if numbers else ""


def behind_of(file_io: FileIO, folder: str) -> tuple[str, int] | tuple[()]:
    """What the journal's identity says as ``JournalIdentity.behind``."""
    numbers = _numbers(file_io, folder)
    return _load(file_io, _path(folder, numbers[-1])).behind if numbers else ()


def is_of(file_io: FileIO, folder: str, state: AppState) -> bool:
    """Whether this journal is the one that the state names, or has replaced it when the state was published already."""
    numbers = _numbers(file_io, folder)
    known = _load(file_io, _path(folder, numbers[-1])) if numbers else None
    return known is not None and (state.journal_id == known.id or known.began >= state.sequence)


def _numbers(file_io: FileIO, folder: str) -> list[int]:
    return _numbers_in(file_io.names(folder))


def _numbers_in(names: Sequence[str]) -> list[int]:
    return sorted(int(n[len(_PREFIX) :]) for n in names if n.startswith(_PREFIX) and n[len(_PREFIX) :].isdigit())


def _create(file_io: FileIO, folder: str, numbers: list[int], fresh: JournalIdentity) -> JournalIdentity:
    path = _path(folder, numbers[-1] + 1 if numbers else 1)
    if file_io.create_if_absent(path, json.dumps(vars(fresh)).encode()):
        return fresh
    # A rival claims at this moment, and one of the two will be fenced.
    return _load(file_io, path)


def _path(folder: str, number: int) -> str:
    return os.path.join(folder, f"{_PREFIX}{number}")


def _load(file_io: FileIO, path: str) -> JournalIdentity:
    try:
        found = json.loads(file_io.read(path))
        return JournalIdentity(
            str(found["id"]), int(found["began"]), int(found.get("ended", 0)), tuple(found.get("behind", ()))
        )
    except (ValueError, TypeError, KeyError) as broken:
        raise Corrupt(
            f"{path}: not a valid identity of a journal ({type(broken).__name__}). Nothing was written. It holds no "
            f"data: restore it {shell.restore(path)}; or {ways.delete_damaged(path)}",
            kind="journal.identity",
        ) from broken
