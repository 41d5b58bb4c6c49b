"""A position is (cluster id, topic id, partition, offset) of one source:
what is recorded of it, how, and how large that is."""

import dataclasses
import json

from streamsink.protocol.admission.continuity import changes, relate
from streamsink.protocol.admission.renamed import starting_at
from streamsink.protocol.positions import SourceRange, pack, unpack
from streamsink.protocol.recorded import Recorded, TopicRecord


def source(start, end, cluster="c", ids=None, **more):
    return SourceRange(
        start, end, cluster=cluster, topic_ids=ids if ids is not None else {t: f"id-{t}" for t in end}, **more
    )


def again(sources, recorded):
    """What a state says after it went through JSON, as in a snapshot."""
    text = json.dumps({"sources": [s.to_json() for s in sources], "recorded": recorded.to_json(sources)})
    value = json.loads(text)
    read = tuple(SourceRange.from_json(s) for s in value["sources"])
    return read, Recorded.from_json(value["recorded"], read)


def same(one, other):
    """Whether two values are equal, their ids included."""
    return [(s.start, s.end, s.fingerprint, s.name, s.cluster, dict(s.topic_ids)) for s in one] == [
        (s.start, s.end, s.fingerprint, s.name, s.cluster, dict(s.topic_ids)) for s in other
    ]


def test_partitions_that_are_far_apart_are_not_an_array_of_holes():
    assert pack({"0": 5, "2": 7}) == [5, None, 7]
    assert pack({"4999": 1}) == {"4999": 1}
    for parts in ({}, {"0": 5, "2": 7}, {"4999": 1}):
        assert unpack(pack(parts)) == parts


def test_any_range_and_any_record_are_read_as_they_were_written(rng):
    """This includes partitions that began and have no end, deleted topics,
    sources without positions, and records ahead of a batch."""

    def offsets():
        topics = rng.sample(["a", "b", "c", "d"], rng.randint(1, 3))
        return {t: {str(p): rng.randint(0, 10**12) for p in rng.sample(range(30), rng.randint(0, 6))} for t in topics}

    def kafka():
        end = offsets()
        ids = {topic: "x" for topic in end if rng.random() < 0.5}
        return source(
            rng.choice([None, {}, offsets()]), end, rng.choice(["", "c"]), ids, name=rng.choice(["", str(rng.random())])
        )

    for _ in range(300):
        opaque = SourceRange({"logOffset": 1}, {"logOffset": 2}, "digest"), SourceRange(None, "text")
        sources = tuple(rng.choice([kafka(), kafka(), *opaque]) for _ in range(rng.randint(1, 3)))
        before = Recorded.of(
            TopicRecord(rng.choice("012"), topic, "c", "x", parts) for topic, parts in offsets().items()
        )
        for recorded in (Recorded(), before, before.advanced(sources)):
            assert again(sources, recorded)[1] == recorded
            assert same(again(sources, recorded)[0], sources)


def test_what_cde7565_wrote_is_read_without_ids_and_each_source_keeps_its_own_position():
    """That version merged sources of one topic to the lower position, but also said where each of them ended."""
    old = [{"start": {"t": {"0": 0}}, "end": {"t": {"0": end}}, "fingerprint": ""} for end in (20, 8)]
    sources = tuple(SourceRange.from_json(value) for value in old)
    recorded = Recorded.from_json({"t": {"0": 8, "7": 3}, "left": {"0": 1}}, sources)
    assert [(r.source, r.topic, r.topic_id, r.next) for r in recorded.topics] == [
        ("", "left", "", {"0": 1}),
        ("0", "t", "", {"0": 20, "7": 3}),
        ("1", "t", "", {"0": 8, "7": 3}),
    ]


def test_a_record_without_ids_gets_them_from_the_next_batch():
    """An earlier version wrote the table. There is no alarm, and from then on the ids are known."""
    old = Recorded.from_json({"t": {"0": 8}}, ())
    batch = (source({"t": {"0": 8}}, {"t": {"0": 9}}),)
    assert old.advanced(batch).topics == (TopicRecord("0", "t", "c", "id-t", {"0": 9}),)


