"""recover, accept, unlock, retire: they do what a start of the query would do, and refuse while it runs."""

import os
import shutil
from pathlib import Path

import pytest

import streamsink
from streamsink import faults
from streamsink.errors import Corrupt
from streamsink.journal.file_journal import FileJournal
from streamsink.operations import holds
from streamsink.operations.journals import look_at_journals
from streamsink.operations.recover import recover
from streamsink.operations.words import meanings
from streamsink.options import SinkOptions
from streamsink.sinks.directory.file_sink import FileSink
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.advice import test_history, test_lost_letters
from tests.advice.following import follows, told
from tests.cli.conftest import run, said
from tests.cli.lakes import PENDING, PUBLISHED, driver, dying
from tests.crash.many_world import BOUNDARIES, ROOT, ManyWorld, check_complete, check_readable
from tests.crash.world import die_at_step, memory_world


def _ids(table: str) -> list[int]:
    return sorted(streamsink.read_arrow(table, columns=["id"])["id"].to_pylist())


def _goes_on(table: str) -> None:
    """The query starts again with its checkpoint, in which the last batch is not committed."""
    ends = [*PUBLISHED, PENDING, 50]
    driver(table).run(local_file_io(False), SparkCheckpoint("q1", ends[:4], len(PUBLISHED)), ends)
    assert _ids(table) == list(range(50))


def test_what_is_pending_is_published_and_the_query_goes_on(orders):
    """Its batch comes again, and is skipped."""
    shown = said("recover", orders, code=1)
    assert [each["record"] for each in shown["journals"][0]["pending"]] == [4] and _ids(orders) == list(range(30))
    [done] = said("recover", orders, "--yes")["recovered"]
    assert (done["application"], done["checkpoints"]) == ("streamsink", [3]) and _ids(orders) == list(range(40))
    assert said("recover", orders, "--yes")["recovered"] == []
    assert said("recover", orders, "-a", "streamsink", "--yes")["recovered"][0]["checkpoints"] == []
    _goes_on(orders)


def test_a_recovery_that_died_anywhere_is_ended_by_the_next_start(orders, tmp_path):
    """By the command again, or by the query."""
    reached: list[str] = []
    shutil.copytree(orders, tmp_path / "first")
    faults.arm(reached.append)
    try:
        run("recover", str(tmp_path / "first"), "--yes")
    finally:
        faults.arm(None)
    steps = list(dict.fromkeys(reached))
    assert {"restore.claimed", "commit.published", "commit.marked", "restore.swept"} <= set(steps)
    for number, step in enumerate(steps):
        table = str(tmp_path / step)
        shutil.copytree(orders, table)
        arm(step, 1, crash)
        with pytest.raises(InjectedCrash):
            recover(local_file_io(False), table, SinkOptions.of(table, {}))
        faults.arm(None)
        assert len(_ids(table)) in (30, 40), step
        if number % 2:
            run("recover", table, "--yes")
            assert _ids(table) == list(range(40)), step
        _goes_on(table)


def test_nothing_is_done_while_the_driver_lives(orders):
    """The command is a second start, and is refused as one; the hold is not released either."""
    living = FileJournal(local_file_io(False), orders, "streamsink", 2)
    living.claim("q1", 0)
    try:
        refused = said("recover", orders, "--yes", code=3)
        assert refused["error"]["kind"] == "application.in-use"
        held = said("unlock", orders, "-a", "streamsink", code=3)
        assert held["state"] == "alive" and held["pid"] == held["owner"]["pid"]
        assert said("unlock", orders, "-a", "streamsink", "--yes", code=3)["error"]["kind"] == "unlock.alive"
    finally:
        living.release()
    assert said("unlock", orders, "-a", "streamsink", "--yes")["state"] == "free"
    assert _ids(orders) == list(range(30))


def test_a_driver_that_took_over_from_one_that_ends_later_is_known_to_live(orders):
    """The earlier one had slept, and its process had the lock; whatever the later one does next takes it."""
    earlier, later = (FileJournal(local_file_io(False), orders, "streamsink", 2) for _ in range(2))
    earlier.claim("q1", 0)
    epoch = later.claim("q1", 0)
    try:
        earlier.release()
        later.check_owner(epoch)
        assert said("unlock", orders, "-a", "streamsink", code=3)["state"] == "alive"
        refused = said("discard", f"{orders}/streamsink/streamsink", "--yes", code=3)
        assert refused["error"]["kind"] == "discard.in-use"
    finally:
        later.release()
    assert said("unlock", orders, "-a", "streamsink")["state"] == "free"


