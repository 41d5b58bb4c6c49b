"""The journal as commands change it, which no query does: records, and all of it, are taken away on purpose."""

import json
import os
import re
from collections.abc import Sequence
from typing import Any

from streamsink.clock import IdSource
from streamsink.journal import identity
from streamsink.journal.announced import STAGING
from streamsink.journal.file_journal import FileJournal
from streamsink.protocol.committable import AppState
from streamsink.protocol.journal import readable
from streamsink.storage.file_io import FileIO

# The folder in which a replay of dead letters keeps its plans, and what the id of a replay's run is like.
REPLAYS = "replays"
_RUN_OF_A_REPLAY = re.compile(r"[1-9][0-9]*-[0-9a-f]{32}")


def is_of_replay(state: AppState | None) -> bool:
    """Whether the last record of an application is a replay of dead letters."""
    return state is not None and _RUN_OF_A_REPLAY.fullmatch(state.query) is not None


def is_user_of_replay(commit_user: str) -> bool:
    """Whether a snapshot of this commit user, which ends with the run's id, is of a replay of dead letters."""
    return _RUN_OF_A_REPLAY.fullmatch("-".join(commit_user.rsplit("-", 2)[1:])) is not None


class RepairJournal(FileJournal):
    """The journal of an application whose query does not run, claimed by the command."""

    @classmethod
    def of(cls, journal: FileJournal) -> "RepairJournal":
        """The same journal, as whoever has opened it has made it."""
        made = cls.__new__(cls)
        made.__dict__ = journal.__dict__
        return made

    @property
    def store(self) -> FileIO:
        """The store in which it lies."""
        return self._io

    def is_of(self, state: AppState) -> bool:
        """Whether the state, which the destination has, was recorded here, as far as this journal can know."""
        self.read_listing()
        own = readable(self, state.sequence) if state.sequence in self.retained() else None
        if own is not None:
            return own.state.record_id == state.record_id
        return identity.is_of(self._io, self._dir, state) or not state.journal_id and bool(self.retained())

    def runs(self) -> list[str]:
        """The ids of the bounded runs that were marked published."""
        return self._runs.names()

    def replays(self) -> list[str]:
        """The ids of the runs that were planned here to replay dead letters."""
        return sorted(self._io.names(os.path.join(self._dir, REPLAYS)))

    def give_up(
        self,
        sequences: Sequence[int],
        runs: Sequence[str] = (),
        base: int = 0,
        *,
        knows_runs: bool = True,
        behind: tuple[Any, ...] = (),
    ) -> None:
        """Forget records that are not published, the newest first. Durable when this returns. Idempotent.

        Their numbers are given again. runs: bounded runs that no longer count as published. base: the last record that
        the destination has; when records between it and the first of these are not there either, the journal no longer
        knows every run, and its identity says so. knows_runs: whether ``runs`` has all runs that were given up, which
        damaged records do not tell. behind: as in ``JournalIdentity``.
        """
        self._runs.forget(runs)
        if sequences:
            kept = max([base, *(sequence for sequence in self.retained() if sequence < min(sequences))])
            pruned = min(sequences) - 1 if min(sequences) > kept + 1 or not knows_runs else 0
            identity.go_back(self._io, self._dir, kept, pruned, IdSource().new_id, behind=behind)
            self._files.cut(kept)
        for sequence in sequences:
            # Marks are deleted first: a mark that outlived its record would make the next record of that number look
            # published.
            self._io.delete(self._done(sequence))
        self._io.sync_dir(self._dir)
        for sequence in sorted(sequences, reverse=True):
            self._io.delete(self._record(sequence))
        self._io.sync_dir(self._dir)
        self._staging.drop(set(sequences), self.load)
        self._listing.remove(sequences)

    def drop_staging(self) -> list[str]:
        """Delete what attempts have left, also what is ready for a record: nobody makes records here any more.

        What they have begun elsewhere is ended, as a start does. Returns the names of the folders that must stay,
        because that was not possible; why is logged. Idempotent.
        """
        folder = self._path(STAGING)
        numbers = {name.rpartition("-")[2] for name in self._io.names(folder)}
        self._staging.drop({int(number) for number in numbers if number.isdigit()}, self.load)
        return self._io.names(folder)

    def damaged(self) -> list[str]:
        """Paths of files of the journal that are damaged and hold no data: who has claimed it, and which one it is."""
        return [path for path in map(self._path, self._io.names(self._dir)) if _is_damaged(self._io, path)]

    def remove_damaged(self) -> list[str]:
        """Delete these files. The application's query must not run. Idempotent. Returns their paths."""
        found = self.damaged()
        for path in found:
            self._io.delete(path)
        self._io.sync_dir(self._dir)
        return found

    def remove(self) -> None:
        """Delete the whole journal: the application is retired. Idempotent.

        Records are deleted before marks, because a record without a mark would look pending.
        """
        for sequence in self.retained():
            self._io.delete(self._record(sequence))
        self._io.sync_dir(self._dir)
        self._io.delete_tree(self._dir)


def _is_damaged(file_io: FileIO, path: str) -> bool:
    """Whether this is an owner or an identity of a journal, and cannot be read."""
    prefix, _, number = os.path.basename(path).rpartition("-")
    if prefix not in ("owner", "journal") or not number.isdigit():
        return False
    try:
        return not isinstance(json.loads(file_io.read(path)), dict)
    except FileNotFoundError:
        return False
    except ValueError:
        return True
