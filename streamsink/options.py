"""All settings of the sink in one place: key, unit, default, meaning. Values only; nothing here does anything."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NoReturn, TypedDict

from streamsink.errors import Misuse

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
SNAPSHOT_PER_CHECKPOINT = "snapshot-per-checkpoint"
ONE_SNAPSHOT = "one-snapshot"


class Settings(TypedDict, total=False):
    """The keywords of ``to_table``, ``to_tables``, ``write`` and the commands, for type checkers and editors: as ``SinkOptions`` has them."""

    application: str
    partition_by: str | Sequence[str]
    table_options: Mapping[str, str]
    create: bool
    mode: Literal["append", "overwrite"]
    overwrite_partition: Mapping[str, Any] | None
    position_columns: Sequence[str]
    file_column: str | None
    store_position_columns: bool
    add_columns: bool
    widen_types: bool
    restore: Literal["restore-and-fail", "restore-and-continue"]
    on_rollback: Literal["fail", "republish"]
    adopt_from_batch: int | None
    accept_as_new: str | None
    accept_as_seen: str | None
    accept_as_same: str | None
    append_changes: bool
    new_application: str | None
    target_file_bytes: int
    max_open_writers: int
    writer_memory_bytes: int
    driver_max_rows: int
    driver_max_bytes: int
    large_batches: Literal["auto", "spark", "tasks"]
    store_options: Mapping[str, str]
    flush: bool
    journal_retain: int
    publish: Literal["sync", "async"]
    publish_every_batches: int
    publish_interval_ms: int
    publish_as: Literal["snapshot-per-checkpoint", "one-snapshot"]
    publish_queue: int
    commit_max_retries: int | None
    commit_min_wait_ms: int | None
    commit_max_wait_ms: int | None
    commit_timeout_ms: int | None
    lock: str
    lock_id: str | None
    lock_user: str | None
    lock_password_env: str | None
    lock_lease_ms: int
    lock_acquire_timeout_ms: int


@dataclass(frozen=True)
class SinkOptions:
    """Settings of one query's sink.

    application: name of this writer. One constant per table unless given; two queries on one table name themselves.
    partition_by: partition columns of a table that the sink creates.
    table_options: Paimon table options (strings) of a table that the sink creates.
    create: create the table when the path does not exist.
    mode: 'append', or 'overwrite': each batch replaces what its partitions, or the whole table, held before.
    overwrite_partition: which rows mode='overwrite' replaces: values of partition columns ({} for the whole table); None for the
        partitions that the batch's rows are in (the whole table when it is not partitioned, or sets dynamic-partition-overwrite=false).
    position_columns: names of the DataFrame's topic, partition and offset columns; overlap is then filtered by row.
    file_column: name of the DataFrame's column with _metadata.file_path; a batch of old and new files is then filtered by row.
    store_position_columns: keep those columns, and the file column, in a table that the sink creates.
    add_columns, widen_types: schema evolution that the sink may do; anything else is refused.
    restore: 'restore-and-fail' (publish what was pending, then fail so that the supervisor restarts) or 'restore-and-continue'.
    on_rollback: 'fail', or 'republish' the batches that a rollback removed, from the journal.
    adopt_from_batch: id of this query's first batch here, when its checkpoint has a past without streamsink.
    accept_as_new, accept_as_seen: the token that an overlap or gap error printed, to go on by writing or by skipping that one batch.
    accept_as_same: the token that an error printed, to take the query of a new checkpoint for the one that wrote before; or each row that
        the sink is given as made of one row of the source, in this replay; or what is there of a batch's files for what was planned; words
        for several have a space between them.
    append_changes: rows that an aggregation in output mode 'update' or 'complete' gives again are meant to stay beside each other.
    new_application: the token that an error printed: this application never wrote here, although expired history cannot prove it.
    target_file_bytes: roll to a new data file at this size, bytes.
    max_open_writers: open files per task; the largest is closed to make room.
    writer_memory_bytes: Arrow bytes buffered per task before the largest buffer is flushed.
    driver_max_rows, driver_max_bytes: a batch known to be no larger is written by the driver, without Spark tasks in Python.
    large_batches: who writes other batches: 'tasks' in Python, 'spark' (its own Parquet writer, where its files are what the table
        needs, else tasks), or 'auto' (tasks where they are known to be faster, else as 'spark').
    store_options: how to reach the store, such as its endpoint; never printed. See docs/OPTIONS.md.
    flush: fsync files and folders before they are named. Off, a power failure (not a kill) can lose published rows.
    journal_retain: published checkpoints that the journal remembers.
    publish: 'sync' (in the batch) or 'async' (by a thread, beside the next batch).
    publish_every_batches: checkpoints that are gathered before they are published.
    publish_interval_ms: the longest that one waits for others; 0 for no such limit. Needs publish_every_batches > 1.
    publish_as: what is gathered becomes visible as 'snapshot-per-checkpoint', or as 'one-snapshot'.
    publish_queue: 'async' only: with this many checkpoints pending a batch waits before it writes.
    commit_max_retries, commit_min_wait_ms, commit_max_wait_ms, commit_timeout_ms: of the publishing loop; when None the table's
        options commit.max-retries, commit.min-retry-wait, commit.max-retry-wait, commit.timeout, and 10, 10, 10,000 and 120,000.
    lock: '' for none, 'file' or 'file:/folder', 'jdbc:...' or 'hive://host:port': held while a snapshot gets its name.
    lock_id: '<catalog-key>.<database>.<table>' of Paimon's catalog; by default 'jdbc' and what the table's path says.
    lock_user, lock_password_env: of the lock's database; the second is the name of an environment variable.
    lock_lease_ms: a holder that is silent for so long loses the lock (whole seconds; not 'file' and 'hive').
    lock_acquire_timeout_ms: longest wait for the lock.
    """

    application: str = "streamsink"
    partition_by: tuple[str, ...] = ()
    table_options: Mapping[str, str] = field(default_factory=dict)
    create: bool = True
    mode: str = MODE_APPEND
    overwrite_partition: Mapping[str, Any] | None = None
    position_columns: tuple[str, ...] = ()
    file_column: str | None = None
    store_position_columns: bool = False
    add_columns: bool = False
    widen_types: bool = False
    restore: str = RESTORE_AND_FAIL
    on_rollback: str = ON_ROLLBACK_FAIL
    adopt_from_batch: int | None = None
    accept_as_new: str | None = None
    accept_as_seen: str | None = None
    accept_as_same: str | None = None
    append_changes: bool = False
    new_application: str | None = None
    target_file_bytes: int = 256 * 1024 * 1024
    max_open_writers: int = 100
    writer_memory_bytes: int = 128 * 1024 * 1024
    driver_max_rows: int = 20_000
    driver_max_bytes: int = 8 * 1024 * 1024
    large_batches: str = LARGE_BATCHES_AUTO
    store_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    flush: bool = True
    journal_retain: int = 100
    publish: str = SYNC
    publish_every_batches: int = 1
    publish_interval_ms: int = 0
    publish_as: str = SNAPSHOT_PER_CHECKPOINT
    publish_queue: int = 100
    commit_max_retries: int | None = None
    commit_min_wait_ms: int | None = None
    commit_max_wait_ms: int | None = None
    commit_timeout_ms: int | None = None
    lock: str = ""
    lock_id: str | None = None
    lock_user: str | None = None
    lock_password_env: str | None = None
    lock_lease_ms: int = 60_000
    lock_acquire_timeout_ms: int = 480_000

    @property
    def groups(self) -> bool:
        """Whether a checkpoint may be pending when its batch returns."""
        return self.publish == ASYNC or self.publish_every_batches > 1

    @classmethod
    def of(cls, table: str, given: Mapping[str, Any]) -> "SinkOptions":
        """Options from keyword arguments. Raises Misuse that names an unknown or ill-typed option."""
        known = {f.name for f in fields(cls)}
        for name in given:
            if name not in known:
                raise Misuse(
                    f"{table}: there is no option '{name}'; the options are {', '.join(sorted(known))}",
                    kind="option.unknown",
                )
        values = dict(given)
        for name in ("partition_by", "position_columns"):
            if name in values:
                values[name] = names_of(table, name, values[name])
        options = cls(**values)
        _check(table, options)
        return options


def names_of(table: str, option: str, given: object) -> tuple[str, ...]:
    """Names, of which one may be given alone. Raises Misuse that names the table and the option."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(isinstance(name, str) and name for name in names):
        raise Misuse(f"{table}: '{option}' is {given!r}, expected names, or one name", kind="option.value")
    return names


