"""The main job on a cluster whose machines share nothing but a store: workers, executors and drivers die, and each
message is in the table once."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import streamsink
from tests.compat.java import JavaPaimon
from tests.docs.blocks import blocks_of
from tests.docs.checkout import Checkout, here
from tests.e2e.cluster import HOSTS, Cluster, command_of, environment_of, machine, spark_home
from tests.e2e.deployed import A_BATCH, DRIVERS, KEYS, Deployed, Lake, on_hdfs, on_s3
from tests.e2e.harness import ROOT, WAIT_S, until
from tests.e2e.submitted import ARCHIVE, DAEMON, Submitted
from tests.services.process import children
from tools.common import DEFAULT_SPARK
from tools.jars import jars, pyspark_of

GUIDE = "docs/GUIDE.md"

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.soak, pytest.mark.usefixtures("spark_settings")]

# What is wrong with a deployment, one thing after another, and where its tasks have the library from in the end.
MISTAKES = """
import json, os, sys
from pyspark.sql import SparkSession
import streamsink
table, options, *sessions = map(json.loads, sys.argv[1:])

def where(_):
    import streamsink
    return os.path.abspath(streamsink.__file__)

found = []
for number, conf in enumerate(sessions):
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    by_tasks = {"driver_max_rows": 0, "large_batches": "tasks"}
    try:
        rows = streamsink.write(spark.range(4), table, f"run-{number}", store_options=options, **by_tasks)
        places = spark.sparkContext.parallelize(range(4), 4).map(where).collect()
        found.append([rows, *sorted(set(places)), streamsink.__file__])
    except streamsink.errors.StreamsinkError as refused:
        found.append([refused.kind, str(refused)])
    spark.stop()
print("FOUND=" + json.dumps(found))
"""


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


def test_the_guide_gives_the_settings_that_are_tried():
    """Its command is the one of ``Deployed``, and its list of packages is that of the library."""
    section = re.search(r"\n## On a cluster\n(.*?)\n## ", (ROOT / "docs" / "GUIDE.md").read_text(), re.DOTALL)[1]
    assert dict(re.findall(r"--conf (\S+?)=(\S+)", section)) == {
        "spark.pyspark.python": "/opt/streaming/bin/python",
        "spark.python.daemon.module": DAEMON,
        "spark.executorEnv.PYTHONPATH": ARCHIVE,
    }
    if pyspark_of(sys.executable)[0] == DEFAULT_SPARK:
        [hadoop] = re.findall(r"hadoop-aws:([\d.]+\d)", section)
        assert (pyspark_of(sys.executable)[1] / f"hadoop-client-api-{hadoop}.jar").exists()
    project = (ROOT / "pyproject.toml").read_text()
    needed = re.findall(
        r'^    "([^"]+)",', project.partition("\ndependencies = [")[2].partition("\n]")[0], re.MULTILINE
    )
    needed += re.findall(r'^(?:s3|hdfs) = \["([^"]+)"\]', project, re.MULTILINE)
    said = " ".join(section.split())
    of_the_command_line = ("click", "rich")
    needed = [package for package in needed if not package.startswith(("pyspark", *of_the_command_line))]
    assert len(needed) == 6
    assert [package for package in needed if package not in said] == []


def _the_guide(cluster: Cluster, job: Deployed, lake: Lake) -> str:
    """The commands that docs/GUIDE.md shows for a cluster, on this one."""
    [commands] = [block.text for block in blocks_of(GUIDE) if "make archive" in block.text]
    options = (f"--store-option {name}={value}" for name, value in lake.store_options.items())
    places = {"master": cluster.master, "python": job.python, "warehouse": lake.warehouse}
    jars_here = ",".join(f"local:{jar}" for kind in ("kafka", "s3a") for jar in jars(kind))
    return here(GUIDE, commands, places | job.source | {"jars": jars_here, "options": " ".join(options)})


def test_the_commands_of_the_guide_as_they_stand_there(tmp_path, cluster, kafka_broker, s3_server, keys):
    """In a copy of the checkout, on a machine whose settings say the rest: S3A's endpoint, the keys, the memory."""
    lake = on_s3(s3_server)
    job = Deployed(tmp_path, cluster, kafka_broker.bootstrap, lake)
    job.send(2 * A_BATCH)
    checkout = Checkout(tmp_path / "reader")
    own = ("spark.pyspark.python", "spark.python.daemon.module", "spark.executorEnv.PYTHONPATH", "spark.master")
    settings = {name: value for name, value in job.conf().items() if name not in (*own, "spark.jars")}
    env = machine(tmp_path / "machine") | lake.env
    checkout.env = env | {"PATH": f"{spark_home()}/bin:{env['PATH']}"}
    settings |= dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), DRIVERS[0])
    conf = Path(env["SPARK_CONF_DIR"])
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    said = checkout.run(_the_guide(cluster, job, lake), 3 * WAIT_S)
    assert re.search(rf"^messages read +{2 * A_BATCH:,}$", said, re.MULTILINE)
    assert (checkout.root / "dist" / ARCHIVE).is_file()
    job.check()


