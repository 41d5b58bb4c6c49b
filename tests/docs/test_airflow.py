"""docs/how-to/AIRFLOW.md: a real Airflow runs its DAG as it is written, and accidents happen to the tries."""

import datetime
import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

from tests.compat.pypaimon_client import PyPaimon
from tests.conftest import unavailable
from tests.docs.blocks import ROOT, blocks_of
from tests.services import process
from tests.services.airflow import Airflow
from tests.services.server import ServerError
from tools.common import SetupError
from tools.venvs import ensure_airflow

PAGE = "docs/how-to/AIRFLOW.md"
FILES = ("daily_orders.py", "orders_dag.py")
ROWS = 10
WAIT_S = 1800
LIMIT = "        max_active_tis_per_dag=1,\n"
# As a shell says it, or Python where the shell has become the program.
KILLED = re.compile("return code (137|-9)")
# The last two days that are over.
_TODAY = datetime.datetime.now(datetime.timezone.utc).date()
DAYS = [_TODAY - datetime.timedelta(days=ago) for ago in (2, 1)]


class Reader:
    """Who follows the page: a folder of the orders, and an Airflow."""

    def __init__(self, folder: Path, airflow: Airflow):
        self.folder, self.airflow = folder, airflow
        self._program, self._dag = (next(b.text for b in blocks_of(PAGE) if b.file == name) for name in FILES)

    def saves(self, name: str, accidents: list[str], leaving_out: str = "") -> None:
        """Program and DAG under that name, which is the table's as well, where the page says 'orders'."""
        planned = {day.isoformat(): each for day, each in zip(DAYS, accidents, strict=True)}
        (self.folder / f"{name}.json").write_text(json.dumps(planned))
        program = _replaced(self._program, {"lake/shop.db/orders": f"lake/shop.db/{name}"})
        (self.folder / f"{name}.py").write_text(f"from tests.docs.daily_accidents import happen; happen()\n{program}")
        first = DAYS[0]
        words = {
            '"/srv/orders"': f'"{self.folder}"',
            "datetime(2026, 11, 1)": f"datetime({first.year}, {first.month}, {first.day})",
            # Everything is sooner; and a busy machine has tries of its own that end.
            '"retries": 3': '"retries": 9',
            "timedelta(minutes=5)": "timedelta(seconds=1)",
            '"orders",': f'"{name}",',
            "daily_orders.py {{": f"{name}.py {{{{",
            "lake/shop.db/orders": f"lake/shop.db/{name}",
        }
        if leaving_out:
            words[leaving_out] = ""
        (self.airflow.dags / f"{name}_dag.py").write_text(_replaced(self._dag, words))

    def waits(self, dag: str, tries_of_the_first_day: int = 1) -> None:
        """Until both days have ended well."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            states = self.airflow.states(dag)
            ended = [states.get(day.isoformat()) for day in DAYS]
            assert "failed" not in ended, [self.said(dag, day) for day in DAYS]
            if ended == ["success"] * 2 and len(self.said(dag, DAYS[0])) >= tries_of_the_first_day:
                return
            time.sleep(1)
        pytest.fail(f"{ended}: {process.tail(self.airflow.data_dir / 'scheduler.log')}")

    def said(self, dag: str, day: datetime.date, task: str = "write") -> list[str]:
        return self.airflow.said(dag, day.isoformat(), task)

    def error(self, name: str, day: datetime.date) -> str | None:
        """The kind of the error that has ended a try of the day last."""
        file = self.folder / f"{name}-{day}.error"
        return file.read_text() if file.exists() else None


def _replaced(text: str, words: dict[str, str]) -> str:
    for said, here in words.items():
        assert said in text, said
        text = text.replace(said, here)
    return text


def _settings_of_spark(folder: Path, settings: dict[str, str]) -> dict[str, str]:
    """What the tests' Spark is told, for the spark-submit of a reader; and this checkout as the installed library."""
    folder.mkdir()
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "SPARK_HOME", "SPARK_LAUNCHER_OPTS") if name in os.environ}
    return {"SPARK_CONF_DIR": str(folder), "PYTHONPATH": str(ROOT), **kept}


