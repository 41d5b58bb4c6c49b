"""Snapshots expire by Paimon's rules, and at every place to die or to be disturbed what is there is whole."""

import copy
import dataclasses
import itertools
from types import SimpleNamespace

import pytest

from streamsink.errors import Corrupt, Misuse
from streamsink.format.manifest import FileKind
from streamsink.table.application_states import HISTORY
from streamsink.table.care.expire_snapshots import Retention, expire, plan
from streamsink.table.care.removal import Needed, unfinished
from streamsink.table.commit.changes import Changes
from streamsink.table.history.retained import roots
from streamsink.table.read.scan import data_file_path
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from tests.table.caring import (
    HISTORY_OF,
    change,
    check_whole,
    consume,
    files,
    history,
    keep,
    nobody,
    over,
    rolls_back,
    tag,
)
from tests.table.entries import ROOT, add, commit, live, part

NOW = 10_000_000


@pytest.mark.parametrize(
    ("retention", "ages", "goes"),
    [
        (Retention(num_min=3, time_ms=0), "old", 4),
        (Retention(num_min=10, time_ms=0), "old", 0),
        (Retention(num_min=1, time_ms=10**9), "old", 0),
        (Retention(num_min=1, num_max=2, time_ms=10**9), "old", 5),
        (Retention(num_min=1, time_ms=350), "new", 2),
        (Retention(num_min=1, num_max=2, time_ms=350, limit=2), "new", 2),
        (Retention(num_min=1, num_max=3, time_ms=1_000), "new", 4),
        (Retention(num_min=1, time_ms=0), "back", 1),
    ],
)
def test_what_expires_by_number_and_time(retention, ages, goes):
    """As Paimon decides it: a snapshot goes when the next one is old enough. Where a clock went back and then on, the
    first one that is not old enough ends it."""
    table = history()
    times = {"old": lambda n: 0, "new": lambda n: NOW - 100 * (7 - n), "back": lambda n: NOW + 5 if n == 3 else 0}[ages]
    for number in table.snapshots.ids():
        aged = dataclasses.replace(table.snapshots.load(number), time_millis=times(number))
        table.file_io.replace(table.layout.snapshot(number), aged.to_json(), "x")
    planned = plan(over(table), retention, nobody, NOW)
    assert planned.snapshots == tuple(range(1, 1 + goes)), planned
    assert check_whole(table).keys() == {f"snapshot-{n}" for n in range(1, 8)}, "a plan changes nothing"


def test_what_goes_with_the_snapshots():
    """Data files that were replaced, and manifests and lists that nothing else names; no other file."""
    table = history()
    expired = expire(over(table), keep(2), nobody)
    assert expired.snapshots == (1, 2, 3, 4, 5)
    assert check_whole(table) == {"snapshot-6": "fg", "snapshot-7": "fgh"}
    named, opened = set(), over(table)
    for root in roots(opened):
        snapshot = root.snapshot
        named |= {root.path, *map(opened.layout.manifest, (snapshot.base_manifest_list, snapshot.delta_manifest_list))}
        named |= {opened.layout.manifest(meta.file_name) for meta in opened.manifests.all_of(snapshot)}
        named |= {data_file_path(opened, opened.known_schema, e) for e in opened.manifests.entries_of(snapshot)}
    assert files(table) == named | {table.layout.schema(0)}
    assert over(table).snapshots.earliest() == 6
    assert expire(over(table), keep(2), nobody).snapshots == () and live(over(table)) == list("fgh")


@pytest.mark.parametrize("number", range(1, 6))
def test_a_tag_keeps_what_it_names(number):
    """Its files stay when its snapshot expires."""
    table = history()
    tag(table, number)
    expire(over(table), keep(2), nobody)
    assert check_whole(table) == {"t": HISTORY_OF[number], "snapshot-6": "fg", "snapshot-7": "fgh"}


def test_what_is_in_a_branch_keeps_its_files():
    """A branch has its own snapshots and tags, and shares data files and manifests."""
    table = history()
    for folder, name in (("snapshot", "snapshot-2"), ("tag", "tag-b")):
        table.file_io.make_dir(f"{ROOT}/branch/branch-b/{folder}")
        data = table.file_io.read(table.layout.snapshot(2 if folder == "snapshot" else 4))
        table.file_io.write(f"{ROOT}/branch/branch-b/{folder}/{name}", data)
    expire(over(table), keep(1), nobody)
    assert check_whole(table) == {"snapshot-2": "abc", "b": "cde", "snapshot-7": "fgh"}


