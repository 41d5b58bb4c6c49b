"""Fixtures of the tests of traces."""

import pytest

from tests.conftest import unavailable
from tests.traces.recording import Recorder


@pytest.fixture(scope="session")
def sdk() -> None:
    try:
        import opentelemetry.sdk  # noqa: F401
    except ImportError as why:
        unavailable("OpenTelemetry", why)


@pytest.fixture
def recorder(sdk) -> Recorder:
    return Recorder()
