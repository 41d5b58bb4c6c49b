"""Commits as Paimon's compactors make them: messages of writers and compactors, and a COMPACT snapshot under a user of
its own, never a sink's. Tests put such commits beside those of sinks.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from streamsink.clock import IdSource
from streamsink.format.data_file import DataFileMeta
from streamsink.format.index_manifest import DELETION_VECTORS_INDEX, IndexFileMeta, IndexManifestEntry
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.snapshot import APPEND, BATCH_COMMIT_IDENTIFIER, COMPACT, OVERWRITE
from streamsink.options import SinkOptions
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.settle import Committed
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.table import Table


@dataclass(frozen=True)
class Increment:
    """What one part of a message does in its bucket: the data files and index files that it deletes and adds."""

    deleted: tuple[DataFileMeta, ...] = ()
    new: tuple[DataFileMeta, ...] = ()
    deleted_index: tuple[IndexFileMeta, ...] = ()
    new_index: tuple[IndexFileMeta, ...] = ()


@dataclass(frozen=True)
class CommitMessage:
    """One bucket's share of a commit.

    partition: BinaryRow bytes with the arity in front. append: what writing did. compact: what compacting did
    (``deleted`` is its input, ``new`` its output).
    """

    partition: bytes
    bucket: int
    total_buckets: int
    append: Increment = Increment()
    compact: Increment = Increment()


def collect(messages: Iterable[CommitMessage]) -> tuple[Changes, Changes]:
    """The append part and the compact part of these messages. Each part becomes a snapshot of its own."""
    messages = list(messages)
    return _changes((m, m.append) for m in messages), _changes((m, m.compact) for m in messages)


def _changes(parts: Iterable[tuple[CommitMessage, Increment]]) -> Changes:
    entries: list[ManifestEntry] = []
    index: list[IndexManifestEntry] = []
    for message, part in parts:
        for kind, files, indexes in (
            (FileKind.DELETE, part.deleted, part.deleted_index),
            (FileKind.ADD, part.new, part.new_index),
        ):
            where = (kind, message.partition, message.bucket)
            entries += [ManifestEntry(*where, message.total_buckets, file) for file in files]
            index += [IndexManifestEntry(*where, file) for file in indexes]
    return Changes(tuple(entries), tuple(index))


def append_kind(changes: Changes) -> str:
    """APPEND, or OVERWRITE when rows that readers see are removed: with a data file, or by deletion vectors."""
    goes = any(e.kind is FileKind.DELETE for e in changes.entries)
    return OVERWRITE if goes or any(e.file.index_type == DELETION_VECTORS_INDEX for e in changes.index) else APPEND


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
    for part, kind in ((append, append_kind(append)), (compact, COMPACT)):
        if part:
            request = CommitRequest(commit_user, identifier, part, f"{name}-{kind.lower()}", kind)
            done.append(commit.commit(request, Guard()))
    return done


def commit_compaction(table: Table, options: SinkOptions, messages: Iterable[CommitMessage]) -> Committed:
    """Commit one compaction. Raises what ``TableCommit.commit`` raises."""
    return commit_messages(
        table, options, messages, f"streamsink-compact-{IdSource().new_id()}", BATCH_COMMIT_IDENTIFIER
    )[0]