def test_what_the_broker_does_not_tell_stays_as_it_is_known():
    recorded = Recorded((TopicRecord("0", "t", "c", "id-t", {"0": 8}),))
    silent = (SourceRange({"t": {"0": 8}}, {"t": {"0": 9}}),)
    assert recorded.advanced(silent).topics == (TopicRecord("0", "t", "c", "id-t", {"0": 9}),)


def test_ranges_with_the_same_positions_are_equal_whatever_is_known_of_their_ids():
    """A replay is the same batch even if the broker did not tell its ids the first time."""
    known = source({"t": {"0": 8}}, {"t": {"0": 9}})
    assert known == SourceRange({"t": {"0": 8}}, {"t": {"0": 9}})
    assert known != dataclasses.replace(known, end={"t": {"0": 10}})


def test_where_a_batch_begins_is_one_option_or_one_for_each_source():
    """Spark says no start for a partition that this batch has for the first time."""
    one, apart = (SourceRange({"t": {"0": start}}, {"t": {"0": 9, "1": 2}}) for start in (3, 4))
    other = SourceRange({"u": {"0": 5}}, {"u": {"0": 6}})
    assert starting_at([one, other]) == """startingOffsets='{"t": {"0": 3, "1": -2}, "u": {"0": 5}}'"""
    assert starting_at([one, apart]) == (
        """startingOffsets='{"t": {"0": 3, "1": -2}}' for its source '0' and """
        """startingOffsets='{"t": {"0": 4, "1": -2}}' for its source '1'"""
    )


def _next(rng, place, read):
    """What a source may read next: where it ended, and now and then something else."""
    start = {topic: dict(parts) for topic, parts in read.end.items()}
    end = {topic: {part: at + rng.randint(0, 3) for part, at in parts.items()} for topic, parts in start.items()}
    topic = rng.choice(list(end))
    part, ids, cluster = next(iter(end[topic])), dict(read.topic_ids), read.cluster
    accident = rng.choice(
        ["", "", "", "back", "gap", "overlap", "new topic", "no topic", "new part", "id", "no id", "c"]
    )
    if accident == "back":
        end[topic][part] = start[topic][part] - 1
    elif accident in ("gap", "overlap"):
        start[topic][part] += 1 if accident == "gap" else -1
        end[topic][part] = start[topic][part] + 2
    elif accident == "new topic":
        end[f"new-{place}"], ids[f"new-{place}"] = {"0": 3}, "n"
    elif accident == "no topic" and len(end) > 1:
        del start[topic], end[topic]
    elif accident == "new part":
        end[topic]["7"] = 2
    elif accident == "id":
        ids[topic] = f"{ids.get(topic, '')}x"
    elif accident == "no id":
        ids.pop(topic, None)
    elif accident == "c":
        cluster = "other"
    less = rng.choice([0, 0, 4])  # a topic that has shrunk
    newest = {t: {p: at - less for p, at in parts.items()} for t, parts in end.items()} if rng.random() < 0.3 else None
    return source(start, end, cluster, ids, newest=newest)


def test_a_batch_that_continues_everything_is_decided_as_topic_by_topic(rng, monkeypatch):
    """The short way for a source that continues its records gives what the long way gives, whatever comes beside it."""
    short = 0
    for _ in range(400):
        topics = rng.sample(["a", "b", "c"], rng.randint(1, 3))
        read = [source(None, {t: {"0": rng.randint(5, 9), "1": 4} for t in topics}, ids={t: t for t in topics[1:]})]
        if rng.random() < 0.3:
            read.append(source(None, {rng.choice(["a", "d"]): {"0": 6}}))
        recorded = Recorded().advanced(tuple(read[: rng.randint(1, len(read))]))
        for _ in range(3):
            read = [_next(rng, place, each) for place, each in enumerate(read)]
            sources = tuple(read)
            short += recorded.is_continued_by(0, sources[0])
            found = [changes(recorded, sources), relate(recorded, sources), recorded.advanced(sources)]
            found += [recorded.ending_with(sources), recorded.advanced(sources).to_json(sources)]
            with monkeypatch.context() as patch:
                patch.setattr(Recorded, "is_continued_by", lambda *source: False)
                slow = Recorded(recorded.topics)
                expected = [changes(slow, sources), relate(slow, sources), slow.advanced(sources)]
                expected += [slow.ending_with(sources), slow.advanced(sources).to_json(sources)]
            assert found == expected
            recorded = found[2]
    assert short
