"""Entries of Spark's offset log, in both of its formats: which source is where."""

import json

import pytest

from streamsink.spark.offset_log import UnknownFormat, parse, ranges

_METADATA = json.dumps({"batchWatermarkMs": 7000, "batchTimestampMs": 1, "conf": {"a": "1\n2"}})


def entry(version: str, *lines: str) -> str:
    return "\n".join([version, _METADATA, *lines])


def test_version_one_names_sources_by_their_place():
    """A line a source: a JSON text, any other text, or '-' for a source without a position."""
    logged = parse(entry("v1", '{"t":{"0":5}}', "-", "opaque:text", '{"logOffset":3}'))
    assert logged.positions == {"0": {"t": {"0": 5}}, "1": None, "2": "opaque:text", "3": {"logOffset": 3}}
    assert logged.watermark_ms == 7000 and not logged.named


def test_version_two_says_the_source_before_the_first_colon():
    """Spark writes the lines in any order; what follows the first colon is the position, colons and all."""
    logged = parse(entry("v2", '1:{"logOffset":3}', '0:{"t":{"0":5}}', "2:-", "10:a:b", "3:x", "4:x", "5:x", "6:x", "7:x", "8:x", "9:x"))
    assert list(logged.positions) == [str(number) for number in range(11)]
    assert logged.positions["0"] == {"t": {"0": 5}} and logged.positions["1"] == {"logOffset": 3}
    assert logged.positions["2"] is None and logged.positions["10"] == "a:b"
    assert logged.watermark_ms == 7000 and not logged.named


def test_version_two_with_names_is_in_the_order_of_the_names():
    """Spark's order is that of a hash map, and changes when the query is written in another order."""
    logged = parse(entry("v2", 'refunds:{"logOffset":1}', 'orders:{"logOffset":9}'))
    assert logged.positions == {"orders": {"logOffset": 9}, "refunds": {"logOffset": 1}}
    assert list(logged.positions) == ["orders", "refunds"] and logged.named


def test_numbers_that_do_not_count_from_zero_are_names():
    """A source may be named '7'."""
    assert parse(entry("v2", "7:{}", "9:{}")).named


@pytest.mark.parametrize("text", ["", "v1", "v3\n{}\n1", "v2\n{}\nno colon", "v2\n{}\n0:1\n0:2", "V1\n{}\n-"])
def test_anything_else_is_refused(text):
    """A torn entry, a newer format, a line without a source, or a source twice."""
    with pytest.raises(UnknownFormat):
        parse(text)


def pairs(before, after, order=None):
    return [(r.source, r.start, r.end) for r in ranges(before and parse(before), parse(after), lambda: order)]


def test_a_source_goes_on_where_the_entry_before_left_it():
    """Of one version, in any order of the lines."""
    assert pairs(entry("v1", "1", "2"), entry("v1", "3", "4")) == [("", 1, 3), ("", 2, 4)]
    assert pairs(entry("v2", "1:2", "0:1"), entry("v2", "0:3", "1:4")) == [("", 1, 3), ("", 2, 4)]
    assert pairs(entry("v2", "b:2", "a:1"), entry("v2", "a:3", "b:4")) == [("a", 1, 3), ("b", 2, 4)]


def test_the_first_entry_has_no_starts():
    """Nor have the sources of a query that became more in version 1, where places say nothing then."""
    assert pairs(None, entry("v1", "3", "4")) == [("", None, 3), ("", None, 4)]
    assert pairs(entry("v1", "1"), entry("v1", "3", "4")) == [("", None, 3), ("", None, 4)]


def test_named_sources_may_come_and_go():
    """A source that is new has no start; one that is gone has no range."""
    assert pairs(entry("v2", "a:1", "b:2"), entry("v2", "c:9", "b:3")) == [("b", 2, 3), ("c", None, 9)]


def test_a_log_may_go_on_in_version_two():
    """Numbers are places. Names stand for places as the running query lists them, which is asked only then."""
    assert pairs(entry("v1", "1", "2"), entry("v2", "1:4", "0:3")) == [("", 1, 3), ("", 2, 4)]
    assert pairs(entry("v1", "1", "2"), entry("v2", "a:4", "z:3"), order=["z", "a"]) == [("z", 1, 3), ("a", 2, 4)]
    assert pairs(entry("v1", "1", "2"), entry("v2", "a:4", "z:3")) == [("a", None, 4), ("z", None, 3)]
