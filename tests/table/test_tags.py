"""Tags keep snapshots under a name; what goes with them is what only they need. Consumers that are silent expire."""

import copy
import dataclasses
import itertools
import json
from datetime import datetime

import pytest

from streamsink.errors import Conflict, Misuse
from streamsink.table.care.auto_tags import AutoTags, TagCreation
from streamsink.table.care.expire_consumers import delete_consumers, matching, silent
from streamsink.table.care.expire_snapshots import expire
from streamsink.table.care.removal import unfinished
from streamsink.table.care.tags import create_tag, delete_tags, deletion_of, past_their_time
from streamsink.table.history.retained import tag_path, tags
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from tests.table.caring import HISTORY_OF, change, check_whole, consume, files, history, keep, nobody, over
from tests.table.entries import ROOT

DAY = 86_400_000


def test_a_tag_is_a_copy_of_its_snapshot():
    """Byte by byte without a time; with one it says besides when it was made and for how long it is kept."""
    table = history()
    assert create_tag(over(table), "a").id == 7 and create_tag(over(table), "b", 3).id == 3
    assert table.file_io.read(tag_path(ROOT, "b")) == table.file_io.read(table.layout.snapshot(3))
    create_tag(over(table), "c", 3, 1500.0)
    said, plain = (json.loads(table.file_io.read(tag_path(ROOT, name))) for name in "cb")
    assert said.pop("tagTimeRetained") == 1.5 and datetime(*said.pop("tagCreateTime")[:6]) and said == plain
    assert create_tag(over(table), "a", may_exist=True) is None
    expire(over(table), keep(1), nobody)
    assert check_whole(table) == {"a": "fgh", "b": "cd", "c": "cd", "snapshot-7": "fgh"}


def test_a_snapshot_that_expires_while_its_tag_is_made_gets_none():
    """Whoever lets it expire looks for tags when the snapshot is gone: one of the two sees the other."""
    for n in itertools.count(1):
        table, calls = history(), CrashingCalls(history().file_io._calls)
        calls = CrashingCalls(table.file_io._calls)
        done = []

        def happens(calls=calls, table=table, done=done, n=n):
            if calls.count == n - 1 and not done:
                done.append(expire(over(table), keep(1), nobody))

        opened = over(table, calls)
        calls.log.clear()
        calls.before_call = happens
        try:
            create_tag(opened, "t", 2)
            assert check_whole(table)["t"] == "abc"
        except (Conflict, Misuse) as refused:
            assert refused.kind in ("tag.expired-meanwhile", "tag.no-snapshot")
            assert tags(over(table)) == []
        if not done:
            break
    assert n > 5


@pytest.mark.parametrize("tagged", [(1,), (2, 4), (3, 3), (2, 3, 5), (1, 7)])
def test_what_goes_with_a_tag(tagged):
    """All other tags and snapshots stay whole; when all tags are gone, the same files are left as without tags."""
    table = history()
    plain = copy.deepcopy(table.file_io._calls)
    expire(over(table, plain), keep(2), nobody)
    names = [f"t{n}-{number}" for n, number in enumerate(tagged)]
    for name, number in zip(names, tagged):
        create_tag(over(table), name, number)
    expire(over(table), keep(2), nobody)
    for name in names:
        before = files(table)
        planned = deletion_of(over(table), [name])
        assert files(table) == before, "a plan changes nothing"
        assert str(delete_tags(over(table), [name], nobody)) == str(planned)
        found = check_whole(table)
        assert all(found[f"t{n}-{k}"] == HISTORY_OF[k] for n, k in enumerate(tagged) if f"t{n}-{k}" in found)
        assert name not in found
    assert files(table) == files(over(table, plain))


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.soak)])
def test_a_death_at_every_call_of_a_deletion(stride):
    """The other tag is whole; the same call again, or the next one of any care, finishes."""
    left = history()
    create_tag(left, "a", 2)
    create_tag(left, "b", 4)
    expire(over(left), keep(1), nobody)
    for n in itertools.count(1, stride):
        store = copy.deepcopy(left.file_io._calls)
        mortal = CrashingCalls(store, n)
        try:
            delete_tags(over(left, mortal), ["b"], nobody)
        except InjectedCrash:
            store.process_death()
        found = check_whole(over(left, store))
        assert found["a"] == "abc" and found.get("b", "cde") == "cde"
        if not mortal.dead:
            break
        if len(tags(over(left, store))) == 2:
            assert delete_tags(over(left, store), ["b"], nobody).names == ("b",)
        expire(over(left, store), keep(1), nobody)
        assert unfinished(over(left, store)) == []
        assert {path.rpartition("/")[2] for path in files(over(left, store)) if "/part=" in path} == set("abcfgh")


