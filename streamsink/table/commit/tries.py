"""What the tries of one commit know of each other, and what is cleaned up behind those that did not win.

Driver only.
"""

from streamsink.clock import IdSource
from streamsink.errors import Retryable
from streamsink.format.snapshot import Snapshot
from streamsink.table.commit.changes import Written
from streamsink.table.commit.publish import move_hint
from streamsink.table.commit.retry import RetryPolicy
from streamsink.table.commit.unanswered import Unanswered
from streamsink.table.history.deletion import Look, delete, delete_temporary
from streamsink.table.table import Table


class Tries:
    """The tries of one call of ``TableCommit.commit``.

    unanswered: those whose publishing gave no answer. delta_list: of the manifest that the request brings; most
    requests have no other, so it is written once.
    """

    def __init__(self, table: Table, delta_list: Written | None):
        self._table = table
        self.unanswered: list[Unanswered] = []
        self.delta_list = delta_list

    def landed(self, newest: Snapshot | None) -> Snapshot | None:
        """The snapshot of an earlier try that gave no answer, if it is there: same user, identifier, kind and uuid."""
        if newest is None or not self.unanswered:
            return None
        mine = {_identity(lost.snapshot) for lost in self.unanswered}
        for snapshot_id in range(min(lost.snapshot.id for lost in self.unanswered), newest.id + 1):
            found = self._table.snapshots.load(snapshot_id)
            if found is not None and _identity(found) in mine:
                move_hint(self._table, found, IdSource().new_id())
                return found
        return None

    def clean(self, ahead: Written | None, committed: Snapshot) -> None:
        """The commit exists, as this snapshot: delete what other tries have written, as far as nothing can come to name
        it.

        A try whose number is taken by another snapshot can never come to exist. But it may have existed, and have been
        built on, before another writer's rename replaced it: files that are named stay. All that is done before the
        journal's mark, after which nobody looks for them. ahead: the delta list that was written before the commit
        began.
        """
        for lost in self.unanswered:
            found = self._table.snapshots.load(lost.snapshot.id)
            if found is not None and _identity(found) != _identity(lost.snapshot):
                delete(self._table, lost.files, Look.SINCE_TRY)
            delete_temporary(self._table, lost.name)
        # A try that gave no answer may have used it, even if its snapshot is not found any more.
        if ahead and not self.unanswered and ahead[0] != committed.delta_manifest_list:
            delete(self._table, [self._table.layout.manifest(ahead[0])], Look.SINCE_TRY)

    def gave_up(self, policy: RetryPolicy) -> Exception:
        """The error of a commit that no try has published."""
        if self.unanswered:
            return self.unanswered[-1].error
        return Retryable(
            f"{self._table.root}: other writers won the snapshot number in every try (tries: {policy.retries + 1}, "
            f"commit.timeout: {policy.timeout_ms:g} ms). What was pre-committed is safe in the journal and is "
            "published at the next start. With many writers raise commit_max_retries",
            kind="commit.retries",
        )


def _identity(snapshot: Snapshot) -> tuple[str, int, str, str | None]:
    return snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind, snapshot.uuid
