"""docs/how-to/KUBERNETES.md as a reader follows it: the image that it speaks of, its manifest and its commands."""

import contextlib
import json
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pyspark

import streamsink
from tests.docs.blocks import ROOT, blocks_of
from tests.docs.shell import Shell
from tests.e2e.cluster import command_of, spark_home
from tests.services import process
from tests.services.kubernetes import Image, Kubernetes
from tests.services.kubernetes_node import NODE
from tests.services.s3 import ACCESS_KEY, REGION, SECRET_KEY
from tools.common import cache_dir
from tools.jars import jars
from tools.java import find_java

DRIVER = "org.apache.spark.deploy.SparkSubmit"
EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
PAGE = "docs/how-to/KUBERNETES.md"
IMAGE = "registry.example.com/orders-to-lake:1"
A_FILE = 20_500
WAIT_S, REFUSED = 600, 400

# Small files are written by the driver if nobody says, and large ones may be by the executors' Java.
BY_PYTHON = {"driver_max_rows": 0, "large_batches": "tasks"}
PROGRAM = """
from pyspark.sql import SparkSession

import streamsink

spark = SparkSession.builder.appName("orders-to-lake").getOrCreate()
sink = streamsink.to_table("{table}", partition_by=["dt"], store_options={options}, **{by_python})


def publish(df, batch_id):
    sink(df, batch_id)
    print(f"batch {{batch_id}} is there", flush=True)


def start():
    orders = spark.readStream.schema("id BIGINT, dt DATE").option("maxFilesPerTrigger", 1).json("{lake}/in")
    stream = orders.writeStream.foreachBatch(publish).option("checkpointLocation", "{lake}/ckpt/orders")
    return stream.trigger(processingTime="1 second").start()


streamsink.run(start)
"""
# What Spark's own image has for executors, in the words of Spark 4.1.
ENTRYPOINT = """#!/bin/bash
set -e
if [ "$1" != executor ]; then
  exec "$@"
fi
readarray -t options < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n | sed 's/[^=]*=//')
exec "$JAVA_HOME/bin/java" "${options[@]}" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \\
  -cp "$SPARK_CLASSPATH:$SPARK_HOME/jars/*" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \\
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \\
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \\
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
"""
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
DEFAULTS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    # Of this machine's two processors, three containers have a share.
    "spark.kubernetes.executor.request.cores": "400m",
    "spark.driver.extraJavaOptions": JVM,
    "spark.executor.extraJavaOptions": JVM,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.hadoop.fs.s3a.endpoint.region": REGION,
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
}


def image(port: int, lake: str) -> Image:
    """The page's image: Spark, Python with the library, and the program. Its keys stand for those of a role."""
    endpoint = f"http://{NODE}:{port}"
    options = {"s3.endpoint": endpoint, "s3.region": REGION, "s3.path-style-access": "true"}
    settings = DEFAULTS | {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.jars": ",".join(map("local:{}".format, jars("s3a"))),
    }
    program = PROGRAM.format(lake=lake, table=table_of(lake), options=options, by_python=BY_PYTHON)
    files = {
        "/opt/jobs/orders_to_lake.py": program,
        "/opt/entrypoint.sh": ENTRYPOINT,
        "/opt/conf/spark-defaults.conf": "".join(f"{name} {value}\n" for name, value in settings.items()),
    }
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "JAVA_HOME": find_java().home,
        "SPARK_HOME": "/opt/spark",
        "SPARK_CONF_DIR": "/opt/conf",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    # Not the folder itself: Spark mounts the settings of executors at /opt/spark/conf.
    links = {f"/opt/spark/{path.name}": str(path) for path in spark_home().iterdir()}
    return Image(IMAGE, ["/opt/entrypoint.sh"], {name: text.encode() for name, text in files.items()}, links, env)


def shown() -> list[str]:
    """What the image's links and settings lead to."""
    folders = [sys.prefix, sys.base_prefix, ROOT, spark_home(), Path(pyspark.__file__).parent]
    return [*map(str, folders), str(cache_dir() / "ivy"), find_java().home]


def table_of(lake: str) -> str:
    return f"{lake.replace('s3a:', 's3:')}/shop.db/orders"


