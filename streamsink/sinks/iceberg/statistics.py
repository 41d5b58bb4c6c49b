"""What a manifest says of the values of a data file, for readers that leave files out by it. Driver only.

pyiceberg makes it of a Parquet footer. It is asked only for what it makes rightly: a bound that is too narrow hides
rows from readers, and an error would keep a record from being published for ever. A file without bounds is read.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink.events import log

# An upper bound is cut off, and its last character replaced by the next one: pyiceberg takes a half of a pair for it.
_NO_SUCCESSOR = "\ud7ff"
_ID = b"PARQUET:field_id"


def statistics(schema: Any | None, properties: Mapping[str, str], footer: pq.FileMetaData) -> Mapping[str, Any]:
    """Sizes, counts and bounds of a file's columns, as a ``DataFile`` takes them.

    schema: of the table when the file was written; where it was removed since, it is None, or another one that was
    given its number: then only the rows are counted. properties: of the table, which say what is wanted.
    """
    from pyiceberg.io.pyarrow import (
        MetricModeTypes,
        MetricsMode,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
        schema_to_pyarrow,
    )

    if schema is None or _ids(schema_to_pyarrow(schema)) != _ids(footer.schema.to_arrow_schema()):
        return {"record_count": footer.num_rows}
    ids = parquet_path_to_id_mapping(schema)
    plan = _plan(schema, properties)
    for path in set(_unbounded(footer)):
        wanted = plan[ids[path]]
        if wanted.mode != MetricsMode(MetricModeTypes.NONE):
            plan[ids[path]] = dataclasses.replace(wanted, mode=MetricsMode(MetricModeTypes.COUNTS))
    return data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer, stats_columns=plan, parquet_column_mapping=ids
    ).to_serialized_dict()


def _ids(fields: Iterable[pa.Field]) -> list[tuple[str, bytes]]:
    """Names and ids of columns and of their parts."""
    found = []
    for field in fields:
        if _ID in (field.metadata or {}):  # the pairs of a map have none
            found.append((field.name, field.metadata[_ID]))
        found += _ids([field.type.field(number) for number in range(field.type.num_fields)])
    return found


def _plan(schema: Any, properties: Mapping[str, str]) -> dict[int, Any]:
    from pyiceberg.io.pyarrow import compute_statistics_plan

    try:
        return dict(compute_statistics_plan(schema, properties))
    except ValueError as bad:  # Iceberg's own writers warn, too, and go on as if it were not set
        log.warning("a table property write.metadata.metrics... has a value that nobody knows: %s", bad)
        return dict(compute_statistics_plan(schema, {}))


def _unbounded(footer: pq.FileMetaData) -> Iterator[str]:
    """Paths of columns of which a row group has values, and no bounds that can be read.

    pyarrow leaves out bounds of more than 4 KiB, and pyiceberg would take those of the other row groups for all. A text
    may be no UTF-8, as Spark does not look at what it casts to one; a time may be of a year that Python does not know,
    as milliseconds are that are taken for seconds.
    """
    for group in range(footer.num_row_groups):
        for at in range(footer.num_columns):
            column = footer.row_group(group).column(at)
            found = column.statistics
            try:
                if found is None or found.null_count != column.num_values and not found.has_min_max:
                    yield column.path_in_schema
                elif found.has_min_max:
                    _, most = found.min, found.max
                    if _NO_SUCCESSOR in str(most):
                        yield column.path_in_schema
            except (OverflowError, ValueError):
                yield column.path_in_schema
