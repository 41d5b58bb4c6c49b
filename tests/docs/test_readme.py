"""README.md: its commands of make, given in a copy of the checkout, do what the page says of them."""

import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import streamsink
from tests.docs.checkout import Checkout, commands_of, here
from tests.e2e import kafka_data
from tests.e2e.deployed import order
from tests.jobs.test_jobs import read_meanwhile
from tests.services.ports import LOOPBACK, free_ports

PAGE = "README.md"
COMMANDS = [command for place in (1, 2) for command in commands_of(PAGE, place)]
WAIT_S = 3_000  # what they need is installed by the first ones
EVENTS, BATCHES, KILLS = 1_000_000, 20, 12
PARTITIONS, MESSAGES, TOPIC = 3, 4_000, "orders-of-the-readme"


@dataclass
class Reader:
    """Who gives the commands one after another, in the page's order. said: by the last one."""

    checkout: Checkout
    command: str
    kafka: str
    said: str = ""

    @property
    def table(self) -> Path:
        return self.checkout.root / "lake/shop.db/orders"

    def run(self, **words: object) -> None:
        self.said = self.checkout.run(here(PAGE, self.command, words), WAIT_S)

    def closing(self, given_as: str = "events generated") -> int:
        """How many events the closing table says to be there, each once."""
        rows = re.findall(r"^(\S.*?) {2,}([0-9,]+)$", self.said.split("\n---", 1)[1], re.MULTILINE)
        counts = {name: int(count.replace(",", "")) for name, count in rows}
        assert counts["duplicates"] == counts["lost"] == 0
        assert counts[given_as] == counts["rows in the table"]
        return counts[given_as]

    def check(self) -> None:
        """The table has what the closing table says."""
        ids = streamsink.read_arrow(str(self.table), columns=["order_id"])["order_id"].to_pylist()
        assert sorted(ids) == list(range(self.closing()))


def a_million_events(reader: Reader) -> None:
    """Live progress, a closing table, and commands that look at the table from any folder."""
    reader.run()
    reader.check()
    assert reader.closing() == EVENTS
    assert len(re.findall(r"^batch +\d+  rows ", reader.said, re.MULTILINE)) == BATCHES
    looks = reader.said.partition("look at the table:\n")[2].partition("open the report:\n")[0].splitlines()
    assert len(looks) == 5
    for look in looks:
        done = subprocess.run(["bash", "-c", look], cwd="/", env=reader.checkout.env, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout, f"{look}\n{done.stdout}\n{done.stderr}"


def the_tests(reader: Reader) -> None:
    """Everything that they need is installed, and what runs is green."""
    reader.run()
    assert re.search(r"^=+ \d+ passed in ", reader.said, re.MULTILINE), reader.said[-3000:]


def on_kafka(reader: Reader) -> None:
    """Until Ctrl-C, after which the closing table comes as well. A second run goes on where the first one ended."""
    kafka_data.new_topic(reader.kafka, PARTITIONS, TOPIC)
    for sent in (0, MESSAGES):
        numbers = range(sent, sent + MESSAGES)
        kafka_data.send_to(reader.kafka, TOPIC, ((n, n % PARTITIONS) for n in numbers), text=order)
        with reader.checkout.start(here(PAGE, reader.command, {"kafka": reader.kafka, "topic": TOPIC})) as job:
            job.wait_until(lambda: re.search(r"^batch .* lag +0$", job.said(), re.MULTILINE), WAIT_S)
            job.interrupt()
            job.wait(WAIT_S)
            reader.said = job.said()
        assert reader.closing("messages read") == sent + MESSAGES


def chaos(reader: Reader) -> None:
    """The driver is killed at named steps, and the closing table is the same."""
    reader.run()
    assert len(re.findall(r"^KILLED +at \S+ in batch \d+$", reader.said, re.MULTILINE)) == KILLS
    reader.check()


def metrics(reader: Reader) -> None:
    """They are there while it runs."""
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    with read_meanwhile(f"http://{address}/metrics") as seen:
        reader.run(address=address)
    reader.check()
    assert any(f'table="{reader.table}"' in text for text in seen)


def benchmarks(reader: Reader) -> None:
    """The report compares Spark's own file sink, Iceberg and Delta with ours. No page is changed by it."""
    pages = [reader.checkout.root / page for page in (PAGE, "docs/BENCHMARKS.md", "docs/benchmarks.svg")]
    before = [page.read_text() for page in pages]
    reader.run()
    report = (reader.checkout.root / "build/bench/report.md").read_text()
    assert [name for name in ("Spark parquet", "Iceberg", "Delta", "streamsink") if f"\n| {name}" not in report] == []
    assert [page.read_text() for page in pages] == before


def the_command_line(reader: Reader) -> None:
    """The doctor looks at what the runs before it have written."""
    reader.run(table=shlex.quote(str(reader.table)))
    assert f"{reader.table}: no findings\n" in reader.said


JUDGES: dict[str, Callable[[Reader], None]] = {
    "make run": a_million_events,
    "make test": the_tests,
    "make run BROKERS=host:9092 TOPIC=orders": on_kafka,
    "make chaos": chaos,
    "make run ARGS='--metrics 127.0.0.1:9464'": metrics,
    "make bench": benchmarks,
    "make streamsink ARGS='doctor PATH'": the_command_line,
}


def test_each_command_of_the_page_has_a_judge():
    assert list(JUDGES) == COMMANDS


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_does_what_the_page_says_of_it(command, checkout, kafka_broker):
    """In the page's order: the last one looks at the table of the first one."""
    JUDGES[command](Reader(checkout, command, kafka_broker.bootstrap))
