"""The journal in files, below ``<table>/streamsink/<application>/``. Paimon never lists that folder.

hold                     held (flock) while a driver lives; on a store without locks hold-<epoch>, which the driver
                         keeps changing
journal-<n>              identity of the journal, of which the newest counts: a journal that was removed or restored
                         gets a new one
owner-<epoch>            who claimed the application; created once, so epochs never repeat
record-<sequence>.json   a pre-commit: one header line (version, length, SHA-256), one body line; never changed
done-<sequence>          the record is published, as the name says; in it, as JSON, the snapshot's number and uuid
                         and the time by our clock, for several tables by table
files-<level>-<first>-<last>   which files the records of these numbers were made of (``known_files.py``)
staging/<epoch>-<sequence>/    files of a checkpoint that is not published yet
runs/<run id>            a bounded run is published, and what it was made of (kept unless it is given up)
"""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import cast

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.faults import fault_point
from streamsink.journal import identity
from streamsink.journal.announced import STAGING, Deleting
from streamsink.journal.attempts import Attempts
from streamsink.journal.known_files import FilesLog
from streamsink.journal.listing import Listing
from streamsink.journal.owners import Owners, number_taken
from streamsink.journal.record_format import encode_record
from streamsink.journal.records import Records
from streamsink.journal.run_marks import Runs
from streamsink.journal.staging import Abandoned, Staging
from streamsink.protocol.committable import Committable, KnownRun
from streamsink.protocol.ids import END_OF_INPUT, Writer
from streamsink.protocol.journal import Group, Journal, JournalIdentity, Where, decode_mark, encode_mark
from streamsink.protocol.recorded_files import KnownFiles
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.reading import Questions

JOURNAL_DIR = "streamsink"


def journal_dir(table: str, application: str) -> str:
    """The folder of an application's journal."""
    return os.path.join(table, JOURNAL_DIR, application)


