"""Who owns an application's journal: ``owner-<epoch>`` is created once for each claim, and the newest one counts.

Epochs never repeat in a journal. Where a journal was removed they begin anew, so an owner is identified by everything
that its file says. One start of a query claims an application once: a second claim of the same run comes from another
sink, by another spelling of the same place.
"""

import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from streamsink import shell
from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Fenced, Misuse, Retryable
from streamsink.protocol import ways
from streamsink.protocol.committable import AppState, Committable
from streamsink.storage.file_io import FileIO
from streamsink.storage.reading import Questions

_PREFIX = "owner-"
_CLAIM_ATTEMPTS = 20
# What commands claim an application as, before an id.
_OF_A_COMMAND = re.compile(r"(recover|retire|replay|delete-branch)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|give-up")
_RUN, _REPLAY, _COMMAND, _QUERY = "run", "replay", "command", "query"
# The claims of this process by starts that come to take batches: by the owner's id, the path by which it was
# claimed. A claim is removed when another one follows it.
_USED: dict[str, str] = {}


class Owners:
    """The owners of one journal, as one driver sees them."""

    def __init__(self, file_io: FileIO, table: str, application: str, folder: str):
        """folder: of the journal."""
        self._io = file_io
        self._table = table
        self._application = application
        self._folder = folder
        self._hold = file_io.hold(folder)
        self._mine: tuple[int, bytes] | None = None
        self._id = ""
        self._is_released = False

    def claim(self, query: str, above: int, run: str = "") -> int:
        """Become the owner. Returns the epoch, which is greater than ``above``. When it raises, nothing is held.

        run: id of this start of the query; empty where it is not known. Raises Fenced while another query's driver
        lives, Misuse when another sink of the same start is the owner.
        """
        self._is_released = False
        try:
            return self._claim(query, above, run)
        except BaseException:
            self._hold.release()
            raise

    def _claim(self, query: str, above: int, run: str) -> int:
        for _ in range(_CLAIM_ATTEMPTS):
            epochs = self._epochs()
            owner = _load(self._io, self._path(epochs[-1])) if epochs else None
            if epochs and owner is None:
                continue  # since the listing others have claimed it twice
            self._check_run(owner, run)
            rival = epochs[-1] if owner is not None and owner.get("query") != query else None
            if not self._hold.allows(rival):
                # A hold refuses only when there is a rival, so the owner is known here.
                raise in_use(self._table, self._application, owner or {}, query, run)
            epoch = max(epochs[-1] if epochs else 0, above) + 1
            # The id tells two processes apart that have the same pid on hosts of the same name, as in containers.
            mine: dict[str, Any] = {
                "query": query,
                "run": run,
                "pid": os.getpid(),
                "host": os.uname().nodename,
                "id": IdSource().new_id(),
            }
            body = json.dumps(mine).encode()
            if self._io.create_if_absent(self._path(epoch), body):
                self._io.soon(functools.partial(self._keep, epoch))
                self._mine = epoch, body
                self._id = mine["id"]
                _USED.pop(_id_of(owner), None)
                _USED[self._id] = self._table
                self._io.soon(functools.partial(self._prune, epochs[:-1]))
                return epoch
        raise Fenced(
            f"{self._table}: application '{self._application}' was claimed {_CLAIM_ATTEMPTS} times by others while "
            "this query tried to: two drivers run the same query; stop one",
            kind="application.contended",
        )

    def check(self, epoch: int) -> None:
        """Raises Fenced unless the owner of this epoch is this driver, and the newest one.

        Raises Corrupt when the journal was removed.
        """
        with self._io.asking(self.questions(epoch)):
            found = self._read(epoch)
            if found is not None and self._is_mine(epoch, found) and not self._io.exists(self._path(epoch + 1)):
                if self._hold.is_wanted:
                    self._hold.again()
                return
        if not self._epochs():
            raise Corrupt(
                f"{self._folder}: the journal of application '{self._application}' was removed under the running "
                "query. Nothing was written. Restore the folder "
                f"{shell.restore(self._folder)}, or restart the query: the newest snapshot says what is published, but "
                "a checkpoint that was pending in the journal is lost with it. If the application "
                "was retired on purpose, end this query instead",
                kind="journal.gone",
            )
        raise Fenced(
            f"{self._table}: application '{self._application}' was taken over by a newer driver (this one has epoch "
            f"{epoch}); this driver writes nothing more. Nothing is lost: what it had pending the newer one publishes",
            kind="writer.fenced",
        )

    def questions(self, epoch: int) -> Questions:
        """What ``check`` asks about; for epoch 0, what ``claim`` asks first."""
        if not epoch:
            return Questions(names=(self._folder,))
        return Questions(read=(self._path(epoch),), size=(self._path(epoch + 1),))

    def is_replaced(self) -> bool:
        """Whether another driver has this one's epoch, in a journal that was begun anew.

        Then what carries that epoch there is not this driver's.
        """
        if self._mine is None:
            return False
        epoch, _ = self._mine
        found = self._read(epoch)
        return found is not None and not self._is_mine(epoch, found)

    def release(self, unused: bool = False) -> None:
        """Give the hold back.

        unused: the start has failed before a batch was given to it, so another claim of the same start takes nothing
        for a replay.
        """
        if unused:
            _USED.pop(self._id, None)
        self._is_released = True
        self._hold.release()

    def _keep(self, epoch: int) -> None:
        """Hold from now on, unless the start has failed meanwhile."""
        if not self._is_released:
            self._hold.keep(epoch)

    def _check_run(self, owner: Mapping[str, Any] | None, run: str) -> None:
        first = _USED.get(_id_of(owner)) if owner and run and owner.get("run") == run else None
        if first is not None:
            raise Misuse(
                f"{self._table}: application '{self._application}' is held by another sink of this same run of the "
                "query, which came to the same place by the path "
                f"{first}{', in another way' if first == self._table else ''}. These rows would be taken for a replay "
                "of what that one has recorded of the batch, and be skipped. Nothing of this call was written. Spell "
                "the path in one way in both: if each is given all rows of its batches, they are one sink then. If "
                f"these rows are a second part of the batch: {ways.second_part('this batch')}",
                kind="batch.twice",
            )

    def _prune(self, epochs: Sequence[int]) -> None:
        """Delete these earlier owners, but not the newest: a fenced writer sees its own file gone, or a newer one."""
        self._io.delete_all([path for old in epochs for path in (self._path(old), *self._hold.left_by(old))])

    def _is_mine(self, epoch: int, found: bytes) -> bool:
        return self._mine is None or self._mine == (epoch, found)

    def _read(self, epoch: int) -> bytes | None:
        try:
            return self._io.read(self._path(epoch))
        except FileNotFoundError:
            return None

    def _epochs(self) -> list[int]:
        names = (name.removeprefix(_PREFIX) for name in self._io.names(self._folder) if name.startswith(_PREFIX))
        return sorted(int(number) for number in names if number.isdigit())

    def _path(self, epoch: int) -> str:
        return os.path.join(self._folder, f"{_PREFIX}{epoch}")


