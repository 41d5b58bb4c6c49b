"""A real Spark query onto a real HDFS and a real S3 is killed once with SIGKILL and started again:
each row is there once."""

import signal
from collections import Counter

import pytest

import streamsink
from streamsink.errors import Misuse
from tests.e2e.harness import ids_of, run_driver
from tests.storage.back_ends import REMOTE, back_end

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES = 6
# The driver's own way, and Python tasks.
WAYS = {"driver": {}, "tasks": {"driver_max_rows": 0}}


def _each_once(made, table, files):
    found = streamsink.read_arrow(table, store_options=made.options).column("id").to_pylist()
    assert Counter(found) == dict.fromkeys(ids_of(0, files), 1)


@pytest.mark.in_turn("remote stores", 1)
@pytest.mark.parametrize("kind", REMOTE)
def test_a_query_is_killed_and_started_again(kind, request, ground, spark_settings, spark):
    """It is killed between pre-commit and publishing while tasks write, and the restart writes on the driver.
    Spark reads the table."""
    made = back_end(kind, request)
    table = f"{made.root}/shop.db/orders"
    ground.add_files(0, FILES)
    job = ground.job(table=table, options={"store_options": dict(made.options), **WAYS["tasks"]})
    assert run_driver(ground, job, fault="precommit.saved@2:kill").code == -signal.SIGKILL
    _each_once(made, table, 1)
    outcome = run_driver(ground, job.but(options={"driver_max_rows": 20_000}))
    assert outcome.code == 0, outcome
    _each_once(made, table, FILES)
    assert "testtest" not in ground.root.joinpath("driver-1.out").read_text()
    ways = [fields["way"] for fields in outcome.of("BatchWritten")]
    assert ways and set(ways) == {"driver"}
    if kind == "hdfs":
        read = streamsink.read(spark, table).select("id").collect()
        assert sorted(row.id for row in read) == sorted(ids_of(0, FILES))
    else:
        with pytest.raises(Misuse, match="hadoop-aws"):
            streamsink.read(spark, table, store_options=made.options)
