"""Advice of errors about what a table's history cannot tell any more,
about what others wrote meanwhile, and about the table's options and schema."""

import dataclasses
import re

import pyarrow.parquet as pq
import pytest

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.format.types import parse_ddl
from streamsink.table.table import open_table
from tests.advice.accidents import accept, lose_checkpoint, put_back, refused, renew_topic, take
from tests.advice.following import advice, follows
from tests.crash.giving_up import ENDS, clean, follow
from tests.crash.world import World, die_at_step, expected, memory_world
from tests.protocol.history import drop_from_newest
from tests.table.foreign import Prepared

PLAIN = {"restore": "restore-and-continue"}
ROOT = "/lake/shop.db/orders"


def _table(world):
    return open_table(world.file_io(world.calls), ROOT, for_writing=False)


# -- history that is not known -------------------------------------------------------------------------------------


def _expire(world, first: int, last: int) -> None:
    for number in range(first, last + 1):
        take(world, f"{ROOT}/snapshot/snapshot-{number}")


def _ours(world) -> list[int]:
    return [i for i in world.ids() if i < 1000]


@follows("history.incomplete")
def test_the_first_start_on_a_table_whose_history_has_expired():
    world = memory_world(**PLAIN)
    world.run(boundaries=(3,))
    Prepared(world).rename()
    _expire(world, 1, 1)
    new = World(world.calls, ROOT, application="new", **PLAIN)
    said = refused(new, "history.incomplete", (3,))
    said.says("If it never did").option("new_application")
    accept(new, new_application=said.option("new_application"))
    renew_topic(new, topic_id="another")
    before = len(new.ids())
    new.run(boundaries=(3, 5))
    assert len(new.ids()) == before + 5


@follows("history.incomplete")
def test_the_word_that_is_left_in_the_job_does_not_answer_when_the_journal_is_lost():
    """Formerly new_application=True was an answer for ever, and the whole source was written a second time."""
    world = memory_world(**PLAIN)
    world.run(boundaries=(3,))
    Prepared(world).rename()
    _expire(world, 1, 1)
    world.file_io(world.calls).delete_tree(f"{ROOT}/streamsink/streamsink")
    said = refused(world, "history.incomplete", (3,))
    behind = World(world.calls, ROOT, **PLAIN)
    behind.driver.first_file = behind.driver.earliest = 3
    accept(behind, new_application=said.option("new_application"))
    behind.run(boundaries=(6,))
    assert _ours(behind) == list(range(6))
    newest = _table(world).snapshots.latest()
    foreign = dataclasses.replace(newest, id=newest.id + 1, properties=None, commit_user="compactor")
    world.file_io(world.calls).write(f"{ROOT}/snapshot/snapshot-{foreign.id}", foreign.to_json())
    _expire(world, 2, newest.id)
    world.file_io(world.calls).delete_tree(f"{ROOT}/streamsink/streamsink")
    again = refused(behind, "history.incomplete", (6, 9))
    assert again.option("new_application") != said.option("new_application")
    assert _ours(behind) == list(range(6))


@follows("history.incomplete")
def test_a_batch_is_adopted_by_a_name_that_may_have_written_before():
    """The query was renamed and its topic was created again before anybody looked; nothing tells the topic before any
    more. Found by a walk: formerly the error did not say that the first messages of the new topic would not be read.
    """
    world = memory_world(**PLAIN)
    world.run(boundaries=(3,))
    Prepared(world).rename()
    _expire(world, 1, 1)
    world.file_io(world.calls).delete_tree(f"{ROOT}/streamsink/streamsink")
    renamed = World(world.calls, ROOT, application="new", adopt_from_batch=1, **PLAIN)
    renamed.checkpoint = world.checkpoint
    renew_topic(renamed, topic_id="another")
    said = refused(renamed, "history.incomplete", (3, 6))
    said.says("If adopt_from_batch=1 names the batch that comes", "when a topic was created again meanwhile")
    said.says("leave that option out and start a new checkpoint behind what is here")
    anew = World(world.calls, ROOT, application="new", **PLAIN)
    renew_topic(anew, topic_id="another")
    accept(anew, new_application=said.option("new_application"))
    before = len(anew.ids())
    anew.run(boundaries=(3, 6))
    assert len(anew.ids()) == before + 6


