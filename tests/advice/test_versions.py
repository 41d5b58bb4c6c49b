"""Advice of errors about versions of what the library is installed with."""

import re

import pyarrow as pa
import pytest

import streamsink
from streamsink.errors import Misuse
from streamsink.format.arrow_types import LEAST_ARROW as LEAST
from streamsink.protocol.sink import VERSION
from streamsink.spark.rows.tasks import check_version
from tests.advice.following import follows, told
from tests.advice.kinds import ROOT


@follows("pyarrow.version")
def test_a_pyarrow_that_is_too_old(tmp_path, monkeypatch):
    """It is refused before anything is written, on the driver and in a task, which has a Python of its own. Formerly
    each write failed with an error of Python's, though such a version could be installed."""
    path = str(tmp_path / "orders")
    monkeypatch.setattr(pa, "__version__", f"{LEAST - 1}.0.0")
    said = told("pyarrow.version", lambda: streamsink.to_table(path))
    said.says(path, f"{LEAST - 1}.0.0", "Nothing was written")
    with pytest.raises(Misuse, match=r"kind pyarrow.version"):
        check_version(VERSION, path)
    monkeypatch.setattr(pa, "__version__", f"{said.find(r'pyarrow>=([0-9]+)')}.0.1")
    streamsink.to_table(path)
    check_version(VERSION, path)
    assert not (tmp_path / "orders").exists()


@pytest.mark.parametrize("file", ["pyproject.toml", "docs/GUIDE.md"])
def test_the_pyarrow_that_is_installed_is_one_that_is_taken(file):
    assert re.findall(r"pyarrow>=(\d+)", (ROOT / file).read_text()) == [str(LEAST)]
