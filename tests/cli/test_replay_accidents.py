"""Replays of dead letters, and what happens to their table, its journals and branches: each row stays there once."""

import contextlib
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from streamsink import maintenance
from streamsink.clock import IdSource
from streamsink.commands.retire import retire
from streamsink.errors import Misuse, StreamsinkError
from streamsink.format.types import parse_ddl
from streamsink.journal.file_journal import journal_dir
from streamsink.journal.repair import is_user_of_replay
from streamsink.operations.letters.replay import replay
from streamsink.operations.letters.selection import Chosen
from streamsink.options import SinkOptions
from streamsink.sinks.paimon.routed import RoutedTables
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.table.table import create_table, new_schema
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.many_driver import ManyTablesDriver
from tests.advice.following import follows, told
from tests.cli.conftest import run, said
from tests.cli.lakes import allow_nulls, allow_texts, run_letters
from tests.cli.replaying import ALL, NAME, ids, options, rejected, replayed

STRIDE = 5  # of the calls of the store at which a replay dies


@follows("retire.replay")
def test_a_replay_is_not_retired(clicks):
    """Its letters were written a second time by the next replay; also where its journal is lost, and the table alone
    says that there was one. What the error tells to do instead writes what is left.
    """
    allow_nulls(clicks)
    io, chosen = local_file_io(False), Chosen("clicks", kind="data.null")
    assert replay(io, clicks, rejected(clicks), chosen, options(clicks)).replayed == 4
    refused = told("retire.replay", lambda: retire(io, clicks, options(clicks))).says("Leave it as it is")
    for yes in ((), ("--yes",)):
        assert said("retire", clicks, "-a", NAME, *yes, code=3)["error"]["kind"] == "retire.replay"
    words = shlex.split(refused.find(r"\(in a shell: streamsink ([^)]*)\)").replace("LETTERS", rejected(clicks)))
    assert said(*words, "--target", "clicks")["before"] == 4
    shutil.rmtree(journal_dir(clicks, NAME))
    told("retire.replay", lambda: retire(io, clicks, options(clicks)))
    assert ids(clicks) == ALL


def test_another_name_does_not_hide_a_lost_journal(clicks):
    """A second name wrote each row a second time, because the table's word that there was a replay was not heard."""
    allow_nulls(clicks)
    replayed(clicks)
    shutil.rmtree(journal_dir(clicks, NAME))
    lost = told("replay.unknown", lambda: replayed(clicks, application="other"))
    words = lost.find(r"under another name \(in a shell: streamsink ([^)]*)\)")
    letters, name = ("LETTERS", rejected(clicks)), ("NEW-NAME", "other")
    words = shlex.split(words.replace(*letters).replace(*name))
    assert said(*words, "--target", "clicks", code=1)["replayed"] == 4, "only who says so goes on without that journal"
    assert said(*words, "--target", "clicks", "--reason", "data.cast", "--yes")["replayed"] == 0
    assert ids(clicks) == ALL


def test_a_branch_does_not_hide_what_was_replayed_into_its_table(clicks):
    """The journal of that replay is main's; a second name wrote the rows of the branch, and then of main, twice."""
    allow_nulls(clicks)
    replayed(clicks)
    work = maintenance.create_branch(clicks, "work", snapshot_id="latest").path
    for name in (NAME, "other"):
        told("replay.unknown", lambda name=name: _into(work, clicks, application=name)).says("that of a branch")
    assert ids(work) == ALL


@pytest.mark.parametrize("name", [NAME, "other"])
def test_a_branch_that_was_taken_over_does_not_hide_its_replays(clicks, name):
    """Its journal has the plan of what is in the table now."""
    work = maintenance.create_branch(clicks, "work", snapshot_id="latest").path
    allow_nulls(work)
    assert _into(work, clicks).replayed == 4
    maintenance.fast_forward(clicks, "work")
    assert ids(clicks) == ALL
    told("replay.unknown", lambda: replayed(clicks, application=name)).says("that of a branch")
    assert ids(clicks) == ALL