def _undecidable(gone: bool) -> World:
    """A record whose publishing nobody can tell: its driver was killed before the mark, others committed, and the
    snapshots that could tell have expired. gone: another engine's cleaning has also deleted the record's files."""
    world = memory_world(on_rollback="republish", **PLAIN)
    assert die_at_step("commit.hinted" if not gone else "precommit.saved", 2, world, boundaries=ENDS[:2])
    Prepared(world).rename()
    Prepared(world, 1).rename()
    if not gone:
        drop_from_newest(world)
    _expire(world, 1, _table(world).snapshots.ids()[-1] - 1)
    if gone:
        clean(world, 2)
    return world


@follows("journal.undecidable")
@pytest.mark.parametrize("way", ["accept_as_seen", "accept_as_new"])
def test_a_record_of_which_nobody_knows_whether_it_was_published(way):
    """Either its rows were compacted away together with the first batch's, so it was published;
    or they are not there, and it is published now."""
    world = _undecidable(gone=False)
    before = _ours(world)
    said = refused(world, "journal.undecidable", ENDS)
    assert said.find(r"rows of checkpoints? (\d+)") == "1"
    accept(world, **{way: said.option(way)})
    world.run(boundaries=ENDS)
    assert _ours(world) == sorted([*before, *(range(3, 6) if way == "accept_as_new" else ()), *range(6, 12)])


def _several_undecidable(published: int) -> tuple[World, list[int]]:
    """Several such records, and the rows that the table has."""
    world = memory_world(publish_every_batches=9, **PLAIN)
    world.run(boundaries=ENDS[:1])
    assert die_at_step(
        "commit.before_publish" if published < 3 else "commit.hinted",
        published + 1 if published < 3 else 3,
        world,
        boundaries=ENDS,
    )
    there = _ours(world)
    assert there == list(range(ENDS[published]))
    for number in range(2, len(ENDS) + 1):
        world.file_io(world.calls).delete(f"{ROOT}/streamsink/streamsink/done-{number}")
    for number in range(2):
        Prepared(world, number).rename()
    drop_from_newest(world)
    _expire(world, 1, _table(world).snapshots.ids()[-1] - 1)
    return world, _ours(world)


@follows("journal.undecidable")
@pytest.mark.parametrize("published", [0, 1, 2, 3])
def test_several_records_of_which_the_first_ones_may_be_published(published):
    """One of the accidents is a power failure that forgot marks as well.
    When one word answered for all records, rows were lost or came twice."""
    world, kept = _several_undecidable(published)
    said = refused(world, "journal.undecidable", ENDS)
    if published in (0, 3):
        way = "accept_as_seen" if published else "accept_as_new"
        accept(world, **{way: said.option(way)})
    else:
        accept(
            world,
            accept_as_seen=said.says("only those of the first ones").find(rf"'(\w+)' for checkpoint {published}\b"),
        )
    world.run(boundaries=ENDS)
    assert _ours(world) == sorted([*kept, *range(ENDS[published], ENDS[-1])])


@pytest.mark.parametrize("published", [0, 1, 2, 3])
def test_records_tell_where_their_rows_are_when_the_checkpoint_is_lost(published):
    """Their batches do not exist in the new checkpoint.
    Formerly nobody could look whether their rows are in the table, and a wrong guess lost them."""
    world, _ = _several_undecidable(published)
    lose_checkpoint(world)
    said = refused(world, "journal.undecidable", ENDS)
    rows = {
        number: _rows_in(world, path)
        for number, path in re.findall(r"those of checkpoint (\d+) are in (\S+\.parquet)", said.message)
    }
    assert list(rows) == ["1", "2", "3"] and all(rows.values())
    assert [set(found) <= set(range(first, first + 3)) for found, first in zip(rows.values(), ENDS)] == [True] * 3


