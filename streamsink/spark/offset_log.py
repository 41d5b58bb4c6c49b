"""One entry of Spark's offset log as text, in both of its formats, and what it says of a batch. Pure. DRIVER.

    v1                                   v2 (Spark 4.2 and newer)
    {"batchWatermarkMs":0,...}           {"batchWatermarkMs":0,...}
    {"logOffset":3}                      0:{"logOffset":3}
    -                                    1:-

A line of version 1 belongs to the source at its place in the query. A line of version 2 says its source: by its place, or by
the name that ``DataStreamReader.name`` gave it; the lines are in no order.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from streamsink.protocol.positions import SourceRange

_VERSIONS = ("v1", "v2")
_NO_OFFSET = "-"


class UnknownFormat(ValueError):
    """The text is no entry in a format that is known here."""


@dataclass(frozen=True)
class Logged:
    """One entry. positions: by source, None for a source that has none yet; in the order of places, or of names.

    named: whether sources have names; else they are the places "0", "1", ...
    """

    positions: Mapping[str, object]
    watermark_ms: int | None
    named: bool


def parse(text: str) -> Logged:
    """Raises UnknownFormat, whose text says what was found."""
    lines = text.split("\n")
    version = lines[0]
    if version not in _VERSIONS or len(lines) < 3:
        raise UnknownFormat(f"'{version[:10]}' and {len(lines) - 1} more lines, expected v1 or v2 and at least 2 more")
    metadata = json.loads(lines[1]) if lines[1] else {}
    given = [line for line in lines[2:] if line]
    pairs = [_pair(line) for line in given] if version == "v2" else [(str(place), line) for place, line in enumerate(given)]
    positions = {source: _position(text) for source, text in pairs}
    if len(positions) != len(pairs):
        raise UnknownFormat("a source has two lines")
    places = [str(place) for place in range(len(pairs))]
    named = set(positions) != set(places)
    order = sorted(positions) if named else places
    return Logged({source: positions[source] for source in order}, metadata.get("batchWatermarkMs") or None, named)


def ranges(before: Logged | None, after: Logged, query_order: Callable[[], Sequence[str] | None]) -> list[SourceRange]:
    """The share of each source in the batch that ``after`` is the entry of; ``before``: of the batch before, None for the first.

    A start is None where the entry before does not tell it. query_order: names of the sources in the order of the running
    query, or None; asked when a log of places goes on with names.
    """
    names = list(after.positions)
    starts = dict.fromkeys(names)
    if before is not None and before.named == after.named:
        if after.named or len(before.positions) == len(names):
            starts = {name: before.positions.get(name) for name in names}
    elif before is not None and after.named and len(before.positions) == len(names):
        order = list(query_order() or ())
        if sorted(order) == names:
            starts = dict(zip(order, before.positions.values()))
    return [SourceRange(starts[name], after.positions[name], name=name if after.named else "") for name in names]


def _pair(line: str) -> tuple[str, str]:
    source, colon, position = line.partition(":")
    if not colon:
        raise UnknownFormat("a line of version v2 without a source")
    return source, position


def _position(text: str):
    if text == _NO_OFFSET:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text  # a source may write any text; it then compares for equality only
