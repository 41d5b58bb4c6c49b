"""The jobs end with what they promise: each event is there once, after restarts, kills and a lost checkpoint.
They are started as users start them."""

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.compute as pc
import pytest

import streamsink
from tests.cli.conftest import run
from tests.services.ports import LOOPBACK, free_ports

JOBS = Path(__file__).resolve().parents[2] / "jobs"
TIMEOUT_S = 500  # Enough for five starts of a driver, on a machine that has other things to do.
EVENTS, EVENTS_OF_CHAOS = 4_000, 2_000
MESSAGES = 3_000
MORE = 501  # The last event is not on a full second.
# Every start of a driver costs five seconds of a processor: the gate kills one, and the soak goes the whole way.
FEW_KILLS, MANY_KILLS = 1, 3
STEPS = ["write.staged", "precommit.saved", "restore.before_publish"]
KILLS = pytest.mark.parametrize(
    "kills", [FEW_KILLS, pytest.param(MANY_KILLS, marks=pytest.mark.soak)], ids=["one-kill", "kills"]
)
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)

pytestmark = pytest.mark.spark


class Job:
    """A job as a process of its own, in a folder of its own."""

    def __init__(self, folder: Path, settings: dict):
        conf = {name: value for name, value in settings.items() if name != "spark.master"}
        args = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        submit = shlex.join(["--master", settings["spark.master"], *args, "pyspark-shell"])
        # The gate is a call of make, and what these jobs print is for who has started them without it.
        self._env = {**os.environ, "PYSPARK_SUBMIT_ARGS": submit}
        self._env.pop("MAKELEVEL", None)
        self.folder = folder

    def __call__(self, name: str, *args: str) -> subprocess.CompletedProcess:
        command = [sys.executable, str(JOBS / name), *args]
        return subprocess.run(
            command,
            env=self._env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )

    def closing(self, name: str, *args: str) -> tuple[dict[str, int], str]:
        """The counts of the closing table, and everything that was printed."""
        done = self(name, *args)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == "", "the job is to be quiet"
        rows = re.findall(r"^(\S.*?) {2,}([0-9,]+)$", done.stdout.split("\n---", 1)[1], re.MULTILINE)
        return {key: int(value.replace(",", "")) for key, value in rows}, done.stdout


@pytest.fixture
def job(tmp_path, spark_settings) -> Job:
    return Job(tmp_path, spark_settings)


def check(counts: dict[str, int], given_as: str, expected: int) -> None:
    assert counts[given_as] == counts["rows in the table"] == expected
    assert counts["duplicates"] == counts["lost"] == 0


def check_chaos(job: Job, kills: int, name: str, *to: str) -> str:
    """Run the job while drivers of it are killed at so many steps: each event is there once. Returns what it says."""
    size = ("--events", str(EVENTS_OF_CHAOS), "--rows-per-batch", "250")
    counts, said = job.closing(name, "--chaos", "--kills", str(kills), *size, *to)
    check(counts, "events generated", EVENTS_OF_CHAOS)
    assert re.findall(r"^KILLED +at (\S+) in batch \d+$", said, re.MULTILINE) == STEPS[:kills]
    return said


def check_rows(table: Path, events: int) -> None:
    """Check that every event is there with the values that belong to its number."""
    rows = streamsink.read_arrow(str(table))
    assert sorted(rows["order_id"].to_pylist()) == list(range(events))
    assert {name: rows[name].null_count for name in rows.column_names} == dict.fromkeys(rows.column_names, 0)
    last = rows.filter(pc.equal(rows["order_id"], events - 1)).to_pylist()[0]
    number = events - 1
    assert last["customer"] == f"c{number * 104_729 % 10_000:05d}"
    assert last["price"] == Decimal(number * 7919 % 9900 + 100) / 100
    assert last["event_time"] == FIRST + timedelta(milliseconds=250 * number)
    assert last["dt"] == "2026-01-01"


@pytest.mark.parametrize("more", [(), ("--brokers", "127.0.0.1:9", "--chaos")])
def test_a_warehouse_on_a_store_is_for_messages_of_kafka(job, more):
    """Generated events and planned kills are counted by a checkpoint on this machine's disk."""
    refused = job("kafka_to_lake.py", "--warehouse", "s3a://bucket/lake", *more)
    assert refused.returncode == 2 and "a warehouse on a store goes with --brokers" in refused.stderr


