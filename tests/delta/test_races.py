"""Processes that commit at the same time: of those that want one version one gets it, and the others know."""

import json
import subprocess
import sys
import uuid

import pytest
from deltalake import Schema

from streamsink.sinks.delta.log import DeltaLog, storage_options
from streamsink.storage.stores import store_of
from streamsink.testing.conformance import SCHEMA


def race(uri: str, options: dict, versions: int, racers: int = 2):
    log = DeltaLog(store_of(uri, options).open(), uri, uri, storage_options(uri, options))
    log.create(Schema.from_arrow(SCHEMA), [], {})
    command = [sys.executable, "-m", "tests.delta.racer", uri, json.dumps(options)]
    started = [
        subprocess.Popen(
            [*command, f"racer{number}", str(versions)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(racers)
    ]
    for each in started:
        assert each.stdout.readline() == "ready\n"
    for each in started:
        each.stdin.write("go\n")
        each.stdin.flush()
    won = [json.loads(each.communicate(timeout=300)[0]) for each in started]
    there = [log.entry(version).record_id for version in range(1, int(log.newest().version()) + 1)]
    assert sorted(there) == sorted(record for each in won for record in each)
    assert len(set(there)) == len(there) >= versions
    assert all(won), "one of them never had a turn, so nothing was tried"


def test_two_processes_on_a_disk(tmp_path):
    race(str(tmp_path / "table"), {}, 60)


@pytest.mark.soak
def test_four_processes_on_a_disk(tmp_path):
    race(str(tmp_path / "table"), {}, 300, 4)


@pytest.mark.soak
def test_processes_on_s3(s3_server):
    race(f"s3://lake/{uuid.uuid4()}", s3_server.options, 60)


@pytest.mark.soak
def test_processes_on_hdfs(hdfs_cluster):
    race(f"{hdfs_cluster.uri}/{uuid.uuid4()}", {}, 60)
