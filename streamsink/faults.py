"""Every step of the protocol by name. A crash test arms a hook; in production a fault point costs one comparison.

The same names stand in the events, in docs/PROTOCOL.md and in the crash tests, which run once for each of them.
A new step is a new line here; ``tests/test_tidy.py`` checks that each name is used by exactly the code that says so.
"""

from collections.abc import Callable

STEPS: dict[str, str] = {
    "table.before_create": "the schema file of a new table is about to be published",
    "table.created": "the table exists and has no snapshot",
    "restore.before_claim": "the application is about to be claimed",
    "restore.claimed": "this writer's epoch is durable; older ones are fenced",
    "restore.before_publish": "a pending checkpoint of an earlier run is about to be published",
    "restore.published": "everything that was pending has been published",
    "restore.before_sweep": "orphan files of earlier runs are known and about to be deleted",
    "restore.swept": "no file of an earlier run is left that no record names",
    "write.begin": "the staging folder of this checkpoint exists, no file yet",
    "spark.written": "files of Spark's own writer are in staging; nobody has looked at them or flushed them",
    "write.staged": "all files of the checkpoint are in staging; those of a small batch are not flushed yet",
    "precommit.manifest_staged": "the manifest that holds the metadata of those files is in staging, not flushed yet",
    "precommit.before_record": (
        "files, manifest and the record's bytes are flushed; the pending record is about to be created"
    ),
    "precommit.saved": "the pending record is durable: from here on the checkpoint will be published",
    "group.queued": "the batch is about to return while its checkpoint is pending",
    "group.before_publish": "what is to be published now is chosen: one checkpoint, or a group",
    "commit.placing": "the first of the files is about to get its final name",
    "commit.placed": "all files of the checkpoint have their final names, which are not durable yet",
    "commit.before_filter": "the newest snapshot is about to be read",
    "commit.lists_written": "both manifest lists, and what the snapshot is to hold, are on disk",
    "commit.before_publish": "the snapshot is about to be created under its number",
    "commit.published": "the snapshot exists: the checkpoint is visible",
    "commit.hinted": "the LATEST hint has been moved",
    "iceberg.files_written": "manifests of the table's Iceberg metadata are durable, no metadata file names them",
    "iceberg.metadata_made": "the Iceberg metadata of the newest snapshot exists, and the hint names an earlier one",
    "iceberg.hinted": "readers of Iceberg find the newest snapshot; what only earlier ones had is not deleted",
    "tables.before_table": "the next of several tables is about to get its part of the checkpoint",
    "tables.table_published": "one of several tables has its part of the checkpoint, the next ones have not",
    "fan-out.recorded": "the record of a fan-out is durable; no destination's journal has its part",
    "fan-out.delivered": "one of the destinations' journals has its part of the record, the next ones have not",
    "fan-out.before_destination": "the next destination of a fan-out is about to get its part of the checkpoint",
    "letters.before_publish": "the dead letters of a checkpoint are about to become visible, before its other rows",
    "letters.published": "the dead letters of a checkpoint are visible, its other rows are not",
    "commit.marked": "the journal knows that the checkpoint is published",
    "forget.staging_removed": "staging of the checkpoint is gone",
    "forget.pruned": "the oldest records of the journal are gone",
    "group.stopping": "the run has ended and is about to publish what is pending",
    "batch.end": "the batch function is about to return to Spark",
    "task.file_opened": "a writer task has created a file (executor)",
    "task.file_closed": "a writer has closed a file, which may not be flushed yet (executor)",
    "task.end": "a writer task is about to hand back its files (executor)",
}

_hook: Callable[[str], None] | None = None


def fault_point(step: str) -> None:
    """Called where ``step`` happens. Does nothing unless a test has armed a hook."""
    if _hook is not None:
        _hook(step)


def arm(hook: Callable[[str], None] | None) -> None:
    """Let ``hook(step)`` be called at each fault point of this process; ``None`` disarms."""
    global _hook
    _hook = hook
