"""docs/BRANCHES.md does what it says."""

import re
from pathlib import Path

import pytest

import streamsink

pytestmark = [pytest.mark.compat, pytest.mark.spark]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "BRANCHES.md"


def test_the_page_is_run_from_its_first_line_to_its_last_one(spark, java, tmp_path, monkeypatch, capsys):
    """With its assertions; Paimon's Java reads what is there at the end."""
    monkeypatch.chdir(tmp_path)
    known = {"spark": spark}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), known)
    said = capsys.readouterr().out
    assert len(blocks) == 9 and "2 rows leave the table" in said and "2 rows come" in said
    assert sorted(java.read(f"{tmp_path}/lake/shop.db/orders")) == [
        (1, 30.0),
        (2, 12.5),
        (3, 8.0),
        (4, 20.0),
        (5, 7.0),
        (6, 1.0),
    ]
    assert streamsink.verify(f"{tmp_path}/lake/shop.db/orders").ok
