"""Dead letters are replayed into their table after a fix: each row once, wherever a replay died."""

import contextlib
import shlex
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamsink
from streamsink import faults
from streamsink.errors import Fenced
from streamsink.journal.file_journal import journal_dir
from streamsink.journal.repair import REPLAYS
from streamsink.operations.letters.replay import application_of, look, replay
from streamsink.operations.letters.selection import Chosen, _letter, left, letters_of, open_letters
from streamsink.options import SinkOptions
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.storage.hold import Flock
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import InjectedCrash, arm, crash
from streamsink.testing.many_driver import ManyTablesDriver
from tests.advice.following import follows, told
from tests.cli.conftest import run, said
from tests.cli.lakes import allow_nulls, allow_texts
from tests.cli.replaying import ALL, NAME, ids, options, rejected, replayed


def test_letters_that_fit_after_a_fix_are_written_once(clicks):
    """Before the fix nothing is written; a second replay finds that all is done."""
    dead = rejected(clicks)
    before = said("dead-letters", "replay", dead, "--target", "clicks", "--yes", code=1)
    assert (before["replayed"], len(before["unfit"])) == (0, 4)
    allow_nulls(clicks)
    assert said("dead-letters", "replay", dead, "--target", "clicks", code=1)["replayed"] == 4
    assert ids(clicks) == [n for n in ALL if n % 3], "a dry run writes nothing"
    assert said("dead-letters", "replay", dead, "--target", "clicks", "--yes")["replayed"] == 4
    again = said("dead-letters", "replay", dead, "--target", "clicks", "--yes")
    assert (again["replayed"], again["before"], ids(clicks)) == (0, 4, ALL)


def test_a_replay_of_some_leaves_the_others(clicks):
    """What is chosen is replayed; the rest is when it is asked for."""
    allow_nulls(clicks)
    file_io, letters = local_file_io(False), rejected(clicks)
    done = replay(file_io, clicks, letters, Chosen("clicks", kind="data.cast"), options(clicks))
    assert (done.replayed, done.run) == (0, "")
    assert replay(file_io, clicks, letters, Chosen("clicks", "streamsink"), options(clicks)).replayed == 4
    assert replay(file_io, clicks, letters, Chosen("orders"), options(clicks)).replayed == 0
    assert ids(clicks) == ALL


def _steps(clicks: str) -> list[str]:
    """The steps that a replay reaches, in order."""
    reached: list[str] = []
    faults.arm(reached.append)
    try:
        replayed(clicks)
    finally:
        faults.arm(None)
    return list(dict.fromkeys(reached))


def test_a_replay_that_died_anywhere_is_ended_by_the_next_one(clicks, tmp_path):
    """Killed at each step that it reaches, and called again: each letter's row is there once, and a dry run between
    says what the second call writes.
    """
    allow_nulls(clicks)
    whole = Path(clicks).parent
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy / "all.db")
    steps = _steps(str(copy / "all.db" / "clicks"))
    assert {"restore.claimed", "write.begin", "precommit.saved", "commit.published", "commit.marked"} <= set(steps)
    for step in steps:
        shutil.copytree(whole, copy / step)
        table = str(copy / step / "clicks")
        arm(step, 1, crash)
        with pytest.raises(InjectedCrash):
            replayed(table)
        faults.arm(None)
        file_io = local_file_io(False)
        would = look(file_io, table, rejected(table), Chosen("clicks"), options(table))
        done = replayed(table)
        assert (would.replayed, would.before) == (done.replayed, done.before), step
        assert ids(table) == ALL, step
        assert replayed(table).replayed == 0 and ids(table) == ALL, step


def test_two_replays_at_one_time_do_not_both_write(clicks):
    """The second one is refused while the first lives."""
    allow_nulls(clicks)
    refused = []

    def meanwhile(step: str) -> None:
        if step == "write.begin":
            faults.arm(None)
            with pytest.raises(Fenced) as second:
                replayed(clicks)
            refused.append(second.value.kind)

    faults.arm(meanwhile)
    try:
        assert replayed(clicks).replayed == 4
    finally:
        faults.arm(None)
    assert refused == ["application.in-use"] and ids(clicks) == ALL


