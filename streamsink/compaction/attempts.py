"""What a compaction may leave, and who may delete it. Driver only.

The new files have their final names when they are written, and no snapshot names them before the commit. So a file
``streamsink/compact-<id>`` says before where they come to be. The next compaction deletes what a dead one has left.
That one may only sleep, and its commit must not come behind the deletion. Therefore each try of the commit is noted
first, as ``compact-<id>-<k>`` with the number of the snapshot that it is to create, and whoever sweeps takes the next
``k`` for itself: each of these names is created if absent.

- A try that is noted can come as long as its number is free. Nothing is swept until another snapshot has it.
- Behind the note of the sweep no further try is made: its name is taken. Where the notes are gone already, so is the
  announcement, which is looked for behind each note.
- What something retained names stays, whatever the notes say.
"""

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field

from streamsink import shell
from streamsink.clock import Clock, IdSource
from streamsink.errors import Fenced
from streamsink.events import log
from streamsink.journal.announced import COMPACTION, files_in, of_compaction
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.table.commit.tries import Guard
from streamsink.table.history import leftovers
from streamsink.table.history.deletion import Look, delete, delete_of_compaction
from streamsink.table.table import Table
from streamsink.table.write.spec import beginning_of

_TEMPORARY = re.compile(rf"\.{COMPACTION}[0-9a-f-]{{36,}}\.([0-9]+)-[0-9a-f-]{{36}}\.tmp")
# What is announced by somebody else, and is not as old, may be of a compaction that runs.
ABANDONED_MS = 3_600_000
# What somebody else has announced since is still at work, most likely: most compactions take less, and few die.
AT_WORK_MS = 600_000
# The note of a sweep, in the place of a snapshot's number.
_SWEPT = 0


@dataclass(frozen=True)
class Attempt:
    """One compaction as it is announced.

    id: a UUID. folders: relative to the table, in which new files may be. since: number and uuid of the snapshot with
    its input. at_ms: when it began.
    """

    id: str
    folders: tuple[str, ...]
    since: tuple[int, str]
    at_ms: int

    @property
    def of_names(self) -> str:
        """What the writer of the new files is told as its attempt: no record of a query has such an id."""
        return f"{COMPACTION}{self.id}"

    @property
    def user(self) -> str:
        """The user of its commit."""
        return f"streamsink-compact-{self.id}"

    @classmethod
    def new(cls, folders: Collection[str], since: tuple[int, str]) -> "Attempt":
        """One that begins now."""
        return cls(IdSource().new_id(), tuple(sorted(folders)), since, Clock().now_ms())


# By id, announcements that were read before: none is ever changed, so each is read once.
Known = dict[str, Attempt]


def announce(table: Table, attempt: Attempt) -> None:
    """Say where new files come to be, durably, before there are any."""
    table.file_io.make_dir(table.layout.within(JOURNAL_DIR))
    if not _create(table, _path(table, attempt.id), json.dumps(asdict(attempt)).encode()):
        raise _taken_for_dead(table)


def forget(table: Table, attempt_id: str) -> None:
    """Nothing is left of the attempt: delete its announcement, and then its notes. Idempotent."""
    _delete(table, [None, *sorted(_listed(table).get(attempt_id, _Files()).notes)], attempt_id)


class AttemptGuard(Guard):
    """Notes each try of the commit before anything of it is written.

    tries: how many were noted. number: of the snapshot that the last one is to create.
    """

    def __init__(self, table: Table, attempt: Attempt):
        self._table = table
        self._attempt = attempt
        self.tries = 0
        self.number = 0

    def fence(self) -> None:
        """Raises Fenced when another compaction has taken this one for dead, Misuse when the table is another one."""
        self._table.check_identity()
        self.number, io = self._table.snapshots.known_id() + 1, self._table.file_io
        note = _path(self._table, self._attempt.id, self.tries + 1)
        if not _create(self._table, note, _note(self.number)) or not io.exists(_path(self._table, self._attempt.id)):
            raise _taken_for_dead(self._table)
        self.tries += 1


def sweep(table: Table, own: Collection[str] = (), abandoned_ms: int = ABANDONED_MS, known: Known | None = None) -> int:
    """Delete what compactions have left that were killed. Idempotent. Returns how many of them were settled.

    own: ids of attempts of this process that have ended, and of which nothing can come. abandoned_ms: others are swept
    when they began before that. The newest snapshot has just been looked up. Of what cannot be told, nothing is
    deleted.
    """
    done, known, listed = 0, {} if known is None else known, _listed(table)
    for gone in known.keys() - listed.keys():
        del known[gone]
    for attempt_id, files in listed.items():
        if not files.is_announced:
            if not table.file_io.exists(_path(table, attempt_id)):
                _delete(table, sorted(files.notes), attempt_id)
            continue
        attempt = _load(table, attempt_id, known)
        if attempt is None or attempt_id not in own and Clock().now_ms() - attempt.at_ms < abandoned_ms:
            continue
        if _can_come_no_more(table, attempt, max(files.notes, default=0)) and _delete_left(table, attempt):
            forget(table, attempt_id)
            done += 1
    _delete_temporary(table, abandoned_ms)
    return done


