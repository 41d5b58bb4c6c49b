"""Where a new checkpoint begins, as the table says it: for one source of the query, and for topics that begin anew."""

import json

import pytest

import streamsink
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import SourceRange
from streamsink.storage.file_io import FileIO
from tests.crash.world import posix_world
from tests.protocol.history import roll_back
from tests.protocol.query import QUERY


def table_of(folder, *sources) -> str:
    """A table that has one batch of these sources: {topic: {partition: end}} of each, or (name, such a dictionary)."""
    world = posix_world(folder)
    given = [source if isinstance(source, tuple) else ("", source) for source in sources]
    ranges = tuple(
        SourceRange({t: dict.fromkeys(parts, 0) for t, parts in end.items()}, end, name=name) for name, end in given
    )
    sink = world.driver.start(FileIO(world.calls, IdSource().new_id), world.checkpoint)
    sink.batch(Batch(0, QUERY, "run", ranges))
    sink.close()
    return world.driver.root


def begin(table, **wanted):
    return json.loads(streamsink.starting_offsets(table, **wanted))


def test_sources_that_read_other_topics_or_agree_are_one_answer(tmp_path):
    table = table_of(tmp_path, {"t": {"0": 7}}, {"t": {"0": 7}, "u": {"0": 9}})
    assert begin(table) == {"t": {"0": 7}, "u": {"0": 9}}
    assert begin(table, source=0) == {"t": {"0": 7}}


def test_sources_that_disagree_are_asked_for_one_by_one(tmp_path):
    """A8: one answer for both would be a gap for one of them, or an overlap."""
    table = table_of(tmp_path, {"t": {"0": 7}}, ("slow", {"t": {"0": 3}}))
    with pytest.raises(Misuse, match="'0', 'slow'") as refused:
        begin(table)
    assert refused.value.kind == "positions.several-sources" and table in str(refused.value)
    assert begin(table, source=0) == {"t": {"0": 7}}
    assert begin(table, source="slow", partitions={"t": 2}) == {"t": {"0": 3, "1": -2}}
    with pytest.raises(Misuse, match="'0', 'slow'"):
        begin(table, source=2)


def test_a_topic_that_is_another_one_now_begins_at_its_earliest_offset(tmp_path):
    """It has as many partitions as an error says that it has now, otherwise as many as it had."""
    table = table_of(tmp_path, {"t": {"0": 7, "1": 8}, "u": {"0": 9}})
    assert begin(table, from_beginning=["t"]) == {"t": {"0": -2, "1": -2}, "u": {"0": 9}}
    assert begin(table, from_beginning=["t"], partitions={"t": 1}) == {"t": {"0": -2}, "u": {"0": 9}}


def test_what_a_rollback_has_taken_does_not_count(tmp_path):
    """Formerly the journal's positions were returned, which are behind rows that the table lacks:
    who began there under another name lost them."""
    world = posix_world(tmp_path)
    world.run(boundaries=(6, 9))
    assert begin(world.driver.root) == {"t": {"0": 9}}
    roll_back(world, 1)
    assert begin(world.driver.root) == {"t": {"0": 6}}
