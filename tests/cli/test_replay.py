"""Dead letters are replayed into their table after a fix: each row once, wherever a replay died."""

import datetime
import decimal
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import streamsink
from streamsink import faults
from streamsink.clock import IdSource
from streamsink.errors import Fenced
from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.types import parse_ddl
from streamsink.journal.file_journal import journal_dir
from streamsink.operations.letters.from_json import decoded
from streamsink.operations.letters.replay import PLANS, look, replay
from streamsink.operations.letters.selection import Chosen, _letter, left, letters_of, open_letters
from streamsink.options import SinkOptions
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.table.routed.dead_letters import Screen
from streamsink.table.routed.row_json import rows_to_json
from streamsink.table.table import create_table, new_schema
from streamsink.testing.faults import InjectedCrash, arm, crash
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.cli.conftest import run, said
from tests.cli.lakes import allow_nulls

D = decimal.Decimal
NAME = "replay-rejected"
_ALL = list(range(12))


@pytest.fixture
def clicks(lake) -> str:
    return str(lake / "lake" / "shop.db" / "clicks")


def _rejected(clicks: str) -> str:
    return clicks.replace("clicks", "rejected")


def _options(clicks: str, **given) -> SinkOptions:
    return SinkOptions.of(clicks, {"application": NAME, **given})


def _replay(clicks: str, **given):
    return replay(local_file_io(False), clicks, _rejected(clicks), Chosen("clicks"), _options(clicks, **given))


def _ids(clicks: str) -> list[int]:
    return sorted(streamsink.read_arrow(clicks, columns=["id"])["id"].to_pylist())


def test_letters_that_fit_after_a_fix_are_written_once(clicks):
    """Before the fix nothing is written; a second replay finds that all is done."""
    rejected = _rejected(clicks)
    before = said("dead-letters", "replay", rejected, "--target", "clicks", "--yes", code=1)
    assert (before["replayed"], len(before["unfit"])) == (0, 4)
    allow_nulls(clicks)
    assert said("dead-letters", "replay", rejected, "--target", "clicks")["replayed"] == 4
    assert _ids(clicks) == [n for n in _ALL if n % 3], "a dry run writes nothing"
    assert said("dead-letters", "replay", rejected, "--target", "clicks", "--yes")["replayed"] == 4
    again = said("dead-letters", "replay", rejected, "--target", "clicks", "--yes")
    assert (again["replayed"], again["before"], _ids(clicks)) == (0, 4, _ALL)


def test_a_replay_of_some_leaves_the_others(clicks):
    """What is chosen is replayed; the rest is when it is asked for."""
    allow_nulls(clicks)
    file_io, rejected = local_file_io(False), _rejected(clicks)
    done = replay(file_io, clicks, rejected, Chosen("clicks", kind="data.cast"), _options(clicks))
    assert (done.replayed, done.run) == (0, "")
    assert replay(file_io, clicks, rejected, Chosen("clicks", "streamsink"), _options(clicks)).replayed == 4
    assert replay(file_io, clicks, rejected, Chosen("orders"), _options(clicks)).replayed == 0
    assert _ids(clicks) == _ALL


def _steps(clicks: str) -> list[str]:
    """The steps that a replay reaches, in order."""
    reached: list[str] = []
    faults.arm(reached.append)
    try:
        _replay(clicks)
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
            _replay(table)
        faults.arm(None)
        file_io = local_file_io(False)
        would = look(file_io, table, _rejected(table), Chosen("clicks"), _options(table))
        done = _replay(table)
        assert (would.replayed, would.before) == (done.replayed, done.before), step
        assert _ids(table) == _ALL, step
        assert _replay(table).replayed == 0 and _ids(table) == _ALL, step


def test_two_replays_at_one_time_do_not_both_write(clicks):
    """The second one is refused while the first lives."""
    allow_nulls(clicks)
    refused = []

    def meanwhile(step: str) -> None:
        if step == "write.begin":
            faults.arm(None)
            with pytest.raises(Fenced) as second:
                _replay(clicks)
            refused.append(second.value.kind)

    faults.arm(meanwhile)
    try:
        assert _replay(clicks).replayed == 4
    finally:
        faults.arm(None)
    assert refused == ["application.in-use"] and _ids(clicks) == _ALL


@follows("replay.unknown")
def test_a_lost_journal_of_replays_is_an_error_and_its_backup_helps(clicks, tmp_path):
    """Without it the letters would be written a second time."""
    allow_nulls(clicks)
    _replay(clicks)
    plans = Path(journal_dir(clicks, NAME)) / PLANS
    shutil.move(plans, tmp_path / "backup")
    advice = told("replay.unknown", lambda: _replay(clicks)).says("Restore the journal", "--application")
    done = run("dead-letters", "replay", _rejected(clicks), "--target", "clicks", code=4)
    assert done.stderr.startswith("replay.unknown: ") and _ids(clicks) == _ALL
    shutil.move(tmp_path / "backup", plans)
    assert _replay(clicks).before == 4 and advice.kind == "replay.unknown"


