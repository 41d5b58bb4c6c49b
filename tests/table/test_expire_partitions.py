"""Partitions expire by the time that their values tell, or by their newest file; beside other writers."""

import copy
import dataclasses
import itertools
from datetime import datetime, timedelta

import pytest

from streamsink.errors import Conflict, Misuse
from streamsink.format.manifest import FileKind
from streamsink.table.care.expire_partitions import PartitionRule, expire_partitions, plan
from streamsink.table.care.maintain import Maintainer
from streamsink.table.commit.changes import Changes
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.table.caring import nobody, over
from tests.table.entries import OPTIONS, add, commit, live, new_table, part

NOW = int(datetime(2024, 3, 10, 12).timestamp() * 1000)
DAYS = ["2024-03-01", "2024-03-08 13:00:00", "2024-03-09", "2024-03-10", None, "soon", "2024-3-2", "2024-03-01 x"]
STATE = {"sequence": 7}


def table_of(values, **options):
    """One file in each partition, by the number of its value; and a query's state."""
    made = new_table(MemoryCalls(), options=options)
    entries = tuple(add(f"f{n}", part(value), rows=n + 1) for n, value in enumerate(values))
    commit(made, Changes(entries), application="streamsink", state=STATE)
    return made


def rule(days=2, **options) -> PartitionRule:
    return PartitionRule.of(
        "t", {key.replace("_", "-"): value for key, value in options.items()}, time=timedelta(days=days)
    )


def test_partitions_that_are_older_go():
    """By their values, as Paimon reads them; of which that cannot be read the plan speaks, and they stay."""
    table = table_of(DAYS)
    planned = plan(over(table), rule(), NOW)
    assert planned.partitions == ("part=2024-03-01", "part=2024-3-2") and (planned.files, planned.rows) == (2, 8)
    assert planned.unreadable == ("part=2024-03-01 x", "part=__DEFAULT_PARTITION__", "part=soon")
    assert "2 partitions of 2 files and 8 rows" in str(planned) and "part=soon stays" in str(planned)
    assert len(table.snapshots.ids()) == 1, "a plan changes nothing"
    done = expire_partitions(over(table), OPTIONS, rule(1))
    assert done.snapshot_id == 2 and live(over(table)) == ["f4", "f5", "f7"]
    newest = over(table).snapshots.latest()
    assert newest.commit_kind == "OVERWRITE" and newest.commit_user.startswith("streamsink-expire-partitions-")
    assert over(table).states.read(newest).by_application == {"streamsink": STATE}
    assert expire_partitions(over(table), OPTIONS, rule(1)).snapshot_id is None


@pytest.mark.parametrize(
    ("options", "values", "goes"),
    [
        ({"partition.timestamp_formatter": "yyyyMMdd"}, ["20240301", "20240310", "2024-03-01"], 1),
        ({"partition.timestamp_formatter": "yyyyMMdd HH:mm"}, ["20240301 10:20", "20240309 10:20"], 1),
        ({"partition.timestamp_pattern": "$part 00:00:00"}, ["2024-03-01", "2024-03-10"], 1),
        ({"partition.timestamp_pattern": "$part", "partition.timestamp_formatter": "dd'.'MM.yyyy"}, ["01.03.2024"], 1),
        ({"partition.timestamp_pattern": "$other"}, ["2024-03-01"], 0),
        ({"partition.expiration_max_num": "1"}, ["2024-03-02", "2024-03-01"], 1),
        ({}, ["2024-03-01"], 1),
    ],
)
def test_how_values_tell_the_time(options, values, goes):
    """Patterns and formatters are Paimon's."""
    planned = plan(over(table_of(values)), rule(**options), NOW)
    assert len(planned.partitions) == goes
    assert "partition.expiration_max_num" not in options or planned.partitions == ("part=2024-03-01",)


