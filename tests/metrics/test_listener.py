"""What the metrics say after events, of real batches without Spark where the events matter."""

import errno
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest

from streamsink import events, faults
from streamsink.clock import Clock
from streamsink.errors import RestoredThenFailed
from streamsink.metrics import Metrics
from streamsink.metrics.families import BY_NAME, METRICS, OF_QUERY
from streamsink.metrics.registry import MOST_SERIES, OTHER, Distribution, Registry
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import SourceRange
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.crash.letters_world import BOUNDARIES, LettersWorld
from tests.crash.many_world import ManyWorld
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


def told(metrics, table, *, ended=True, application=A):
    """A query of this table that has published a batch."""
    of = (table, application)
    metrics(events.Claimed(*of, 1))
    metrics(replace(admitted(1), table=table, application=application))
    metrics(replace(published(1), table=table, application=application))
    if ended:
        metrics(events.RunEnded(*of, "r"))


def kept(metrics, name="epoch"):
    """Tables that have series of this metric."""
    return {labels[0] for each in metrics.collect() if each.metric.name == name for labels in each.values}


def test_a_query_more_takes_the_place_of_the_one_that_ended_first():
    """In a driver that lives long. One that runs keeps what it has, and so does one that has begun again."""
    metrics = Metrics()
    for number in range(MOST_SERIES):
        told(metrics, f"lake/{number}", ended=number not in (0, 3))
    told(metrics, "lake/1", ended=False)
    before = kept(metrics)
    assert len(before) == MOST_SERIES and value(metrics, "starts", "lake/1", A) == 2
    for number in range(2):
        told(metrics, f"lake/new-{number}", ended=False)
    for name in ("epoch", "num_records_out", "last_publish_age_seconds", "pending_committables", "fenced"):
        assert kept(metrics, name) == before - {"lake/2", "lake/4"} | {"lake/new-0", "lake/new-1"}, name
    steps = kept(metrics, "step_duration_seconds")
    assert {"lake/0", "lake/3", "lake/new-1"} < steps and len(steps) == MOST_SERIES / 2, "two series each"
    told(metrics, "lake/2")
    assert value(metrics, "starts", "lake/2", A) == 1, "counters of one that comes back begin anew"
    assert metrics.registry.value("series_folded") is None


def test_series_of_several_tables_go_with_their_query():
    """Unless one is the table of a query that runs."""
    metrics = Metrics()
    told(metrics, "lake", ended=False)
    told(metrics, "lake/0", ended=False)
    for number in range(MOST_SERIES - 1):  # one more is the query's own, which begins with 0
        metrics(events.TablePublished(f"lake/{number}", A, 1, 1, 10, 1))
    metrics(events.TablePublished("other/1", A, 1, 1, 10, 1))
    assert value(metrics, "table_records_out", OTHER, OTHER) == 10, "nothing has ended"
    metrics(events.RunEnded("lake", A, "r"))
    metrics(events.TablePublished("other/2", A, 1, 1, 10, 1))
    assert kept(metrics, "table_records_out") == {OTHER, "lake/0", "other/2"}


def test_what_ended_long_ago_is_forgotten():
    """Also where nobody needs its room, as with jobs that are done and have no ages."""
    metrics = Metrics(Hands())
    told(metrics, "lake/query")
    metrics(events.SmallFiles("lake/query", A, "lake/query", 1, 2, 3))
    for number in range(MOST_SERIES):
        metrics(events.RunEnded(f"lake/{number}", A, "r"))
    assert "lake/query" not in kept(metrics, "small_files") | kept(metrics, "last_publish_age_seconds")


def test_queries_of_spark_make_room_as_well():
    """Those without a name have another label each time that they begin with a new checkpoint."""
    metrics = Metrics()
    for number in range(MOST_SERIES + 5):
        metrics(events.SparkQueryStarted("", f"query-{number}", "q", "r"))
        metrics(events.SparkQueryEnded("", f"query-{number}", "q", "r", number % 2 == 1))
    assert value(metrics, "spark_queries_started", f"query-{MOST_SERIES + 4}") == 1
    assert (
        value(metrics, "spark_queries_started", "query-0") is None and metrics.registry.value("series_folded") is None
    )


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