def _rows_in(world, path: str) -> list[int]:
    with world.file_io(world.calls).open_input(path) as stream:
        return pq.ParquetFile(stream).read(["id"]).column("id").to_pylist()


@follows("journal.undecidable")
def test_a_record_of_which_nobody_knows_and_whose_files_are_gone():
    """The command forgets the record, with the token that the error says,
    and the same checkpoint writes the batch again."""
    world = _undecidable(gone=True)
    said = refused(world, "journal.undecidable", ENDS)
    assert follow(world, said).records == (2,)
    world.run(boundaries=ENDS)
    assert _ours(world) == expected(ENDS)


@follows("overwrite.changed-since")
@pytest.mark.parametrize("way, ids", [("accept_as_new", [3, 4, 5]), ("accept_as_seen", None)])
def test_an_overwrite_that_is_pending_while_others_wrote(way, ids):
    world = memory_world(mode="overwrite", **PLAIN)
    world.run(boundaries=ENDS[:1])
    assert die_at_step("precommit.saved", 1, world, boundaries=ENDS[:2])
    other = World(world.calls, ROOT, application="repair", **PLAIN)
    renew_topic(other)
    other.run(boundaries=(3,))
    before = world.ids()
    said = refused(world, "overwrite.changed-since", ENDS[:2])
    accept(world, **{way: said.option(way)})
    world.run(boundaries=ENDS[:2])
    assert world.ids() == (before if ids is None else ids)
    world.run(boundaries=ENDS[:3])
    assert set(range(6, 9)) <= set(world.ids())


@follows("overwrite.changed-since")
def test_an_overwrite_of_which_nobody_knows_whether_it_was_published_and_others_have_written():
    """The record raises two questions, each with a word of its own, and there is one option:
    the word of the second question answers both."""
    world = memory_world(mode="overwrite", **PLAIN)
    world.run(boundaries=ENDS[:1])
    assert die_at_step("precommit.saved", 1, world, boundaries=ENDS[:2])
    for number in range(2):
        Prepared(world, number).rename()
    _expire(world, 1, _table(world).snapshots.ids()[-1] - 1)
    for kind in ("journal.undecidable", "overwrite.changed-since"):
        said = refused(world, kind, ENDS[:2])
        accept(world, accept_as_new=said.option("accept_as_new"))
    world.run(boundaries=ENDS[:3])
    assert world.ids() == list(range(*ENDS[1:3]))


# -- options and schema of the table -------------------------------------------------------------------------------


@follows("table.bad-option")
def test_an_option_of_the_table_that_is_set_right():
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS[:1])
    _alter(world, "manifest.merge-min-count", "many")
    said = refused(world, "table.bad-option", ENDS)
    said.says("Set it right with ALTER TABLE")
    _alter(world, said.find(r"option '([^']+)'"), said.find(r"such as '([^']+)'"))
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


def _alter(world, option: str, value: str) -> None:
    """Set options of the table, as ALTER TABLE ... SET does."""
    schema = _table(world).latest_schema()
    changed = dataclasses.replace(schema, id=schema.id + 1, options={**schema.options, option: value})
    world.file_io(world.calls).create_if_absent(f"{ROOT}/schema/schema-{changed.id}", changed.to_json())


@follows("schema.gone")
@pytest.mark.parametrize("way", ["put-back", "made-again", "given-up"])
def test_a_schema_file_that_is_gone_under_what_is_pending(way):
    world = memory_world(**PLAIN, add_columns=True)
    world.run(boundaries=ENDS[:1])
    _evolve(world)
    assert die_at_step("precommit.saved", 1, world, boundaries=ENDS[:2])
    lost = take(world, f"{ROOT}/schema/schema-1")
    said = refused(world, "schema.gone", ENDS)
    if way == "put-back":
        put_back(world, f"{ROOT}/schema/{said.find(r'Put (schema-[0-9]+) back')}", lost)
    elif way == "made-again":
        said.says("make the same change of the schema again")
        _evolve(world)
    else:
        assert follow(world, said).records == (2,)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