@follows("replay.plan")
def test_a_torn_plan_is_an_error_and_its_backup_helps(clicks):
    allow_nulls(clicks)
    _replay(clicks)
    [plan] = (Path(journal_dir(clicks, NAME)) / PLANS).iterdir()
    kept = plan.read_bytes()
    plan.write_bytes(kept[:20])
    told("replay.plan", lambda: _replay(clicks)).says("Restore it from a backup")
    plan.write_bytes(kept)
    assert _replay(clicks).before == 4 and _ids(clicks) == _ALL


@follows("letters.no-such-table")
def test_a_table_that_holds_no_letters_is_refused(clicks):
    told("letters.no-such-table", lambda: open_letters(local_file_io(False), clicks)).says("dead_letters")
    assert open_letters(local_file_io(False), _rejected(clicks)).root == _rejected(clicks)


def test_letters_that_are_alike_are_counted_one_by_one(clicks):
    """Two rows of the source that say the same are two rows of the table."""
    letters = letters_of(open_letters(local_file_io(False), _rejected(clicks)), Chosen())
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


_VALUES = [
    ("TINYINT", [1, -128]),
    ("BIGINT", [2**63 - 1, -(2**63)]),
    ("BOOLEAN", [True, False]),
    ("DOUBLE", [0.1, float("inf"), -0.0]),
    ("FLOAT", [0.5, 3.4028234663852886e38]),
    ("DECIMAL(20, 2)", [D("12.50"), D("-999999999999999999.99")]),
    ("STRING", ["", "zwölf", "12"]),
    ("CHAR(3)", ["abc"]),
    ("BYTES", [b"", b"\x00\xff"]),
    ("DATE", [datetime.date(2026, 11, 27), datetime.date(1, 1, 1)]),
    ("TIME(3)", [datetime.time(12, 30, 1, 500_000)]),
    ("TIMESTAMP(6)", [datetime.datetime(2026, 11, 27, 1, 2, 3, 456_789)]),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", [datetime.datetime(2026, 11, 27, 1, 2, tzinfo=datetime.timezone.utc)]),
    ("ARRAY<INT>", [[1, None], []]),
    ("ARRAY<DECIMAL(5, 1)>", [[D("1.5")]]),
    ("MAP<STRING, DATE>", [[("a", datetime.date(2026, 1, 1)), ("b", None)]]),
    ("ROW<a INT, b ARRAY<BYTES>>", [{"a": 1, "b": [b"\x01"]}, {"a": None, "b": None}]),
]


@pytest.mark.parametrize(("ddl", "values"), _VALUES, ids=[ddl for ddl, _ in _VALUES])
def test_a_row_comes_back_from_its_text_as_it_was(ddl, values):
    """Through the form in which letters keep rows, in the table's own type."""
    schema = _schema(f"v {ddl}")
    arrow = pa.schema(to_arrow_schema(schema.fields))
    rows = pa.record_batch([pa.array([*values, None], arrow.field(0).type)], schema=arrow)
    parts = list(decoded(rows_to_json(rows), schema, Screen(schema), frozenset({"v"})))
    assert all(not refused for _, _, refused in parts), parts
    found = {place: value for places, part, _ in parts for place, value in zip(places, part.column(0).to_pylist())}
    assert [found[place] for place in range(len(values) + 1)] == rows.column(0).to_pylist()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"v":0.5}', "letter.value: column 'v' is TINYINT"),
        ('{"v":true}', "letter.value: column 'v' is TINYINT"),
        ('{"v":300}', "data.cast"),
        ('{"v":"x"}', "data.cast"),
        ('{"v":1,"w":2}', "letter.column: the table has no column 'w'"),
        ('{"v":{"base64":"AA=="}}', "letter.value"),
        ("[1]", "letter.text"),
        ("{", "letter.text"),
    ],
)
def test_a_row_that_still_does_not_fit_is_told_with_its_reason(text, why):
    schema = _schema("v TINYINT")
    [(places, rows, refused)] = decoded([text], schema, Screen(schema), frozenset())
    assert not places and list(refused) == [0] and refused[0].startswith(why)


def test_a_number_that_a_float_does_not_hold_exactly_is_no_float():
    """Arrow's cast would round it."""
    schema = _schema("v FLOAT")
    found = list(decoded(['{"v":0.1}', '{"v":0.5}'], schema, Screen(schema), frozenset()))
    assert [list(refused) for _, _, refused in found] == [[0], []]


def test_a_text_for_bytes_counts_only_where_the_column_has_always_held_bytes():
    """A letter of a time when it held text would be taken for base64 of other bytes."""
    schema = _schema("v BYTES")
    [(_, _, refused)] = decoded(['{"v":"abcd"}'], schema, Screen(schema), frozenset())
    assert refused[0].startswith("letter.value")


def _schema(ddl: str):
    file_io = FileIO(MemoryCalls(), IdSource().new_id)
    return create_table(file_io, "/lake/t", new_schema(parse_ddl(ddl), (), {})).known_schema
