"""A process of its own in which Spark reads tables by Iceberg's jar: ``python -m ... <requests.json>``.

A request has ``path`` or ``table``, ``options`` of the reader, and ``out``, the Arrow file into which the rows go.
"""

import json
import subprocess
import sys

import pyarrow as pa


def read_all(folder, requests: list[dict], settings: dict, warehouse: str) -> list[pa.Table]:
    """The rows of each request, by Spark in another process. settings: of the session of the tests."""
    from tools.jars import jars

    for number, request in enumerate(requests):
        request["out"] = f"{folder}/rows-{number}.arrow"
    file = f"{folder}/requests.json"
    with open(file, "w") as stream:
        json.dump({"requests": requests, "jar": jars("iceberg")[0], "conf": settings, "warehouse": warehouse}, stream)
    done = subprocess.run([sys.executable, "-m", __name__, file], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return [pa.ipc.open_file(request["out"]).read_all() for request in requests]


def _main(file: str) -> None:
    from pyspark.sql import SparkSession

    with open(file) as stream:
        said = json.load(stream)
    builder = SparkSession.builder.appName("iceberg-reader")
    conf = said["conf"] | {
        "spark.driver.extraClassPath": said["jar"],
        "spark.executor.extraClassPath": said["jar"],
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": said["warehouse"],
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for request in said["requests"]:
        reader = spark.read.format("iceberg").options(**request.get("options", {}))
        frame = reader.load(request["path"]) if "path" in request else spark.table(request["table"])
        frame = frame.where(request["where"]) if "where" in request else frame
        rows = frame.toArrow()
        with pa.OSFile(request["out"], "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)
    spark.stop()


if __name__ == "__main__":
    _main(sys.argv[1])
