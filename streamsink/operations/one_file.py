"""What one file or folder is that an error names, by its place, and whether it is whole. Changes nothing."""

import contextlib
import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from streamsink.errors import Corrupt, Misuse
from streamsink.format.avro_file import DECODING_ERRORS, read_avro
from streamsink.format.schema import TableSchema
from streamsink.format.snapshot import Snapshot
from streamsink.journal.announced import STAGING
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.journal.known_files import Part
from streamsink.journal.record_format import decode_record
from streamsink.journal.repair import REPLAYS
from streamsink.protocol.committable import AppState
from streamsink.storage.file_io import FileIO
from streamsink.table.application_states import states_in


@dataclass(frozen=True)
class OneFile:
    """What something at a path is.

    kind: one of the names below. text: for people, with what follows when it is deleted. is_folder: else it is a file.
    problem: why it is not whole; '' where it is, or where that cannot be told by looking at it alone.
    """

    path: str
    kind: str
    text: str
    is_folder: bool = False
    problem: str = ""


# Kinds. Those of METADATA and DATA are named by snapshots, and are never deleted as long as they are whole.
HINT, CONSUMER, JOURNAL, JOURNALS = "hint", "consumer", "journal", "journals"
METADATA, DATA, RECORD, NOTE, OTHER = "metadata", "data", "record", "note", "other"
_Check = Callable[[bytes, str], object]


def _json(data: bytes, path: str) -> None:
    if not isinstance(json.loads(data), dict):
        raise ValueError("no JSON object")


def _snapshot(data: bytes, path: str) -> None:
    for said in (states_in(Snapshot.from_json(data, path), path) or {}).values():
        with contextlib.suppress(Misuse):  # a newer streamsink has written it
            AppState.from_json(said)


def _avro(data: bytes, path: str) -> None:
    for _ in read_avro(data, path):
        pass


def _parquet(data: bytes, path: str) -> None:
    import pyarrow.parquet as pq

    pq.ParquetFile(io.BytesIO(data)).read()


def _files_log(data: bytes, path: str) -> None:
    first, last = map(int, path.rsplit("-", 2)[1:])
    if Part.decode(data, last + 1 - first) is None:
        raise ValueError("no list of files")


_NOTE = "it holds no data; what needs it makes it anew"
# By the end of a path: the kind, what it is, and how its bytes are checked.
_FILES: tuple[tuple[str, str, str, _Check | None], ...] = (
    (r"/snapshot/(LATEST|EARLIEST)", HINT, "the hint at a snapshot; the next commit makes it anew", None),
    (r"/snapshot/snapshot-\d+", METADATA, "a snapshot", _snapshot),
    (r"/changelog/changelog-\d+", METADATA, "a changelog", None),
    (r"/tag/tag-[^/]+", METADATA, "a tag; what only it keeps is found by orphan cleaning", _snapshot),
    (r"/schema/schema-\d+", METADATA, "a schema", TableSchema.from_json),
    (r"/manifest/(index-)?manifest[^/]*", METADATA, "a manifest", _avro),
    (r"/consumer/consumer-[^/]+", CONSUMER, "what a reader has read; it begins anew without it", None),
    (r"/[^/]+\.parquet", DATA, "a data file; its rows are gone with it", _parquet),
    (r"/[^/]+\.(orc|avro)", DATA, "a data file; its rows are gone with it", None),
    (r"/[^/]+\.token", NOTE, f"the token of a lock; {_NOTE}", _json),
    (rf"/{JOURNAL_DIR}/(removal|compact)-[^/]+", NOTE, f"what an expiry or a compaction was doing; {_NOTE}", _json),
    (rf"/{JOURNAL_DIR}/[^/]+/record-\d+\.json", RECORD, "a pending record; its rows are gone with it", decode_record),
    (
        rf"/{JOURNAL_DIR}/[^/]+/files-\d+-\d+-\d+",
        NOTE,
        "which files were read; after a lost checkpoint the sink asks then instead of deciding by files",
        _files_log,
    ),
    (rf"/{JOURNAL_DIR}/[^/]+/(owner|journal)-\d+", NOTE, f"a note of the journal; {_NOTE}", _json),
    (rf"/{JOURNAL_DIR}/[^/]+/staging/[^/]+/at-[^/]+", NOTE, f"where an attempt has left files; {_NOTE}", _json),
)
_OF_JOURNAL = re.compile(rf".*/{JOURNAL_DIR}/([^/]+)", re.DOTALL)
# What a folder must hold, and nothing else, to be taken for a journal, for those of a place, or for what a sink keeps
# beside a destination.
_IN_JOURNAL = re.compile(
    rf"hold.*|(owner|journal|done)-\d+|record-\d+\.json|files-\d+-\d+-\d+|{STAGING}|runs(-.+)?|{REPLAYS}|\..+\.tmp"
)
_IN_JOURNALS = re.compile(r"\.?(removal|compact)-.+")
_BESIDE = {"id", JOURNAL_DIR, "states"}


def is_file(file_io: FileIO, path: str) -> bool:
    """Whether there is a file at this path, and no folder."""
    above, name = os.path.split(path)
    return any(entry.name == name and not entry.is_dir for entry in file_io.entries(above))


def look_at(file_io: FileIO, path: str) -> OneFile | None:
    """What there is at this path; None for nothing."""
    if not is_file(file_io, path):
        return _folder(file_io, path)
    for end, kind, text, check in _FILES:
        if re.fullmatch(f".*{end}", path, re.DOTALL):
            return OneFile(path, kind, text, problem=problem_of(check, file_io.read(path), path) if check else "")
    return OneFile(path, OTHER, "a file that is not streamsink's")


def problem_with(data: bytes, path: str) -> str:
    """Why these bytes are no file for this path; '' where they are, or where that cannot be told."""
    check = next((check for end, _, _, check in _FILES if re.fullmatch(f".*{end}", path, re.DOTALL)), None)
    return problem_of(check, data, path) if check is not None else ""


def problem_of(check: _Check, data: bytes, path: str) -> str:
    """Why bytes do not pass this check; '' where they do."""
    try:
        check(data, path)
    except Corrupt as broken:
        return str(broken)
    except DECODING_ERRORS as broken:
        return f"it cannot be decoded ({type(broken).__name__})"
    return ""


def _folder(file_io: FileIO, path: str) -> OneFile | None:
    entries = file_io.entries(path)
    if not entries:
        return None
    found = _OF_JOURNAL.fullmatch(path)
    if found and _is_journal(file_io, path):
        return OneFile(path, JOURNAL, f"the journal of application '{found[1]}'", is_folder=True)
    above, name = os.path.split(path)
    names = {entry.name for entry in entries}
    if (name == JOURNAL_DIR and _are_journals(file_io, path)) or (
        name == "_streamsink" and names <= _BESIDE and _are_journals(file_io, f"{path}/{JOURNAL_DIR}")
    ):
        return OneFile(path, JOURNALS, f"the journals of the queries that write to {above}", is_folder=True)
    return OneFile(path, OTHER, "a folder that is not streamsink's", is_folder=True)


def _is_journal(file_io: FileIO, path: str) -> bool:
    return all(map(_IN_JOURNAL.fullmatch, file_io.names(path)))


def _are_journals(file_io: FileIO, path: str) -> bool:
    return all(
        _is_journal(file_io, f"{path}/{entry.name}") if entry.is_dir else _IN_JOURNALS.fullmatch(entry.name)
        for entry in file_io.entries(path)
    )
