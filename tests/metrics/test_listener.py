"""What the metrics say after events, of real batches without Spark where the events matter."""

from dataclasses import replace

import pytest

from streamsink import events
from streamsink.clock import Clock
from streamsink.metrics import Metrics
from streamsink.metrics.families import BY_NAME, METRICS, OF_QUERY
from streamsink.metrics.registry import MOST_SERIES, OTHER, Distribution, Registry
from streamsink.protocol.positions import SourceRange
from tests.crash.letters_world import BOUNDARIES, LettersWorld
from tests.crash.world import memory_world
from tests.protocol.query import Query

T, A = "lake/orders", "streamsink"


class Hands(Clock):
    """A clock that a test moves."""

    def __init__(self):
        self.ms = 1_000_000.0

    def now_ms(self):
        return int(self.ms)

    def monotonic_ms(self):
        return self.ms


def admitted(checkpoint_id, verdict="new", **more):
    return events.BatchAdmitted(
        T,
        A,
        checkpoint_id,
        verdict,
        **{"watermark_ms": None, "planned_ms": 0, "query": "q", "run": "r", "admit_ms": 2.0} | more,
    )


def published(checkpoint_id, **more):
    made = events.CheckpointPublished(T, A, checkpoint_id, checkpoint_id + 1, 10, 2, 0, 1, 40.0, 1, 5_000, 20.0)
    return replace(made, **more)


def value(metrics, name, *labels):
    metrics.collect()
    return metrics.registry.value(name, *(labels or (T, A)))


def test_the_metrics_of_real_batches_add_up():
    """Rows, files and bytes of what is visible; each step once a batch; nothing is pending at the end."""
    world, metrics = memory_world(), Metrics()
    world.run()
    for event in world.driver.events:
        metrics(event)
    of = (world.driver.root, "streamsink")
    assert value(metrics, "num_records_out", *of) == len(world.ids()) == 14
    assert value(metrics, "num_bytes_out", *of) == sum(
        event.bytes for event in world.driver.events if isinstance(event, events.BatchWritten)
    )
    assert value(metrics, "committables", *of) == value(metrics, "successful_committables", *of) == 4
    assert value(metrics, "pending_committables", *of) == 0
    assert value(metrics, "batches", *of, "new") == 4
    assert value(metrics, "last_committed_snapshot_id", *of) == 4
    for step in ("admit", "wait", "write", "record", "publish"):
        assert sum(metrics.registry.distribution("step_duration_seconds", *of, step).counts) == 4
    assert sum(metrics.registry.distribution("commit_duration_seconds", *of).counts) == 4


def test_dead_letters_are_counted_apart():
    """They are no rows of the table; both the table that they were meant for and the one that has them tell them."""
    world, metrics = LettersWorld(), Metrics()
    world.run()
    for event in world.events:
        metrics(event)
    of = (world.path, "streamsink")
    letters = value(metrics, "dead_letters", *of, world.name)
    assert letters == value(metrics, "num_records_out_errors", *of) > 0
    assert value(metrics, "num_records_out", *of) + letters == BOUNDARIES[-1]
    assert value(metrics, "table_records_out", f"{world.root}/{world.dead_letters}", "streamsink") == letters


def test_what_is_pending_gets_older_until_it_is_published():
    """The ages are of the instant at which they are read, and a group that is published takes all up to it along."""
    clock = Hands()
    metrics = Metrics(clock)
    metrics(events.Claimed(T, A, 1))
    for checkpoint_id in range(3):
        metrics(events.CheckpointRecorded(T, A, checkpoint_id, checkpoint_id + 1, 1.0))
        clock.ms += 1_000
    assert value(metrics, "oldest_pending_age_seconds") == 3
    assert value(metrics, "pending_committables") == 3
    metrics(published(1, pending=1, checkpoints=2))
    assert value(metrics, "oldest_pending_age_seconds") == 1
    assert value(metrics, "successful_committables") == 2
    clock.ms += 5_000
    assert value(metrics, "last_publish_age_seconds") == 5
    assert value(metrics, "last_publish_timestamp_seconds") == 1_003
    metrics(events.Restored(T, A, (2,), (), 3.0))
    assert value(metrics, "oldest_pending_age_seconds") == value(metrics, "pending_committables") == 0
    assert value(metrics, "restored_committables") == 1


