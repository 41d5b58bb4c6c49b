"""The table commit: filter, base, delta, manifests, snapshot, publish, clean. One call makes one snapshot.

The filter is evaluated again in every try of the loop, against the snapshot that the try builds on; so are the files
that an overwrite deletes, and the conflicts.
"""

import functools
from dataclasses import replace

from streamsink.clock import Clock
from streamsink.errors import Misuse, OutcomeUnknown
from streamsink.faults import fault_point
from streamsink.format.snapshot import Snapshot
from streamsink.locks.configured import lock_of
from streamsink.options import SinkOptions
from streamsink.table.commit import strict
from streamsink.table.commit.changes import Written
from streamsink.table.commit.delta import CommitRequest, Deltas
from streamsink.table.commit.files_of_tries import FilesOfTries
from streamsink.table.commit.publish import Outcome, prepare_snapshot, publish
from streamsink.table.commit.retry import RetryPolicy
from streamsink.table.commit.settle import Committed, Found, hint, nothing_left
from streamsink.table.commit.tries import Guard, Looking, Tries
from streamsink.table.commit.unanswered import Made, Unanswered
from streamsink.table.history.deletion import Look, delete, try_name
from streamsink.table.history.whole import Whole
from streamsink.table.iceberg_metadata.following import Following
from streamsink.table.manifest_merge import MergeOptions
from streamsink.table.table import Table


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
        self._looking = Looking(table, self._deltas)
        self.files = FilesOfTries(table, whole)
        self._options = options
        self._lock = lock_of(table.root, options)
        self._clock = Clock()
        self.iceberg = Following(table)

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
        return replace(done, base_replaced=done.settle(), settle=nothing_left)

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
        attempt = 0
        with tries.cleared():
            for attempt in policy.attempts(self._clock):
                done = self._try_once(request, guard, tries, attempt)
                if done is not None:
                    return replace(done, settle=functools.partial(self._settle, done, tries, ahead))
        raise tries.gave_up(policy, request, attempt)

    def _settle(self, done: Committed, tries: Tries, ahead: Written | None, following: Snapshot | None = None) -> bool:
        is_replaced = done.settle(following)
        tries.clean(ahead, done.snapshot)
        self.iceberg.follow()
        return is_replaced

    def _check_and_hint(self, found: Found, tries: Tries, made: Made, following: Snapshot | None = None) -> bool:
        with self._io.asking(self._snapshots.questions_of_settling(made.snapshot.id, hint=found.request.hint)):
            is_kept = tries.is_base_kept(made, found.base, following)
            fault_point("commit.published")
            if found.request.hint:
                hint(self._table, made.snapshot, made.name, found.seen_ms)
        fault_point("commit.hinted")
        return not is_kept

    def _try_once(self, request: CommitRequest, guard: Guard, tries: Tries, attempt: int) -> Committed | None:
        """One try; None when another writer won, or no answer came. Steps 1 to 7 as docs/PROTOCOL.md numbers them."""
        fault_point("commit.before_filter")
        asked = self._io.asked_recently if attempt == 1 else self._io.asking
        now_ms = self._clock.now_ms()  # before the store is asked: what others change while it answers comes later
        with asked(self._table.questions() + guard.questions()) as asked_ms:
            found = self._looking.look(request, guard, tries, attempt, now_ms if asked_ms is None else asked_ms)
        ahead = self._looking.usable_ahead(request.ahead, found) if attempt == 1 else None
        if isinstance(found, Committed):
            return found
        request, newest, delta = found.request, found.newest, found.delta
        name = try_name(request.name, newest.id + 1 if newest else 1, attempt)
        with self._io.flush_group() as group:
            files = ahead or self.files.write(delta, newest, name, tries.delta_list, group=group)  # 4 manifests
            properties = {**found.states.properties(request.application, request.state), **request.properties}
            snapshot = self.files.snapshot(
                request, newest, files, delta.changes.rows, properties=properties
            )  # 5 snapshot
            prepared = prepare_snapshot(self._table, snapshot, name, group)
            for folder in sorted({self._at.manifest_dir, *request.folders}):
                group.sync_dir(folder)
            group.flush()
        tries.delta_list, made = files.shared_delta_list, Made(snapshot, name, files.own)
        create = functools.partial(publish, self._table, prepared, lock=self._lock)  # 6 publish
        fault_point("commit.lists_written")
        created = request.before.beside(create, snapshot) if request.before else create
        try:
            outcome = created()
        except OutcomeUnknown as no_answer:
            if not self._io.atomic_create:
                # A late one replaces what others may have built on: only the newest snapshot decides, at the next
                # start.
                raise
            tries.unanswered.append(Unanswered(made, found.base, no_answer))
            self.files.unanswered.add(snapshot.base_manifest_list)
            return None
        if outcome is Outcome.LOST:
            delete(self._table, files.own, Look.SINCE_TRY, durable=False)  # 7 clean
            return None
        published_ms = self._clock.now_ms()
        self._manifests.remember(snapshot, files.metas)
        self._table.states.published(snapshot, found.states.with_state(request.application, request.state))
        self._deltas.published(snapshot)
        if not request.hint:  # another commit follows at once: what this one has asked counts for that, too
            now, following = self._at.snapshot(snapshot.id), self._at.snapshot(snapshot.id + 1)
            self._io.known_still(self._table.questions() + guard.questions(), (now, prepared.data), following)
        settle = functools.partial(self._check_and_hint, found, tries, made)
        if found.base.is_long_ago():  # others may have changed history, and nobody shall read this meanwhile
            is_replaced = settle()
            settle = functools.partial(nothing_left, is_replaced=is_replaced)
        return Committed(snapshot, attempt, published_ms, may_be_alone=found.is_alone, settle=settle)
