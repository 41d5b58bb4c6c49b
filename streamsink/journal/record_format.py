"""A record of the journal as bytes: one header line, one body line."""

import hashlib
import json

from streamsink import shell
from streamsink.errors import Corrupt
from streamsink.protocol import ways
from streamsink.protocol.committable import DEAD_LETTERS, Committable

_FORMAT = "streamsink-pending"
# Version 2: the state has more fields, which code for version 1 would leave out. Version 3: the record has dead letters
# beside its own files, which code for version 2 would not publish. Version 4: its files have their final names already,
# and code for version 3 would copy each onto itself, which S3 refuses. Version 5: so have those of several tables, or
# its dead letters, and code for version 4 would copy a manifest of one table over that of another one, which has the
# same name. Only such records have these versions.
_VERSION, _WITH_DEAD_LETTERS, _WITH_FINAL_NAMES, _IN_SEVERAL_TABLES, _VERSIONS = 2, 3, 4, 5, (1, 2, 3, 4, 5)


def encode_record(committable: Committable) -> bytes:
    """A record's bytes: header line and body line. The body is JSON, never anything that could run code."""
    body = json.dumps(committable.to_json(), separators=(",", ":"), sort_keys=True).encode()
    digest = hashlib.sha256(body).hexdigest()
    version = _WITH_DEAD_LETTERS if DEAD_LETTERS in committable.payload else _VERSION
    letters = committable.payload.get(DEAD_LETTERS, {}).get("files", ())
    named = [file["staged"] == file["final"] for file in letters]
    if any(file.staged == file.final for file in committable.files) or any(named):
        is_alone = "tables" not in committable.payload and DEAD_LETTERS not in committable.payload
        version = _WITH_FINAL_NAMES if is_alone else _IN_SEVERAL_TABLES
    header = {"format": _FORMAT, "version": version, "length": len(body), "sha256": digest}
    return json.dumps(header).encode() + b"\n" + body + b"\n"


def decode_record(data: bytes, path: str, of_table: bool = True) -> Committable:
    """The record, checked as a whole. Raises Corrupt, which names ``path`` and says what to do.

    of_table: as in ``Destination.is_table``.
    """
    first, separator, rest = data.partition(b"\n")
    try:
        header = json.loads(first)
        if header["format"] != _FORMAT:
            raise corrupt(path, "it is not a pending record", of_table)
        if header["version"] not in _VERSIONS:
            raise _newer(path, int(header["version"]))
        body = rest[:-1]
        if not separator or len(body) != header["length"] or rest[-1:] != b"\n":
            raise corrupt(path, f"it has {len(rest)} body bytes, expected {header['length'] + 1}", of_table)
        if hashlib.sha256(body).hexdigest() != header["sha256"]:
            raise corrupt(path, "its checksum does not match", of_table)
        return Committable.from_json(json.loads(body))
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise corrupt(path, f"it cannot be decoded ({type(broken).__name__})", of_table) from broken


def _newer(path: str, version: int) -> Corrupt:
    """The error of a record that later code has written."""
    return Corrupt(
        f"{path}: a newer streamsink has written this pending record: its version is {version}, and this one reads up "
        f"to {_VERSIONS[-1]}. Nothing was written, and its rows are not lost. Start the query with the streamsink that "
        "has written it, or with a newer one",
        kind="journal.newer",
    )


def corrupt(path: str, what: str, of_table: bool) -> Corrupt:
    """The error of a record that cannot be used. what: is wrong with it. of_table: as of ``decode_record``."""
    root, _, application, _ = path.rsplit("/", 3) if path.count("/") > 2 else ("", "", "", "")
    return Corrupt(
        f"{path}: the pending record is damaged: {what}. Nothing was written. Restore the file "
        f"{shell.restore(path)}. "
        f"{ways.give_up(root, application, of_table)}",
        kind="journal.corrupt",
    )
