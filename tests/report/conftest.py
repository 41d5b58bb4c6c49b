"""Reports of tables, and a browser that shows them."""

import pytest

from streamsink.operations.report.gather import Wanted, gather
from streamsink.storage.file_io import local_file_io
from tests.conftest import unavailable
from tests.services.chromium import browser
from tools.common import SetupError


def report_on(root, findings: bool = True, snapshots: int = 10_000) -> dict:
    """The data of the report of a table on this disk."""
    return gather(local_file_io(False), str(root), Wanted(snapshots, findings))


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests of a worker."""
    try:
        with browser() as found:
            yield found
    except SetupError as missing:
        unavailable("Chromium", missing)