@follows("replay.unknown", "branch.replays")
def test_the_journal_of_a_branch_comes_into_the_table_that_took_it_over(clicks):
    """Else nobody knows any more what was replayed, and the table's next replay is refused for ever."""
    work = maintenance.create_branch(clicks, "work", snapshot_id="latest").path
    allow_nulls(work)
    assert _into(work, clicks).replayed == 4
    maintenance.fast_forward(clicks, "work")
    unknown = told("replay.unknown", lambda: replayed(clicks))
    kept = told("branch.replays", lambda: maintenance.delete_branch(clicks, "work"))
    assert said("branch", "delete", clicks, "work", code=3)["error"]["kind"] == "branch.replays"
    words = shlex.split(kept.find(r"'streamsink (restore .+? --yes)'"))
    assert shlex.split(unknown.find(r"'streamsink (restore .+? --yes)'")) == [
        each.replace(f"{work}/streamsink/{NAME}", "COPY") for each in words
    ]
    assert said(*words)["missing"]
    assert f"{work} is deleted" in run("branch", "delete", clicks, "work", "--yes").stdout
    assert (replayed(clicks).before, ids(clicks)) == (4, ALL)
    allow_nulls(clicks, False)
    run_letters(Path(clicks).parent, 2, 18)
    allow_nulls(clicks)
    assert replayed(clicks).replayed == 2 and ids(clicks) == list(range(18))


def test_a_branch_goes_with_replays_that_its_table_does_not_have(clicks):
    """Their rows go with it, and the letters are replayed again."""
    work = maintenance.create_branch(clicks, "work", snapshot_id="latest").path
    allow_nulls(work)
    assert _into(work, clicks).replayed == 4
    maintenance.delete_branch(clicks, "work")
    allow_nulls(clicks)
    assert replayed(clicks).replayed == 4 and ids(clicks) == ALL


def _into(branch: str, clicks: str, **given):
    return replay(local_file_io(False), branch, rejected(clicks), Chosen("clicks"), options(branch, **given))


def test_what_a_rollback_took_out_stays_out_and_is_told(clicks):
    """Rows are taken out on purpose; they do not come again without a word, and nobody is left to guess."""
    allow_nulls(clicks)
    replayed(clicks)
    rolled = said("rollback", clicks, "--snapshot", "2", "--yes")["snapshot"]
    for yes in ((), ("--yes",)):
        again = said("dead-letters", "replay", rejected(clicks), "--target", "clicks", *yes)
        assert (again["replayed"], again["before"], again["taken_out"]) == (0, 4, [rolled])
    text = run("dead-letters", "replay", rejected(clicks), "--target", "clicks").stdout
    assert f"(snapshot {rolled})" in text and "streamsink.write" in text
    run("rollback", clicks, "--snapshot", str(rolled - 1), "--yes")
    assert replayed(clicks).replayed == 0 and ids(clicks) == ALL
    assert is_user_of_replay(f"{NAME}-1-{'a' * 32}") and not is_user_of_replay("streamsink-q2")


def test_a_table_that_was_put_back_is_an_error_until_somebody_says_what_is_meant(clicks):
    """By a backup or Paimon's rollback: snapshots are gone, and with them the replay's rows."""
    allow_nulls(clicks)
    replayed(clicks)
    newest = said("snapshots", clicks, "--limit", "1")["snapshots"][0]["id"]
    for name in (f"snapshot-{newest}", "LATEST"):
        (Path(clicks) / "snapshot" / name).unlink(missing_ok=True)
    for name in (NAME, "other"):
        told("table.rolled-back", lambda name=name: replayed(clicks, application=name))
    assert replayed(clicks, on_rollback="republish").before == 4 and ids(clicks) == ALL


