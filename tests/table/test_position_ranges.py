"""Which rows lie in the positions of their batch, compared with a walk over the rows in Python; without Spark."""

import pyarrow as pa
import pytest

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import SourceRange, row_ranges
from streamsink.sinks.paimon.row_positions import judge, ranges_of
from streamsink.table.write.position_ranges import MOST_PARTITIONS, PositionRanges

COLUMNS = ("topic", "partition", "offset")
TYPES = {
    "as Kafka's": (pa.string(), pa.int32(), pa.int64()),
    "wide": (pa.large_string(), pa.int64(), pa.int64()),
    "small": (pa.string(), pa.int8(), pa.int16()),
}


def batch_of(rows, types=TYPES["as Kafka's"]) -> pa.RecordBatch:
    columns = [pa.array(values, kind if kind != pa.string() else None) for values, kind in zip(zip(*rows), types)]
    return pa.RecordBatch.from_arrays(
        [c if c.type == t else c.cast(t) for c, t in zip(columns, types)], names=list(COLUMNS)
    )


def walked(rows, sources) -> int:
    """The same, computed row by row."""

    def lies(topic, part, offset):
        found = [source.get(topic, {}).get(part) for source in sources]
        return offset is not None and any(here and here[0] <= offset < here[1] for here in found)

    return sum(not lies(*row) for row in rows)


def any_sources(rng) -> tuple:
    def source():
        topics = rng.sample(["a", "b", "c", "A", "a.b"], rng.randrange(1, 4))
        return {
            topic: {
                part: (low, low + rng.choice((0, 3, 30)))
                for part in range(rng.randrange(5))
                for low in [rng.randrange(40)]
            }
            for topic in topics
        }

    return tuple(source() for _ in range(rng.randrange(1, 4)))


@pytest.mark.parametrize("kind", TYPES)
def test_any_rows_in_any_ranges_are_counted_as_a_walk_counts_them(rng, kind):
    """There are nulls, unknown topics and partitions, numbers at the edges,
    and several sources, one after another on the same partition."""
    seen = set()
    for _ in range(200):
        sources = any_sources(rng)
        names = rng.choice((["a"], ["a", "b", "c", "d", "A", None]))
        parts = rng.choice(([rng.randrange(4)], [0, 1, 2, 3, 4, -1, 100, None]))
        offsets = [*range(60), *[None] * 30]
        rows = [(rng.choice(names), rng.choice(parts), rng.choice(offsets)) for _ in range(rng.randrange(1, 12))]
        lying = [
            (topic, part, low)
            for s in sources
            for topic, parts in s.items()
            for part, (low, high) in parts.items()
            if low < high
        ]
        if lying and rng.randrange(2):
            rows = rng.choices(lying, k=5) + rows[: rng.randrange(2)]
        outside = PositionRanges(COLUMNS, sources).outside(batch_of(rows, TYPES[kind]))
        assert outside == walked(rows, sources), (rows, sources)
        seen.add("none" if outside == 0 else "all" if outside == len(rows) else "some")
    assert seen == {"none", "some", "all"}


def test_columns_of_other_types_hold_no_positions():
    """All of their rows lie outside. Nothing raises, because a message of Arrow's would quote a value."""
    ranges = PositionRanges(COLUMNS, ({"a": {0: (0, 10)}},))
    for odd in ({"partition": [0.0]}, {"offset": ["5"]}, {"topic": [b"a"]}, {"topic": [1]}):
        assert ranges.outside(pa.RecordBatch.from_pydict({"topic": ["a"], "partition": [0], "offset": [5], **odd})) == 1
    assert ranges.outside(batch_of([("a", 0, 5)]).slice(0, 0)) == 0


def test_a_partition_s_number_is_bounded():
    """Otherwise an array of as many elements would be made."""
    batch = Batch(7, "query", "run", (SourceRange(None, {"a": {str(MOST_PARTITIONS): 10, "0": 10}}),))
    with pytest.raises(Misuse, match="lake: the source says partition 1048576 of 'a'") as refused:
        ranges_of("lake", batch, SinkOptions(position_columns=COLUMNS))
    assert refused.value.kind == "positions.partitions"


def test_ranges_are_what_the_sources_say_or_nothing():
    """An unknown start is 0. If one source is not numeric, positions filter nothing and are not asked for."""
    kafka = SourceRange({"t": {"0": 5}}, {"t": {"0": 9, "1": 3}})
    assert row_ranges((kafka, SourceRange(None, {"u": {"7": 4}}))) == (
        {"t": {0: (5, 9), 1: (0, 3)}},
        {"u": {7: (0, 4)}},
    )
    assert row_ranges((kafka, SourceRange(None, {"logOffset": 3}))) == row_ranges(()) == ()


def test_rows_outside_are_refused_with_counts_and_names_and_no_value():
    options = SinkOptions.of("lake", {"position_columns": COLUMNS})
    batch = Batch(7, "query", "run", (SourceRange({"t": {"0": 5}}, {"t": {"0": 9}}),))
    ranges = ranges_of("lake", batch, options)
    assert ranges_of("lake", batch, SinkOptions()) is None
    assert ranges.outside(batch_of([("t", 0, 5), ("t", 0, 8)])) == 0
    rows = batch_of([("secret", 0, 5), ("t", 0, 987654), ("t", 0, 6)])
    types = {name: str(rows.schema.field(name).type) for name in COLUMNS}
    judge("lake", batch, options, types, (3, 0))
    with pytest.raises(Misuse) as refused:
        judge("lake", batch, options, types, (3, ranges.outside(rows)))
    message = str(refused.value)
    assert refused.value.kind == "positions.columns"
    assert all(
        word in message
        for word in ("lake", "batch 7", "2 of 3 rows", "'offset' (int64) as the offset", "'t'", "position_columns")
    )
    assert "secret" not in message and "987654" not in message
