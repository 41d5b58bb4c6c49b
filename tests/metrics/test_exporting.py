"""The endpoint, the file and the log of metrics: what others read."""

import json
import logging
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from streamsink import events
from streamsink.metrics import JsonFormatter, Metrics, TextFile, exporting, flat, serve, text, to_log
from streamsink.metrics.families import METRICS
from streamsink.protocol.positions import SourceFile, SourceRange
from tests.advice.following import follows, told
from tests.crash.world import memory_world

WAIT_S = 60
ROOT = Path(__file__).parents[2]


@pytest.fixture
def filled():
    """Metrics of a few real batches without Spark."""
    world, metrics = memory_world(), Metrics()
    world.run()
    for event in world.driver.events:
        metrics(event)
    return metrics


def read(url):
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        return answer.read().decode()


def test_prometheus_reads_what_the_registry_has(filled):
    """Under the full names, with labels, of every kind."""
    endpoint = serve(filled, "127.0.0.1:0")
    try:
        said = read(endpoint.url)
    finally:
        endpoint.close()
    of = '{application="streamsink",table="/lake/shop.db/orders"}'
    assert f"streamsink_num_records_out_total{of} 14.0" in said
    assert f"streamsink_commit_duration_seconds_count{of} 4.0" in said
    assert "# TYPE streamsink_pending_committables gauge" in said
    names = set(re.findall(r"^# TYPE (\S+) ", said, re.MULTILINE))
    assert names <= {metric.full_name for metric in METRICS} and len(names) > 50


def test_no_number_without_labels_hides_another_one():
    """Tables of other names were written alike, and of their gauges in Spark's metrics the last one counted."""
    metrics, tables = Metrics(), ["lake/shop.db/orders", "lake/shop_db/orders", "lake/shop.db/заказы", "lake/shop.db/"]
    for number, table in enumerate(tables):
        metrics(events.Claimed(table, "streamsink", number))
    found = list(flat(metrics))
    assert len(dict(found)) == len(found)
    epochs = {name.partition(".streamsink.")[0]: value for name, value in found if name.endswith(".epoch")}
    assert sorted(epochs.values()) == [0, 1, 2, 3]
    assert all(re.fullmatch(r"lake_shop_db(_orders)?-[0-9a-f]{8}", name) for name in epochs)
    alone = Metrics()
    alone(events.Claimed(tables[0], "streamsink", 5))
    assert dict(flat(alone))["lake_shop_db_orders.streamsink.epoch"] == 5


@follows("metrics.address-in-use")
def test_queries_of_one_driver_share_an_endpoint_and_others_are_refused(filled):
    """The same metrics are served once. Other metrics, or another driver, get an error that names the address."""
    endpoint = serve(filled, "127.0.0.1:0")
    try:
        assert serve(filled, endpoint.address) is endpoint
        said = told("metrics.address-in-use", lambda: serve(Metrics(), endpoint.address))
        said.says(endpoint.address, "Give all of its queries one Metrics")
        code = (
            "import sys; from streamsink.errors import Misuse; from streamsink.metrics import Metrics, serve\n"
            "try: serve(Metrics(), sys.argv[1])\n"
            "except Misuse as refused: print(refused.kind, refused)"
        )
        command = [sys.executable, "-c", code, endpoint.address]
        of_another = subprocess.run(command, capture_output=True, text=True).stdout
        assert of_another.startswith("metrics.address-in-use") and endpoint.address in of_another
        free = serve(Metrics(), f"127.0.0.1:{said.find('port ([0-9]+) for a free one')}")
        free.close()
    finally:
        endpoint.close()
    again = serve(Metrics(), endpoint.address)
    again.close()
    again.close()


@follows("metrics.address")
@pytest.mark.parametrize("address", ["9464", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", ":9464"])
def test_an_address_has_a_host_and_a_port(address):
    """Nobody serves on all addresses of a machine without having said so."""
    said = told("metrics.address", lambda: serve(Metrics(), address))
    host = said.find(r"such as '([0-9.]+):")
    serve(Metrics(), f"{host}:{said.find('port ([0-9]+) for a free one')}").close()


@follows("metrics.address")
@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "a..b", "x" * 300])
def test_an_address_that_is_not_of_this_machine_is_no_question_of_who_has_the_port(host):
    """The error does not send anybody to look for another driver, and says what the system says."""
    said = told("metrics.address", lambda: serve(Metrics(), f"{host}:9464"))
    here = said.find(r"such as '([0-9.]+):")
    serve(Metrics(), f"{here}:{said.find('port ([0-9]+) for a free one')}").close()


