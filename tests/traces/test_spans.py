"""What a trace of a batch has: its steps with their times, its errors, and the publishing that comes later."""

import sys
from itertools import pairwise

import pytest

from streamsink import events
from streamsink.clock import Clock
from streamsink.errors import Misuse
from streamsink.protocol.positions import SourceFile, SourceRange
from streamsink.traces import Traces, spans
from tests.advice.following import advice, follows

T, A = "/lake/orders", "orders"
MS = 1_000_000


def admitted(checkpoint_id: int, *sources: SourceRange, **more) -> events.Event:
    given = {"verdict": "new", "watermark_ms": None, "planned_ms": 0, "query": "q", "run": "r", "admit_ms": 1.0}
    return events.BatchAdmitted(T, A, checkpoint_id, **given | more, sources=sources)


def steps(checkpoint_id: int, *sources: SourceRange) -> list[events.Event]:
    """As far as the record."""
    return [
        admitted(checkpoint_id, *sources),
        events.CheckpointBegun(T, A, checkpoint_id, checkpoint_id + 1, 0.5),
        events.BatchWritten(T, A, checkpoint_id, 10, 2, 1000, 4.0, "driver"),
        events.CheckpointRecorded(T, A, checkpoint_id, checkpoint_id + 1, 2.0),
    ]


def published(checkpoint_id: int, checkpoints: int = 1, table: str = T) -> events.Event:
    return events.CheckpointPublished(table, A, checkpoint_id, 7, 10, 2, 0, 1, 20.0, checkpoints, 1000, 3.0)


def returned(checkpoint_id: int) -> events.Event:
    return events.BatchReturned(T, A, checkpoint_id, 50.0)


def traced(recorder, *given: events.Event) -> list:
    traces = Traces(recorder.provider)
    for event in given:
        traces(event)
    return recorder.trees()


TOPIC = SourceRange({"t": {"0": 5, "1": 5}}, {"t": {"0": 10, "1": 9}})


def test_a_batch_that_is_published_in_its_call(recorder):
    """One span, with one below it for each step, as long as the event says."""
    [batch] = traced(recorder, *steps(3, TOPIC), published(3), returned(3))
    assert batch.name == "streamsink.batch" and batch.ended - batch.began == 50 * MS
    took = {each.name.removeprefix("streamsink."): (each.ended - each.began) / MS for each in batch.below}
    assert took == {"admit": 1.0, "wait": 0.5, "write": 4.0, "record": 2.0, "publish": 3.0}
    assert all(batch.began <= each.began <= each.ended <= batch.ended for each in batch.below)
    assert batch.values == {
        "streamsink.table": T,
        "streamsink.application": A,
        "streamsink.checkpoint_id": 3,
        "streamsink.verdict": "new",
        "streamsink.query": "q",
        "streamsink.run": "r",
        "streamsink.sequence": 4,
        "streamsink.rows": 10,
        "streamsink.files": 2,
        "streamsink.bytes": 1000,
        "streamsink.way": "driver",
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": "t",
        "messaging.batch.message_count": 9,
    }
    assert batch.kind == "CONSUMER" and {each.kind for each in batch.below} == {"INTERNAL"}
    publish = batch.below[[each.name for each in batch.below].index("streamsink.publish")]
    assert (publish.values["streamsink.snapshot_id"], publish.values["streamsink.attempts"]) == (7, 1)


def test_events_that_a_busy_driver_tells_late(recorder, monkeypatch):
    """The wait for the end of one step is told when the next has taken a while: each is as long as it was, and they
    stand in their order, within their batch.
    """
    clock = Clock()
    monkeypatch.setattr(clock, "now_ns", iter([at * MS for at in (1001, 1008, 1008, 1010, 1020)]).__next__)
    monkeypatch.setattr(spans, "Clock", lambda: clock)
    [batch] = traced(recorder, *steps(3), events.BatchReturned(T, A, 3, 20.0))
    assert batch.names == [f"streamsink.{name}" for name in ("admit", "wait", "write", "record")]
    assert [(each.ended - each.began) / MS for each in batch.below] == [1.0, 0.5, 4.0, 2.0]
    assert all(before.ended <= each.began for before, each in pairwise(batch.below)), "no step begins within another"
    assert batch.began <= batch.below[0].began and batch.ended == 1020 * MS


def test_publishing_beside_the_batches(recorder):
    """It stands below the batch, in its own time, which begins behind the batch or before its end."""
    first, second = traced(recorder, *steps(0), returned(0), *steps(1), published(0), published(1), returned(1))
    [publish] = [each for each in first.below if each.name == "streamsink.publish"]
    assert publish.ended > first.ended
    assert second.names.count("streamsink.publish") == 1


def test_a_group_is_linked_to_its_batches(recorder):
    """Three batches are published as one: the span stands below the last, with links to the others."""
    given = [event for number in range(3) for event in (*steps(number), returned(number))]
    batches = traced(recorder, *given, published(2, checkpoints=3))
    assert [each.names.count("streamsink.publish") for each in batches] == [0, 0, 1]
    [publish] = [each for each in batches[2].below if each.name == "streamsink.publish"]
    assert publish.links == 2 and publish.values["streamsink.checkpoints"] == 3


def test_errors(recorder):
    """The kind of the error, and the step that it has ended; no text, which might name a value."""
    failed = events.BatchFailed(T, A, 3, "Misuse", "schema.other", 8.0)
    [batch] = traced(recorder, admitted(3), events.CheckpointBegun(T, A, 3, 4, 0.5), failed)
    assert batch.error == batch.values["error.type"] == "schema.other"
    assert batch.values["streamsink.failed_in"] == "write"


