"""``streamsink recover``: publish what a dead query has left pending, as its next start would, without Spark.

It takes the same steps as a start: it claims the application, so that every earlier driver is fenced, compares journal
and table, publishes the records in order, and removes orphans. No batch follows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from streamsink import events
from streamsink.clock import IdSource
from streamsink.commands.own_sinks import check_of_tables, open_sink
from streamsink.journal.file_journal import FileJournal
from streamsink.operations.journals import OF_TABLES, journals_at, look_at_journals
from streamsink.options import RESTORE_AND_CONTINUE, SYNC, SinkOptions
from streamsink.protocol.journal import Journal
from streamsink.protocol.run.two_phase import TwoPhaseCommit
from streamsink.protocol.sink import Committer, Destination, Sink
from streamsink.sinks.paimon.many_tables import ManyTables
from streamsink.sinks.paimon.opening import open_one
from streamsink.sinks.paimon.past.place import open_place
from streamsink.storage.file_io import FileIO

# Begins what stands for this command in the record of who owns the application, where queries have their ids.
CLAIMED_BY = "recover"


@dataclass(frozen=True)
class Recovered:
    """What was published. checkpoints: ids, in order. orphans: names of files that were removed."""

    path: str
    application: str
    checkpoints: tuple[int, ...]
    orphans: tuple[str, ...]

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.checkpoints))
        done = f"published checkpoints {numbers}" if self.checkpoints else "everything recorded was published already"
        more = f"; {len(self.orphans)} orphan files were removed" if self.orphans else ""
        return f"{self.path}: application '{self.application}': {done}{more}"


def recover(
    file_io: FileIO, path: str, options: SinkOptions, listener: Callable[[events.Event], None] = lambda event: None
) -> Recovered:
    """Publish what is pending in the journal of ``options.application``.

    path: of a table, or of the folder of several. options: the query's. listener: called with each event. Idempotent.
    After a crash: call it again, or start the query. Raises as a start of the query does: Fenced while another one
    lives; Misuse and Corrupt for what a person must decide, with the same ways on.
    """
    [look] = look_at_journals(file_io, path, options.application)
    check_of_tables(file_io, journals_at(file_io, path), options.application, "recover")
    options = of_no_batch(options)
    if look.of != OF_TABLES:
        opened = open_one(file_io, path, options, 0, tuple)
        return _restored(opened.to, opened.journal, opened.committer, options, listener=listener)
    place = open_place(file_io, path, options.application, IdSource().new_id)
    journal, reader = (
        FileJournal(file_io, path, options.application, options.journal_retain, of_table=True) for _ in range(2)
    )
    committer = ManyTables(place, reader, options, lambda event: None)
    return _restored(Destination(path, place.journal_id, is_table=True), journal, committer, options, listener=listener)


def recover_sink(
    file_io: FileIO, sink: Sink, options: SinkOptions, listener: Callable[[events.Event], None] = lambda event: None
) -> Recovered:
    """As ``recover``, for a sink that is no Paimon table. file_io: of its journal."""
    options = of_no_batch(options)
    opened = open_sink(file_io, sink, options)
    options = replace(options, application=opened.application)
    return _restored(opened.to, opened.journal, opened.committer, options, listener=listener)


def of_no_batch(options: SinkOptions) -> SinkOptions:
    """The query's options, but that all is published at once, and nothing is created or ended on purpose."""
    return replace(
        options,
        restore=RESTORE_AND_CONTINUE,
        publish=SYNC,
        publish_every_batches=1,
        publish_interval_ms=0,
        create=False,
    )


def _restored(
    to: Destination,
    journal: Journal,
    committer: Committer,
    options: SinkOptions,
    *,
    listener: Callable[[events.Event], None],
) -> Recovered:
    heard: list[events.Event] = []
    protocol = TwoPhaseCommit(to, journal, committer, options, events.Listeners(heard.append, listener))
    try:
        protocol.restore(f"{CLAIMED_BY}-{IdSource().new_id()}", IdSource().new_id)
    finally:
        protocol.close(unused=True)
    restored = next(event for event in heard if isinstance(event, events.Restored))
    return Recovered(to.path, options.application, restored.published_checkpoints, restored.orphans_removed)
