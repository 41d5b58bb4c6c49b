"""What a pending record of a Paimon table names: its files and its staged manifests. Driver only.

Several records may be joined into one, which then names the files and manifests of all of them.
"""

import hashlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamsink import shell
from streamsink.clock import IdSource
from streamsink.errors import Corrupt
from streamsink.format.manifest import ManifestEntry, read_manifest
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import APPEND, Snapshot
from streamsink.protocol.committable import DEAD_LETTERS, AppState, Committable
from streamsink.protocol.ids import Writer
from streamsink.storage.reading import Questions
from streamsink.table.application_states import states_in
from streamsink.table.care.empty_folders import cleans_empty_folders
from streamsink.table.history.renamed_folders import check_staged
from streamsink.table.layout import Layout
from streamsink.table.table import Table

# In what a record says of its manifest: by the number of a schema, which columns it had.
_COLUMNS = "columns"


def state_alone(committable: Committable, *, held: bool = False) -> Committable:
    """The record without its files: its rows are in the table already, and only its state is to be published.

    held: the rows are in the table as files of these names, which must still be there at the instant when the state is
    published. Dead letters stay in the record, because they have a table of their own, which may lack them.
    """
    said = {"alone": bool(committable.files)} | ({"held": [file.final for file in committable.files]} if held else {})
    letters = {DEAD_LETTERS: committable.payload[DEAD_LETTERS]} if DEAD_LETTERS in committable.payload else {}
    return replace(committable, files=(), payload={"kind": APPEND, "manifest": None} | said | letters)


def joined(records: Sequence[Committable]) -> list[Committable]:
    """One committable for each run of consecutive appends of one commit user; a record that replaces stays alone."""
    found = []
    for (kind, *_), run in itertools.groupby(records, lambda c: (c.payload["kind"], c.state.query, c.state.generation)):
        found += [_as_one(list(run))] if kind == APPEND else list(run)
    return found


def _as_one(run: Sequence[Committable]) -> Committable:
    """One committable that stands for all of these: it has the state of the last one, and the files of all."""
    if len(run) == 1:
        return run[0]
    watermarks = [c.watermark_ms for c in run if c.watermark_ms is not None]
    held = [final for c in run for final in c.payload.get("held", ())]
    said = {"alone": any(c.payload.get("alone") for c in run)} | ({"held": held} if held else {})
    return replace(
        run[-1],
        files=tuple(file for c in run for file in c.files),
        watermark_ms=max(watermarks, default=None),
        payload={"kind": APPEND, "joined": [c.payload for c in run], "base": run[0].payload.get("base")} | said,
    )


def staged_manifests(committable: Committable) -> list[Mapping[str, Any]]:
    """The staged manifests, one for each of the joined records that has rows."""
    payloads = committable.payload.get("joined", [committable.payload])
    return [payload["manifest"] for payload in payloads if payload["manifest"]]


def manifest_name(unique: str) -> str:
    """Name of a record's manifest. unique: an id; that of the record, where the manifest has its name at once."""
    return f"manifest-{unique}-0"


def places_of_metadata(layout: Layout, attempt: str) -> list[tuple[str, str]]:
    """Where, besides its data files, an attempt may leave files with final names; as ``Announcement.places``.

    attempt: id of the record that it is to get.
    """
    folder = layout.relative(layout.manifest_dir)
    return [(folder, f"manifest-{attempt}-"), (folder, f"manifest-list-{attempt}-")]


