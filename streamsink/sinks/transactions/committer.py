"""Commits the transactions of recorded checkpoints, in order. Driver only."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from streamsink.errors import Misuse, Retryable
from streamsink.journal.others import last_of_others
from streamsink.protocol.committable import AppState, Committable, LastOfOther
from streamsink.protocol.sink import Committer, Destination, History, Published
from streamsink.protocol.upkeep import Visible
from streamsink.sinks.manifest_log import ManifestLog
from streamsink.sinks.transactions.function import (
    PendingCheckpoint,
    PendingTransaction,
    TransactionContext,
    TwoPhaseCommitFunction,
    of_the_author,
)
from streamsink.sinks.transactions.memory import InDestination, Memory
from streamsink.sinks.transactions.timeouts import Timeouts
from streamsink.storage.file_io import FileIO

# Keys in the payload of a record, and in what a state carries on. The payload has the user context of before, once.
TRANSACTIONS, USER_CONTEXT = "transactions", "user_context"
# Key of a session: what a function shares with its session of the other thread, where checkpoints are committed beside
# the batches. Each of its values is replaced as a whole.
SHARED = "shared"
# How many of the last checkpoints a folder remembers; at least as many records as the journal keeps.
_REMEMBERED = 100


class TransactionCommitter(Committer):
    """Commits the transactions that a record names, and remembers the record.

    A record whose transactions are committed in part is committed again: each transaction is left alone when it is
    committed already.
    """

    def __init__(
        self,
        function: TwoPhaseCommitFunction[Any],
        file_io: FileIO,
        folder: str,
        to: Destination,
        timeouts: Timeouts,
        *,
        session: dict[str, Any],
    ):
        """folder: with the journals. session: what the function keeps; used by the thread of this committer."""
        self._function = function
        self._io = file_io
        self._folder = folder
        self._to = to
        self._timeouts = timeouts
        self._session = session
        self.tells_apart = not function.remembers
        self._memory: Memory = (
            InDestination(function, self._session)
            if function.remembers
            else ManifestLog(file_io, f"{folder}/commits", _REMEMBERED)
        )

    def for_background(self) -> "TransactionCommitter":
        session = {SHARED: self._session.setdefault(SHARED, {})}
        return TransactionCommitter(self._function, self._io, self._folder, self._to, self._timeouts, session=session)

    def history(self, application: str) -> History:
        state = self._memory.newest(application)
        if state is not None and application == self._timeouts.application:
            self._check_destination(state)
        return History(state, complete=True)

    def _check_destination(self, state: AppState) -> None:
        """Raises Misuse when it is remembered in the same place that the application writes somewhere else."""
        place = self._to.table_id.removesuffix(f"/{self._to.path}")
        if place != self._to.table_id != state.table_id and state.table_id.startswith(f"{place}/"):
            raise Misuse(
                f"{self._to.path}: it is remembered that application '{self._timeouts.application}' writes into "
                f"another destination, {state.table_id[len(place) + 1 :]}. Nothing was written. If it is the same "
                "destination, name it as before; if it is another one, give this sink a name of its own "
                "(application='...')",
                kind="application.other-destination",
            )

    def others(self, application: str) -> Mapping[str, LastOfOther]:
        known = self._memory.applications()
        found = last_of_others(self._io, self._folder, application, known, self._memory.newest)
        # Journals of other destinations may lie in the same folder. One that was in the place of this one counts.
        own = f"/{self._to.path}"
        return {name: last for name, last in found.items() if f"/{last.state.table_id}".endswith(own)}

    def mentions(self, committable: Committable) -> bool:
        return self._memory.has(committable)

    def sees_all_since(self, committable: Committable) -> bool:
        return self._memory.sees_all_since(committable)

    def files_in_place(self, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
        """A destination is not asked for a transaction: committing finds out. What is committed needs no rows."""
        if self._memory.has(committable):
            return len(committable.files), 0, ()
        gone = tuple(path for each in self._transactions(committable) for path in self._function.missing(each))
        return 0, len(committable.files), gone

    def visible(self) -> Visible | None:
        return None if self._function.is_there(self._session) else Visible(0, 0, gone=(self._to.path,))

    def forget(self, application: str) -> None:
        self._memory.forget(application)

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        return self._memory.sweep(published)

    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Any) -> Published:
        fence()
        state = committable.state
        if not self._memory.is_published(committable, expect):
            if expect == 0:
                self._check_same(state)
            what = f"{state.checkpoint_name} (record {state.sequence}) could not be committed, and is committed again"
            with of_the_author(self._function.path, what):
                self._function.commit_checkpoint(self._pending(committable, expect, restored, fence))
            self._memory.create(committable, {})
        return Published(state.checkpoint_id, state.sequence, 1)

    def _check_same(self, state: AppState) -> None:
        """Raises Retryable when another destination has come in the place of the one that this start has opened.

        It remembers nothing, and so does that one before its first record.
        """
        if not self._function.remembers:
            return
        with of_the_author(self._function.path, "the destination could not be asked which one it is"):
            found = self._function.identity(self._session)
        if self._to.table_id not in (found, f"{found}/{self._to.path}"):
            raise Retryable(
                f"{self._to.path}: another destination has come in the place of the one that this start of the query "
                f"has opened, as it is called {found}. Nothing of {state.checkpoint_name} was committed there; it is "
                "safe in the journal. The restart of the query says what can be done",
                kind="destination.history-changed",
            )

    def _pending(self, record: Committable, expect: int, restored: bool, fence: Any) -> PendingCheckpoint[Any]:
        state = record.state
        return PendingCheckpoint(
            path=self._to.path,
            application=record.application,
            number=state.sequence,
            checkpoint_id=state.checkpoint_id,
            record_id=state.record_id,
            epoch=state.epoch,
            transactions=tuple(self._transactions(record)),
            user_context=state.carried.get(USER_CONTEXT, {}),
            recovering=restored,
            expect=expect,
            state=json.dumps(state.to_json()),
            session=self._session,
            within_timeout=lambda pending: self._timeouts.heeded(state, pending),
            fence=fence,
        )

    def _transactions(self, record: Committable) -> list[PendingTransaction[Any]]:
        found, said, before = [], record.payload.get(TRANSACTIONS, {}), record.payload.get(USER_CONTEXT, {})
        for file in record.files:
            each = said[file.final]
            folder = f"{self._folder}/{file.staged.rpartition('/')[0]}"
            context = TransactionContext(
                file.final, record.application, record.state.sequence, folder, self._io, before
            )
            transaction = self._function.decode(each["handle"])
            found.append(PendingTransaction(transaction, context, each["begun_ms"], file.rows))
        return found
