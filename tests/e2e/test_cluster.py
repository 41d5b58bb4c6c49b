"""The main job on a cluster whose machines share nothing but a store: workers, executors and drivers die, and each
message is in the table once."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, children, command_of, environment_of
from tests.e2e.deployed import A_BATCH, KEYS, Deployed, on_s3
from tests.e2e.harness import until
from tests.e2e.submitted import ARCHIVE, DAEMON, Submitted

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("spark_settings")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, spark_settings):
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def keys(monkeypatch):
    """For the account, which reads from S3 in this process."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def assert_from_the_archive(job: Deployed, cluster: Cluster, daemon: int) -> None:
    """The Python of an executor runs our daemon, which it can have from nowhere but the archive in its work folder."""
    assert command_of(daemon)[1:3] == ["-m", DAEMON]
    folder = Path(f"/proc/{daemon}/cwd").resolve()
    assert folder.is_relative_to(cluster.work_dir(0)) and (folder / ARCHIVE).is_file()
    path = environment_of(daemon)["PYTHONPATH"].split(":")
    of_spark = [entry for entry in path if Path(entry).is_absolute()]
    assert set(path) - set(of_spark) == {ARCHIVE} and all("pyspark" in entry for entry in of_spark)
    without = {"PYTHONPATH": ":".join(of_spark)}
    alone = subprocess.run([job.python, "-m", DAEMON], cwd="/", env=without, capture_output=True, text=True)
    assert "No module named 'streamsink'" in alone.stderr


def busy_executor(job: Deployed, cluster: Cluster, driver: Submitted) -> tuple[int, int]:
    """The executor of the driver on the first worker, and the daemon of its Python, while that has a task."""
    found: list[tuple[int, int]] = []
    application = driver.application

    def has_a_task() -> bool:
        for executor in cluster.executors_of(0, application):
            daemons = [pid for pid in children(executor) if command_of(pid)[:1] == [str(job.python)]]
            found.extend((executor, pid) for pid in daemons if children(pid))
        return bool(found)

    until(has_a_task, driver.check)
    return found[0]


def test_on_s3_a_driver_and_an_executor_are_killed(tmp_path, cluster, kafka_broker, s3_server, keys):
    """The driver dies with a batch recorded and not published, and starts again on another machine; there an executor
    dies while its tasks write."""
    job = Deployed(tmp_path, cluster, kafka_broker.bootstrap, on_s3(s3_server))
    job.send(3 * A_BATCH)
    with job.submit(fault="precommit.saved@1:stop") as first:
        first.wait_stopped()
        first.kill()
    assert first.batches() == []
    with job.submit() as second:
        executor, daemon = busy_executor(job, cluster, second)
        assert_from_the_archive(job, cluster, daemon)
        os.kill(executor, signal.SIGKILL)
        assert second.wait() == 0, second.said()[-5_000:]
    assert "Lost executor" in second.said()
    assert second.batches() == [0, 1, 2]
    job.check()
