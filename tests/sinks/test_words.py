"""``streamsink accept``: a word that an error of a fan-out or of a command printed is explained before it is given."""

import sys
from pathlib import Path

import pytest

from streamsink.commands.sinks_retired import look_of_sink, retire_of_sink
from streamsink.databases import DatabaseSink
from streamsink.operations.words import Meaning, meanings
from streamsink.operations.words_of_sinks import meanings_of_sink
from streamsink.options import SinkOptions
from streamsink.sink import FanOut, FileSink
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.advice.following import told
from tests.cli.conftest import run, said
from tests.sinks.fan_out_world import ALL, ENDS, KINDS, ROOT, FanOutWorld
from tests.sinks.test_fan_out_given_up import given_up, retired, without_its_files


def _of(found: list[Meaning], word: str) -> Meaning:
    [mine] = [each for each in found if each.word == word]
    return mine


def _with_sink(world: FanOutWorld, sink, place: str) -> list[Meaning]:
    """The words there; looking for them changes nothing."""
    before = {path: world.io().read(path) for path in world.calls._names if world.calls.size(path)}
    found = meanings_of_sink(world.io(), sink, SinkOptions.of(ROOT, {}), place)
    assert {path: world.io().read(path) for path in world.calls._names if world.calls.size(path)} == before
    return found


def test_a_word_of_a_destination_that_has_left():
    """It is known by the fan-out's own journal. Given, it does what is said of it."""
    world = FanOutWorld("files", "table", "own")
    world.dies_at("fan-out.recorded", 2)
    world.names = ("files", "table")
    word = told("fan-out.left-destination", lambda: world.run()).option("accept_as_seen")
    mine = _of(meanings(world.io(), f"{ROOT}/journal"), word)
    assert "'own'" in mine.question and f"({ROOT}/own)" in mine.question and "given up" in mine.question
    assert list(mine.options) == ["accept_as_seen"]
    world.run(accept_as_seen=word)
    assert world.seen() == dict.fromkeys(world.names, ALL) and world.ids("own") == ALL[: ENDS[0]]


@pytest.mark.parametrize("has_journal", [True, False])
def test_a_word_of_a_destination_that_joins(has_journal):
    """Only the sink knows that destination. Without the fan-out's journal the others say how far they are."""
    world = FanOutWorld("files", "lines")
    world.run(ends=ENDS[:2])
    world.names = ("table", "files", "lines")
    if not has_journal:
        world.io().delete_tree(f"{ROOT}/journal/streamsink/streamsink")
    word = told("fan-out.new-destination", lambda: world.run()).option("accept_as_new")
    mine = _of(_with_sink(world, world.make(ROOT), f"{ROOT}/journal"), word)
    assert "'table'" in mine.question and "checkpoint 1" in mine.question and list(mine.options) == ["accept_as_new"]
    world.run(accept_as_new=word)
    assert world.seen() == {"table": ALL[ENDS[1] :], "files": ALL, "lines": ALL}


@pytest.mark.parametrize("name", ["own", "table"])
@pytest.mark.parametrize("by_sink", [True, False])
def test_a_word_that_gives_up_one_destination(name, by_sink):
    world = without_its_files(name)
    word = told("give-up.fan-out", lambda: given_up(world, name)).option("accept_as_new")
    found = (
        _with_sink(world, world.make(ROOT), f"{ROOT}/journal") if by_sink else meanings(world.io(), f"{ROOT}/{name}")
    )
    mine = _of(found, word)
    assert f"'{name}'" in mine.question and "streamsink.give_up" in mine.options["accept_as_new"]


@pytest.mark.parametrize("name", ["table", "lines"])
def test_a_word_that_retires_one_destination(name):
    """Also of the last record, which is published: formerly that word was not known."""
    world = FanOutWorld("files", name)
    world.run()
    word = told("retire.fan-out", lambda: retired(world, name)).option("accept_as_new")
    for found in (
        meanings(world.io(), f"{ROOT}/{name}"),
        _with_sink(world, KINDS[name][0](f"{ROOT}/{name}"), f"{ROOT}/{name}"),
        _with_sink(world, world.make(ROOT), f"{ROOT}/journal"),
    ):
        mine = _of(found, word)
        assert f"'{name}'" in mine.question and "retired" in mine.options["accept_as_new"]
    assert retired(world, name, accept_as_new=word)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_word_that_retires_without_the_journal(is_lost, tmp_path):
    world = FanOutWorld()

    def sink(journal):
        return DatabaseSink(f"sqlite:{tmp_path}/shop.db", "orders", journal=journal, create_table=True)

    world.run(sink=sink("/journals"))
    if is_lost:
        world.io().delete_tree("/journals/streamsink")
    mine = sink("/journals" if is_lost else "/jornals")
    options = SinkOptions.of(mine.path, {})
    word = told("retire.other-journal", lambda: retire_of_sink(world.io(), mine, options)).option("accept_as_new")
    found = meanings_of_sink(world.io(), mine, options, mine.journal)
    assert "record 4 of 'streamsink'" in _of(found, word).question


