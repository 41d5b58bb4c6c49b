"""Entries of Spark's offset log, in both of its formats: which source is where."""

import json

import pytest

from streamsink.spark.gateway.offset_log import UnknownFormat, parse, ranges

_NAMES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def entry(version: str, *lines: str, named: bool = False) -> str:
    metadata = {
        "batchWatermarkMs": 7000,
        "batchTimestampMs": 1_700_000_000_123,
        "conf": {"a": "1\n2", _NAMES: str(named).lower()},
    }
    return "\n".join([version, json.dumps(metadata), *lines])


def named(*lines: str) -> str:
    return entry("v2", *lines, named=True)


def test_version_one_knows_sources_by_their_place():
    """There is one line a source: a JSON text, any other text, or '-' for a source without a position."""
    logged = parse(entry("v1", '{"t":{"0":5}}', "-", "opaque:text", '{"logOffset":3}'))
    assert logged.positions == {"0": {"t": {"0": 5}}, "1": None, "2": "opaque:text", "3": {"logOffset": 3}}
    assert (logged.watermark_ms, logged.planned_ms, logged.named) == (7000, 1_700_000_000_123, False)


@pytest.mark.parametrize("metadata", ["", "{}", '{"batchWatermarkMs":0,"batchTimestampMs":0}'])
def test_an_entry_may_not_say_when_it_was_planned(metadata):
    """Entries without metadata are those of old versions and of continuous queries."""
    assert parse(f"v1\n{metadata}\n5").planned_ms == 0


def test_version_two_says_the_source_before_the_first_colon():
    """Spark writes the lines in any order; what follows the first colon is the position, colons and all."""
    logged = parse(entry("v2", '1:{"logOffset":3}', '0:{"t":{"0":5}}', "2:-", "10:a:b"))
    assert logged.positions == {"0": {"t": {"0": 5}}, "1": {"logOffset": 3}, "2": None, "10": "a:b"}
    assert (logged.watermark_ms, logged.planned_ms, logged.named) == (7000, 1_700_000_000_123, False)


def test_version_two_has_names_when_the_query_evolves_its_sources():
    """Names may look like numbers."""
    logged = parse(named('refunds:{"logOffset":1}', '7:{"logOffset":9}'))
    assert logged.positions == {"7": {"logOffset": 9}, "refunds": {"logOffset": 1}} and logged.named


@pytest.mark.parametrize(
    "text", ["", "v1", "v3\n{}\n1", "v2\n{}\nno colon", "v2\n{}\n0:1\n0:2", "V1\n{}\n-", "v2\n{}\nname:1"]
)
def test_anything_else_is_refused(text):
    """This is a torn entry, a newer format, a line without a source,
    a source that comes twice, or a name without source evolution."""
    with pytest.raises(UnknownFormat):
        parse(text)


def pairs(before, after, order=(), streams=None):
    streams = range(len(parse(after).positions)) if streams is None else streams
    found = ranges(before and parse(before), parse(after), lambda: order, list(streams))
    return [(source.name, source.start, source.end) for source in found]


def test_a_source_goes_on_where_the_entry_before_left_it():
    """The entries are of one version, with their lines in any order; named sources come in the order of the query."""
    assert pairs(entry("v1", "1", "2"), entry("v1", "3", "4")) == [("", 1, 3), ("", 2, 4)]
    assert pairs(entry("v2", "1:2", "0:1"), entry("v2", "0:3", "1:4")) == [("", 1, 3), ("", 2, 4)]
    assert pairs(named("b:2", "a:1"), named("a:3", "b:4"), ["b", "a"]) == [("b", 2, 4), ("a", 1, 3)]


def test_the_first_entry_has_no_starts():
    """Neither have sources that the entry before does not have."""
    assert pairs(None, entry("v1", "3", "4")) == [("", None, 3), ("", None, 4)]
    assert pairs(entry("v1", "1"), entry("v1", "3", "4"), streams=[]) == [("", None, 3), ("", None, 4)]


def test_named_sources_may_come_and_go():
    """A new source has no start, and one that is gone has no range."""
    assert pairs(named("a:1", "b:2"), named("c:9", "b:3"), ["c", "b"]) == [("c", None, 9), ("b", 2, 3)]


def test_a_log_may_go_on_in_version_two():
    """Numbers are places, and so are names at first: in the order of the query, which is asked for them only."""
    assert pairs(entry("v1", "1", "2"), entry("v2", "1:4", "0:3")) == [("", 1, 3), ("", 2, 4)]
    assert pairs(entry("v1", "1", "2"), named("a:4", "z:3"), ["z", "a"]) == [("z", 1, 3), ("a", 2, 4)]
    assert pairs(entry("v1", "1", "2"), named("a:4", "z:3")) == [("a", None, 4), ("z", None, 3)]


def test_a_dataframe_that_is_used_twice_has_two_places_and_one_line():
    """It has one line in version 2, and two in version 1. Both say the same of the batch."""
    first, second = entry("v2", "1:5", "2:1"), entry("v2", "1:6", "2:2")
    assert pairs(first, second, streams=[0, 1, 0]) == [("", 1, 2), ("", 5, 6), ("", 1, 2)]
    assert pairs(entry("v1", "1", "5", "1"), second, streams=[0, 1, 0]) == [("", 1, 2), ("", 5, 6), ("", 1, 2)]
