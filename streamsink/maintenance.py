"""Care of a table by hand, under the names of Paimon's procedures. See docs/MAINTENANCE.md.

Each function takes the table's path first. ``dry_run=True`` changes nothing, and what is returned then says what would
be done. ``options`` and further keywords are the sink's: ``store_options`` and the lock's above all. ``journals``:
paths of further folders or tables whose queries write this table, and that keep their journals there.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from streamsink.options import SinkOptions

if TYPE_CHECKING:
    from streamsink.table.care.expire_snapshots import ExpiryPlan
    from streamsink.table.care.removal import Needing
    from streamsink.table.table import Table

__all__ = ["expire_snapshots"]


def expire_snapshots(
    path: Any,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: datetime | None = None,
    max_deletes: int | None = None,
    *,
    dry_run: bool = False,
    journals: Sequence[str] = (),
    options: SinkOptions | None = None,
    **settings: Any,
) -> "ExpiryPlan":
    """Let old snapshots of the table expire, with the files that only they need.

    retain_max, retain_min: how many snapshots stay at most, and at least. older_than: only older ones expire.
    max_deletes: how many at most in this call. Defaults: the table's options ``snapshot.*``. What tags, branches,
    consumers, and queries need stays. Returns what has expired. Idempotent; after a crash each snapshot that is there
    is whole, and the next call finishes. Raises Misuse for a wrong option, Corrupt where what must stay cannot be read:
    then nothing is deleted.
    """
    from streamsink.clock import Clock
    from streamsink.table.care.expire_snapshots import Retention, expire, plan

    def do(table: "Table", needing: "Needing") -> "ExpiryPlan":
        time_ms = Clock().now_ms() - older_than.timestamp() * 1000 if older_than is not None else None
        given = {"num_min": retain_min, "num_max": retain_max, "time_ms": time_ms, "limit": max_deletes}
        retention = Retention.of(table.root, table.known_schema.options, **given)  # type: ignore[arg-type]
        return plan(table, retention, needing) if dry_run else expire(table, retention, needing)

    return _with_table(path, "expire_snapshots", do, journals, SinkOptions.of(str(path), settings, options))


def _with_table(path: Any, name: str, do: Any, journals: Sequence[str], options: SinkOptions) -> Any:
    """Call ``do`` with the open table, and what the journals need of it."""
    from streamsink.locks.locked_file_io import under_lock
    from streamsink.sinks.paimon.care.needed import needed_by_journals
    from streamsink.storage.store_failures import told_of
    from streamsink.storage.stores import Store, table_path
    from streamsink.table.table import open_table

    root = table_path(path)
    with told_of(root, name):
        io = under_lock(Store(root, options.store_options, options.flush).open(), root, options)
        table = open_table(io, root, for_writing=True)
        return do(table, needed_by_journals(table, tuple(map(table_path, journals))))
