"""Commits what a compaction did: a COMPACT snapshot under a user of its own, never a sink's."""

from collections.abc import Iterable

from streamsink.clock import IdSource
from streamsink.format.snapshot import BATCH_COMMIT_IDENTIFIER, COMPACT
from streamsink.options import SinkOptions
from streamsink.table.commit.changes import CommitMessage, collect
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.table_commit import Committed, Guard, TableCommit
from streamsink.table.table import Table


def commit_messages(
    table: Table, options: SinkOptions, messages: Iterable[CommitMessage], commit_user: str, identifier: int
) -> list[Committed]:
    """Commit these messages as Paimon does: the append part and then the compact part, each as a snapshot of its own if
    it has anything. A crash between them loses only the compaction, whose input the next one finds again.

    commit_user: of maintenance, never one of a sink: an identifier of maintenance would hide the sink's later
    checkpoints. Raises Conflict, which is not retried, when another commit changed the files meanwhile; otherwise as
    ``TableCommit.commit``.
    """
    append, compact = collect(messages)
    commit, name = TableCommit(table, options), IdSource().new_id()
    done = []
    for part, kind in ((append, append.append_kind), (compact, COMPACT)):
        if part:
            request = CommitRequest(commit_user, identifier, part, f"{name}-{kind.lower()}", kind)
            done.append(commit.commit(request, Guard()))
    return done


def commit_compaction(table: Table, options: SinkOptions, messages: Iterable[CommitMessage]) -> Committed:
    """Commit one compaction. Raises what ``TableCommit.commit`` raises."""
    return commit_messages(
        table, options, messages, f"streamsink-compact-{IdSource().new_id()}", BATCH_COMMIT_IDENTIFIER
    )[0]