def end(table: Table, attempt: Attempt, *, forgets: bool = True) -> None:
    """Nothing of this attempt's commit is under way, and no try has made anything: delete what it has written.

    forgets: whether nothing can be written any more, as of ``Limits``. Else the announcement stays.
    """
    if _delete_left(table, attempt) and forgets:
        forget(table, attempt.id)


def announced(table: Table, known: Known | None = None) -> list[Attempt]:
    """The compactions that run, or have left something, as far as their announcements can be read."""
    known = {} if known is None else known
    listed = [attempt_id for attempt_id, files in _listed(table).items() if files.is_announced]
    return [attempt for attempt_id in listed if (attempt := _load(table, attempt_id, known)) is not None]


def _can_come_no_more(table: Table, attempt: Attempt, last: int) -> bool:
    """Whether no snapshot of the attempt can come from now on; it may be there already. last: number of its last note,
    0 without any.
    """
    number = _number(table, attempt.id, last) if last else None
    if last and number is None:
        return False  # others have just settled the attempt, or it cannot be told
    if number == _SWEPT:
        return True
    if number is not None and number > table.snapshots.known_id():
        return False  # its number is free yet
    return _create(table, _path(table, attempt.id, last + 1), _note(_SWEPT))


def _delete_left(table: Table, attempt: Attempt) -> bool:
    """Delete what nothing names of the attempt. Returns False where that cannot be told."""
    places = [(folder, beginning_of(attempt.of_names)) for folder in attempt.folders]
    paths = list(files_in(table.file_io, table.layout.main, places))
    if not delete_of_compaction(table, paths, attempt.since):
        return False
    for folder, beginning in places:
        table.file_io.delete_unfinished(table.layout.within(folder), beginning)
    delete(table, leftovers.look(table, [attempt.id]).get(attempt.id, []), Look.ALL)
    return True


@dataclass
class _Files:
    """What there is of one attempt. notes: their numbers."""

    is_announced: bool = False
    notes: list[int] = field(default_factory=list)


def _listed(table: Table) -> dict[str, _Files]:
    """By id, the attempts of which there is anything."""
    found: dict[str, _Files] = {}
    for name in table.file_io.names(table.layout.within(JOURNAL_DIR)):
        of = of_compaction(name)
        if of is None:
            continue  # somebody else's
        files = found.setdefault(of[0], _Files())
        if of[1] is None:
            files.is_announced = True
        else:
            files.notes.append(of[1])
    return found


def _delete(table: Table, files: Iterable[int | None], attempt_id: str) -> None:
    """Delete these files of the attempt, in this order: notes, by number, or the announcement (None)."""
    for number in files:
        table.file_io.delete(_path(table, attempt_id, number))


def _create(table: Table, path: str, data: bytes) -> bool:
    """Create the file if it is absent, durably. The name of the temporary file tells when that was begun.

    False when the name is taken, and when another sweep has deleted the temporary file because it took this one for
    dead.
    """
    try:
        return table.file_io.create_if_absent(path, data, f"{Clock().now_ms()}-{IdSource().new_id()}")
    except FileNotFoundError:
        return False


def _taken_for_dead(table: Table) -> Fenced:
    return Fenced(
        f"{table.root}: this compaction took so long, or its machine's clock is so far behind, that another one has "
        "taken it for dead. Nothing was changed, and its new files are deleted. Compact again; if it began within "
        "the last hour, set the clocks right before",
        kind="compact.taken-for-dead",
    )


def _delete_temporary(table: Table, abandoned_ms: int) -> None:
    """Delete what creations have left that died, if they began so long ago."""
    folder = table.layout.within(JOURNAL_DIR)
    for name in table.file_io.names(folder):
        match = _TEMPORARY.fullmatch(name)
        if match is not None and Clock().now_ms() - int(match[1]) >= abandoned_ms:
            table.file_io.delete(f"{folder}/{name}")


def _path(table: Table, attempt_id: str, note: int | None = None) -> str:
    """Path of the announcement, or of one of the notes."""
    return table.layout.within(f"{JOURNAL_DIR}/{COMPACTION}{attempt_id}{'' if note is None else f'-{note}'}")


def _note(number: int) -> bytes:
    """The bytes differ from those of any other note, so that a lost reply can be settled by them."""
    return json.dumps({"snapshot": number, "by": IdSource().new_id()}).encode()


def _number(table: Table, attempt_id: str, k: int) -> int | None:
    """What the note says; None when it is gone, or damaged, which is logged."""
    path = _path(table, attempt_id, k)
    try:
        return int(json.loads(table.file_io.read(path))["snapshot"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        _say_damaged(table, path)
        return None


def _load(table: Table, attempt_id: str, known: Known) -> Attempt | None:
    """The announcement; None when it is gone, or damaged, which is logged: then what it has left stays."""
    path = _path(table, attempt_id)
    try:
        if attempt_id not in known:
            value = json.loads(table.file_io.read(path))
            number, uuid = value["since"]
            folders = tuple(map(str, value["folders"]))
            known[attempt_id] = Attempt(attempt_id, folders, (int(number), str(uuid)), int(value["at_ms"]))
        return known[attempt_id]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        _say_damaged(table, path)
        return None


def _say_damaged(table: Table, path: str) -> None:
    log.warning(
        "%s: it does not say what a compaction has left. It holds no data, and nothing was deleted: make sure that no "
        "compaction of %s runs, and delete the file %s; orphan cleaning finds what is left",
        path,
        table.root,
        shell.discard(path),
    )