@pytest.mark.slow
def test_the_main_job_ends_by_itself_with_every_event_once_and_serves_its_metrics_meanwhile(job):
    """It says where. An address that another program has is an error before anything is written."""
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    with socket.create_server((LOOPBACK, int(address.partition(":")[2]))):
        refused = job("kafka_to_lake.py", "--metrics", address)
        assert refused.returncode == 1 and refused.stderr.startswith(
            f"error: the metrics cannot be served at {address}"
        )
        assert not (job.folder / "lake").exists()
    with read_meanwhile(f"http://{address}/metrics") as seen:
        counts, said = job.closing(
            "kafka_to_lake.py", "--metrics", address, "--events", "500", "--rows-per-batch", "500"
        )
    check(counts, "events generated", 500)
    assert f"metrics     http://{address}/metrics\n" in said
    table = f'table="{job.folder / "lake/shop.db/orders"}"'
    assert any(line.startswith("streamsink_epoch{") and table in line for text in seen for line in text.splitlines())


@contextlib.contextmanager
def read_meanwhile(url: str):
    """Ask for a page again and again; the list gets what it says whenever somebody serves it."""
    seen: list[str] = []
    over = threading.Event()

    def ask():
        while not over.wait(0.05):
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
                seen.append(answer.read().decode())

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@pytest.mark.in_turn("jobs that end by themselves", 1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["kafka_to_postgres.py", "kafka_to_iceberg.py"])
def test_each_job_ends_by_itself_with_every_event_once(job, name):
    counts, _ = job.closing(name, "--events", "500", "--rows-per-batch", "500")
    check(counts, "events generated", 500)


@pytest.mark.in_turn("jobs that end by themselves", 1)
@pytest.mark.kafka
@pytest.mark.slow
def test_the_job_into_kafka_ends_by_itself_with_every_event_once(job, kafka_broker):
    to = ("--to-brokers", kafka_broker.bootstrap, "--to", f"orders-{uuid.uuid4().hex[:8]}")
    counts, _ = job.closing("kafka_to_kafka.py", "--events", "500", "--rows-per-batch", "500", *to)
    check(counts, "events generated", 500)


@pytest.mark.in_turn("jobs", 1)
@pytest.mark.slow
def test_the_embedded_run_ends_by_itself_and_a_second_one_goes_on_where_it_ended(job):
    counts, said = job.closing("kafka_to_lake.py", "--events", str(EVENTS), "--rows-per-batch", "1000")
    check(counts, "events generated", EVENTS)
    lines = re.findall(
        r"^batch +(\d+)  rows +1,000  rows/s +[\d,]+  snapshot +(\d+)  pending +0  lag +0$", said, re.MULTILINE
    )
    assert lines == [("0", "1"), ("1", "2"), ("2", "3"), ("3", "4")]
    counts, _ = job.closing("kafka_to_lake.py", "--events", "1500", "--rows-per-batch", "1500")
    check(counts, "events generated", EVENTS + 1500)
    check_rows(job.folder / "lake/shop.db/orders", EVENTS + 1500)
    looks, _, opens = said.partition("look at the table:\n")[2].partition("open the report:\n")
    looks = [shlex.split(line) for line in looks.splitlines()]
    assert [look[1] for look in looks] == ["snapshots", "files", "partitions", "positions", "doctor"]
    for program, *look in looks:
        assert program == "streamsink" and run(*look).stdout, "as printed, from another folder than the job's"
    assert "orders" in opened_by(opens, job.folder) and len(opens.splitlines()) == 1


def opened_by(line: str, folder: Path) -> str:
    """The page that the line opens which a job ends with, as it is printed. The browser is a script here."""
    script, seen = folder / "browser", folder / "seen"
    script.write_text(f'#!/bin/sh\nprintf %s "$1" > {shlex.quote(str(seen))}\n')
    script.chmod(0o755)
    env = os.environ | {"BROWSER": f"{shlex.quote(str(script))} %s"}
    subprocess.run(["bash", "-c", line], env=env, check=True, cwd="/")
    url = urlsplit(seen.read_text())
    assert url.scheme == "file"
    return Path(unquote(url.path)).read_text()


def test_the_looks_at_the_end_of_make_run_are_typed_in_any_folder(tmp_path):
    """make is told where the checkout is, and hands the path on, whatever is in it."""
    table = "/lake of mine/it's.db/orders"
    call = "import sys; sys.path.insert(0, sys.argv[1]); from support.report import commands_for; "
    call += "print(commands_for(sys.argv[2]))"
    env = os.environ | {"MAKELEVEL": "1"}
    said = subprocess.run(
        [sys.executable, "-c", call, str(JOBS), table], env=env, capture_output=True, text=True, check=True
    )
    for line in said.stdout.splitlines()[1:]:
        shown = line.replace("make -sC", "make -nsC", 1)
        done = subprocess.run(["bash", "-c", shown], cwd=tmp_path, capture_output=True, text=True, check=True)
        words = shlex.split(done.stdout)
        assert words[-2] in ("snapshots", "files", "partitions", "positions", "doctor") and words[-1] == table


