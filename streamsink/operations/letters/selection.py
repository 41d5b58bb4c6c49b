"""The dead letters of a table for them, read without Spark: chosen, counted, and told apart. Changes nothing."""

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamsink.errors import Corrupt, Misuse
from streamsink.storage.file_io import FileIO
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import Table, open_table

_OWN = ("application", "checkpoint_id", "target", "reason", "column", "row")
_TABLE_ID = "table_id"


@dataclass(frozen=True)
class Letter:
    """One dead letter. row: the whole row as JSON text. positions: what the source says of it, by column.

    digest: of all that the table says of it. Letters with the same one are interchangeable. table_id: identity of what
    its query wrote to; None of earlier code.
    """

    application: str
    checkpoint_id: int
    target: str | None
    reason: str
    column: str | None
    row: str
    positions: tuple[tuple[str, Any], ...]
    digest: str
    table_id: str | None = None

    @property
    def position_names(self) -> frozenset[str]:
        """Names of the columns of the row that say its position, which its table has only if it is to keep them."""
        return frozenset(name for name, value in self.positions if value is not None)

    @property
    def kind(self) -> str:
        """The kind of the reason, a word for programs."""
        return self.reason.partition(":")[0]


@dataclass(frozen=True)
class Chosen:
    """Which letters are meant; None means all. checkpoints: the first and the last one."""

    target: str | None = None
    application: str | None = None
    kind: str | None = None
    checkpoints: tuple[int, int] | None = None

    def takes(self, letter: Letter) -> bool:
        """Whether this letter is one of them."""
        return (
            self.target in (None, letter.target)
            and self.application in (None, letter.application)
            and self.kind in (None, letter.kind)
            and (self.checkpoints is None or self.checkpoints[0] <= letter.checkpoint_id <= self.checkpoints[1])
        )

    def typed(self) -> list[str]:
        """The same as options of a command."""
        checkpoints = "-".join(map(str, self.checkpoints)) if self.checkpoints else None
        given = {"target": self.target, "from": self.application, "reason": self.kind, "checkpoint": checkpoints}
        return [word for name, value in given.items() if value for word in (f"--{name}", value)]


def open_letters(file_io: FileIO, path: str) -> Table:
    """The table with the letters. Raises Misuse when it is none for dead letters."""
    table = open_table(file_io, path, for_writing=False)
    missing = [name for name in _OWN if name not in table.known_schema.field_names]
    if missing:
        raise Misuse(
            f"{path}: this is no table of dead letters: it has no column '{missing[0]}'. Nothing was changed. Give the "
            "path of the table that the query names with dead_letters",
            kind="letters.no-such-table",
        )
    return table


def letters_of(table: Table, chosen: Chosen) -> list[Letter]:
    """The letters of the newest snapshot, in the order of its files; all in memory.

    Raises Corrupt for files that are damaged or gone.
    """
    try:
        found = read_arrow(table).to_pylist()
    except Corrupt as broken:
        if not broken.kind.startswith("data."):
            raise
        raise Corrupt(
            f"{table.root}: a data file of the dead letters is damaged or gone ({type(broken).__name__}), so they "
            "cannot be read. Nothing was changed. Call this again if its snapshots were expired meanwhile; else "
            f"'streamsink doctor {shlex.quote(table.root)} --contents' names the file, and says what to do",
            kind="letters.unreadable",
        ) from broken
    letters = [_letter(table.table_id, row) for row in found]
    return [letter for letter in letters if chosen.takes(letter)]


def counts(letters: Sequence[Letter]) -> list[tuple[tuple[str, str | None, str, str | None], int]]:
    """How many letters there are for each (application, target, kind of the reason, column), the most first."""
    found = Counter((each.application, each.target, each.kind, each.column) for each in letters)
    return sorted(found.items(), key=lambda each: (-each[1], str(each[0])))


def left(letters: Sequence[Letter], done: Counter[str]) -> list[Letter]:
    """Those of these letters that are not replayed yet. done: how often each digest was."""
    still, found = Counter(done), []
    for letter in letters:
        if still[letter.digest] > 0:
            still[letter.digest] -= 1
        else:
            found.append(letter)
    return found


def _letter(table_id: str, row: dict[str, Any]) -> Letter:
    own, of = [row.pop(name) for name in _OWN], row.get(_TABLE_ID)
    # A column that was added later is null in earlier letters, which must stay the same letters.
    said = json.dumps([table_id, *own, sorted(each for each in row.items() if each[1] is not None)], default=str)
    digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    application, checkpoint_id, target, reason, column, text = own
    positions = tuple(each for each in row.items() if each[0] != _TABLE_ID)
    return Letter(application, checkpoint_id, target, reason, column, text, positions, digest, of)