def test_a_batch_that_is_not_admitted(recorder):
    """It has a span all the same."""
    [batch] = traced(recorder, events.BatchFailed(T, A, 3, "ValueError", "", 8.0))
    assert batch.error == "ValueError" and batch.values["streamsink.failed_in"] == "admit"
    assert batch.values["streamsink.checkpoint_id"] == 3


def test_publishing_that_fails_beside_the_batches(recorder):
    """Below the first batch that waits for it."""
    failed = events.PublishingFailed(T, A, "Fenced", "writer.fenced", 2)
    first, _ = traced(recorder, *steps(0), returned(0), *steps(1), returned(1), failed)
    assert [each.error for each in first.below if each.name == "streamsink.publish"] == ["writer.fenced"]
    assert first.error == ""


def test_a_replay(recorder):
    """What was skipped, and why."""
    skipped = events.BatchSkipped(T, A, 3, "published before")
    [batch] = traced(recorder, admitted(3, verdict="skip"), skipped, returned(3))
    assert batch.values["streamsink.skipped"] == "published before" and batch.names == ["streamsink.admit"]


def test_a_start_that_publishes(recorder):
    """What earlier runs have left stands below the start, and the start below the batch whose call it is a part of."""
    restored = events.Restored(T, A, (4, 5), ("x",), 30.0)
    begun = [events.Claimed(T, A, 2), published(4), published(5), restored]
    [batch] = traced(recorder, *begun, *steps(6), published(6), returned(6))
    [start] = [each for each in batch.below if each.name == "streamsink.restore"]
    assert start.names == ["streamsink.publish"] * 2 and len(batch.below) == 6
    assert start.values["streamsink.restored_checkpoints"] == 2 and start.ended - start.began == 30 * MS


def test_a_start_without_a_batch(recorder):
    """A command, or one that has failed on purpose, is told by the next start, or at the end of the run."""
    begun = [events.Claimed(T, A, 2), events.Restored(T, A, (), (), 30.0)]
    trees = traced(recorder, *begun, *begun, events.RunEnded(T, A, "r"))
    assert [tree.name for tree in trees] == ["streamsink.restore"] * 2


def test_a_start_that_fails(recorder):
    """What it has published stands below the call that has failed."""
    failed = events.BatchFailed(T, A, 6, "Fenced", "writer.fenced", 8.0)
    [batch] = traced(recorder, events.Claimed(T, A, 2), published(4), failed)
    assert batch.names == ["streamsink.publish"] and batch.values["streamsink.failed_in"] == "restore"


def test_a_fan_out(recorder):
    """Its destinations stand below the batch, each with its place."""
    each = [published(3, table=f"/lake/{name}") for name in ("a", "b")]
    [batch] = traced(recorder, *steps(3), *each, published(3), returned(3))
    told = [span for span in batch.below if span.name == "streamsink.publish-destination"]
    assert [span.values["streamsink.table"] for span in told] == ["/lake/a", "/lake/b"]
    assert batch.names.count("streamsink.publish") == 1


def test_files_and_work_beside(recorder):
    """Files are counted; compaction and maintenance have spans of their own."""
    files = SourceRange({"logOffset": 0}, {"logOffset": 1}, files=(SourceFile("/in/a", 0), SourceFile("/in/b", 0)))
    compacted = events.Compacted(T, A, T, 8, 1, 100, 90, 1, 0, 0, 40.0)
    maintained = events.Maintained(T, A, (1, 2), (), (), (), (), 12.0)
    given = [*steps(3, files), published(3), returned(3), compacted, maintained]
    trees = {tree.name: tree for tree in traced(recorder, *given)}
    assert trees["streamsink.batch"].values["streamsink.source_files"] == 2
    assert trees["streamsink.batch"].kind == "INTERNAL"
    assert trees["streamsink.compact"].values["streamsink.files_before"] == 8
    assert trees["streamsink.maintain"].values["streamsink.snapshots"] == 2
    assert trees["streamsink.compact"].ended - trees["streamsink.compact"].began == 40 * MS


def test_two_queries_do_not_mix(recorder):
    """One listener serves all queries of a driver."""
    traces = Traces(recorder.provider)
    for number in range(2):
        for event in steps(0):
            traces(type(event)(**vars(event) | {"table": f"/lake/{number}"}))
    for number in range(2):
        traces(events.BatchReturned(f"/lake/{number}", A, 0, 20.0))
    assert sorted(tree.values["streamsink.table"] for tree in recorder.trees()) == ["/lake/0", "/lake/1"]
    assert {len(tree.below) for tree in recorder.trees()} == {4}


def test_a_span_of_the_program_stands_above(recorder):
    """A batch belongs to what the program is doing, where it says so."""
    tracer = recorder.provider.get_tracer("program")
    with tracer.start_as_current_span("of the program"):
        [outer] = traced(recorder, *steps(0), published(0), returned(0)) or [None]
    [outer] = recorder.trees()
    assert outer.name == "of the program" and outer.names == ["streamsink.batch"]


@follows("opentelemetry.package")
def test_the_package_is_missing(monkeypatch):
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(Misuse) as refused:
        Traces()
    advice(refused.value, "opentelemetry.package").says("pip install 'streamsink[opentelemetry]'")


def test_of_queries_that_have_ended_nothing_is_remembered(recorder):
    """Nor of those that only Spark tells of."""
    traces = Traces(recorder.provider)
    for number in range(100):
        table = f"/lake/t{number}"
        traces(events.Claimed(table, A, 1))
        traces(events.Restored(table, A, (), (), 1.0))
        traces(events.RunEnded(table, A, "r"))
        traces(events.SparkQueryEnded("", f"q{number}", "q", "r", False))
    assert not traces._queries