@pytest.mark.slow
@pytest.mark.in_turn("jobs", 1)
@KILLS
def test_chaos_kills_the_driver_at_named_steps_and_nothing_is_lost_or_doubled(job, kills):
    said = check_chaos(job, kills, "kafka_to_lake.py")
    opened = opened_by(said.splitlines()[-1], job.folder)
    assert "was started again before snapshot" in opened and "Nothing is wrong" in opened


@pytest.mark.slow
@pytest.mark.in_turn("jobs", 1)
@KILLS
def test_the_events_are_in_postgresql_once_whatever_is_killed(job, kills):
    """The job starts a server of its own, which keeps its data for the next start."""
    check_chaos(job, kills, "kafka_to_postgres.py")
    if kills == MANY_KILLS:
        counts, _ = job.closing("kafka_to_postgres.py", "--events", "500", "--rows-per-batch", "500")
        check(counts, "events generated", EVENTS_OF_CHAOS + 500)


@pytest.mark.slow
@pytest.mark.in_turn("jobs", 1)
@KILLS
def test_the_events_are_in_an_iceberg_table_once_whatever_is_killed(job, kills):
    """The catalog is a file of the job's own."""
    check_chaos(job, kills, "kafka_to_iceberg.py")
    if kills == MANY_KILLS:
        counts, _ = job.closing("kafka_to_iceberg.py", "--events", "500", "--rows-per-batch", "500")
        check(counts, "events generated", EVENTS_OF_CHAOS + 500)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.in_turn("jobs", 1)
def test_messages_are_in_postgresql_once_although_the_run_was_stopped(job, kafka_broker):
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    kafka = ("--brokers", kafka_broker.bootstrap, "--topic", topic)
    for first, events in ((0, MESSAGES), (MESSAGES, MORE)):
        filled = job("generate_orders.py", *kafka, "--events", str(events), "--first", str(first))
        assert filled.returncode == 0, filled.stderr
        counts, _ = job.closing("kafka_to_postgres.py", *kafka, "--until-caught-up", "--rows-per-batch", "1000")
        check(counts, "messages read", first + events)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.in_turn("jobs", 1)
def test_messages_are_in_the_table_once_although_the_checkpoint_was_lost(job, kafka_broker):
    topic = f"orders-{uuid.uuid4().hex}"
    kafka = ("--brokers", kafka_broker.bootstrap, "--topic", topic)
    refused = job("kafka_to_lake.py", *kafka, "--until-caught-up")
    assert refused.returncode == 1
    assert (
        refused.stderr
        == f"error: there is no topic '{topic}' at {kafka_broker.bootstrap}; create it, or write to it first\n"
    )
    filled = job("generate_orders.py", *kafka, "--events", str(MESSAGES))
    assert filled.returncode == 0, filled.stderr
    counts, _ = job.closing("kafka_to_lake.py", *kafka, "--until-caught-up", "--rows-per-batch", "1000")
    check(counts, "messages read", MESSAGES)
    shutil.rmtree(job.folder / "ckpt" / "lake")
    filled = job("generate_orders.py", *kafka, "--events", str(MORE), "--first", str(MESSAGES))
    assert filled.returncode == 0, filled.stderr
    counts, said = job.closing("kafka_to_lake.py", *kafka, "--until-caught-up", "--rows-per-batch", "1700")
    check(counts, "messages read", MESSAGES + MORE)
    check_rows(job.folder / "lake/kafka.db" / topic, MESSAGES + MORE)
    assert "overlaps what the table has" in said


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.in_turn("jobs", 1)
@KILLS
def test_the_events_are_in_a_topic_once_whatever_is_killed(job, kafka_broker, kills):
    """Generated ones, and then those of another topic into a third one."""
    first, second = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("first", "second"))
    to = ("--to-brokers", kafka_broker.bootstrap)
    check_chaos(job, kills, "kafka_to_kafka.py", *to, "--to", first)
    if kills != MANY_KILLS:
        return
    source = ("--brokers", kafka_broker.bootstrap, "--topic", second, "--to", f"{second}-once")
    filled = job("generate_orders.py", *source[:4], "--events", str(MESSAGES))
    assert filled.returncode == 0, filled.stderr
    counts, _ = job.closing("kafka_to_kafka.py", *source, "--until-caught-up", "--rows-per-batch", "1000")
    check(counts, "messages read", MESSAGES)


@pytest.mark.soak
@pytest.mark.kafka
def test_the_job_into_kafka_starts_a_broker_of_its_own(job):
    """It keeps its data for the next run."""
    for expected in (500, 1000):
        counts, _ = job.closing("kafka_to_kafka.py", "--events", "500", "--rows-per-batch", "250")
        check(counts, "events generated", expected)
