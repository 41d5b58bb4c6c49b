"""Fixtures of the tests of lineage."""

import pytest

from tests.conftest import unavailable
from tests.e2e.harness import Ground
from tests.lineage.collector import collecting


@pytest.fixture(scope="session")
def package() -> None:
    try:
        import jsonschema  # noqa: F401
        import openlineage.client  # noqa: F401
    except ImportError as why:
        unavailable("OpenLineage", why)


@pytest.fixture
def collector(package):
    with collecting() as found:
        yield found


@pytest.fixture
def ground(tmp_path) -> Ground:
    return Ground(tmp_path)