def words_of(option: str | None) -> list[str]:
    """Of an option that accepts: it has a word for each question that it answers, with spaces between them."""
    return option.split() if option else []


def with_word(option: str | None, word: str, others: Container[str]) -> str:
    """What such an option must be to answer one question more. others: words that answer others which may be asked still."""
    return " ".join([*(said for said in words_of(option) if said in others and said != word), word])


_BOOLEANS = ("create", "append_changes", "store_position_columns", "add_columns", "widen_types", "flush")
_TEXTS = {
    **dict.fromkeys(("file_column", "lock_id", "lock_user", "lock_password_env"), "a name"),
    **dict.fromkeys(("accept_as_new", "accept_as_seen", "accept_as_same"), "a word that an error printed"),
    "new_application": "the word that the error of a start without this option prints",
}
_AT_LEAST = {
    "target_file_bytes": 1,
    "max_open_writers": 1,
    "writer_memory_bytes": 1,
    "driver_max_rows": 0,
    "driver_max_bytes": 0,
    "journal_retain": 2,
    "publish_every_batches": 1,
    "publish_interval_ms": 0,
    "publish_queue": 1,
    "commit_max_retries": 0,
    "commit_min_wait_ms": 0,
    "commit_max_wait_ms": 0,
    "commit_timeout_ms": 1,
    "lock_lease_ms": 1_000,
    "lock_acquire_timeout_ms": 0,
}
# Left to the table's options when they are not given.
_OF_THE_TABLE = ("commit_max_retries", "commit_min_wait_ms", "commit_max_wait_ms", "commit_timeout_ms")
_CHOICES = {
    "mode": (MODE_APPEND, MODE_OVERWRITE),
    "restore": (RESTORE_AND_FAIL, RESTORE_AND_CONTINUE),
    "on_rollback": (ON_ROLLBACK_FAIL, ON_ROLLBACK_REPUBLISH),
    "large_batches": (LARGE_BATCHES_AUTO, LARGE_BATCHES_SPARK, LARGE_BATCHES_TASKS),
    "publish": (SYNC, ASYNC),
    "publish_as": (SNAPSHOT_PER_CHECKPOINT, ONE_SNAPSHOT),
}


