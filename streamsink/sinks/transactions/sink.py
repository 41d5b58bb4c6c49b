"""A sink in Flink's form, as one start of a query opens it. Driver only."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, cast

from streamsink import shell
from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.events import Event
from streamsink.format.arrow_types import to_arrow_schema
from streamsink.journal.file_journal import FileJournal
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol import ways
from streamsink.protocol.committable import Batch, Committable, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group
from streamsink.protocol.sink import Destination, OpenSink, Sink
from streamsink.sinks.files import check_handed_over, open_folder
from streamsink.sinks.transactions.committer import TRANSACTIONS, USER_CONTEXT, TransactionCommitter
from streamsink.sinks.transactions.function import (
    NEVER_FORGETS,
    ONLY_ASKED,
    Context,
    PendingTransaction,
    T,
    TransactionContext,
    TwoPhaseCommitFunction,
    of_the_author,
)
from streamsink.sinks.transactions.timeouts import Timeouts
from streamsink.sinks.transactions.writing import ANNOUNCED, PreCommitted, TransactionWriting, abort_all
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.stores import journal_place

# Key in the payload of a record: the path of the sink.
_DESTINATION = "destination"


class TwoPhaseCommitSink(TwoPhaseCommitFunction[T], Sink):
    """A destination that is written in transactions, in the form of Flink's ``TwoPhaseCommitSinkFunction``.

    Write a frozen dataclass with the fields ``path``, which names the destination in messages, and ``journal``, the
    folder for its journal, and implement the methods of ``TwoPhaseCommitFunction``. Several destinations may have their
    journals in one folder; each query there has a name of its own (``application``).
    """

    @property
    def republishes(self) -> bool:
        """Whether it can be given again what it has lost: it tells what it has, and commits that again."""
        return self.commits_again and self.remembers

    @property
    def never_forgets(self) -> str:  # type: ignore[override]  # nobody sets what the contract names
        """As of ``Sink``. What is noted beside the journal can always be removed."""
        can = not self.remembers or type(self).forget is not TwoPhaseCommitFunction.forget
        return "" if can else NEVER_FORGETS

    def open(
        self,
        file_io: FileIO,
        options: SinkOptions,
        batch: Batch,
        fields: Callable[[], Sequence[Any]],
        emit: Callable[[Event], None],
    ) -> "OpenTransactions":
        if options.on_rollback == ON_ROLLBACK_REPUBLISH and not self.republishes:
            raise Misuse(
                f"{self.path}: on_rollback is 'republish', which {type(self).__name__} cannot do: a transaction that "
                "was committed cannot be committed once more. Nothing was written. Leave the option out",
                kind="option.on-rollback",
            )
        if not self.journal:
            raise Misuse(
                f"{self.path}: {type(self).__name__} has no folder for its journal. Nothing was written. Give the "
                "sink journal='<path>', a folder that all drivers of the query share and that nobody cleans",
                kind="sink.no-journal",
            )
        return OpenTransactions(self, file_io, options, emit)


class OpenTransactions(OpenSink):
    """The destination of one start of a query."""

    journal: FileJournal

    def __init__(
        self, sink: TwoPhaseCommitSink[Any], file_io: FileIO, options: SinkOptions, emit: Callable[[Event], None]
    ):
        folder = journal_place(sink.journal)
        self._sink, self._io, self._folder = sink, file_io, folder
        file_io.sweep_probes()
        self.application = self.known_as = options.application
        keeps, retain = options.on_rollback == ON_ROLLBACK_REPUBLISH, options.journal_retain
        self.journal = FileJournal(
            file_io, folder, options.application, retain, keep_staging=keeps, abandoned=self._abandoned
        )
        self._check_destination()
        self._session: dict[str, Any] = {} if options.create else {ONLY_ASKED: True}
        with of_the_author(sink.path, "the destination could not be opened. Nothing was written"):
            identity = sink.identity(self._session)
        if sink.remembers and identity != sink.path:  # it outlives a journal that is lost
            known = f"{identity}/{sink.path}"
        else:
            known = f"{open_folder(file_io, folder, visible='commits').table_id}/{identity}"
        self.to = Destination(sink.path, known, self._way_back(), republishes=sink.republishes)
        timeouts = Timeouts(sink, options.application, emit)
        self.committer = TransactionCommitter(sink, file_io, folder, self.to, timeouts, session=self._session)
        self._fields: Sequence[Any] | None = None
        # By number of the record, the user contexts that the last one keeps, and the one that is being staged.
        self._contexts: dict[int, Context] = {}

    def _way_back(self) -> str:
        place, notes = self.journal.place, f"{self._folder}/commits/{self.application}"
        if self._sink.remembers:
            again = " (on_rollback='republish', set before that happens, commits again what it lacks)"
            return (
                f"Restore the destination{again if self._sink.commits_again else ''}. If it was emptied on purpose, "
                "and all is to be written anew, remove what it remembers of the application, remove the journal "
                f"{place}, and start the query with a new checkpoint, which reads the source from its beginning "
                f"{shell.discard(place)}. "
                f"{ways.give_up(self._sink.path, self.application, is_table=False)}"
            )
        return (
            f"Restore the folder {notes}, which notes what was committed, {shell.restore(notes)}, and the destination, "
            "if that has gone back "
            "as well: it is not asked for its rows. If there is no backup of the folder, write the "
            f"second line of the file {place}/record-<number>.json, of the record that was published last, into a file "
            f"{notes}/<number>.json, whose number has ten digits: that the record, and all before it, were committed "
            "is known by the journal"
        )

    def _check_destination(self) -> None:
        """Raises Misuse when the journal is of a destination with another path."""
        try:
            newest = self.journal.newest()
        except Corrupt:
            return  # the start says so
        before = newest.payload.get(_DESTINATION) if newest is not None else None
        if before not in (None, self._sink.path):
            raise Misuse(
                f"{self._sink.path}: the journal {self.journal.place} of application '{self.application}' is of "
                f"another destination, {before}. Nothing was written. If it is the same destination, name it as "
                "before; if it is another one, give this sink a name of its own (application='...') or another folder "
                "for its journal",
                kind="journal.other-destination",
            )

    def group(self) -> AbstractContextManager[Group]:
        return self._io.flush_group()

    def writing(
        self, checkpoint: Checkpoint, fields: Sequence[Any], positions: Sequence[Any]
    ) -> TransactionWriting[Any]:
        if fields is not self._fields:
            with of_the_author(self._sink.path, "the columns of the rows could not be checked. Nothing was written"):
                self._sink.check_columns(to_arrow_schema(fields), self._session)
            self._fields = fields
        return TransactionWriting(
            self._sink, self.application, checkpoint.sequence, checkpoint.staging, _copy(self._before(checkpoint))
        )

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[PreCommitted], group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        staging, together = checkpoint.staging, cast(FlushGroup, group)
        by_tasks = {f"{ANNOUNCED}{each.name}": 0 for each in written if each.handed_over}
        check_handed_over(self._io, self._folder, staging, by_tasks)
        before, written = self._before(checkpoint), _by_our_clock(checkpoint, written)
        self._check(checkpoint, written, before)
        with of_the_author(self._sink.path, "the user context of the next checkpoint could not be made"):
            context = self._sink.user_context(_copy(before), [self._sink.decode(each.handle) for each in written])
            context = _copy(context)  # what is no JSON would be found when the record is encoded
        if not isinstance(context, dict):  # the next batch would be given it, and each start again
            raise Misuse(
                f"{self._sink.path}: user_context of {type(self._sink).__name__} has returned a "
                f"{type(context).__name__}, expected a JSON object (a dict), such as what it was given. Nothing was "
                "recorded or committed. Let it return one, and start the query again",
                kind="transaction.user-context",
            )
        together.write(f"{staging}/manifest-{checkpoint.sequence}-{IdSource().new_id()}", b"")
        together.sync_dir(staging)
        staged = os.path.relpath(staging, self._folder)
        files = tuple(
            StagedFile(f"{staged}/{ANNOUNCED}{each.name}", each.name, each.bytes, each.rows) for each in written
        )
        said = {each.name: {"handle": each.handle, "begun_ms": each.begun_ms} for each in written}
        self._contexts[checkpoint.sequence] = context
        payload = {_DESTINATION: self._sink.path, TRANSACTIONS: said, USER_CONTEXT: before}
        return files, payload | {"carried": {USER_CONTEXT: context}}

    def _check(self, checkpoint: Checkpoint, written: Sequence[PreCommitted], context: Context) -> None:
        """Ask the sink whether what is pre-committed could be committed."""
        of, staging = (self.application, checkpoint.sequence), checkpoint.staging
        pending = [
            PendingTransaction(
                self._sink.decode(each.handle),
                TransactionContext(each.name, *of, staging, self._io, context),
                each.begun_ms,
                each.rows,
            )
            for each in written
        ]
        what = "the rows could not be checked. Nothing was recorded or committed"
        with of_the_author(self._sink.path, what):
            self._sink.check_transactions(pending, self._session)

    def _before(self, checkpoint: Checkpoint) -> Context:
        """The user context that the record before this one keeps.

        The same number may have been staged before, by a try that got no record.
        """
        earlier = [number for number in self._contexts if number < checkpoint.sequence]
        if not earlier:
            last = self.committer.history(self.application).state
            return last.carried.get(USER_CONTEXT, {}) if last is not None else {}
        self._contexts = {number: self._contexts[number] for number in (max(earlier),)}
        return self._contexts[max(earlier)]

    def _abandoned(self, folder: str, record: Committable | None) -> bool:
        """A staging folder is about to be deleted: what began there and is not in the record is aborted."""
        keep = {file.final for file in record.files} if record is not None else set[str]()
        return abort_all(self._sink, self._io, self.application, folder, keep)


def _by_our_clock(checkpoint: Checkpoint, written: Sequence[PreCommitted]) -> list[PreCommitted]:
    """What executors say of the time at which a transaction began, as far as it can be by the driver's clock.

    A clock that is slow would let a transaction look as if its timeout had passed.
    """
    clock = Clock()
    now = clock.now_ms()
    begun = now - (clock.monotonic_ms() - checkpoint.begun_ms)
    return [replace(each, begun_ms=int(min(max(each.begun_ms, begun), now))) for each in written]


def _copy(context: Context) -> Any:
    """What a later start would read."""
    return json.loads(json.dumps(context))
