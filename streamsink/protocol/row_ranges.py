"""The positions in which each row of a batch must lie, as plain maps; nothing where positions do not compare."""

from streamsink.protocol.positions import SourceRange, all_numeric


def row_ranges(sources: tuple[SourceRange, ...]) -> tuple[dict[str, dict[int, tuple[int, int]]], ...]:
    """{topic: {partition: (start, end)}} of each source; empty unless all sources have numeric positions.

    Where Spark does not say a start, it is taken as 0: a row of the partition lies before the end then.
    """
    if not all_numeric(sources):
        return ()
    return tuple(
        {
            topic: {int(part): (source.first(topic, part) or 0, end) for part, end in parts.items()}
            for topic, parts in source.end.items()
        }
        for source in sources
    )