def test_a_bounded_job_that_is_done_gets_no_older():
    """It will publish nothing more, so nobody is told that it has not. A query that has ended is told."""
    clock = Hands()
    metrics = Metrics(clock)
    for end in (END_OF_INPUT, 3):
        metrics(events.Claimed(T, A, 1))
        metrics(admitted(end))
        metrics(published(end))
        assert value(metrics, "last_publish_age_seconds") == 0
        metrics(events.RunEnded(T, A, "r"))
        clock.ms += 1_000
        assert value(metrics, "last_publish_age_seconds") == (None if end == END_OF_INPUT else 1)
        assert value(metrics, "num_records_out") == (10 if end == END_OF_INPUT else 20)


def test_the_delay_of_a_replay_is_not_told():
    """It was visible before it came again."""
    metrics = Metrics(Hands())
    metrics(admitted(1, "skip", planned_ms=1))
    metrics(admitted(2, planned_ms=999_000))
    metrics(published(2))
    assert metrics.registry.distribution("visible_delay_seconds", T, A).total == 1


def test_what_another_exporter_fails_with_keeps_no_number_back():
    """Each number of the event is taken in, and the failure is counted."""
    metrics = Metrics()

    def fails(name, labels, value):
        raise ValueError(name)

    metrics.registry.watchers.append(fails)
    metrics(published(1))
    assert value(metrics, "num_records_out") == 10 and value(metrics, "last_published_batch_id") == 1
    assert metrics.registry.value("exporter_errors", "watcher") >= 2


@pytest.mark.parametrize("way", [{}, {"publish": "async"}, {"publish_every_batches": 3, "publish_as": "one-snapshot"}])
def test_rows_are_counted_once_where_a_mark_cannot_be_written(way, caplog):
    """The disk is full behind the snapshot. Its rows are visible, the next start marks the record and publishes
    nothing, and the numbers of the process are those of the table."""
    world, metrics = memory_world(restore="restore-and-continue", **way), Metrics()
    full = Query(world)

    def fails(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    full.sink.protocol.queue._journal.mark_all = fails
    with pytest.raises(OSError, match="No space left"):  # of which each way hears at another place
        full.batch(5)
        full.batch(7)
        full.sink.run.commit_up_to_checkpoint(1)
    world.driver.events.append(events.PublishingFailed(world.driver.root, A, "OSError", "", 1))
    again = Query(world)
    again.ends = [5, 7]
    again.again(0)
    again.again(1)
    again.batch(9)
    again.sink.close()
    for event in world.driver.events:
        metrics(event)
    of = (world.driver.root, A)
    assert value(metrics, "num_records_out", *of) == len(world.ids()) == 9
    assert "another writer" not in caplog.text  # there is none
    assert value(metrics, "committables", *of) == value(metrics, "successful_committables", *of) == 3
    assert value(metrics, "pending_committables", *of) == 0


@pytest.mark.parametrize(
    ("make", "step"), [(ManyWorld, "tables.before_table"), (LettersWorld, "commit.before_filter")], ids=["many", "one"]
)
def test_what_a_start_finds_in_some_of_the_tables_is_not_counted_again(make, step):
    """A publishing ends between two tables, and the program starts the query again: rows and dead letters of the first
    table were counted before."""
    world, metrics = make(), Metrics()
    arm(step, 2, crash)
    try:
        with pytest.raises(InjectedCrash):
            world.run()
    finally:
        faults.arm(None)
    with suppress(RestoredThenFailed):
        world.run()
    for event in world.events if make is LettersWorld else world.driver.events:
        metrics(event)
    rows = Counter(name for name, _, _ in world.rows())
    counted = {f"{world.root}/{name}": count for name, count in rows.items() if make is ManyWorld or name == "rejected"}
    families = {family.metric.name: family.values for family in metrics.collect()}
    assert {of[0]: int(each) for of, each in families["table_records_out"].items() if each} == counted
    assert sum(families["num_records_out_errors"].values()) == sum(families["dead_letters"].values())
    assert sum(families["dead_letters"].values()) == rows["rejected"] > 0
