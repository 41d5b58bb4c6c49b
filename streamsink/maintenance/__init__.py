"""Care of a table by hand, under the names and with the arguments of Paimon's procedures.

Each function takes the table's path first. ``dry_run=True`` changes nothing, and what is returned then says what would
be done. ``options`` and further keywords are the query's own: ``store_options`` and its lock above all. ``journals``:
paths of further folders or tables whose queries write this table, and that keep their journals there.
"""

from streamsink.maintenance.branching import branches, create_branch, delete_branch, fast_forward, rollback_to
from streamsink.maintenance.compacting import compact
from streamsink.maintenance.expiry import (
    clear_consumers,
    create_tag,
    delete_tag,
    expire_consumers,
    expire_partitions,
    expire_snapshots,
    expire_tags,
    remove_orphan_files,
    trigger_tag_automatic_creation,
)
from streamsink.maintenance.repairing import repair

__all__ = [
    "branches",
    "clear_consumers",
    "compact",
    "create_branch",
    "create_tag",
    "delete_branch",
    "delete_tag",
    "expire_consumers",
    "expire_partitions",
    "expire_snapshots",
    "expire_tags",
    "fast_forward",
    "remove_orphan_files",
    "repair",
    "rollback_to",
    "trigger_tag_automatic_creation",
]
