"""What a micro-batch asks of a distant store, counted, where it goes to several tables, or has dead letters."""

import pyarrow as pa
import pytest

from streamsink.options import SinkOptions
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.testing.many_driver import LettersDriver, ManyTablesDriver
from tests.storage.test_round_trips import AFTERWARDS, LOOK, PUBLISHED, RECORDED, WRITTEN, Run
from tests.storage.test_round_trips_at_start import restarted, shown

ROOT = "s3://bucket/shop.db"
SCHEMA = pa.schema([("id", pa.int64()), (ROUTE, pa.string())])
OF_OWNER = ["GET owner", "HEAD owner"]


class _Routed(Run):
    """A query whose rows go to these tables in turn, as many as there are."""

    names = ("orders",)

    def rows(self, start: int, end: int) -> pa.RecordBatch:
        numbers = list(range(start, end))
        routes = [self.names[number % len(self.names)] for number in numbers]
        return pa.RecordBatch.from_pydict({"id": numbers, ROUTE: routes}, schema=SCHEMA)


class _Tables(_Routed):
    names = ("a", "b", "c")

    def driver_of(self, **options):
        settings = SinkOptions.of(ROOT, options)
        routing = Routing.of(ROOT, {name: {} for name in self.names}, settings, dead_letters=None, unrouted="fail")
        return ManyTablesDriver(ROOT, SCHEMA, self.rows, routing, settings)


class _Letters(_Routed):
    names = ("orders", "nowhere")

    def driver_of(self, **options):
        settings = SinkOptions.of(f"{ROOT}/orders", options)
        routing = Routing.of(ROOT, {"orders": {}}, settings, dead_letters="rejected", unrouted="dead-letter")
        return LettersDriver(ROOT, SCHEMA, self.rows, routing, settings)


class _WithoutDeadLetters(_Letters):
    names = ("orders",)


def _times(requests: list[str], tables: int, *shared: str) -> list[str]:
    """These requests, made for each of the tables but for those that are shared."""
    return sorted(request for request in requests for _ in range(1 if request in shared else tables))


def _until_recorded(tables: int) -> list[list[str]]:
    return [
        _times(LOOK, tables, *OF_OWNER),
        _times(WRITTEN, tables),
        _times(RECORDED, tables, "HEAD owner", "PUT at", "PUT record"),
    ]


@pytest.mark.parametrize("query, tables", [(_Tables, 3), (_WithoutDeadLetters, 1)])
def test_a_small_batch_waits_for_two_round_trips_and_for_one_a_table(query, tables):
    """All tables are looked at and written at once. Their snapshots come one after another."""
    for batch, beside in query().later_batches():
        assert batch.round_trips() == [*_until_recorded(tables), *[PUBLISHED] * tables]
        assert beside.round_trips() == [*AFTERWARDS[:2] * tables, *AFTERWARDS[2:]]


def test_a_small_batch_with_dead_letters_waits_for_three_round_trips_more():
    """Their snapshot, and whether it came in time: the table's snapshot, which follows, says that they are there."""
    for batch, beside in _Letters().later_batches():
        assert batch.round_trips() == [*_until_recorded(2), PUBLISHED, *AFTERWARDS[:2], PUBLISHED]
        assert beside.round_trips() == AFTERWARDS


@pytest.mark.parametrize("query, tables", [(_Tables, 3), (_Letters, 2), (_WithoutDeadLetters, 1)])
@pytest.mark.parametrize("small", [False, True], ids=["tasks", "small"])
def test_no_byte_is_copied(query, tables, small):
    """Of the requests that cost more, each table needs its files, manifests, lists, snapshot and hint."""
    run = query(small)
    assert not any(run.batch(number)[0].kinds["COPY"] for number in range(2))  # nor where rows begin a table
    for number in range(2, 6):
        batch, beside = run.batch(number)
        every = batch.kinds + beside.kinds
        assert not every["COPY"] and not every["LIST"]
        assert batch.dear + beside.dear <= 3 + 6 * tables and sum(every.values()) <= (7 if small else 9) + 13 * tables


def test_a_table_that_the_batch_before_did_not_touch_is_looked_at_before_the_record():
    """That is one round trip more, for all such tables together; their files were announced with the record before."""
    run = _Tables()
    run.names = ("a", "b", "c")
    run.batch(0), run.batch(1)
    run.names = ("a",)
    run.batch(2)
    run.names = ("a", "b", "c")
    batch, _ = run.batch(3)
    trips = batch.round_trips()
    own = ["GET schema", "GET snapshot", "HEAD schema", "HEAD snapshot"]
    assert trips == [
        LOOK,
        _times(own, 2),
        _times(WRITTEN, 3),
        _times(RECORDED, 3, "HEAD owner", "PUT at", "PUT record"),
        *[PUBLISHED] * 3,
    ]


def _started(query):
    """A run of the query that has written three batches, and the requests of its first batch, with the start."""
    run = query()
    start = run.calls.take()
    first = run.batch(0)[0]
    run.batch(1), run.batch(2)
    return run, shown(f"{query.__name__}, fresh", start, first)


@pytest.mark.parametrize("query, first, again", [(_Tables, 32, 41), (_Letters, 34, 37)])
def test_a_start_asks_all_tables_at_once(query, first, again):
    """Three fresh tables, and one with dead letters: until the first batch returns; and a restart, until its next batch
    does. What can be known of all tables together is asked so. They are created one after another.
    """
    run, (levels, _) = _started(query)
    run.sink.close()
    begun = restarted(run, 3)
    batch, _ = run.batch(3)
    of_restart, _ = shown(f"{query.__name__}, a restart", begun, batch)
    assert len(levels) <= first and len(of_restart) <= again
