"""What networks and stores do to a request, done to each request of a run, one after another: every row is there once.

A clean run says which requests there are. Then each kind of them (what is done to which file) meets each fault: once,
which the client mends, or as often as the client tries, so that the run ends and is started again.
"""

import re
import time
import uuid
from collections import Counter

import pytest

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.storage.s3 import S3FileIO
from streamsink.storage.s3_calls import S3Calls
from streamsink.storage.s3_client import Patience
from tests.crash.world import World, expected
from tests.services import s3_proxy
from tests.services.s3_proxy import FAULTS, S3Proxy

FIRST, SECOND = (3, 5, 8), (3, 5, 8, 10)  # the second start of the query has one batch more
QUICK = Patience(connect_s=2, read_s=1, attempts=2)
WAYS = {
    "sync": {},
    "async": {"publish": "async", "publish_queue": 2, "delay": 20},
    "one-snapshot": {"publish_every_batches": 2, "publish_as": "one-snapshot"},
}
LATER_S = 1.6  # an answer that comes, or a request that is done, after the client has given it up
RESTARTS, SETTLED_S = 6, 120


def _world(server, proxy, way="sync"):
    root = f"s3://{server.bucket}/{uuid.uuid4().hex}/shop.db/orders"
    calls = S3Calls({**server.options, "s3.endpoint": proxy.endpoint}, QUICK, QUICK)
    return World(calls, root, make_io=lambda over: S3FileIO(over, IdSource().new_id, root), **WAYS[way])


def _label(request):
    """What is done to which kind of file, such as 'PUT snapshot-#'."""
    name = request.key.rstrip("/").rpartition("/")[2]
    return f"{request.kind} {re.sub(r'[0-9a-f]{8}[0-9a-f-]*|[0-9]+', '#', name)}"


def _run(world, boundaries):
    """Start the query until it comes to its end; whatever ends it before, it is started again."""
    errors = []
    for _ in range(RESTARTS):
        try:
            world.run(boundaries=boundaries)
            return errors
        except (StreamsinkError, OSError) as failed:
            errors.append(failed)
    raise AssertionError(f"it does not come to its end: {errors}")


@pytest.fixture(scope="module")
def seen(s3_server):
    """How often each kind of request comes in a clean run of two starts."""
    with S3Proxy(s3_server.endpoint) as proxy:
        world = _world(s3_server, proxy)
        world.run(boundaries=FIRST)
        world.run(boundaries=SECOND)
        seen = Counter(map(_label, proxy.take()))
        assert world.ids() == expected(SECOND)
        return seen


def _meets(server, what, times, label, nth, way):
    """A run in which the n-th request of this kind meets the fault. Returns how many did."""
    with S3Proxy(server.endpoint) as proxy:
        world = _world(server, proxy, way)
        proxy.fault(lambda request: _label(request) == label, nth, what, times=times, seconds=LATER_S)
        case = f"{what} x {times} at the {nth}. '{label}', {way}"
        errors = [*_run(world, FIRST), *_run(world, SECOND)]
        proxy.clear()
        assert world.ids() == expected(SECOND), f"{case}: {errors}"
        met = [one for one in proxy.requests if one.fault]
        end = time.monotonic() + SETTLED_S
        while what == s3_proxy.HELD and not all(one.end_s for one in met) and time.monotonic() < end:
            time.sleep(0.05)
        # What came later than its client waited has changed nothing, neither for readers nor for the next start.
        assert world.ids() == expected(SECOND), f"{case}, done late: {errors}"
        _run(world, (*SECOND, 12))
        assert world.ids() == expected((*SECOND, 12)), f"{case}, with one batch more: {errors}"
        return len(met)


def test_the_requests_of_a_run_are_of_all_kinds(seen):
    """Otherwise the tests below would not try what they promise."""
    kinds = {label.partition(" ")[0] for label in seen}
    assert {"PUT", "GET", "HEAD", "LIST"} <= kinds
    assert {"PUT snapshot-#", "PUT record-#.json", "PUT LATEST"} <= set(seen)


@pytest.mark.in_turn("faults of S3 at requests of a run", 2)
@pytest.mark.parametrize("times", [1, QUICK.attempts], ids=["once", "lasting"])
@pytest.mark.parametrize("what", FAULTS)
def test_each_row_is_there_once_whatever_one_request_meets(s3_server, seen, rng, what, times):
    """In the gate one kind of request and one of its occurrences, by the seed: the first of some that comes at all, for
    how often a lease is looked at depends on how long a run takes."""
    labels = rng.sample(sorted(seen), 4)
    assert any(_meets(s3_server, what, times, label, rng.randint(1, seen[label]), "sync") for label in labels)


@pytest.mark.in_turn("replies that are lost at another server", 1)
@pytest.mark.parametrize("times", [1, QUICK.attempts], ids=["once", "lasting"])
@pytest.mark.parametrize("label", ["PUT snapshot-#", "PUT record-#.json"], ids=["snapshot", "record"])
def test_a_reply_that_is_lost_at_another_server(second_s3_server, label, times):
    """It says otherwise who has created an object, and it is no other's there either."""
    assert _meets(second_s3_server, s3_proxy.RESET_AFTER, times, label, 2, "sync") == times


@pytest.mark.soak
def test_a_record_that_comes_back_after_it_was_pruned_is_published_once(s3_server):
    """Its client gave the request up, repeated it, and published; much later the first one is done as well."""
    boundaries = tuple(range(2, 50, 2))  # sixteen records are pruned together
    with S3Proxy(s3_server.endpoint) as proxy:
        world = _world(s3_server, proxy)
        proxy.fault(lambda request: _label(request) == "PUT record-#.json", 2, s3_proxy.HELD, seconds=30)
        assert _run(world, boundaries) == []
        [late] = [one for one in proxy.requests if one.fault]
        record = f"{world.driver.root}/streamsink/streamsink/{late.key.rpartition('/')[2]}"
        assert world.calls.size(record) is None and not late.end_s, "it was pruned before it came back"
        end = time.monotonic() + SETTLED_S
        while not late.end_s and time.monotonic() < end:
            time.sleep(0.05)
        assert late.status == 200 and world.calls.size(record) is not None, "it came back"
        for more in (50, 52):
            world.checkpoint.committed -= 1  # the batch before is replayed
            boundaries = (*boundaries, more)
            assert _run(world, boundaries) == []
            assert world.ids() == expected(boundaries)


@pytest.mark.soak
@pytest.mark.parametrize("times", [1, QUICK.attempts], ids=["once", "lasting"])
@pytest.mark.parametrize("what", FAULTS)
def test_each_row_is_there_once_whatever_any_request_meets(s3_server, seen, rng, what, times):
    """Every kind of request, at its first and at another occurrence, in a way of publishing by the seed."""
    met = 0
    for label, count in sorted(seen.items()):
        for nth in {1, rng.randint(1, count)}:
            met += _meets(s3_server, what, times, label, nth, rng.choice(sorted(WAYS)))
    assert met >= len(seen) / 2
