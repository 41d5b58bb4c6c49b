"""What a start of a query asks of a distant store, counted as in ``test_round_trips.py``.

Run with ``-s`` to see the requests, level by level: ``pytest -s tests/storage/test_round_trips_at_start.py``.
"""

from collections import Counter

import pytest

from streamsink.options import SinkOptions
from tests.storage.test_round_trips import PUBLISHED, RECORDED, ROOT, WRITTEN, Run

_GOES_ON = {"restore": "restore-and-continue"}


def shown(title, *parts):
    """The round trips of these parts of a run, one after another; they are printed, too."""
    levels = [level for part in parts for level in part.round_trips()]
    requests = sum(len(part.requests) for part in parts)
    print(f"\n{title}: {len(levels)} round trips, {requests} requests")
    for number, level in enumerate(levels, 1):
        print(f"  {number:3} {', '.join(level[:12])}{f' and {len(level) - 12} more' if len(level) > 12 else ''}")
    return levels, requests


def restarted(run: Run, committed: int):
    run.checkpoint.committed = committed
    run.calls.take()
    run.start()
    return run.calls.take()


def _with_pending(count: int, **options) -> Run:
    """A run that has died with so many records pending behind two published ones."""
    run = Run(**options)
    run.checkpoint.ends[:] = [10 * (number + 1) for number in range(count + 3)]
    for number in range(2):
        run.batch(number)
    run.sink.close()
    later = {"publish": "async", "publish_queue": count + 1} | _GOES_ON
    published, run.driver.options = run.driver.options, SinkOptions.of(ROOT, later)
    restarted(run, 2)
    for number in range(2, count + 2):
        run.sink.batch(run.driver.describe(run.checkpoint, number))
    run.driver.options = published
    return run


def test_the_first_batch_of_a_fresh_table():
    """From the start of the query to the end of its first batch. docs/design/0015-object-stores.md has each level."""
    run = Run()
    start = run.calls.take()
    batch, _ = run.batch(0)
    levels, _ = shown("a fresh table", start, batch)
    assert len(levels) <= 12
    assert levels[-4:] == [["PUT at"], WRITTEN, RECORDED, PUBLISHED]


def test_a_restart_with_nothing_pending():
    """From the start of the query to the end of its next batch."""
    run = Run()
    for number in range(3):
        run.batch(number)
    run.sink.close()
    start = restarted(run, 3)
    batch, _ = run.batch(3)
    levels, _ = shown("a restart", start, batch)
    assert len(levels) <= 15


@pytest.mark.parametrize(
    ("published", "most_trips", "most_requests"), [("one-snapshot", 20, 5.6), ("snapshot-per-checkpoint", 124, 8.7)]
)
def test_a_restart_with_a_hundred_pending_records(published, most_trips, most_requests):
    """From the start of the query to the end of the restore.

    A snapshot each: one round trip a record, with the check of the snapshot before.
    """
    run = _with_pending(100, **_GOES_ON, publish_as=published)
    made = restarted(run, 102)
    levels, requests = shown(f"100 pending, {published}", made)
    assert len(levels) <= most_trips and requests <= 100 * most_requests
    asked = Counter((request.kind, request.path) for request in made.requests)
    assert all(asked["PUT", f"{ROOT}/streamsink/streamsink/done-{number}"] == 1 for number in range(3, 103))
    if published == "snapshot-per-checkpoint":
        assert all(asked["PUT", f"{ROOT}/snapshot/snapshot-{number}"] == 1 for number in range(3, 103))
        assert all(asked["GET", f"{ROOT}/snapshot/snapshot-{number}"] for number in range(2, 102))


def test_ten_batches_published_as_one():
    """In the mean, and none of them much more than others. The look comes before, beside Spark's job."""
    run = Run(publish_every_batches=10, publish_as="one-snapshot")
    run.checkpoint.ends[:] = [10 * (number + 1) for number in range(40)]
    found = [run.batch(number)[0] for number in range(40)][20:]
    levels, _ = shown("the last of ten batches", found[-1])
    trips = [len(batch.round_trips()[1:]) for batch in found]
    print(trips)
    assert all(batch.round_trips()[0][0] == "GET owner" for batch in found)
    assert sum(trips) / len(trips) <= 2.5 and max(trips) <= 6  # 5, and where manifests are merged one more