@pytest.fixture(scope="module")
def reader(tmp_path_factory, spark_settings):
    folder = tmp_path_factory.mktemp("srv")
    (folder / "env").symlink_to(sys.prefix)
    for number, day in enumerate(DAYS):
        landing = folder / "landing" / day.isoformat()
        landing.mkdir(parents=True)
        orders = [{"id": i, "amount": i / 4} for i in range(number * ROWS, (number + 1) * ROWS)]
        (landing / "orders.json").write_text("".join(json.dumps(order) + "\n" for order in orders))
    try:
        env = _settings_of_spark(folder / "conf", spark_settings)
        airflow = Airflow(tmp_path_factory.mktemp("airflow"), str(ensure_airflow()), env).start()
    except (SetupError, ServerError, OSError) as why:
        unavailable("Airflow", why)
    try:
        yield Reader(folder, airflow)
    finally:
        airflow.stop()


@pytest.fixture(scope="module")
def pypaimon(pypaimon_python, tmp_path_factory):
    client = PyPaimon(pypaimon_python, tmp_path_factory.mktemp("pypaimon"))
    yield client
    client.close()


def _check_rows(pypaimon: PyPaimon, table: Path) -> None:
    """As another reader sees them: each order once, in its day."""
    rows = pypaimon.read(table, columns=["id", "dt"]).to_pylist()
    expected = [{"id": i, "dt": DAYS[i // ROWS]} for i in range(2 * ROWS)]
    assert sorted(rows, key=lambda row: row["id"]) == expected


def test_programs_of_the_page_are_compiled_with_what_stands_there_here(tmp_path):
    """In the gate, which has no Airflow: the page says all that the other tests replace."""
    airflow = Airflow(tmp_path, sys.executable, {})
    airflow.dags.mkdir()
    Reader(tmp_path, airflow).saves("at_once", ["keeps the name"] * 2, leaving_out=LIMIT)
    for file in (tmp_path / "at_once.py", airflow.dags / "at_once_dag.py"):
        compile(file.read_text(), file, "exec")


@pytest.mark.soak
@pytest.mark.spark
def test_each_order_is_there_once_whatever_dies_and_is_cleared(reader, pypaimon):
    """Airflow catches up two days. In the first try of one the driver dies; in that of the other spark-submit dies, and
    its driver goes on when the next try has ended. Then a day is cleared and runs again."""
    table = reader.folder / "lake/shop.db/orders"
    reader.saves("orders", ["the driver dies", "spark-submit dies"])
    reader.airflow.schedule()
    reader.waits("orders")
    for day in DAYS:
        *earlier, last = reader.said("orders", day)
        assert any(map(KILLED.search, earlier)) and "return code 0" in last
    _until(lambda: reader.error("orders", DAYS[1]) not in (None, "application.in-use"))
    assert reader.error("orders", DAYS[1]) == "writer.fenced", "the driver that went on"
    _check_rows(pypaimon, table)

    tries = len(reader.said("orders", DAYS[0]))
    reader.airflow.clear("orders", DAYS[0].isoformat(), "write")
    reader.waits("orders", tries + 1)
    assert "\n0 rows\n" in reader.said("orders", DAYS[0])[-1]
    _check_rows(pypaimon, table)


@pytest.mark.soak
@pytest.mark.spark
def test_two_days_at_one_time_are_there_once(reader, pypaimon):
    """Without the limit that the page sets: the second day is refused, and its next try writes it."""
    reader.saves("at_once", ["keeps the name"] * 2, leaving_out=LIMIT)
    reader.airflow.read_dags()
    reader.waits("at_once")
    assert sorted(str(reader.error("at_once", day)) for day in DAYS) == ["None", "application.in-use"]
    _check_rows(pypaimon, reader.folder / "lake/shop.db/at_once")


def _until(holds) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.5)