def test_on_s3_a_driver_is_killed_and_another_machine_goes_on(tmp_path, cluster, kafka_broker, s3_server, keys):
    """It dies with a batch recorded and not published."""
    job = Deployed(tmp_path, cluster, kafka_broker.bootstrap, on_s3(s3_server))
    job.send(2 * A_BATCH)
    with job.submit(fault="precommit.saved@1:stop", cores=1) as first:
        first.wait_stopped()
        first.kill()
    assert first.batches() == []
    with job.submit() as second:
        assert second.wait() == 0, second.said()[-5_000:]
    assert second.batches() == [0, 1]
    job.check()


def test_on_s3_an_executor_is_killed_while_its_tasks_write(tmp_path, cluster, kafka_broker, s3_server, keys):
    """Its Python has the library from the archive alone."""
    job = Deployed(tmp_path, cluster, kafka_broker.bootstrap, on_s3(s3_server))
    job.send(2 * A_BATCH)
    with job.submit() as driver:
        executor, daemon = busy_executor(job, cluster, driver)
        assert_from_the_archive(job, cluster, daemon)
        os.kill(executor, signal.SIGKILL)
        assert driver.wait() == 0, driver.said()[-5_000:]
    assert "Lost executor" in driver.said()
    assert driver.batches() == [0, 1]
    job.check()


def test_what_executors_lack_is_said_before_anything_is_recorded(tmp_path, cluster, kafka_broker, s3_server, keys):
    """With Spark's own daemon the archive is enough. Ours must find it before there is a task; then keys are missing.
    With all of it tasks have the library from the archive in the executor's folder."""
    lake = on_s3(s3_server)
    job = Deployed(tmp_path, cluster, kafka_broker.bootstrap, lake)
    conf = job.conf()
    daemon, path = ({name: conf.pop(name)} for name in ("spark.python.daemon.module", "spark.executorEnv.PYTHONPATH"))
    env = {name: conf.pop(name) for name in list(conf) if name.startswith("spark.executorEnv.AWS_")}
    # Else boto3 would ask the machine for the keys of its role, where nobody answers.
    no_keys = {"spark.executorEnv.AWS_EC2_METADATA_DISABLED": "true"}
    program = tmp_path / "mistakes.py"
    program.write_text(MISTAKES)
    table = f"{lake.warehouse}/mistakes"
    given = [table, lake.store_options, env, env | daemon, no_keys | daemon | path, env | daemon | path]
    with job.start([str(program), *map(json.dumps, given)], {}, conf) as driver:
        assert driver.wait() == 0, driver.said()[-5_000:]
    [line] = re.findall(r"^FOUND=(.*)$", driver.said(), re.MULTILINE)
    plain, [no_library, said], [keyless, said_of_keys], whole = json.loads(line)
    assert no_library == "worker.no-streamsink" and "spark.executorEnv.PYTHONPATH" in said
    assert keyless == "store.credentials" and "executors" in said_of_keys
    inside = f"{ARCHIVE}/streamsink/__init__.py"
    work = tuple(str(cluster.work_dir(number)) for number in range(len(HOSTS)))
    for rows, *of_tasks, of_driver in (plain, whole):
        assert rows == 4 and of_driver == str(tmp_path / inside)
        assert of_tasks and all(place.endswith(inside) and place.startswith(work) for place in of_tasks), of_tasks
    read = streamsink.read_arrow(table, store_options=lake.store_options)["id"].to_pylist()
    assert sorted(read) == sorted([0, 1, 2, 3] * 2)


