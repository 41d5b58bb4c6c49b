"""What a command imports before it does its work: a help that comes at once is one that is read."""

import json
import subprocess
import sys

import pytest

_RUN = """
import json, sys
from streamsink.cli.main import main
try:
    main(json.loads(sys.argv[1]))
except SystemExit as done:
    assert not done.code, done.code
print("modules:", json.dumps(sorted(sys.modules)))
"""
_HEAVY = {"pyspark", "py4j", "pandas", "boto3", "hdfs_native", "rich", "tenacity"}
_OF_DATA = {"pyarrow", "numpy", "fastavro"}


@pytest.mark.parametrize(
    ("arguments", "never", "most"),
    [
        (["--help"], _HEAVY | _OF_DATA, 250),
        (["snapshots", "--help"], _HEAVY | _OF_DATA, 270),
        (["snapshots", "{orders}"], _HEAVY | _OF_DATA, 270),
        (["positions", "{orders}"], _HEAVY | {"pyarrow", "numpy"}, 500),
        (["pending", "{orders}"], _HEAVY | {"pyarrow", "numpy"}, 500),
        (["files", "{orders}"], _HEAVY, 700),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else None,
)
def test_a_look_imports_only_what_it_needs(orders, arguments, never, most):
    """Neither Spark nor what draws tables on a terminal; most looks no library of columns either."""
    given = [each.format(orders=orders) for each in arguments]
    done = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(given)], capture_output=True, text=True, check=True, timeout=60
    )
    modules = json.loads(done.stdout.rpartition("modules: ")[2])
    assert {name.partition(".")[0] for name in modules} & never == set()
    assert len(modules) <= most
