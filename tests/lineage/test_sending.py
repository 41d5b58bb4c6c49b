"""A collector that is slow, down or out of order costs the query nothing: no event waits, and losses are counted."""

import logging
import socket
import sys
import threading

import pytest

from streamsink import events
from streamsink.clock import Clock
from streamsink.errors import Misuse
from streamsink.lineage import OpenLineage
from streamsink.lineage.listener import MOST_READY
from tests.advice.following import advice, follows
from tests.lineage.collector import transport
from tests.lineage.test_account import APP, RUN, TABLE, admitted, kafka, published

WAIT_MS = 30_000


def until(is_so) -> None:
    for _ in range(WAIT_MS // 10):
        if is_so():
            return
        Clock().sleep_ms(10)
    raise AssertionError("it has not come")


@pytest.fixture
def lineage(collector):
    made = OpenLineage(config=transport(collector.url), interval_ms=0)
    yield made
    collector.free.set()
    assert made.close(WAIT_MS)


def test_a_slow_collector_gets_one_message_of_all(lineage, collector):
    """While it answers nothing, what happens adds up, and nobody waits."""
    collector.free.clear()
    lineage(admitted(0, kafka(0, 10)))
    until(lambda: collector.requests == 1)  # the start hangs
    for number in range(1, 200):
        lineage(published(number - 1, number))
        lineage(admitted(number, kafka(number * 10, number * 10 + 10)))
    assert lineage.sent == 0
    collector.free.set()
    until(lambda: lineage.sent == 2)
    [running] = collector.of("RUNNING")
    assert running["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 1_990
    assert running["run"]["facets"]["streamsink"]["checkpoints"] == 199 and lineage.dropped == 0


@pytest.mark.parametrize("status", [500, 400])
def test_what_is_not_taken_is_counted_and_logged_once(lineage, collector, caplog, status):
    """And told again when it works, until it fails anew."""
    collector.status = status
    with caplog.at_level(logging.WARNING, "streamsink"):
        lineage(admitted(0, kafka(0, 10)))
        for number in range(1, 4):
            lineage(published(number, number))
            until(lambda: lineage.dropped == number + 1)
        assert len(caplog.records) == 1 and "did not take one" in caplog.text
        collector.status = None
        lineage(published(4, 4))
        until(lambda: lineage.sent == 1)
        collector.status = status
        lineage(published(5, 5))
        until(lambda: lineage.dropped == 5 and len(caplog.records) == 2)


def test_a_listener_that_two_queries_share_says_so_once(lineage, caplog):
    """Metrics and traces may be shared, so this is done easily; of the second query nothing would be found."""
    with caplog.at_level(logging.WARNING, "streamsink"):
        lineage(admitted(0, kafka(0, 10)))
        for number in range(3):
            lineage(admitted(number, kafka(0, 10), table="/lake/other", run="other"))
    [line] = caplog.messages
    assert line.startswith("/lake/other: ") and "Make an OpenLineage for each query" in line and lineage.strangers == 3


def test_a_collector_that_is_not_there(package, caplog):
    """Nothing listens on its port."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        lineage = OpenLineage(config=transport(f"http://127.0.0.1:{held.getsockname()[1]}"), interval_ms=0)
        lineage(admitted(0, kafka(0, 10)))
        lineage(events.RunEnded(TABLE, APP, RUN))
        assert lineage.close(WAIT_MS)
    assert (lineage.sent, lineage.dropped) == (0, 2) and len(caplog.records) == 1


def test_many_starts_do_not_pile_up(lineage, collector):
    """A query that restarts all the time beside a collector that hangs."""
    collector.free.clear()
    for number in range(MOST_READY):
        lineage(admitted(0, kafka(0, 10), run=f"run-{number}"))
        lineage(events.RunEnded(TABLE, APP, f"run-{number}"))
    assert lineage.dropped >= MOST_READY - 2


def test_one_message_in_a_while(collector):
    """Behind the start nothing is told before the interval is over, but for the end, which has all of it."""
    lineage = OpenLineage(config=transport(collector.url), interval_ms=3_600_000)
    lineage(admitted(0, kafka(0, 10)))
    until(lambda: lineage.sent == 1)
    for number in range(1, 50):
        lineage(published(number, number))
    Clock().sleep_ms(200)  # in which a message would come
    lineage(events.RunEnded(TABLE, APP, RUN))
    assert lineage.close(WAIT_MS)
    assert collector.states == ["START", "COMPLETE"]
    [table] = collector.events[-1]["outputs"]
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 490
    pattern = collector.events[0]["job"]["facets"]["jobType"]["emissionPattern"]
    assert (pattern["eventTrigger"], pattern["windowDuration"]) == ("PERIODIC", 3600)


def test_the_end_of_the_process_is_told(collector):
    """A query that runs then is aborted, as far as anybody knows."""
    lineage = OpenLineage(config=transport(collector.url))
    lineage(admitted(0, kafka(0, 10)))
    lineage(published(0, 1))
    assert lineage.close(WAIT_MS) and lineage.close(WAIT_MS)
    assert [collector.states[0], collector.states[-1]] == ["START", "ABORT"]
    lineage(admitted(1, kafka(10, 20)))  # late, and nobody takes it
    assert "streamsink-lineage" not in {thread.name for thread in threading.enumerate()}


def test_a_listener_has_no_thread_when_no_query_runs(collector):
    """A program may make one for each start of a query; and one that is used again has a thread again."""
    made = [OpenLineage(config=transport(collector.url)) for _ in range(3)]
    for start in range(2):
        for number, lineage in enumerate(made):
            run = f"{RUN[:-2]}{start}{number}"
            lineage(admitted(0, kafka(0, 10), run=run))
            lineage(events.RunEnded(TABLE, APP, run))
            until(lambda: lineage.sent == 2 * start + 2)
        until(lambda: not [each for each in threading.enumerate() if each.name == "streamsink-lineage"])
    assert collector.states == ["START", "COMPLETE"] * 6
    assert all(lineage.close(WAIT_MS) for lineage in made)


@follows("openlineage.option")
def test_wrong_values(package):
    """They are named when the listener is made, and what is expected is taken."""
    noop = {"transport": {"type": "noop"}}
    parent = f"airflow/eu/dag.task/{RUN}"
    for name, value, right in (("parent", "dag", parent), ("parent", "a/b/c", parent), ("interval_ms", -1, 0)):
        with pytest.raises(Misuse) as refused:
            OpenLineage(config=noop, **{name: value})
        advice(refused.value, "openlineage.option").says(f"{name} is {value!r}", "Correct it")
        OpenLineage(config=noop, **{name: right})


@follows("openlineage.package")
def test_the_package_is_missing(monkeypatch):
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(Misuse) as refused:
        OpenLineage()
    advice(refused.value, "openlineage.package").says("pip install 'streamsink[openlineage]'")
