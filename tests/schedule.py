"""Which worker of ``make test`` runs what, and when: whole files, those that share a server together, the longest first.

A server and a Spark session are started once for each worker that needs them, so tests of one server stay on one worker. What
takes long begins first, or the other worker would wait for it in the end. Long tests of one promise take turns (``in_turn``).
"""

import random
from collections import defaultdict

import pytest

# Longest first (`make test ARGS=--durations=0` tells); every other file is a unit of its own, and comes after these.
UNITS = {
    "Kafka": (
        "e2e/test_kafka_kills",
        "e2e/test_accidents_kafka",
        "e2e/test_kafka_identity",
        "e2e/test_real_walks",
        "jobs/test_jobs",
        "test_services",
    ),
    "kills": ("e2e/test_kill_every_step",),
    "HDFS and S3": (
        "e2e/test_stores",
        "crash/test_stores",
        "storage/test_accidents",
        "storage/test_conformance",
        "storage/test_hold",
        "storage/test_s3",
        "compat/test_java_on_hdfs",
    ),
    "locks": (
        "locks/test_conformance",
        "locks/test_publishing",
        "locks/test_configured",
        "locks/test_deadlock",
        "compat/test_shared_locks",
    ),
    "tasks": ("e2e/test_accidents_tasks",),
    "restarts": ("e2e/test_accidents_kills",),
    "tasks of Spark's own writer": ("e2e/test_accidents_large_batches",),
    "several tables": ("e2e/test_many_tables",),
    "groups": ("e2e/test_grouped_publishing",),
    "readers": ("compat/test_read_by_others",),
    "I/O calls": ("crash/test_every_call",),
    "I/O errors": ("crash/test_errors_and_torn_writes",),
    "foreign writers": ("e2e/test_accidents_foreign",),
}
FILES = {f"tests/{file}.py": unit for unit, files in UNITS.items() for file in files}
_PLACE = {file: place for place, file in enumerate(FILES)}


def unit_of(nodeid: str) -> str:
    """The unit that a test belongs to."""
    file = nodeid.partition("::")[0]
    return FILES.get(file, file)


def take_turns(items: list, seed: int, all_of_them: bool) -> None:
    """Of the tests that have the mark ``in_turn(name, some)`` with one name the seed chooses some; the soak runs all of them."""
    named = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("in_turn")
        if mark is not None and item.get_closest_marker("soak") is None:
            named[mark.args].append(item)
    for (name, some), tests in named.items():
        tests.sort(key=lambda item: item.nodeid)
        chosen = [] if all_of_them else random.Random(f"{seed}-{name}").sample(tests, min(some, len(tests)))
        for item in tests:
            if item not in chosen:
                item.add_marker(pytest.mark.soak)


def longest_first(items: list) -> None:
    """Put the tests of the long units before all others; inside of a file the order stays."""
    items.sort(key=lambda item: _PLACE.get(item.nodeid.partition("::")[0], len(_PLACE)))


def scheduler(config, log):
    """What hands out the tests to the workers of pytest-xdist."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return unit_of(nodeid)

    config.option.loadscopereorder = False  # else the unit with the most tests, which are short ones, would begin
    return Units(config, log)
