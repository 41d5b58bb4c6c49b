"""The benchmarks' own arithmetic and drawing; what they measure is asserted nowhere."""

import os
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import machine, pages, picture, report
from benchmarks.accidents.ground import RIGHT, Ground
from benchmarks.s3 import account, ground, marked
from benchmarks.sinks import lakes, turns
from streamsink.storage.s3_calls import S3Calls
from tests.services.s3_proxy import SLOW_DOWN, S3Proxy
from tests.services.s3_requests import Request, parse


def test_a_goal_says_whether_it_is_met():
    """The bound itself is met; the table shows text only."""
    goals = [report.at_most("less", 0.3, 0.3), report.at_most("more", 0.31, 0.3), report.at_least("fast", 0.99, 1.0)]
    assert [goal.met for goal in goals] == [True, False, False]
    assert report.text([report.goals(goals)]).count("**not met**") == 2


def test_the_picture_is_an_svg_that_no_name_breaks(tmp_path):
    """There are a bar far beyond the others, one below zero, a name with markup, and a chart of nothing."""
    bars = [
        report.Bar("a < b", "<Delta> & co", [9000.0]),
        report.Bar("a < b", "ours", [1.0, 2.0, 3.0]),
        report.Bar("a < b", "less than noop", [-5.0]),
        report.Bar("zeros", "noop", [0.0]),
    ]
    picture.draw([*bars, report.Table("not a bar", ("x",), [["1"]])], tmp_path / "p.svg")
    svg = ElementTree.parse(tmp_path / "p.svg").getroot()
    rectangles = [element for element in svg.iter() if element.tag.endswith("rect")][1:]
    assert len(rectangles) == len(bars)
    assert all(float(r.get("x")) + float(r.get("width")) <= float(svg.get("width")) for r in rectangles)


@pytest.mark.parametrize("name", pages.BLOCKS)
def test_pages_quote_the_run_on_record(name):
    """Who changes a number by hand, or measures without writing it everywhere, is told here."""
    text = (pages.ROOT / name).read_text(encoding="utf-8")
    assert pages.rendered(name, text, pages.read()) == text, "python -m benchmarks.pages writes it anew"


def test_no_number_is_quoted_by_hand():
    """Outside of the blocks of the script these pages have no measured time, rate or size."""
    measured = re.compile(r"\d (ms|s|MiB|KB|rows/s)\b|\b[01]\.\d\d\b")
    for name in ("docs/BENCHMARKS.md", "docs/TUNING.md"):
        text = (pages.ROOT / name).read_text(encoding="utf-8")
        by_hand = re.sub(r"<!-- begin (\w+) -->.*?<!-- end \1 -->", "", text, flags=re.DOTALL)
        assert not measured.search(by_hand), f"{name}: {measured.search(by_hand)}"


def test_the_page_tells_it_in_a_hundred_lines():
    """What is more is in build/bench, for who wants to know."""
    assert len((pages.ROOT / "docs/BENCHMARKS.md").read_text(encoding="utf-8").splitlines()) <= 100


def test_a_page_without_its_markers_is_noticed():
    """The numbers of a run are not lost in silence."""
    with pytest.raises(ValueError, match="README.md must have the markers <!-- begin speed -->"):
        pages.rendered("README.md", "# a page", pages.read())


def test_a_goal_is_shown_beside_earlier_runs():
    """The least and the greatest by number, not by text."""
    goal = report.at_most("restart", 535, 1000, "{:.0f} ms")
    earlier = [{"restart": "954 ms"}, {"restart": "1010 ms"}, {"restart": "546 ms"}, {"another": "1 ms"}]
    run = pages.Run("", "2026-11-26", {}, [goal, report.at_most("new", 1, 1)], earlier)
    assert pages.BLOCKS["docs/BENCHMARKS.md"]["goals"](run)[2:] == [
        "| restart | <= 1000 ms | 535 ms | 546 ms to 1010 ms | met |",
        "| new | <= 1.00x | 1.00x | - | met |",
    ]


def _process(parent: int, own_s: float, ended_s: float = 0.0, is_java: bool = False) -> machine.Process:
    return machine.Process(parent, own_s, ended_s, is_java)


