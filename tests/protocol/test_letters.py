"""Dead letters are an option: a query that gets them, or loses them, is the same query in the same place."""

import dataclasses
import json

import pytest

from streamsink import events, faults
from streamsink.commands.give_up import give_up
from streamsink.commands.retire import retire
from streamsink.errors import Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import create_table, new_schema
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import arm
from tests.advice.following import advice, follows, told
from tests.crash.letters_world import LETTERS, NAME, PLAIN, LettersWorld
from tests.crash.world import die_at_step


def _key(world) -> str:
    """The name under which the dead-letter table knows the application."""
    [key] = [key for key in world.states(world.dead_letters) if key.startswith(f"streamsink@{NAME}@")]
    return key


def test_a_query_that_gets_and_loses_dead_letters_is_one_application_in_one_place():
    """Issue 10: formerly the option changed the name, the journal and the state."""
    world = LettersWorld()
    for boundaries, how in (
        ((6, 9), PLAIN),
        ((6, 9, 14), LETTERS),
        ((6, 9, 14, 18), PLAIN),
        ((6, 9, 14, 18, 22), LETTERS),
    ):
        world.run(boundaries=boundaries, how=how)
        assert list(world.states(NAME)) == ["streamsink"]
        assert world.states(NAME)["streamsink"]["sequence"] == len(boundaries)
    world.check_complete((6, 9, 14, 18, 22))
    assert {name for name, _, _ in world.rows()} == {NAME, "rejected"}
    names = world.file_io().names(f"{world.path}/streamsink")
    assert list(names) == ["streamsink"] and not world.file_io().entries(f"{world.root}/streamsink")


@pytest.mark.parametrize("how, then", [(PLAIN, LETTERS), (LETTERS, PLAIN)])
def test_a_replay_is_recognised_by_the_other_kind_of_start(how, then):
    """Spark's commit log lacks the last batch and one before it."""
    world = LettersWorld()
    world.run(boundaries=(6, 9, 14), how=how)
    before = world.rows()
    world.checkpoint.committed = 1
    world.run(boundaries=(6, 9, 14), how=then)
    assert world.rows() == before
    assert sum(isinstance(event, events.BatchSkipped) for event in world.events) == 2


def test_positions_are_those_of_the_table():
    """A new checkpoint that reads old messages again is refused, with and without dead letters."""
    world = LettersWorld()
    world.run(boundaries=(6, 9), how=PLAIN)
    world.checkpoint = type(world.checkpoint)("00000000-0000-0000-0000-000000000002")
    for how in (LETTERS, PLAIN):
        with pytest.raises(Misuse) as refused:
            world.run(boundaries=(5,), how=how)
        assert refused.value.kind == "positions.overlap"


def test_batches_without_dead_letters_leave_their_table_alone():
    """The dead-letter table gets no snapshot and no state of these batches."""
    world = LettersWorld()
    world.run(boundaries=(1,))  # Row 0 is bad in its first evaluation.
    before = world.table("rejected").snapshots.ids()
    world.run(boundaries=(1, 2, 3))
    assert world.table("rejected").snapshots.ids() == before and len(world.rows()) == 3


def _calls_of_a_good_batch(how: str) -> int:
    """The number of I/O calls of the third batch of a start, in which no row is bad."""
    world = LettersWorld()
    calls = CrashingCalls(world.calls)
    driver = world.driver_of(how)
    sink = driver.start(world.file_io(calls), world.checkpoint)
    world.checkpoint.ends.extend((1, 2, 3))  # Row 0 is bad in its first evaluation, rows 1 and 2 are not.
    for batch_id in range(3):
        before = calls.count
        sink.batch(driver.describe(world.checkpoint, batch_id))
    return calls.count - before


def test_a_batch_without_dead_letters_costs_what_it_costs_without_the_option():
    """The dead-letter table is not even looked at."""
    assert _calls_of_a_good_batch(LETTERS) == _calls_of_a_good_batch(PLAIN)


