"""A real Spark query onto a real HDFS and a real S3 is killed once with SIGKILL and started again:
each row is there once."""

import json
import signal
import uuid
from collections import Counter

import pytest

import streamsink
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.storage.s3 import S3FileIO
from streamsink.storage.s3_calls import S3Calls
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import is_table, open_table
from tests.e2e.harness import ids_of, run_driver
from tests.e2e.test_many_tables import RANDOM
from tests.storage.back_ends import REMOTE, back_end

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES = 6
# The driver's own way, and Python tasks.
WAYS = {"driver": {}, "tasks": {"driver_max_rows": 0}}


def _each_once(made, table, files):
    found = streamsink.read_arrow(table, store_options=made.options).column("id").to_pylist()
    assert Counter(found) == dict.fromkeys(ids_of(0, files), 1)


@pytest.mark.in_turn("machines and stores", 1)
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


@pytest.mark.soak
def test_a_query_of_several_tables_is_killed_on_s3_and_leaves_nothing(s3_server, ground, spark_settings):
    """Tasks write files with their final names into tables that do not exist yet, dead letters among them.

    The driver dies before the record, and between two tables. Each row is there once, and each
    data file is one that a table names. Nothing is left in staging.
    """
    lake = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}/shop.db"
    ground.add_files(0, FILES)
    options = {"store_options": dict(s3_server.options), "driver_max_rows": 0}
    job = ground.job(table=lake, many=RANDOM, options=options, max_restarts=3)
    for fault in ("write.staged@1", "tables.table_published@2", "precommit.before_record@2"):
        assert run_driver(ground, job, fault=f"{fault}:kill").code == -signal.SIGKILL, fault
    outcome = run_driver(ground, job)
    assert outcome.code == 0, outcome
    file_io = S3FileIO(S3Calls(s3_server.options), IdSource().new_id, lake)
    tables = {
        entry.name for entry in file_io.entries(lake) if entry.is_dir and is_table(file_io, f"{lake}/{entry.name}")
    }
    named, ids = set(), []
    for name in tables:
        found = open_table(file_io, f"{lake}/{name}", for_writing=False)
        newest = found.snapshots.latest()
        named |= {entry.file.file_name for entry in found.manifests.entries_of(newest)} if newest else set()
        rows = read_arrow(found).to_pylist()
        ids += [json.loads(row["row"])["id"] if "row" in row else row["id"] for row in rows]
    assert Counter(ids) == dict.fromkeys(ids_of(0, FILES), 1)
    paths = [path for name in tables for path in file_io.names(f"{lake}/{name}/bucket-0")]
    assert "rejected" in tables and set(paths) == named
    staging = f"{lake}/streamsink/streamsink/staging"
    left = [name for folder in file_io.names(staging) for name in file_io.names(f"{staging}/{folder}")]
    assert left == []  # this server lists folders that are empty
