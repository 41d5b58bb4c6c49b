"""Writes a manifest entry by entry from the records of other manifests, and holds only its compressed bytes."""

from collections.abc import Sequence
from typing import Any

from streamsink.format.avro_file import SYNC_INTERVAL, AvroStream
from streamsink.format.manifest import FileKind, manifest_schema
from streamsink.format.manifest_list import EntrySummary, ManifestFileMeta
from streamsink.format.types import DataType

_SEQUENCES = "_WRITE_COLS_SEQUENCES"


class ManifestStream:
    """One manifest of about ``target_bytes``. A ``record`` is an Avro record of ``iter_records``."""

    def __init__(self, target_bytes: int, partition_types: Sequence[DataType], with_sequences: bool):
        self._target = target_bytes
        self._types = partition_types
        self._with_sequences = with_sequences
        self._summary = EntrySummary()
        block = max(1, min(SYNC_INTERVAL, target_bytes))
        self._avro = AvroStream(manifest_schema(with_sequences), codec="zstandard", level=1, block_bytes=block)

    @classmethod
    def for_record(cls, record: dict[str, Any], target_bytes: int, types: Sequence[DataType]) -> "ManifestStream":
        """An empty manifest that can hold ``record``.

        Its schema has the field that released Java does not write only if ``record`` needs it.
        """
        return cls(target_bytes, types, record["_FILE"].get(_SEQUENCES) is not None)

    def takes(self, record: dict[str, Any]) -> bool:
        """Whether the manifest can take the record: it is not full, and its schema has all the fields."""
        return self._avro.size < self._target and (self._with_sequences or record["_FILE"].get(_SEQUENCES) is None)

    def add(self, kind: FileKind, record: dict[str, Any]) -> None:
        """Append an entry; ``kind`` is what it does to its file."""
        file = record["_FILE"]
        self._avro.add(record)
        numbers = (file["_SCHEMA_ID"], file["_LEVEL"], file.get("_FIRST_ROW_ID"), file["_ROW_COUNT"])
        self._summary.add(kind, record["_PARTITION"], record["_BUCKET"], numbers)

    def finish(self, name: str) -> tuple[bytes, ManifestFileMeta]:
        """Return the bytes of the manifest, and its record for a manifest list under this name."""
        data = self._avro.finish()
        return data, self._summary.meta(name, len(data), self._types)