def test_a_table_that_was_made_again_gets_its_letters_again(clicks):
    """Its journals went with it; where they stay, no table is made above them."""
    allow_nulls(clicks)
    replayed(clicks)
    io, columns = local_file_io(False), new_schema(parse_ddl("id BIGINT, n BIGINT"), (), {})
    for name in ("snapshot", "schema", "manifest", "bucket-0"):
        shutil.rmtree(Path(clicks) / name)
    with pytest.raises(Misuse, match="streamsink as well"):
        create_table(io, clicks, columns)
    shutil.rmtree(clicks)
    create_table(io, clicks, columns)
    assert replayed(clicks).replayed == 4 and ids(clicks) == [n for n in ALL if n % 3 == 0]


@follows("replay.earlier-table")
@pytest.mark.parametrize("comes_again", [True, False])
def test_a_table_that_was_loaded_again_has_letters_of_two(clicks, comes_again):
    """Each row that did not fit came twice, in another batch perhaps, and a replay wrote it twice."""
    _made_again(clicks, "n BIGINT NOT NULL")
    run_letters(Path(clicks).parent, 0, 12, query="again", first=0 if comes_again else 12)
    allow_nulls(clicks)
    before = ids(clicks)
    refused = told("replay.earlier-table", lambda: replayed(clicks)).says("4 of these letters", "4 are of the present")
    assert said("dead-letters", "replay", rejected(clicks), "--target", "clicks", "--yes", code=3)["error"]
    assert ids(clicks) == before
    words = shlex.split(refused.find(r"Look whether .* \(in a shell: streamsink ([^)]*list [^)]*)\); if"))
    listed = said(*words)["listed"]
    rows = [each["row"] for each in listed]
    assert len(rows) == 8 and (len(set(rows)) < 8) is comes_again and len({each["table_id"] for each in listed}) == 2
    option = "--this-table" if comes_again else "--earlier-tables"
    words = shlex.split(refused.find(rf"\(in a shell: streamsink ([^)]*{option}[^)]*)\)"))
    for yes in ((), ("--yes",)):
        done = said(*words, *yes, code=0 if yes else 1)
        assert (done["replayed"], done["left_out"]) == ((4, 4) if comes_again else (8, 0))
    assert "4 letters are left out" in run(*words).stdout or not comes_again
    assert ids(clicks) == (ALL if comes_again else sorted([*before, *range(0, 24, 3)]))
    assert replayed(clicks, earlier_tables=not comes_again).replayed == 0


def _made_again(clicks, column):
    shutil.rmtree(clicks)
    create_table(local_file_io(False), clicks, new_schema(parse_ddl(f"id BIGINT, {column}"), (), {}))


def test_letters_of_a_table_whose_rows_all_fit_since_are_asked_for(clicks):
    """There was no letter of the second table to tell it by, and each row was written twice."""
    _made_again(clicks, "n BIGINT")
    run_letters(Path(clicks).parent, 0, 12, query="again")
    told("replay.earlier-table", lambda: replayed(clicks)).says("0 are of the present table")
    would = said("dead-letters", "replay", rejected(clicks), "--target", "clicks", "--this-table", "--yes")
    assert (would["replayed"], would["left_out"], ids(clicks)) == (0, 4, ALL)


def test_letters_that_do_not_say_what_they_are_of_are_asked_for(clicks, monkeypatch):
    """Those of earlier code, beside others."""
    monkeypatch.setattr(RoutedTables, "table_id", None)
    run_letters(Path(clicks).parent, 2, 18)
    allow_nulls(clicks)
    told("replay.earlier-table", lambda: replayed(clicks)).says("2 of these letters", "4 are of the present table")
    assert replayed(clicks, earlier_tables=False).replayed == 4
    assert ids(clicks) == [n for n in range(18) if n < 12 or n % 3]
    assert replayed(clicks, earlier_tables=True).replayed == 2 and ids(clicks) == list(range(18))