def test_a_consumer_keeps_what_it_reads_next():
    """It keeps that snapshot and those behind it; the plan says who."""
    table = history()
    consume(table, 3)
    planned = plan(over(table), keep(1), nobody)
    assert planned.snapshots == (1, 2) and "consumer c reads snapshot 3" in str(planned)
    expire(over(table), keep(1), nobody)
    assert min(table.snapshots.ids()) == 3
    table.file_io.replace(f"{ROOT}/consumer/consumer-c", b"{", "x")
    with pytest.raises(Corrupt, match="consumer"):
        expire(over(table), keep(1), nobody)
    assert min(table.snapshots.ids()) == 3, "what cannot be read keeps everything"


def test_who_keeps_many_snapshots_is_named(caplog):
    """A consumer that reads no more, or a query that was given up, lets the table grow."""
    table = history()
    consume(table, 1)
    assert plan(over(table), keep(1, limit=7), nobody).notes == ()
    planned = plan(over(table), keep(1, limit=6), nobody)
    said = "6 snapshots from 1 on, or more, would expire, and stay: consumer c reads snapshot 1 next"
    assert planned.notes == (said,) and said in str(planned)
    expire(over(table), keep(1, limit=6), nobody)
    assert said in caplog.text


def test_the_newest_state_of_applications_stays():
    """Others have committed since; the walk back to the states must find them."""
    table = history()
    change(table, "i", application="streamsink", state={"sequence": 1})
    for name in "jkl":
        made = change(table, name)
        foreign = dataclasses.replace(made.snapshot, properties=None)
        table.file_io.replace(table.layout.snapshot(foreign.id), foreign.to_json(), "x")
    assert HISTORY in table.snapshots.load(8).properties
    planned = plan(over(table), keep(1), nobody)
    assert planned.first_kept == 8 and "how far" in str(planned)
    expire(over(table), keep(1), nobody)
    opened = over(table)
    assert opened.states.read(opened.snapshots.latest()).by_application == {"streamsink": {"sequence": 1}}


@pytest.mark.parametrize("since", [1, 4, 7])
def test_what_a_journal_needs_stays(since):
    """Its pending record was made on that snapshot."""
    table = history()
    planned = plan(over(table), keep(1), lambda: Needed(since, "a record"))
    assert planned.first_kept == since
    everything = files(table)
    expire(over(table), keep(1), lambda: Needed(None, "", frozenset("abcde")))
    assert {f"{ROOT}/part=x/bucket-0/{name}" for name in "abcde"} <= everything & files(table), "files that it names"


# Of the calls in which a run may die or be disturbed the gate tries each n-th one, and the soak all.
_STRIDES = pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.soak)])


