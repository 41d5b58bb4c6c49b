"""Advice of errors about dead letters where nobody knows whether their table has them."""

import dataclasses

import pytest

from streamsink.commands.give_up import give_up
from streamsink.errors import Fenced, StreamsinkError
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions
from streamsink.sinks.paimon.letter_tables import LetterTables
from tests.advice.following import advice, follows
from tests.advice.many import commit_of_another
from tests.crash.letters_world import BOUNDARIES, NAME, LettersWorld
from tests.crash.world import die_at_step
from tests.protocol.history import expire_before, roll_back_to, snapshot_of_another


def _refused(world, kind: str, **options):
    before = world.rows()
    with pytest.raises(StreamsinkError) as told:
        world.run(**options)
    assert world.rows() == before
    said = advice(told.value, kind)
    assert f"{world.root}/{world.dead_letters}" in said.message or kind != "dead-letters.undecidable"
    return said


def _letters_alone() -> LettersWorld:
    """A query that was killed when the dead letters of the first batch were published and its other rows were not; then
    the history of the dead-letter table expired."""
    world = LettersWorld()
    assert die_at_step("letters.published", 1, world)
    commit_of_another(world, world.dead_letters)
    return world


@follows("dead-letters.undecidable")
@pytest.mark.parametrize("way", ["accept_as_seen", "accept_as_new"])
def test_dead_letters_of_which_nobody_knows_whether_they_were_published(way):
    """Formerly they were published a second time."""
    world = _letters_alone()
    word = _refused(world, "dead-letters.undecidable").option(way)
    world.run(**{way: word})
    if way == "accept_as_new":
        world.check_complete()
    else:
        found = {number for _, number, _ in world.rows()}
        assert (
            set(range(BOUNDARIES[0], BOUNDARIES[-1])) <= found and len(found) == len(world.rows()) == BOUNDARIES[-1] - 2
        )


@follows("dead-letters.undecidable", "journal.undecidable")
@pytest.mark.parametrize("way", ["accept_as_seen", "accept_as_new"])
def test_neither_the_table_nor_the_dead_letters_can_be_told(way):
    """One option answers both questions, whichever is asked first."""
    world = LettersWorld()
    assert die_at_step("commit.hinted", 2, world)
    assert len({name for name, _, _ in world.rows()}) == 2
    for name in (NAME, world.dead_letters):
        commit_of_another(world, name)
    options = {"accept_as_new": _refused(world, "journal.undecidable").option("accept_as_new")}
    options |= {way: _refused(world, "dead-letters.undecidable", **options).option(way)}
    world.run(**options)
    numbers = [number for _, number, _ in world.rows()]
    assert len(set(numbers)) == len(numbers) == BOUNDARIES[-1] - (2 if way == "accept_as_seen" else 0)


def test_dead_letters_of_a_table_that_speaks_of_later_ones_are_there():
    """The table was rolled back by several records with dead letters, which others have rewritten since in their table.
    Formerly restarts went on for ever."""
    world = LettersWorld(journal_retain=100, on_rollback="republish")
    world.run()
    letters = world.table(world.dead_letters).snapshots.ids()
    assert len(letters) > 1
    table = world.table(NAME)
    for gone in table.snapshots.ids()[1:]:
        world.file_io().delete(table.layout.snapshot(gone))
    world.file_io().delete(table.layout.latest_hint)
    commit_of_another(world, world.dead_letters, keeps_states=True, keeps_earlier=False)
    kept = [row for row in world.rows() if row[0] == world.dead_letters]
    world.run(on_rollback="republish")
    assert [row for row in world.rows() if row[0] == world.dead_letters] == kept
    numbers = [number for _, number, _ in world.rows()]
    assert len(set(numbers)) == len(numbers)


def _given_up() -> LettersWorld:
    """The table was rolled back, its records were given up, and others have committed since.
    The dead letters are still where they were."""
    world = LettersWorld(journal_retain=100)
    world.run()
    table = world.table(NAME)
    for gone in table.snapshots.ids()[1:]:
        world.file_io().delete(table.layout.snapshot(gone))
    world.file_io().delete(table.layout.latest_hint)
    commit_of_another(world, world.dead_letters, keeps_states=True, keeps_earlier=False)
    _give_up(world, _refused(world, "table.rolled-back"))
    commit_of_another(world, NAME)
    del world.checkpoint.ends[1:]
    world.checkpoint.committed = 1
    return world


def _give_up(world, said) -> None:
    (path,), options = said.call("streamsink.give_up")
    assert give_up(world.file_io(), path, SinkOptions.of(path, options)).records


def _takes_another_table(world) -> None:
    """With another dead-letter table each row is there once,
    except those of the records that were given up which the first dead-letter table has."""
    known = _refused(world, "dead-letters.unknown-record").find(
        r"another name than '(\w+)', under which a new table begins"
    )
    before = world.rows()
    world.dead_letters = f"{known}_2"
    world.tables = (NAME, known, world.dead_letters)
    world.run()
    assert [row for row in world.rows() if row[0] == known] == [row for row in before if row[0] == known]
    numbers = [number for name, number, _ in world.rows() if name != known]
    assert sorted(numbers) == sorted({*numbers, *range(BOUNDARIES[0], BOUNDARIES[-1])})