def test_processor_time_of_children_is_counted_once():
    """Of a child that began before the measurement and ended within it, of one that did both within it, and of one that
    lives on, only what they took meanwhile counts; what the JVM took itself is not Python's."""
    early, within, lasting, java = 2, 3, 4, 5
    before = {1: _process(0, 1.0, 4.0), early: _process(1, 16.0), lasting: _process(1, 32.0), java: _process(1, 0.5)}
    assert within not in before
    after = {
        1: _process(0, 1.25, 4.0 + (16.0 + 0.125) + 2.0),  # it has waited for `early` and for `within`
        lasting: _process(1, 32.0 + 8.0),
        java: _process(1, 0.5 + 64.0, 0.0625, is_java=True),
    }
    assert machine.spent(before, after) == (0.25 + 0.125 + 2.0 + 8.0 + 64.0 + 0.0625, 0.25 + 0.125 + 2.0 + 8.0 + 0.0625)


def test_a_child_that_nobody_waited_for_takes_nothing_away():
    """Spark's daemon does not wait for its workers: all that one of them took before it ended is lost, and no more."""
    before = {1: _process(0, 1.0), 2: _process(1, 16.0)}
    assert machine.spent(before, {1: _process(0, 1.5)}) == (0.5, 0.5)


def test_processes_are_this_one_and_all_below_it():
    """A child and its child are seen while they live, each with its parent."""
    script = (
        "import subprocess, sys; "
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE); "
        "print(child.pid, flush=True); input(); child.communicate(b'\\n')"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    below = int(child.stdout.readline())
    found = machine.processes()
    child.communicate("\n", timeout=200)
    assert (found[child.pid].parent, found[below].parent) == (os.getpid(), child.pid)
    assert os.getpid() in found and os.getppid() not in found
    assert not {child.pid, below} & machine.processes().keys()


@pytest.mark.parametrize(
    "found, errors, stopped, said",
    [
        ([1, 2, 3], [], False, RIGHT),
        ([1, 3, 3, 4], [], False, "**1 lost** and **2 doubled** of 3"),
        ([1], ["it failed"], False, "an ERROR, then **2 lost** of 3"),
        ([1], ["it failed"], True, "ERROR"),
        ([1, 1], ["it failed"], True, "ERROR, 1 doubled"),
    ],
)
def test_an_accident_is_told_in_rows(found, errors, stopped, said):
    """Lost and doubled rows do not cancel each other out.
    What an error kept back is not lost, but what is there twice is doubled all the same."""
    ground = Ground(spark=None, sink=None, root=Path(), errors=errors, stopped=stopped)
    assert ground.outcome([1, 2, 3], Counter((i,) for i in found)) == said


@pytest.mark.parametrize(
    "intervals, chain",
    [
        ([], 0),
        ([(0, 2), (2, 4), (4, 6)], 3),  # one after another
        ([(0, 2), (1, 3), (0, 3)], 1),  # all at the same time
        ([(0, 9), (1, 2), (2, 3), (3, 4)], 3),  # a long one beside three short ones
        ([(0, 5), (4, 6), (5, 9)], 2),  # the one in the middle overlaps both
        ([(5, 9), (4, 6), (0, 5)], 2),  # in whatever order they come
    ],
)
def test_round_trips_are_the_longest_chain_without_overlap(intervals, chain):
    """What is asked at the same time is one trip; a trip begins when the one before has ended."""
    assert account.round_trips(intervals) == chain


def test_waiting_is_what_no_job_covers():
    """Requests that overlap are waited for once; of one that lies across the end of a job only the rest is."""
    requests, jobs = [(0.0, 0.1), (0.05, 0.2), (1.0, 1.5), (2.0, 2.1)], [(1.25, 1.75), (2.0, 3.5), (2.01, 2.02)]
    assert account.union_ms(requests) == pytest.approx(200 + 500 + 100)
    assert account.uncovered_ms(requests, jobs) == pytest.approx(200 + 250)
    assert account.union_ms([(0.0, 2.0), (0.5, 1.0), (1.5, 1.75)]) == pytest.approx(2000)  # some within another
    assert account.uncovered_ms(requests, []) == account.union_ms(requests)


def _request(line: str, start_s: float = 0.0, end_s: float = 0.0, up_bytes: int = 0, **headers: str) -> Request:
    request = parse(1, f"{line} HTTP/1.1", {name.replace("_", "-"): value for name, value in headers.items()}, start_s)
    request.end_s, request.up_bytes = end_s, up_bytes
    return request


