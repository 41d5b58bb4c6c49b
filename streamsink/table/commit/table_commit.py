"""The table commit: filter, base, delta, manifests, snapshot, publish, clean. One call makes one snapshot.

The filter is evaluated again in every try of the loop, against the snapshot that the try builds on; so are the files
that an overwrite deletes, and the conflicts.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

from streamsink.clock import Clock, IdSource
from streamsink.errors import Misuse, OutcomeUnknown
from streamsink.faults import fault_point
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import Snapshot
from streamsink.locks.configured import lock_of
from streamsink.options import SinkOptions
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.reading import Questions
from streamsink.table.application_states import States
from streamsink.table.commit import strict
from streamsink.table.commit.changes import Ahead, Changes, Files, Written
from streamsink.table.commit.delta import CommitRequest, Delta, Deltas, discards_duplicates
from streamsink.table.commit.files_of_tries import FilesOfTries
from streamsink.table.commit.late import Base, has_slept
from streamsink.table.commit.publish import Outcome, is_base_kept, move_hint, prepare_snapshot, publish, take_back_hint
from streamsink.table.commit.retry import RetryPolicy
from streamsink.table.commit.tries import Tries
from streamsink.table.commit.unanswered import Unanswered, is_built_on, without_files
from streamsink.table.history.deletion import Look, delete, try_name
from streamsink.table.history.whole import Whole
from streamsink.table.manifest_merge import MergeOptions
from streamsink.table.table import Table


@dataclass(frozen=True)
class Committed:
    """snapshot: one that holds the commit, in its place at ``at_ms``. attempts: tries it took; 0 when it was there
    before.

    base_replaced: as ``settle`` has returned. may_be_alone: what the request adds may be in an earlier snapshot.
    settle: see ``TableCommit.commit_unsettled``.
    """

    snapshot: Snapshot
    attempts: int
    at_ms: int
    base_replaced: bool = False
    may_be_alone: bool = False
    settle: Callable[[], bool] = lambda: False

    @property
    def snapshot_id(self) -> int:
        return self.snapshot.id


@dataclass(frozen=True)
class _Found:
    """What one try builds on, and changes.

    request: what it publishes, without files where these are in the table already (``is_alone``). newest, states: what
    it builds on, looked up at ``seen_ms``. delta: the changes on top of that.
    """

    request: CommitRequest
    newest: Snapshot | None
    seen_ms: int
    states: States
    delta: Delta
    is_alone: bool


class Guard:
    """What a commit asks in each of its tries about the newest snapshot, before it writes anything.

    This one lets all pass.
    """

    def questions(self) -> Questions:
        """What ``fence`` asks about."""
        return Questions()

    def fence(self) -> None:
        """Raises when this writer may not publish any more."""

    def is_published(self, states: States) -> bool:
        """Whether the request is published already. states: those of the newest snapshot.

        Raises to refuse the request.
        """
        return False


class TableCommit:
    """Commits to one table. Driver only. Safe beside other processes, whose commits it builds on."""

    def __init__(self, table: Table, options: SinkOptions, whole: Whole | None = None):
        """whole: looks whether there is what each try builds on; None where nobody does."""
        self._io = table.file_io
        self._at = table.layout
        self._table = table
        self._snapshots = table.snapshots
        self._manifests = table.manifests
        self._deltas = Deltas(table)
        self._files = FilesOfTries(table, whole)
        self._options = options
        self._lock = lock_of(table.root, options)
        self._clock = Clock()
        self._ids = IdSource()

    def check_options(self) -> None:
        """Before anything is recorded: the table's options that a commit needs. Raises Misuse that names the option."""
        of_table = self._table.known_schema.options
        RetryPolicy.of(self._at.root, self._options, of_table)
        strict.check_option(self._table)
        try:
            MergeOptions.of(of_table)
        except Misuse as wrong:
            raise Misuse(f"{self._at.root}: {wrong}", kind=wrong.kind) from wrong

    def commit(self, request: CommitRequest, guard: Guard) -> Committed:
        """Publish, retrying while other writers win the number.

        Raises: Retryable when retries ran out, Conflict, OutcomeUnknown, Fenced, and whatever the guard raises.
        After a crash: the snapshot exists or not; unreferenced list files may be left, never a broken table.
        """
        done = self.commit_unsettled(request, guard)
        return replace(done, base_replaced=done.settle(), settle=lambda: False)

    def commit_unsettled(self, request: CommitRequest, guard: Guard) -> Committed:
        """As ``commit``, but ``settle`` of what it returns must be called before anything relies on it.

        The snapshot exists. ``settle`` checks that it came in time, moves the hint, and deletes what other tries have
        left. Any thread may call it, once, before the next commit. It returns whether another writer's snapshot took
        the place of the one that ours is built on (Paimon's own writers publish by a rename that replaces): all that is
        ours stays visible, and the other's rows are not seen. It raises what ``late.is_base_kept`` raises, and
        OutcomeUnknown; the commit is not known to be there then.
        """
        policy = RetryPolicy.of(self._at.root, self._options, self._table.known_schema.options)
        ahead = request.ahead.files.shared_delta_list if request.ahead else request.delta_list
        tries = Tries(self._table, ahead)
        for attempt in policy.attempts(self._clock):
            done = self._try_once(request, guard, tries, attempt)
            if done is not None:
                return replace(done, settle=functools.partial(self._settle, done, tries, ahead))
        raise tries.gave_up(policy)

    def _settle(self, done: Committed, tries: Tries, ahead: Written | None) -> bool:
        is_replaced = done.settle()
        tries.clean(ahead, done.snapshot)
        return is_replaced

    def write_ahead(self, commit_name: str, manifest: ManifestFileMeta, group: FlushGroup) -> Ahead | None:
        """Write what the first try of an append needs, if it is built on the newest snapshot as of the last look-up.

        manifest: of the commit's files, under its final name. All of it is durable when ``group`` is flushed. None
        where a try has to look into the table first.
        """
        newest = self._snapshots.known()
        if discards_duplicates(self._table.known_schema):
            return None
        name = try_name(commit_name, newest.id + 1 if newest else 1, 1)
        delta = Delta(Changes(), None, (), (manifest,))
        return Ahead(newest, commit_name, self._files.write(delta, newest, name, None, group=group))

    def _try_once(self, request: CommitRequest, guard: Guard, tries: Tries, attempt: int) -> Committed | None:
        """One try; None when another writer won, or no answer came. Steps 1 to 7 as docs/PROTOCOL.md numbers them."""
        fault_point("commit.before_filter")
        asked = self._io.asked_recently if attempt == 1 else self._asked_now
        with asked(self._table.questions() + guard.questions()) as asked_ms:
            found = self._look(request, guard, tries, attempt, asked_ms=asked_ms)
        ahead = self._usable_ahead(request.ahead, found) if attempt == 1 else None
        if isinstance(found, Committed):
            return found
        request, newest, delta = found.request, found.newest, found.delta
        name = try_name(request.name, newest.id + 1 if newest else 1, attempt)
        with self._io.flush_group() as group:
            files = ahead or self._files.write(delta, newest, name, tries.delta_list, group=group)  # 4 manifests
            properties = found.states.properties(request.application, request.state)
            snapshot = self._files.snapshot(
                request, newest, files, delta.changes.rows, properties=properties
            )  # 5 snapshot
            prepared = prepare_snapshot(self._table, snapshot, name, group)
            for folder in sorted({self._at.manifest_dir, *request.folders}):
                group.sync_dir(folder)
            group.flush()
        tries.delta_list = files.shared_delta_list
        fault_point("commit.lists_written")
        try:
            outcome = publish(self._table, prepared, lock=self._lock)  # 6 publish
        except OutcomeUnknown as no_answer:
            if not self._io.atomic_create:
                # A late one replaces what others may have built on: only the newest snapshot decides, at the next
                # start.
                raise
            tries.unanswered.append(Unanswered(snapshot, name, files.own, no_answer))
            return None
        if outcome is Outcome.LOST:
            delete(self._table, files.own, Look.SINCE_TRY, durable=False)  # 7 clean
            return None
        published_ms = self._clock.now_ms()
        self._manifests.remember(snapshot, files.metas)
        self._deltas.published(snapshot)
        base = Base(newest, found.seen_ms, request.begun_ms)
        settle = functools.partial(self._check_and_hint, found, tries, snapshot, name, files.own)
        if base.is_long_ago():  # others may have changed the table's history, and nobody shall read this meanwhile
            is_replaced = settle()
            settle = functools.partial(bool, is_replaced)
        return Committed(snapshot, attempt, published_ms, may_be_alone=found.is_alone, settle=settle)

    def _check_and_hint(self, found: "_Found", tries: Tries, snapshot: Snapshot, name: str, own: list[str]) -> bool:
        """Our snapshot exists: check that it came in time, and move the hint. Returns as ``Committed.settle``."""
        request = found.request
        try:
            is_kept = is_base_kept(self._table, snapshot, Base(found.newest, found.seen_ms, request.begun_ms))
        except OutcomeUnknown as no_answer:
            if not self._io.atomic_create:
                raise
            tries.unanswered.append(Unanswered(snapshot, name, own, no_answer))
            if tries.landed(self._snapshots.latest()) is None:
                raise
            return False
        fault_point("commit.published")
        if request.hint:
            move_hint(self._table, snapshot, name)
            if has_slept(found.seen_ms):
                take_back_hint(self._table, snapshot)
        fault_point("commit.hinted")
        return not is_kept

    @contextmanager
    def _asked_now(self, questions: Questions) -> Iterator[None]:
        with self._io.asking(questions):
            yield

    def _usable_ahead(self, ahead: Ahead | None, found: "Committed | _Found") -> Files | None:
        """What was written for the first try, if it is built on what this try has found; else that is deleted."""
        if ahead is None:
            return None
        if isinstance(found, _Found) and found.newest == ahead.newest and not (found.delta.unwritten or found.is_alone):
            return ahead.files
        delete(self._table, ahead.files.own, Look.SINCE_TRY, durable=False)
        return None

    def _look(
        self, request: CommitRequest, guard: Guard, tries: Tries, attempt: int, *, asked_ms: int | None
    ) -> "Committed | _Found":
        """Steps 1 to 3: the commit, if it is there already, or what this try builds on and changes.

        asked_ms: when the store was asked; None where it is asked only now.
        """
        newest, seen_ms = self._snapshots.latest(), self._clock.now_ms() if asked_ms is None else asked_ms  # 1 filter
        landed = tries.landed(newest)
        if landed is not None:
            return Committed(landed, attempt - 1, self._clock.now_ms())
        states = self._table.states.read(newest)
        guard.fence()
        if guard.is_published(states):
            self._io.sync_dir(self._at.snapshot_dir)  # whoever published it may have died before
            # There is no snapshot only where what was to be taken out is gone with all of them, and nobody asks for it.
            return Committed(cast(Snapshot, newest), attempt - 1, self._clock.now_ms(), may_be_alone=True)
        is_alone = False
        if tries.unanswered and is_built_on(self._table, request, tries.unanswered, newest) and newest is not None:
            if request.application is None:
                return Committed(newest, attempt - 1, self._clock.now_ms())  # there is no state to publish
            request, is_alone = without_files(request), True
        delta = self._deltas.of(request, newest)  # 2 base, 3 delta and conflicts
        if attempt == 1:
            self._table.schemas.check_there({self._table.known_schema.id, *request.changes.schema_ids})
        return _Found(request, newest, seen_ms, states, delta, is_alone)
