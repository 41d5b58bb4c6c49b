"""What readers of a table's Iceberg metadata do not see of it; and to make it now, not with the next commit."""

from streamsink.errors import Misuse
from streamsink.format.iceberg_options import STORAGE, IcebergOptions, makes_iceberg
from streamsink.table.iceberg_metadata.folder import Folder
from streamsink.table.iceberg_metadata.mirror import Mirror
from streamsink.table.iceberg_metadata.origin import is_here, is_made_of
from streamsink.table.table import Table


def what_readers_lack(table: Table) -> str:
    """In a sentence without its full stop; '' where they see the newest snapshot, or where no metadata is asked for.

    Changes nothing. Raises OSError.
    """
    options, newest = table.latest_schema().options, table.snapshots.latest()
    # A branch shares the table's folder, in which the metadata is that of the main branch.
    if newest is None or table.layout.branch or not makes_iceberg(options):
        return ""
    try:
        folder = Folder(table.file_io, IcebergOptions.of(table.root, options).folder)
    except Misuse as refused:
        return f"its Iceberg metadata cannot be made: {refused}"
    number = folder.hint()
    shown = folder.metadata(number) if number >= 0 else None
    if shown is not None and is_here(shown, table.root):
        if number == newest.id and is_made_of(shown, newest, folder):
            return ""
        if number < newest.id:
            return f"readers of its Iceberg metadata see snapshot {number}, and {newest.id} is the newest one"
    if not folder.versions():
        return f"it has no Iceberg metadata, which its option {STORAGE} asks for"
    return (
        f"readers of its Iceberg metadata do not see snapshot {newest.id}, the newest one: what they are led to in "
        f"{folder.path} is damaged, or of another table, or of a snapshot that the table does not have any more"
    )


def catch_up(table: Table, *, dry_run: bool) -> str:
    """Make the metadata of the newest snapshot, unless it is there. Returns what readers lacked, '' for nothing.

    dry_run: change nothing. Idempotent, beside whoever writes. Raises what keeps it from being made, which a commit
    only logs.
    """
    lacking = what_readers_lack(table)
    if lacking and not dry_run:
        try:
            Mirror(table).start()
        except Misuse as refused:
            if table.root in str(refused):
                raise
            raise Misuse(f"{table.root}: {refused}", kind=refused.kind) from refused
    return lacking