def test_requests_are_counted_and_priced_by_kind():
    """Beginning and ending an upload in parts costs as much as a PUT, and a part is one; deleting is free."""
    lines = ["PUT /b/k", "PUT /b/k?uploadId=u&partNumber=1", "POST /b/k?uploads=", "POST /b/k?uploadId=u"]
    lines += [
        "GET /b/k",
        "HEAD /b/k",
        "HEAD /b/",
        "GET /b/?list-type=2&prefix=k",
        "POST /b/?delete=",
        "DELETE /b/k",
        "DELETE /b/k?uploadId=u",
    ]
    requests = [*map(_request, lines), _request("PUT /b/k", x_amz_copy_source="b/s")]
    counted = {"PUT": 2, "COPY": 1, "GET": 1, "HEAD": 2, "LIST": 1, "DELETE": 3, "POST": 2}
    assert account.by_kind(requests) == counted and tuple(counted) == account.KINDS
    assert account.dear(requests) == 6
    assert account.dollars(requests) == pytest.approx(6 * 5.0 + 3 * 0.4)


def test_copied_bytes_are_those_of_what_was_written_before():
    """With one PUT, in parts, or by a copy; a copy in parts copies its source once."""
    requests = [
        _request("PUT /b/staged", up_bytes=100),
        _request("PUT /b/place", x_amz_copy_source="/b/staged"),
        _request("PUT /b/large?uploadId=1&partNumber=1", up_bytes=1000),
        _request("PUT /b/large?uploadId=1&partNumber=2", up_bytes=500),
        _request("POST /b/large?uploadId=1"),
        _request("PUT /b/moved", x_amz_copy_source="b/large"),
        _request("PUT /b/again?uploadId=2&partNumber=1", x_amz_copy_source="b/moved"),
        _request("PUT /b/again?uploadId=2&partNumber=2", x_amz_copy_source="b/moved"),
        _request("PUT /b/unknown", x_amz_copy_source="b/of-another-day"),
    ]
    assert account.copied_bytes(requests) == 100 + 1500 + 1500


def test_a_batch_waits_for_its_own_requests_only():
    """Neither for those that begin beside a job of Spark, nor for the publisher's and the heart's beat; for the peers'
    it does. What the job does not cover is waiting, and no round trip: with slow answers the job's time decides it.
    """
    agent = "Boto3/1 bench-thread/"
    own = _request("PUT /b/k", 1.0, 1.1, user_agent=f"{agent}Thread-4~(run)")
    others = [
        _request("HEAD /b/k", 2.1, 2.4, user_agent=f"{agent}Thread-4~(run)"),  # beside the job
        _request("PUT /b/k", 1.0, 1.1, user_agent=f"{agent}streamsink-publisher~shop"),
        _request("PUT /b/k", 1.0, 1.1, user_agent=f"{agent}streamsink-hold-3"),
    ]
    outlasts = _request("HEAD /b/k", 2.1, 2.6, user_agent=f"{agent}Thread-4~(run)")
    across = _request("HEAD /b/k", 1.9, 2.1, user_agent=f"{agent}Thread-4~(run)")
    peers = _request("PUT /b/k", 1.0, 1.1, user_agent="Hadoop 3")
    batch = account.Batch(1, (0.0, 3.0), {}, [own, *others, outlasts, across, peers], [(2.0, 2.5)])
    assert ground.in_its_way(batch) == [own, across, peers]
    assert ground.of_its_thread(batch) == [own, others[0], outlasts, across, peers]
    assert marked.thread_of(own) == "Thread-4 (run)" and marked.thread_of(peers) == ""


def test_rows_are_computed_from_when_they_are_asked_for():
    """Spark plans a job before it submits it. What is asked meanwhile nobody waits for, except those who have not asked
    for rows yet: the look of a batch is made behind that, and was counted as if the job came later."""
    jobs = [(5.0, 6.0), (2.0, 3.0)]
    assert ground.with_plans(jobs, []) == [(2.0, 3.0), (5.0, 6.0)]
    assert ground.with_plans(jobs, [1.0, 1.5, 2.5, 4.0, 7.0]) == [(1.5, 3.0), (4.0, 6.0)]