def test_a_record_with_dead_letters_is_refused_by_code_that_does_not_know_them():
    """Its version on disk tells. Other records have the earlier version."""
    world = LettersWorld()
    world.run(boundaries=(1, 2))  # Row 0 is bad in its first evaluation, row 1 is not.
    versions = [
        json.loads(world.file_io().read(f"{world.path}/streamsink/streamsink/record-{n}.json").split(b"\n")[0])[
            "version"
        ]
        for n in (1, 2)
    ]
    assert versions == [3, 2]


def test_rows_of_dead_letters_are_counted_once_they_are_visible():
    """Both a start with the option counts them and a start without it, which publishes what was pending."""
    world = LettersWorld()
    assert die_at_step("precommit.saved", 1, world)
    world.run(how=PLAIN)
    said = [event for event in world.events if isinstance(event, events.RowsDeadLettered)]
    assert sum(event.rows for event in said) == sum(name == "rejected" for name, _, _ in world.rows()) > 0
    assert {(event.target, event.application) for event in said} == {(NAME, "streamsink")}


@pytest.mark.parametrize("first_letters", [6, 9])
def test_a_record_that_is_published_again_within_a_run_takes_its_dead_letters_along(first_letters):
    """Another writer's rename hides the record's snapshot between two batches. The next batch knows of the dead
    letters, whichever batch had the first ones."""
    world = LettersWorld()
    world.run(boundaries=(6,), how=LETTERS if first_letters == 6 else PLAIN)
    table = world.table(NAME)
    before = table.snapshots.latest()

    def rename() -> None:
        theirs = dataclasses.replace(before, id=before.id + 1, properties=None, commit_user="foreign")
        table.file_io.replace(table.layout.snapshot(theirs.id), theirs.to_json(), "theirs")

    arm("batch.end", 1, rename)
    try:
        world.run(boundaries=(6, 9, 14), how=LETTERS)
    finally:
        faults.arm(None)
    world.check_complete((6, 9, 14))
    assert sum(isinstance(event, events.Claimed) for event in world.events) == 2


@pytest.mark.parametrize("option", [{"publish": "async"}, {"mode": "overwrite"}, {"lock_id": "a.b.c"}])
def test_what_dead_letters_do_not_have_is_refused_before_anything_is_written(option):
    """The query goes on without dead letters, or without the option that was refused."""
    world = LettersWorld()
    world.run(boundaries=(6, 9), how=PLAIN)
    before = world.states(NAME)
    with pytest.raises(Misuse, match=next(iter(option))) as refused:
        world.run(how=LETTERS, **option)
    assert refused.value.kind == "option.value" and world.states(NAME) == before
    world.run()
    world.check_complete()


def _takes_another(world, refused) -> None:
    """The query's option names another table, as the error says."""
    known = advice(refused.value, refused.value.kind).find(r"another name than '(\w+)', under which a new table begins")
    world.dead_letters = f"{known}_2"
    world.tables = (NAME, known, world.dead_letters)


@follows("dead-letters.changed")
@pytest.mark.parametrize("accident", ["dropped", "recreated", "rolled back"])
def test_a_dead_letter_table_that_lost_rows_is_named_and_another_name_goes_on(accident):
    """After the error's way on each of the remaining rows is there once."""
    world = LettersWorld()
    world.run(boundaries=(6,), how=LETTERS)
    world.run(boundaries=(6, 9), how=LETTERS)
    table = world.table("rejected")
    if accident == "rolled back":
        world.file_io().delete(table.layout.snapshot(table.snapshots.latest().id))
    else:
        world.file_io().delete_tree(table.root)
    if accident == "recreated":
        create_table(world.file_io(), table.root, table.latest_schema())
    left = world.rows()
    with pytest.raises(Misuse) as refused:
        world.run()
    assert refused.value.kind == "dead-letters.changed" and "rejected" in str(refused.value)
    assert world.rows() == left
    _takes_another(world, refused)
    world.run()
    ids = [number for _, number, _ in world.rows()]
    assert len(ids) == len(set(ids)) and {number for _, number, _ in left} | set(range(9, 18)) <= set(ids)


