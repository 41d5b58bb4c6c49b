"""All options of the sink, in groups by who needs them: type, default and meaning of each.

The text below an option is its only description: editors show it, and the table in docs/OPTIONS.md is made of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamsink.options.option import A_NAME, A_WORD, option

RESTORE_AND_FAIL = "restore-and-fail"
RESTORE_AND_CONTINUE = "restore-and-continue"
ON_ROLLBACK_FAIL = "fail"
ON_ROLLBACK_REPUBLISH = "republish"
MODE_APPEND = "append"
MODE_OVERWRITE = "overwrite"
SYNC = "sync"
ASYNC = "async"
LARGE_BATCHES_AUTO = "auto"
LARGE_BATCHES_SPARK = "spark"
LARGE_BATCHES_TASKS = "tasks"
COMPACTION_AUTO = "auto"
COMPACTION_DRIVER = "driver"
COMPACTION_TASKS = "tasks"
SNAPSHOT_PER_CHECKPOINT = "snapshot-per-checkpoint"
ONE_SNAPSHOT = "one-snapshot"


@dataclass(frozen=True)
class IdentityOptions:
    """Who writes."""

    application: str = option("streamsink", text=A_NAME)
    """Name of this writer. Two queries that write to one table need two names. Never Spark's query id: a new checkpoint
    must not silently become a new identity."""
    new_application: str | None = option(
        None, text="the word that the error of a start without this option prints", expert=True
    )
    """A token that an error printed: this name never wrote here, although the history that could prove it has expired.
    """


@dataclass(frozen=True)
class TableOptions:
    """What a table is created with, and how it may change."""

    partition_by: tuple[str, ...] = option(())
    """Partition columns of a table that the sink creates: names, or one name."""
    table_options: Mapping[str, str] = option({})
    """Paimon's options of a table that the sink creates: a dictionary of strings."""
    create: bool = option(True)
    """Create the table when nothing is at the path."""
    add_columns: bool = option(False)
    """Schema evolution: add new nullable columns to the table. A batch may lack a nullable column of the table."""
    widen_types: bool = option(False)
    """Schema evolution: widen types (INT to BIGINT and the like), and drop NOT NULL."""


@dataclass(frozen=True)
class WritingOptions:
    """What a batch does to the table, and how its rows become files."""

    mode: str = option(MODE_APPEND, choices=(MODE_APPEND, MODE_OVERWRITE))
    """`"append"`; or `"overwrite"`: each batch replaces, in one snapshot, what the partitions or the table held before,
    also rows of other writers. A replayed batch changes nothing."""
    overwrite_partition: Mapping[str, Any] | None = option(None)
    """Which rows `mode="overwrite"` replaces: values of partition columns, such as `{"dt": "2026-11-21"}`; `{}` stands
    for the whole table. A datetime has a time zone where its column is TIMESTAMP_LTZ, and none where it is TIMESTAMP.
    `None`: the partitions that the batch's rows are in; the whole table when it is not partitioned or sets
    `dynamic-partition-overwrite=false`."""
    append_changes: bool = option(False)
    """An aggregation in output mode `update` or `complete` may append: each result that changes stays beside its
    earlier ones.
    """
    target_file_bytes: int = option(256 * 1024 * 1024, least=1, expert=True)
    """Bytes at which a new data file begins. On S3 one begins at 4 GiB at the latest, because a file over 5 GiB cannot
    get its final name there.
    """
    max_open_writers: int = option(100, least=1, expert=True)
    """Open files of a task; the largest is closed to make room."""
    writer_memory_bytes: int = option(128 * 1024 * 1024, least=1, expert=True)
    """Bytes of Arrow data that a task buffers before it flushes its largest buffer."""
    driver_max_rows: int = option(20_000, least=0, expert=True)
    """The driver writes a batch that has no more rows, without Python tasks: known by Kafka's offsets or, from the
    second batch of a run on, by what Spark has computed, [see below](#how-rows-become-files). 0 turns that off."""
    driver_max_bytes: int = option(8 * 1024 * 1024, least=0, expert=True)
    """The same in bytes: by Spark's own estimate of the batch (files), or by what Spark has computed."""
    large_batches: str = option(
        LARGE_BATCHES_AUTO, choices=(LARGE_BATCHES_AUTO, LARGE_BATCHES_SPARK, LARGE_BATCHES_TASKS), expert=True
    )
    """Who writes all other batches, [see below](#how-rows-become-files). `"tasks"`: Python tasks. `"spark"`: Spark's
    own Parquet writer where its files are what the table needs, else tasks. `"auto"`: tasks where they are known to be
    faster, else as `"spark"`.
    """


