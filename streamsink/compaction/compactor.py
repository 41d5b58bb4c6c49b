"""Compacts a table: plan, rewrite, commit. One group of tasks becomes one COMPACT snapshot. Driver only.

It loses to every other writer: when a file of a task is gone from the newest snapshot, the task's new files are deleted
and nothing is tried again with them. An append of others is no conflict.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from streamsink.clock import Clock
from streamsink.compaction import attempts
from streamsink.compaction.attempts import Attempt, AttemptGuard
from streamsink.compaction.left_alone import LeftAlone
from streamsink.compaction.plan import Packing, Sizes, Task, plan
from streamsink.compaction.rewrite import Rewriting, Stopped, rewrite
from streamsink.errors import Conflict, Corrupt, Fenced, Misuse, Retryable, StreamsinkError
from streamsink.events import log
from streamsink.format.manifest import ManifestEntry
from streamsink.format.snapshot import BATCH_COMMIT_IDENTIFIER, COMPACT, Snapshot
from streamsink.format.supported import check_writable
from streamsink.options import SinkOptions
from streamsink.table.commit import strict
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.late import check_unchecked
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.history.deletion import delete_late_snapshot, delete_of_compaction
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import Table

# Others may roll the table back, or let its files expire, while it is looked at. The newer snapshot is looked at then.
_LOOKS = 3


# Writes the rows of tasks again, one after another: yields the entries of each task's new files. Tasks and how, as of
# ``rewrite``.
Rewriter = Callable[[Table, Sequence[Task], Rewriting], Iterator[Sequence[ManifestEntry]]]


def in_this_process(table: Table, tasks: Sequence[Task], how: Rewriting) -> Iterator[Sequence[ManifestEntry]]:
    """The plain way."""
    for task in tasks:
        yield rewrite(table, task, how)


@dataclass(frozen=True)
class Limits:
    """How much is committed together at most, and which attempts are forgotten at once.

    A snapshot for each small partition would push others' snapshots out of what is retained, and one for all of them
    would lose all work with one conflict.
    forgets: whether no process can write for an attempt any more when its rewriting has ended. Else its announcement
    stays, and a later sweep, when it is as old as one that was abandoned, deletes what came late.
    """

    bytes: int = 256 * 2**20
    tasks: int = 64
    forgets: bool = True


@dataclass(frozen=True)
class By:
    """Who writes the rows of tasks again, and how much of it is committed together."""

    rewriter: Rewriter = in_this_process
    limits: Limits = Limits()


@dataclass(frozen=True)
class Done:
    """A task of which the rows are in new files that no snapshot names yet."""

    task: Task
    entries: tuple[ManifestEntry, ...]

    @property
    def bytes(self) -> int:
        """Size of the new files."""
        return sum(entry.file.file_size for entry in self.entries)


@dataclass
class Totals:
    """What a compactor has done. Files, bytes and rows are of what was committed.

    bytes_lost: size of new files that were written in vain, because another writer had changed the table.
    """

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    snapshots: list[int] = field(default_factory=list)
    conflicts: int = 0
    bytes_lost: int = 0


class Compactor:
    """Compacts one open table, which no other thread uses."""

    def __init__(
        self,
        table: Table,
        options: SinkOptions,
        *,
        pace: Callable[[], None] = lambda: None,
        abandoned_ms: int = attempts.ABANDONED_MS,
    ):
        """options: of the commit, the lock and the store. pace: as of ``Rewriting``. abandoned_ms: as of ``sweep``."""
        self._table = table
        self._options = options
        self._commit = TableCommit(table, options)
        self._pace = pace
        self._abandoned_ms = abandoned_ms
        self._own: set[str] = set()  # attempts of this object that have left something, to which nothing is added
        self._known: attempts.Known = {}
        self._ids: set[str] = set()  # of all attempts of this object
        self._taken: set[str] = set()  # folders
        self._since: tuple[int, str] = (0, "")
        self._left_alone = LeftAlone(table)
        self.totals = Totals()

    def newest(self) -> tuple[int, str]:
        """Number and uuid of the newest snapshot; (0, '') without any. Two requests where that has not changed."""
        self._table.snapshots.latest()
        return self._table.snapshots.known_name()

    def settle(self) -> Snapshot | None:
        """Delete what compactions have left that were killed, and return the newest snapshot.

        A snapshot of one of these that had come into another history is taken back, which is logged. Raises Misuse
        for a table that must not be compacted.
        """
        table = self._table
        table.check_identity()
        self._check_allowed()
        newest = table.snapshots.latest()
        announced = attempts.announced(table, self._known)
        users = {attempt.user for attempt in announced}
        self._taken = {folder for each in announced if self._is_of_others_now(each) for folder in each.folders}
        if newest is not None and newest.commit_user in users:
            try:
                check_unchecked(table, lambda snapshot: snapshot.commit_user in users)
            except Retryable as taken_back:
                log.warning("%s", taken_back)
                newest = table.snapshots.latest()
        if newest is not None and users:
            self._take_back_above(newest, users)
        attempts.sweep(table, self._own, self._abandoned_ms, self._known)
        return newest

    def plan(self, packing: Packing, is_wanted: Callable[[bytes], bool] = lambda partition: True) -> list[Task]:
        """The tasks on top of the newest snapshot, as ``plan.plan``. ``settle`` has just been called."""
        newest, schema = self._table.snapshots.known(), self._table.latest_schema()
        self._since = self._table.snapshots.known_name()
        if newest is None:
            return []
        sizes = Sizes.of(self._table.root, schema.options)
        for left in reversed(range(_LOOKS)):
            self._since = (newest.id, newest.uuid or "")
            try:
                live = self._left_alone.without(newest)
                return plan(live, sizes, packing, is_readable=self._left_alone.is_readable, is_wanted=is_wanted)
            except Corrupt:
                before, newest = newest, self._table.snapshots.latest()
                if newest == before or newest is None or not left:
                    raise
        return []

    @property
    def looked_at(self) -> tuple[int, str]:
        """The snapshot of the last plan, as of ``newest``."""
        return self._since

    def is_taken(self, task: Task) -> bool:
        """Whether another compaction is at work in the task's partition, as of ``settle``. One of the two would write
        in vain.
        """
        return self._folder_of(task) in self._taken

    def do(self, tasks: Sequence[Task], by: By = By()) -> None:
        """Do these tasks of the last plan, a group at a time; ``totals`` says what came of it. by: who writes.

        After a crash each group is committed or not; what is left of it goes with a later ``settle``. Raises what the
        rewriting raises, and what the commit raises but Conflict, which is counted.
        """
        for group in _groups(tasks, by.limits):
            self._do_group(group, by)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _is_of_others_now(self, attempt: Attempt) -> bool:
        return attempt.id not in self._ids and 0 <= Clock().now_ms() - attempt.at_ms < attempts.AT_WORK_MS

    def _folder_of(self, task: Task) -> str:
        """The folder in which its new files will be, relative to the table."""
        path = data_file_path(self._table, self._table.known_schema, task.files[0])
        return self._table.layout.relative(path.rpartition("/")[0])

    def _check_allowed(self) -> None:
        """Raises Misuse where a COMPACT snapshot would stop the table's writers, and where others have set an option
        that is not honoured here.
        """
        schema = self._table.latest_schema()
        try:
            check_writable(schema)
        except Misuse as refused:
            raise Misuse(f"{self._table.root}: {refused}. Nothing was changed", kind=refused.kind) from refused
        given = schema.options.get(strict.OPTION)
        if given is not None:
            raise Misuse(
                f"{self._table.root}: the table's option '{strict.OPTION}' is '{given}': behind a compaction each "
                "commit of another writer to the same partition would be refused as a conflict. Nothing was changed. "
                "Take the option out with ALTER TABLE, or do not compact this table beside its writers",
                kind="compact.strict-mode",
            )

    def _take_back_above(self, newest: Snapshot, users: Collection[str]) -> None:
        """Take back snapshots of dead compactions that came when the table had gone back: above a number that is free.

        Nobody sees such a one until others have taken that number, and then it would be the newest one.
        """
        snapshots = self._table.snapshots
        for number in snapshots.ids():
            if number <= newest.id + 1:
                continue
            found = snapshots.load(number)
            is_above_a_gap = not snapshots.exists(number - 1) and snapshots.exists(newest.id)
            if found is not None and found.commit_user in users and is_above_a_gap:
                delete_late_snapshot(self._table, found)

    def _do_group(self, tasks: Sequence[Task], by: By) -> None:
        if not tasks:
            return
        table, schema = self._table, self._table.known_schema
        sizes = Sizes.of(table.root, schema.options)
        attempt = Attempt.new({self._folder_of(task) for task in tasks}, self._since)
        self._ids.add(attempt.id)
        if by.limits.forgets:
            self._own.add(attempt.id)
        attempts.announce(table, attempt)
        how = Rewriting(attempt.of_names, attempt.since, schema, sizes.target_bytes, self._pace)
        done = list[Done]()
        try:
            for task, entries in zip(tasks, by.rewriter(table, tasks, how)):
                done.append(Done(task, tuple(entries)))
        except (StreamsinkError, OSError, Stopped) as failed:
            with contextlib.suppress(StreamsinkError, OSError):  # the error of the rewriting is the one to be seen
                if by.limits.forgets or not isinstance(failed, Stopped):  # a stop waits for nobody who writes elsewhere
                    attempts.end(table, attempt, forgets=by.limits.forgets)
                if isinstance(failed, (Corrupt, FileNotFoundError)) and not self._are_live(tasks[len(done)]):
                    self._give_up(done, failed)
                    return
            if isinstance(failed, Misuse) and self._left_alone.find(tasks[len(done) :], how, failed):
                self._do_group(self._left_alone.rest(tasks), by)
                return
            raise
        self._publish(attempt, done, forgets=by.limits.forgets)

    def _publish(self, attempt: Attempt, done: Sequence[Done], *, forgets: bool) -> None:
        """Commit, without the tasks that another writer has made vain. forgets: as of ``Limits``."""
        guard = AttemptGuard(self._table, attempt)
        try:
            try:
                snapshot_id = self._commit_once(attempt, done, guard)
            except Conflict:
                kept = [each for each in done if self._are_live(each.task)]
                self._lose([each for each in done if each not in kept] or done, guard)
                if guard.tries > 1 or len(kept) in (0, len(done)):
                    raise
                done = kept
                snapshot_id = self._commit_once(attempt, done, guard)
        except Conflict as conflict:
            if guard.tries == 1:
                attempts.end(self._table, attempt, forgets=forgets)
            self._say_given_up(conflict)
            return
        except Corrupt as broken:
            if self._table.snapshots.latest() is None or self._table.snapshots.known_id() < guard.number:
                raise
            self._give_up(done, broken)  # what the try has read has expired; its new files go with the next settling
            return
        except Fenced:
            # Who has taken this compaction for dead knows that nothing of it comes.
            attempts.end(self._table, attempt, forgets=forgets)
            raise
        except Retryable as late:
            if late.kind == "commit.retries":  # others were first in every try; the new files go with the next settling
                self._count_lost(done)
            raise
        self._count(done, snapshot_id)
        if forgets:
            attempts.forget(self._table, attempt.id)
            self._own.discard(attempt.id)

    def _commit_once(self, attempt: Attempt, done: Sequence[Done], guard: AttemptGuard) -> int:
        deletes = [entry.deleting for each in done for entry in each.task.files]
        adds = [entry for each in done for entry in each.entries]
        request = CommitRequest(
            attempt.user,
            BATCH_COMMIT_IDENTIFIER,
            Changes((*deletes, *adds)),
            attempt.id,
            COMPACT,
            begun_ms=attempt.at_ms,
        )
        return self._commit.commit(request, guard).snapshot_id

    def _are_live(self, task: Task) -> bool:
        """Whether the newest snapshot has all files of the task, and no other engine has deleted rows of them."""
        newest = self._table.snapshots.latest()
        if newest is None:
            return False
        live = {entry.identity for entry in self._left_alone.without(newest, {task.partition})}
        return live.issuperset(entry.identity for entry in task.files)

    def _give_up(self, done: Sequence[Done], why: Exception) -> None:
        """A file of a task, or its folder, is gone because others have taken it out: the whole group is in vain."""
        self._count_lost(done)
        self._say_given_up(why)

    def _say_given_up(self, why: Exception) -> None:
        log.info("%s: a compaction gives up, because other writers have changed its files: %s", self._table.root, why)

    def _lose(self, vain: Sequence[Done], guard: AttemptGuard) -> None:
        """Another writer has removed files of these tasks: their new files, which nothing names, go.

        Behind several tries one may come yet of which no answer came: then they stay for a later sweep.
        """
        self._count_lost(vain)
        schema = self._table.known_schema
        paths = [data_file_path(self._table, schema, entry) for each in vain for entry in each.entries]
        if guard.tries == 1:
            delete_of_compaction(self._table, paths, self._since)

    def _count_lost(self, vain: Sequence[Done]) -> None:
        self.totals.conflicts += 1
        self.totals.bytes_lost += sum(each.bytes for each in vain)

    def _count(self, done: Sequence[Done], snapshot_id: int) -> None:
        totals = self.totals
        totals.files_before += sum(len(each.task.files) for each in done)
        totals.files_after += sum(len(each.entries) for each in done)
        totals.bytes_before += sum(each.task.bytes for each in done)
        totals.bytes_after += sum(each.bytes for each in done)
        totals.rows += sum(each.task.rows for each in done)
        totals.snapshots.append(snapshot_id)


def _groups(tasks: Sequence[Task], most: Limits) -> Iterator[list[Task]]:
    group = list[Task]()
    for task in tasks:
        if group and (len(group) == most.tasks or sum(t.bytes for t in group) + task.bytes > most.bytes):
            yield group
            group = []
        group.append(task)
    if group:
        yield group
