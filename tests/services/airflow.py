"""A real Airflow: its scheduler with the local executor, the API that its tasks talk to, and a database in SQLite.

Its web pages are left out, and so is the server of logs, which would listen on every interface.
"""

import json
import os
import secrets
import socket
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from tests.services import process
from tests.services.ports import LOOPBACK
from tests.services.server import Server, run

OF_SPARK = ("SPARK_", "PYSPARK_", "PYTHON", "STREAMSINK_")


class Airflow(Server):
    """python: of the environment that has Airflow. env: what its processes, and so its tasks, get besides.

    A DAG is a file in ``dags``; ``read_dags`` tells Airflow of it."""

    def __init__(self, data_dir: Path, python: str, env: dict[str, str]) -> None:
        super().__init__(data_dir)
        self.dags = self.data_dir / "dags"
        self._python, self._env = python, env
        self._secret = secrets.token_hex(64)
        self._scheduler: subprocess.Popen | None = None

    def prepare(self) -> None:
        self.dags.mkdir(exist_ok=True)
        run("airflow db migrate", self._call("db", "migrate"), env=self.environment())

    def command(self) -> list[str]:
        return self._call("api-server", "--host", LOOPBACK, "--port", str(self.port), "--apps", "execution")

    def environment(self) -> dict[str, str]:
        """Without what is set for the Spark of the tests."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(OF_SPARK)}
        settings = {
            "core__load_examples": "False",
            "core__executor": "LocalExecutor",
            "core__parallelism": "4",
            "core__dags_folder": str(self.dags),
            "core__dags_are_paused_at_creation": "False",
            "core__execution_api_server_url": f"http://{LOOPBACK}:{self.port}/execution/",
            "database__sql_alchemy_conn": f"sqlite:///{self._database}",
            "api__workers": "1",
            "workers__execution_api_timeout": "120",  # a busy machine's tries would end with the default
            "api_auth__jwt_secret": self._secret,
            "scheduler__scheduler_heartbeat_sec": "1",
            "usage_data_collection__enabled": "False",
        }
        named = {f"AIRFLOW__{name.upper()}": value for name, value in settings.items()}
        return {**own, "AIRFLOW_HOME": str(self.data_dir), "no_proxy": LOOPBACK, **named, **self._env}

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0

    def schedule(self) -> None:
        """Read the DAGs, and let the scheduler run from now on."""
        self.read_dags()
        command = self._call("scheduler", "--skip-serve-logs")
        self._scheduler = process.spawn(command, self.data_dir / "scheduler.log", self.environment())

    def read_dags(self) -> None:
        run("airflow dags reserialize", self._call("dags", "reserialize"), env=self.environment())

    def clear(self, dag: str, day: str, task: str) -> None:
        """Let the task of that day, and those after it, run again."""
        asked = ("tasks", "clear", dag, "--start-date", day, "--end-date", day, "--task-regex", task)
        run("airflow tasks clear", self._call(*asked, "--downstream", "--yes"), env=self.environment())

    def states(self, dag: str) -> dict[str, str]:
        """Of each run, by the day that it is for."""
        rows = self._asked("SELECT date(data_interval_start), state FROM dag_run WHERE dag_id = ?", dag)
        return dict(rows)

    def said(self, dag: str, day: str, task: str) -> list[str]:
        """What each try of a task has said, from the first try on."""
        runs = self._asked("SELECT run_id FROM dag_run WHERE dag_id = ? AND date(data_interval_start) = ?", dag, day)
        folder = self.data_dir / "logs" / f"dag_id={dag}" / f"run_id={runs[0][0]}" / f"task_id={task}"
        logs = sorted(folder.glob("attempt=*.log"), key=lambda path: int(path.stem.partition("=")[2]))
        return ["\n".join(json.loads(line)["event"] for line in log.read_text().splitlines()) for log in logs]

    def stop(self) -> None:
        if self._scheduler:
            process.stop(self._scheduler)
        super().stop()

    def _call(self, *arguments: str) -> list[str]:
        return [self._python, "-m", "airflow", *arguments]

    @property
    def _database(self) -> Path:
        return self.data_dir / "airflow.db"

    def _asked(self, question: str, *values: str) -> list[tuple]:
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=60)) as database:
            return database.execute(question, values).fetchall()