@follows("replay.unknown")
def test_a_lost_journal_of_replays_is_an_error_and_its_backup_helps(clicks, tmp_path):
    """Without it the letters would be written a second time."""
    allow_nulls(clicks)
    replayed(clicks)
    plans = Path(journal_dir(clicks, NAME)) / REPLAYS
    shutil.move(plans, tmp_path / "backup")
    advice = told("replay.unknown", lambda: replayed(clicks)).says("Restore the journal", "--application")
    done = run("dead-letters", "replay", rejected(clicks), "--target", "clicks", code=4)
    assert done.stderr.startswith("replay.unknown: ") and ids(clicks) == ALL
    shutil.move(tmp_path / "backup", plans)
    assert replayed(clicks).before == 4 and advice.kind == "replay.unknown"


@follows("replay.plan")
def test_a_torn_plan_is_an_error_and_its_backup_helps(clicks):
    allow_nulls(clicks)
    replayed(clicks)
    [plan] = (Path(journal_dir(clicks, NAME)) / REPLAYS).iterdir()
    kept = plan.read_bytes()
    plan.write_bytes(kept[:20])
    told("replay.plan", lambda: replayed(clicks)).says("Restore it from a backup")
    plan.write_bytes(kept)
    assert replayed(clicks).before == 4 and ids(clicks) == ALL


@follows("letters.no-such-table")
def test_a_table_that_holds_no_letters_is_refused(clicks):
    told("letters.no-such-table", lambda: open_letters(local_file_io(False), clicks)).says("dead_letters")
    assert open_letters(local_file_io(False), rejected(clicks)).root == rejected(clicks)


@pytest.mark.parametrize("how", ["another name", "renamed letters"])
def test_letters_are_known_whatever_their_table_and_their_replay_are_called(clicks, how):
    """A second name wrote each row a second time."""
    allow_nulls(clicks)
    replayed(clicks)
    letters, name = Path(rejected(clicks)), ()
    if how == "another name":
        name = ("--application", "other")
    else:
        letters = letters.rename(letters.with_name("rejected_2026"))
    for yes in ((), ("--yes",)):
        again = said("dead-letters", "replay", str(letters), "--target", "clicks", *name, *yes)
        assert (again["replayed"], again["before"]) == (0, 4)
    assert ids(clicks) == ALL


def test_what_another_replay_has_left_pending_counts(clicks):
    """The replay that comes publishes it first, whatever its name."""
    allow_nulls(clicks)
    arm("precommit.saved", 1, crash)
    with pytest.raises(InjectedCrash):
        replayed(clicks)
    faults.arm(None)
    would = said("dead-letters", "replay", rejected(clicks), "--target", "clicks", "--application", "other")
    assert (would["replayed"], would["before"], ids(clicks)) == (0, 4, [n for n in ALL if n % 3])
    assert replayed(clicks, application="other").before == 4 and ids(clicks) == ALL


@pytest.mark.parametrize("step", ["write.begin", "precommit.before_record", "precommit.saved", "commit.before_publish"])
@pytest.mark.parametrize("name", [NAME, "other"])
def test_a_replay_that_was_paused_is_fenced_by_another_one(clicks, monkeypatch, step, name):
    """Its hold has run out on a store without locks; here nobody's hold keeps anybody out. It may find that its staged
    files were swept before it finds that it is fenced.
    """
    allow_nulls(clicks)
    monkeypatch.setattr(FileIO, "hold", lambda file_io, folder: Flock(lambda: lambda: None))

    def meanwhile(reached: str) -> None:
        if reached == step:
            faults.arm(None)
            replayed(clicks, application=name)

    faults.arm(meanwhile)
    try:
        with contextlib.suppress(Fenced, FileNotFoundError):
            replayed(clicks)
    finally:
        faults.arm(None)
    assert ids(clicks) == ALL and replayed(clicks).replayed == 0


@follows("replay.in-use")
def test_a_replay_of_another_name_at_the_same_time_is_refused(clicks):
    """Each would find letters that the other one is about to write."""
    allow_nulls(clicks)

    def meanwhile(step: str) -> None:
        if step == "write.begin":
            faults.arm(None)
            told("replay.in-use", lambda: replayed(clicks, application="other")).says(
                "Call this again when it has ended"
            )

    faults.arm(meanwhile)
    try:
        assert replayed(clicks).replayed == 4
    finally:
        faults.arm(None)
    assert replayed(clicks, application="other").before == 4 and ids(clicks) == ALL


@pytest.mark.parametrize("name", ["../up", "a b", "", "x\n"])
def test_a_name_that_is_none_of_an_application_is_refused(clicks, name):
    """It names a folder: '../up' made a journal outside of the folder for them."""
    allow_nulls(clicks)
    for yes in ((), ("--yes",)):
        refused = said("dead-letters", "replay", rejected(clicks), "--target", "clicks", "-a", name, *yes, code=3)
        assert refused["error"]["kind"] == "application.name"
    assert application_of("lake/my rejected.ü") == "replay-my-rejected--"


