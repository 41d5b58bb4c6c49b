"""Which destinations a fan-out has: they join, leave, are renamed, dropped, and named twice."""

import ast
import json
import pickle

import pytest

from streamsink.databases import DatabaseSink
from streamsink.kafka import KafkaSink
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.decision import Verdict
from streamsink.sink import FanOut, FileSink, PaimonTable, to_sink
from streamsink.table.table import open_table
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.following import follows, told
from tests.sinks import shown
from tests.sinks.fan_out_world import ALL, ENDS, ROOT, FanOutWorld, fan_out, roll_back

EARLY = ENDS[:2]
HALF = list(range(EARLY[-1]))


def test_names_and_order_are_no_identity():
    """Destinations are renamed, and given in another order, with a record pending between them."""
    world = FanOutWorld("files", "table", "own")
    world.dies_at("fan-out.before_destination", 5)
    sinks = fan_out(ROOT, *world.names).sinks
    turned = {f"new {name}": sinks[name] for name in reversed(world.names)}
    world.make = lambda root: FanOut(turned, journal=f"{root}/journal")
    world.ends_right("a change of names and order")


@follows("fan-out.new-destination")
@pytest.mark.parametrize("step", ["precommit.saved", "batch.end"])
@pytest.mark.parametrize("name", ["own", "table"])
def test_a_destination_that_joins_is_asked_for_and_begins_at_the_next_batch(step, name):
    """It must not make the whole replay into the others, nor begin in the middle without a word."""
    world = FanOutWorld("files", "lines")
    world.dies_at(step, 2)
    world.names = (name, "files", "lines")
    said = told("fan-out.new-destination", lambda: world.run()).says(f"'{name}'", "Nothing was written", "no rows from")
    assert world.ids(name) == []
    word = said.option("accept_as_new")
    world.run(accept_as_new=word)
    assert world.seen() == {name: ALL[EARLY[-1] :], "files": ALL, "lines": ALL}
    world.run(ends=(*ENDS, 12))  # it is known now
    assert world.ids(name) == list(range(EARLY[-1], 12))
    world.names = ("files", f"{name}:another", "lines")
    told("fan-out.new-destination", lambda: world.run(ends=(*ENDS, 12, 14), accept_as_new=word))


@follows("fan-out.left-destination")
def test_a_destination_that_leaves_must_have_what_is_recorded_for_it():
    """Nothing is forgotten without a word; when nothing is pending, it may leave, and may come again."""
    world = FanOutWorld("files", "table", "own")
    world.dies_at("fan-out.recorded", 2)
    world.names = ("files", "table")
    said = told("fan-out.left-destination", lambda: world.run()).says(
        "'own'", "Name it once more", "Nothing was written"
    )
    assert world.seen() == dict.fromkeys(world.names, ALL[: ENDS[0]])
    world.names = ("files", "table", "own")
    world.run(ends=EARLY)
    world.names = ("files", "table")
    world.run()
    assert world.seen() == dict.fromkeys(world.names, ALL) and world.ids("own") == HALF
    world.names = ("files", "own", "table")
    again = told("fan-out.new-destination", lambda: world.run(ends=(*ENDS, 12))).says("has rows up to checkpoint 1")
    world.run(ends=(*ENDS, 12), accept_as_new=again.option("accept_as_new"))
    assert world.ids("own") == [*HALF, 9, 10, 11] and world.ids("files") == list(range(12))
    assert said.option("accept_as_seen")


def test_a_destination_that_is_gone_for_good_is_given_up_by_a_word():
    """Else no start would ever get behind what was recorded for it."""
    world = FanOutWorld("files", "table", "own")
    world.dies_at("fan-out.recorded", 2)
    world.io().delete_tree(f"{ROOT}/own")
    world.names = ("files", "table")
    word = told("fan-out.left-destination", lambda: world.run()).option("accept_as_seen")
    world.run(accept_as_seen=word)
    assert world.seen() == dict.fromkeys(world.names, ALL)


