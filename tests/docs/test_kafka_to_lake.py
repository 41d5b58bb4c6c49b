"""docs/how-to/KAFKA_TO_LAKE.md: its program, started by its command on a real Kafka, until Ctrl-C and again."""

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import streamsink
from tests.docs.blocks import ROOT, blocks_of, pages, text_of
from tests.docs.checkout import Running, environment, here
from tests.docs.shell import Shell
from tests.e2e import kafka_data
from tests.e2e.cluster import JVM, spark_home
from tools.common import DEFAULT_SPARK, cache_dir
from tools.jars import IVY_SETTINGS, resolve

PAGE = "docs/how-to/KAFKA_TO_LAKE.md"
PROGRAM, START, OFFSETS = 0, 1, 2
WAIT_S = 600
ORDERS = 40


def _order(number: int) -> str:
    return json.dumps({"id": number, "dt": "2026-11-21", "amount": 1.5})


def packages() -> str:
    """The page's option, for this Spark. Where a registry has the connector and not its token provider in this version,
    that one comes as a jar, as tools/jars.py finds it."""
    found = resolve("kafka")
    [connector] = re.findall(r"\S+:spark-sql-kafka-0-10_[\d.]+:\S+", found.way)
    if found.way.startswith("plain"):
        return f"--packages {connector}"
    [provider] = [jar for jar in found.jars if "token-provider" in jar]
    name = connector.rpartition(":")[0].replace("spark-sql-kafka", "spark-token-provider-kafka")
    return f"--packages {connector} --exclude-packages {name} --jars {provider}"


def _environment(folder: Path) -> dict[str, str]:
    """Of a machine with Spark and an environment that has the library, whose settings say where packages come from."""
    folder.mkdir()
    settings = os.environ.get("STREAMSINK_IVY_SETTINGS")
    if settings is None:
        settings = str(folder / "ivysettings.xml")
        Path(settings).write_text(IVY_SETTINGS)
    conf = {
        "spark.jars.ivy": str(cache_dir() / "ivy"),
        "spark.jars.ivySettings": settings,
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JVM,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in conf.items()))
    env = environment()
    path = f"{spark_home()}/bin{os.pathsep}{env['PATH']}"
    spark = {"SPARK_HOME": str(spark_home()), "SPARK_CONF_DIR": str(folder), "PYSPARK_PYTHON": sys.executable}
    return env | spark | {"PATH": path, "PYTHONPATH": str(ROOT)}


def _rows(table: Path) -> Counter:
    try:
        return Counter(streamsink.read_arrow(str(table), columns=["id"])["id"].to_pylist())
    except streamsink.errors.StreamsinkError:
        return Counter()  # there is no table yet


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.kafka
def test_the_program_is_started_as_the_page_says_and_goes_on_after_ctrl_c(tmp_path, kafka_broker, spark_settings):
    """With the trigger that the page has. A start without the checkpoint needs nothing: each order is there once."""
    reader, topic = tmp_path / "reader", kafka_data.new_topic(kafka_broker.bootstrap, 1)
    reader.mkdir()
    words = {"kafka_broker": kafka_broker.bootstrap, "topic": topic, "packages": packages()}
    blocks = blocks_of(PAGE)
    (reader / blocks[PROGRAM].file).write_text(here(PAGE, blocks[PROGRAM].text, words))
    command = here(PAGE, blocks[START].text, words)
    env, table = _environment(tmp_path / "conf"), reader / "lake/shop.db/orders"
    for number in range(3):
        numbers = range(number * ORDERS, (number + 1) * ORDERS)
        kafka_data.send_to(kafka_broker.bootstrap, topic, ((i, 0) for i in numbers), text=_order)
        if number == 2:
            (reader / "ckpt").rename(tmp_path / "lost")
        with Running(command, reader, tmp_path / f"said-{number}.txt", env) as driver:
            driver.wait_until(
                lambda number=number: len(_rows(reader / "lake/shop.db/orders")) > number * ORDERS, WAIT_S
            )
            driver.interrupt()
            driver.wait(WAIT_S)
    assert _rows(table) == Counter(range(3 * ORDERS))
    said = Shell(reader).run(blocks[OFFSETS].text)
    assert str(3 * ORDERS) in said and topic in said


def test_the_connector_is_that_of_the_spark_that_is_tested():
    """On every page that names one."""
    said = {
        version for page in pages() for version in re.findall(r"spark-sql-kafka-0-10_2.13:([\d.]+\d)", text_of(page))
    }
    assert said == {DEFAULT_SPARK}