def named_in(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What a payload says of when files got their final names; nothing where they are staged."""
    return {"named_ms": payload["named_ms"]} if "named_ms" in payload else {}


def staged_in(folder: str, file: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a record says of a file of another table than that of its journal.

    folder: of staged files, relative to the table that has the journal.
    """
    has_its_name = file["staged"] == file["final"]
    return file if has_its_name else {**file, "staged": os.path.join(folder, os.path.basename(file["staged"]))}


def from_staging(layout: Layout, file: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inverse of ``staged_in``, with an absolute path. layout: of the table that has the journal."""
    return file if file["staged"] == file["final"] else {**file, "staged": layout.within(file["staged"])}


def renames(committable: Committable) -> list[tuple[str, str]]:
    """(staged, final) paths of the data files and then of the manifests, relative to the table's root.

    Those that have their final names since they were written, durably, are not among them.
    """
    return [(staged, final) for staged, final in _paths(committable) if staged != final]


def place(table: Table, committable: Committable, keep: bool) -> frozenset[str]:
    """Give every staged file its final name. Idempotent. Returns the folders whose new names are not durable yet.

    keep: the staged names stay too. Raises FileNotFoundError when a file is gone.
    """
    folders, within = set(), table.layout.within
    for source, target in renames(committable):
        table.file_io.place(within(source), within(target), keep)
        folders.add(os.path.dirname(within(target)))
    if cleans_empty_folders(table.known_schema.options):
        # Each may have been deleted and made again by others since; now it stays, and is to be durable.
        for folder in folders:
            table.file_io.doubt(folder, table.layout.main)
    return frozenset(folders)


def _paths(committable: Committable) -> list[tuple[str, str]]:
    pairs = [(file.staged, file.final) for file in committable.files]
    return pairs + [(manifest["staged"], manifest["final"]) for manifest in staged_manifests(committable)]


def commit_user(committable: Committable) -> str:
    """The user of the commit that publishes the record."""
    state = committable.state
    return Writer(committable.application, state.query, state.epoch).commit_user(state.generation)


def commit_name(committable: Committable) -> str:
    """A name for the files that one call writes to publish this record.

    Each call has its own, because a record may be published again after a rollback.
    """
    return f"{committable.state.record_id}-{IdSource().new_id()[:8]}"


def files_in_place(table: Table, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
    """(files under their final name, files that are only staged, final paths of files that are gone).

    A file of another size than the recorded one counts as gone.
    """
    final, staged, gone = 0, 0, []
    finals = Questions(size=tuple(table.layout.within(target) for _, target in _paths(committable)))
    sizes = [file.size for file in committable.files] + [manifest["size"] for manifest in staged_manifests(committable)]
    with table.file_io.asking(finals):
        for (source, target), size in zip(_paths(committable), sizes):
            if table.file_io.size(table.layout.within(target)) == size:
                final += 1
            elif source != target and table.file_io.size(table.layout.within(source)) == size:
                staged += 1
            else:
                gone.append(table.layout.within(target))
    return final, staged, tuple(gone)


def path_of_rows(table: Table, committable: Committable) -> str:
    """Path of a data file of the record, under its final name or staged; '' when all are gone."""
    names = ((table.layout.within(name), file.size) for file in committable.files for name in (file.final, file.staged))
    return next((path for path, size in names if table.file_io.size(path) == size), "")


def is_readable(table: Table, committable: Committable) -> bool:
    """Whether the record's staged manifests are there, as they were recorded."""
    try:
        for manifest in staged_manifests(committable):
            read_staged(table, manifest)
    except (Corrupt, FileNotFoundError):
        return False
    return True


def said_of_manifest(
    table: Table, staged: str, name: str, data: bytes, entries: Sequence[ManifestEntry]
) -> dict[str, Any]:
    """What a record says of its manifest. staged: its absolute path now. name: its final one. data: its bytes.

    With it stands which columns the schemas have with which the files were written, not only their numbers: Paimon
    deletes a schema that no snapshot has (rolling a table's schema back), or puts another one in its place (fast-
    forwarding a branch), and knows nothing of what is pending. Nothing of the first one, by which the table is known.
    """
    ids = sorted({entry.file.schema_id for entry in entries} - {0})
    said: dict[str, Any] = {"staged": table.layout.relative(staged), "final": f"manifest/{name}", "size": len(data)}
    said["sha256"] = hashlib.sha256(data).hexdigest()
    return said | ({_COLUMNS: {str(number): table.schemas.load(number).columns_id for number in ids}} if ids else {})


def check_schemas(table: Table, committable: Committable, way_on: str) -> None:
    """Raises Corrupt when a schema of the record's files is gone or another one, as ``read_staged`` without reading."""
    for manifest in staged_manifests(committable):
        _check_columns(table, manifest, way_on)


def _check_columns(table: Table, manifest: Mapping[str, Any], way_on: str) -> None:
    for number, columns in manifest.get(_COLUMNS, {}).items():
        try:
            schema = table.schemas.load(int(number))
        except Corrupt as unread:
            raise _unread(table, int(number), unread, way_on) from unread
        if schema.columns_id != columns:
            raise Corrupt(
                f"{table.root}: {table.layout.schema(int(number))} is another schema than the one with which files of "
                f"a pending record were written: it has the columns {', '.join(schema.field_names)}. The table's "
                "schema was rolled back and then changed in another way, or a branch with another schema took the "
                "table over. Nothing of the record was published here: readers would take its columns for others. "
                "If no snapshot has this schema yet, roll the table's schema back once more, make the change again "
                f"that it had before, and start the query again. {way_on}",
                kind="schema.replaced",
            )


def _unread(table: Table, number: int, unread: Corrupt, way_on: str) -> Corrupt:
    """The error of a schema that cannot be read; of one that is gone, as a commit says it."""
    try:
        table.schemas.check_there({number})
    except Corrupt as gone:
        return Corrupt(f"{gone}. {way_on}", kind=gone.kind)
    return unread


def read_staged(table: Table, manifest: Mapping[str, Any], way_on: str = "") -> list[ManifestEntry]:
    """Entries of a record's manifest, which has its final name or is still staged. Its bytes are kept by the table.

    way_on: what to do when it was altered, for the message. Raises Corrupt when its size or checksum is not the
    recorded one, when a schema of its files is gone or another one, or when their folders have other names by now;
    FileNotFoundError when it is gone.
    """
    path = table.layout.within(manifest["final"])
    try:
        data = table.file_io.read(path)
    except FileNotFoundError:
        path = table.layout.within(manifest["staged"])
        data = table.file_io.read(path)
    if len(data) != manifest["size"] or hashlib.sha256(data).hexdigest() != manifest["sha256"]:
        raise Corrupt(
            f"{path}: the manifest of a pending checkpoint was altered (size or checksum differ from the pending "
            f"record's). Nothing was published. Restore the file {shell.restore(path)}. {way_on}",
            kind="pending.manifest",
        )
    _check_columns(table, manifest, way_on)
    table.manifests.keep(table.layout.within(manifest["final"]), data)
    entries = read_manifest(data, path)
    check_staged(table, entries)
    return entries


def manifest_meta(table: Table, manifest: Mapping[str, Any], entries: Sequence[ManifestEntry]) -> ManifestFileMeta:
    """The entry of a manifest list for a record's manifest, which holds ``entries``."""
    types = [field.type for field in table.known_schema.partition_fields]
    return ManifestFileMeta.of(os.path.basename(manifest["final"]), manifest["size"], entries, types)


def is_older_than(table: Table, committable: Committable) -> Callable[[Snapshot], bool]:
    """A test whether a snapshot shows that this record was not published yet."""

    def is_older(snapshot: Snapshot) -> bool:
        state = (states_in(snapshot, table.snapshots.path(snapshot.id)) or {}).get(committable.application)
        return state is not None and AppState.from_json(state).sequence < committable.state.sequence

    return is_older
