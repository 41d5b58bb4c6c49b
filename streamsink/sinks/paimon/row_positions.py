"""Whether each row of a batch lies in the batch's own positions, by the columns that ``position_columns`` names.

This module says what the rows are compared with, and makes the error when some of them lie elsewhere.
"""

from collections.abc import Mapping
from typing import cast

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import row_ranges
from streamsink.table.write.position_ranges import PositionRanges, check_numbers

_MOST_NAMED = 3
_WHAT = ("topic", "partition", "offset")


def ranges_of(table: str, batch: Batch, options: SinkOptions) -> PositionRanges | None:
    """What the rows of this batch are compared with; None when nothing is to be compared.

    Nothing is compared without ``position_columns``, for a bounded job, and where a source has no positions that can be
    compared: then no row is filtered by these columns. Raises Misuse when the source numbers its partitions in another
    way than Kafka.
    """
    sources = row_ranges(batch.sources) if options.position_columns else ()
    for source in sources:
        check_numbers(table, source)
    columns = cast("tuple[str, str, str]", options.position_columns)  # ``SinkOptions.of`` takes three names or none
    return PositionRanges(columns, sources) if sources else None


def judge(table: str, batch: Batch, options: SinkOptions, types: Mapping[str, str], counted: tuple[int, int]) -> None:
    """Raises Misuse ``positions.columns`` unless all rows lie in the batch's positions.

    types: of the position columns, in words. counted: (rows of the whole batch, how many of them lie elsewhere).
    """
    rows, outside = counted
    if outside:
        raise Misuse(
            f"{table}: {_found(batch, outside, rows)}. {_expected(batch, options, types)}", kind="positions.columns"
        )


def _found(batch: Batch, outside: int, rows: int) -> str:
    return (
        f"in batch {batch.batch_id} {outside:,} of {rows:,} rows do not lie in the positions that the batch covers, as "
        "their position columns say: the topic, the partition or the offset is null, or is not that of a message of "
        "this batch"
    )


def _expected(batch: Batch, options: SinkOptions, types: Mapping[str, str]) -> str:
    columns = ", ".join(
        f"'{name}' ({types[name]}) as the {what}" for what, name in zip(_WHAT, options.position_columns)
    )
    topics = sorted({topic for source in row_ranges(batch.sources) for topic in source})
    named = ", ".join(f"'{topic}'" for topic in topics[:_MOST_NAMED])
    more = f" and {len(topics) - _MOST_NAMED} more" if len(topics) > _MOST_NAMED else ""
    without = "" if options.store_position_columns else " and drop the three columns in the query"
    return (
        f"position_columns takes {columns}; expected is what the source says of the message that the row was made of, "
        f"unchanged (topic: {named}{more}). Such rows would be doubled or lost when a checkpoint is lost. Nothing of "
        "the batch was recorded or published. Carry the three columns unchanged from the source to the sink, and name "
        "them in the order topic, partition, offset (an outer join, a union with other data and a column that is "
        f"computed do not carry them); or leave position_columns out{without}: a lost checkpoint is an error then, "
        "instead of a filter"
    )