@dataclass(frozen=True)
class AdmissionOptions:
    """Which batches are new, and what is done where that cannot be told."""

    position_columns: tuple[str, ...] = option(())
    """Names of the topic, partition and offset columns, in this order (a string and two whole numbers). A batch that is
    recorded in part is then filtered row by row. Every row of every batch must lie in the positions that the batch
    covers (error `positions.columns`), so carry the columns unchanged from the source to the sink."""
    file_column: str | None = option(None, text=A_NAME)
    """Name of the column with `_metadata.file_path` of a file source. After a lost checkpoint a batch of old and new
    files is then filtered row by row. Not with `mode="overwrite"` or a stateful query.
    """
    store_position_columns: bool = option(False)
    """Keep these columns in a table that the sink creates."""
    adopt_from_batch: int | None = option(None)
    """Id of this query's first batch here, for a checkpoint with a past without streamsink, or under another name:
    there the batch before it is skipped if it comes again.
    """
    accept_as_new: str | None = option(None, text=A_WORD, expert=True)
    """A token that an error printed: write that one batch. Under another checkpoint, and where files do not tell, also
    those after it. Several tokens have a space between them."""
    accept_as_seen: str | None = option(None, text=A_WORD, expert=True)
    """A token that an error printed: record that one batch without rows; those after it are asked for again. For a
    bounded run: what is given is the run of this id that is published (`run.other`). For pending records of which
    nobody can tell whether they are published (`journal.undecidable`): the last one that is. Of several tables: what is
    pending does without one that is lost, or another name goes on without what it had. Several tokens have a space
    between them.
    """
    accept_as_same: str | None = option(None, text=A_WORD, expert=True)
    """A token that an error printed: the query of a new checkpoint is the one that wrote before, so rows that are
    recorded are filtered; or the query of a copied checkpoint is (`checkpoint.copied`); or each row that the sink is
    given in this replay is made of one row of the source (`positions.may-combine`, `files.may-combine`); or what is
    there of a batch's files is what was planned (`files.not-as-planned`). Several tokens have a space between them.
    [What is compared](design/0008-same-query.md).
    """


@dataclass(frozen=True)
class RestartOptions:
    """What a start does with what earlier starts left."""

    restore: str = option(RESTORE_AND_FAIL, choices=(RESTORE_AND_FAIL, RESTORE_AND_CONTINUE))
    """After a start has published what was pending: fail, so that the supervisor restarts the query cleanly, or go on
    (`"restore-and-continue"`)."""
    on_rollback: str = option(ON_ROLLBACK_FAIL, choices=(ON_ROLLBACK_FAIL, ON_ROLLBACK_REPUBLISH))
    """`"fail"`; or `"republish"`: publish again what a rollback of the table has removed. That keeps hard links to the
    files of the last `journal_retain` checkpoints. A rollback by `streamsink.maintenance.rollback_to` needs neither."""
    journal_retain: int = option(100, least=2, expert=True)
    """Published checkpoints that the journal remembers. Pending ones always stay."""


@dataclass(frozen=True)
class PublishingOptions:
    """When what is recorded becomes visible."""

    publish: str = option(SYNC, choices=(SYNC, ASYNC))
    """`"sync"`: in the batch; `"async"`: by a thread, while the next batch is written. Such a batch ends when its
    pre-commit is durable."""
    publish_every_batches: int = option(1, least=1)
    """Checkpoints that are gathered and then published together."""
    publish_interval_ms: int = option(0, least=0)
    """Longest time in ms that a checkpoint waits for others, also when no further batch comes; 0: no such limit. It
    needs `publish_every_batches` > 1. A thread keeps it, under `"sync"` too.
    """
    publish_as: str = option(SNAPSHOT_PER_CHECKPOINT, choices=(SNAPSHOT_PER_CHECKPOINT, ONE_SNAPSHOT))
    """`"snapshot-per-checkpoint"`; or `"one-snapshot"`: what is gathered becomes visible at one instant, under the
    highest checkpoint id.
    """
    publish_queue: int = option(100, least=1, expert=True)
    """`"async"`: while so many checkpoints are pending, a batch waits before it writes. At least
    `publish_every_batches`."""
    offsets_group: str | None = option(None, text=A_NAME)
    """A consumer group that is told, after each publishing, up to where the query's Kafka topics are published, so that
    lag tools see it, [see below](#a-consumer-group-for-lag-tools). One group for each query, which no consumer is in.
    """

    @property
    def publishes_later(self) -> bool:
        """Whether a checkpoint may be pending when its batch returns."""
        return self.publish == ASYNC or self.publish_every_batches > 1


@dataclass(frozen=True)
class MaintenanceOptions:
    """What is done for the table beside the batches: [MAINTENANCE.md](MAINTENANCE.md)."""

    maintenance: bool = option(False)
    """Do in the background what Paimon's own writers do after a commit: make the tags that are due, and let tags,
    consumers, partitions and snapshots expire, as the table's options `tag.*`, `consumer.*`, `partition.*` and
    `snapshot.*` say. No batch waits for it. What goes wrong with it ends the query at its next batch. `to_tables`: of
    all tables that this start of the query has written.
    """
    maintenance_interval_ms: int = option(60_000, least=0)
    """Shortest time in ms between the begins of two such runs. There is none while nothing is published."""