@_STRIDES
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_a_death_at_every_call(power, stride):
    """All that is there is whole, and the next run finishes: the same files are left as without a death."""
    left = history()
    tag(left, 2)
    undisturbed = copy.deepcopy(left.file_io._calls)
    expire(over(left, undisturbed), keep(2), nobody)
    wanted = files(over(left, undisturbed))
    for n in itertools.count(1 + stride // 2, stride):
        store = copy.deepcopy(left.file_io._calls)
        mortal = CrashingCalls(store, n)
        try:
            expire(over(left, mortal), keep(2), nobody)
        except InjectedCrash:
            pass
        if not mortal.dead:
            break
        store.power_failure() if power else store.process_death()
        survivor = over(left, store)
        assert {"t": "abc", "snapshot-6": "fg", "snapshot-7": "fgh"}.items() <= check_whole(survivor).items()
        expire(survivor, keep(2), nobody)
        assert {path for path in files(survivor) if "/." not in path} == wanted, f"call {n}"
        assert unfinished(survivor) == []
    assert n > 40


def _tag_of_oldest(table) -> None:
    tag(table, min(table.snapshots.ids()), "late")


def _goes_back_and_on(table) -> None:
    rolls_back(table, max(table.snapshots.ids()) - 3)
    for name in "pqrs":
        change(over(table), name)


MEANWHILE = {
    "a commit": lambda table: change(table, "m"),
    "a compaction": lambda table: change(table, "m", "fgh", "COMPACT"),
    "another expiry": lambda table: expire(table, keep(1), nobody),
    "a tag": _tag_of_oldest,
    "a rollback by one": lambda table: rolls_back(table, max(table.snapshots.ids()) - 1),
    "a rollback far": lambda table: rolls_back(table, min(table.snapshots.ids())),
    "a rollback to what goes": lambda table: rolls_back(table, 3),
    "a rollback, and others": _goes_back_and_on,
}


@pytest.mark.in_turn("what happens beside an expiry", 3)
@_STRIDES
@pytest.mark.parametrize("what", MEANWHILE)
def test_something_happens_between_any_two_calls(what, stride):
    """What is there at the end is whole, and the next run ends it."""
    left = history()
    tag(left, 2)
    for n in itertools.count(1 + stride // 2, stride):
        store = copy.deepcopy(left.file_io._calls)
        calls = CrashingCalls(store)
        happened = SimpleNamespace(yet=False)

        def happens(calls=calls, store=store, happened=happened, n=n):
            if calls.count == n - 1 and not happened.yet:
                happened.yet = True
                MEANWHILE[what](over(left, store))

        calls.before_call = happens
        expire(over(left, calls), keep(3), nobody)
        found = check_whole(over(left, store))
        assert found["t"] == "abc", f"call {n}"
        if not happened.yet:
            break
        expire(over(left, store), keep(1), nobody)
        assert check_whole(over(left, store))["t"] == "abc"
    assert n > 40


def test_a_rollback_to_a_snapshot_that_is_just_going():
    """It comes right before the deletion of that very snapshot, and then that is the newest one: it is put back."""
    left, hits = history(), 0
    for number in range(1, 5):
        store = copy.deepcopy(left.file_io._calls)
        calls, opened = CrashingCalls(store), None
        unlink = calls.unlink

        def goes(path, number=number, store=store, unlink=unlink, calls=calls):
            if path.endswith(f"/snapshot-{number}"):
                calls.unlink = unlink
                rolls_back(over(left, store), number)
            return unlink(path)

        calls.unlink = goes
        opened = over(left, calls)
        expire(opened, keep(2), nobody)
        found = check_whole(over(left, store))
        hits += calls.unlink is unlink
        assert found[f"snapshot-{number}"] == HISTORY_OF[number]
        assert over(left, store).snapshots.latest().id == number
    assert hits == 4


def test_a_file_that_changes_its_level_stays():
    """Paimon calls it an upgrade: one snapshot deletes the file and adds it again."""
    table = history()
    gone = dataclasses.replace(add("h", part("x")), kind=FileKind.DELETE)
    commit(table, Changes((gone, add("h", part("x"), level=1))), kind="COMPACT")
    change(table, "i")
    for number in (2, 1):
        expire(over(table), keep(number), nobody)
        assert check_whole(table)["snapshot-9"] == "fghi"


def test_what_cannot_be_read_of_what_stays_keeps_everything():
    """The error names the file. Of what goes, a damaged manifest is a note, and the files that it names stay."""
    table = history()
    tag(table, 2)
    manifest = table.manifests.delta_of(table.snapshots.load(2))[0].file_name
    before, path = table.file_io.read(table.layout.manifest(manifest)), table.layout.manifest(manifest)
    for damage in (b"Obj", None):
        table.file_io.delete(path)
        table.file_io.write(path, damage) if damage else None
        everything = files(table)
        with pytest.raises(Corrupt, match=manifest):
            expire(over(table), keep(1), nobody)
        assert files(table) == everything
    table.file_io.replace(path, before, "x")
    damaged = table.snapshots.load(3).delta_manifest_list
    table.file_io.replace(table.layout.manifest(damaged), b"Obj", "x")
    planned = plan(over(table), keep(1), nobody)
    assert damaged in str(planned) and "stay" in str(planned)
    assert expire(over(table), keep(1), nobody).snapshots == (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"snapshot.num-retained.min": "x"}, {}),
        ({"snapshot.time-retained": "soon"}, {}),
        ({"snapshot.num-retained.min": "0"}, {}),
        ({"snapshot.num-retained.max": "3"}, {}),
        ({}, {"limit": 0}),
        ({"snapshot.num-retained.min": "1"}, {"num_max": "3"}),
        ({"snapshot.num-retained.min": "1"}, {"num_min": True}),
        ({"changelog.time-retained": "2 h"}, {}),
    ],
)
def test_options_that_cannot_be(options, given):
    """Such an option is refused by name."""
    with pytest.raises(Misuse, match=next(iter(options), "expire.limit").split(".")[0]):
        Retention.of("t", options, **given)


def test_the_table_s_options_and_arguments():
    """Names and defaults are Paimon's; an argument counts more."""
    assert Retention.of("t", {}) == Retention(10, 2**31 - 1, 3_600_000, 50)
    options = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "5", "snapshot.time-retained": "1 min"}
    assert Retention.of("t", options | {"snapshot.expire.limit": "7"}) == Retention(2, 5, 60_000, 7)
    assert Retention.of("t", options, num_max=9, time_ms=1) == Retention(2, 9, 1, 50)