def test_a_driver_in_another_container_is_no_dead_one(orders, tmp_path, monkeypatch):
    """The system's list of locks has none of a process that this one cannot see; its journal was deleted."""
    (tmp_path / "locks").write_text("")
    monkeypatch.setattr(holds, "_LOCKS", str(tmp_path / "locks"))
    living, journal = FileJournal(local_file_io(False), orders, "streamsink", 2), f"{orders}/streamsink/streamsink"
    living.claim("q1", 0)
    try:
        held = said("unlock", orders, "-a", "streamsink", code=3)
        assert (held["state"], held["pid"]) == ("alive", None) and held["owner"]["pid"] == os.getpid()
        assert said("unlock", orders, "-a", "streamsink", "--yes", code=3)["error"]["kind"] == "unlock.alive"
        assert said("discard", journal, "--yes", code=3)["error"]["kind"] == "discard.in-use"
        assert [each["command"] for each in said("doctor", orders)["findings"]] == [""]
    finally:
        living.release()
    assert said("unlock", orders, "-a", "streamsink")["state"] == "free"
    assert said("discard", journal, "--yes")["pending"] == 1


def test_what_several_tables_lack_is_published():
    """Of a query into several tables that died between two of them."""
    world = ManyWorld(restore="restore-and-continue")
    assert die_at_step("tables.table_published", 1, world)
    done = recover(world.file_io(), ROOT, SinkOptions.of(ROOT, {}))
    assert done.checkpoints == (0,)
    check_readable(world.rows(), BOUNDARIES[: len(done.checkpoints)])
    world.run()
    check_complete(world.rows())


def test_a_question_of_a_start_is_answered_by_the_word_that_is_explained():
    """The command asks what a start would ask, ``accept`` says what the word means, and the option answers."""
    world = test_history._undecidable(gone=False)
    file_io, root = world.file_io(world.calls), world.driver.root
    with pytest.raises(Corrupt) as asked:
        recover(file_io, root, SinkOptions.of(root, {}))
    assert asked.value.kind == "journal.undecidable"
    [meaning] = [each for each in meanings(file_io, root) if each.word in str(asked.value)]
    assert "checkpoint 1, 3 rows" in meaning.question and set(meaning.options) == {"accept_as_seen", "accept_as_new"}
    before = test_history._ours(world)
    assert recover(file_io, root, SinkOptions.of(root, {"accept_as_new": meaning.word})).checkpoints == (1,)
    assert test_history._ours(world) == sorted([*before, *range(3, 6)])


@pytest.mark.parametrize("kind", ["new_application", "accept_as_seen"])
def test_words_of_other_questions_are_known(kind):
    """Whether a name ever wrote here, and whether dead letters are there."""
    if kind == "accept_as_seen":
        world = test_lost_letters._letters_alone()
        word = test_lost_letters._refused(world, "dead-letters.undecidable").option(kind)
        found = meanings(world.file_io(), world.path)
    else:
        world = memory_world(restore="restore-and-continue")
        world.run(boundaries=(3,))
        test_history.Prepared(world).rename()
        test_history._expire(world, 1, 1)
        world.file_io(world.calls).delete_tree(f"{world.driver.root}/streamsink/streamsink")
        word = test_history.refused(world, "history.incomplete", (3,)).option(kind)
        found = meanings(world.file_io(world.calls), world.driver.root)
    [meaning] = [each for each in found if each.word == word]
    assert kind in meaning.options


def test_a_word_that_nobody_knows_is_a_finding(orders):
    assert said("accept", orders, "0123456789ab", code=1)["words"] == []
    known = said("accept", orders)["words"][0]
    assert "record 4" in known["question"] and "checkpoint 3, 10 rows" in known["question"]
    assert said("accept", orders, known["word"])["words"] == [known]