def _replaced_under_the_query(world, occurrence: int, boundaries) -> None:
    """After so many batches of a run somebody else drops the dead-letter table and creates it anew.
    The run stops at the next batch."""
    table = world.table("rejected")

    def replace() -> None:
        world.file_io().delete_tree(table.root)
        create_table(
            world.file_io(), table.root, new_schema(table.latest_schema().fields, (), {"owner": "somebody else"})
        )

    arm("batch.end", occurrence, replace)
    driver = world.driver_of(LETTERS)
    said = told("dead-letters.replaced", lambda: driver._run_once(world.file_io(), world.checkpoint, boundaries))
    faults.arm(None)
    said.says("The next start of the query looks what it has")


@follows("dead-letters.replaced")
def test_a_dead_letter_table_that_is_replaced_under_the_query_is_looked_at_by_its_next_start():
    """Nothing of this query was in it, so the query goes on."""
    world = LettersWorld()
    LettersWorld(world.calls, name="another").run(boundaries=(1,))  # Its row is bad, so there is a dead-letter table.
    world.run(boundaries=(1,), how=PLAIN)
    _replaced_under_the_query(world, 2, (1, 2, 3, 4, 9))
    world.run(boundaries=(1, 2, 3, 4, 9))
    world.check_complete((1, 2, 3, 4, 9))
    assert {name for name, _, _ in world.rows()} == {NAME, "rejected"}


def test_dead_letters_that_go_under_the_query_are_named():
    """Dead letters of the query were in the table, so the error asks for another table."""
    world = LettersWorld()
    world.run(boundaries=(6,))
    _replaced_under_the_query(world, 1, (6, 9, 14))
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9, 14))
    assert refused.value.kind == "dead-letters.changed"
    _takes_another(world, refused)
    world.run(boundaries=(6, 9, 14))
    assert {number for _, number, _ in world.rows()} >= set(range(9, 14))


def test_an_application_that_is_retired_begins_anew_with_its_dead_letters():
    """Its numbers begin at 1 again, and the dead-letter table must not take them for old ones."""
    world = LettersWorld()
    world.run(boundaries=(6, 9, 14))
    assert _key(world)
    assert retire(world.file_io(), world.path, SinkOptions.of(world.path, {}))
    assert world.states("rejected") == {} == world.states(NAME)
    rows = len(world.rows())
    world.checkpoint = type(world.checkpoint)("00000000-0000-0000-0000-000000000002")
    world.run(boundaries=(6, 9, 14))
    assert len(world.rows()) == 2 * rows and _key(world)


@follows("dead-letters.unknown-record")
def test_dead_letters_whose_record_is_lost_are_named_and_the_advice_goes_on():
    """The driver was killed after the dead letters were published, and the journal was removed: the batch comes again,
    and its dead letters would be there twice."""
    world = LettersWorld()
    world.run(boundaries=(6,))
    assert die_at_step("letters.published", 1, world, boundaries=(6, 9))
    world.file_io().delete_tree(f"{world.path}/streamsink")
    before = world.rows()
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9))
    assert refused.value.kind == "dead-letters.unknown-record" and world.rows() == before
    _takes_another(world, refused)
    world.run(boundaries=(6, 9))
    rows = [row for row in world.rows() if row[0] != "rejected" or row[1] < 6]
    assert sorted(number for _, number, _ in rows) == list(range(9)), (
        "each once, but for those that the error has named"
    )


