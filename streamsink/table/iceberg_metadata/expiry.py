"""Which snapshots Iceberg's metadata still has, which files only those had that it has no more, and which data files
its readers read. Driver only."""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from streamsink.errors import Corrupt
from streamsink.format.iceberg_manifest import is_live, read_entries
from streamsink.format.iceberg_metadata import IcebergSnapshot
from streamsink.format.iceberg_options import IcebergOptions
from streamsink.format.iceberg_values import partition_columns
from streamsink.table.durations import parse_duration
from streamsink.table.iceberg_metadata.folder import Folder
from streamsink.table.table import Table

_MIN, _MAX, _TIME = "snapshot.num-retained.min", "snapshot.num-retained.max", "snapshot.time-retained"
_DEFAULT_MIN, _DEFAULT_MAX, _DEFAULT_TIME = "10", str(2**31 - 1), "1 h"


def retained(table: Table, snapshots: Sequence[IcebergSnapshot], now_ms: int) -> tuple[IcebergSnapshot, ...]:
    """Those of the snapshots that stay; the last one always does.

    One goes when the table has it no more, and as Paimon's Java writer has it, when it would expire by the table's
    options, whether anybody lets it expire or not: the metadata holds all of them in one file. Only the first ones go.
    """
    options = table.known_schema.options
    going = 0
    for snapshot in snapshots[:-1]:
        is_old = _is_old(table.root, options, snapshot, snapshots[-1].number, now_ms)
        if not is_old and table.snapshots.exists(snapshot.number):
            break
        going += 1
    return tuple(snapshots[going:])


def _is_old(root: str, options: Mapping[str, str], snapshot: IcebergSnapshot, newest: int, now_ms: int) -> bool:
    behind = newest - snapshot.number
    if behind < int(options.get(_MIN, _DEFAULT_MIN)):
        return False
    time_ms = parse_duration(root, _TIME, options.get(_TIME, _DEFAULT_TIME))
    return behind >= int(options.get(_MAX, _DEFAULT_MAX)) or snapshot.time_ms < now_ms - time_ms


def only_needed_by(folder: Folder, before: Sequence[IcebergSnapshot], kept: Collection[IcebergSnapshot]) -> list[str]:
    """Paths of the lists and manifests that no kept snapshot has. before: all snapshots, in order; kept: among them.

    The snapshots that have a manifest follow each other, so of those that stay only the ones beside others that go are
    asked. Raises Corrupt; a list that is gone names nothing.
    """
    staying, going, needed = {each.number for each in kept}, dict[str, None](), set[str]()
    for number, snapshot in enumerate(before):
        if snapshot.number not in staying:
            going |= dict.fromkeys((*named_by(folder, snapshot), snapshot.manifest_list))
        elif any(each.number not in staying for each in before[max(0, number - 1) : number + 2]):
            needed |= named_by(folder, snapshot)
    return [path for path in going if path not in needed]


def named_by(folder: Folder, snapshot: IcebergSnapshot) -> set[str]:
    """Paths of the manifests of a snapshot; none where its list is gone. Raises Corrupt."""
    try:
        return {each.path for each in folder.manifests(snapshot.manifest_list)}
    except FileNotFoundError:
        return set()


def names_read(table: Table) -> frozenset[str]:
    """Names of the data files that readers of the metadata read, in any of its snapshots; nothing of what is torn.

    Raises OSError.
    """
    schema = table.known_schema
    folder = Folder(table.file_io, IcebergOptions.of(table.root, schema.options).folder)
    found, columns, paths = set[str](), partition_columns(schema), set[str]()
    for number in {folder.hint(), *folder.versions()[-1:]}:
        metadata = folder.metadata(number)
        for snapshot in metadata.snapshots if metadata else ():
            with suppress(Corrupt):
                paths |= named_by(folder, snapshot)
    for path in paths:
        with suppress(Corrupt, FileNotFoundError):
            entries = read_entries(folder.read(path), path, columns)
            found |= {os.path.basename(entry["data_file"]["file_path"]) for entry in entries if is_live(entry)}
    return frozenset(found)