def test_a_query_is_retired_only_when_nothing_is_pending(orders):
    """The dry run says so, too."""
    assert run("retire", orders, "-a", "streamsink", code=3).stderr.startswith("retire.pending: ")
    assert said("retire", orders, "-a", "streamsink", "--yes", code=3)["error"]["kind"] == "retire.pending"
    run("recover", orders, "--yes")
    assert said("retire", orders, "-a", "streamsink", "--yes")["retired"]
    assert said("positions", orders)["applications"] == [] and not (Path(orders) / "streamsink" / "streamsink").exists()


def test_a_query_whose_journal_is_lost_is_shown_before_it_is_retired(orders):
    """As the doctor advises; only --yes found it."""
    run("recover", orders, "-a", "streamsink", "--yes")
    shutil.rmtree(Path(orders) / "streamsink")
    assert "streamsink retire" in run("doctor", orders).stdout
    assert "the state of 'streamsink' would be removed" in run("retire", orders, "-a", "streamsink", code=1).stdout
    assert said("retire", orders, "-a", "streamsink", "--yes")["retired"]
    assert said("retire", orders, "-a", "streamsink", code=3)["error"]["kind"] == "journal.unknown"


@follows("journal.no-place")
def test_the_path_of_a_table_of_its_own_is_to_be_given(orders):
    database = os.path.dirname(orders)
    told("journal.no-place", lambda: look_at_journals(local_file_io(False), database)).says("give the path of one")
    assert len(look_at_journals(local_file_io(False), orders)) == 1


def test_a_system_that_does_not_tell_is_no_free_name(orders, monkeypatch):
    monkeypatch.setattr(holds, "_LOCKS", "/none")
    monkeypatch.setattr(holds, "_is_locked", lambda path: None)
    assert "does not tell" in run("unlock", orders, "-a", "streamsink", code=3).stdout


def test_the_table_s_lock_is_looked_at(orders):
    """Who holds it is named, and the exit code says that it is held."""
    from streamsink.locks.configured import lock_of

    options = SinkOptions.of(orders, {"lock": "file"})
    assert said("unlock", orders, "-a", "streamsink", "-o", "lock=file")["lock"]["holder"] == ""
    with lock_of(orders, options).acquire() as lease:
        held = said("unlock", orders, "-a", "streamsink", "-o", "lock=file", code=3)
        assert lease.owner in held["lock"]["holder"]


def test_a_sink_that_is_no_table_is_recovered_by_its_name(lake):
    """Its folder alone does not tell how it publishes; pending records are seen all the same."""
    (lake / "own.py").write_text("from streamsink.sink import FileSink\nsink = FileSink('out/orders')\nother = 7\n")
    path = str(lake / "out" / "orders")
    dying(path, SparkCheckpoint("q1"), [*PUBLISHED, PENDING], sink=FileSink(path))
    for wrong in ("own", "own:nothing", "own:other", "none:sink"):
        assert "--sink" in run("recover", path, "--sink", wrong, code=2).stderr
    [found] = said("doctor", path, code=1)["findings"]
    assert found["command"] == f"streamsink recover {path} -a streamsink --sink MODULE:NAME"
    refused = said("recover", path, "-a", "streamsink", "--yes", code=3)["error"]
    assert refused["kind"] == "sink.no-tables" and "--sink MODULE:NAME" in refused["message"]
    words = found["command"].replace("MODULE:NAME", "own:sink").split()[1:]
    assert [each["record"] for each in said(*words, code=1)["journals"][0]["pending"]] == [4]
    assert said(*words, "--yes")["recovered"][0]["checkpoints"] == [3]
    assert said("pending", path)["journals"][0]["pending"] == [] and said("doctor", path)["findings"] == []


def test_a_record_that_can_never_be_published_is_given_up(orders):
    """One query at a time, by its name; the text says where its rows are read again."""
    run("recover", orders, "--give-up", "--yes", code=2)
    next((Path(orders) / "streamsink" / "streamsink" / "staging").rglob("*.parquet")).unlink()
    assert said("pending", orders, code=1)["journals"][0]["pending"][0]["gone"]
    [done] = said("recover", orders, "-a", "streamsink", "--give-up", "--yes")["given_up"]
    assert done["records"] == [4] and "its rows are written, each once" in done["text"]
    _goes_on(orders)