@follows("dead-letters.unknown-record")
def test_dead_letters_under_a_number_that_was_given_up():
    """The dead-letter table still speaks of the records that a rollback of the main table took, and its own history
    cannot tell. Formerly what was recorded under their numbers was refused by it at each start."""
    _takes_another_table(_given_up())


def test_dead_letters_that_earlier_code_has_recorded_under_such_a_number(monkeypatch):
    """They are not taken for what is there: the rest of the record would be published without them."""
    world, plain = _given_up(), LetterTables._previous
    with monkeypatch.context() as earlier:
        earlier.setattr(LetterTables, "_previous", lambda self, name, sequence: plain(self, name, 1_000_000))
        assert die_at_step("letters.before_publish", 1, world)
    before = world.rows()
    with pytest.raises(Fenced):
        world.run()
    assert world.rows() == before


def test_dead_letters_that_can_be_told_are_not_asked_for():
    """The earlier history of their table has expired, but everything since the record was made is there."""
    world = LettersWorld()
    world.run(boundaries=BOUNDARIES[:1])
    table = world.table(world.dead_letters)
    newest = table.snapshots.latest()
    other = dataclasses.replace(newest, id=newest.id + 1, properties=None, commit_user="compactor")
    world.file_io().write(table.layout.snapshot(other.id), other.to_json())
    assert die_at_step("letters.before_publish", 1, world)
    for number in range(1, other.id):
        world.file_io().delete(table.layout.snapshot(number))
    world.run()
    world.check_complete()


def _goes_back(world, to: str, *, ends=(6, 9), dies: bool) -> None:
    """The dead-letter table loses the last record that it has. ends: of the batches before. dies: this happens while a
    batch with more dead letters is pending."""
    world.run(boundaries=BOUNDARIES[:1])
    table = world.table(world.dead_letters)
    if to == "another writer's snapshot":
        foreign = snapshot_of_another(table)
        expire_before(table, foreign)
    back = table.snapshots.latest().id
    world.run(boundaries=ends)
    assert not dies or die_at_step("precommit.saved", 1, world, boundaries=(6, 9, 14))
    assert roll_back_to(table, back)


def _goes_on_with_another_table(world, said, boundaries=(6, 9, 14)) -> None:
    known, left = said.find(r"another name than '(\w+)', under which a new table begins"), world.rows()
    world.dead_letters = f"{known}_2"
    world.tables = (NAME, known, world.dead_letters)
    world.run(boundaries=boundaries)
    numbers = [number for _, number, _ in world.rows()]
    assert len(numbers) == len(set(numbers)) and {number for _, number, _ in left} | set(range(9, 14)) <= set(numbers)


_BACK_TO = ["an earlier record", "another writer's snapshot"]


@follows("dead-letters.changed")
@pytest.mark.parametrize("to", _BACK_TO)
@pytest.mark.parametrize("ends", [(6, 9), (6, 9, 9)], ids=["last batch", "batch before one without"])
def test_dead_letters_that_were_rolled_back(to, ends):
    """Their table went back to another writer's snapshot, before which all have expired. Formerly that was trusted, and
    what the dead letters had was lost in silence."""
    world, boundaries = LettersWorld(), (*ends, 14)
    _goes_back(world, to, ends=ends, dies=False)
    _goes_on_with_another_table(world, _refused(world, "dead-letters.changed", boundaries=boundaries), boundaries)


@follows("dead-letters.gone", "dead-letters.changed")
@pytest.mark.parametrize("to", _BACK_TO)
def test_a_pending_record_is_not_published_over_dead_letters_that_were_rolled_back(to):
    """Its own dead letters would hide that others are gone.
    Formerly, where the table showed this, each start ended in an error that had no way on."""
    world = LettersWorld()
    _goes_back(world, to, dies=True)
    _give_up(world, _refused(world, "dead-letters.gone", boundaries=(6, 9, 14)))
    _goes_on_with_another_table(world, _refused(world, "dead-letters.changed", boundaries=(6, 9, 14)))


@follows("give-up.published", "dead-letters.changed")
def test_dead_letters_of_a_record_that_can_never_be_published_whole_and_before_which_all_has_expired():
    """Found by a walk: rolling back was the only way that the error named, and no snapshot was left to which the
    dead-letter table could go back."""
    world = LettersWorld()
    world.run(boundaries=(6,))
    assert die_at_step("letters.published", 1, world, boundaries=(6, 9))
    table, letters = world.table(NAME), world.table(world.dead_letters)
    expire_before(letters, snapshot_of_another(letters))
    world.file_io().delete(
        table.layout.within(FileJournal(world.file_io(), world.path, "streamsink", 2).load(2).files[0].staged)
    )
    with pytest.raises(StreamsinkError) as told:
        give_up(world.file_io(), world.path, SinkOptions.of(world.path, {}))
    said = advice(told.value, "give-up.published")
    assert (
        said.find(r"or drop (\S+) where there is none before it, or it has expired \(then first copy") == letters.root
    )
    world.file_io().delete_tree(letters.root)
    assert give_up(world.file_io(), world.path, SinkOptions.of(world.path, {})).records
    _goes_on_with_another_table(world, _refused(world, "dead-letters.changed", boundaries=(6, 9, 14)))
