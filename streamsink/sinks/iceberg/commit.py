"""One commit of one record: its data files, and what is remembered of it, become visible at one instant. Driver only.

pyiceberg's own transaction tries again when another writer was first, and looks at nothing then: a record that was
published meanwhile would be there twice. So each try is made here, on a table that was looked at.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamsink.errors import OutcomeUnknown, StreamsinkError
from streamsink.format.arrow_types import physical
from streamsink.protocol.committable import Committable
from streamsink.sinks.iceberg.append import appending
from streamsink.sinks.iceberg.catalog import CatalogTable
from streamsink.sinks.iceberg.statistics import statistics
from streamsink.sinks.iceberg.table_state import property_of, said_of, summary_of
from streamsink.sinks.lake_tables.parquet_file import LakeFile

_MERGES = "commit.manifest-merge.enabled"
_CODEC = "write.avro.compression-codec"
_NUMBERS = ("commit.manifest.min-count-to-merge", "commit.manifest.target-size-bytes")
_NANOS_PER_MICRO = 1000


class Refused(StreamsinkError):
    """Another writer was first: nothing was committed. It reaches no user."""


def data_file(table: Any, file: LakeFile, path: str, schema_id: int, spec_id: int) -> Any:
    """A data file as a manifest has it. path: its URI. schema_id, spec_id: of the table, when it was written."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    told = statistics(table.schemas().get(schema_id), table.metadata.properties, file.metadata)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*map(_partition_value, file.partition_values.values())),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=spec_id,
        equality_ids=None,
        key_metadata=None,
        **told,
    )


def _partition_value(value: pa.Scalar) -> Any:
    stored = physical(value)
    return stored // _NANOS_PER_MICRO if stored is not None and pa.types.is_timestamp(value.type) else stored


def names_in(table: Any, folder: str, behind: int | None) -> set[str]:
    """The names of the files that the table has now in the folder of an attempt, wherever that is.

    behind: the snapshot that was current before the attempt: what it had is not read, if that is still known.
    """
    current = table.current_snapshot()
    before = next((each.sequence_number for each in table.metadata.snapshots if each.snapshot_id == behind), 0)
    manifests = [each for each in current.manifests(table.io) if each.sequence_number > before] if current else []
    paths = (entry.data_file.file_path for each in manifests for entry in each.fetch_manifest_entry(table.io))
    return {path.rpartition("/")[2] for path in paths if path.rpartition("/")[0].endswith(f"/{folder}")}


def files_in(table: Any) -> list[tuple[str, int, int]]:
    """(path, bytes, rows) of each file of the current snapshot; a file that deletes rows has none itself."""
    from pyiceberg.manifest import DataFileContent

    current = table.current_snapshot()
    manifests = current.manifests(table.io) if current else []
    files = [entry.data_file for each in manifests for entry in each.fetch_manifest_entry(table.io)]
    data = DataFileContent.DATA
    return [(f.file_path, f.file_size_in_bytes, f.record_count if f.content == data else 0) for f in files]


def is_whole(table: Any, path: str, size: int) -> bool:
    """Whether the file is there, with this size."""
    found = table.io.new_input(path)
    return bool(found.exists()) and len(found) == size


def commit(to: CatalogTable, table: Any, record: Committable, files: Sequence[Any], spec_id: int) -> Any:
    """Make the record visible on top of ``table``, or nothing.

    files: as of ``data_file``. spec_id: of the partition spec that they were written by. Returns the table as it is
    then; None if that is not known.

    Raises Refused when the table was changed meanwhile; OutcomeUnknown when the catalog did not answer and does not
    have it; OSError when a file could not be written, with nothing committed.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

    with to.answered("the files of a commit could not be written"), to.whole():
        merges = _merges(table.metadata.properties)
        producer = appending(_as_of(table, spec_id), summary_of(record), merges=merges, before=to.left)
        for file in files:
            producer.append_data_file(file)
        updates, requirements = producer._commit()
        said = property_of(record, producer.snapshot_id, table.metadata.next_sequence_number())
    updates = (*updates, SetPropertiesUpdate(updates=said))
    requirements = (*requirements, AssertTableUUID(uuid=table.metadata.table_uuid))
    try:
        with to.answered("a commit was not answered"):
            committed = to.commit(table, updates, requirements)
    except CommitFailedException as first:
        if not _is_there(to, record, producer.snapshot_id):
            producer._clean_all_uncommitted()
            raise Refused(f"{to.path}: another writer was first", kind="commit.retries") from first
    except (StreamsinkError, OSError) as unknown:
        if not _is_there(to, record, producer.snapshot_id):
            raise OutcomeUnknown(
                f"{to.path}: the catalog did not answer to the commit of {record.state.checkpoint_name} "
                f"({type(unknown).__name__}), and does not have it now. Nothing was deleted. What was pre-committed is "
                "safe in the journal; the next start looks whether it was published, and publishes it if not",
                kind="publish.unknown",
            ) from unknown
    else:
        to.left = producer.left()
        return committed
    return None


def _as_of(table: Any, spec_id: int) -> Any:
    """The same table for making a commit, whose default partition spec is that of the files."""
    from pyiceberg.table import Table

    metadata = table.metadata
    heeded = {name: value for name, value in metadata.properties.items() if _is_heeded(name, value)}
    metadata = metadata.model_copy(update={"default_spec_id": spec_id, "properties": heeded})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)


def _is_heeded(name: str, value: str) -> bool:
    """Whether pyiceberg shall see the property when it writes manifests: it would fail for some values, and a record
    could not be published.

    The codec is meant for data files, and pyiceberg does not know each that Iceberg allows.
    """
    return name != _CODEC and (name not in _NUMBERS or str(value).isdecimal())


def _merges(properties: Mapping[str, str]) -> bool:
    """As Iceberg's own writers do: a table of many small commits would have as many manifests."""
    return str(properties.get(_MERGES, "true")).lower() == "true"


def _is_there(to: CatalogTable, record: Committable, snapshot_id: int) -> bool:
    """Whether the record is committed as this snapshot, which may have expired by now; the property stays.

    The id of the record would not do: where it is published again after a rollback, the property has it from before.
    """
    found = to.load()
    if found is None:
        return False
    said = said_of(found, record.application, to.path)
    if said is not None and said.snapshot_id == snapshot_id:
        return True
    return any(each.snapshot_id == snapshot_id for each in found.metadata.snapshots)
