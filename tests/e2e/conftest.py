"""The ground on which an accident happens."""

import pytest

from tests.databases.places import PASSWORDS
from tests.e2e.harness import Ground


@pytest.fixture
def ground(tmp_path, spark_settings) -> Ground:
    """The drivers of its job start from the class-data archive, which belongs to the home that the settings name."""
    return Ground(tmp_path)


@pytest.fixture
def passwords(monkeypatch) -> None:
    """Those of the databases are in the environment, of the tests' own session and of drivers."""
    for name, value in PASSWORDS.items():
        monkeypatch.setenv(name, value)