def test_what_is_asked_at_once_is_one_round_trip_however_late_it_begins():
    """Ours say what they waited for; by their times they may be one after another on a busy machine."""

    def made(trip: int, begin: float, end: float) -> Request:
        agent = f"Boto3/1 bench-trip/{trip} bench-thread/Thread-4~(run)" if trip else "Hadoop 3"
        return _request("PUT /b/k", begin, end, user_agent=agent)

    late = [made(7, 1.0, 1.1), made(7, 1.2, 1.3), made(8, 1.4, 1.5), made(8, 1.4, 1.5)]
    assert marked.trips(late) == 2 and account.round_trips(account.spans(late)) == 3
    assert marked.trips([made(0, 1.0, 1.1), made(0, 1.2, 1.3), made(0, 1.2, 1.3)]) == 2
    assert (marked.trip_of(late[0]), marked.trip_of(made(0, 1.0, 1.1))) == (7, 0)


@pytest.fixture
def asking():
    """The proxy, and what asks it with this key."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import ClientError

    with S3Proxy("http://127.0.0.1:9") as proxy:
        proxy.fault("*", 1, SLOW_DOWN, times=None)
        client = boto3.client(
            "s3",
            endpoint_url=proxy.endpoint,
            region_name="here",
            aws_access_key_id="a",
            aws_secret_access_key="b",
            config=Config(retries={"total_max_attempts": 1}),
        )

        def ask(key: str = "k") -> None:
            with pytest.raises(ClientError, match="SlowDown"):
                client.get_object(Bucket="lake", Key=key)

        yield proxy, ask


def test_requests_say_which_thread_wanted_them(asking):
    """The one that made it, or that gave it to a pool; and nothing more once nobody looks."""
    proxy, ask = asking
    with ThreadPoolExecutor(1, "pool") as pool:

        def ask_by_pool() -> None:
            pool.submit(ask).result()

        pool.submit(ask).result()
        with marked.marked():
            for work in (ask, ask_by_pool):
                thread = threading.Thread(target=work, name=f"my {work.__name__}")
                thread.start()
                thread.join()
        ask_by_pool()
        assert [marked.thread_of(request) for request in proxy.take()] == ["", "my ask", "my ask_by_pool", ""]


def test_requests_say_how_many_round_trips_their_thread_has_waited_for(asking):
    """Those that are made at once have one number; what comes behind them waits for the last of them."""
    proxy, ask = asking
    store = S3Calls({"s3.endpoint": proxy.endpoint})

    def twice() -> None:
        ask("second"), ask("third")

    with marked.marked(), ThreadPoolExecutor(1, "pool") as pool:
        ask("first")
        store.at_once([lambda: ask("second"), lambda: store.at_once([twice, lambda: ask("second")])])
        ask("fourth")
        pool.submit(twice).result()
        ask("seventh")
    found = sorted((marked.trip_of(one), one.key) for one in proxy.take())
    expected = [(1, "first"), *[(2, "second")] * 3, (3, "third"), (4, "fourth"), (5, "second"), (6, "third")]
    assert found == [*expected, (7, "seventh")]


def test_a_trigger_is_where_spark_says_that_it_was():
    """Spark tells the begin in UTC, to the millisecond, and how long it took."""
    assert ground.trigger("2026-11-26T18:00:00.250Z", 500) == (1795716000.25, 1795716000.75)


def test_a_table_format_is_compared_with_the_best_of_its_own_ways():
    """By round over noop, whatever the load of the round; without its jars there is nothing to compare with."""
    noop, ours = [100, 200], [130, 230]
    micro = {"noop": noop, "slow": [300, 400], "quick": [140, 240], "Ours": ours}
    large = {"noop": [9, 9], "slow": [2, 2], "quick": [4, 4], "Ours": [5, 5]}
    table = report.Table("", (), ())
    goals = lakes._goals(
        "Hudi", "Ours", turns.Found(table, micro, micro, micro), turns.Found(table, large, large, large)
    )
    assert [goal.measured for goal in goals] == ["0.75x", "0.75x", "1.25x", "2.50x"]
    assert [goal.met for goal in goals] == [False, False, True, False]
    alone = {name: micro[name] for name in ("noop", "Ours")}
    assert lakes._goals("Hudi", "Ours", *[turns.Found(table, alone, alone, alone)] * 2) == []


@pytest.mark.soak
def test_every_benchmark_runs(tmp_path):
    """With small sizes and no peers what they measure means nothing,
    but a change of the library that breaks one of them is noticed."""
    command = [sys.executable, "benchmarks/run.py", "--quick", "--all", "--no-peers", "--out", str(tmp_path)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "A replayed batch" in (tmp_path / "report.md").read_text()