@follows("fan-out.new-destination")
@pytest.mark.parametrize("name", ["files", "own"])
def test_a_destination_that_was_dropped_and_created_again_is_noticed(name):
    """It would begin in the middle."""
    world = FanOutWorld("files", "table", "own")
    world.run(ends=EARLY)
    world.io().delete_tree(f"{ROOT}/{name}")
    said = told("fan-out.new-destination", lambda: world.run()).says("dropped and created again", "or restore")
    assert world.ids(name) == []
    world.run(accept_as_new=said.option("accept_as_new"))
    assert world.ids(name) == ALL[EARLY[-1] :]
    assert all(world.ids(other) == ALL for other in world.names if other != name)


@follows("fan-out.histories-differ")
@pytest.mark.parametrize("query", ["query", "another"])
def test_a_destination_that_has_more_than_the_others_must_wait(query):
    """As when a second sink of the same batch function, which was a batch ahead at a death, joins the fan-out; or when
    a query of another checkpoint has read the same topic further."""
    world = FanOutWorld("own")
    world.run(ends=(2, 3))
    fan_outs, world.checkpoint = world.checkpoint, SparkCheckpoint(query)
    world.run(ends=(2, 3, 5), sink=FileSink(f"{ROOT}/files"))
    world.checkpoint, world.names = fan_outs, ("own", "files")
    said = told("fan-out.histories-differ", lambda: world.run(ends=(2, 3, 5)))
    said.says("'files'", "Nothing was written", "Leave it out until the others have that too, and name it again")
    world.names = ("own",)
    world.run(ends=(2, 3, 5))
    world.names = ("own", "files")
    word = told("fan-out.new-destination", lambda: world.run(ends=(2, 3, 5, 9))).option("accept_as_new")
    world.run(ends=(2, 3, 5, 9), accept_as_new=word)
    assert world.seen() == dict.fromkeys(world.names, ALL)


def test_a_table_that_was_dropped_says_so_and_is_not_made_anew():
    world = FanOutWorld("files", "table")
    world.run(ends=EARLY)
    world.io().delete_tree(f"{ROOT}/table")
    told("table.gone", lambda: world.run()).says("Restore the table")
    assert world.io().entries(f"{ROOT}/table") == [] and world.ids("files") == HALF


def _sqlite(file: str, **options) -> DatabaseSink:
    return DatabaseSink(f"sqlite:{file}", table="rows", **options)


@follows("fan-out.same-destination")
def test_a_destination_is_named_once(tmp_path):
    """Each would take what the other has published for its own."""
    path, journal = str(tmp_path / "out"), str(tmp_path / "journal")
    twice = {
        "paths": {"a": FileSink(path), "b": FileSink(f"file://{path}")},
        "tables": {"a": _sqlite("/x.db"), "b": _sqlite("/x.db", mode="upsert", keys=("id",))},
        "topics": {"a": KafkaSink("host:1", "one"), "b": KafkaSink("host:1", "two")},
        "journals": {"a": _sqlite("/x.db", journal=path), "b": _sqlite("/y.db", journal=path)},
    }
    for what, sinks in twice.items():
        said = told("fan-out.same-destination", lambda sinks=sinks: FanOut(sinks, journal=journal))
        said.says("'a'", "'b'", "Nothing was written")
        if what in ("topics", "journals"):
            FanOut(sinks, journal=journal, options={"b": {"application": "second"}})
            spelled = FanOut(sinks, journal=journal, options={"b": {"application": "query"}})
            given = SinkOptions.of(spelled.path, {"application": "query"}), Batch(0, "query", "")
            told("fan-out.same-destination", lambda: spelled.open(FanOutWorld().io(), *given, lambda: (), print))


@follows("fan-out.option")
@pytest.mark.parametrize("kind", ["table", "own", "files", "server"])
def test_the_journal_is_in_no_journal_of_a_destination(kind):
    """The start would take what it has claimed itself for a newer driver's, and tell of that for ever."""
    world = FanOutWorld(kind)
    place = f"{ROOT}/server journal" if kind == "server" else f"{ROOT}/{kind}"
    sinks = fan_out(ROOT, kind).sinks
    told("fan-out.option", lambda: FanOut(sinks, journal=place)).says(f"'{kind}'", "a journal in another folder")
    if kind == "server":  # where names of their own keep journals of one folder apart
        for name, is_apart in (("streamsink", False), ("other", True)):
            options = {kind: {"application": name}}
            world.make = lambda root, options=options: FanOut(sinks, journal=place, options=options)
            world.run() if is_apart else told("fan-out.option", lambda: world.run())
        assert world.ids(kind) == ALL