@follows("metrics.no-client")
def test_without_its_client_the_error_names_the_extra(monkeypatch):
    """The package is asked for when it is needed, and by the name under which pip installs it."""
    with monkeypatch.context() as without:
        for module in ("registry", "exposition"):
            without.setitem(sys.modules, f"prometheus_client.{module}", None)
        told("metrics.no-client", lambda: text(Metrics()))
        extra = told("metrics.no-client", lambda: serve(Metrics(), "127.0.0.1:0")).find(r"streamsink\[(\w+)\]")
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert re.search(rf'^{extra} = \["prometheus_client', project, re.MULTILINE)
    serve(Metrics(), "127.0.0.1:0").close()


def test_a_file_has_the_last_values_and_is_never_half_written(filled, tmp_path):
    """It is written at the end as well, and beside it nothing is left."""
    place = tmp_path / "streamsink.prom"
    file = TextFile(filled, place, every_ms=1)
    end = time.monotonic() + WAIT_S
    while not place.exists() and time.monotonic() < end:
        time.sleep(0.01)
    filled.registry.add("listener_errors", ("lake/last", "a"), 3.0)
    file.close()
    assert 'streamsink_listener_errors_total{application="a",table="lake/last"} 3.0' in place.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["streamsink.prom"]


def test_a_file_that_cannot_be_written_ends_nothing_and_is_logged_once(filled, tmp_path, caplog):
    """Each failure is counted; the folder may come back."""
    folder = tmp_path / "gone"
    folder.mkdir()
    file = TextFile(filled, folder / "streamsink.prom", every_ms=60_000)
    shutil.rmtree(folder)
    with caplog.at_level(logging.WARNING, "streamsink"):
        file._write()
        file._write()
    assert sum("metrics could not be written" in line for line in caplog.messages) == 1
    assert filled.registry.value("exporter_errors", "textfile") == 2
    folder.mkdir()
    file.close()
    assert (folder / "streamsink.prom").exists()


@follows("metrics.textfile-in-use")
def test_a_file_is_written_by_one(filled, tmp_path):
    """Two that took turns would let its counters go back. One for the same metrics takes the place of the first."""
    place = tmp_path / "streamsink.prom"
    first = TextFile(filled, place)
    second = TextFile(filled, place)
    assert not first._thread.is_alive()
    said = told("metrics.textfile-in-use", lambda: TextFile(Metrics(), place))
    assert said.find("close the other (\\w+)") == type(second).__name__
    second.close()
    other = TextFile(Metrics(), place)
    other.close()
    assert "streamsink_num_records_out_total" not in place.read_text()


