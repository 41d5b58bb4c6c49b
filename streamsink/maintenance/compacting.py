"""Small files become few, by hand. See docs/COMPACTION.md."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamsink.maintenance.opened import Path
from streamsink.options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamsink.compaction.by_hand import Compacted


def compact(
    path: Path,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    *,
    full: bool = False,
    dry_run: bool = False,
    spark: "SparkSession | None" = None,
    options: SinkOptions | None = None,
    **settings: Any,
) -> "Compacted":
    """Let the small files of the append table at ``path`` become few, in this process, beside whoever writes.

    partitions: only these, each given by values of partition columns, such as ``[{"dt": "2026-11-21"}]``. full: also
    where fewer than ``compaction.min.file-num`` small files are left in a partition. dry_run: change nothing, and say
    what would be done. spark: let tasks of this session write, several at once; without it this process does. The
    table's options ``target-file-size``, ``compaction.small-file-ratio`` and
    ``compaction.min.file-num`` count. Returns what was done. Rows, their order within a file and everybody's positions
    stay as they are. Raises Misuse for a table that this library does not write; Corrupt for a file that is gone or
    altered; Retryable when others won each try of a commit.
    """
    from streamsink.compaction.by_hand import compact as of_table
    from streamsink.storage.store_failures import told_of
    from streamsink.storage.stores import Store, table_path

    root = table_path(path)
    given = SinkOptions.of(root, settings, options)
    store = Store(root, given.store_options, given.flush)
    with told_of(root, "maintenance.compact"):
        if spark is None:
            return of_table(store.open(), root, given, partitions, full=full, dry_run=dry_run)
        from streamsink.spark.query.compact_job import by_tasks

        return of_table(store.open(), root, given, partitions, full=full, dry_run=dry_run, by=by_tasks(spark, store))
