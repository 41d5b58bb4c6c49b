"""One entry of Spark's offset log as text, in both of its formats, and what it says of a batch.

Pure; runs on the driver.

    v1                                   v2 (Spark 4.2 and newer)
    {"batchWatermarkMs":0,...}           {"batchWatermarkMs":0,...}
    {"logOffset":3}                      1:-
    -                                    0:{"logOffset":3}

A line of version 1 belongs to the source at its place in the query. A line of version 2 names its source: by the
source's place, or, with Spark's source evolution, by the name that ``DataStreamReader.name`` gave it. Its lines are in
no order. A DataFrame that is used twice in a query is one source with two places; version 2 has a line for one of them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsink.protocol.positions import SourceRange

_VERSIONS = ("v1", "v2")
_NO_OFFSET = "-"
_NAMES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


class UnknownFormat(ValueError):
    """The text is no entry in a format that is known here."""


@dataclass(frozen=True)
class Logged:
    """One entry.

    positions: by source; None for a source that has no position yet. watermark_ms: in epoch milliseconds; None when
    there is none. named: whether sources have names; otherwise they are called "0", "1", ...
    planned_ms: when the batch was planned, which its replays do not change; 0 when the entry does not say it.
    """

    positions: Mapping[str, object]
    watermark_ms: int | None
    named: bool
    planned_ms: int = 0

    def by_source(self, names: Sequence[str], streams: Sequence[int]) -> dict[str, object]:
        """The positions in the order of the query. names, streams: as for ``ranges``."""
        if self.named:
            return {name: self.positions[name] for name in (*names, *sorted(self.positions)) if name in self.positions}
        places = {int(place): position for place, position in self.positions.items()}
        of_stream = {streams[place]: position for place, position in places.items() if place < len(streams)}
        count = max(len(streams), *(place + 1 for place in places))
        return {
            str(place): places[place]
            if place in places
            else of_stream.get(streams[place])
            if place < len(streams)
            else None
            for place in range(count)
        }


def parse(text: str) -> Logged:
    """Read an entry. Raises UnknownFormat, whose text says what was found."""
    lines = text.split("\n")
    version = lines[0]
    if version not in _VERSIONS or len(lines) < 3:
        raise UnknownFormat(f"'{version[:10]}' and {len(lines) - 1} more lines, expected v1 or v2 and at least 2 more")
    metadata = json.loads(lines[1]) if lines[1] else {}
    given = [line for line in lines[2:] if line]
    pairs = (
        [_pair(line) for line in given] if version == "v2" else [(str(place), line) for place, line in enumerate(given)]
    )
    positions = {source: _position(text) for source, text in pairs}
    named = version == "v2" and metadata.get("conf", {}).get(_NAMES) == "true"
    if len(positions) != len(pairs):
        raise UnknownFormat("a source has two lines")
    if not named and not all(source.isascii() and source.isdecimal() for source in positions):
        raise UnknownFormat("a source has a name, without source evolution")
    return Logged(positions, metadata.get("batchWatermarkMs") or None, named, metadata.get("batchTimestampMs") or 0)


def ranges(
    before: Logged | None, after: Logged, names: Callable[[], Sequence[str]], streams: Sequence[int]
) -> list[SourceRange]:
    """Return the share of each source in the batch that ``after`` is the entry of, in the order of the query.

    before: the entry of the batch before; None for the first batch. The start of a source is None where ``before`` does
    not tell it.
    names: returns the names of the sources in the order of the query. It is called only when sources have names.
    streams: for each place a number, which is equal for places of the same source.
    """
    order = names() if after.named else ()
    ends = after.by_source(order, streams)
    starts: dict[str, object] = {}
    if before is not None:
        known = before.by_source(order, streams)
        if before.named == after.named and (after.named or len(known) == len(ends)):
            starts = known
        elif after.named and not before.named and list(ends) == list(order) and len(known) == len(ends):
            starts = dict(zip(order, known.values()))
    return [SourceRange(starts.get(source), end, name=source if after.named else "") for source, end in ends.items()]


def _pair(line: str) -> tuple[str, str]:
    source, colon, position = line.partition(":")
    if not colon:
        raise UnknownFormat("a line of version v2 without a source")
    return source, position


def _position(text: str) -> Any:
    if text == _NO_OFFSET:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text  # a source may write any text, which is compared for equality only