def test_dead_letters_whose_record_is_lost_are_named_when_none_come_again():
    """The row of the lost record is good in its second evaluation, so it would be in both tables."""
    world = LettersWorld()
    assert die_at_step("letters.published", 1, world, boundaries=(1,))  # Row 0 is bad in its first evaluation.
    world.file_io().delete_tree(f"{world.path}/streamsink")
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(1,))
    assert refused.value.kind == "dead-letters.unknown-record" and [name for name, _, _ in world.rows()] == ["rejected"]


@follows("dead-letters.gone")
def test_a_pending_record_whose_dead_letter_table_is_gone_can_be_given_up():
    """This is the error's way on: the rows are read again from the source, and another table takes the dead letters."""
    world = LettersWorld()
    assert die_at_step("precommit.saved", 1, world)
    world.file_io().delete_tree(f"{world.root}/rejected")
    for how in (PLAIN, LETTERS):
        with pytest.raises(Misuse) as refused:
            world.run(how=how)
        (path,), given = advice(refused.value, "dead-letters.gone").call("streamsink.give_up")
    assert world.rows() == [] and path == world.path
    done = give_up(world.file_io(), path, SinkOptions.of(path, given))
    assert done.records == (1,)
    world.run()
    world.check_complete()


def test_what_is_among_the_dead_letters_is_not_given_up():
    """To read its rows again would double them there."""
    world = LettersWorld()
    assert die_at_step("letters.published", 1, world)
    [sequence] = FileJournal(world.file_io(), world.path, "streamsink", 2)._listing.numbers("record-", ".json")
    record = FileJournal(world.file_io(), world.path, "streamsink", 2).load(sequence)
    world.file_io().delete(f"{world.path}/{record.files[0].staged}")
    with pytest.raises(Misuse, match="rejected") as refused:
        give_up(world.file_io(), world.path, SinkOptions.of(world.path, {}))
    assert refused.value.kind == "give-up.published"


@follows("give-up.published")
@pytest.mark.parametrize("before", [0, 1])
def test_what_is_among_the_dead_letters_and_can_never_be_published_whole(before):
    """The dead-letter table goes back, or is dropped when there was nothing in it before;
    then the rows are read again."""
    world = LettersWorld()
    if before:
        world.run(boundaries=(6,))
    assert die_at_step("letters.published", 1, world)
    journal = FileJournal(world.file_io(), world.path, "streamsink", 2)
    record = journal.load(journal._listing.numbers("record-", ".json")[-1])
    world.file_io().delete(f"{world.path}/{record.files[0].staged}")
    said = told("give-up.published", lambda: give_up(world.file_io(), world.path, SinkOptions.of(world.path, {})))
    table = world.table("rejected")
    assert (
        said.find(r"roll back (\S+) to the snapshot before" if before else r"or drop (\S+) where there is none")
        == table.root
    )
    if before:
        newest = table.snapshots.ids()[-1]
        assert len(table.snapshots.ids()) == 1 + before
        world.file_io().delete(table.layout.snapshot(newest))
        world.file_io().delete(table.layout.latest_hint)
    else:
        world.file_io().delete_tree(table.root)
    assert give_up(world.file_io(), world.path, SinkOptions.of(world.path, {})).records == (record.state.sequence,)
    world.run()
    world.check_complete()


def test_two_tables_share_one_for_dead_letters():
    """Each has its own state there. Their records have the same numbers."""
    world = LettersWorld()
    other = LettersWorld(world.calls, name="items")
    world.run(boundaries=(6, 9))
    assert die_at_step("letters.published", 2, other)
    world.run()
    other.run()
    tables = [world.table(name) for name in (NAME, "items")]
    written = sorted(number for table in tables for number in read_arrow(table).column("id").to_pylist())
    dead = read_arrow(world.table("rejected")).to_pylist()
    assert sorted([*written, *(json.loads(row["row"])["id"] for row in dead)]) == sorted([*range(18), *range(18)])
    assert {row["target"] for row in dead} == {NAME, "items"} and len(world.states("rejected")) == 2