def test_lags_of_offsets_and_watermark_are_told():
    """As far as the batch knows them: what the broker said is newest, and the watermark's age when it is read."""
    clock = Hands()
    metrics = Metrics(clock)
    source = SourceRange({"t": {"0": 0}}, {"t": {"0": 5, "1": 7}}, newest={"t": {"0": 9, "1": 7}})
    metrics(
        admitted(
            0,
            sources=(source, SourceRange({"logOffset": 0}, {"logOffset": 1})),
            watermark_ms=400_000,
            planned_ms=999_000,
        )
    )
    clock.ms += 1_000
    assert value(metrics, "pending_records") == 4
    assert value(metrics, "watermark_lag_seconds") == 601
    metrics(admitted(1, sources=(SourceRange({"logOffset": 0}, {"logOffset": 1}),)))
    assert value(metrics, "watermark_lag_seconds") == 601
    metrics(admitted(1, "skip", planned_ms=1))
    metrics(published(1))
    delays = metrics.registry.distribution("visible_delay_seconds", T, A)
    assert (delays.total, sum(delays.counts)) == (2, 1)


def test_a_fence_is_counted_once_a_start():
    """The thread that publishes tells it, and then the batch that raises it."""
    metrics = Metrics()
    for epoch in (1, 2):
        metrics(events.Claimed(T, A, epoch))
        metrics(events.PublishingFailed(T, A, "Fenced", "application.fenced", 1))
        metrics(events.BatchFailed(T, A, 3, "Fenced", "application.fenced", 1.0))
    assert value(metrics, "fenced") == 2
    assert value(metrics, "batch_failures") == value(metrics, "failed_committables") == 2
    assert value(metrics, "batch_failures_by_kind", T, A, "Fenced", "application.fenced") == 2


def test_counters_of_a_query_begin_with_zero():
    """Prometheus knows a rate from the second value on: the first failure would be missed."""
    metrics = Metrics()
    metrics(events.Claimed(T, A, 1))
    missing = [
        m.name for m in METRICS if m.kind == "counter" and m.labels == OF_QUERY and value(metrics, m.name) is None
    ]
    assert missing == []


def test_too_many_series_are_folded_into_one():
    """A query that makes thousands of tables does not make thousands of series; what was dropped is counted."""
    registry = Registry()
    for number in range(MOST_SERIES + 50):
        registry.add("table_records_out", (f"lake/{number}", A), 2.0)
        registry.observe("commit_duration_seconds", (f"lake/{number}", A), 2.0)
    assert registry.value("table_records_out", OTHER, OTHER) == 100
    assert sum(registry.distribution("commit_duration_seconds", OTHER, OTHER).counts) == 50
    assert all(len(family.values) <= MOST_SERIES + 1 for family in registry.collect())
    assert registry.value("series_folded") == 100


def test_a_histogram_has_each_value_in_one_bucket():
    """The bounds are inclusive, and the last bucket has all."""
    made = Distribution()
    for each in (0.005, 0.0051, 400.0):
        made.observe(each)
    buckets = dict(made.buckets)
    assert (buckets["0.005"], buckets["0.01"], buckets["300.0"], buckets["+Inf"]) == (1, 2, 2, 3)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_named_as_others_are(metric):
    """Snake case, with its unit at the end; its feeds take the events that they are for."""
    assert metric.name.isidentifier() and metric.name == metric.name.lower()
    assert BY_NAME[metric.name] is metric and metric.help.endswith(".")
    assert not metric.name.endswith(("_ms", "_total"))
    known = {kind for name, kind in vars(events).items() if isinstance(kind, type) and issubclass(kind, events.Event)}
    assert metric.feeds.keys() <= known


def test_async_publishing_is_told_by_two_threads_at_once():
    """Events of the batch and of the thread that publishes come in any order; nothing is lost."""
    world, metrics = memory_world(publish="async", publish_queue=4), Metrics()
    query = Query(world, background=None)
    for end in range(1, 30):
        query.batch(end)
    query.sink.close()
    for event in world.driver.events:
        metrics(event)
    of = (world.driver.root, "streamsink")
    assert value(metrics, "num_records_out", *of) == 29 and value(metrics, "pending_committables", *of) == 0
    assert value(metrics, "oldest_pending_age_seconds", *of) == 0