def test_a_driver_that_wakes_up_behind_its_successor_is_fenced(tmp_path, cluster, kafka_broker, s3_server, keys):
    """It sleeps before its record, with its executor. Its successor on another machine writes everything."""
    job = Deployed(tmp_path, cluster, kafka_broker.bootstrap, on_s3(s3_server))
    job.send(2 * A_BATCH)
    with job.submit(fault="precommit.before_record@1:stop", cores=1) as first:
        first.wait_stopped()
        with job.submit(cores=1) as second:
            assert second.wait() == 0, second.said()[-5_000:]
        first.wake()
        assert first.wait() == 1
    assert first.batches() == [] and "another driver" in first.said(), first.said()[-5_000:]
    job.check()


# Where drivers die, besides at any moment: (step, at which of its arrivals there).
STEPS = ("write.begin@1", "write.staged@2", "precommit.before_record@1", "precommit.saved@2", "commit.before_publish@2")
STEPS += ("commit.published@1", "commit.marked@2", "restore.claimed@1", "restore.before_sweep@1", "batch.end@2")
LIVES = 4
MOST_ACCIDENTS = 2  # of one life: Spark gives a task up that has lost four executors
LONGEST_PAUSE_S = 10


def accidents(cluster: Cluster, driver: Submitted, rng: random.Random) -> None:
    """Kill executors or a worker, which then starts anew, at random moments until the driver is over."""
    application = driver.application
    for what in rng.sample(["worker", "executor", "executor"], MOST_ACCIDENTS):
        if driver.is_over(rng.uniform(0, LONGEST_PAUSE_S)):
            return
        number = rng.randrange(len(HOSTS))
        print(f"{what} {number} dies after batches {driver.batches()}")
        if what == "worker":
            cluster.kill_worker(number)
            cluster.start_worker(number)
        for pid in cluster.executors_of(number, application) if what == "executor" else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("store", ["hdfs", "s3"])
def test_everything_dies_at_any_moment(store, request, tmp_path, cluster, kafka_broker, keys, rng):
    """In each life of the driver executors and workers die; then it dies itself, at a step or at any moment."""
    lake = on_hdfs(request.getfixturevalue("hdfs_cluster")) if store == "hdfs" else None
    job = Deployed(tmp_path, cluster, kafka_broker.bootstrap, lake or on_s3(request.getfixturevalue("s3_server")))
    for _ in range(LIVES):
        job.send(2 * A_BATCH)
        step = rng.choice([*STEPS, *[""] * (len(STEPS) // 2)])
        with job.submit(fault=f"{step}:stop" if step else "") as driver:
            accidents(cluster, driver, rng)
            driver.is_over(WAIT_S if step else rng.uniform(0, LONGEST_PAUSE_S))
            print(f"the driver dies at {step or 'any moment'} after batches {driver.batches()}")
        assert driver.process.returncode in (0, -signal.SIGKILL), driver.said()[-5_000:]
    with job.submit() as driver:
        accidents(cluster, driver, rng)
        assert driver.wait() == 0, driver.said()[-5_000:]
    job.check()
    if store == "hdfs":
        spark = request.getfixturevalue("spark")
        read = JavaPaimon(spark, on=job.table).read(job.table, columns=["order_id"])
        assert sorted(number for (number,) in read) == list(range(job.sent))