@pytest.fixture
def shop(tmp_path, monkeypatch) -> Path:
    """A fan-out into files and a table of SQLite, in a module as a query has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_fan", raising=False)  # of another folder
    (tmp_path / "shop_fan.py").write_text(
        "from pathlib import Path\nfrom tests.sinks.test_words import fan_out\n"
        "both, one = (fan_out(Path.cwd(), *names) for names in (('files', 'orders'), ('orders',)))\n"
    )
    return tmp_path


def fan_out(folder: Path, *names: str) -> FanOut:
    sinks = {
        "files": FileSink(str(folder / "files")),
        "orders": DatabaseSink(f"sqlite:{folder}/shop.db", "orders", create_table=True),
    }
    return FanOut({name: sinks[name] for name in names}, journal=str(folder / "journal"))


def _runs(sink, ends) -> None:
    world = FanOutWorld()
    driver = MicroBatchDriver(ROOT, world.rows(0, 1).schema, world.rows, SinkOptions.of(ROOT, world.options))
    driver.destination = lambda: sink
    driver.run(local_file_io(False), SparkCheckpoint("query"), ends)


def test_the_command_is_given_a_sink(shop):
    """A word that only the sink knows is looked for there; without it the answer says what to give."""
    _runs(fan_out(shop, "orders"), ENDS[:2])
    word = told("fan-out.new-destination", lambda: _runs(fan_out(shop, "files", "orders"), ENDS)).option(
        "accept_as_new"
    )
    journal = str(shop / "journal")
    assert "--sink MODULE:NAME" in run("accept", journal, word, code=1).stdout
    [mine] = said("accept", journal, word, "--sink", "shop_fan:both")["words"]
    assert "'files'" in mine["question"] and mine["application"] == "streamsink"
    assert said("accept", journal, "0123456789ab", "--sink", "shop_fan:both", code=1)["words"] == []
    shown = run("accept", journal, word, "--sink", "shop_fan:both").stdout
    assert f"accept_as_new={word}: It does" in shown


def test_the_dry_run_of_retiring_a_sink_says_what_would_go(shop):
    """As of a table; what --yes would refuse, it refuses. Formerly there was none."""
    retire = ("retire", "any", "-a", "streamsink", "--sink", "shop_fan:one")
    _runs(fan_out(shop, "orders"), ENDS)
    before = _content(shop)
    shown = run(*retire, code=1).stdout
    assert f"{shop}/shop.db/orders: the journal" in shown and "what the destination remembers" in shown
    assert f"{shop}/journal: the journal {shop}/journal/streamsink/streamsink with" in shown
    assert "Give --yes to do it" in shown and _content(shop) == before, "a dry run has changed something"
    assert said(*retire, code=1)["retired"] is False
    misspelt = ("retire", "any", "-a", "nobody", "--sink", "shop_fan:one")
    assert said(*misspelt, code=3)["error"]["kind"] == "journal.unknown" and _content(shop) == before
    keeps = said("retire", "any", "-a", "streamsink", "--sink", "shop_fan:both", code=3)["error"]
    assert keeps["kind"] == "retire.keeps-names"
    assert said(*retire, "--yes")["retired"] is True
    assert said(*retire, code=3)["error"]["kind"] == "journal.unknown"


def test_the_dry_run_of_retiring_a_sink_while_a_record_is_pending():
    """It is refused as the command is."""
    world = FanOutWorld("server", "table")
    world.dies_at("fan-out.delivered", 2)
    given = world.make(ROOT), SinkOptions.of(ROOT, {})
    told("retire.pending", lambda: look_of_sink(world.io(), *given, f"{ROOT}/journal")).says("Nothing was changed")
    told("retire.pending", lambda: retire_of_sink(world.io(), *given))
    world.run()
    assert [each.is_known for each in look_of_sink(world.io(), *given, f"{ROOT}/journal")] == [True, True, False]
    assert retire_of_sink(world.io(), *given)


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_the_dry_run_of_retiring_one_destination_of_a_fan_out_is_refused_as_the_command_is(shop):
    """With the word that the error prints it says what would go."""
    _runs(fan_out(shop, "orders"), ENDS)
    (shop / "alone.py").write_text("from shop_fan import one\nsink = one.sinks['orders']\n")
    alone = ("retire", "any", "-a", "streamsink", "--sink", "alone:sink")
    refusal = said(*alone, code=3)["error"]
    assert refusal["kind"] == "retire.fan-out"
    word = refusal["message"].partition("accept_as_new='")[2].partition("'")[0]
    [mine] = said("accept", "any", word, "--sink", "alone:sink")["words"]
    assert said(*alone, "-o", f"accept_as_new={mine['word']}", code=1)["retired"] is False
    assert said(*alone, "-o", f"accept_as_new={mine['word']}", "--yes")["retired"] is True
