"""What one process knows of its queries' runs."""

import threading

from streamsink.spark import runs

WAIT_S = 200


def test_a_batch_does_not_wait_for_another_query_that_starts():
    """A start holds the lock while it claims and publishes what is pending, which may take minutes."""
    found: list[frozenset[str]] = []
    batch = threading.Thread(
        target=lambda: found.append(runs.other_sinks("/lake/orders", "streamsink", "a run")), daemon=True
    )
    with runs.LOCK:
        batch.start()
        batch.join(WAIT_S)
        assert found == [frozenset()]