def test_tags_whose_time_is_over():
    """By what the tag itself says; one that says nothing stays, unless it is asked for by age, which nothing tells."""
    table = history()
    create_tag(table, "short", 3, 1_000)
    create_tag(table, "long", 3, 10 * DAY)
    create_tag(table, "always", 3)
    now = datetime.now().timestamp() * 1000
    assert past_their_time(table) == []
    assert past_their_time(table, now + 2_500) == ["short"]
    assert past_their_time(table, now + 11 * DAY) == ["long", "short"]
    assert past_their_time(table, None, now + DAY) == ["long", "short"]


@pytest.mark.parametrize("days", [10**7, 10**12])
def test_a_time_beyond_all_dates_is_for_ever(days):
    """Such a tag does not end the query that looks after the table."""
    table = history()
    create_tag(over(table), "t", 3, days * float(DAY))
    assert past_their_time(table) == []


def test_a_tag_that_is_made_again_after_a_deletion_that_died():
    """Its list names a tag of this name and this snapshot, and is not finished yet."""
    for number in (3, 7):
        left = history()
        create_tag(over(left), "t", number)
        for n in itertools.count(1):
            store = copy.deepcopy(left.file_io._calls)
            mortal = CrashingCalls(store, n)
            try:
                delete_tags(over(left, mortal), ["t"], nobody)
            except InjectedCrash:
                store.process_death()
            if not mortal.dead:
                break
            if tags(over(left, store)):
                continue
            create_tag(over(left, store), "t", number)
            expire(over(left, store), keep(1), nobody)
            assert check_whole(over(left, store))["t"] == HISTORY_OF[number], f"call {n}"
            assert unfinished(over(left, store)) == []
        assert n > 5


@pytest.mark.parametrize("name", ["", " ", "a/b", ".x", None])
def test_names_that_cannot_be(name):
    """The message says what a name is."""
    with pytest.raises(Misuse, match="name of a tag"):
        create_tag(history(), name)


def _aged(options, times, watermark=False):
    table = history(options)
    for number, ms in enumerate(times, 1):
        kind = {"watermark": ms} if watermark else {"time_millis": ms}
        aged = dataclasses.replace(table.snapshots.load(number), **kind)
        table.file_io.replace(table.layout.snapshot(number), aged.to_json(), "x")
    return table


_DAILY = {"tag.automatic-creation": "process-time", "sink.process-time-zone": "UTC"}
_HOUR = DAY // 24