class Orders:
    """The page as a reader follows it, in a folder of its own. root: of what the orders are on the store."""

    def __init__(self, folder: Path, cluster: Kubernetes, server, root: str):
        self._cluster, self._server, self._root = cluster, server, root
        self._shell = Shell(folder)
        self._followed: list[subprocess.Popen] = []
        self.sent = 0
        manifest, self.commands = blocks_of(PAGE)
        (folder / manifest.file).write_text(manifest.text)

    def send(self, files: int) -> None:
        for _ in range(files):
            rows = range(self.sent, self.sent + A_FILE)
            text = "".join(json.dumps({"id": i, "dt": f"2026-11-0{1 + i % 2}"}) + "\n" for i in rows)
            key = f"{self._root}/in/{self.sent}.json"
            self._server.client().put_object(Bucket=self._server.bucket, Key=key, Body=text.encode())
            self.sent += A_FILE

    def follow(self) -> None:
        """Run the page's commands, of which the last one does not end."""
        *first, last = self.commands.text.splitlines()
        self._shell.run("\n".join(first))
        with open(self._shell.inside / "followed.txt", "ab") as said:
            self._followed.append(
                subprocess.Popen(["bash", "-c", last], cwd=self._shell.inside, stdout=said, stderr=said)
            )

    def close(self) -> None:
        for one in self._followed:
            one.kill()
            one.wait()

    def kubectl(self, arguments: str) -> str:
        return self._shell.run(f"kubectl {arguments}")

    def pods(self, label: str) -> list[dict]:
        return json.loads(self.kubectl(f"get pods -l {label} -o json"))["items"]

    def rows(self) -> Counter:
        try:
            rows = streamsink.read_arrow(
                f"s3://{self._server.bucket}/{self._root}/shop.db/orders",
                columns=["id"],
                store_options=self._server.options,
            )
        except streamsink.errors.StreamsinkError:
            return Counter()
        return Counter(rows["id"].to_pylist())

    def wait(self, what: str, is_so, wait_s: float = WAIT_S) -> None:
        end = time.monotonic() + wait_s
        while not is_so():
            assert time.monotonic() < end, f"{what}\n{self.state()}"
            time.sleep(2)

    def state(self) -> str:
        """What an operator would look at."""
        said = [self.kubectl("get pods -o wide"), self.kubectl("get events")]
        with contextlib.suppress(AssertionError):
            said.append(self.kubectl("logs --tail=60 deployment/orders-to-lake"))
        return "\n".join([*said, process.tail(self._cluster.log)])

    def check(self) -> None:
        """Each row that was sent comes into the table, once."""
        self.wait("rows are missing", lambda: len(self.rows()) >= self.sent)
        assert self.rows() == Counter(range(self.sent))

    def restarts(self) -> dict[str, int]:
        """How often each pod of a driver, that is not on its way out, was started again."""
        pods = [pod for pod in self.pods("app=orders-to-lake") if "deletionTimestamp" not in pod["metadata"]]
        return {
            pod["metadata"]["name"]: each["restartCount"]
            for pod in pods
            for each in pod["status"].get("containerStatuses", ())
        }

    def executors(self, phase: str) -> list[dict]:
        return [pod for pod in self.pods("spark-role=executor") if pod["status"]["phase"] == phase]

    def owners(self) -> set[str]:
        """The pods to which executors belong, whatever has become of them."""
        references = (pod["metadata"]["ownerReferences"] for pod in self.pods("spark-role=executor"))
        return {each["name"] for some in references for each in some}

    def processes(self, main: str) -> list[int]:
        """Those of a class, by their ids on this machine."""
        return [pid for pid in descendants(self._cluster.machine) if main in command_of(pid)]

    def scaled(self) -> list[str]:
        """How the Deployment has changed the number of drivers, one time after another: "up" or "down"."""
        events = json.loads(self.kubectl("get events --field-selector reason=ScalingReplicaSet -o json"))["items"]
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [re.match("Scaled (up|down) ", event["message"])[1] for event in events]

    def granted(self) -> set[tuple[str, str]]:
        """What the pods' account may ask of the API server: {(verb, resource)}."""
        rules = json.loads(self.kubectl("get role spark -o json"))["rules"]
        return {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}

    def asked(self) -> dict[tuple[str, str], set[int]]:
        """What the pods' account has asked of the API server: {(verb, resource): the answers' codes}."""
        found = defaultdict(set)
        for line in (self._cluster.data_dir / "audit.log").read_text().splitlines():
            with contextlib.suppress(ValueError):  # the last one is being written
                said = json.loads(line)
                found[said["verb"], said["objectRef"]["resource"]].add(said["responseStatus"]["code"])
        return dict(found)

    def refused(self) -> dict[tuple[str, str], set[int]]:
        """Of what the pods' account has asked, that which it may not, or which is not there."""
        return {each: codes for each, codes in self.asked().items() if max(codes) >= REFUSED}

    def followed(self) -> str:
        """What the command that follows the driver's log has printed."""
        return (self._shell.inside / "followed.txt").read_text()


def descendants(pid: int) -> list[int]:
    found = process.children(pid)
    return found + [each for child in found for each in descendants(child)]