def test_the_newest_file_may_tell_the_time():
    """A partition of which one file is young stays, and so does one that does not say it."""
    table = new_table(MemoryCalls())
    day = 86_400_000
    local = NOW + int((datetime.fromtimestamp(NOW / 1000) - datetime(1970, 1, 1)).total_seconds() * 1000) - NOW
    entries = []
    for name, partition, age in (("a", "old", 5), ("b", "mixed", 5), ("c", "mixed", 1), ("d", "none", None)):
        entry = add(name, part(partition))
        made = None if age is None else local - age * day
        entries.append(dataclasses.replace(entry, file=dataclasses.replace(entry.file, creation_time=made)))
    commit(table, Changes(tuple(entries)))
    planned = plan(over(table), rule(**{"partition.expiration_strategy": "update-time"}), NOW)
    assert planned.partitions == ("part=old",) and planned.unreadable == ("part=none",)


def test_others_commit_meanwhile():
    """At each call: rows that come into such a partition stay, and what was compacted meanwhile goes as it is then."""

    def appends(table):
        commit(table, Changes((add("new", part(DAYS[0])),)))

    def compacts(table):
        gone = dataclasses.replace(add("f0", part(DAYS[0]), rows=1), kind=FileKind.DELETE)
        commit(table, Changes((gone, add("whole", part(DAYS[0])))), kind="COMPACT")

    for does, stays in ((appends, ["new"]), (compacts, [])):
        for n in itertools.count(1, 4):
            table, done = table_of(DAYS[:1]), []
            calls = CrashingCalls(table.file_io._calls)

            def happens(calls=calls, table=table, done=done, n=n, does=does):
                if calls.count == n - 1 and not done:
                    done.append(1)
                    does(over(table))

            opened = over(table, calls)
            calls.log.clear()
            calls.before_call = happens
            try:
                expire_partitions(opened, OPTIONS, rule())
            except Conflict:
                pytest.fail("it was looked at again")
            if not done:
                break
            assert set(live(over(table))) <= set(stays), f"call {n}"
        assert n > 10


def test_a_death_at_calls():
    """Dropped, or not; and a second run drops it."""
    left = table_of(DAYS[:1])
    for n in itertools.count(1, 5):
        store = copy.deepcopy(left.file_io._calls)
        mortal = CrashingCalls(store, n)
        try:
            expire_partitions(over(left, mortal), OPTIONS, rule())
        except InjectedCrash:
            store.power_failure()
        assert live(over(left, store)) in ([], ["f0"])
        expire_partitions(over(left, store), OPTIONS, rule())
        assert live(over(left, store)) == []
        if not mortal.dead:
            break
    assert n > 20


def test_the_background_looks_once_in_a_check_interval():
    """It reads all manifests; the table's option says how often."""
    options = {"partition.expiration-time": "2 d", "partition.expiration-check-interval": "1 h"}
    table = table_of(DAYS[:1], **options)
    maintainer = Maintainer(over(table), nobody, OPTIONS)
    assert maintainer.run().partitions == ("part=2024-03-01",)
    commit(over(table), Changes((add("new", part(DAYS[0])),)))
    assert maintainer.run().partitions == () and live(over(table)) == ["new"]
    assert Maintainer(over(table), nobody, OPTIONS).run().partitions == ("part=2024-03-01",)


@pytest.mark.parametrize(
    "options",
    [
        {"partition.expiration-strategy": "size"},
        {"partition.expiration-max-num": "all"},
        {"partition.timestamp-formatter": "EEE dd"},
        {"partition.expiration-time": "long"},
    ],
)
def test_options_that_cannot_be(options):
    """They are refused by name."""
    with pytest.raises(Misuse, match=next(iter(options))):
        PartitionRule.of("t", {"partition.expiration-time": "1 d"} | options)


def test_without_the_option_none_expires():
    """Nor in a table without partitions."""
    assert PartitionRule.of("t", {}) is None
    assert plan(table_of(DAYS), None).partitions == ()
    made = new_table(MemoryCalls(), partition_by=())
    commit(made, Changes((add("a"),)))
    assert plan(over(made), rule(), NOW).partitions == ()


def test_times_that_no_partition_can_have():
    """Beyond all dates none expires; one that is negative would drop partitions of the future, and is refused."""
    assert plan(table_of(DAYS), PartitionRule(timedelta.max), NOW).partitions == ()
    with pytest.raises(Misuse, match="not negative"):
        PartitionRule.of("t", {}, time=timedelta(days=-1))