def test_letters_of_some_checkpoints(clicks):
    """By the numbers of batches."""
    allow_nulls(clicks)
    letters = ("dead-letters", "replay", rejected(clicks), "--target", "clicks")
    assert said("dead-letters", "count", rejected(clicks), "--checkpoint", "1")["letters"] == 2
    assert said("dead-letters", "list", rejected(clicks), "--checkpoint", "2-30")["letters"] == 0
    assert said(*letters, "--checkpoint", "1", "--yes")["replayed"] == 2
    assert ids(clicks) == [n for n in ALL if n % 3 or n >= 6]
    assert said(*letters, "--checkpoint", "0-1", "--yes")["before"] == 2 and ids(clicks) == ALL
    for wrong in ("1-0", "one", "-1", "1-", "1" * 20):
        run(*letters, "--checkpoint", wrong, code=2)


_MANY = pa.schema([("id", pa.int64()), ("n", pa.string()), (ROUTE, pa.string())])


def _run_many(warehouse, application, texts, table="visits"):
    """A query of several tables, which has begun anew: its first batch has these values, and all go to one table."""

    def rows(start: int, end: int) -> pa.RecordBatch:
        columns = {"id": list(range(len(texts))), "n": list(texts), ROUTE: [table] * len(texts)}
        return pa.record_batch(columns, schema=_MANY)

    settings = SinkOptions(application=application)
    routing = Routing.of(warehouse, {table: {}}, settings, dead_letters="more", unrouted="fail")
    checkpoint = SparkCheckpoint(IdSource().new_id())
    ManyTablesDriver(warehouse, _MANY, rows, routing, settings).run(local_file_io(False), checkpoint, [1])


@pytest.mark.parametrize("texts", [["x", "7"], ["x", "y"]], ids=["some fit", "none fits"])
def test_letters_of_one_of_several_tables(clicks, texts):
    """They are not asked for: the table knows the query's journal, or no query has written to it."""
    warehouse, visits = str(Path(clicks).parent), clicks.replace("clicks", "visits")
    create_table(local_file_io(False), visits, new_schema(parse_ddl("id BIGINT, n BIGINT"), (), {}))
    _run_many(warehouse, "many", texts)
    allow_texts(visits)
    more = str(Path(warehouse) / "more")
    assert said("dead-letters", "replay", more, "--target", "visits", "--yes")["replayed"] == len(set(texts) - {"7"})
    assert ids(visits) == [0, 1]


@pytest.mark.parametrize("texts", [["x", "7"], ["8", "7"], ["x", "y"]], ids=["some fit", "all fit", "none fits"])
def test_letters_of_several_tables_that_were_loaded_again(clicks, texts):
    """Their query has begun anew, with another journal: nothing asked for earlier letters, and rows were doubled."""
    warehouse, visits = str(Path(clicks).parent), clicks.replace("clicks", "visits")
    columns, more = new_schema(parse_ddl("id BIGINT, n BIGINT"), (), {}), str(Path(warehouse) / "more")
    create_table(local_file_io(False), visits, columns)
    _run_many(warehouse, "many", ["x", "7"])
    shutil.rmtree(visits)
    shutil.rmtree(journal_dir(warehouse, "many"))
    create_table(local_file_io(False), visits, columns)
    _run_many(warehouse, "many-again", texts)
    allow_texts(visits)
    replays = ("dead-letters", "replay", more, "--target", "visits")
    refused = said(*replays, "--yes", code=3)["error"]
    assert refused["kind"] == "replay.earlier-table"
    if texts != ["x", "y"]:
        assert said(*replays, "--this-table", "--yes")["left_out"] == 1 and ids(visits) == [0, 1]
    else:  # of two, and no query has written to the table since
        assert "0 are of the present table" in refused["message"]