def _id_of(owner: Mapping[str, Any] | None) -> str:
    """The owner's id; '' for no owner, and for one that earlier code wrote."""
    return owner.get("id", "") if owner else ""


def _load(file_io: FileIO, path: str) -> dict[str, Any] | None:
    """None when the file is gone."""
    try:
        return dict(json.loads(file_io.read(path)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as broken:
        raise Corrupt(
            f"{path}: not a valid owner record ({type(broken).__name__}). It holds no data: "
            f"{ways.delete_damaged(path)}",
            kind="journal.owner",
        ) from broken


def in_use(table: str, application: str, owner: Mapping[str, Any], query: str, run: str = "") -> Fenced:
    """The error for a claim on an application that ``owner`` holds: its query, run, pid and host.

    query, run: of the claim, as ``Journal.claim`` has them.
    """
    by, mine = _what(owner.get("query"), owner.get("run")), _what(query, run)
    is_here = (owner.get("pid"), owner.get("host")) == (os.getpid(), os.uname().nodename)
    end = "end that query or call of this process" if is_here else "end that process"
    whose = {
        _RUN: f"run '{owner.get('query')}' of a bounded job",
        _REPLAY: "a replay of dead letters",
        _COMMAND: "a command",
        _QUERY: f"another start (checkpoint {owner.get('query')})",
    }[by]
    held = (
        f"{table}: application '{application}' is held by {whose}, process {owner.get('pid')} on {owner.get('host')}, "
        "which is not harmed. Nothing was written."
    )
    return _with_way_on(held, mine, by, end, is_same=owner.get("query") == query)


def _what(query: Any, run: Any) -> str:
    """What has claimed an application. Only bounded runs and commands claim it without the id of a start."""
    command = _OF_A_COMMAND.fullmatch(str(query))
    if command is not None:
        return _REPLAY if command[1] == "replay" else _COMMAND
    return _RUN if run == "" else _QUERY


def _with_way_on(held: str, mine: str, by: str, end: str, *, is_same: bool) -> Fenced:
    """held: what the error begins with. end: how the holder is ended. is_same: it writes the same run."""
    if mine == _REPLAY and by in (_RUN, _QUERY):
        return Fenced(
            f"{held} That is no replay, and a replay needs a name that no query and no job has: leave --application "
            "out, or give it another name (--application NEW-NAME)",
            kind="application.in-use",
        )
    if by in (_REPLAY, _COMMAND) or mine in (_REPLAY, _COMMAND):
        return Fenced(
            f"{held} Call this again, as it is, when that has ended; what it has done by then is not done again. If it "
            f"hangs, or is to be stopped anyway, {end} and call this again",
            kind="application.in-use",
        )
    if mine == _RUN and is_same:
        return Fenced(
            f"{held} That is this same run. Call this again, as it is, when that has ended: the run is published then, "
            f"and nothing is written twice. If it hangs, {end} and call this again",
            kind="application.in-use",
        )
    if mine == _RUN and by == _RUN:
        return Fenced(
            f"{held} Runs of one job are written one after the other, under one name. Call this again, with the same "
            "name and run id, when that has ended, as a scheduler's next try does; and let the scheduler start one at "
            f"a time (Airflow: max_active_tis_per_dag=1). If it hangs, {end} and call this again. Give no run a name "
            "of its own: published runs are known under the name that they had, and one that is repeated under another "
            "name is written again. Only a job of which no run is in the table yet may have another name, "
            "application='...', the same for all of its runs",
            kind="application.in-use",
        )
    if _RUN in (mine, by):
        return Fenced(
            f"{held} Queries and bounded jobs need names of their own. If none of this one's rows are in the table, "
            "give it another name, application='...', and leave it so. If some are, written under this name, "
            f"{end} and call this again",
            kind="application.in-use",
        )
    return Fenced(
        f"{held} If that is an earlier start of this same query, which hangs or has lost its checkpoint, or if it is "
        f"to be stopped anyway, {end} and call this again. If a scheduler starts this query again and again, call this "
        "again, with the same name and checkpoint, when that start has ended. Only if this is another query, whose "
        "rows are not in the table, give it a name of its own, application='...', and leave it so: under a new name a "
        "new checkpoint writes its whole source",
        kind="application.in-use",
    )


def number_taken(table: str, application: str, mine: AppState, other: Committable | None) -> Fenced | Retryable:
    """The error of a driver whose record's number is taken.

    mine: the state of its record. other: the record that has the number; None when it is gone again.
    """
    if other is not None and other.state.epoch < mine.epoch:
        return Retryable(
            f"{table}: an earlier driver of application '{application}', which was about to record when this one took "
            f"over, has created record {mine.sequence} ({other.state.checkpoint_name}). Nothing is lost or doubled: "
            "the restart of the query publishes it and goes on from there",
            kind="journal.overtaken",
        )
    return Fenced(
        f"{table}: record {mine.sequence} of application '{application}' exists already: another driver "
        "runs the same query and was first. Nothing is lost: restart this one or stop it",
        kind="journal.record-taken",
    )
