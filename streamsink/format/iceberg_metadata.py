"""The metadata file of an Iceberg table (``v<N>.metadata.json``), with the fields that Paimon's writer gives it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsink.errors import Corrupt
from streamsink.format.iceberg_types import FIRST_PARTITION_ID, ORDER_ID, SPEC_ID

FORMAT_VERSION = 2
#: The key of a snapshot's summary that tells which Paimon snapshot it was made from.
IDENTITY = "paimon-commit-identity"
#: The property by which readers find columns in data files that say no field ids.
NAME_MAPPING = "schema.name-mapping.default"
#: Tags expire by Paimon's rules, and never by Iceberg's.
_NEVER_MS = 2**63 - 1


@dataclass(frozen=True)
class IcebergSnapshot:
    """One snapshot. number: Paimon's, which is its id and its sequence number here. manifest_list: absolute path.

    parent: number of the snapshot before it, which may have expired. time_ms: when Paimon's snapshot was made.
    """

    number: int
    parent: int | None
    time_ms: int
    summary: Mapping[str, str]
    manifest_list: str
    schema_id: int

    def to_json(self) -> dict[str, Any]:
        """As the metadata file has it."""
        parent = {} if self.parent is None else {"parent-snapshot-id": self.parent}
        return {"sequence-number": self.number, "snapshot-id": self.number, **parent} | {
            "timestamp-ms": self.time_ms,
            "summary": dict(self.summary),
            "manifest-list": self.manifest_list,
            "schema-id": self.schema_id,
        }


@dataclass(frozen=True)
class IcebergMetadata:
    """The metadata of a table as of its last snapshot, which has the number of the file.

    location: the table's root. schemas: all of the table, as JSON. tags: name -> number of a snapshot among
    ``snapshots``. properties: of the table.
    """

    uuid: str
    location: str
    updated_ms: int
    last_column_id: int
    schemas: tuple[Mapping[str, Any], ...]
    spec: tuple[Mapping[str, Any], ...]
    snapshots: tuple[IcebergSnapshot, ...]
    tags: Mapping[str, int]
    properties: Mapping[str, str]
    current_schema_id: int

    @property
    def current(self) -> IcebergSnapshot:
        """The last snapshot."""
        return self.snapshots[-1]

    def to_json(self) -> bytes:
        """The bytes of the file."""
        made = {
            "format-version": FORMAT_VERSION,
            "table-uuid": self.uuid,
            "location": self.location,
            "last-sequence-number": self.current.number,
            "last-updated-ms": self.updated_ms,
            "last-column-id": self.last_column_id,
            "schemas": list(self.schemas),
            "current-schema-id": self.current_schema_id,
            "partition-specs": [{"spec-id": SPEC_ID, "fields": list(self.spec)}],
            "default-spec-id": SPEC_ID,
            "last-partition-id": FIRST_PARTITION_ID + len(self.spec) - 1,
            "sort-orders": [{"order-id": ORDER_ID, "fields": []}],
            "default-sort-order-id": ORDER_ID,
            "snapshots": [snapshot.to_json() for snapshot in self.snapshots],
            "snapshot-log": _log(self.snapshots),
            "current-snapshot-id": self.current.number,
            "properties": dict(self.properties),
            "refs": {
                name: {"snapshot-id": number, "type": "tag", "max-ref-age-ms": _NEVER_MS}
                for name, number in self.tags.items()
            },
        }
        return json.dumps(made, ensure_ascii=False, indent=1).encode("utf-8")

    @classmethod
    def from_json(cls, data: bytes, name: str) -> "IcebergMetadata":
        """Also of a file that Paimon's Java writer made. name: of the file, for messages.

        Raises: Corrupt ``manifest.corrupt``, also for a file of another format version.
        """
        try:
            said = json.loads(data.decode("utf-8"))
            if said["format-version"] != FORMAT_VERSION:
                raise ValueError(f"format version {said['format-version']}")
            snapshots = [_snapshot(each) for each in said["snapshots"]]
            if not snapshots or snapshots[-1].number != said["current-snapshot-id"]:
                raise ValueError("its last snapshot is not the current one")
            return cls(
                str(said["table-uuid"]),
                str(said["location"]),
                int(said["last-updated-ms"]),
                int(said["last-column-id"]),
                tuple(said["schemas"]),
                tuple(said["partition-specs"][0]["fields"]),
                tuple(snapshots),
                {tag: int(ref["snapshot-id"]) for tag, ref in (said.get("refs") or {}).items()},
                dict(said.get("properties") or {}),
                int(said["current-schema-id"]),
            )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as bad:
            raise Corrupt(
                f"{name} is not readable: {type(bad).__name__}: {bad}. It is made again from the table's newest "
                "snapshot",
                kind="manifest.corrupt",
            ) from bad


def _snapshot(said: Mapping[str, Any]) -> IcebergSnapshot:
    parent = said.get("parent-snapshot-id")
    return IcebergSnapshot(
        int(said["snapshot-id"]),
        None if parent is None else int(parent),
        int(said["timestamp-ms"]),
        dict(said["summary"]),
        str(said["manifest-list"]),
        int(said["schema-id"]),
    )


def _log(snapshots: Sequence[IcebergSnapshot]) -> list[dict[str, int]]:
    """By which readers find the snapshot of a time. Times never go back in it, as the clocks of two writers may."""
    made, last = [], 0
    for snapshot in snapshots:
        last = max(last, snapshot.time_ms)
        made.append({"timestamp-ms": last, "snapshot-id": snapshot.number})
    return made