@pytest.mark.parametrize(
    ("options", "times", "names"),
    [
        ({}, [0, 1, DAY - 1, DAY, DAY + 5, 3 * DAY, 3 * DAY + 1], {"1969-12-31": 1, "1970-01-01": 4, "1970-01-03": 6}),
        (
            {"tag.automatic-completion": "true"},
            [0, 1, DAY - 1, DAY, DAY + 5, 3 * DAY, 3 * DAY + 1],
            {"1969-12-31": 1, "1970-01-01": 4, "1970-01-02": 6, "1970-01-03": 7},
        ),
        (
            {"tag.creation-delay": "1 h"},
            [0, DAY, DAY + _HOUR, 2 * DAY, 2 * DAY, 2 * DAY, 2 * DAY],
            {"1969-12-31": 1, "1970-01-01": 3},
        ),
        (
            {"tag.creation-period": "hourly"},
            [0, _HOUR - 1, _HOUR, _HOUR, _HOUR, _HOUR, 2 * _HOUR],
            {"1969-12-31 23": 1, "1970-01-01 00": 3, "1970-01-01 01": 7},
        ),
        (
            {"tag.creation-period": "two-hours"},
            [0, _HOUR, 2 * _HOUR, 3 * _HOUR, 3 * _HOUR, 3 * _HOUR, 4 * _HOUR],
            {"1969-12-31 22": 1, "1970-01-01 00": 3, "1970-01-01 02": 7},
        ),
        (
            {"tag.creation-period-duration": "30 min"},
            [0, _HOUR, _HOUR, _HOUR, _HOUR, _HOUR, _HOUR],
            {"1969-12-31 2330": 1, "1970-01-01 0030": 2},
        ),
        ({"tag.period-formatter": "without_dashes"}, [0] * 7, {"19691231": 1}),
        ({"sink.process-time-zone": "GMT+02:00"}, [DAY - _HOUR] + [DAY] * 6, {"1970-01-01": 1}),
        ({"tag.num-retained-max": "1"}, [0, 0, 0, DAY, DAY, DAY, 2 * DAY], {"1970-01-02": 7}),
    ],
)
def test_tags_by_period(options, times, names):
    """As Paimon makes them: the first snapshot past the end of a period gets its tag. A second run makes none."""
    table = _aged(_DAILY | options, times)
    creation = TagCreation(over(table), nobody)
    made = creation.run()
    assert {tag.name: tag.snapshot.id for tag in tags(over(table))} == names and set(names) <= set(made)
    assert creation.run() == TagCreation(over(table), nobody).run() == []


def test_tags_by_watermark():
    """A snapshot without a watermark gets none, whatever its time."""
    table = _aged({"tag.automatic-creation": "watermark"}, [0, 0, DAY], watermark=True)
    assert TagCreation(over(table), nobody).run() == ["1969-12-31", "1970-01-01"]
    assert {tag.snapshot.id for tag in tags(over(table))} == {1, 3}
    assert TagCreation(over(history()), nobody).run() == [], "without the option none are made"


def test_snapshots_that_were_seen_are_not_read_again():
    """Between two periods a run costs the tags, the listing, and what is new."""
    table = _aged(_DAILY, [0] * 7)
    calls = CrashingCalls(table.file_io._calls)
    creation = TagCreation(over(table, calls), nobody)
    creation.run()
    before = calls.by_name["read"]
    creation.run()
    asked = calls.by_name["read"] - before
    change(table, "i")
    creation.run()
    assert asked <= 4 and calls.by_name["read"] - before <= 3 * asked + 2


@pytest.mark.parametrize(
    "options",
    [
        {"tag.creation-period": "weekly"},
        {"tag.period-formatter": "roman"},
        {"tag.creation-delay": "2 d"},
        {"tag.num-retained-max": "few"},
        {"sink.process-time-zone": "Mars/Olympus"},
    ],
)
def test_options_of_tags_that_cannot_be(options):
    """They are refused by name."""
    with pytest.raises(Misuse, match=next(iter(options))):
        AutoTags.of("t", _DAILY | options)


def test_consumers_that_are_silent_go():
    """By the time of their files; without the table's option none goes."""
    table = history({"consumer.expiration-time": "1 h"})
    consume(table, 3, "a")
    consume(table, 4, "b")
    calls = table.file_io._calls
    calls._names[f"{ROOT}/consumer/consumer-a"].modified_ms -= 2 * _HOUR
    assert silent(over(table)).names == ("a",) and silent(over(history())).names == ()
    assert delete_consumers(over(table), silent(over(table))).names == ("a",)
    assert expire(over(table), keep(1), nobody).first_kept == 4


@pytest.mark.parametrize(
    ("including", "excluding", "names"), [(".*", None, "ab"), ("a", None, "a"), (".*", "a", "b"), ("x", None, "")]
)
def test_consumers_by_name(including, excluding, names):
    """Both expressions are of whole names."""
    table = history()
    for name in "ab":
        consume(table, 3, name)
    assert matching(over(table), including, excluding).names == tuple(names)