@follows("fan-out.renamed")
@pytest.mark.parametrize("step", ["fan-out.recorded", "fan-out.before_destination", "batch.end"])
@pytest.mark.parametrize("name", ["files", "own", "table"])
def test_a_destination_keeps_the_name_by_which_it_knows_the_query(name, step):
    """What is pending must not be recorded for it where another query of that name has its own records."""
    world = FanOutWorld(name, "lines")
    world.dies_at(step)
    alone, other = fan_out(ROOT, name).sinks[name], FanOutWorld(name)
    other.calls, other.checkpoint = world.calls, SparkCheckpoint("another")
    world.make = lambda root: fan_out(root, *world.names, options={name: {"application": "other"}})
    said = told("fan-out.renamed", lambda: world.run()).says(f"'{name}'", "Nothing was written")
    own = ast.literal_eval(said.find(r"options=(\{.*?\}\})"))
    assert own == {name: {"application": "streamsink"}}
    other.run(ends=ENDS, sink=alone, application="other")
    world.make = lambda root: fan_out(root, *world.names, options=own)
    world.run()
    assert world.ids(name) == sorted(ALL + ALL) and world.ids("lines") == ALL


@follows("fan-out.same-destination")
def test_a_copy_of_a_destination_is_noticed():
    """It has the same identity."""
    world = FanOutWorld("own")
    world.run(ends=EARLY)
    io = world.io()
    io.make_dir(f"{ROOT}/copy")
    io.create_if_absent(f"{ROOT}/copy/id", io.read(f"{ROOT}/own/id"))
    world.names = ("own", "own:copy")
    told("fan-out.same-destination", lambda: world.run()).says("one is a copy of the other", "Name one of them only")


@follows("fan-out.option")
def test_what_a_fan_out_cannot_be_is_refused(tmp_path):
    files, journal = FileSink(str(tmp_path / "out")), str(tmp_path / "journal")
    wrong = [
        lambda: FanOut({"a": files}),
        lambda: FanOut({}, journal=journal),
        lambda: FanOut({"": files}, journal=journal),
        lambda: FanOut({"a": FanOut({"b": files}, journal=journal)}, journal=journal),
        lambda: FanOut({"a": PaimonTable("relative")}, journal=journal),
        lambda: FanOut({"a": files}, journal=journal, options={"b": {}}),
        lambda: FanOut({"a": files}, journal=journal, options={"a": {"mode": "overwrite"}}),
        lambda: FanOut([files], journal=journal),
        lambda: FanOut({"a": files.path}, journal=journal),
        lambda: FanOut({"a": FileSink}, journal=journal),
        lambda: FanOut({"a": files}, journal=journal, options=["a"]),
        lambda: FanOut({"a": files}, journal=journal, options={"a": None}),
        lambda: FanOut({"a": files}, journal=journal, may_lag=["a"]),
        lambda: FanOut({"a": files}, journal=files.path),
        lambda: FanOut({"a": _sqlite("/x.db", journal=journal)}, journal=f"{journal}/"),
    ]
    for make in wrong:
        told("fan-out.option", make).says("Nothing was written", "Correct the fan-out")
    told("option.of-tables", lambda: FanOut({"a": files}, journal=journal, options={"a": {"partition_by": ["x"]}}))
    told("option.of-tables", lambda: to_sink(FanOut({"a": files}, journal=journal), partition_by=["x"]))
    assert to_sink(FanOut({"a": files}, journal=journal), publish="async").path == journal


def test_fan_outs_that_write_elsewhere_are_not_the_same(tmp_path):
    """Two objects of one fan-out are one sink in a query, and two tables are two."""
    one, two = (PaimonTable(str(tmp_path / name)) for name in "ab")
    journal = str(tmp_path / "journal")
    assert FanOut({"a": one}, journal=journal) == FanOut({"a": one}, journal=f"{journal}/")
    assert FanOut({"a": one}, journal=journal) != FanOut({"a": two}, journal=journal)


