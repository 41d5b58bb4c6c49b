"""What the tasks of a compaction's job do: they write small files again. Runs on the executors.

Spark tries a task again that has failed, or runs it twice; each time its new files have other names, which begin with
the name of the compaction. What is written in vain is found by that, and deleted by a later compaction.
"""

from collections.abc import Sequence

from streamsink.compaction.plan import Task
from streamsink.compaction.rewrite import Rewriting, rewrite
from streamsink.errors import Corrupt, Misuse, StreamsinkError
from streamsink.faults import fault_point
from streamsink.format.manifest import ManifestEntry
from streamsink.spark.rows.tasks import check_version, forget_zip_importers
from streamsink.storage.stores import Store
from streamsink.table.table import open_table

# Of one task of the compaction: the entries of its new files, or why there are none.
Rewritten = tuple[ManifestEntry, ...] | StreamsinkError


def rewrite_part(store: Store, how: Rewriting, of_driver: str, tasks: Sequence[Task]) -> list[Rewritten]:
    """Do these tasks, one after another, and stop behind the first that cannot be done.

    of_driver: as of ``check_version``. What another try would find again, as a file that is gone, is returned as an
    error; raised is what may pass by itself, so that Spark tries again.
    """
    check_version(of_driver, store.root)
    found = list[Rewritten]()
    try:
        table = open_table(store.open(), store.root, for_writing=False)
        for task in tasks:
            try:
                found.append(tuple(rewrite(table, task, how)))
            except (Corrupt, Misuse) as refused:
                return [*found, refused]
            fault_point("task.end")
        return found
    finally:
        forget_zip_importers()
