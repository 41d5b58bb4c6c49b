"""The sink contract: what an author of a destination implements, and when each method is called.

- ``Sink``: a destination, whether or not a query writes to it.
- ``OpenSink``: the same as one start of a query has opened it. ``stage`` says what the record of a batch is to name.
- ``Writing``: how rows become staged files, on executors or on the driver.
- ``Committer``: publishes records, and tells what is published.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from streamsink.errors import Misuse
from streamsink.events import Event
from streamsink.options import CommitOptions, CompactionOptions, LockOptions, SinkOptions, TableOptions
from streamsink.protocol.committable import AppState, Batch, Committable, KnownRun, LastOfOther, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group, Journal, Mark, Where
from streamsink.protocol.upkeep import Care, Upkeep

# Of this library. What travels to executors must be taken up by the version that sent it.
VERSION = "0.1.0"


@dataclass(frozen=True)
class Destination:
    """The table as the protocol sees it: its path and its identity.

    way_back: what the user can do when the destination no longer has, or knows, what was published, as whole sentences
    without the last full stop. "" where the ways of tables are right: restore it, ``on_rollback``, ``give_up``.
    is_table: commands know it by its path. Else ``give_up`` is given the sink, and errors say offsets themselves.
    republishes: on_rollback='republish' gives it again what it has lost.
    """

    path: str
    table_id: str
    way_back: str = ""
    is_table: bool = False
    republishes: bool = True


@dataclass(frozen=True)
class History:
    """What the destination itself remembers of one application.

    state: its last published checkpoint, None when no record of it was found.
    complete: whether all of the history was searched; False when a part has expired, so that None proves nothing.
    """

    state: AppState | None
    complete: bool


@dataclass(frozen=True)
class Published:
    """The outcome of publishing one checkpoint.

    attempts: how many tries the publishing loop took. where: the snapshot that holds the checkpoint, or that of each
    table; None when the destination has no snapshots. base_replaced: another writer's snapshot took the place of the
    one that ours is built on: nothing of ours is lost, but readers do not see the other writer's rows. settle: what is
    left to do before the record may be marked, which another thread may do while the next batch is written, and a
    restart while the next record is published; it returns ``base_replaced``, and raises as ``Committer.publish``. None
    when nothing is left.
    """

    checkpoint_id: int
    snapshot_id: int
    attempts: int
    where: Where | None = None
    base_replaced: bool = False
    settle: Callable[[], bool] | None = None

    def settled(self) -> "Published":
        """The same when nothing is left to do, which is done now. Raises what that raises."""
        return self if self.settle is None else replace(self, base_replaced=self.settle(), settle=None)


@dataclass(frozen=True)
class Fence:
    """What ``Committer.publish`` is given: calling it raises Fenced when a newer writer owns the application.

    questions: what the call will ask of the journal's store, for a committer that asks a distant store ahead, many
    things at once (``FileIO.asking``); None where the journal does not tell.
    """

    ask: Callable[[], None]
    questions: Any = None

    def __call__(self) -> None:
        self.ask()


class Committer(Upkeep, ABC):
    """Makes recorded checkpoints visible, each at one instant, and tells what is visible.

    It plays the part of Paimon's ``Committer`` and of the ``Committer`` of Flink's two-phase-commit sinks. Driver only.
    Each application has one at a time, and one thread uses it at a time.
    """

    settles_later: bool = False
    """Whether ``publish`` may leave ``Published.settle`` to be done beside the next batch."""
    marked_at_once: int = 1
    """After how many publishings a restart marks the records: more than one where each mark takes a round trip."""

    def for_background(self) -> "Committer":
        """Another committer of the same destination that shares no changing state with this one, for another thread.

        Called once, before anything is published, when publishing is grouped or 'async'. A sink that does not implement
        it does not support these options: it raises Misuse.
        """
        raise Misuse(
            "this sink publishes each batch in the batch. No row was written. Leave out publish and "
            "publish_every_batches",
            kind="option.publish",
        )

    def recording(self, create: Callable[[], None], questions: Any) -> None:
        """Create the record of a checkpoint that this thread publishes next.

        create: creates it. A committer over a distant store asks meanwhile what ``publish`` will ask; questions: as in
        ``Fence``.
        """
        create()

    def join(self, records: Sequence[Committable]) -> list[Committable]:
        """As few committables as may stand for these records, in order, each to be published at one instant.

        One that stands for several has the state of the last of them, all their files, and is published over the record
        before the first. By default each record stands for itself.
        """
        return list(records)

    def asking(self, questions: Any, *, others: bool = False) -> AbstractContextManager[Any]:
        """Entered while ``history`` is called and the journal is asked this.

        A committer over a distant store asks both at once. questions: as in ``Fence``. others: ``others`` is called.
        """
        return nullcontext()

    @abstractmethod
    def history(self, application: str) -> History:
        """What is published. Called at a restart and before each batch: its cost must not grow with history."""

    def where_is(self, committable: Committable) -> Where | None:
        """Where a record that is published was; None when what is retained does not say.

        Called at a restart, of the last one that was.
        """
        return None

    def where_now(self) -> Where | None:
        """The newest of what is published, which has all that was published before; None when it has no name."""
        return None

    def was_replaced(self, mark: Mark) -> bool:
        """Whether another writer's snapshot stands in the marked one's place, prepared before ours was complete.

        Then it replaced ours in a race, by a rename; a later one means that the table was rolled back and written
        again.
        """
        return False

    def was_rolled_back(self, mark: Mark) -> bool:
        """Whether what is retained shows that the marked publishing was undone.

        It does when the destination ends before it, or when a later snapshot has its number.
        """
        return False

    def holds(self, committable: Committable, since: int) -> bool:
        """Whether the newest snapshot holds the record's files, although none is known that has published it.

        That happens when another writer has built on one that was replaced since, or somebody adds the files. since:
        number of the replaced snapshot, or 0. Raises Conflict when it cannot be told.
        """
        return False

    def state_alone(self, committable: Committable, *, held: bool = False) -> Committable:
        """What must be published of a record whose rows are in the destination although no state says so.

        Called at a restart, when ``holds`` or ``mentions`` has found the rows, or the user has. held: they were found
        by the names of the record's files, which must still be there at the instant of publishing. By default the
        record without files.
        """
        return replace(committable, files=())

    @abstractmethod
    def mentions(self, committable: Committable) -> bool:
        """Whether retained history names a file of it, added or deleted. Called where ``history`` does not tell."""

    @abstractmethod
    def others(self, application: str) -> Mapping[str, LastOfOther]:
        """The last record of each other application that has written here, published or not.

        Called until a run has its first record. What is published is in the destination, what is not in the journals
        beside this one: ``streamsink.sink.last_of_others`` puts them together.
        """

    def has_reached(self, application: str, sequence: int, where: Mark | None = None) -> bool:
        """Whether this record of another application, or a later one, is published; True when nothing retained tells.

        Called at a restart for the name that a query had before. where: the record was published there, or before. By
        default the answer is that of ``history``.
        """
        found = self.history(application)
        return not found.complete if found.state is None else found.state.sequence >= sequence

    def has_what_was_before(self, committable: Committable) -> bool:
        """As ``has_reached``, of what a record, the first one under a new name, goes on from."""
        before = committable.state.leads_on
        return not before or self.has_reached(*before)

    def known_run(self, application: str, run: str) -> KnownRun:
        """Whether history shows that a bounded job's run is published.

        It cannot tell when a part of history has expired and the rest does not show the run. Called when the journal is
        not the one that the application began with.
        """
        return KnownRun(None)

    @abstractmethod
    def sees_all_since(self, committable: Committable) -> bool:
        """Whether all of history since the record was made is there: what it does not mention was never published."""

    @abstractmethod
    def files_in_place(self, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
        """(files under their final name, files only staged, paths of files that are gone)."""

    def path_of_rows(self, committable: Committable) -> str:
        """Path of a data file of the record, under the name that it has now; '' where there is none."""
        return ""

    def restoring(self, records: Sequence[Committable]) -> AbstractContextManager[None]:
        """Entered while these records, all of earlier runs, are published or swept for, in order.

        What is asked for each may be looked up once for all. By default nothing is remembered.
        """
        return nullcontext()

    @abstractmethod
    def sweep(self, published: Sequence[Committable]) -> list[str]:
        """Delete what dead tries to publish these records left behind, now that they are published. Idempotent.

        The driver that published them may have died before what it made visible was durable. It must be durable when
        this returns: the records are marked then, and nobody looks at them again.

        A try carries the name of the last record that it stood for, and the record may since have been published in
        another group. Returns the paths of what was deleted.
        """

    @abstractmethod
    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]) -> Published:
        """Make the record visible at one instant.

        expect: number of the record that must be the last published one; to be checked again in every try. restored:
        the record comes from an earlier run, so its files may be visible already, which must be checked. fence: raises
        Fenced when a newer writer owns the application; to be called before anything is changed, and in every try,
        because the snapshots that could tell may have expired while this writer was paused. It may be a ``Fence``.

        Idempotent: a record that is visible already is reported as published. Raises Fenced, Conflict, OutcomeUnknown,
        Misuse (rolled back), Corrupt; Retryable when the tries ran out. After a crash the record is still pending, and
        publishing it again is safe.
        """


class Writing(ABC):
    """How rows become staged files. Spark pickles it and sends it to executors.

    A writer's ``close`` returns a list, whose items travel back to the driver as texts.
    """

    @abstractmethod
    def open(self, file_io: Any) -> Any:
        """A writer for one task attempt, with the methods ``write(rows)``, ``close(group)`` and ``abort()``.

        file_io: of the store. ``write`` is called with each Arrow batch. ``close`` returns the list; the files that it
        names are durable when ``group`` is flushed. ``abort`` deletes what was written, and is idempotent. It
        should raise nothing, because its error would hide the one that has ended the writing.
        """

    @abstractmethod
    def encode(self, written: Any) -> str:
        """One item of that list as text."""

    @abstractmethod
    def decode(self, text: str) -> Any:
        """The inverse of ``encode``.

        The text comes from a task: ``OpenSink.stage`` checks that what it says is true.
        """


class OpenSink(ABC):
    """A destination as one start of a query has opened it. Driver only.

    to: its path and identity. journal: that of the application. committer: publishes what the journal has. application:
    the query's name in its journal. known_as: the query's name in the destination's own history.
    """

    to: Destination
    journal: Journal
    committer: Committer
    application: str
    known_as: str
    is_distant: bool = False
    """Whether each look at the destination waits for a network."""
    parts: "Sequence[OpenSink]" = ()
    """The destinations that this one is made of, each with a journal of its own; none for a single one."""
    care: Care = Care()
    """What the destination does for itself beside the batches."""

    @abstractmethod
    def group(self) -> AbstractContextManager[Group]:
        """Opens a group of files that become durable together with a record."""

    @abstractmethod
    def writing(self, checkpoint: Checkpoint, fields: Sequence[Any], positions: Sequence[Any]) -> Writing:
        """How the rows of this checkpoint become files in ``checkpoint.staging``, which has no files yet.

        fields: the columns of the rows, as ``format.types.DataField``; the same object as long as they do not change.
        positions: columns that rows have besides ``fields`` and that say where in its source a row was read; most sinks
        ignore them. Raises Misuse that names the destination when rows with these columns do not fit.
        """

    @abstractmethod
    def stage(
        self, checkpoint: Checkpoint, written: Sequence[Any], group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        """The files, and the sink's own payload (a JSON object), that the record will name.

        Called once for a checkpoint, before its record. written: what all writers of the checkpoint returned; empty
        when its rows are in the destination already (``Verdict.SEEN``). What this method writes into the staging folder
        is durable when ``group`` is flushed. Raises Misuse or Corrupt when the record could not be published: then
        nothing is recorded, and the staging folder is deleted.
        """


class Sink(ABC):
    """A destination, as a query names it.

    Equal sinks must do the same with rows for the same place, so make yours a frozen dataclass; leave ``path`` out of
    the comparison where one place has several spellings.

    path: absolute, or a URL of the store; messages name it. journal: the folder below which the application's journal
    lies, where the destination is no folder; else that is ``path``. supports: names of options that this sink heeds
    although otherwise only Paimon tables do. never_forgets: why ``streamsink.retire`` cannot take an application out of
    it, as a clause; "" where ``Upkeep.forget`` does that.
    """

    path: str
    journal: str = ""
    supports: frozenset[str] = frozenset()
    never_forgets: str = "its author has not said how (Committer.forget)"

    @abstractmethod
    def open(
        self,
        file_io: Any,
        options: SinkOptions,
        batch: Batch,
        fields: Callable[[], Sequence[Any]],
        emit: Callable[[Event], None],
    ) -> OpenSink:
        """Open the destination for one start of a query, and create it when there is none.

        Called once in a start, with the first batch, before the application is claimed: another driver may still be
        writing. file_io: of the store of ``path``. fields: returns the columns of the rows, as
        ``format.types.DataField``. emit: takes events of ``streamsink.events``. Raises Misuse, before anything is
        written, also for an option that the sink does not support.
        """


# These options say how Paimon tables are made, written and committed.
OF_TABLES = frozenset(
    {
        declared.name
        for group in (TableOptions, CommitOptions, CompactionOptions, LockOptions)
        for declared in dataclasses.fields(group)
    }
    | {"mode", "overwrite_partition", "target_file_bytes", "max_open_writers", "writer_memory_bytes", "large_batches"}
    | {"publish_as", "maintenance", "maintenance_interval_ms", "catalog"}
)


def check_supported(sink: Sink, given: Iterable[str]) -> None:
    """Raises Misuse when one of these options means nothing to the sink. given: names of options."""
    wrong = sorted(OF_TABLES.intersection(given) - sink.supports)
    if wrong:
        raise Misuse(
            f"{sink.path}: {type(sink).__name__} does not support the options {', '.join(wrong)}, which say how a "
            "Paimon table is written. Nothing was written. Leave them out, or name them in 'supports' when the sink "
            "heeds them",
            kind="option.of-tables",
        )
