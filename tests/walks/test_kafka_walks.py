"""Walks of accidents into Kafka topics, over a real broker; see ``tests/walks/kafka``."""

import os
from collections import Counter

import pytest

from tests.services.kafka import KafkaBroker
from tests.walks.kafka.events import KINDS, SLOW
from tests.walks.kafka.walking import draw, outcome, walk_all
from tests.walks.walking import tell

pytestmark = pytest.mark.kafka

IN_THE_GATE, IN_THE_SOAK = 2, 200
_MOST_IN_THE_GATE = 7
# Walks that went wrong once, each with what was wrong.
_JUDGED = {
    "a running query finds other markers, and is told that its rows are gone": [
        ("kafka", 0, 0, 1, 1),
        ("batch", 4),
        ("batch", 3),
        ("markers_again",),
        ("batch", 2),
    ],
    "the checkpoint is lost, then the markers, and the first batch of the new one is in part the last one there": [
        ("kafka", 0, 0, 1, 1),
        ("batch", 8),
        ("lose_checkpoint",),
        ("no_marker",),
        ("batch", 5),
    ],
}


def _report(wrong: list[tuple[str, str, str]], counts: Counter) -> None:
    print("events and errors: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    if wrong:
        seed, _, more = wrong[0]
        others = "".join(f"\n{seed}: {what}" for seed, what, _ in wrong[1:])
        pytest.fail(
            f"walk {seed} (again: python -m tests.walks.kafka {seed}): {more}\n{tell(draw(seed))}{others}",
            pytrace=False,
        )


def test_walks_of_accidents_into_kafka(seed, kafka_broker, tmp_path):
    """Each message is there once and in order within its key, or an error's advice leads there; other walks in each
    run."""
    kinds = {name: kind for name, kind in KINDS.items() if name not in SLOW}
    for number in range(IN_THE_GATE):
        walk = draw(f"{seed}-{number}", kinds, most=_MOST_IN_THE_GATE)
        what, more, _ = outcome(walk, kafka_broker.bootstrap, tmp_path / "walk")
        assert not what, f"{more}\n{tell(walk)}"


@pytest.mark.in_turn("walks into Kafka that once went wrong", 1)
@pytest.mark.parametrize("judged", _JUDGED)
def test_a_walk_into_kafka_that_once_went_wrong(judged, kafka_broker, tmp_path):
    """An error led to rows that were doubled."""
    assert outcome(_JUDGED[judged], kafka_broker.bootstrap, tmp_path / "walk")[:2] == ("", "")


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_walks_of_accidents_into_kafka_for_long(seed, tmp_path):
    """Over a broker that is killed as well. STREAMSINK_KAFKA_WALKS says how many."""
    number = int(os.environ.get("STREAMSINK_KAFKA_WALKS") or IN_THE_SOAK)
    with KafkaBroker(tmp_path / "broker") as broker:
        wrong, counts = walk_all([f"{seed}-{n}" for n in range(number)], broker.bootstrap, tmp_path / "walk", broker)
    print(f"RESULT walks: {number} into Kafka, wrong {len(wrong)}, seed {seed}")
    _report(wrong, counts)
