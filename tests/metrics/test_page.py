"""docs/METRICS.md has what the code has, and its lines of Python run."""

import logging
import re

import pytest

from streamsink.metrics import JsonFormatter
from tests import metrics_page


def blocks():
    return re.findall(r"```python\n(.*?)```", metrics_page.PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_page_of_metrics_is_as_the_code_has_it():
    """``python -m tests.metrics_page`` writes it anew."""
    assert metrics_page.PAGE.read_text(encoding="utf-8") == metrics_page.page()


def test_the_log_is_set_up_as_the_page_says():
    """The formatter is on a handler of the library's logger."""
    (lines,) = (block for block in blocks() if "JsonFormatter" in block)
    made = {}
    exec(lines, made)
    try:
        assert isinstance(made["handler"].formatter, JsonFormatter)
        assert made["handler"] in logging.getLogger("streamsink").handlers
    finally:
        logging.getLogger("streamsink").removeHandler(made["handler"])


@pytest.mark.spark
def test_a_query_is_set_up_as_the_page_says(spark, tmp_path):
    """A sink with the log and the metrics, both at one endpoint; here with a port that is free."""
    (lines,) = (block for block in blocks() if "spark_progress" in block)
    lines = lines.replace("127.0.0.1:9464", "127.0.0.1:0").replace("lake/", f"{tmp_path}/lake/")
    lines = lines.replace("\nserve(", "\nendpoint = serve(").replace(
        "\nspark_progress(", "\nlistening = spark_progress("
    )
    made = {"spark": spark}
    exec(lines, made)
    try:
        assert made["endpoint"].metrics is made["metrics"] and made["sink"].path.endswith("/lake/shop.db/orders")
    finally:
        made["endpoint"].close()
        spark.streams.removeListener(made["listening"])
