"""The ground on which an accident happens."""

import pytest

from tests.e2e.harness import Ground


@pytest.fixture
def ground(tmp_path) -> Ground:
    return Ground(tmp_path)