def test_a_replay_whose_files_are_gone_is_given_up_and_made_again(clicks):
    """As its error says; there was no folder yet with the marks of published runs."""
    allow_nulls(clicks)
    arm("precommit.saved", 1, crash)
    with pytest.raises(InjectedCrash):
        replayed(clicks)
    faults.arm(None)
    [staged] = Path(journal_dir(clicks, NAME)).rglob("*.parquet")
    staged.unlink()
    way_on = told("pending.files-gone", lambda: replayed(clicks)).find(r"\(in a shell: streamsink ([^)]*)\)")
    run(*shlex.split(way_on))
    assert replayed(clicks).replayed == 4 and ids(clicks) == ALL


def test_columns_that_the_table_does_not_take_are_left_out(clicks):
    """A letter has the whole row of the query, with its positions, and columns that are for other tables."""
    allow_nulls(clicks)
    warehouse = str(Path(clicks).parent)
    routing = Routing.of(
        warehouse, {"clicks": {"columns": "existing"}}, options(clicks), dead_letters="more", unrouted="fail"
    )
    wide = pa.schema([("id", pa.int64()), ("n", pa.string()), ("kind", pa.string()), (ROUTE, pa.string())])

    def rows(start: int, end: int) -> pa.RecordBatch:
        # One that fits: the table then knows the query.
        return pa.record_batch(
            {"id": [100, 101], "n": ["x", "7"], "kind": ["click"] * 2, ROUTE: ["clicks"] * 2}, schema=wide
        )

    letters = ManyTablesDriver(warehouse, wide, rows, routing, SinkOptions(application="many"))
    letters.run(local_file_io(False), SparkCheckpoint("q3"), [1])
    more = str(Path(clicks).with_name("more"))
    allow_texts(clicks)
    for columns, fits in ((), 0), (("--columns", "id"), 1):
        found = said("dead-letters", "replay", more, "--target", "clicks", *columns, code=1)
        assert found["replayed"] == fits and all("--columns existing" in each["why"] for each in found["unfit"])
    assert said("dead-letters", "replay", more, "--target", "clicks", "--columns", "existing", "--yes")["replayed"] == 1
    assert streamsink.read_arrow(clicks).filter(pc.field("id") == 100).to_pylist() == [{"id": 100, "n": "x"}]


@follows("letters.unreadable")
@pytest.mark.parametrize("how", ["torn", "gone"])
def test_letters_in_a_damaged_file_are_an_error_that_names_the_doctor(clicks, how):
    """Arrow's own error stood there, or the advice to try again. What is left can be replayed afterwards."""
    allow_nulls(clicks)
    first = min(Path(rejected(clicks)).rglob("*.parquet"))
    first.write_bytes(first.read_bytes()[:30])
    if how == "gone":
        first.unlink()
    doctor = told("letters.unreadable", lambda: replayed(clicks)).find("'streamsink (doctor [^']*)'")
    for command in ("list", "count"):
        assert said("dead-letters", command, rejected(clicks), code=4)["error"]["kind"] == "letters.unreadable"
    texts = [each["text"] for each in said(*shlex.split(doctor), code=1)["findings"]]
    assert any(str(first) in text and ("drop-missing" in text or how == "gone") for text in texts)
    first.unlink(missing_ok=True)
    run("drop-missing", rejected(clicks), "--yes")
    assert replayed(clicks).replayed == 2


def test_letters_that_are_alike_are_counted_one_by_one(clicks):
    """Two rows of the source that say the same are two rows of the table."""
    letters = letters_of(open_letters(local_file_io(False), rejected(clicks)), Chosen())
    twice = [letters[0], letters[0], letters[1]]
    assert left(twice, Counter()) == twice
    assert left(twice, Counter([letters[0].digest])) == twice[1:]
    assert left(twice, Counter(each.digest for each in twice)) == []


def test_a_letter_stays_the_same_when_its_table_gets_a_column():
    """A query that names position columns later adds them; in earlier letters they are null."""
    row = {"application": "a", "checkpoint_id": 1, "target": "t", "reason": "r: x", "column": None, "row": "{}"}
    assert _letter("id", dict(row)) == replace(_letter("id", {**row, "part": None}), positions=())
    assert _letter("id", dict(row)).digest != _letter("id", {**row, "part": 3}).digest
    assert _letter("id", dict(row)).digest != _letter("other table", dict(row)).digest
