"""All settings of the sink, in groups: key, unit, default, meaning."""

from streamsink.options.groups import (
    ASYNC,
    LARGE_BATCHES_AUTO,
    LARGE_BATCHES_SPARK,
    LARGE_BATCHES_TASKS,
    MODE_APPEND,
    MODE_OVERWRITE,
    ON_ROLLBACK_FAIL,
    ON_ROLLBACK_REPUBLISH,
    ONE_SNAPSHOT,
    RESTORE_AND_CONTINUE,
    RESTORE_AND_FAIL,
    SNAPSHOT_PER_CHECKPOINT,
    SYNC,
    CommitOptions,
    CompactionOptions,
    LockOptions,
    PublishingOptions,
    TableOptions,
)
from streamsink.options.option import names_of, refuse
from streamsink.options.settings import Settings
from streamsink.options.sink_options import SinkOptions, with_word, words_of

__all__ = [
    "ASYNC",
    "LARGE_BATCHES_AUTO",
    "LARGE_BATCHES_SPARK",
    "LARGE_BATCHES_TASKS",
    "MODE_APPEND",
    "MODE_OVERWRITE",
    "ON_ROLLBACK_FAIL",
    "ON_ROLLBACK_REPUBLISH",
    "ONE_SNAPSHOT",
    "RESTORE_AND_CONTINUE",
    "RESTORE_AND_FAIL",
    "SNAPSHOT_PER_CHECKPOINT",
    "SYNC",
    "CommitOptions",
    "CompactionOptions",
    "LockOptions",
    "PublishingOptions",
    "Settings",
    "SinkOptions",
    "TableOptions",
    "names_of",
    "refuse",
    "with_word",
    "words_of",
]
