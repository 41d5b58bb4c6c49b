"""Which worker of ``make test`` runs what, and when: whole files, those that share a server together, the longest
first.

A server and a Spark session are started once for each worker that needs them, so tests of one server stay on one
worker. What takes long begins first, or the other workers would wait for it in the end: ``durations.json`` says how
long, and ``python -m tests.durations`` makes it from the log of a run. Of several workers the last one has the tests
that mostly wait, for leases and for slow servers, and then those without Spark; so it takes little from the others,
which keep the processors busy. Long tests of one promise take turns (``in_turn``).
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping

import pytest

from tests import durations

# Files of one server. Every other file is a unit of its own.
UNITS = {
    "Kafka": (
        "e2e/test_kafka_kills",
        "e2e/test_accidents_kafka",
        "e2e/test_kafka_identity",
        "e2e/test_many_batches",
        "e2e/test_real_walks",
        "e2e/test_other_query",
        "e2e/test_position_columns",
        "e2e/test_kafka_to_kafka",
        "e2e/test_fan_out",
        "e2e/test_offsets_group",
        "e2e/test_accidents_into_kafka",
        "jobs/test_jobs",
        "lineage/test_kafka",
        "metrics/test_chaos",
        "docs/test_stories",
        "docs/test_tutorial",
        "test_package",
        "test_services",
    ),
    # A client that begins a transaction waits for half a second: that costs more than a second broker.
    "clients of Kafka": (
        "sinks/test_kafka_conformance",
        "sinks/test_kafka_refusals",
        "sinks/test_kafka_sink",
        "walks/test_kafka_walks",
    ),
    "HDFS and S3": (
        "e2e/test_stores",
        "e2e/test_holds",
        "e2e/test_cluster",
        "e2e/test_yarn",
        "crash/test_stores",
        "crash/test_care_on_stores",
        "cli/test_stores",
        "storage/test_accidents",
        "storage/test_conformance",
        "storage/test_hold",
        "storage/test_namenode_calls",
        "storage/test_s3",
        "crash/test_handed_over",
        "iceberg/test_stores",
        "iceberg_metadata/test_stores",
        "crash/test_names",
        "table/test_whole",
        "advice/test_others",
        "advice/test_wrong_addresses",
        "compat/test_java_on_hdfs",
        "delta/test_stores",
        "delta/test_races",
        "sinks/test_files",
    ),
    # OpenLineage's client takes two seconds to be imported.
    "lineage": (
        "lineage/test_queries",
        "lineage/test_exit",
        "lineage/test_sending",
        "lineage/test_naming",
        "lineage/test_account",
        "lineage/test_page",
    ),
    # A server of S3 starts in a second: what needs no other server is a unit of its own.
    "S3": (
        "storage/test_s3_client",
        "storage/test_s3_faults",
        "storage/test_s3_keys",
        "storage/test_s3_proxy",
        "advice/test_s3_store",
    ),
    "locks": (
        "locks/test_conformance",
        "locks/test_publishing",
        "locks/test_configured",
        "locks/test_deadlock",
        "compat/test_shared_locks",
        "advice/test_locks",
        "advice/test_catalogs",
        "catalogs/test_hive",
        "catalogs/test_rest",
        "catalogs/test_several",
        "compat/test_hive_catalog",
        "compat/test_rest_catalog",
        "databases/test_branches",
        "databases/test_conformance",
        "databases/test_deaths",
        "databases/test_logins",
        "databases/test_refused",
        "databases/test_refused_rows",
        "databases/test_rows",
        "databases/test_staged_rows",
        "databases/test_staging",
        "iceberg/test_catalogs",
        "iceberg/test_rest",
    ),
}
# They wait more than they compute.
WAITING = ("locks", "HDFS and S3", "clients of Kafka", "S3")
# What starts sessions and drivers of Spark, and JVMs of others.
OF_SPARK = ("tests/e2e/", "tests/compat/", "tests/jobs/", "tests/test_", "Kafka", "lineage")
FEWEST_WITH_ONE_ASIDE = 3

FILES = {f"tests/{file}.py": unit for unit, files in UNITS.items() for file in files}
_PLACE = {file: place for place, file in enumerate(FILES)}


def unit_of(nodeid: str) -> str:
    """The unit that a test belongs to."""
    file = nodeid.partition("::")[0]
    return FILES.get(file, file)


def take_turns(items: list, seed: int, all_of_them: bool) -> None:
    """Of the tests that have the mark ``in_turn(name, some)`` with one name the seed chooses some; the soak runs all of
    them.
    """
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


def longest_first(items: list, seconds: Mapping[str, float]) -> None:
    """Put the tests of the longest unit first; inside of a file the order stays. seconds: of each file, as the last log
    said.
    """
    of_unit: dict[str, float] = defaultdict(float)
    for file in {item.nodeid.partition("::")[0] for item in items}:
        of_unit[unit_of(file)] += seconds.get(file, durations.UNKNOWN_S)

    def place(item):
        file = item.nodeid.partition("::")[0]
        unit = unit_of(file)
        return -of_unit[unit], unit, _PLACE.get(file, 0)

    items.sort(key=place)


def next_unit(waiting: Iterable[str], is_aside: bool) -> str:
    """Of the units that nobody has yet, the longest first, the one that a worker gets. is_aside: it is the one for what
    waits.
    """
    units = list(waiting)
    if is_aside:
        without_spark = [unit for unit in units if not unit.startswith(OF_SPARK)]
        return next((unit for unit in without_spark if unit in WAITING), (without_spark or units)[0])
    return next((unit for unit in units if unit not in WAITING), units[0])


def scheduler(config, log):
    """What hands out the tests to the workers of pytest-xdist."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return unit_of(nodeid)

        def _assign_work_unit(self, node):
            is_aside = self.numnodes >= FEWEST_WITH_ONE_ASIDE and node.gateway.id == f"gw{self.numnodes - 1}"
            self.workqueue.move_to_end(next_unit(self.workqueue, is_aside), last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False  # else the unit with the most tests, which are short ones, would begin
    return Units(config, log)