class FileJournal(Journal):
    """The journal of one application of one table, in files."""

    def __init__(
        self,
        file_io: FileIO,
        table: str,
        application: str,
        retain: int,
        *,
        keep_staging: bool = False,
        deleting: Deleting | None = None,
        abandoned: Abandoned | None = None,
        of_table: bool = False,
    ):
        """retain: how many published records are kept. abandoned: called before a staging folder is deleted.

        keep_staging: keep a link to the files of each retained record, so that a rollback can be mended. deleting:
        deletes files with final names that got no record; see ``announced.py``. of_table: see ``Destination``.
        """
        self._io = file_io
        self._keep_staging = keep_staging
        self._table = table
        self._application = application
        self._retain = retain
        self._dir = journal_dir(table, application)
        self._owners = Owners(file_io, table, application, self._dir)
        self._staging = Staging(file_io, self._path(STAGING), table, deleting, keeps=keep_staging, abandoned=abandoned)
        self.attempts = Attempts(self._staging)
        self._runs = Runs(file_io, self._path("runs"))
        self._listing = Listing(file_io, self._dir)
        self._records = Records(file_io, self._dir, application, self._listing, of_table=of_table)
        # The bytes of the record that is staged, by the record's id: one at a time.
        self._staged: dict[str, bytes] = {}
        self._identity = identity.OwnIdentity(file_io, self._dir)
        self._files = FilesLog(file_io, self._dir, self.load)

    @property
    def place(self) -> str:
        return self._dir

    # -- ownership -------------------------------------------------------------------------------------------------

    def claim(self, query: str, above: int, run: str = "") -> Writer:
        epoch = self._owners.claim(query, above, run)
        self._io.soon(self._staging.end_unfinished)
        self._io.soon(self._staging.look)
        with self._io.asking(Questions(names=(self._dir,))):
            self.read_listing()
        return Writer(self._application, query, epoch)

    def identify(self, published: int, new_id: Callable[[], str], anew: bool = False) -> JournalIdentity:
        names = None if anew else self._listing.take_names()
        return self._identity.identify(self.last_sequence(), published, new_id, anew=anew, names=names)

    def identity(self) -> JournalIdentity:
        return self._identity.known

    def check_owner(self, writer: Writer) -> None:
        self._owners.check(writer.epoch)

    def questions(self, writer: Writer) -> Questions:
        return self._owners.questions(writer.epoch)

    def questions_of_restore(self) -> Questions:
        newest = identity.paths_of(self._dir, self._listing.names or ())[-1:]
        return self._records.questions() + Questions(read=tuple(newest))

    def check_before_record(self, writer: Writer, sequence: int) -> None:
        if not self._staging.is_left_by_all(sequence):
            self.check_owner(writer)

    def release(self, unused: bool = False) -> None:
        self.attempts.end()
        self._owners.release(unused)
        if unused:  # The error of the start may have a word of this journal, which must be the same one next time.
            with contextlib.suppress(OSError, StreamsinkError):
                self._io.do_waiting()

    # -- records ---------------------------------------------------------------------------------------------------

    def last_sequence(self) -> int:
        return self._listing.last()

    def retained(self) -> list[int]:
        return self._listing.retained()

    def stage_record(self, committable: Committable, group: Group) -> None:
        data = encode_record(committable)
        self._io.prepare(
            cast(FlushGroup, group), self._record(committable.state.sequence), data, committable.state.record_id
        )
        self._staged = {committable.state.record_id: data}

    def create_record(self, committable: Committable) -> None:
        create, following = functools.partial(self._create_record, committable), self.attempts.take_following()
        self._io.at_once([create, following]) if following else create()

    def _create_record(self, committable: Committable) -> None:
        state = committable.state
        data = self._staged[state.record_id]
        try:
            created = self._io.create_if_absent(self._record(state.sequence), data, state.record_id, prepared=True)
        except FileNotFoundError:  # a successor's sweep took what was staged
            self.check_owner(Writer(self._application, state.query, state.epoch))
            raise
        if not created:
            raise number_taken(self._table, self._application, state, self.load(state.sequence))
        self._listing.add(state.sequence)
        self._staging.take(state.sequence)

    def load(self, sequence: int) -> Committable | None:
        return self._records.load(sequence)

    def loading(self) -> AbstractContextManager[None]:
        return self._records.loading()

    def newest(self) -> Committable | None:
        """The newest record as it is in the store now. Nothing is claimed."""
        sequences = self._listing.numbers("record-", ".json")
        return self.load(sequences[-1]) if sequences else None

    def is_marked(self, sequence: int) -> bool:
        return self._listing.is_marked(sequence)

    def mark_of(self, sequence: int) -> Where | None:
        try:
            return decode_mark(self._io.read(self._done(sequence)))
        except FileNotFoundError:
            return None

    def mark_published(self, committable: Committable, where: Where | None = None) -> None:
        state = committable.state
        self._files.published(committable)
        if state.checkpoint_id == END_OF_INPUT:
            self._runs.mark(state.query, KnownRun.of(state))
        said = encode_mark(where)
        if not self.is_marked(state.sequence):
            # Not synced: when a power failure loses the mark, reading the table tells again what it said.
            self._io.mark(self._done(state.sequence), said)
            self._listing.mark(state.sequence)
        elif where is not None:
            # The record was published again, because a snapshot was lost.
            self._io.replace(self._done(state.sequence), said, IdSource().new_id())

    def mark_all(self, records: Sequence[tuple[Committable, Where | None]], *, soon: bool = False) -> None:
        self._io.together([functools.partial(self.mark_published, *each) for each in records], soon=soon)

    def known_run(self, run: str, table_id: str) -> KnownRun:
        return self._runs.known(run, table_id)

    def forget(self, sequences: Sequence[int]) -> None:
        kept = set(self.retained()) if self._keep_staging else set()
        self._staging.drop(set(sequences) - kept, self.load)
        fault_point("forget.staging_removed")
        pruned = self._files.keep(functools.partial(self._listing.take_beyond, self._retain))
        if self._keep_staging:
            self._staging.drop(set(pruned), self.load)
        # The marks are deleted last: a record without one would look pending.
        self._io.delete_all([self._record(oldest) for oldest in pruned])
        self._io.delete_all([self._done(oldest) for oldest in pruned])
        fault_point("forget.pruned")

    def known_files(self, since: int) -> KnownFiles | None:
        return self._files.known(since, self.retained)

    # -- staging ---------------------------------------------------------------------------------------------------

    def staging(self, sequence: int, writer: Writer) -> str:
        return self._staging.begin(writer.epoch, sequence)

    def discard(self, staging: str) -> None:
        if not self._owners.is_replaced():
            self._staging.discard(staging)

    def attempt(self, sequence: int, new_id: Callable[[], str]) -> str:
        return self.attempts.begin(sequence, new_id)

    def sweep(self, writer: Writer) -> list[str]:
        needed = set(self.retained() if self._keep_staging else self._listing.pending())
        orphans = self._staging.orphans(needed, self.last_sequence(), self.load)
        leftovers = [self._path(name) for name in self._listing.hidden()]
        fault_point("restore.before_sweep")
        announced = self._staging.remove(orphans, self.load)
        for path in leftovers:
            self._io.delete(path)
        return [path for files in orphans.values() for path in files] + announced + leftovers

    # -- names -----------------------------------------------------------------------------------------------------

    def read_listing(self) -> None:
        """List the records and marks that are in the store now.

        ``claim`` calls it. A caller that only reads calls it itself.
        """
        self._listing.read()

    def _path(self, *parts: str) -> str:
        return os.path.join(self._dir, *parts)

    def _record(self, sequence: int) -> str:
        return self._records.path(sequence)

    def _done(self, sequence: int) -> str:
        return self._path(f"done-{sequence}")