@follows("metrics.textfile-in-use")
def test_a_file_is_written_by_one_driver(filled, tmp_path):
    """Of two the one would hide the other's series from each scrape, and no alert that waits would fire."""
    code = (
        "import sys; from streamsink.metrics import Metrics, TextFile\n"
        "file = TextFile(Metrics(), sys.argv[1]); print('writes', flush=True); sys.stdin.read(1); file.close()"
    )
    place = tmp_path / "streamsink.prom"
    for ends in ("it is closed", "it is killed"):
        other = subprocess.Popen(
            [sys.executable, "-c", code, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        try:
            assert other.stdout.readline() == "writes\n"
            said = told("metrics.textfile-in-use", lambda: TextFile(filled, place))
            assert said.find("another (\\w+) writes") == "driver"
            TextFile(filled, tmp_path / "another.prom").close()
            if ends == "it is killed":
                other.kill()
        finally:
            other.communicate("x" if ends == "it is closed" else None)
        TextFile(filled, place).close()
        assert 'table="/lake' in place.read_text()


def test_what_is_published_at_the_exit_is_in_the_file(tmp_path):
    """Whichever of the two was there first: the file is made at the end, when what was pending is published."""
    code = (
        "import sys; from streamsink import events; from streamsink.spark import runs\n"
        "from streamsink.metrics import Metrics, TextFile\n"
        "metrics = Metrics(); file = TextFile(metrics, sys.argv[1], every_ms=60_000)\n"
        "class Run:\n"
        "    started = None; at_end = tell_its_end = lambda self: None\n"
        "    def finish(self): metrics(events.CheckpointPublished('t', 'a', 0, 1, 10, 2, 0, 1, 1.0))\n"
        "run = Run(); run.started = run; runs._RUNS['t', 'a'] = run"
    )
    place = tmp_path / "streamsink.prom"
    ended = subprocess.run([sys.executable, "-c", code, place], capture_output=True, text=True, cwd=ROOT)
    assert 'streamsink_num_records_out_total{application="a",table="t"} 10.0' in place.read_text(), ended.stderr


def test_odd_names_are_written_and_long_ones_told_apart(filled, tmp_path):
    """A name that UTF-8 does not have would end the whole scrape; two that begin alike would be one."""
    names = ['/l"a\nke/\\{}/t', "/lake/\udcff", "/" + "x" * 5_000 + "1", "/" + "x" * 5_000 + "2", "/日本" * 200]
    for name in names:
        filled(events.Claimed(name, "a", 7))
    file = TextFile(filled, tmp_path / "a.prom", every_ms=60_000)
    file.close()
    lines = [each for each in (tmp_path / "a.prom").read_text().splitlines() if each.endswith("7.0")]
    assert len(lines) == len(names) and max(map(len, lines)) < 400
    assert all(filled.registry.value("epoch", name, "a") == 7 for name in names)


@follows("metrics.textfile")
@pytest.mark.parametrize("wrong", ["missing/a.prom", "a.txt"])
def test_a_file_has_the_name_that_the_node_exporter_looks_for(filled, tmp_path, wrong):
    """It would be written in vain, or into a folder that nobody has made."""
    said = told("metrics.textfile", lambda: TextFile(filled, tmp_path / wrong))
    ending = said.find(r"ends with '([.a-z]+)'")
    TextFile(filled, tmp_path / f"a{ending}").close()
    assert [each.name for each in tmp_path.iterdir()] == ["a.prom"]


def test_the_log_is_json_by_a_formatter(caplog):
    """One object a line with stable keys, for events and for other lines; positions of sources only when asked for."""
    caplog.handler.setFormatter(JsonFormatter())
    source = SourceRange({"logOffset": 0}, {"logOffset": 1}, files=(SourceFile("in/a.json", 1),))
    event = events.BatchAdmitted("lake/t", "a", 7, "new", None, 0, "q", "r", 1.5, (source,))
    with caplog.at_level(logging.DEBUG, "streamsink"):
        to_log(event)
        to_log(events.Restored("lake/t", "a", (1, 2), ("x",), 3.0))
        events.log.warning("%s: two\nlines", "lake/t")
    batch, restored, other = map(json.loads, caplog.text.splitlines())
    assert list(batch) == [
        "time",
        "level",
        "event",
        "table",
        "application",
        "checkpoint_id",
        "verdict",
        "watermark_ms",
        "planned_ms",
        "query",
        "run",
        "admit_ms",
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", batch["time"]) and batch["event"] == "BatchAdmitted"
    assert restored["published_checkpoints"] == [1, 2] and restored["level"] == "INFO"
    assert other["message"] == "lake/t: two\nlines" and other["logger"] == "streamsink"
    line = logging.makeLogRecord({"event": event, "levelname": "DEBUG"})
    assert json.loads(JsonFormatter(sources=True).format(line))["sources"][0]["files"] == ["in/a.json"]


def test_the_progress_of_spark_is_a_line_of_json_too():
    """With its sources, which are as Spark prints them; and a name with a line break is no second line of the log."""
    sources = (("KafkaV2[Subscribe[t]]", {"t": {"0": 1}}, {"t": {"0": 5}}),)
    event = events.SparkProgress("", "q", "i", "r", 1, 4, 1.0, 1.0, 5.0, {}, None, 0, 0, ({},), sources)
    line = logging.makeLogRecord({"event": event, "levelname": "DEBUG"})
    (source,) = json.loads(JsonFormatter(sources=True).format(line))["sources"]
    assert source["end"] == {"t": {"0": 5}}


def test_an_event_is_one_line_of_the_log(caplog):
    """A name with a line break would look like a line of its own."""
    with caplog.at_level(logging.INFO, "streamsink"):
        events.to_log(events.Claimed("lake/a\nERROR forged", "a", 1))
    assert caplog.messages == ["Claimed lake/a\\nERROR forged application=a epoch=1"]


def test_nothing_of_a_client_is_imported_before_it_is_used():
    """Neither Spark nor prometheus_client."""
    code = (
        "import sys, streamsink.metrics; print(sorted({'pyspark', 'prometheus_client', 'pyarrow'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert said.stdout.strip() == "[]", said.stderr
    assert exporting.DEFAULT_EVERY_MS > 0