@follows("replay.unknown-record")
def test_a_table_that_was_restored_has_letters_in_two_tables(clicks, tmp_path):
    """Rows that the restore took out came again, as letters of the table that the start's own error names."""
    warehouse, io = Path(clicks).parent, local_file_io(False)
    shutil.copytree(clicks, tmp_path / "backup")
    run_letters(warehouse, 2, 18)
    shutil.rmtree(clicks)
    shutil.copytree(tmp_path / "backup", clicks)
    told("dead-letters.unknown-record", lambda: run_letters(warehouse, 2, 18)).says("to another name than 'rejected'")
    run_letters(warehouse, 2, 18, letters="rejected-2")
    allow_nulls(clicks)
    before = ids(clicks)
    refused = told("replay.unknown-record", lambda: replayed(clicks)).says("by a run of their own (streamsink.write)")
    assert ids(clicks) == before
    again = replay(io, clicks, str(warehouse / "rejected-2"), Chosen("clicks"), options(clicks))
    assert again.replayed == 2 and ids(clicks) == sorted([*before, 12, 15])
    words = shlex.split(refused.find(r"\(in a shell: streamsink ([^)]*list [^)]*)\)"))
    assert [each["checkpoint_id"] for each in said(*words)["listed"]].count(2) == 2
    words = shlex.split(refused.find(r"\(in a shell: streamsink ([^)]*--earlier-tables[^)]*)\)"))
    assert said(*words, code=1)["replayed"] == 6


def test_letters_come_while_they_are_replayed_and_old_ones_go(clicks):
    """Some fit, more come, the letters' table is compacted and its snapshots expire: each row is there once."""
    io, dead = local_file_io(False), rejected(clicks)
    assert (replayed(clicks).replayed, len(replayed(clicks).unfit)) == (0, 4)
    run_letters(Path(clicks).parent, 2, 18)
    allow_nulls(clicks)
    some = replay(io, clicks, dead, Chosen("clicks", "streamsink"), options(clicks))
    assert (some.replayed, some.before) == (6, 0)
    run("compact", dead, "--full", "--yes")
    run("expire", dead, "--retain-max", "1", "--retain-min", "1", "--yes")
    again = replayed(clicks)
    assert (again.replayed, again.before) == (0, 6)
    run_letters(Path(clicks).parent, 3, 24)
    assert replayed(clicks).replayed == 0 and ids(clicks) == list(range(24))


def test_many_replays_are_known_for_ever(clicks):
    """Records are pruned after some; which runs are published, and what they took, is not."""
    for number in range(2, 9):
        allow_nulls(clicks, False)
        run_letters(Path(clicks).parent, number, 6 * (number + 1))
        allow_nulls(clicks)
        done = replayed(clicks, journal_retain=2)
        assert (done.replayed, done.before) == (6 if number == 2 else 2, 0 if number == 2 else 2 * number)
    assert ids(clicks) == list(range(54)) and replayed(clicks).before == 18
    assert len(list(Path(journal_dir(clicks, NAME)).glob("record-*"))) <= 2


@pytest.mark.soak
@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.TORN, Mode.REPLY_LOST])
def test_a_replay_that_dies_at_any_call_of_the_store_is_ended_by_the_next_one(clicks, tmp_path, mode, rng):
    """At calls of the store that the seed chooses; then another replay, under the same name or another one, ends it."""
    allow_nulls(clicks)
    whole = Path(clicks).parent

    def dying(number: int) -> tuple[str, int]:
        table = str(Path(shutil.copytree(whole, tmp_path / f"{mode.value}-{number}")) / "clicks")
        calls = CrashingCalls(PosixCalls(), number, mode)
        with contextlib.suppress(InjectedCrash, OSError, StreamsinkError):
            replay(FileIO(calls, IdSource().new_id), table, rejected(table), Chosen("clicks"), options(table))
        return table, len(calls.log)

    _, calls = dying(0)
    for number in range(1 + rng.randrange(STRIDE), calls + 1, STRIDE):
        table, _ = dying(number)
        assert set(replayed(table, application=("other", NAME)[number % 2]).unfit) == set(), number
        assert ids(table) == ALL, number
        shutil.rmtree(Path(table).parent)
