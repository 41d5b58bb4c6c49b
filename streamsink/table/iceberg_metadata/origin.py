"""Of which table, and of which of its snapshots, Iceberg metadata was made. Driver only.

A name is no identity: the folder of the metadata may hold that of a table which was dropped, copied or moved, or
Iceberg's own table of this name.
"""

import os
from collections.abc import Sequence

from streamsink import shell
from streamsink.errors import Corrupt, Misuse
from streamsink.format.iceberg_metadata import IDENTITY, IcebergMetadata, IcebergSnapshot
from streamsink.format.snapshot import Snapshot
from streamsink.table.iceberg_metadata.folder import Folder
from streamsink.table.table import Table

_ALIKE = {"s3a": "s3", "s3n": "s3"}


def identity(snapshot: Snapshot) -> str:
    """What tells a snapshot from another one of its number, as Paimon's Java writer has it."""
    return snapshot.uuid or f"{snapshot.commit_user}:{snapshot.commit_identifier}:{snapshot.time_millis}"


def is_of(found: IcebergSnapshot, snapshot: Snapshot) -> bool:
    """Whether the snapshot was made from this one of Paimon, which has the same number.

    Released Java writers do not say it. What they have made behind it is believed, and counted before anything is made
    on it; what is older than the snapshot was made of another one, before a rollback or of a table that was dropped.
    """
    said = found.summary.get(IDENTITY)
    return found.time_ms >= snapshot.time_millis if said is None else said == identity(snapshot)


def is_made_of(metadata: IcebergMetadata, newest: Snapshot, folder: Folder) -> bool:
    """Whether this is the metadata of the newest snapshot, by its identity, and by its rows where it says none."""
    if not is_of(metadata.current, newest) or metadata.current.summary.get(IDENTITY) is not None:
        return is_of(metadata.current, newest)
    try:
        rows = sum(each.live_rows for each in folder.manifests(metadata.current.manifest_list))
    except (Corrupt, FileNotFoundError):
        return False
    return rows == newest.total_record_count


def is_here(metadata: IcebergMetadata, root: str) -> bool:
    """Whether it names the files of the table at this path, and not those of the one that it was copied from."""
    return _place(metadata.location) == _place(root)


def of_this_table(metadata: IcebergMetadata, table: Table) -> bool:
    """False where the table was created anew: it has its first snapshots, and none of those of the metadata."""
    return has_one_of(metadata, table) or not table.snapshots.exists(1)


def has_one_of(metadata: IcebergMetadata, table: Table) -> bool:
    """Whether the table has one of the snapshots."""
    for each in reversed(metadata.snapshots):
        snapshot = table.snapshots.load(each.number)
        if snapshot is not None and is_of(each, snapshot):
            return True
    return False


def check_ours(
    found: IcebergMetadata | None, versions: Sequence[int], table: Table, folder: Folder, *, is_in_table: bool
) -> None:
    """Raises Misuse where the folder has metadata of another table, which nobody may touch.

    found: what can be read of it. versions: its numbers. is_in_table: whether the folder is the table's own, so that
    what it has came with a copy of the table.
    """
    what = ""
    if folder.others:
        what = f"metadata of another writer ({folder.others[0]})"
    elif found is None and any(folder.is_of_iceberg(each) for each in versions):
        what = "the metadata of a table of Iceberg's own"
    elif found is not None and not is_in_table and not is_here(found, table.root) and not has_one_of(found, table):
        what = f"the metadata of the table {found.location}"
    if what:
        raise Misuse(
            f"{folder.path} holds {what}, expected the metadata of the Paimon table {table.root}, or nothing. It is "
            "left as it is, and none is made for this table. If nobody needs it, remove that folder; else give one of "
            "the two tables another name, or let this one have its metadata elsewhere, by the table's option "
            f"metadata.iceberg.storage-location {shell.set_option(table.root, 'metadata.iceberg.storage-location')}",
            kind="table.not-empty",
        )


def _place(location: str) -> str:
    """A location in one spelling: Java writes file:/x for /x, and s3: or s3a: for one bucket."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return os.path.realpath(location)
    if scheme == "file":
        return os.path.realpath("/" + rest.lstrip("/"))
    return f"{_ALIKE.get(scheme, scheme)}:{rest.rstrip('/')}"
