"""The keywords of the public functions, for type checkers and editors."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class Settings(TypedDict, total=False):
    """The keywords of ``to_table``, ``to_tables``, ``write`` and the commands, for type checkers and editors: as
    ``SinkOptions`` has them.
    """

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
    offsets_group: str | None
    maintenance: bool
    maintenance_interval_ms: int
    compaction: bool
    compaction_by: Literal["auto", "driver", "tasks"]
    compaction_driver_max_bytes: int
    compaction_interval_ms: int
    compaction_bytes_per_hour: int
    compaction_core_percent: int
    compaction_rewrites: int
    compaction_idle_ms: int
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
    catalog: Mapping[str, str]
