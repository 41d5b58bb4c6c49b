"""How one record names the files of several tables, and how each table's part of it is read back. Driver only.

Staged paths stand in the record relative to the folder of the tables, and so do final paths. A table's own part has
staged paths that are absolute, and final paths relative to the table, as its committer expects them. A file that has
its final name since it was written has that as its staged path too: a manifest relative to its table.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from streamsink import events
from streamsink.format.snapshot import APPEND
from streamsink.protocol.committable import Committable, StagedFile
from streamsink.sinks.paimon.past.place import Place
from streamsink.sinks.paimon.past.records import named_in


def part_from_root(
    place: Place, staging: str, path: str, files: Sequence[StagedFile], payload: Mapping[str, Any]
) -> tuple[list[StagedFile], dict[str, Any]]:
    """What the record names of a table's own part: (its staged files, what its entry says of them).

    staging: absolute folder of the files. path: of the table, relative to the folder of the tables. files, payload: as
    ``PaimonCommitter.stage`` returns them.
    """
    named = [
        StagedFile(
            os.path.join(path, file.final) if file.staged == file.final else _staged(place, staging, file.staged),
            os.path.join(path, file.final),
            file.size,
            file.rows,
        )
        for file in files
    ]
    manifest = payload["manifest"]
    if manifest is not None and manifest["staged"] != manifest["final"]:
        manifest = {**manifest, "staged": _staged(place, staging, manifest["staged"])}
    return named, {"files": len(files), "manifest": manifest, "base": payload["base"], **named_in(payload)}


def own_parts(place: Place, record: Committable) -> Iterator[tuple[Mapping[str, Any], Committable]]:
    """Yield (the record's entry of a table, the table's own part as a record of that table) in the order of publishing.

    No table is opened: one of them may be lost.
    """
    at = 0
    for entry in record.payload["tables"]:
        files = record.files[at : at + entry["files"]]
        at += entry["files"]
        own = tuple(_in_table(place, entry["path"], file) for file in files)
        manifest = entry["manifest"]
        if manifest is not None and manifest["staged"] != manifest["final"]:
            manifest = {**manifest, "staged": place.absolute(manifest["staged"])}
        payload = {"kind": APPEND, "manifest": manifest, "base": entry.get("base"), **named_in(entry)}
        yield entry, Committable(record.state, place.key, record.watermark_ms, own, payload)


def part_of(place: Place, record: Committable, name: str) -> list[tuple[Mapping[str, Any], Committable]]:
    """As ``own_parts``, of the table with this name alone; empty when it has no part of the record."""
    return [(entry, part) for entry, part in own_parts(place, record) if entry["name"] == name]


def heads_in(record: Committable | None) -> Mapping[str, Mapping[str, Any]]:
    """For every table that this or an earlier record touched, by name: its path, its identity, the last such number.

    Empty when there is no record yet.
    """
    heads: Mapping[str, Mapping[str, Any]] = record.payload["heads"] if record is not None else {}
    return heads


def _in_table(place: Place, path: str, file: StagedFile) -> StagedFile:
    """A file of a record as its table's own part names it. path: of the table, relative to the folder of the tables."""
    final = os.path.relpath(file.final, path)
    return StagedFile(final if file.staged == file.final else place.absolute(file.staged), final, file.size, file.rows)


def _staged(place: Place, staging: str, file: str) -> str:
    """The path of a file in the staging folder, relative to the folder of the tables."""
    folder = staging.removeprefix(place.root).lstrip("/")
    return os.path.join(folder, os.path.basename(file))


def tell_dead_letters(emit: Callable[[events.Event], None], place: Place, committable: Committable) -> None:
    """Tell how many rows of a published record are dead letters, by the table that they were meant for."""
    for target, rows in sorted(committable.payload["dead_letters"].items()):
        checkpoint_id = committable.state.checkpoint_id
        emit(events.RowsDeadLettered(place.root, place.application, checkpoint_id, target, rows))