def _check(table: str, options: SinkOptions) -> None:
    def refuse(name: str, expected: str) -> NoReturn:
        found = getattr(options, name)
        raise Misuse(f"{table}: option '{name}' is {found!r}, expected {expected}", kind="option.value")

    for name in _BOOLEANS:
        if not isinstance(getattr(options, name), bool):
            refuse(name, "True or False")
    for name, least in _AT_LEAST.items():
        value = getattr(options, name)
        if value is None and name in _OF_THE_TABLE:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            refuse(name, f"a whole number of at least {least}")
    for name, choices in _CHOICES.items():
        if getattr(options, name) not in choices:
            refuse(name, "one of " + ", ".join(choices))
    if options.publish_interval_ms and options.publish_every_batches == 1:
        refuse("publish_interval_ms", "0 while publish_every_batches is 1, which publishes every batch; give both")
    if options.publish == ASYNC and options.publish_queue < options.publish_every_batches:
        refuse("publish_queue", f"at least publish_every_batches, which is {options.publish_every_batches}")
    if len(options.position_columns) not in (0, 3):
        refuse("position_columns", "three column names: topic, partition, offset")
    if not isinstance(options.application, str):
        refuse("application", "a name")
    if not isinstance(options.lock, str):
        refuse("lock", "a URL, or '' for no lock")
    for name, expected in _TEXTS.items():
        value = getattr(options, name)
        if value is not None and not (isinstance(value, str) and value):
            refuse(name, expected)
    if options.lock_id is not None and (options.lock_id.count(".") < 2 or "" in options.lock_id.split(".")):
        refuse("lock_id", "'<catalog-key>.<database>.<table>'")
    given = options.overwrite_partition
    if given is not None and (not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given)):
        refuse("overwrite_partition", "a dictionary of partition columns and their values")
    if given is not None and options.mode != MODE_OVERWRITE:
        refuse("overwrite_partition", "None without mode='overwrite'")
    for name in ("position_columns", "file_column"):
        if getattr(options, name) and options.mode == MODE_OVERWRITE:
            refuse(name, "none with mode='overwrite': the rest of a batch must not replace the whole of it")
    adopt = options.adopt_from_batch
    if adopt is not None and (isinstance(adopt, bool) or not isinstance(adopt, int) or adopt < 0):
        refuse("adopt_from_batch", "a batch id")
    for name in ("store_options", "table_options"):
        if not isinstance(getattr(options, name), Mapping):
            raise Misuse(f"{table}: option '{name}' must be a dictionary of strings", kind="option.value")
    for key, value in options.store_options.items():
        if not isinstance(key, str) or not isinstance(value, str):  # the value is not shown: it may be a password
            raise Misuse(f"{table}: store option {key!r} must be a string with a string value", kind="option.value")
    for key, value in options.table_options.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise Misuse(f"{table}: table option {key!r} must be a string with a string value", kind="option.value")