def _evolve(world) -> None:
    table = open_table(world.file_io(world.calls), ROOT, for_writing=True)
    table.evolve(parse_ddl("id BIGINT, part STRING, version BIGINT, more STRING"), add_columns=True, widen_types=False)


@follows("snapshot.replaced-undecidable")
def test_a_replaced_snapshot_of_which_another_one_may_be_the_right_one():
    """Two snapshots in a row were replaced, so that nobody knows whether the newest one descends from the one that
    rewrote the files. The user rolls the table back to the right one, which here has none of the first writer's files:
    they are published again."""
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS[:1])
    replacing = Prepared(world)
    world.run(boundaries=ENDS[:2])
    rewriting = World(world.calls, ROOT, application="rewriting", mode="overwrite", overwrite_partition={}, **PLAIN)
    renew_topic(rewriting)
    rewriting.run(boundaries=(1,))
    io, third = world.file_io(world.calls), replacing.snapshot
    foreign = dataclasses.replace(_table(world).snapshots.load(3), properties=None)
    io.replace(f"{ROOT}/snapshot/snapshot-3", foreign.to_json(), IdSource().new_id())
    replacing.rename()
    io.write(f"{ROOT}/snapshot/snapshot-4", dataclasses.replace(third, id=4, uuid="another").to_json())
    io.write(f"{ROOT}/snapshot/snapshot-5", dataclasses.replace(third, id=5, uuid="another, too").to_json())
    io.replace(f"{ROOT}/snapshot/LATEST", b"5", IdSource().new_id())
    said = refused(world, "snapshot.replaced-undecidable", ENDS)
    said.says("Stop the other writers", "streamsink.verify", "roll the table back to the snapshot that is right")
    for number in (3, 4, 5):
        take(world, f"{ROOT}/snapshot/snapshot-{number}")
    take(world, f"{ROOT}/snapshot/LATEST")
    world.run(boundaries=ENDS)
    assert _ours(world) == expected(ENDS)


@follows("commit.strict-mode")
def test_another_user_s_overwrite_since_the_safe_snapshot():
    """The user looks at what the overwrite did and sets the option to its number; then what is pending is published."""
    option = "commit.strict-mode.last-safe-snapshot"
    world = memory_world(table_options={option: "1"}, **PLAIN)
    world.run(boundaries=ENDS[:1])
    other = World(world.calls, ROOT, application="other", mode="overwrite", **PLAIN)
    renew_topic(other)
    other.run(boundaries=(3,))
    said = refused(world, "commit.strict-mode", ENDS)
    number = said.find(r"snapshot (\d+) is a OVERWRITE of another user")
    said.says("then set the option to its number", option)
    schema = _table(world).latest_schema()
    changed = dataclasses.replace(schema, id=schema.id + 1, options={**schema.options, option: number})
    world.file_io(world.calls).create_if_absent(f"{ROOT}/schema/schema-{changed.id}", changed.to_json())
    world.run(boundaries=ENDS)
    assert world.ids() == [*range(3, 12), 1000, 1001, 1002]


@follows("schema.missing")
def test_a_schema_file_that_the_table_refers_to_is_restored():
    world = memory_world(**PLAIN, add_columns=True)
    world.run(boundaries=ENDS[:1])
    _evolve(world)
    world.run(boundaries=ENDS[:2])
    lost = take(world, f"{ROOT}/schema/schema-1")
    with pytest.raises(StreamsinkError) as told:
        world.ids()
    said = advice(told.value, "schema.missing")
    put_back(world, said.find(r"(/\S+schema-1)"), lost)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)
