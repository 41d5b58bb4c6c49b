"""A manifest written entry by entry, from the records of others: nothing but its compressed bytes is held."""

from collections.abc import Sequence
from typing import Any

from streamsink.format.avro_file import SYNC_INTERVAL, AvroStream
from streamsink.format.manifest import FileKind, manifest_schema
from streamsink.format.manifest_list import EntrySummary, ManifestFileMeta
from streamsink.format.types import DataType

_SEQUENCES = "_WRITE_COLS_SEQUENCES"


class ManifestStream:
    """One manifest of about ``target_bytes``. A ``record`` is what ``iter_records`` gives."""

    def __init__(self, target_bytes: int, partition_types: Sequence[DataType], with_sequences: bool):
        self._target = target_bytes
        self._types = partition_types
        self._with_sequences = with_sequences
        self._summary = EntrySummary()
        block = max(1, min(SYNC_INTERVAL, target_bytes))
        self._avro = AvroStream(manifest_schema(with_sequences), codec="zstandard", level=1, block_bytes=block)

    @classmethod
    def for_record(cls, record: dict[str, Any], target_bytes: int, types: Sequence[DataType]) -> "ManifestStream":
        """An empty one that can hold ``record``: a field that released Java does not write is there only when needed."""
        return cls(target_bytes, types, record["_FILE"].get(_SEQUENCES) is not None)

    def takes(self, record: dict[str, Any]) -> bool:
        """Whether the record belongs into this manifest: it is not full, and has a field for everything."""
        return self._avro.size < self._target and (self._with_sequences or record["_FILE"].get(_SEQUENCES) is None)

    def add(self, kind: FileKind, record: dict[str, Any]) -> None:
        file = record["_FILE"]
        self._avro.add(record)
        numbers = (file["_SCHEMA_ID"], file["_LEVEL"], file.get("_FIRST_ROW_ID"), file["_ROW_COUNT"])
        self._summary.add(kind, record["_PARTITION"], record["_BUCKET"], numbers)

    def finish(self, name: str) -> tuple[bytes, ManifestFileMeta]:
        """The bytes, and what a manifest list says of them under this name."""
        data = self._avro.finish()
        return data, self._summary.meta(name, len(data), self._types)
