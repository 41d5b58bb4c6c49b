"""Folders of buckets and partitions in which nothing is left go as well, where the table's options ask for it.

Paimon's writers make the folders that they need, and so do ours: a folder that goes between its making and the first
name in it is made again. So only folders that a pending record names are kept, since its writer has made sure that they
take its files. A store without folders has nothing to do.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from streamsink.format.paths import escape
from streamsink.table.table import Table

_OPTION, _EARLIER = "snapshot.clean-empty-directories", "snapshot.expire.clean-empty-directories"
_BUCKET = re.compile(r"bucket-(?:[0-9]+|postpone)")


def cleans_empty_folders(options: Mapping[str, str]) -> bool:
    """Whether a table with these options is to have no empty folders. By default it keeps them, as in Paimon."""
    return options.get(_OPTION, options.get(_EARLIER, "false")).strip().lower() == "true"


def delete_empty_folders(table: Table, buckets: Iterable[str], needed: Collection[str]) -> None:
    """Delete these folders of buckets, and those of their partitions, as far as nothing is in them.

    needed: folders that stay, as of ``Needed``. Does nothing unless the table's newest options ask for it. Idempotent.
    A folder that cannot be deleted stays, as in Paimon.
    """
    there = sorted(set(buckets))
    if not there or not cleans_empty_folders(table.latest_schema().options):
        return
    root, depth = table.layout.main, len(table.known_schema.partition_keys)
    folders = {folder for folder in there if not _is_needed(folder.removeprefix(f"{root}/"), needed)}
    for _ in range(depth + 1):  # the deepest ones first
        for folder in sorted(folders):
            table.file_io.delete_empty_folder(folder)
        folders = {os.path.dirname(folder) for folder in folders} - {root}


def is_bucket(folder: str) -> bool:
    """Whether a bucket's data files are in such a folder."""
    return _BUCKET.fullmatch(os.path.basename(folder)) is not None


def folders_of(table: Table, folder: str, keys: Sequence[str], *, partitions: bool = False) -> Iterator[str]:
    """Folders of buckets below this folder, and of partitions where these are asked for, the deepest ones first.

    keys: partition columns of which no folder is in its path yet. Other folders are not the table's, whatever they are
    called.
    """
    for entry in table.file_io.entries(folder):
        path = f"{folder}/{entry.name}"
        if entry.is_dir and keys and entry.name.startswith(f"{escape(keys[0])}="):
            yield from folders_of(table, path, keys[1:], partitions=partitions)
            yield from (path,) if partitions else ()
        elif entry.is_dir and not keys and _BUCKET.fullmatch(entry.name):
            yield path


def old_empty_folders(table: Table, before_ms: float) -> list[str]:
    """Folders of buckets and partitions that are empty, and in which nothing has changed since this moment.

    None where the table keeps empty folders, and none of which the store does not tell the time. Changes nothing.
    """
    if not cleans_empty_folders(table.known_schema.options):
        return []
    found = []
    for path in folders_of(table, table.layout.main, table.known_schema.partition_keys, partitions=True):
        at_ms = None if table.file_io.names(path) else table.file_io.modified_ms(path)
        if at_ms is not None and at_ms < before_ms:
            found.append(path)
    return found


def _is_needed(folder: str, needed: Collection[str]) -> bool:
    return any(f"/{folder}/" in f"/{each}/" for each in needed)