def test_a_destination_has_options_of_its_own():
    world = FanOutWorld("files", "table")
    world.make = lambda root: fan_out(root, *world.names, options={"table": {"table_options": {"write-only": "true"}}})
    world.run()
    assert open_table(world.io(), f"{ROOT}/table", for_writing=True).known_schema.options["write-only"] == "true"


def test_the_record_names_what_each_destination_is_given():
    """One record, and no row value in it."""
    world = FanOutWorld("files", "table")
    world.dies_at("fan-out.recorded")
    [name] = [n for n in world.io().names(f"{ROOT}/journal/streamsink/streamsink") if n.startswith("record-")]
    body = json.loads(world.io().read(f"{ROOT}/journal/streamsink/streamsink/{name}").splitlines()[1])
    parts = {part["name"]: part for part in body["payload"]["destinations"]}
    assert parts.keys() == {"files", "table"} and all(len(part["files"]) == 1 for part in parts.values())
    assert sum(file["rows"] for file in body["files"]) == ENDS[0], "rows count once"
    assert Verdict.NEW and pickle.loads(pickle.dumps(fan_out(ROOT, *world.names))) == fan_out(ROOT, *world.names)


@pytest.mark.parametrize("options", [{"publish_every_batches": 3}, {}], ids=str)
def test_without_the_journal_what_the_destinations_have_recorded_counts(options):
    """It will be published, so the batch that comes again is no new one."""
    world = FanOutWorld("files", "table", "own", **options)
    world.dies_at("group.queued" if options else "fan-out.delivered", 1 if options else 3)
    world.io().delete_tree(f"{ROOT}/journal")
    world.ends_right("the loss of the journal with records pending")


@follows("fan-out.other-records")
def test_an_older_copy_of_the_journal_is_noticed():
    """It does not know what the destinations have got since."""
    world = FanOutWorld("files", "own")
    world.run(ends=ENDS[:1])
    io, journal = world.io(), f"{ROOT}/journal"
    kept = {path: io.read(path) for path in io.files_below(journal)}
    world.run(ends=EARLY)
    io.delete_tree(journal)
    for path, data in kept.items():
        io.create_if_absent(path, data)
    folder = told("fan-out.other-records", lambda: world.run()).find(r"remove its folder (\S+):")
    assert world.seen() == dict.fromkeys(world.names, HALF)
    io.delete_tree(folder)
    world.ends_right("the older copy was removed")


def test_a_start_fails_on_purpose_when_it_has_published_what_was_pending():
    """As for one destination, with the default of the option ``restore``."""
    world = FanOutWorld("files", "own", restore="restore-and-fail")
    world.dies_at("fan-out.before_destination", 2)
    told("restore.restarting", lambda: world.run(once=True))
    assert world.seen() == dict.fromkeys(world.names, ALL[: ENDS[0]])
    world.ends_right("the restart")


def test_the_page_shows_a_fan_out_that_can_be_made():
    """Up to the query, for which there would have to be a source and a PostgreSQL."""
    made: dict = {}
    exec(shown.code("FAN_OUT.md").partition("query = ")[0], made)  # noqa: S102  our own page
    assert list(made["orders_everywhere"].sinks) == ["lake", "files", "db"]


def test_a_destination_whose_staged_rows_are_gone_may_leave_and_join_again():
    """What was recorded for it cannot be published there any more, and must not hold the others up for ever."""
    world = FanOutWorld("files", "own", "table")
    world.dies_at("fan-out.recorded", 2)
    journal = f"{ROOT}/own/streamsink/streamsink"
    world.io().delete_tree(journal)
    told("pending.files-gone", lambda: world.run()).says("Nothing was published")
    world.names = ("files", "table")
    world.run(accept_as_seen=told("fan-out.left-destination", lambda: world.run()).option("accept_as_seen"))
    world.names = ("files", "own", "table")
    world.io().delete_tree(journal)
    word = told("fan-out.new-destination", lambda: world.run(ends=(*ENDS, 12))).option("accept_as_new")
    world.run(ends=(*ENDS, 12), accept_as_new=word)
    expected = list(range(12))
    assert world.seen() == {"files": expected, "own": [*ALL[: ENDS[0]], 9, 10, 11], "table": expected}


