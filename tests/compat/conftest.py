"""The other readers and writers."""

import pytest

from tests.compat.java import JavaPaimon
from tests.compat.pypaimon_client import PyPaimon


@pytest.fixture(scope="session")
def java(spark):
    """Paimon's Java API in Spark's JVM."""
    return JavaPaimon(spark)


@pytest.fixture(scope="session")
def pypaimon(pypaimon_python, tmp_path_factory):
    """pypaimon in a process of its own."""
    client = PyPaimon(pypaimon_python, tmp_path_factory.mktemp("pypaimon"))
    yield client
    client.close()


@pytest.fixture
def path(tmp_path):
    """Where a table may stand, as a catalog would place it."""
    return str(tmp_path / "shop.db" / "orders")
