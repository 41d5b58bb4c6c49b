"""The schedule of the gate: what begins, what stays together, and which worker has what waits."""

from collections import defaultdict
from types import SimpleNamespace

from tests import durations, schedule
from tests.durations import scaled, seconds_of

LOG = """
12.50s call     tests/e2e/test_long.py::test_one[a b]
1.50s setup    tests/e2e/test_long.py::test_one[a b]
0.25s teardown tests/e2e/test_long.py::test_two
3.00s call     tests/table/test_short.py::test_one
(12 durations < 0.005s hidden.  Use -vv to show these durations.)
2 failed, 3 passed in 4.00s
"""
LATER = "10.00s call     tests/e2e/test_long.py::test_one[a b]"


def _items(*files):
    return [SimpleNamespace(nodeid=f"{file}::test_{number}") for file in files for number in range(2)]


def test_a_log_says_how_long_each_file_takes():
    """The longest first; of a test in two logs the later one counts."""
    assert seconds_of([LOG]) == {"tests/e2e/test_long.py": 14.2, "tests/table/test_short.py": 3.0}
    assert seconds_of([LOG, LATER]) == {"tests/e2e/test_long.py": 11.8, "tests/table/test_short.py": 3.0}


def test_seconds_of_a_slower_machine_are_made_those_of_the_record():
    """What has become slower than the rest stays so; what no turn came to is as it was."""
    before = {"a": 4.0, "b": 6.0, "c": 10.0, "turn": 5.0, "quick": 0.1}
    found = {"a": 8.0, "b": 12.0, "c": 40.0, "quick": 2.0, "new": 3.0}
    assert scaled(found, before) == {"c": 20.0, "b": 6.0, "turn": 5.0, "a": 4.0, "new": 1.5, "quick": 1.0}
    assert scaled({"new": 3.0}, {}) == {"new": 3.0}


def test_the_longest_unit_begins_and_the_files_of_one_server_stay_together():
    """Also where other files are longer than some of them; tests of one file keep their order."""
    items = _items("tests/a.py", "tests/locks/test_conformance.py", "tests/b.py", "tests/locks/test_publishing.py")
    schedule.longest_first(
        items,
        {"tests/a.py": 1, "tests/b.py": 8, "tests/locks/test_conformance.py": 4, "tests/locks/test_publishing.py": 5},
    )
    files = [item.nodeid.partition("::")[0] for item in items]
    assert files[::2] == files[1::2]
    assert files[::2] == [
        "tests/locks/test_conformance.py",
        "tests/locks/test_publishing.py",
        "tests/b.py",
        "tests/a.py",
    ]
    assert [item.nodeid[-1] for item in items] == ["0", "1"] * 4


def test_the_worker_aside_has_what_waits_and_then_what_needs_no_spark():
    """The others begin with what takes long; in the end everybody takes what is left."""
    units = ["Kafka", "tests/e2e/test_a.py", "locks", "tests/table/test_b.py"]
    assert [schedule.next_unit(units, is_aside) for is_aside in (False, True)] == ["Kafka", "locks"]
    assert schedule.next_unit(units[:2] + units[3:], True) == "tests/table/test_b.py"
    assert schedule.next_unit(units[:2], True) == "Kafka"
    assert schedule.next_unit(["locks"], False) == "locks"


def test_files_that_are_named_are_there():
    """A renamed file would begin late and silently."""
    root = durations.FILE.parent.parent
    assert [file for file in durations.read() if not (root / file).exists()] == []
    assert set(schedule.WAITING) <= set(schedule.UNITS)


# Ten minutes of four workers, less half a minute in which they find their tests. Two processors are shared by four, so
# the seconds of a file are those of a busy machine.
BUDGET_S = 2_280
# A longer one would keep one worker busy while the others have nothing left.
LONGEST_UNIT_S = 300


def test_the_gate_takes_no_longer_than_it_may():
    """Who adds tests that go beyond it pays for them: with less work for the same, with turns, or with the soak."""
    units: dict[str, float] = defaultdict(float)
    for file, seconds in durations.read().items():
        units[schedule.unit_of(file)] += seconds
    assert sum(units.values()) <= BUDGET_S
    assert {unit: seconds for unit, seconds in units.items() if seconds > LONGEST_UNIT_S} == {}