@dataclass(frozen=True)
class CompactionOptions:
    """Compaction of small files beside the query: [COMPACTION.md](COMPACTION.md)."""

    compaction: bool = option(False)
    """A thread of the driver lets small files of the table become few, while a streaming query writes batches, which
    never wait for it. Paimon's options of the table say what small is. A bounded job has no such thread."""
    compaction_by: str = option(COMPACTION_AUTO, choices=(COMPACTION_AUTO, COMPACTION_DRIVER, COMPACTION_TASKS))
    """Who writes small files again. `"driver"`: the thread itself. `"tasks"`: tasks of jobs of the query's Spark
    session, in a group (and, with Spark's FAIR scheduler, a pool) of their own. `"auto"`: tasks where one look at a
    table finds more than `compaction_driver_max_bytes`; the driver from the first job on that fails. Where the session
    can run one task only, the driver does it in any case.
    """
    compaction_driver_max_bytes: int = option(256 * 1024 * 1024, least=0, expert=True)
    """`compaction_by="auto"`: the driver writes again so many bytes of small files that one look at a table finds; more
    of them are for tasks."""
    compaction_interval_ms: int = option(20_000, least=1)
    """Time in ms between two looks at the table. What has come since the last one is what readers find uncompacted."""
    compaction_bytes_per_hour: int = option(16 * 2**30, least=1)
    """Bytes of small files that are written again in an hour at most, by whomever; up to a quarter of it at once."""
    compaction_core_percent: int = option(25, least=1)
    """The driver: the share of one core that it takes of its own time; it sleeps the rest. Tasks: the share of the
    tasks that the session can run at one time; so many run at once, one at least and never all. Where one is more than
    the share, it is paused behind each job."""
    compaction_rewrites: int = option(2, least=1, expert=True)
    """How often each byte is written again, about, until it is in a file of the target size. More of it leaves readers
    fewer files."""
    compaction_idle_ms: int = option(600_000, least=0, expert=True)
    """When nothing has come to a partition for so many ms, its small files are compacted, two or more, if they are
    twice as large together as the largest of them."""


@dataclass(frozen=True)
class CommitOptions:
    """How often and how fast a commit to the table tries again.

    Where an option is None, the table's own option counts.
    """

    commit_max_retries: int | None = option(None, least=0, expert=True)
    """Tries of the publishing loop after the first. Default: the table's `commit.max-retries`, else 10."""
    commit_min_wait_ms: int | None = option(None, least=0, expert=True)
    """Shortest wait between tries in ms, doubled with each try and varied by chance. Default: `commit.min-retry-wait`,
    else 10."""
    commit_max_wait_ms: int | None = option(None, least=0, expert=True)
    """Longest wait between tries in ms. Default: `commit.max-retry-wait`, else 10,000."""
    commit_timeout_ms: int | None = option(None, least=1, expert=True)
    """End of the publishing loop in ms; stopping waits as long for the publishing thread, at least 120,000. Default:
    `commit.timeout`, else 120,000."""


@dataclass(frozen=True)
class LockOptions:
    """The lock that all writers of the table take: [LOCKS.md](LOCKS.md)."""

    lock: str = option("", text="a URL, or '' for no lock")
    """Held while a snapshot gets its name: `"file"`, `"file:/folder"`, `"jdbc:postgresql://host:port/database"` (or
    `mysql`, `mariadb`, `sqlite:/file`), `"hive://host:port"`; `""` for none."""
    lock_id: str | None = option(None, text=A_NAME, expert=True)
    """`<catalog-key>.<database>.<table>` as Paimon's catalog has it. Default: `jdbc` and the names in the path
    `<warehouse>/<database>.db/<table>`."""
    lock_user: str | None = option(None, text=A_NAME)
    """User of the lock's database."""
    lock_password_env: str | None = option(None, text=A_NAME)
    """Name of the environment variable that holds the user's password. A password in the URL is refused."""
    lock_lease_ms: int = option(60_000, least=1_000, expert=True)
    """A holder that is silent for so many ms loses the lock; counted in whole seconds. `file` ends with the process,
    `hive` after the metastore's `hive.txn.timeout`."""
    lock_acquire_timeout_ms: int = option(480_000, least=0, expert=True)
    """Longest wait in ms for the lock, and for its server."""


@dataclass(frozen=True)
class CatalogOptions:
    """A catalog in which the table is known by its name: [CATALOGS.md](CATALOGS.md)."""

    catalog: Mapping[str, str] = option({}, secret=True)
    """Keep the table registered in a catalog, from which Hive, Spark, Flink and Trino take its place and columns:
    properties as of Paimon's `CREATE CATALOG`, such as `{"metastore": "hive", "uri": "thrift://host:9083"}`. No batch
    waits for the catalog, and none fails by it. `{}`: the table is known by its path only.
    """


@dataclass(frozen=True)
class StoreOptions:
    """Where bytes lie."""

    store_options: Mapping[str, str] = option({}, secret=True)
    """How to reach the store, see below; never printed, never in a record or an event."""
    flush: bool = option(True, expert=True)
    """fsync files and folders before they are named. Off: a kill loses nothing, a power failure may lose published
    rows."""
