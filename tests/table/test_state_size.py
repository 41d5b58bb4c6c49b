"""How much of a snapshot the state of an application takes, and that it is read as it was written."""

import base64
import json
import zlib

import pytest

from streamsink.errors import Corrupt
from streamsink.format.snapshot import Snapshot
from streamsink.protocol.committable import AppState
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.recorded import Recorded, TopicRecord
from streamsink.table.application_states import States, base85, states_in
from tests.protocol.test_positions import source

MOST_BYTES = 100_000
PARTITIONS = 3000


def _snapshot(properties: dict[str, str]) -> Snapshot:
    """The snapshot as it comes back from the table."""
    made = Snapshot(
        id=7,
        schema_id=0,
        base_manifest_list="base",
        delta_manifest_list="delta",
        commit_user="u",
        commit_identifier=7,
        commit_kind="APPEND",
        time_millis=1,
        total_record_count=1,
        delta_record_count=1,
        properties=properties,
    )
    return Snapshot.from_json(made.to_json(), "snapshot-7")


def _id(rng) -> str:
    """An id as Kafka makes one: 16 random bytes in URL-safe base64."""
    return base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")


def _sources(rng, topics: int) -> tuple[SourceRange, ...]:
    """Sources with offsets of a trillion messages, and a batch that is large."""
    parts = [str(part) for part in range(PARTITIONS // topics)]
    names = [f"shop.orders.{number:04}" for number in range(topics)]
    end = {topic: {part: rng.randint(10**11, 10**12) for part in parts} for topic in names}
    start = {topic: {part: at - rng.randint(0, 10**6) for part, at in known.items()} for topic, known in end.items()}
    return (source(start, end, _id(rng), {topic: _id(rng) for topic in names}),)


def _ahead(rng, sources: tuple[SourceRange, ...]) -> Recorded:
    """A record that is ahead of the batch in every partition, as after a replay."""
    (read,) = sources
    return Recorded.of(
        TopicRecord(
            "0",
            topic,
            read.cluster,
            read.topic_id(topic),
            {part: at + rng.randint(0, 10**7) for part, at in known.items()},
        )
        for topic, known in read.end.items()
    )


def _state(sources: tuple[SourceRange, ...], recorded: Recorded) -> dict:
    return AppState("query", 0, 1, 5, 6, "record", "table", sources, recorded).to_json()


@pytest.mark.parametrize("topics", [1, 3, 100, 200, 500, 1000, 1500, 3000])
def test_three_thousand_partitions_take_less_than_a_hundred_kilobytes_of_a_snapshot(rng, topics):
    sources = _sources(rng, topics)
    for recorded in (Recorded().advanced(sources), _ahead(rng, sources)):
        state = _state(sources, recorded)
        properties = States({}, True).properties("shop", state)
        assert len(json.dumps(properties)) < MOST_BYTES, "with the quotes that a snapshot's property adds"
        (said,) = states_in(_snapshot(properties), "snapshot-7").values()
        assert said == state
        found = AppState.from_json(said)
        assert [record.next for record in found.recorded.topics] == [record.next for record in recorded.topics]
        assert all(record.agrees(sources[0]) for record in found.recorded.topics)


def test_a_short_state_can_be_read_in_the_snapshot(rng):
    """An operator who opens the file sees it."""
    state = _state(_sources(rng, 1), Recorded())
    assert json.loads(States({}, True).properties("shop", state)["streamsink.app.shop"]) == state


def test_our_base85_is_that_of_the_library(rng):
    """For every length, and for words that begin with zeros or are the greatest."""
    for length in range(70):
        for data in (rng.randbytes(length), bytes(length), b"\xff" * length):
            assert base85(data) == base64.b85encode(data).decode()


def test_a_deflated_state_is_read(rng):
    """Earlier code wrote it so."""
    state = _state(_sources(rng, 500), Recorded())
    text = "deflate:" + base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    assert states_in(_snapshot({"streamsink.app.shop": text}), "snapshot-7") == {"shop": state}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-8],
        lambda text: text[:40] + "," + text[41:],
        lambda text: text[:400] + "A" * 8 + text[408:],
        lambda text: text.replace(":", ":1", 1),
        lambda text: text.replace(":", ";"),
    ],
)
def test_a_compressed_state_that_was_altered_is_an_error(rng, damage):
    properties = States({}, True).properties("shop", _state(_sources(rng, 1000), Recorded()))
    altered = _snapshot(properties | {"streamsink.app.shop": damage(properties["streamsink.app.shop"])})
    with pytest.raises(Corrupt) as refused:
        states_in(altered, "table/snapshot/snapshot-7")
    assert refused.value.kind == "snapshot.state" and "table/snapshot/snapshot-7" in str(refused.value)
