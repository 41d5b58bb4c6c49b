"""``streamsink iceberg-metadata``: make a table's Iceberg metadata now, and not with the next commit or start."""

from streamsink.errors import StreamsinkError
from streamsink.table.iceberg_metadata.behind import what_readers_lack
from streamsink.table.iceberg_metadata.mirror import Mirror
from streamsink.table.table import Table


def catch_up(table: Table, *, dry_run: bool) -> str:
    """Make the metadata of the newest snapshot, unless it is there. Returns what readers lacked, '' for nothing.

    dry_run: change nothing. Idempotent, beside whoever writes. Raises what keeps it from being made, which a commit
    only logs.
    """
    lacking = what_readers_lack(table)
    if lacking and not dry_run:
        try:
            Mirror(table).start()
        except StreamsinkError as failed:
            if table.root in str(failed):
                raise
            raise type(failed)(f"{table.root}: {failed}", kind=failed.kind) from failed
    return lacking
