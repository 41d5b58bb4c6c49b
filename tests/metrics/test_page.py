"""docs/METRICS.md has what the code has."""

from tests import metrics_page


def test_the_page_of_metrics_is_as_the_code_has_it():
    """``python -m tests.metrics_page`` writes it anew."""
    assert metrics_page.PAGE.read_text(encoding="utf-8") == metrics_page.page()