@follows("pending.files-gone", "table.rolled-back")
@pytest.mark.parametrize("kind", ["pending.files-gone", "table.rolled-back"])
@pytest.mark.parametrize("name", ["table", "own"])
def test_what_an_error_of_a_destination_advises_leads_on_in_a_fan_out(name, kind):
    """To give up what is pending would not: the fan-out's record gives it to the destination once more."""
    world = FanOutWorld("files", name)
    if kind == "pending.files-gone":
        world.dies_at("fan-out.recorded", 2)
        world.io().delete_tree(f"{ROOT}/{name}/streamsink/streamsink/staging")
    else:
        world.run(ends=EARLY)
        roll_back(world, name)
    said = told(kind, lambda: world.run()).says(f"leave the destination '{name}' out of the fan-out")
    assert "give_up" not in said.message
    journal = said.find(r"remove its journal (\S+) when the others have a batch more, and name it again")
    world.names = ("files",)
    if kind == "pending.files-gone":
        world.run(accept_as_seen=told("fan-out.left-destination", lambda: world.run()).option("accept_as_seen"))
    else:
        world.run()
    world.names = ("files", name)
    world.io().delete_tree(journal)
    word = told("fan-out.new-destination", lambda: world.run(ends=(*ENDS, 12))).option("accept_as_new")
    world.run(ends=(*ENDS, 12), accept_as_new=word)
    assert world.seen() == {"files": list(range(12)), name: [*ALL[: ENDS[0]], 9, 10, 11]}


@follows("journal.corrupt", "journal.missing-record")
@pytest.mark.parametrize(
    "kind, step, occurrence",
    [
        ("journal.corrupt", "fan-out.recorded", 2),
        ("journal.corrupt", "batch.end", 2),
        ("journal.corrupt", "batch.end", 1),
        ("journal.missing-record", "group.queued", 3),
    ],
)
def test_a_record_of_the_fan_outs_own_journal_is_lost_or_damaged(kind, step, occurrence):
    """``streamsink.give_up`` knows nothing of that journal. The destinations tell how far they are."""
    world = FanOutWorld("files", "own", **({"publish_every_batches": 9} if step == "group.queued" else {}))
    world.dies_at(step, occurrence)
    journal = f"{ROOT}/journal/streamsink/streamsink"
    if kind == "journal.corrupt":
        world.io().replace(f"{journal}/record-{occurrence}.json", b"torn", "torn")
    else:
        world.io().delete(f"{journal}/record-2.json")
    said = told(kind, lambda: world.run()).says("the destinations tell how far they are")
    assert "give_up" not in said.message
    world.io().delete_tree(said.find(r"remove the folder (\S+):"))
    world.ends_right("the journal was removed")


@follows("fan-out.new-destination", "fan-out.left-destination")
def test_words_for_several_destinations_are_told_together():
    """Who sets the option to what the last message says must not be asked the same in turn for ever."""
    world = FanOutWorld("files", "own", "table")
    world.dies_at("fan-out.recorded", 2)
    world.names = ("files", "lines", "own:other")
    words: dict[str, str] = {}
    for option, kind in (("accept_as_new", "new"), ("accept_as_seen", "left")):
        for number in (1, 2):
            said = told(f"fan-out.{kind}-destination", lambda: world.run(**words))
            words[option] = said.option(option)
            assert len(words[option].split()) == number
    world.run(**words)
    assert world.ids("files") == ALL and world.ids("lines") == world.ids("own:other") == ALL[EARLY[-1] :]


@follows("table.recreated")
def test_a_journal_of_another_fan_out_is_not_taken():
    """Such as one from a backup, without the identity, when another one has begun meanwhile."""
    world, journal = FanOutWorld("files", "own"), f"{ROOT}/journal"
    world.run(ends=EARLY)
    io = world.io()
    kept = {path: io.read(path) for path in io.files_below(f"{journal}/streamsink")}
    io.delete_tree(journal)
    world.run(ends=EARLY)  # a new one begins, and has no record yet
    io.delete_tree(f"{journal}/streamsink")
    for path, data in kept.items():
        io.create_if_absent(path, data)
    said = told("table.recreated", lambda: world.run()).says("Nothing was written", "the destinations tell")
    io.delete_tree(said.find(r"remove the folder (\S+):"))
    world.ends_right("the journal of another one was removed")
