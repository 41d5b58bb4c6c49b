"""Snapshot files ``snapshot/snapshot-N``: one JSON object each. Creating such a file publishes the snapshot."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamsink import shell
from streamsink.errors import Corrupt

APPEND, COMPACT, OVERWRITE, ANALYZE = KINDS = ("APPEND", "COMPACT", "OVERWRITE", "ANALYZE")
#: The commit identifier of batch jobs and of table maintenance.
BATCH_COMMIT_IDENTIFIER = 9223372036854775807
NEWEST_VERSION = 3


@dataclass(frozen=True)
class Snapshot:
    """One snapshot, as Paimon's class of this name.

    Sizes are in bytes (exact, or None), counts in rows, ``time_millis`` and ``watermark`` in ms.
    """

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: str
    time_millis: int
    total_record_count: int
    delta_record_count: int
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    writer_version: str | None = None
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] | None = None
    next_row_id: int | None = None
    operation: str | None = None
    uuid: str | None = None
    version: int = NEWEST_VERSION

    def to_json(self) -> bytes:
        """The bytes of the snapshot file, UTF-8. Keys without a value are omitted, as Java does."""
        out: dict[str, Any] = {}
        for key, name, _, _ in _KEYS:
            value = getattr(self, name)
            if value is not None:
                out[key] = dict(value) if name == "properties" else value
        return _pretty(out).encode("utf-8")

    @classmethod
    def from_json(cls, data: bytes, name: str) -> "Snapshot":
        """The snapshot of a snapshot file; ``name`` is the file's name, for messages. Unknown keys are ignored.

        Raises: Corrupt ``snapshot.corrupt``; ``snapshot.version`` for a version whose meaning is not known
        here.
        """
        try:
            found = json.loads(data.decode("utf-8"))
            if not isinstance(found, dict):
                raise ValueError("not a JSON object")
            values = {attribute: _value(found, key, kind, needed) for key, attribute, kind, needed in _KEYS}
            if values["commit_kind"] not in KINDS:
                raise ValueError("commitKind is not one of " + ", ".join(KINDS))
            _check_properties(values["properties"])
            values["version"] = NEWEST_VERSION if values["version"] is None else values["version"]
        except (ValueError, KeyError, TypeError, RecursionError) as bad:
            raise Corrupt(
                f"snapshot file {name} is not readable: {type(bad).__name__}: {bad}. Restore it "
                f"{shell.restore(name)}, or roll the table back to an older snapshot",
                kind="snapshot.corrupt",
            ) from bad
        if values["version"] > NEWEST_VERSION:
            raise Corrupt(
                f"snapshot file {name} is of version {values['version']}, the newest known is {NEWEST_VERSION}; a "
                "newer Paimon may have written it. Nothing was written. Use a streamsink that knows it, or roll the "
                "table back to an older snapshot",
                kind="snapshot.version",
            )
        return cls(**values)


#: (JSON key, attribute, type, whether it is required), in Java's order.
_KEYS: tuple[tuple[str, str, type, bool], ...] = (
    ("version", "version", int, False),
    ("uuid", "uuid", str, False),
    ("id", "id", int, True),
    ("schemaId", "schema_id", int, True),
    ("baseManifestList", "base_manifest_list", str, True),
    ("baseManifestListSize", "base_manifest_list_size", int, False),
    ("deltaManifestList", "delta_manifest_list", str, True),
    ("deltaManifestListSize", "delta_manifest_list_size", int, False),
    ("changelogManifestList", "changelog_manifest_list", str, False),
    ("changelogManifestListSize", "changelog_manifest_list_size", int, False),
    ("indexManifest", "index_manifest", str, False),
    ("commitUser", "commit_user", str, True),
    ("writerVersion", "writer_version", str, False),
    ("commitIdentifier", "commit_identifier", int, True),
    ("commitKind", "commit_kind", str, True),
    ("timeMillis", "time_millis", int, True),
    ("totalRecordCount", "total_record_count", int, True),
    ("deltaRecordCount", "delta_record_count", int, True),
    ("changelogRecordCount", "changelog_record_count", int, False),
    ("watermark", "watermark", int, False),
    ("statistics", "statistics", str, False),
    ("properties", "properties", dict, False),
    ("nextRowId", "next_row_id", int, False),
    ("operation", "operation", str, False),
)


#: The encoder is made once, because ``json.dumps`` makes one for each value.
_text = json.JSONEncoder(ensure_ascii=False).encode


def _pretty(found: Mapping[str, Any], margin: str = "") -> str:
    """The text that ``json.dumps(indent=2)`` produces, which is slow because its fast encoder cannot indent."""
    if not found:
        return "{}"
    items = []
    for key, value in found.items():
        text = _pretty(value, margin + "  ") if isinstance(value, dict) else _text(value)
        items.append(f"{margin}  {_text(key)}: {text}")
    return "{\n" + ",\n".join(items) + f"\n{margin}}}"


def _value(found: Mapping[str, Any], key: str, kind: type, needed: bool) -> Any:
    value = found[key] if needed else found.get(key)
    if value is None and not needed:
        return None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{key} is not of type {kind.__name__}")
    return value


def _check_properties(properties: Mapping[str, Any] | None) -> None:
    if properties and not all(isinstance(v, str) for v in properties.values()):
        raise ValueError("a value of properties is not a string")
